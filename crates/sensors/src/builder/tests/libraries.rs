//! HTTP/2 by golang.org/x/net, beside and within the servers and clients of net/http.

use super::*;

const RUN: &str = "golang.org/x/net/http2.(*serverConn).runHandler";
const DONE: &str = "golang.org/x/net/http2.(*responseWriter).handlerDone";
const SEND: &str = "golang.org/x/net/http2.(*Transport).RoundTrip";

impl Story {
    /// The response is brought to its end within the handler's call.
    fn end_within(&mut self, goid: u64, response: u64, status: i64) -> &mut Self {
        let at = (Field::Response, Value::Pointer(response));
        let given = [at, (Field::Status, Value::Int(status)), (Field::Written, Value::Int(3))];
        self.enter(goid, DONE, &given).done(goid, DONE, &[])
    }
}

#[test]
fn a_handler_that_is_run_by_another_server_is_a_span_once() {
    let mut story = Story::new();
    story.request_by(RUN, 4, 0xa0, "/own", none()).call(4, "a.test");
    story.end_within(4, 0xa0, 502).done(4, RUN, &[]);
    // Within net/http's, and from there.
    story.request_by(RUN, 5, 0xb0, "/b", none()).request(5, 0xb0, "/b", none()).call(5, "b.test");
    story.done(5, HANDLE, &[]).end_within(5, 0xb0, 200).done(5, RUN, &[]);
    let expected = "\
GET | client t0 s1 tree s2 under s2 by frame | g4 2-3 us unset 1 left
GET | server t0 s2 tree s2 | g4 1-5 us error 0 left
GET | client t3 s4 tree s5 under s5 by frame | g5 9-10 us unset 1 left
GET | server t3 s5 tree s5 | g5 7-13 us unset 0 left
";
    assert_eq!(story.told(), expected);
}

#[test]
fn a_panic_that_the_server_catches_itself_is_the_handlers() {
    let mut story = Story::new();
    story.request_by(RUN, 4, 0xa0, "/a", none()).panic(4, 1, "no").done(4, RUN, &[]);
    story.request_by(RUN, 5, 0xb0, "/b", none()).panic(5, 1, "no");
    // The handler caught that one.
    story.end_within(5, 0xb0, 418).done(5, RUN, &[]);
    let expected = "\
GET | server t0 s1 tree s1 | g4 1-3 us error 0 left
  exception at 2 us [(\"exception.type\", Text(\"*errors.errorString\"))]
GET | server t2 s3 tree s3 | g5 4-7 us unset 0 left
";
    assert_eq!(story.told(), expected);
}

#[test]
fn the_preface_of_a_connection_is_no_request() {
    let mut story = Story::new();
    let preface = [
        (Field::Response, Value::Pointer(0xa0)),
        (Field::Method, text("PRI")),
        (Field::Path, text("*")),
    ];
    story.enter(4, HANDLE, &preface).enter(4, HIJACK, &preface[..1]);
    story.done(4, HIJACK, &[(Field::Error, Value::NilInterface)]).created(4, 5);
    story.request_by(RUN, 5, 0xb0, "/a", none()).end_within(5, 0xb0, 200).done(5, RUN, &[]);
    story.call(5, "a.test").done(4, HANDLE, &[]);
    let expected = "\
GET | server t0 s1 tree s1 | g5 4-6 us unset 0 left
GET | client t2 s3 tree s3 | g5 8-9 us unset 0 left
";
    assert_eq!(story.told(), expected);
}

#[test]
fn a_request_that_one_client_hands_to_another_is_a_span_once() {
    let mut story = Story::new();
    let sent = [(Field::Method, text("GET")), (Field::TraceParent, none())];
    let got = [(Field::Status, Value::Int(200)), (Field::Error, Value::NilInterface)];
    story.ask(4, "a.test", none()).enter(4, SEND, &sent).done(4, SEND, &got).answer(4, 200);
    story.enter(4, SEND, &sent).call(4, "a.test").done(4, SEND, &got);
    // Two by the same one are two: one is asked for by what the other needs.
    story.ask(4, "a.test", none()).call(4, "b.test").answer(4, 200);
    let expected = "\
GET | client t0 s1 tree s1 | g4 1-4 us unset 0 left
GET | client t2 s3 tree s3 | g4 5-8 us unset 0 left
GET | client t4 s5 tree s6 under s6 by frame | g4 10-11 us unset 1 left
GET | client t4 s6 tree s6 | g4 9-12 us unset 0 left
";
    assert_eq!(story.told(), expected);
}
