//! A cell of the matrix for requests: which program, which backend, how many rounds.
//!
//! `GOSPECT_TEST_ROUNDS` says how many rounds; captures have 100 of them at the most.
#![allow(dead_code, reason = "each suite takes what it needs")]

use super::rounds::of_version;
use super::trees::{as_text, spans, spans_line, times, trees};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use testkit::{Gospect, Output, selected};

const LIMIT: Duration = Duration::from_secs(600);

/// Rounds of one capture.
const OF_ONE: usize = 100;

pub fn gospect() -> Gospect {
    Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// The backend of the cell; both without one.
pub fn backends() -> Vec<String> {
    let both = || ["uprobe", "trampoline"].map(str::to_owned).to_vec();
    variable("GOSPECT_TEST_BACKEND").map_or_else(both, |backend| vec![backend])
}

fn rounds(quick: usize) -> usize {
    variable("GOSPECT_TEST_ROUNDS").map_or(quick, |text| text.parse().expect("a number"))
}

/// Watches so many rounds of a fixture from its first instruction to its end.
pub fn watch(
    program: &Path,
    backend: &str,
    args: &[&str],
    options: &[&str],
    rounds: usize,
) -> Output {
    let rounds = rounds.to_string();
    let command = [&[program.to_str().unwrap()], args, &["-n", &rounds]].concat();
    let output = gospect().run(&spans_line(backend, options, &command));
    output.expect_code(0);
    output
}

/// Every round of a program, `quick` of them if nothing else is said, has these trees and no other ones.
#[track_caller]
pub fn expect(program: &Path, args: &[&str], round: &str, quick: usize) {
    let round = of_version(round, &selected());
    for backend in backends() {
        let told = format!("{} {args:?} {backend}", program.display());
        let (mut left, mut all) = (rounds(quick), BTreeMap::new());
        let want = times(&round, left);
        while left > 0 {
            let now = left.min(OF_ONE);
            left -= now;
            let output = watch(program, &backend, args, &[], now);
            for (tree, count) in trees(&spans(&output, &told)) {
                *all.entry(tree).or_default() += count;
            }
        }
        let shown = as_text(all);
        assert_eq!(shown, want, "{told}:\n{shown}");
    }
}
