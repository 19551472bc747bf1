//! Memory that lies: made-up goroutines that move while they are read, stacks without an
//! end, lengths and pointers to nowhere.

use address::{Avma, Bias, MemoryError, ReadMemory, Svma};
use binary::Executable;
use binary::globals::{Global, find};
use binary::layout::RuntimeLayouts;
use inspect::{Error, Goroutine, LabelsEnd, Options, Registers, Snapshot, StackEnd, State, Walked};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use testkit::{Fixture, Mode, newest};

/// Where the made-up list and descriptors are.
const LIST: u64 = 0x10_0000;
const FIRST: u64 = 0x20_0000;
const DISTANCE: u64 = 0x1000;

/// A stack of a gigabyte, all of whose words are the same.
const STACK: u64 = 0x7000_0000;
const STACK_SIZE: u64 = 1 << 30;

/// Words that are set, and one that changes at each reading.
#[derive(Default)]
struct Memory {
    bytes: BTreeMap<u64, u8>,
    /// What every word of the stack is.
    stack_word: u64,
    /// Address of a byte that counts its readings.
    moving: Option<u64>,
    readings: Cell<u8>,
    longest: RefCell<usize>,
}

impl Memory {
    fn set(&mut self, at: u64, word: u64) {
        for (offset, byte) in (0..).zip(word.to_le_bytes()) {
            self.bytes.insert(at + offset, byte);
        }
    }
}

impl ReadMemory for Memory {
    fn read_memory(&self, address: Avma, buf: &mut [u8]) -> Result<(), MemoryError> {
        let mut longest = self.longest.borrow_mut();
        *longest = buf.len().max(*longest);
        let end = address.0.checked_add(buf.len() as u64).ok_or(MemoryError(address))?;
        let mapped = address.0 >= LIST && end <= STACK + STACK_SIZE;
        // The globals are in the executable's own range.
        if !mapped && self.bytes.range(address.0..end).next().is_none() {
            return Err(MemoryError(address));
        }
        for (at, slot) in (address.0..).zip(buf) {
            *slot = if at >= STACK {
                self.stack_word.to_le_bytes()[(at % 8) as usize]
            } else if self.moving == Some(at) {
                self.readings.set(self.readings.get().wrapping_add(1));
                self.readings.get()
            } else {
                self.bytes.get(&at).copied().unwrap_or(0)
            };
        }
        Ok(())
    }
}

fn executable() -> Executable {
    let path = Fixture::build("parked", &newest(), Mode::Exe);
    Executable::open(Arc::new(std::fs::read(path).unwrap())).unwrap()
}

/// A program with `count` goroutines that wait deep in a recursion without end.
struct Fake {
    executable: Executable,
    memory: Memory,
}

impl Fake {
    fn new(count: u64) -> Self {
        let mut fake = Self { executable: executable(), memory: Memory::default() };
        let functions = fake.executable.functions().unwrap();
        let deep = functions.by_name("main.deep").remove(0);
        let has_frame = |pc: &u64| functions.sp_delta(&deep, Svma(*pc)).is_some_and(|d| d > 8);
        let pc = (deep.entry.0 + 1..deep.end.0).find(has_frame).unwrap();
        fake.memory.stack_word = pc;
        let place = |global| find(&fake.executable, global).unwrap()[0].address.0;
        let (slice, len) = (place(Global::Allgs), place(Global::Allglen));
        for (offset, word) in [(0, LIST), (8, count), (16, count)] {
            fake.memory.set(slice + offset, word);
        }
        fake.memory.set(len, count);
        for index in 0..count {
            fake.memory.set(LIST + index * 8, FIRST + index * DISTANCE);
            let fields = [
                ("stack.lo", STACK),
                ("stack.hi", STACK + STACK_SIZE),
                ("sched.sp", STACK + 64),
                ("sched.pc", pc),
                ("goid", index + 1),
                ("startpc", deep.entry.0),
                ("gopc", pc),
                // Labels that are not there.
                ("labels", 8),
            ];
            for (field, word) in fields {
                let at = fake.field(index, field);
                fake.memory.set(at, word);
            }
            let status = fake.field(index, "atomicstatus");
            fake.memory.bytes.insert(status, 4);
        }
        fake
    }

