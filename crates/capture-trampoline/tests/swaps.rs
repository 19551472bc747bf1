//! Recorded compare-and-swaps, run for real: what they do stays the same, and each that
//! swaps leaves a record, in an order that the swapped word could have gone through.

mod common;

use address::{Avma, MemoryError};
use capture_trampoline::layout::{DROPS, HEAD, Header, UNIT};
use common::hand::{Hand, SWAPS, swap_index};
use common::machine::{Goroutine, Machine, State};
use probe::interpret::{Registers, interpret};
use std::sync::atomic::{AtomicU32, Ordering};
use wire::{DEREF_MAPPED, Fields, Op, OpCode};

/// The g's goid by a read, old and new value, and another register.
const VALUES: &[Op] = &[
    Op::new(OpCode::Reg, 7, 0),
    Op::new(OpCode::Add, 0, 152),
    Op::new(OpCode::Deref, DEREF_MAPPED, 0),
    Op::new(OpCode::EmitAcc, 8, 0),
    Op::new(OpCode::Reg, 0, 0),
    Op::new(OpCode::EmitAcc, 4, 0),
    Op::new(OpCode::Reg, 1, 0),
    Op::new(OpCode::EmitAcc, 4, 0),
    Op::new(OpCode::Reg, 2, 0),
    Op::new(OpCode::EmitAcc, 8, 0),
];

/// Registers that the recorder uses itself.
const SCRATCH: &[Op] = &[
    Op::new(OpCode::Reg, 12, 0),
    Op::new(OpCode::EmitAcc, 8, 0),
    Op::new(OpCode::Reg, 13, 0),
    Op::new(OpCode::EmitAcc, 8, 0),
    Op::new(OpCode::Reg, 15, 0),
    Op::new(OpCode::EmitAcc, 8, 0),
];

/// A xorshift generator: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// All registers, with the current g in R14 and the swapped one in RDI.
    fn state(&mut self, g: &Goroutine, swapped: &Goroutine) -> State {
        let mut state = State::default();
        state.gpr.fill_with(|| self.next());
        state.xmm.fill_with(|| u128::from(self.next()) << 64 | u128::from(self.next()));
        state.gpr[14] = g.address();
        state.gpr[7] = swapped.address();
        state.xmm[15] = 0;
        state
    }
}

/// All but what the recorder may use: X9 to X14, and R12 and R13 where they are dead.
fn visible(mut state: State) -> State {
    state.xmm[9..15].fill(0);
    state.gpr[12..14].fill(0);
    state
}

fn drain(machine: &Machine, position: &mut u64) -> Vec<(Header, Vec<u8>)> {
    let mut records = Vec::new();
    machine.drain(0, position, |header, rest| records.push((header, rest.to_vec())));
    records
}

