//! The scheduler's figures against the runtime's own trace of it (`GODEBUG=schedtrace`), and
//! what a sample costs.

mod subject;

use inspect::metrics::{Options, Scheduler};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::time::{Duration, Instant};
use subject::{LIMIT, Subject};
use testkit::{Fixture, Mode, Toolchain, newest, toolchains};

fn start(go: &Toolchain, args: &[&str], env: &[(&str, &str)]) -> Subject {
    Subject::start(&Fixture::build("metrics", go, Mode::Stripped), args, env)
}

/// Our figures in the words of `schedtrace` (`proc.go`): what stands behind the time.
fn line_of(scheduler: &Scheduler) -> String {
    let known = |value: &inspect::metrics::Value<u64>| value.clone().unwrap();
    let local = scheduler.run_queue_local.as_ref().unwrap();
    // The trace leaves out the goroutine that runs next; at rest there is none.
    let local: Vec<String> = local.iter().map(u64::to_string).collect();
    format!(
        "gomaxprocs={} idleprocs={} threads={} spinningthreads={} idlethreads={} runqueue={} [{}]",
        known(&scheduler.gomaxprocs),
        scheduler.processors.as_ref().unwrap().idle,
        known(&scheduler.threads),
        known(&scheduler.threads_spinning),
        known(&scheduler.threads_idle),
        known(&scheduler.run_queue_global),
        local.join(" "),
    )
}

/// A line of the trace without its time and what was added later.
fn normalised(line: &str) -> String {
    let line = line.split_once(": ").map_or(line, |(_, rest)| rest);
    // Since Go 1.20 and 1.26 more is told.
    let line = line.split(" schedticks=").next().unwrap_or(line);
    let words = line.split(' ').filter(|word| !word.starts_with("needspinning="));
    let text = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    text.replace("[ ", "[").replace(" ]", "]")
}

/// Waits until a line of the trace says what was read just before it.
fn assert_traced(what: &str, subject: &Subject) {
    let begun = Instant::now();
    let seen = Cell::new(0);
    let mut last = (String::new(), String::new());
    while begun.elapsed() < LIMIT {
        let before = seen.get();
        let ours = line_of(&subject.sample().scheduler);
        let count = Cell::new(0);
        let line = subject.running.wait_error_line(LIMIT, |line| {
            let traced = line.starts_with("SCHED ");
            count.set(count.get() + usize::from(traced));
            traced && count.get() > before
        });
        seen.set(count.get());
        let after = line_of(&subject.sample().scheduler);
        let theirs = normalised(&line);
        if ours == theirs && after == theirs {
            return;
        }
        last = (ours, theirs);
    }
    panic!("{what}: ours and the runtime's never agreed; last\n{}\n{}", last.0, last.1);
}

#[test]
fn the_scheduler_is_as_its_own_trace_says() {
    for go in toolchains() {
        let env = [("GODEBUG", "schedtrace=20"), ("GOMAXPROCS", "3")];
        let subject = start(&go, &[], &env);
        assert_traced(&format!("go {} at rest", go.version), &subject);
    }
}

/// More goroutines than processors run: those that do not are in run queues.
#[test]
fn run_queues_hold_what_does_not_run() {
    for go in toolchains() {
        let subject = start(&go, &["-spin", "12", "-collect=false"], &[("GOMAXPROCS", "2")]);
        let begun = Instant::now();
        loop {
            let states =
                subject.plan.goroutine_states(&subject.memory, &subject.confirmed).unwrap();
            let scheduler = subject.sample().scheduler;
            let queued = scheduler.run_queue().unwrap();
            let p = scheduler.processors.unwrap();
            let now = (queued, states.runnable, states.running, p.running, p.idle);
            if now == (10, 10, 2, 2, 0) && scheduler.threads_running == Ok(2) {
                break;
            }
            assert!(begun.elapsed() < LIMIT, "go {}: {now:?} {states:?}", go.version);
        }
    }
}

/// Less than 5 ms and 1 MB, the processor's time of this thread: others may load the machine.
#[test]
fn a_sample_costs_little() {
    let subject = start(&newest(), &["-load", "4"], &[("GOMAXPROCS", "16")]);
    let processor_time = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
    };
    let mut times = Vec::new();
    for _ in 0..21 {
        let begun = processor_time();
        let effort = subject.sample_with(Options::default()).effort;
        times.push(processor_time() - begun);
        assert!(effort.bytes < 1 << 20, "{effort:?}");
    }
    times.sort_unstable();
    assert!(times[10] < Duration::from_millis(5), "{times:?}");
}
