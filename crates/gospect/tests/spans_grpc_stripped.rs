//! `gospect spans` of gRPC in executables without debug information: the same trees.

#[path = "common/calls.rs"]
mod calls;
#[path = "common/trees.rs"]
mod trees;

use calls::{ROUND, build};
use std::time::Duration;
use testkit::{Gospect, Mode, newest, toolchains};
use trees::{as_text, spans, spans_line, times, trees};

#[test]
fn root_calls_of_stripped_executables_have_the_same_trees() {
    let cells = toolchains().into_iter().map(|go| (go, Mode::Stripped, "trampoline"));
    let uprobes = [(newest(), Mode::StrippedPie, "uprobe")];
    for (go, mode, backend) in cells.chain(uprobes) {
        let program = build(&go, mode);
        let line = spans_line(backend, &[], &[program.to_str().unwrap()]);
        let limit = Duration::from_secs(240);
        let output = Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(limit).run(&line);
        output.expect_code(0);
        let told = format!("go {} {mode} {backend}", go.version);
        let shown = as_text(trees(&spans(&output, &told)));
        assert_eq!(shown, times(ROUND, 1), "{told}:\n{shown}");
    }
}
