//! What `gospect spans` shows when it is asked for, and what stays hidden all the same.

#[path = "common/trees.rs"]
mod trees;

use std::collections::BTreeSet;
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, newest};
use trees::{spans, spans_line, text};

const LIMIT: Duration = Duration::from_secs(240);

/// The values that spans of a fixture have of an attribute, each behind the kind of the span.
fn shown(
    fixture: &str,
    mode: Mode,
    backend: &str,
    options: &[&str],
    name: &str,
) -> BTreeSet<String> {
    let program = Fixture::build(fixture, &newest(), mode);
    let line = spans_line(backend, options, &[program.to_str().unwrap()]);
    let output = Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT).run(&line);
    output.expect_code(0);
    let spans = spans(&output, &format!("{fixture} {backend}"));
    let value = |span: &serde_json::Value| {
        let value = span["attributes"].get(name)?;
        Some(format!("{} {value}", text(span, "kind")))
    };
    spans.iter().filter_map(value).collect()
}

fn set<const N: usize>(values: [&str; N]) -> BTreeSet<String> {
    values.map(str::to_owned).into()
}

#[test]
fn root_headers_are_shown_by_their_names() {
    for mode in [Mode::Exe, Mode::Stripped] {
        for backend in ["uprobe", "trampoline"] {
            let options = ["--header", "user-agent", "--header", "X-Request-ID", "--queries"];
            let name = "http.request.header.user-agent";
            let agents = ["server [\"Go-http-client/1.1\"]", "server [\"Go-http-client/2.0\"]"];
            assert_eq!(
                shown("requests", mode, backend, &options, name),
                set(agents),
                "{mode} {backend}"
            );
            assert_eq!(shown("requests", mode, backend, &[], name), set([]), "{mode} {backend}");
        }
    }
}

#[test]
fn root_queries_are_shown_without_secrets() {
    for backend in ["uprobe", "trampoline"] {
        let query = |options: &[&str]| shown("requests", Mode::Exe, backend, options, "url.query");
        assert_eq!(query(&["--queries"]), set(["server \"secret=REDACTED\""]), "{backend}");
        assert_eq!(query(&[]), set([]), "{backend}");
    }
}

#[test]
fn root_statements_are_shown_without_literals() {
    for backend in ["uprobe", "trampoline"] {
        let query =
            |options: &[&str]| shown("database", Mode::Exe, backend, options, "db.query.text");
        assert_eq!(query(&["--sql"]), set(STATEMENTS), "{backend}");
        assert_eq!(query(&[]), set([]), "{backend}");
    }
}

/// Those of `fixtures/go/database`.
const STATEMENTS: [&str; 6] = [
    "client \"UPDATE stock SET n = n - ?\"",
    "client \"delete from orders\"",
    "client \"insert into orders values (?)\"",
    "client \"replace into log values (?)\"",
    "client \"select fail\"",
    "client \"select n from stock where item = ?\"",
];
