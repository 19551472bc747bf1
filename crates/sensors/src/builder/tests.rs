//! Calls in, spans out, as text.

mod libraries;
mod rows;
mod story;

use super::*;
use crate::span::Attribute;
use probe::value::Value;
use story::*;
use timeline::End;

#[test]
fn a_request_has_what_the_conventions_ask_for() {
    let mut story = Story::new();
    story.request(4, 0xa0, "/a/7", none());
    story.enter(4, ROUTE, &[]).done(4, ROUTE, &[(Field::Pattern, text("GET /a/{id}"))]);
    story.respond(4, 0xa0, 503);
    let expected = "\
client.address = 10.0.0.9
client.port = 4242
error.type = 503
http.request.method = GET
http.response.body.size = 12
http.response.status_code = 503
http.route = /a/{id}
network.peer.address = 10.0.0.9
network.peer.port = 4242
network.protocol.version = 1.1
server.address = shop.test
server.port = 8080
url.path = /a/7
url.scheme = http
";
    assert_eq!(attributes(&mut story), expected);
    let expected = "GET /a/{id} | server t0 s1 tree s1 | g4 1-8 us error 0 left\n";
    assert_eq!(story.told(), expected);
}

#[test]
fn a_client_has_what_the_conventions_ask_for() {
    let mut story = Story::new();
    story.ask(4, "stock.test", none());
    let failed = [(Field::Error, Value::Interface { type_word: 2, data: 0xc0 })];
    story.done(4, CLIENT, &failed);
    let expected = "\
error.type = *net.OpError
http.request.method = GET
server.address = stock.test
server.port = 80
url.full = http://stock.test/stock
";
    assert_eq!(attributes(&mut story), expected);
}

