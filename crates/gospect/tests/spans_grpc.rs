//! `gospect spans` of gRPC: unary calls and streams, compared as whole trees.

#[path = "common/trees.rs"]
mod trees;

use std::path::PathBuf;
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, Toolchain, newest, toolchains};
use trees::{as_text, spans, spans_line, times, trees};

const LIMIT: Duration = Duration::from_secs(240);

/// One round of the fixture: see `fixtures/grpc`.
const ROUND: &str = "\
1 client shop.None/Get 12 UNIMPLEMENTED failed
1 client shop.Shop/Chat 0
1 client shop.Shop/Chat 1 CANCELLED failed
4 client shop.Shop/Get 0
1 client shop.Shop/Get 0
    server shop.Shop/Get 0 by traceparent
      client shop.Stock/Get 0 by frame
        server shop.Stock/Get 0 by traceparent
1 client shop.Shop/Get 2 UNKNOWN failed
1 client shop.Shop/Get 4 DEADLINE_EXCEEDED failed
1 client shop.Shop/Get 5 NOT_FOUND failed
1 client shop.Shop/List 0
1 client shop.Shop/List 13 INTERNAL failed
1 client shop.Shop/None 12 UNIMPLEMENTED failed
1 client shop.Shop/Put 0
1 client shop.Stock/Get 0
1 server shop.None/Get 12 UNIMPLEMENTED failed
1 server shop.Shop/Chat 0
1 server shop.Shop/Chat 1
1 server shop.Shop/Get 0
1 server shop.Shop/Get 0
    client shop.Stock/Chat 0 by frame
    client shop.Stock/Get 0 by frame
    client shop.Stock/List 0 by frame
1 server shop.Shop/Get 0
    client shop.Stock/Get 0 by context
1 server shop.Shop/Get 0
    client shop.Stock/Get 0 by goroutine
    client shop.Stock/Get 0 by goroutine
    client shop.Stock/Get 0 by goroutine
1 server shop.Shop/Get 10
1 server shop.Shop/Get 2 UNKNOWN failed
1 server shop.Shop/Get 5
1 server shop.Shop/List 0
1 server shop.Shop/List 13 INTERNAL failed
1 server shop.Shop/None 12 UNIMPLEMENTED failed
1 server shop.Shop/Put 0
1 server shop.Stock/Chat 0
6 server shop.Stock/Get 0
1 server shop.Stock/List 0
";

/// gRPC is built in its newest version where that is possible, else in the last that Go 1.19 takes.
fn build(go: &Toolchain, mode: Mode) -> PathBuf {
    let recipe = mode.recipe();
    let is_new = go.minor >= 26;
    let recipe = if is_new { recipe } else { recipe.arg("-modfile=old.mod") };
    Fixture::module("grpc", go, &recipe)
}

fn watch(go: &Toolchain, mode: Mode, backend: &str, rounds: usize) {
    let program = build(go, mode);
    let rounds_text = rounds.to_string();
    let command = [program.to_str().unwrap(), "-n", &rounds_text];
    let line = spans_line(backend, &[], &command);
    let output = Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT).run(&line);
    output.expect_code(0);
    let told = format!("go {} {mode} {backend}", go.version);
    let shown = as_text(trees(&spans(&output, &told)));
    assert_eq!(shown, times(ROUND, rounds), "{told}:\n{shown}");
}

#[test]
fn root_calls_have_the_same_trees_on_both_backends() {
    for mode in [Mode::Exe, Mode::Pie, Mode::Cgo] {
        for backend in ["uprobe", "trampoline"] {
            watch(&newest(), mode, backend, 3);
        }
    }
}

#[test]
fn root_calls_have_the_same_trees_in_every_version() {
    for go in toolchains() {
        watch(&go, Mode::Exe, "trampoline", 1);
    }
}