    /// Address of a field of a goroutine's descriptor.
    fn field(&self, index: u64, field: &str) -> u64 {
        let layouts = RuntimeLayouts::new(self.executable.go_version(), None);
        FIRST + index * DISTANCE + layouts.field("runtime.g", field).unwrap().offset
    }

    fn walk(&self) -> Result<(Vec<Goroutine>, Walked), Error> {
        let layouts = RuntimeLayouts::new(self.executable.go_version(), None);
        let snapshot = Snapshot::open(&self.executable, &layouts, &self.memory, Bias(0))?;
        let mut seen = Vec::new();
        let walked = snapshot.walk(Options { stacks: true }, &mut |goroutine| {
            seen.push(goroutine);
        })?;
        Ok((seen, walked))
    }
}

#[test]
fn a_stack_without_an_end_is_followed_only_so_far() {
    let (seen, walked) = Fake::new(3).walk().unwrap();
    assert_eq!(walked, Walked { goroutines: 3, torn: 0, unreadable: 0 });
    for (goid, goroutine) in (1..).zip(seen) {
        assert_eq!(goroutine.goid, goid);
        assert_eq!((goroutine.state, goroutine.torn), (State::Waiting, false));
        assert_eq!(goroutine.stack.end, StackEnd::TooDeep);
        assert_eq!(goroutine.stack.frames().count(), 4096);
        // That they are not known is said, not that there are none.
        assert_eq!(goroutine.labels.end, LabelsEnd::Unreadable);
        assert!(goroutine.labels.texts.is_empty());
    }
}

#[test]
fn whatever_moves_during_the_reading_makes_it_torn() {
    for field in ["sched.sp", "trackingSeq", "stack.hi", "waitreason", "goid"] {
        let mut fake = Fake::new(2);
        fake.memory.moving = Some(fake.field(1, field));
        let (seen, walked) = fake.walk().unwrap();
        assert_eq!(walked.torn, 1, "{field}");
        assert!(!seen[0].torn && seen[1].torn, "{field}");
        assert_eq!(seen[1].stack.end, StackEnd::Moved, "{field}");
        assert_eq!(seen[1].stack.frames().count(), 0, "{field}");
    }
}

/// Nobody keeps a set of labels that is not a goroutine's any more: what is read there is of another.
#[test]
fn labels_that_change_are_never_shown_of_a_goroutine_that_runs() {
    for status in [2, 4] {
        let mut fake = Fake::new(2);
        let at = fake.field(1, "atomicstatus");
        fake.memory.bytes.insert(at, status);
        let labels = fake.field(1, "labels");
        // A set of one pair of empty texts, wherever the pointer leads: to a multiple of 256.
        fake.memory.set(labels, LIST);
        fake.memory.moving = Some(labels + 1);
        for at in (LIST..LIST + 0x10000).step_by(256).skip(1) {
            fake.memory.set(at, LIST + 0x20000);
            fake.memory.set(at + 8, 1);
        }
        let (seen, walked) = fake.walk().unwrap();
        assert_eq!(walked.torn, 1, "{status}");
        assert!(seen[1].torn && seen[1].labels.texts.is_empty(), "{status}");
        assert_eq!(seen[1].labels.end, LabelsEnd::Unreadable, "{status}");
    }
}

#[test]
fn labels_beyond_what_is_read_are_said_to_be_missing() {
    let mut fake = Fake::new(1);
    let labels = fake.field(0, "labels");
    fake.memory.set(labels, LIST + 0x1000);
    // More than anybody sets, all of them the same; then one that is long.
    for (count, len, end) in [
        (1, 5, LabelsEnd::Complete),
        (300, 5, LabelsEnd::Cut),
        (1 << 60, 5, LabelsEnd::Cut),
        (1, 1 << 40, LabelsEnd::Cut),
    ] {
        fake.memory.set(LIST + 0x1000, LIST + 0x2000);
        fake.memory.set(LIST + 0x1008, count);
        for at in (LIST + 0x2000..LIST + 0x8000).step_by(16) {
            fake.memory.set(at, LIST + 0x1000);
            fake.memory.set(at + 8, len);
        }
        let (seen, _) = fake.walk().unwrap();
        assert_eq!((seen[0].labels.texts.len(), seen[0].labels.end), (1, end), "{count} {len}");
        assert!(*fake.memory.longest.borrow() <= 1 << 16);
    }
}

