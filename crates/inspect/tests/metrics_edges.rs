//! Runtime metrics of programs at the edges: very many goroutines or processors, no
//! collection yet, no collector, a memory limit, a build that is not known.

mod subject;

use address::Bias;
use binary::layout::{Provenance, RuntimeLayouts};
use binary::{DebugInfo, GoVersion};
use inspect::metrics::{GcPhase, MetricsPlan, Options, Unknown, Value};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use subject::{LIMIT, Subject, assert_bracketed, executable};
use testkit::{Fixture, Mode, Toolchain, newest, oldest, toolchains};

fn start(go: &Toolchain, args: &[&str], env: &[(&str, &str)]) -> Subject {
    Subject::start(&Fixture::build("metrics", go, Mode::Stripped), args, env)
}

/// What this thread used: others may load the machine.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

/// A thousand processors are read as well, in one call per thousand parts.
#[test]
fn a_thousand_processors() {
    for go in [oldest(), newest()] {
        let mut subject = start(&go, &[], &[("GOMAXPROCS", "1000")]);
        let round = subject.round();
        assert_bracketed(&format!("go {}", go.version), &round.stats());
        let scheduler = &round.ours.scheduler;
        assert_eq!(scheduler.gomaxprocs, Ok(1000));
        assert_eq!(scheduler.run_queue_local.as_ref().unwrap().len(), 1000);
        let p = scheduler.processors.clone().unwrap();
        assert_eq!(p.idle + p.running + p.syscall + p.stopped, 1000, "{p:?}");
        let effort = subject.sample_with(Options::default()).effort;
        assert!(effort.bytes < 1 << 20, "{effort:?}");
    }
}

#[test]
fn a_process_that_never_collected() {
    for go in toolchains() {
        let what = format!("go {}", go.version);
        let mut subject = start(&go, &["-collect=false"], &[]);
        let round = subject.round();
        assert_bracketed(&what, &round.stats());
        assert_bracketed(&what, &round.metrics());
        let collector = &round.ours.collector;
        assert_eq!((&collector.cycles, &collector.last_ns), (&Ok(0), &Ok(0)), "{what}");
        assert_eq!(collector.pauses.as_ref().unwrap().quantiles(), [0; 5], "{what}");
        assert_eq!(collector.cpu_fraction, Ok(0.0), "{what}");
    }
}

#[test]
fn without_a_collector_and_with_a_limit() {
    for go in toolchains() {
        for (gogc, limit, percent, bytes) in [
            ("off", "off", -1, i64::MAX as u64),
            ("off", "100MiB", -1, 100 << 20),
            ("50", "3MiB", 50, 3 << 20),
            ("200", "1GiB", 200, 1 << 30),
        ] {
            let what = format!("go {} GOGC={gogc} GOMEMLIMIT={limit}", go.version);
            let mut subject = start(&go, &[], &[("GOGC", gogc), ("GOMEMLIMIT", limit)]);
            let round = subject.round();
            // A program beyond its limit collects all the time: what it has comes and goes.
            let steady = ["NextGC", "TotalAlloc", "Mallocs", "NumGC", "goroutines"];
            let claims = round.stats().into_iter();
            let claims: Vec<_> = claims.filter(|c| steady.contains(&c.name.as_str())).collect();
            assert_bracketed(&what, &claims);
            let collector = &round.ours.collector;
            assert_eq!(collector.gogc_percent, Ok(percent), "{what}");
            assert_eq!(collector.memory_limit, Ok(bytes), "{what}");
        }
    }
}

/// The count costs the same whatever there is to count; the states take a look at each.
#[test]
fn a_million_goroutines() {
    let few = start(&newest(), &["-collect=false"], &[]).sample();
    let mut subject = start(&newest(), &["-collect=false", "-parked", "1000000"], &[]);
    let round = subject.round();
    assert_bracketed("a million goroutines", &round.stats());
    let (most, least) = (round.ours.effort, few.effort);
    assert!(most.bytes < 2 * least.bytes, "{most:?} and {least:?}");
    let begun = processor_time();
    let states = subject.plan.goroutine_states(&subject.memory, &subject.confirmed).unwrap();
    let took = processor_time() - begun;
    let received = states.waiting_by_reason.iter().find(|(name, _)| &**name == "chan receive");
    assert_eq!(received.map(|(_, count)| *count), Some(1_000_000), "{states:?}");
    assert_eq!(states.unreadable, 0);
    assert!(took < Duration::from_secs(3), "{took:?}");
}

/// Debug information knows a vendor's build; without it every figure says so.
#[test]
fn a_build_that_is_not_known() {
    let program = Fixture::build("metrics", &newest(), Mode::Exe);
    let executable = executable(&program);
    let vendor = GoVersion::parse(&format!("{}-vendor", executable.go_version()));
    let debug = DebugInfo::open(executable.image()).unwrap().unwrap();
    let layouts = RuntimeLayouts::new(&vendor, Some(&debug));
    let mut subject = Subject::start_as(&program, &executable, &layouts, &[], &[]);
    assert_eq!(subject.plan.layout_source(), Some(Provenance::Dwarf));
    let round = subject.round();
    assert_bracketed("with debug information", &round.stats());
    assert_bracketed("with debug information", &round.metrics());

    let layouts = RuntimeLayouts::new(&vendor, None);
    let plan = MetricsPlan::prepare(&executable, &layouts).unwrap();
    assert_eq!(plan.layout_source(), None);
    let confirmed = plan.confirm(&subject.memory, Bias(0));
    assert!(confirmed.is_complete() && !confirmed.is_whole());
    let sample = plan.sample(&subject.memory, &confirmed, Options::default()).unwrap();
    let why = |value: &Value<u64>| value.clone().unwrap_err().to_string();
    let expected = |structure: &str| {
        format!(
            "the layout of {structure} in {vendor} is not known (it is not a plain release): use \
             a build with debug info, or name its debug file"
        )
    };
    assert_eq!(why(&sample.memory.sys), expected("runtime.mstats"));
    assert_eq!(why(&sample.collector.heap_goal), expected("runtime.gcControllerState"));
    assert_eq!(why(&sample.scheduler.goroutines), expected("runtime.schedt"));
    // What needs no layout is there.
    assert_eq!(sample.collector.phase, Ok(GcPhase::Off));
}

/// A process that ended gives no figures at all, not even zeros.
#[test]
fn a_process_that_ended() {
    let mut subject = start(&newest(), &[], &[]);
    let options = Options::default();
    assert!(subject.plan.sample(&subject.memory, &subject.confirmed, options).is_ok());
    subject.running.close_stdin();
    assert!(subject.process.wait_exit(LIMIT));
    assert!(subject.plan.sample(&subject.memory, &subject.confirmed, options).is_err());
    let states = subject.plan.goroutine_states(&subject.memory, &subject.confirmed);
    assert_eq!(states, Err(Unknown::Unreadable("runtime.allgs")));
    let again = subject.plan.confirm(&subject.memory, Bias(0));
    assert!(again.globals().iter().all(|(_, found)| found.is_err()), "{:?}", again.globals());
}
