//! What reading a process's metrics costs: `sample_cost PID [ROUNDS]`. Prints, as JSON, the
//! median and the most of the processor time of one sample and of one count of goroutines by
//! state, with what was read; and of the facts about the executable, once.

// An example is a program: it prints.
#![allow(clippy::print_stdout)]

use address::{Avma, MemoryError, Part, ReadMemory};
use binary::Executable;
use binary::layout::RuntimeLayouts;
use inspect::metrics::{MetricsPlan, Options};
use process::Process;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::error::Error;
use std::sync::Arc;

fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Counts what goes through.
struct Counting<'m>(&'m dyn ReadMemory, Cell<usize>);

impl ReadMemory for Counting<'_> {
    fn read_memory(&self, address: Avma, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.1.set(self.1.get() + buf.len());
        self.0.read_memory(address, buf)
    }

    fn read_parts(&self, parts: &mut [Part<'_>]) -> Result<(), MemoryError> {
        self.1.set(self.1.get() + parts.iter().map(|part| part.bytes.len()).sum::<usize>());
        self.0.read_parts(parts)
    }
}

/// Median and most, in microseconds, and bytes read by the last.
fn measure(rounds: usize, memory: &Counting<'_>, work: &dyn Fn()) -> (i64, i64, usize) {
    let mut times: Vec<i64> = (0..rounds)
        .map(|_| {
            memory.1.set(0);
            let begun = now_ns();
            work();
            (now_ns() - begun) / 1000
        })
        .collect();
    times.sort_unstable();
    let at = |index: usize| times.get(index).copied().unwrap_or(0);
    (at(times.len() / 2), at(times.len().saturating_sub(1)), memory.1.get())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let pid = args.next().ok_or("usage: sample_cost PID [ROUNDS]")?.parse()?;
    let rounds = args.next().map_or(Ok(200), |rounds| rounds.parse())?;
    let process = Process::open(pid)?;
    let real = process.memory()?;
    let memory = Counting(&real, Cell::new(0));
    let begun = now_ns();
    let executable = Executable::open(Arc::new(process.executable()?))?;
    let layouts = RuntimeLayouts::new(executable.go_version(), None);
    let plan = MetricsPlan::prepare(&executable, &layouts)?;
    let prepared = (now_ns() - begun) / 1000;
    let bias = process.bias(executable.image().base())?;
    let (confirm, ..) = measure(1, &memory, &|| drop(plan.confirm(&memory, bias)));
    let found = plan.confirm(&memory, bias);
    let sample = |options: Options| {
        measure(rounds, &memory, &|| drop(plan.sample(&memory, &found, options)))
    };
    let plain = sample(Options::default());
    let whole = sample(Options { unflushed: true });
    let states = measure(rounds.min(5), &memory, &|| drop(plan.goroutine_states(&memory, &found)));
    let row = |name: &str, (median, most, bytes): (i64, i64, usize)| {
        println!("{{\"{name}\":{{\"median_us\":{median},\"most_us\":{most},\"bytes\":{bytes}}}}}");
    };
    println!("{{\"prepare_us\":{prepared},\"confirm_us\":{confirm}}}");
    row("sample", plain);
    row("sample with unflushed", whole);
    row("goroutines by state", states);
    Ok(())
}
