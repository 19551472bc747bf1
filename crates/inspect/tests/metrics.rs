//! Runtime metrics against what programs say of themselves, in every Go version and way of
//! building.

mod subject;

use inspect::metrics::GcPhase;
use subject::{Claim, Round, Subject, assert_bracketed};
use testkit::{Fixture, Mode, Toolchain, newest, oldest, toolchains};

/// Ways of building that differ for metrics: where globals are and what names them.
const MODES: [Mode; 6] =
    [Mode::Exe, Mode::Pie, Mode::Cgo, Mode::CgoPie, Mode::Stripped, Mode::StrippedPie];

/// Others, with the oldest and the newest Go.
const UNUSUAL: [Mode; 3] = [Mode::PieExternal, Mode::NoOpt, Mode::Race];

/// Tries to find a program at rest on a machine that is not.
const ROUNDS: usize = 10;

/// What may change while all goroutines are parked: the scavenger returns memory.
const RESTLESS: [&str; 3] = ["HeapIdle", "HeapReleased", "Sys"];

fn start(go: &Toolchain, mode: Mode, args: &[&str], env: &[(&str, &str)]) -> Subject {
    Subject::start(&Fixture::build("metrics", go, mode), args, env)
}

fn quantiles(json: &serde_json::Value) -> Vec<u64> {
    json["quantiles"].as_array().unwrap().iter().map(|ns| ns.as_u64().unwrap()).collect()
}

/// With nothing between the program's two readings, all is equal.
#[test]
fn at_a_barrier_all_figures_are_the_programs_own() {
    for go in toolchains() {
        for mode in MODES.into_iter().chain(UNUSUAL) {
            let what = format!("go {} {mode}", go.version);
            if UNUSUAL.contains(&mode)
                && go.version != oldest().version
                && go.version != newest().version
            {
                continue;
            }
            let mut subject = start(&go, mode, &["-calls", "7"], &[]);
            let steady = (0..ROUNDS).any(|_| is_equal(&what, &subject.round()));
            assert!(steady, "{what}: something moved in each of {ROUNDS} rounds");
        }
    }
}

/// Whether nothing moved in this round, so that all was equal; what moved must be bracketed.
fn is_equal(what: &str, round: &Round) -> bool {
    let stats = round.stats();
    assert_bracketed(what, &round.metrics());
    let moved = |claim: &&Claim| !claim.is_steady() && !RESTLESS.contains(&claim.name.as_str());
    if stats.iter().any(|claim| moved(&claim)) {
        // The runtime started a thread, say.
        return false;
    }
    assert_bracketed(what, &stats);
    let pauses = round.ours.collector.pauses.as_ref().unwrap();
    assert_eq!(pauses.quantiles().to_vec(), quantiles(&round.before), "{what}");
    assert_eq!(round.ours.collector.phase, Ok(GcPhase::Off), "{what}");
    let unflushed = round.ours.memory.unflushed.as_ref().unwrap();
    assert_eq!((unflushed.bytes, unflushed.objects, unflushed.tiny), (0, 0, 0), "{what}");
    assert!(round.ours.effort.bytes < 1 << 20, "{what}: {:?}", round.ours.effort);
    true
}

/// What was allocated and not counted yet makes up the difference to `runtime.ReadMemStats`,
/// which counts it first.
#[test]
fn what_is_unflushed_is_told_apart() {
    for go in toolchains() {
        let mut subject = start(&go, Mode::Stripped, &["-alloc", "3000"], &[]);
        let round = subject.round();
        let what = format!("go {}", go.version);
        let after = |name: &str| round.after["stats"][name].as_u64().unwrap();
        let before = |name: &str| round.before["stats"][name].as_u64().unwrap();
        let memory = &round.ours.memory;
        let counted = memory.mallocs.clone().unwrap();
        assert!(before("Mallocs") <= counted && counted <= after("Mallocs"), "{what}");
        let unflushed = memory.unflushed.clone().unwrap();
        let bytes = memory.total_alloc.clone().unwrap() + unflushed.bytes;
        let mallocs = memory.mallocs.clone().unwrap() + unflushed.objects + unflushed.tiny;
        let objects = memory.heap_objects.clone().unwrap() + unflushed.objects;
        assert_eq!(bytes, after("TotalAlloc"), "{what}: {unflushed:?}");
        assert_eq!(mallocs, after("Mallocs"), "{what}: {unflushed:?}");
        assert_eq!(objects, after("HeapObjects"), "{what}: {unflushed:?}");
        assert!(unflushed.objects > 0 && unflushed.tiny > 0, "{what}: {unflushed:?}");
    }
}

/// Counts under load lie between the program's own before and after.
#[test]
fn under_load_counts_are_bracketed() {
    // What only grows, and what stays.
    let checked = [
        "TotalAlloc",
        "Mallocs",
        "Frees",
        "NumGC",
        "NumForcedGC",
        "PauseTotalNs",
        "LastGC",
        "goroutines",
        "procs",
        "cgo_calls",
    ];
    for go in toolchains() {
        for mode in [Mode::Stripped, Mode::CgoPie] {
            let what = format!("go {} {mode}", go.version);
            let mut subject = start(&go, mode, &["-load", "8"], &[]);
            for _ in 0..3 {
                let round = subject.round();
                let stats: Vec<Claim> = round.stats();
                let stats: Vec<Claim> =
                    stats.into_iter().filter(|c| checked.contains(&c.name.as_str())).collect();
                assert_eq!(stats.len(), checked.len(), "{what}");
                assert_bracketed(&what, &stats);
                let grows = |claim: &Claim| claim.name.contains('[') || claim.name.contains("wait");
                let counts: Vec<Claim> = round.metrics().into_iter().filter(grows).collect();
                assert!(counts.len() > 200, "{what}");
                assert_bracketed(&what, &counts);
            }
        }
    }
}

/// A program that reads its own metrics folds one generation of counts into another all the
/// time: no count goes backwards or too far.
#[test]
fn a_program_that_reads_its_own_metrics_is_read_right() {
    for go in toolchains() {
        let what = format!("go {}", go.version);
        let mut subject = start(&go, Mode::Stripped, &["-load", "2", "-readers", "2"], &[]);
        let checked = ["TotalAlloc", "Mallocs", "Frees", "goroutines"];
        let counts = |ours: &inspect::metrics::RuntimeMetrics| {
            let m = &ours.memory;
            [&m.total_alloc, &m.total_free, &m.mallocs, &m.frees].map(|v| v.clone().unwrap())
        };
        let mut last = [0; 4];
        for _ in 0..3 {
            let round = subject.round();
            let stats = round.stats();
            let counted = |claim: &Claim| checked.contains(&claim.name.as_str());
            assert_bracketed(&what, &stats.into_iter().filter(counted).collect::<Vec<_>>());
            for _ in 0..30 {
                let now = counts(&subject.sample());
                let grown = last.iter().zip(&now).all(|(last, now)| last <= now);
                assert!(grown, "{what}: {now:?} after {last:?}");
                last = now;
            }
        }
    }
}