#[test]
fn a_swap_does_what_it_did_and_a_record_says_whether_it_swapped() {
    let hand = Hand::new();
    let plan = hand.swap_plan(VALUES);
    let mut random = Random(0x1234_5678_9abc_def1);
    for has_rdpid in [true, false] {
        let machine = Machine::new(&hand, &plan, (1, 1 << 20), has_rdpid);
        assert!(machine.emitted.refused.is_empty(), "{:?}", machine.emitted.refused);
        let mut position = 0;
        let swapped = Goroutine::new(4711, 1 << 40, 6, 0);
        let mut last = 0;
        for round in 0..3000 {
            let is_system = round % 5 == 0;
            let g = Goroutine::new(if is_system { 0 } else { 9 }, 1 << 40, 0x3a_bcde, 8);
            let function = swap_index(round % SWAPS.len());
            let before = random.state(&g, &swapped);
            let swaps = round % 2 == 0;
            let old = before.gpr[3] as u32;
            let word = if swaps { old } else { !old };
            swapped.swapped().store(word, Ordering::Relaxed);
            let plain = machine.call(function, false, &before);
            let value = swapped.swapped().swap(word, Ordering::Relaxed);
            let patched = machine.call(function, true, &before);
            assert_eq!(visible(patched), visible(plain));
            if matches!(SWAPS[round % SWAPS.len()].0, "coroswitch_m" | "execute") {
                assert_eq!(patched.gpr, plain.gpr, "R12 and R13 in use");
            }
            assert_eq!(swapped.swapped().load(Ordering::Relaxed), value);
            let [(header, rest)] = &drain(&machine, &mut position)[..] else { panic!("a record") };
            assert_eq!(header.caller & 0xff, u64::from(swaps));
            assert!(header.tsc > last);
            last = header.tsc;
            assert_eq!(header.site as usize, round % SWAPS.len());
            assert_eq!((header.tid, header.system_stack), (0x3a_bcde, is_system));
            assert_eq!(header.goid, if is_system { 8 } else { 9 });
            assert!(machine.emitted.sites[header.site as usize].is_guarded);
            let mut gpr = before.gpr;
            gpr[0] = u64::from(old);
            let registers = Registers { gpr, ..Registers::default() };
            let memory = |at: Avma, to: &mut [u8]| match at.0 == swapped.address() + 152 {
                true => {
                    to.copy_from_slice(&4711u64.to_le_bytes());
                    Ok(())
                }
                false => Err(MemoryError(at)),
            };
            let want = interpret(VALUES, &registers, g.address(), &memory);
            assert_eq!(machine.payload(header, rest), want);
        }
    }
}

