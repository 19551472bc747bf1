//! The trace that a request names is found among as many headers as it comes with.

#[path = "common/trees.rs"]
mod trees;

use std::collections::BTreeMap;
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, Toolchain, newest, oldest, toolchains};
use trees::{spans, spans_line, text};

const LIMIT: Duration = Duration::from_secs(240);

/// How many requests of each kind have the parent that they name, or none where they name none.
fn right(go: &Toolchain, mode: Mode, backend: &str, options: &[&str]) -> String {
    let program = Fixture::build("headers", go, mode);
    let line = spans_line(backend, options, &["PROGRAM", "-n", "3"]);
    let program = program.to_str().unwrap();
    let line: Vec<&str> =
        line.iter().map(|word| if *word == "PROGRAM" { program } else { word }).collect();
    let output = Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT).run(&line);
    output.expect_code(0);
    let told = format!("go {} {mode} {backend}", go.version);
    let mut counts: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    let spans = spans(&output, &told);
    for span in &spans {
        let path = text_of(&span["attributes"]["url.path"]);
        let (kind, count) = path[1..].split_once('/').unwrap();
        let named = format!("{:016x}", count.parse::<u64>().unwrap() + 1);
        let is_right = match kind {
            "none" => span["parent_span_id"].is_null(),
            _ => text(span, "parent_span_id") == named && text(span, "parent_by") == "traceparent",
        };
        *counts.entry((kind, is_right)).or_default() += 1;
    }
    counts.iter().map(|((kind, is_right), count)| format!("{kind} {is_right} {count}\n")).collect()
}

fn text_of(value: &serde_json::Value) -> &str {
    value.as_str().unwrap()
}

/// Three times 0 to 100 headers: alone, behind a cookie of 8 KB, and without `traceparent`.
const ALL: &str = "cookie true 60\nnone true 60\nplain true 60\n";

#[test]
fn root_a_trace_is_found_behind_many_headers_in_every_version() {
    for go in toolchains() {
        for backend in ["uprobe", "trampoline"] {
            assert_eq!(right(&go, Mode::Exe, backend, &[]), ALL, "go {} {backend}", go.version);
        }
    }
}

#[test]
fn root_a_trace_is_found_behind_many_headers_however_it_is_built() {
    for mode in [Mode::Stripped, Mode::StrippedPie, Mode::Cgo] {
        for go in [oldest(), newest()] {
            for backend in ["uprobe", "trampoline"] {
                assert_eq!(right(&go, mode, backend, &[]), ALL, "go {} {mode}", go.version);
            }
        }
    }
}
