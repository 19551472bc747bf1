//! `gospect spans` of gRPC: unary calls and streams, compared as whole trees.

#[path = "common/calls.rs"]
mod calls;
#[path = "common/trees.rs"]
mod trees;

use calls::{ROUND, build};
use std::time::Duration;
use testkit::{Gospect, Mode, Toolchain, newest, toolchains};
use trees::{as_text, spans, spans_line, times, trees};

const LIMIT: Duration = Duration::from_secs(240);

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
