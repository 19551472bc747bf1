//! Emitted code, run for real: registers as without it, records exact, losses counted.

mod common;

use address::{Avma, MemoryError};
use capture_trampoline::layout::{DROPS, HEAD, Header, UNIT};
use common::hand::{FUNCTIONS, Hand};
use common::machine::{Goroutine, Machine, State};
use probe::interpret::{Registers, interpret};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::{Op, OpCode, SiteKind};

/// A xorshift generator: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// All registers, with g and the X15 of the calling convention.
    fn state(&mut self, g: u64) -> State {
        let mut state = State::default();
        state.gpr.fill_with(|| self.next());
        state.xmm.fill_with(|| u128::from(self.next()) << 64 | u128::from(self.next()));
        state.gpr[14] = g;
        state.xmm[15] = 0;
        state
    }
}

/// What a call leaves that is anyone's business: not RDX, R12, R13 and R15.
fn visible(mut state: State) -> State {
    for scratch in [2, 12, 13, 15] {
        state.gpr[scratch] = 0;
    }
    state
}

/// A call's records, as kinds and depths; and depths count from SP at the function's start.
fn expected(function: usize) -> &'static [(usize, SiteKind)] {
    use SiteKind::{Entry, Return, TailJump};
    match FUNCTIONS[function].0 {
        "tail" => &[(5, Entry), (5, TailJump), (2, Entry), (2, Return)],
        "jump_only" => &[(9, Entry), (9, TailJump), (2, Entry), (2, Return)],
        // No room for its own jumps; the function it calls has some.
        "call_first" => &[(2, Entry), (2, Return)],
        _ => &[],
    }
}

fn events(function: usize) -> Vec<(usize, SiteKind)> {
    match expected(function) {
        [] => vec![(function, SiteKind::Entry), (function, SiteKind::Return)],
        given => given.to_vec(),
    }
}

/// Checks a record against the call that made it.
fn check_record(
    machine: &Machine,
    plan: &probe::Plan,
    header: &Header,
    want: (usize, SiteKind),
    first_sp: u64,
    stack_hi: u64,
) {
    let site = &plan.sites[header.site as usize];
    assert_eq!((site.function as usize, site.kind), want);
    let record = &machine.emitted.sites[header.site as usize];
    assert!(record.installed);
    let depth = u64::from(header.depth).wrapping_sub(record.sp_delta as u64);
    let called_inside = FUNCTIONS[want.0].0 == "leaf";
    if !called_inside {
        assert_eq!(depth, stack_hi - first_sp, "{want:?}");
        if want.1 == SiteKind::Entry {
            assert!(machine.caller().contains(&header.caller), "{header:x?}");
        }
    }
}

#[test]
fn registers_survive_and_records_are_exact() {
    let hand = Hand::new();
    let plan = hand.plan(&[], &[]);
    for has_rdpid in [true, false] {
        let machine = Machine::new(&hand, &plan, (4, 1 << 20), has_rdpid);
        let mut random = Random(0x1234_5678_9abc_def1);
        let stack_hi = (&raw const random).addr() as u64 + (1 << 20);
        let mut g = Goroutine::new(77, stack_hi, 0x3a_bcde, 0);
        let mut positions = [0; 4];
        let mut last = 0;
        for round in 0..4000 {
            let function = round % FUNCTIONS.len();
            if random.next().is_multiple_of(8) {
                g.exhaust();
            }
            let before = random.state(g.address());
            let plain = machine.call(function, false, &before);
            if random.next().is_multiple_of(8) {
                g.exhaust();
            }
            let patched = machine.call(function, true, &before);
            assert_eq!(visible(plain), visible(patched), "{}", FUNCTIONS[function].0);
            assert_eq!(patched.xmm[15], 0);
            let mut records = Vec::new();
            for (ring, position) in positions.iter_mut().enumerate() {
                machine.drain(ring as u32, position, |header, _| records.push(header));
            }
            records.sort_by_key(|header| header.tsc);
            let want = events(function);
            assert_eq!(records.len(), want.len(), "{}", FUNCTIONS[function].0);
            for (header, want) in records.iter().zip(want) {
                assert!(header.tsc > last);
                last = header.tsc;
                assert_eq!((header.goid, header.tid, header.drops), (77, 0x3a_bcde, 0));
                assert!(!header.system_stack && header.units == 1);
                check_record(&machine, &plan, header, want, patched.gpr[4] - 8, stack_hi);
            }
        }
    }
}

