//! Memory that lies: metrics of a real process whose memory was changed, and of memory that
//! is no process.

mod subject;

use address::{Avma, Bias, MemoryError, ReadMemory};
use binary::layout::RuntimeLayouts;
use inspect::metrics::{MetricsPlan, Options, Unknown};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use subject::{Subject, executable};
use testkit::{Fixture, Mode, newest, oldest};

/// Bytes of one sample, whatever the memory says: the most processors there can be.
const MOST: u64 = 64 << 20;

/// Keeps what is read.
struct Recorder<'m> {
    memory: &'m dyn ReadMemory,
    kept: RefCell<BTreeMap<u64, Vec<u8>>>,
}

impl ReadMemory for Recorder<'_> {
    fn read_memory(&self, address: Avma, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.memory.read_memory(address, buf)?;
        let mut kept = self.kept.borrow_mut();
        let known = kept.entry(address.0).or_default();
        if known.len() < buf.len() {
            *known = buf.to_vec();
        }
        Ok(())
    }
}

/// What was kept, with changes.
struct Replayed {
    pieces: BTreeMap<u64, Vec<u8>>,
    longest: Cell<u64>,
}

impl ReadMemory for Replayed {
    fn read_memory(&self, address: Avma, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.longest.set(self.longest.get().max(buf.len() as u64));
        let (start, bytes) =
            self.pieces.range(..=address.0).next_back().ok_or(MemoryError(address))?;
        let at = usize::try_from(address.0 - start).unwrap();
        let piece = at.checked_add(buf.len()).and_then(|end| bytes.get(at..end));
        buf.copy_from_slice(piece.ok_or(MemoryError(address))?);
        Ok(())
    }
}

/// A generator of numbers that is the same everywhere (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap()
    }
}

/// What a damaged word becomes.
fn damage(numbers: &mut Numbers, word: u64) -> u64 {
    match numbers.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => word.wrapping_add(8),
        3 => word << 32,
        4 => word ^ 1 << numbers.below(64),
        _ => numbers.next(),
    }
}

#[test]
fn damaged_memory_gives_figures_or_reasons() {
    for go in [oldest(), newest()] {
        let program = Fixture::build("metrics", &go, Mode::Stripped);
        let subject = Subject::start(&program, &["-load", "2"], &[("GOMAXPROCS", "3")]);
        let bias = subject.process.bias(executable(&program).image().base()).unwrap();
        let recorder = Recorder { memory: &subject.memory, kept: RefCell::default() };
        let confirmed = subject.plan.confirm(&recorder, bias);
        let all = Options { unflushed: true };
        subject.plan.sample(&recorder, &confirmed, all).unwrap();
        subject.plan.goroutine_states(&recorder, &confirmed).unwrap();
        let pieces = recorder.kept.into_inner();
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        for _ in 0..150 {
            let mut memory = Replayed { pieces: pieces.clone(), longest: Cell::new(0) };
            for _ in 0..=numbers.below(40) {
                let piece = numbers.below(memory.pieces.len());
                let bytes = memory.pieces.values_mut().nth(piece).unwrap();
                let at = numbers.below(bytes.len() / 8) * 8;
                let Some(Ok(word)) = bytes.get(at..at + 8).map(TryInto::try_into) else { continue };
                let word = damage(&mut numbers, u64::from_le_bytes(word));
                bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            // Whatever it is: no panic, and not without an end.
            let again = subject.plan.confirm(&memory, bias);
            for confirmed in [&confirmed, &again] {
                if let Ok(sample) = subject.plan.sample(&memory, confirmed, all) {
                    assert!(sample.effort.bytes < MOST, "{:?}", sample.effort);
                }
                let _ = subject.plan.goroutine_states(&memory, confirmed);
            }
            assert!(memory.longest.get() < MOST);
        }
    }
}

#[test]
fn memory_without_a_runtime_confirms_nothing() {
    let program = executable(&Fixture::build("metrics", &newest(), Mode::Stripped));
    let layouts = RuntimeLayouts::new(program.go_version(), None);
    let plan = MetricsPlan::prepare(&program, &layouts).unwrap();
    let unreadable = |at: Avma, _: &mut [u8]| Err(MemoryError(at));
    let zero = |_: Avma, buf: &mut [u8]| -> Result<(), MemoryError> {
        buf.fill(0);
        Ok(())
    };
    let full = |_: Avma, buf: &mut [u8]| -> Result<(), MemoryError> {
        buf.fill(0xff);
        Ok(())
    };
    let memories: [&dyn ReadMemory; 3] = [&unreadable, &zero, &full];
    for memory in memories {
        let confirmed = plan.confirm(memory, Bias(0));
        assert!(!confirmed.is_complete() && !confirmed.is_whole());
        // A single counter may be anything.
        let passed = confirmed.globals().into_iter().filter(|(_, found)| found.is_ok());
        let passed: Vec<&str> = passed.map(|(global, _)| global.symbol()).collect();
        let counters = ["runtime.work", "runtime.gcphase", "runtime.ncgocall"];
        assert!(passed.iter().all(|name| counters.contains(name)), "{passed:?}");
        let Ok(sample) = plan.sample(memory, &confirmed, Options::default()) else { continue };
        assert_eq!(sample.scheduler.goroutines, Err(Unknown::NotConfirmed("runtime.sched")));
        assert_eq!(sample.memory.sys, Err(Unknown::NotConfirmed("runtime.memstats")));
    }
}
