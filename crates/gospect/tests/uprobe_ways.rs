//! The ways of older kernels (`GOSPECT_FORCE`), which only uprobes have, give the same calls.
//! Needs root.

mod common;

use std::collections::BTreeMap;

use common::{any_gospect, fixture, functions, path_text, run};
use testkit::Output;

#[test]
fn root_forced_ways_give_the_same_calls() {
    let program = fixture("panics");
    let select = functions(&["main.guard", "main.middle", "main.thrower", "main.quit"]);
    let line = [&["trace", "--backend", "uprobe", "--format", "json"], &select[..]].concat();
    let tail = ["--", path_text(&program), "-mode", "all", "-n", "50"];
    let line = [&line[..], &tail].concat();
    let forced = |word: Option<&str>| {
        let mut command = any_gospect().command(&line);
        if let Some(word) = word {
            command.env("GOSPECT_FORCE", word);
        }
        run(command)
    };
    let ends = |output: &Output| {
        let mut ends: BTreeMap<String, u64> = BTreeMap::new();
        for call in output.of_type("call") {
            let key =
                format!("{} {} {} {}", call["func"], call["depth"], call["exit"], call["args"]);
            *ends.entry(key).or_default() += 1;
        }
        ends
    };
    let plain = forced(None);
    plain.expect_code(0);
    for word in ["bounded-loop", "perf-link", "read-g", "perf-link,bounded-loop"] {
        let output = forced(Some(word));
        output.expect_code(0);
        assert_eq!(ends(&output), ends(&plain), "{word}");
        assert_eq!(output.summary()["lost"], 0, "{word}");
        let notes = output.summary()["notes"].to_string();
        assert_eq!(notes.contains("one perf event each"), word.contains("perf"), "{notes}");
    }
    let refused = |word: &str, code: i32, wanted: &str| {
        let output = forced(Some(word));
        output.expect_code(code);
        assert_eq!(output.stdout, "", "the command did not run: {}", output.story());
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.story());
        assert!(output.stderr.contains(wanted), "{}", output.story());
    };
    refused("no-bpf", 1, "BPF");
    refused("no-such-word", 2, "`no-such-word`");
}
