//! Stories of rows.

use super::super::*;
use super::story::*;
use std::fmt::Write as _;

const QUERY: &str = "database/sql.(*DB).QueryContext";
const NEXT: &str = "database/sql.(*Rows).nextLocked";
const CLOSE: &str = "database/sql.(*Rows).close";

fn failed(type_word: u64) -> Value {
    Value::Interface { type_word, data: 0 }
}

impl Story {
    /// A query gives rows.
    fn query(&mut self, goid: u64, rows: u64) -> &mut Self {
        self.enter(goid, QUERY, &[(Field::Statement, text("select 1"))]);
        let given = [(Field::Rows, Value::Pointer(rows)), (Field::Error, Value::NilInterface)];
        self.done(goid, QUERY, &given)
    }

    /// So many rows are read.
    fn read(&mut self, goid: u64, rows: u64, count: usize) -> &mut Self {
        for _ in 0..count {
            self.enter(goid, NEXT, &[(Field::Rows, Value::Pointer(rows))]);
            self.done(goid, NEXT, &[(Field::Row, Value::Bool(true))]);
        }
        self
    }

    /// Somebody begins to close rows whose last error that is, for that reason.
    fn closing(&mut self, goid: u64, rows: u64, over: bool, last: Value, why: Value) -> &mut Self {
        let given = [
            (Field::Rows, Value::Pointer(rows)),
            (Field::Over, Value::Bool(over)),
            (Field::Error, last),
            (Field::Reason, why),
        ];
        self.enter(goid, CLOSE, &given)
    }

    fn closed(&mut self, goid: u64) -> &mut Self {
        self.done(goid, CLOSE, &[(Field::Error, Value::NilInterface)])
    }

    fn close(&mut self, goid: u64, rows: u64) -> &mut Self {
        self.closing(goid, rows, false, Value::NilInterface, Value::NilInterface).closed(goid)
    }

    /// The spans of rows, with what is known of them.
    fn rows(&mut self) -> String {
        let lines = self.told();
        assert!(self.builder.rows.is_empty());
        let mut text = String::new();
        // A panic has a line below its span's.
        let lines = lines.lines().filter(|line| !line.starts_with(' '));
        for (line, span) in lines.zip(&self.spans).filter(|(_, span)| span.name == "ROWS") {
            let known = span.attributes.iter().filter(|(name, _)| *name != "db.system.name");
            let known: String = known.map(|(name, value)| format!(" {name}={value}")).collect();
            _ = writeln!(text, "{line}{known} {:?}", span.unavailable);
        }
        text
    }
}

#[test]
fn rows_last_until_somebody_closes_them() {
    let mut story = Story::new();
    story.request(4, 0xa0, "/", none());
    // Two at once; what is asked meanwhile is not in them, and one goes on behind its request.
    story.query(4, 0x10).query(4, 0x20).read(4, 0x10, 2).read(4, 0x20, 1).call(4, "own.test");
    story.enter(4, NEXT, &[(Field::Rows, Value::Pointer(0x10))]);
    story.done(4, NEXT, &[(Field::Row, Value::Bool(false))]).close(4, 0x10).close(4, 0x10);
    story.respond(4, 0xa0, 200).read(9, 0x20, 2).close(9, 0x20);
    // Nobody's rows, and those of another process.
    story.read(9, 0x30, 1).close(9, 0x30);
    let expected = "\
SELECT | client t0 s1 tree s2 under s2 by frame | g4 2-3 us unset 2 left
SELECT | client t0 s3 tree s2 under s2 by frame | g4 4-5 us unset 3 left
GET | client t0 s4 tree s2 under s2 by frame | g4 12-13 us unset 3 left
ROWS | client t0 s5 tree s2 under s1 by rows | g4 3-17 us unset 2 left
GET | server t0 s2 tree s2 | g4 1-24 us unset 1 left
ROWS | client t0 s6 tree s2 under s3 by rows | g4 5-30 us unset 0 left
";
    assert_eq!(story.told(), expected);
    let attributes = |span: &Span| format!("{:?}", span.attributes);
    let rows = story.spans.iter().filter(|span| span.name == "ROWS").map(attributes);
    let of = |count: u32| {
        format!(
            "[(\"db.response.returned_rows\", Int({count})), (\"db.system.name\", Text(\"other_sql\"))]"
        )
    };
    assert_eq!(rows.collect::<Vec<_>>(), [of(2), of(3)]);
}