#[test]
fn system_stacks_name_their_goroutine_and_no_goroutine_records_nothing() {
    let hand = Hand::new();
    let plan = hand.plan(&[], &[]);
    let machine = Machine::new(&hand, &plan, (1, 1 << 20), true);
    let mut random = Random(99);
    let g = Goroutine::new(0, 1 << 40, 5, 4242);
    let before = random.state(g.address());
    machine.call(0, true, &before);
    let mut records = Vec::new();
    let mut position = 0;
    machine.drain(0, &mut position, |header, rest| records.push((header, rest.to_vec())));
    assert_eq!(records.len(), 2);
    for (header, rest) in records {
        assert_eq!((header.goid, header.system_stack, header.units), (4242, true, 2));
        assert_eq!(rest[..8], g.address().to_le_bytes());
    }
    // A leaf without a stack check, as C threads run it before they have a g.
    let before = random.state(0);
    let plain = machine.call(2, false, &before);
    assert_eq!(visible(machine.call(2, true, &before)), visible(plain));
    machine.enable(false);
    let before = random.state(g.address());
    let plain = machine.call(0, false, &before);
    assert_eq!(visible(machine.call(0, true, &before)), visible(plain));
    assert_eq!(machine.word(0, HEAD).load(Ordering::Relaxed), position);
    assert_eq!(machine.word(0, DROPS).load(Ordering::Relaxed), 0);
}

#[test]
fn a_full_ring_drops_and_counts_and_goes_on_when_there_is_room() {
    let hand = Hand::new();
    let plan = hand.plan(&[], &[]);
    let machine = Machine::new(&hand, &plan, (1, 1 << 13), true);
    let mut random = Random(7);
    let g = Goroutine::new(3, 1 << 40, 5, 0);
    let capacity = (1 << 13) / UNIT as u64;
    for call in 0..300 {
        let before = random.state(g.address());
        let plain = machine.call(0, false, &before);
        assert_eq!(visible(machine.call(0, true, &before)), visible(plain), "call {call}");
    }
    assert_eq!(machine.word(0, HEAD).load(Ordering::Relaxed), 1 << 13);
    let drops = machine.word(0, DROPS).load(Ordering::Relaxed);
    assert_eq!(drops, 600 - capacity);
    let mut position = 0;
    let mut count = 0;
    machine.drain(0, &mut position, |header, _| {
        assert_eq!(header.drops_since(0, header.site == 0), 0);
        count += 1;
    });
    assert_eq!(count, capacity);
    machine.call(0, true, &random.state(g.address()));
    // The return has room for all of the count, the entry for 8 bits.
    let mut told = Vec::new();
    machine.drain(0, &mut position, |header, _| {
        told.push(header.drops_since(0, header.site == 0));
    });
    assert_eq!(told, [drops & 0xff, drops]);
    assert_eq!(position, (1 << 13) + 2 * UNIT as u64);
}

const ARGS: &[Op] = &[
    Op::new(OpCode::Reg, 0, 0),
    Op::new(OpCode::EmitAcc, 8, 0),
    Op::new(OpCode::Reg, 2, 0),
    Op::new(OpCode::Add, 0, -5),
    Op::new(OpCode::SetAux, 0, 0),
    Op::new(OpCode::Reg, 11, 0),
    Op::new(OpCode::GetAux, 0, 0),
    Op::new(OpCode::EmitAcc, 1, 0),
    Op::new(OpCode::StackSlot, 0, 16),
    Op::new(OpCode::EmitAcc, 4, 0),
    Op::new(OpCode::Reg, 7, 0),
    Op::new(OpCode::Add, 0, 0x1234_5678_9abc),
    Op::new(OpCode::EmitAcc, 8, 0),
    Op::new(OpCode::CurrentG, 0, 0),
    Op::new(OpCode::EmitAcc, 2, 0),
    Op::new(OpCode::FloatReg, 14, 0),
    Op::new(OpCode::EmitAcc, 8, 0),
];
const RESULTS: &[Op] = &[
    Op::new(OpCode::Reg, 0, 0),
    Op::new(OpCode::EmitAcc, 8, 0),
    Op::new(OpCode::Reg, 3, 0),
    Op::new(OpCode::EmitAcc, 4, 0),
    Op::new(OpCode::FloatReg, 0, 0),
    Op::new(OpCode::EmitAcc, 4, 0),
];