#[test]
fn values_in_scratch_registers_are_those_before_the_swap() {
    let hand = Hand::new();
    let plan = hand.swap_plan(SCRATCH);
    let machine = Machine::new(&hand, &plan, (1, 1 << 20), true);
    let g = Goroutine::new(9, 1 << 40, 5, 0);
    let mut random = Random(77);
    let mut position = 0;
    for round in 0..60 {
        let before = random.state(&g, &g);
        let function = swap_index(round % SWAPS.len());
        let plain = machine.call(function, false, &before);
        assert_eq!(visible(machine.call(function, true, &before)), visible(plain));
        let gpr = before.gpr;
        // As the functions set them.
        let expected = match round % SWAPS.len() {
            0 => [gpr[12], gpr[13], gpr[15]],
            1 => [gpr[2], gpr[6].wrapping_add(5), gpr[15]],
            2 => [u64::from(gpr[1] as u32), gpr[13], gpr[15]],
            _ => [gpr[2].wrapping_add(1), gpr[6], gpr[15]],
        };
        let [(header, rest)] = &drain(&machine, &mut position)[..] else { panic!("a record") };
        let payload = machine.payload(header, rest);
        let fields = Fields::new(&payload).filter_map(|field| field.as_u64());
        assert_eq!(fields.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_patch_that_would_cross_a_page_begins_earlier() {
    let hand = Hand::new();
    let plan = hand.swap_plan(VALUES);
    let machine = Machine::new(&hand, &plan, (1, 1 << 20), true);
    let before: Vec<(u64, usize)> = machine
        .emitted
        .patches
        .iter()
        .map(|patch| {
            assert_eq!(patch.address.0 / 4096, (patch.address.0 + 4) / 4096);
            let site = plan.sites.iter().find(|site| site.function == patch.function);
            let swap = site.expect("its site").address;
            let inside = patch.address.0 + 1..patch.end.0;
            let moved = machine.emitted.pc_map.moved().iter();
            (
                swap.since(patch.address).expect("not behind the swap"),
                moved.filter(|(original, _)| inside.contains(&original.0)).count(),
            )
        })
        .collect();
    // In the last one two instructions go ahead, so that a thread may stand at the second or third.
    assert_eq!(before, [(0, 0), (0, 0), (0, 0), (6, 2)]);
}

#[test]
fn without_a_record_a_swap_only_swaps() {
    let hand = Hand::new();
    let plan = hand.swap_plan(VALUES);
    let machine = Machine::new(&hand, &plan, (1, 1 << 13), true);
    let g = Goroutine::new(9, 1 << 40, 5, 0);
    let mut random = Random(3);
    let mut check = |count: usize| {
        for round in 0..count {
            let before = random.state(&g, &g);
            let word = before.gpr[3] as u32 ^ (round % 2) as u32;
            g.swapped().store(word, Ordering::Relaxed);
            let plain = machine.call(swap_index(round % SWAPS.len()), false, &before);
            let value = g.swapped().swap(word, Ordering::Relaxed);
            let patched = machine.call(swap_index(round % SWAPS.len()), true, &before);
            assert_eq!(visible(patched), visible(plain));
            assert_eq!(g.swapped().load(Ordering::Relaxed), value);
        }
    };
    machine.enable(false);
    check(100);
    assert_eq!(machine.word(0, HEAD).load(Ordering::Relaxed), 0);
    // More than the ring holds.
    machine.enable(true);
    check(300);
    let units = u64::from(machine.emitted.sites[0].units);
    let room = (1 << 13) / (units * UNIT as u64);
    assert_eq!(machine.word(0, DROPS).load(Ordering::Relaxed), 300 - room);
}

#[test]
fn records_of_many_threads_chain_in_the_order_of_time() {
    const THREADS: u32 = 4;
    const SWAPS_EACH: usize = 5_000;
    let hand = Hand::new();
    let plan = hand.swap_plan(VALUES);
    let machine = Machine::new(&hand, &plan, (2, 1 << 24), true);
    let shared = Goroutine::new(1, 1 << 40, 5, 0);
    let failed = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (machine, failed) = (&machine, &failed);
        let (word, address) = (shared.swapped(), shared.address());
        for thread in 1..=THREADS {
            scope.spawn(move || {
                let mut random = Random(u64::from(thread) * 0x9e37_79b9);
                let g = Goroutine::new(u64::from(thread), 1 << 40, 5, 0);
                let mut done = 0;
                while done < SWAPS_EACH {
                    let mut before = random.state(&g, &g);
                    before.gpr[7] = address;
                    let old = word.load(Ordering::Relaxed);
                    // Every value once.
                    let new = thread << 24 | (done as u32 + 1);
                    (before.gpr[3], before.gpr[1]) = (u64::from(old), u64::from(new));
                    let after = machine.call(swap_index(done % SWAPS.len()), true, &before);
                    // The zero flag, as the functions leave the flags in RSI.
                    match after.gpr[6] >> 6 & 1 {
                        1 => done += 1,
                        _ => _ = failed.fetch_add(1, Ordering::Relaxed),
                    }
                }
            });
        }
    });
    let mut records = Vec::new();
    let mut void = 0;
    for ring in 0..2 {
        let mut position = 0;
        machine.drain(ring, &mut position, |header, rest| match header.caller & 0xff {
            0 => void += 1,
            _ => {
                let word = |field: Option<wire::Field<'_>>| field.and_then(|f| f.as_u64()).unwrap();
                let payload = machine.payload(&header, rest);
                let mut fields = Fields::new(&payload);
                let goid = word(fields.next());
                assert_eq!(goid, 1);
                records.push((header.tsc, word(fields.next()), word(fields.next())));
            }
        });
    }
    assert_eq!(void, failed.load(Ordering::Relaxed));
    assert_eq!(records.len(), THREADS as usize * SWAPS_EACH);
    assert_eq!(machine.word(0, DROPS).load(Ordering::Relaxed), 0);
    // The values form one chain; that of times may swap neighbours only where the CPUs' counters or
    // the times of two attempts overlap.
    let mut next: std::collections::HashMap<u64, u64> =
        records.iter().map(|&(_, old, new)| (old, new)).collect();
    assert_eq!(next.len(), records.len());
    let mut at = 0;
    while let Some(new) = next.remove(&at) {
        at = new;
    }
    assert!(next.is_empty(), "{} swaps out of the chain", next.len());
    assert_eq!(at, u64::from(shared.swapped().load(Ordering::Relaxed)));
}