#[test]
fn rows_fail_as_they_say_themselves() {
    let nil = || Value::NilInterface;
    let mut story = Story::new();
    // A driver's error; the end of all rows, the context having ended meanwhile; the context.
    story.query(4, 0x10).closing(4, 0x10, false, failed(2), nil()).closed(4);
    let end = [
        (Field::Rows, Value::Pointer(0x20)),
        (Field::Over, Value::Bool(false)),
        (Field::Error, failed(1)),
        (Field::ErrorText, text("EOF")),
        (Field::Reason, failed(2)),
    ];
    story.query(4, 0x20).enter(4, CLOSE, &end).closed(4);
    story.query(4, 0x30).closing(5, 0x30, false, nil(), failed(1)).closed(5);
    // Who waits for somebody else to close them has no reason of its own, and may be done first.
    story.query(4, 0x40).closing(4, 0x40, false, nil(), nil());
    story.closing(5, 0x40, true, nil(), failed(1)).closed(5).closed(4);
    // What the driver says of closing; a panic; what could not be read.
    story.query(4, 0x50).closing(4, 0x50, false, nil(), nil());
    story.done(4, CLOSE, &[(Field::Error, failed(2))]);
    story.query(4, 0x60).closing(4, 0x60, false, nil(), nil()).leave(4, CLOSE, End::Panic, &[]);
    story.query(4, 0x70).enter(4, CLOSE, &[(Field::Rows, Value::Pointer(0x70))]).closed(4);
    let expected = "\
ROWS | client t0 s2 tree s1 under s1 by rows | g4 2-4 us error 0 left db.response.returned_rows=0 error.type=*net.OpError []
ROWS | client t3 s5 tree s4 under s4 by rows | g4 6-8 us unset 0 left db.response.returned_rows=0 []
ROWS | client t6 s8 tree s7 under s7 by rows | g4 10-12 us error 0 left db.response.returned_rows=0 error.type=*errors.errorString []
ROWS | client t9 s11 tree s10 under s10 by rows | g4 14-17 us unset 0 left db.response.returned_rows=0 []
ROWS | client t12 s14 tree s13 under s13 by rows | g4 20-22 us error 0 left db.response.returned_rows=0 error.type=*net.OpError []
ROWS | client t15 s17 tree s16 under s16 by rows | g4 24-26 us error 0 left db.response.returned_rows=0 error.type=panic []
ROWS | client t18 s20 tree s19 under s19 by rows | g4 28-30 us unset 0 left db.response.returned_rows=0 [(\"error.type\", \"not in this test\")]
";
    let shown = story.rows();
    assert_eq!(shown, expected, "{shown}");
}

#[test]
fn rows_that_nobody_closes_make_room_and_lost_ones_are_not_counted() {
    let mut story = Story::new();
    story.builder.rows.most = 2;
    // Another query's at the same address; the oldest of three; at the end.
    story.query(4, 0x10).read(4, 0x10, 1).query(4, 0x10).query(5, 0x20).query(6, 0x30);
    story.read(6, 0x30, 1);
    story.push(&Event::Gap { cpu: 0, from_ns: 1, to_ns: 2, lost: 1 });
    story.close(6, 0x30);
    story.push(&Event::ProcessExit { pid: 1, ts_ns: 0 });
    let lost = "[(\"db.response.returned_rows\", \"records were lost meanwhile\")]";
    let expected = format!(
        "\
ROWS | client t0 s2 tree s1 under s1 by rows | g4 2-6 us unfinished unset 0 left db.response.returned_rows=1 []
ROWS | client t3 s7 tree s4 under s4 by rows | g4 6-10 us unfinished unset 0 left db.response.returned_rows=0 []
ROWS | client t8 s10 tree s9 under s9 by rows | g6 10-14 us unset 0 left {lost}
ROWS | client t5 s11 tree s6 under s6 by rows | g5 8-14 us unfinished unset 0 left {lost}
"
    );
    let shown = story.rows();
    assert_eq!(shown, expected, "{shown}");

    // A query of which the return was perhaps another one's gives none; nor does one that failed.
    let mut story = Story::new();
    story.is_doubtful = true;
    story.query(4, 0x10).is_doubtful = false;
    story.enter(4, QUERY, &[]).done(4, QUERY, &[(Field::Rows, none()), (Field::Error, failed(1))]);
    assert_eq!(story.rows(), "");
}