/// In a core dump: what a goroutine saved when it stopped last is not where it runs.
#[test]
fn what_was_saved_is_only_believed_of_who_left_for_the_system_stack() {
    let entry = |name: &str| {
        let executable = executable();
        let functions = executable.functions().unwrap();
        functions.by_name(name).remove(0).entry.0
    };
    let (left, raise) = (entry("runtime.systemstack_switch"), entry("runtime.raise"));
    let (deep, clock) = (entry("main.deep") + 1, entry("runtime.nanotime1"));
    for (saved, runs, expected) in [
        // `systemstack` runs something: Go 1.19 saves its first instruction, newer ones one behind.
        (left, raise, "runtime.systemstack_switch"),
        (left + 8, raise, "runtime.systemstack_switch"),
        // It waited long ago; it asks for the time, also in the kernel's code.
        (deep, raise, ""),
        (left + 8, clock, ""),
        (left + 8, 0x7fff_0000_0000, ""),
    ] {
        let mut fake = Fake::new(1);
        let status = fake.field(0, "atomicstatus");
        fake.memory.bytes.insert(status, 2);
        let at = fake.field(0, "sched.pc");
        fake.memory.set(at, saved);
        let layouts = RuntimeLayouts::new(fake.executable.go_version(), None);
        // On another stack.
        let registers = |_| Some(Registers { pc: runs, sp: LIST, bp: 0 });
        let snapshot = Snapshot::open(&fake.executable, &layouts, &fake.memory, Bias(0)).unwrap();
        let snapshot = snapshot.with_registers(&registers);
        let mut first = Vec::new();
        let mut take = |goroutine: Goroutine| {
            let innermost = goroutine.stack.frames().next();
            let func = innermost.map_or(String::new(), |frame| frame.func.to_string());
            first.push((func, goroutine.stack.end == StackEnd::Running));
        };
        snapshot.walk(Options { stacks: true }, &mut take).unwrap();
        assert_eq!(first, [(expected.to_owned(), expected.is_empty())], "{saved:x} {runs:x}");
    }
}

#[test]
fn a_list_that_is_none_is_refused() {
    type Damage = fn(&mut Fake);
    let damages: [Damage; 5] = [
        |fake| fake.memory.set(LIST, 8),
        |fake| fake.memory.set(LIST, FIRST + DISTANCE),
        |fake| {
            let at = fake.field(0, "atomicstatus");
            fake.memory.bytes.insert(at, 5);
        },
        |fake| {
            let at = fake.field(1, "stack.lo");
            fake.memory.set(at, STACK + STACK_SIZE);
        },
        |fake| {
            let slice = find(&fake.executable, Global::Allgs).unwrap()[0].address.0;
            fake.memory.set(slice + 8, 1 << 40);
            fake.memory.set(slice + 16, 1 << 40);
        },
    ];
    for (index, damage) in damages.into_iter().enumerate() {
        let mut fake = Fake::new(2);
        damage(&mut fake);
        let refused = fake.walk();
        assert!(matches!(refused, Err(Error::NotConfirmed("runtime.allgs"))), "damage {index}");
        assert!(*fake.memory.longest.borrow() <= 1 << 16, "damage {index}");
    }
}

#[test]
fn a_length_past_the_capacity_is_cut() {
    let mut fake = Fake::new(2);
    let slice = find(&fake.executable, Global::Allgs).unwrap()[0].address.0;
    let len = find(&fake.executable, Global::Allglen).unwrap()[0].address.0;
    fake.memory.set(slice + 8, 1 << 40);
    fake.memory.set(len, 1 << 40);
    assert_eq!(fake.walk().unwrap().1.goroutines, 2);
}