#[test]
fn what_can_not_be_read_costs_itself_and_says_why() {
    let mut story = Story::new();
    let given = [
        (Field::Response, Value::Pointer(0xa0)),
        (Field::Method, text("BREW")),
        (Field::Path, Value::String { bytes: b"/pot".to_vec(), len: 9000 }),
        (Field::TraceParent, Value::Unavailable("memory not readable".into())),
    ];
    story.enter(4, HANDLE, &given).done(4, HANDLE, &[]);
    let expected = "\
http.request.method = _OTHER
http.request.method_original = BREW
url.path = /pot…
client.address: not in this test
http.request.body.size: not in this test
http.response.status_code: the end of the response was not seen
network.protocol.version: not in this test
server.address: not in this test
traceparent: memory not readable
url.scheme: not in this test
";
    assert_eq!(attributes(&mut story), expected);
    assert_eq!(story.spans[0].name, "HTTP");
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const SENT: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

#[test]
fn a_trace_goes_through_two_services() {
    let mut story = Story::new();
    story.request(4, 0xa0, "/buy", header(TRACE));
    story.ask(4, "stock.test", header(SENT));
    story.request(9, 0xb0, "/stock", header(SENT));
    story.respond(9, 0xb0, 200).answer(4, 200).respond(4, 0xa0, 200);
    let expected = "\
GET | server t0 s1 tree s2 under s3 by traceparent | g9 3-8 us unset 2 left
GET | client t0 s3 tree s2 under s2 by frame | g4 2-9 us unset 1 left
GET | server t0 s2 tree s2 under s4 by traceparent | g4 1-14 us unset 0 left
";
    assert_eq!(story.told(), expected);
}

#[test]
fn a_header_that_is_handed_on_gives_no_id_twice() {
    let mut story = Story::new();
    let same = || header(TRACE);
    story.request(4, 0xa0, "/buy", same());
    story.ask(4, "stock.test", same()).answer(4, 302).ask(4, "other.test", same()).answer(4, 200);
    story.respond(4, 0xa0, 200);
    let expected = "\
GET | client t0 s1 tree s2 under s2 by frame | g4 2-3 us unset 1 left
GET | client t0 s3 tree s2 under s2 by frame | g4 4-5 us unset 1 left
GET | server t0 s2 tree s2 under s4 by traceparent | g4 1-10 us unset 0 left
";
    assert_eq!(story.told(), expected);
}

#[test]
fn goroutines_of_a_request_are_its_own_and_those_that_outlive_it_are_not() {
    let mut story = Story::new();
    story.request(4, 0xa0, "/fan", none());
    // Four levels: 4 makes 11, 11 makes 12, 12 makes 13.
    story.created(4, 11).created(11, 12).created(12, 13).created(4, 14);
    story.call(13, "a.test").ask(14, "b.test", none());
    story.respond(4, 0xa0, 200);
    story.answer(14, 200);
    // 11 was made in a request that is over, and so is what it makes now.
    story.call(11, "c.test").created(11, 15).call(15, "d.test");
    // A goroutine of nobody.
    story.created(1, 20).call(20, "e.test").call(20, "f.test");
    let expected = "\
GET | client t0 s1 tree s2 under s2 by goroutine | g13 2-3 us unset 1 left
GET | server t0 s2 tree s2 | g4 1-9 us unset 1 left
GET | client t0 s3 tree s2 under s2 by goroutine | g14 4-10 us unset 0 left
GET | client t4 s5 tree s5 beside t0 s2 by goroutine | g11 11-12 us unset 0 left
GET | client t6 s7 tree s7 beside t0 s2 by goroutine | g15 13-14 us unset 0 left
GET | client t8 s9 tree s9 | g20 15-16 us unset 0 left
GET | client t10 s11 tree s11 | g20 17-18 us unset 0 left
";
    assert_eq!(story.told(), expected);
}

#[test]
fn handlers_end_in_every_way() {
    let mut story = Story::new();
    let panics = |story: &mut Story, type_word, said| {
        story.request(4, 0xa0, "/p", none()).panic(4, type_word, said);
        story.leave(4, HANDLE, End::Panic, &[]);
    };
    panics(&mut story, 1, "no");
    panics(&mut story, 1, "net/http: abort Handler");
    // The same text of another type, and a type without a name.
    panics(&mut story, 2, "net/http: abort Handler");
    panics(&mut story, 9, "no");
    // Recovered by the handler itself.
    story.request(4, 0xa0, "/r", none()).panic(4, 1, "no");
    story.respond(4, 0xa0, 200);
    story.request(4, 0xa0, "/h", none());
    let at = [(Field::Response, Value::Pointer(0xa0))];
    story.enter(4, HIJACK, &at).done(4, HIJACK, &[(Field::Error, Value::NilInterface)]);
    story.done(4, HANDLE, &[]);
    story.request(4, 0xa0, "/g", none()).leave(4, HANDLE, End::Goexit, &[]);
    story.request(5, 0xb0, "/o", none()).leave(5, HANDLE, End::Open, &[]);
    let expected = "\
GET | server t0 s1 tree s1 | g4 1-3 us error 0 left
  exception at 2 us [(\"exception.type\", Text(\"*errors.errorString\"))]
GET | server t2 s3 tree s3 | g4 4-6 us error 0 left
  exception at 5 us [(\"exception.type\", Text(\"net/http.ErrAbortHandler\"))]
GET | server t4 s5 tree s5 | g4 7-9 us error 0 left
  exception at 8 us [(\"exception.type\", Text(\"*net.OpError\"))]
GET | server t6 s7 tree s7 | g4 10-12 us error 0 left
  exception at 11 us [(\"exception.type\", Text(\"panic\"))]
GET | server t8 s9 tree s9 | g4 13-19 us unset 0 left
GET | server t10 s11 tree s11 | g4 20-23 us unset 0 left
GET | server t12 s13 tree s13 | g4 24-25 us error 0 left
GET | server t14 s15 tree s15 | g5 26-27 us unfinished unset 0 left
";
    assert_eq!(story.told(), expected);
    let hijacked = ("gospect.http.hijacked".into(), Attribute::Bool(true));
    assert!(story.spans[5].attributes.contains(&hijacked));
}

#[test]
fn an_end_that_may_be_another_calls_says_nothing() {
    let mut story = Story::new();
    story.request(4, 0xa0, "/", none()).ask(4, "a.test", none());
    story.is_doubtful = true;
    story.answer(4, 500).done(4, HANDLE, &[]);
    story.is_doubtful = false;
    let at = [(Field::Response, Value::Pointer(0xa0))];
    story.enter(4, FINISH, &at).done(4, FINISH, &[]);
    let expected = "\
GET | client t0 s1 tree s2 under s2 by frame | g4 2-3 us unfinished unset 1 left
GET | server t0 s2 tree s2 | g4 1-6 us unfinished unset 0 left
";
    assert_eq!(story.told(), expected);
}

#[test]
fn a_route_that_is_found_on_another_goroutine_is_the_requests() {
    let mut story = Story::new();
    story.request(4, 0xa0, "/t", none()).created(4, 11);
    story.enter(11, ROUTE, &[]).done(11, ROUTE, &[(Field::Pattern, text("/{any}"))]);
    // Of nobody.
    story.enter(12, ROUTE, &[]).done(12, ROUTE, &[(Field::Pattern, text("/no"))]);
    story.respond(4, 0xa0, 200);
    assert_eq!(story.told(), "GET /{any} | server t0 s1 tree s1 | g4 1-10 us unset 0 left\n");
}

#[test]
fn a_context_that_is_handed_on_says_whose_work_it_is() {
    const QUERY: &str = "database/sql.(*DB).QueryContext";
    let mut story = Story::new();
    let of = |response: u64| [(Field::Context, Value::Pointer(response + 0x1000))];
    let done = [(Field::Error, Value::NilInterface)];
    // 11 is a worker that the first request started; it works for both.
    story.request(4, 0xa0, "/a", none()).created(4, 11).request(5, 0xb0, "/b", none());
    story.enter(11, QUERY, &of(0xa0)).done(11, QUERY, &done);
    story.enter(11, QUERY, &of(0xb0)).done(11, QUERY, &done);
    // 12 is one of nobody.
    story.enter(12, QUERY, &of(0xb0)).done(12, QUERY, &done);
    story.respond(4, 0xa0, 200);
    story.enter(11, QUERY, &of(0xb0)).done(11, QUERY, &done);
    story.respond(5, 0xb0, 200);
    let expected = "\
other_sql | client t0 s1 tree s2 under s2 by goroutine | g11 3-4 us unset 1 left
other_sql | client t3 s4 tree s4 beside t0 s2 by goroutine beside t5 s6 by context | g11 5-6 us unset 0 left
other_sql | client t5 s7 tree s6 under s6 by context | g12 7-8 us unset 1 left
GET | server t0 s2 tree s2 | g4 1-13 us unset 0 left
other_sql | client t5 s8 tree s6 under s6 by context | g11 14-15 us unset 1 left
GET | server t5 s6 tree s6 | g5 2-20 us unset 0 left
";
    assert_eq!(story.told(), expected);
}

#[test]
fn who_gets_its_work_from_others_works_for_nobody_in_particular() {
    let mut story = Story::new();
    // 11, 12 and 13 are workers that the first request starts; 12 makes 14.
    story.request(4, 0xa0, "/a", none()).created(4, 11).created(4, 12).created(4, 13);
    story.request(5, 0xb0, "/b", none()).created(5, 21);
    // What the request itself hands on, a goroutine of its own, a timer, and who brings an answer.
    story.handed(4, 11).call(11, "own.test");
    story.handed(11, 12).call(12, "own.test");
    story.builder.handed(1, None, 12, &|| false);
    story.builder.handed(1, Some(99), 12, &|| true);
    story.call(12, "own.test");
    // The other request, one of its goroutines, one of nobody.
    story.handed(5, 11).call(11, "b.test");
    story.handed(21, 12).created(12, 14).call(14, "b.test");
    story.handed(99, 13).call(13, "c.test");
    // For good; and what one of these hands on is nobody's either.
    story.handed(4, 11).call(11, "a.test");
    story.created(4, 15).handed(11, 15).call(15, "a.test");
    // What comes while it asks is the answer.
    story.created(4, 16).ask(16, "own.test", none()).handed(5, 16).answer(16, 200);
    story.call(16, "own.test");
    story.respond(4, 0xa0, 200).respond(5, 0xb0, 200);
    let expected = "\
GET | client t0 s1 tree s2 under s2 by goroutine | g11 3-4 us unset 1 left
GET | client t0 s3 tree s2 under s2 by goroutine | g12 5-6 us unset 1 left
GET | client t0 s4 tree s2 under s2 by goroutine | g12 7-8 us unset 1 left
GET | client t5 s6 tree s6 beside t0 s2 by goroutine | g11 9-10 us unset 0 left
GET | client t7 s8 tree s8 beside t0 s2 by goroutine | g14 11-12 us unset 0 left
GET | client t9 s10 tree s10 beside t0 s2 by goroutine | g13 13-14 us unset 0 left
GET | client t11 s12 tree s12 beside t0 s2 by goroutine | g11 15-16 us unset 0 left
GET | client t13 s14 tree s14 beside t0 s2 by goroutine | g15 17-18 us unset 0 left
GET | client t0 s15 tree s2 under s2 by goroutine | g16 19-20 us unset 1 left
GET | client t0 s16 tree s2 under s2 by goroutine | g16 21-22 us unset 1 left
GET | server t0 s2 tree s2 | g4 1-27 us unset 0 left
GET | server t17 s18 tree s18 | g5 2-32 us unset 0 left
";
    assert_eq!(story.told(), expected);
}

#[test]
fn where_hand_overs_are_not_watched_no_goroutine_is_known_to_be_a_requests_own() {
    let mut story = Story::new();
    story.builder.sees_hand_overs = false;
    story.request(4, 0xa0, "/a", none()).created(4, 11).call(11, "a.test").respond(4, 0xa0, 200);
    let expected = "\
GET | client t0 s1 tree s1 beside t2 s3 by goroutine | g11 2-3 us unset 0 left
GET | server t2 s3 tree s3 | g4 1-8 us unset 0 left
";
    assert_eq!(story.told(), expected);
}

#[test]
fn databases_are_asked_within_requests() {
    const QUERY: &str = "database/sql.(*DB).QueryContext";
    const COMMIT: &str = "database/sql.(*Tx).Commit";
    let told = |statements| {
        let mut story = Story::with(SpanOptions { statements, ..SpanOptions::default() });
        story.request(4, 0xa0, "/", none());
        let secret = text("-- all\n /* of\n them */ select * from t where name = 'x'");
        story.enter(4, QUERY, &[(Field::Statement, secret)]);
        story.done(4, QUERY, &[(Field::Error, Value::NilInterface)]);
        story.enter(4, QUERY, &[(Field::Statement, text("{call}"))]);
        story.done(4, QUERY, &[(Field::Error, Value::NilInterface)]);
        story.enter(4, COMMIT, &[]);
        story.done(4, COMMIT, &[(Field::Error, Value::Interface { type_word: 1, data: 0 })]);
        // What is deferred for the case of an error.
        const ROLLBACK: &str = "database/sql.(*Tx).rollback";
        let over = text("sql: transaction has already been committed or rolled back");
        let error = (Field::Error, Value::Interface { type_word: 1, data: 0 });
        story.enter(4, ROLLBACK, &[]).done(4, ROLLBACK, &[error, (Field::ErrorText, over)]);
        // The same, by a goroutine of its own and known at once: nobody sees its end.
        story.enter(5, ROLLBACK, &[(Field::Over, Value::Uint(1))]).leave(
            5,
            ROLLBACK,
            End::Open,
            &[],
        );
        story.respond(4, 0xa0, 200);
        let lines = story.told();
        let attributes = story.spans.iter().take(3).map(|span| format!("{:?}\n", span.attributes));
        lines + &attributes.collect::<String>()
    };
    let expected = "\
SELECT | client t0 s1 tree s2 under s2 by frame | g4 2-3 us unset 1 left
other_sql | client t0 s3 tree s2 under s2 by frame | g4 4-5 us unset 1 left
COMMIT | client t0 s4 tree s2 under s2 by frame | g4 6-7 us error 1 left
GET | server t0 s2 tree s2 | g4 1-16 us unset 0 left
[(\"db.operation.name\", Text(\"SELECT\")), (\"db.system.name\", Text(\"other_sql\"))]
[(\"db.system.name\", Text(\"other_sql\"))]
[(\"db.operation.name\", Text(\"COMMIT\")), (\"db.system.name\", Text(\"other_sql\")), \
(\"error.type\", Text(\"*errors.errorString\"))]
";
    assert_eq!(told(false), expected);
    let shown = told(true);
    assert!(
        shown.contains("(\"db.query.text\", Text(\"select * from t where name = ?\"))"),
        "{shown}"
    );
}

#[test]
fn what_is_remembered_has_an_end() {
    let mut story =
        Story::with(SpanOptions { seed: 1, open: 2, origins: 3, statements: false, times: false });
    for goid in 1..=4 {
        story.request(goid, goid, "/", none());
    }
    for goid in 11..=20 {
        story.created(1, goid);
    }
    assert_eq!(story.builder.refused(), 2);
    let known = (11..=20).filter(|goid| story.builder.origins.get((1, *goid)).is_some()).count();
    assert_eq!(known, 3);
    for goid in 1..=4 {
        story.respond(goid, goid, 200);
    }
    story.push(&Event::ProcessExit { pid: 1, ts_ns: 0 });
    assert!(story.builder.origins.get((1, 20)).is_none());
    assert_eq!(story.told().lines().count(), 2);
}

#[test]
fn a_trace_is_sampled_as_a_whole() {
    let mut story = Story::new();
    let left_out = TRACE.replace("-01", "-00");
    story.request(4, 0xa0, "/buy", header(&left_out));
    // What the program sends says something else: its own trace has been decided about.
    story.ask(4, "stock.test", header(TRACE)).answer(4, 200);
    story.created(4, 5).call(5, "mail.test").respond(4, 0xa0, 200);
    story.call(7, "alone.test");
    story.ask(8, "own.test", header(SENT)).answer(8, 200);
    story.told();
    let sampled: Vec<_> = story.spans.iter().map(|span| span.sampled_by_parent).collect();
    assert_eq!(sampled, [Some(false), Some(false), Some(false), None, Some(true)]);
}

#[test]
fn a_stream_is_nobodys_frame_and_ends_where_it_ends() {
    const BEGIN: &str = "google.golang.org/grpc.newClientStream";
    const MADE: &str = "google.golang.org/grpc.newClientStreamWithParams";
    const END: &str = "google.golang.org/grpc.(*clientStream).finish";
    let mut story = Story::new();
    let at = |address| (Field::Stream, Value::Pointer(address));
    let no_error = (Field::Error, Value::NilInterface);
    for address in [0xc0, 0xd0] {
        story.enter(4, BEGIN, &[(Field::FullMethod, text("/shop.Shop/Chat"))]);
        story.enter(4, MADE, &[]).leave(4, MADE, End::Return, &[at(address)]);
        story.leave(4, BEGIN, End::Return, std::slice::from_ref(&no_error));
    }
    story.call(4, "stock.test");
    // It is ended twice, and not where it was begun; the other one never.
    for goid in [9, 4] {
        story.enter(goid, END, &[at(0xc0), no_error.clone()]).done(goid, END, &[]);
    }
    let expected = "\
GET | client t0 s1 tree s1 | g4 9-10 us unset 0 left
shop.Shop/Chat | client t2 s3 tree s3 | g4 1-11 us unset 0 left
shop.Shop/Chat | client t4 s5 tree s5 | g4 5-14 us unfinished unset 0 left
";
    assert_eq!(story.told(), expected);
    assert!(story.builder.streams.is_empty());
}

#[test]
fn a_unary_call_has_no_span_for_its_own_stream() {
    const CALL: &str = "google.golang.org/grpc.invoke";
    const BEGIN: &str = "google.golang.org/grpc.newClientStream";
    let mut story = Story::new();
    let added = [(Field::AddedName, text("TraceParent")), (Field::AddedValue, text(SENT))];
    let begin = [&added[..], &[(Field::FullMethod, text("/shop.Shop/Get"))]].concat();
    story.enter(4, CALL, &begin).enter(4, BEGIN, &begin).done(4, BEGIN, &[]);
    let failed = Value::Interface { type_word: 1, data: 0 };
    story.leave(4, CALL, End::Return, &[(Field::Error, failed), (Field::Status, Value::Int(5))]);
    let expected = "shop.Shop/Get | client t0 s1 tree s1 | g4 1-4 us error 0 left\n";
    assert_eq!(story.told(), expected);
    let told = attributes(&mut story);
    let expected = "\
error.type = NOT_FOUND
rpc.grpc.status_code = 5
rpc.method = Get
rpc.service = shop.Shop
rpc.system = grpc
";
    assert_eq!(told, expected);
}
