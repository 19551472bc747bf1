//! Random programs: calls of functions of all signatures with values of all kinds, each compared
//! with what the program itself says of it. Needs root.
//!
//! `GOSPECT_RANDOM_SEEDS` (`1..4`, one program each) and `GOSPECT_RANDOM_CALLS` (of each program)
//! make it larger; Go version and build mode are those of the matrix. `GOSPECT_RANDOM_REPORT`
//! names a file that gets a line with what was compared.

#[path = "../common/mod.rs"]
mod common;
mod compare;

use common::{Backend, Trace, own, text};
use compare::Tally;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write as _;
use testkit::{Mode, RandomProgram, selected};

/// Why a value may be missing; all else is a failure.
const REASONS: [&str; 7] = [
    "debug info of Go up to 1.21 leaves out unnamed parameters, and no description confirms where this one is",
    "float register, which uprobes do not see",
    "not used by the function, so not kept when its stack grows",
    "what it points to is not kept when the stack grows",
    // In interfaces: of types that no interface of the program is known to hold.
    "behind an interface whose type is not looked into",
    "behind the bytes that are captured of an object",
    "record full",
];

/// What the environment says, or what a run among all other tests has time for.
fn asked(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

#[test]
fn root_values_of_random_calls_are_those_of_the_program() {
    let calls = asked("GOSPECT_RANDOM_CALLS", "300");
    let seeds = asked("GOSPECT_RANDOM_SEEDS", "1..2");
    let (start, end) = seeds.split_once("..").expect("seeds as 1..4");
    let seeds = start.parse().expect("a seed")..end.parse::<u64>().expect("a seed");
    let mut sum = Tally::default();
    let mut compared = 0;
    for seed in seeds {
        let program = RandomProgram { seed, functions: 150 };
        let built = own(&program.build(&selected(), Mode::selected()));
        let run = ["-seed", &seed.to_string(), "-n", &calls];
        let trace = Trace::launch(&["-u", RandomProgram::PATTERN], &built, &run);
        trace.output.expect_code(0);
        assert_eq!(trace.summary()["lost"], 0, "{}", trace.summary());
        compared += compare_all(&trace, &mut sum);
    }
    report(compared, &sum);
    let few: Vec<&String> = sum.wrong.iter().take(20).collect();
    assert!(sum.wrong.is_empty(), "{} wrong: {few:#?}", sum.wrong.len());
    for (reason, times) in &sum.unavailable {
        assert!(REASONS.contains(&reason.as_str()), "{times} times: {reason}");
    }
    let missing: u64 = sum.unavailable.values().sum();
    assert!(sum.right > 4 * missing && sum.right > 5_000, "{sum:?}");
}

/// Compares call by call; gives how many calls there were.
fn compare_all(trace: &Trace, tally: &mut Tally) -> usize {
    let truths = trace.output.of_type("truth");
    let mut traced: HashMap<&str, Vec<&Value>> = HashMap::new();
    for call in trace.of_type("call") {
        traced.entry(call["func"].as_str().expect("a name")).or_default().push(call);
    }
    let refused: Vec<String> = trace.summary()["refusals"]
        .as_array()
        .map(|all| all.iter().map(|refusal| text(&refusal["func"])).collect())
        .unwrap_or_default();
    let mut times: HashMap<String, usize> = HashMap::new();
    for truth in &truths {
        let name = text(&truth["func"]);
        let number = times.entry(name.clone()).or_default();
        if refused.contains(&name) {
            continue;
        }
        let call = traced.get(name.as_str()).and_then(|calls| calls.get(*number));
        let call = call.unwrap_or_else(|| panic!("call {number} of {name} is missing"));
        assert_eq!(call["exit"], "return", "{call}");
        *number += 1;
        for part in ["args", "results"] {
            compare_list(&truth[part], &call[part], &format!("{name}#{number} {part}"), tally);
        }
    }
    // Functions that are deferred in them belong to the pattern too.
    for (name, calls) in traced.into_iter().filter(|(name, _)| !name.contains(".func")) {
        assert_eq!(times.get(name), Some(&calls.len()), "calls of {name}");
    }
    assert!(refused.len() < 4, "{refused:?}");
    truths.len()
}

/// Compares values of the same names; blank ones by their place, where the compiler tells of them.
fn compare_list(want: &Value, got: &Value, path: &str, tally: &mut Tally) {
    let (want, got) = (want.as_array().expect("a list"), got.as_array().expect("a list"));
    let mut found = 0;
    for (place, want) in want.iter().enumerate() {
        let blank = want["name"] == "_";
        let name = if blank { format!("~p{place}") } else { text(&want["name"]) };
        let mut named = got.iter().filter(|value| value["name"] == *name);
        match named.next() {
            Some(value) => {
                found += 1;
                tally.value(want, value, &format!("{path} {name} {}", want["type"]));
            }
            None if blank => {}
            None => tally.wrong.push(format!("{path}: no {name} in {got:?}")),
        }
    }
    if found != got.len() {
        tally.wrong.push(format!("{path}: {} values for {}", got.len(), want.len()));
    }
}

fn report(calls: usize, tally: &Tally) {
    let line = json!({
        "go": selected().version,
        "mode": Mode::selected().label(),
        "backend": Backend::selected().name(),
        "calls": calls,
        "right": tally.right,
        "wrong": tally.wrong.len(),
        "cut": tally.cut,
        "not_followed": tally.not_followed,
        "unavailable": tally.unavailable,
    });
    let Ok(path) = std::env::var("GOSPECT_RANDOM_REPORT") else { return };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(&path);
    writeln!(file.expect(&path), "{line}").expect(&path);
}
