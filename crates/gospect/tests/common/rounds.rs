//! What every run of a fixture has to show of requests: the trees of one round, as many times as there are
//! rounds.
#![allow(dead_code, reason = "each suite takes what it needs")]

use std::fmt::Write as _;
use testkit::Toolchain;

/// Who works for whom: see `fixtures/go/services/work.go`.
pub const WORK: &str = "\
1 client GET 200 http://127.0.0.1/after beside goroutine
2 client GET 200 http://127.0.0.1/behind beside goroutine
3 client GET 200 http://127.0.0.1/loop beside goroutine
3 client GET 200 http://127.0.0.1/other beside goroutine
1 client GET 200 http://127.0.0.1/slow
1 server GET /after 200 /after
2 server GET /behind 200 /behind
1 server GET /chosen 200 /chosen
    client GET 200 http://127.0.0.1/quick by context
1 server GET /named 200 /named
    client GET 200 http://127.0.0.1/named by context
3 server GET /other 200 /other
3 server GET /plain 200 /plain
1 server GET /pool 200 /pool
    client GET 200 http://127.0.0.1/own by goroutine
    client GET 200 http://127.0.0.1/own by goroutine
1 server GET /queue 200 /queue
1 server GET /watch 200 /watch
    client GET 200 http://127.0.0.1/first by goroutine
    client GET 200 http://127.0.0.1/second by goroutine
";

/// What goes over connections: see `fixtures/go/services/wire.go`.
pub const WIRE: &str = "\
1 server GET 200 /ahead/0
1 server GET 200 /ahead/1
1 server GET 200 /ahead/2
1 server GET 200 /cookie by traceparent
1 server GET 200 /counted by traceparent
1 server GET 200 /last
1 server GET 200 /wrong
";

/// What takes too long: see `fixtures/go/services/late.go`.
pub const LATE: &str = "\
1 server GET /early 200 /early
    client GET 200 http://127.0.0.1/early by goroutine
1 server GET /givesup 200 /givesup
    client GET - http://127.0.0.1/never *http.timeoutError failed by frame
    client GET - http://127.0.0.1/never context.deadlineExceededError failed by frame
1 server GET /late 503 /late 503 failed
";

/// What a database is asked: see `fixtures/go/database`, with `-prepared`.
pub const DATABASE: &str = "\
1 client GET 200 http://127.0.0.1/order
1 client GET 200 http://127.0.0.1/prepared
1 client PING -
1 client PREPARE -
1 server GET /order 200 /order
    client BEGIN - by frame
    client BEGIN - by frame
    client COMMIT - by frame
    client DELETE - by frame
    client INSERT - by frame
    client INSERT - by frame
    client PING - by frame
    client PREPARE - by frame
    client REPLACE - by goroutine
    client REPLACE - by goroutine
    client ROLLBACK - by frame
    client SELECT - *errors.errorString failed by frame
    client SELECT - by frame
      client ROWS - 1 rows by rows
    client UPDATE - by frame
1 server GET /prepared 200 /prepared
    client BEGIN - by frame
    client COMMIT - by frame
    client SELECT - by frame
      client ROWS - 0 rows by rows
    client SELECT - by frame
      client ROWS - 1 rows by rows
    client SELECT - by frame
      client ROWS - 1 rows by rows
    client SELECT - by goroutine
    client SELECT - by goroutine
    client SELECT - by goroutine
";

/// Rows: see `fixtures/go/database/rows.go`.
pub const ROWS: &str = "\
1 client GET 200 http://127.0.0.1/rows
1 server GET /rows 200 /rows
    client BEGIN - by frame
    client COMMIT - by frame
    client PREPARE - by frame
    client SELECT - by frame
      client ROWS - *errors.errorString 2 rows failed by rows
    client SELECT - by frame
      client ROWS - *errors.errorString 2 rows failed by rows
    client SELECT - by frame
      client ROWS - 1 rows by rows
    client SELECT - by frame
      client ROWS - 3 rows by rows
    client SELECT - by frame
      client ROWS - 4 rows by rows
    client SELECT - by frame
      client ROWS - 5 rows by rows
    client SELECT - by frame
      client ROWS - 6 rows by rows
    client SHOW - by frame
      client ROWS - 5 rows by rows
";

/// Panics and slow handlers: see `fixtures/go/services/many.go`.
pub fn many() -> String {
    let mut text = "\
60 server GET /panics - /panics *errors.errorString failed [exception]
40 server GET /plain 200 /plain
"
    .to_owned();
    for number in 0..100 {
        _ = write!(
            text,
            "1 server GET /slow/ 200 /slow/{number:02}
    client GET 200 http://127.0.0.1/asked/{number:02} by frame
    client GET 200 http://127.0.0.1/made/{number:02} by goroutine
"
        );
    }
    text
}

/// What is told of a program of that Go.
pub fn of_version(round: &str, go: &Toolchain) -> String {
    // The type of the error that `ResponseHeaderTimeout` gives (`net/http/transport.go`).
    let timeout = if go.minor < 23 { "*http.httpError" } else { "*http.timeoutError" };
    round.replace("*http.timeoutError", timeout)
}