#[test]
fn values_are_those_of_the_reference_interpreter() {
    let hand = Hand::new();
    let plan = hand.plan(ARGS, RESULTS);
    let machine = Machine::new(&hand, &plan, (1, 1 << 20), true);
    let nothing = |at: Avma, _: &mut [u8]| Err(MemoryError(at));
    let mut random = Random(31);
    let mut position = 0;
    for round in 0..2000 {
        let system = round % 3 == 0;
        let g = Goroutine::new(if system { 0 } else { 9 }, 1 << 40, 5, 8);
        let function = round % FUNCTIONS.len();
        if events(function) != [(function, SiteKind::Entry), (function, SiteKind::Return)] {
            continue;
        }
        let before = random.state(g.address());
        let plain = machine.call(function, false, &before);
        let after = machine.call(function, true, &before);
        assert_eq!(visible(plain), visible(after));
        let first_sp = after.gpr[4] - 8;
        let mut want = Vec::new();
        for (ops, state) in [(ARGS, before), (RESULTS, after)] {
            let registers = Registers {
                gpr: state.gpr,
                sp_first: first_sp,
                xmm: Some(state.low_halves()),
                bias: 0,
            };
            want.push(interpret(ops, &registers, g.address(), &nothing));
        }
        let mut got = Vec::new();
        machine.drain(0, &mut position, |header, rest| {
            got.push(machine.payload(&header, rest));
        });
        assert_eq!(got, want, "{}", FUNCTIONS[function].0);
    }
}

#[test]
fn many_threads_lose_nothing_that_is_not_counted() {
    const THREADS: u64 = 8;
    const CALLS: usize = 20_000;
    let hand = Hand::new();
    let plan = hand.plan(ARGS, &[]);
    // Rings that wrap hundreds of times and lose, and rings that hold everything.
    let small = [((1, 1 << 13), true), ((2, 1 << 16), true), ((4, 1 << 13), false)];
    let large = ((2, 1 << 25), true);
    for (rings, has_rdpid) in small.into_iter().chain([large]) {
        let machine = Machine::new(&hand, &plan, rings, has_rdpid);
        let done = AtomicBool::new(false);
        let mut by_goroutine: HashMap<u64, Vec<Header>> = HashMap::new();
        std::thread::scope(|scope| {
            let machine = &machine;
            let threads: Vec<_> = (1..=THREADS)
                .map(|goid| {
                    scope.spawn(move || {
                        let mut random = Random(goid * 0x9e37_79b9);
                        let g = Goroutine::new(goid, 1 << 40, goid as u32, 0);
                        for round in 0..CALLS {
                            let function = round % FUNCTIONS.len();
                            let before = random.state(g.address());
                            let after = machine.call(function, true, &before);
                            let plain = machine.call(function, false, &before);
                            assert_eq!(visible(after), visible(plain));
                        }
                    })
                })
                .collect();
            let done = &done;
            let by_goroutine = &mut by_goroutine;
            let reader = scope.spawn(move || {
                let mut positions = vec![0; rings.0 as usize];
                loop {
                    let last = done.load(Ordering::Acquire);
                    for (ring, position) in positions.iter_mut().enumerate() {
                        machine.drain(ring as u32, position, |header, rest| {
                            assert_eq!(header.units as usize * UNIT, rest.len() + UNIT);
                            let site = &machine.emitted.sites[header.site as usize];
                            assert_eq!(u32::from(site.units), header.units);
                            by_goroutine.entry(header.goid).or_default().push(header);
                        });
                    }
                    if last {
                        break;
                    }
                }
            });
            let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            done.store(true, Ordering::Release);
            reader.join().expect("the reader");
            assert!(results.iter().all(Result::is_ok));
        });
        let drops: u64 =
            (0..rings.0).map(|ring| machine.word(ring, DROPS).load(Ordering::Relaxed)).sum();
        let got: usize = by_goroutine.values().map(Vec::len).sum();
        let per_thread: usize = (0..CALLS).map(|round| events(round % FUNCTIONS.len()).len()).sum();
        assert_eq!(got as u64 + drops, per_thread as u64 * THREADS);
        assert!(got > 0);
        if (rings, has_rdpid) == large {
            assert_eq!((drops, by_goroutine.len() as u64), (0, THREADS));
        }
        for (goid, records) in &mut by_goroutine {
            records.sort_by_key(|header| header.tsc);
            let tids = records.iter().all(|header| u64::from(header.tid) == *goid);
            assert!(tids, "goroutine {goid}");
            if drops == 0 {
                let got = records.iter().map(|header| {
                    let site = &plan.sites[header.site as usize];
                    (site.function as usize, site.kind)
                });
                let want = (0..CALLS).flat_map(|round| events(round % FUNCTIONS.len()));
                assert!(got.eq(want), "goroutine {goid}");
            }
        }
    }
}
