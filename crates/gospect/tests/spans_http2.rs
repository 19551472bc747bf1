//! `gospect spans` of golang.org/x/net/http2, whose servers and clients go by those of net/http.

#[path = "common/trees.rs"]
mod trees;

use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, Toolchain, newest, toolchains};
use trees::{as_text, spans, spans_line, times, trees};

const LIMIT: Duration = Duration::from_secs(240);

/// One round of the fixture: see `fixtures/http2`.
const ROUND: &str = "\
1 client GET - http://127.0.0.1/aborts http2.StreamError failed
1 client GET - http://127.0.0.1/panics http2.StreamError failed
2 client GET - https://127.0.0.1/aborts http2.StreamError failed
2 client GET - https://127.0.0.1/panics http2.StreamError failed
1 client GET 200 http://127.0.0.1/asks
1 client GET 200 http://127.0.0.1/pieces
1 client GET 200 http://127.0.0.1/plain
2 client GET 200 https://127.0.0.1/asks
2 client GET 200 https://127.0.0.1/pieces
1 client GET 202 http://127.0.0.1/cuts
2 client GET 202 https://127.0.0.1/cuts
1 client GET 404 http://127.0.0.1/nothing 404 failed
2 client GET 404 https://127.0.0.1/nothing 404 failed
1 client GET 418 http://127.0.0.1/recovers 418 failed
2 client GET 418 https://127.0.0.1/recovers 418 failed
1 client POST 200 http://127.0.0.1/plain
    server POST /plain 200 /plain HTTP/2 by traceparent
3 server GET /aborts - /aborts net/http.ErrAbortHandler HTTP/2 failed [exception]
3 server GET /asks 200 /asks HTTP/2
    client GET 200 http://127.0.0.1/plain by frame
    client GET 502 http://127.0.0.1/fails 502 failed by goroutine
3 server GET /cuts 202 /cuts net/http.ErrAbortHandler HTTP/2 failed [exception]
3 server GET /fails 502 /fails 502 HTTP/2 failed
3 server GET /panics - /panics *errors.errorString HTTP/2 failed [exception]
3 server GET /pieces 200 /pieces HTTP/2
1 server GET /plain 200 /plain
3 server GET /plain 200 /plain HTTP/2
3 server GET /recovers 418 /recovers HTTP/2
3 server GET 404 /nothing HTTP/2
";

fn watch(go: &Toolchain, mode: Mode, backend: &str, rounds: usize) {
    let is_new = go.minor >= 26;
    let recipe = mode.recipe();
    let recipe = if is_new { recipe } else { recipe.arg("-modfile=old.mod") };
    let program = Fixture::module("http2", go, &recipe);
    let rounds_text = rounds.to_string();
    let line = spans_line(backend, &[], &[program.to_str().unwrap(), "-n", &rounds_text]);
    let output = Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT).run(&line);
    output.expect_code(0);
    let told = format!("go {} {mode} {backend}", go.version);
    let shown = as_text(trees(&spans(&output, &told)));
    assert_eq!(shown, times(ROUND, rounds), "{told}:\n{shown}");
}

#[test]
fn root_requests_have_the_same_trees_on_both_backends() {
    for mode in [Mode::Exe, Mode::Stripped] {
        for backend in ["uprobe", "trampoline"] {
            watch(&newest(), mode, backend, 3);
        }
    }
}

#[test]
fn root_requests_have_the_same_trees_in_every_version() {
    for go in toolchains() {
        watch(&go, Mode::Exe, "trampoline", 1);
    }
}
