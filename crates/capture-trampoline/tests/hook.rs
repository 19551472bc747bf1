//! The hook of `sigtrampgo`, run with made-up signal contexts.

mod common;

use address::Avma;
use common::hand::{FUNCTIONS, Hand, entry};
use common::machine::{Goroutine, Machine, State};
use wire::{Op, OpCode};

/// RIP in a `ucontext_t`, in words.
const RIP: usize = 21;

const ARGS: &[Op] = &[
    Op::new(OpCode::Reg, 0, 0),
    Op::new(OpCode::SetAux, 0, 0),
    Op::new(OpCode::EmitString, 0, 64),
    Op::new(OpCode::Reg, 3, 0),
    Op::new(OpCode::Deref, 0, 0),
    Op::new(OpCode::EmitAcc, 8, 0),
];

/// Calls the hooked function as `sigtramp` does. Gives the context's RIP afterwards and whether the
/// function itself ran.
fn signal(machine: &Machine, hooked: usize, number: u64, rip: Avma) -> (Avma, bool) {
    let g = Goroutine::new(0, 1 << 40, 5, 8);
    let mut context = [0u64; 64];
    context[RIP] = rip.0;
    let mut state = State::default();
    state.gpr[0] = number;
    state.gpr[1] = context.as_mut_ptr().expose_provenance() as u64;
    (state.gpr[6], state.gpr[2]) = (1000, 1);
    state.gpr[14] = g.address();
    let after = machine.call(hooked, true, &state);
    assert_eq!((after.gpr[0], after.gpr[1]), (state.gpr[0], state.gpr[1]));
    assert_eq!((after.gpr[5], after.xmm), (state.gpr[5], state.xmm));
    (Avma(std::hint::black_box(&context)[RIP]), after.gpr[6] == 999)
}

#[test]
fn faults_of_reads_land_and_those_of_moved_instructions_go_home() {
    let hooked = FUNCTIONS.iter().position(|function| function.0 == "nosplit_frame").expect("it");
    let hand = Hand::new();
    let plan = hand.plan(ARGS, &[]);
    let machine = Machine::with_hook(&hand, &plan, (1, 1 << 16), true, Some(entry(hooked)));
    let emitted = &machine.emitted;
    let patch = emitted.hook.expect("a hook");
    assert_eq!(patch.address, entry(hooked));
    assert!(emitted.refused.iter().any(|refused| refused.0 == hooked as u32));
    assert!(emitted.loads.len() > 5);
    for &(load, landing) in &emitted.loads {
        assert!(landing != load);
        for number in [7, 8, 11] {
            assert_eq!(signal(&machine, hooked, number, load), (landing, false));
        }
        for number in [4, 5, 6, 23, 27] {
            assert_eq!(signal(&machine, hooked, number, load), (load, true));
        }
    }
    let home = |avma: Avma| machine.options.bias.to_svma(avma);
    let mut translated = 0;
    for offset in 0..emitted.code.len() as u64 + 64 {
        let rip = machine.options.code_base.add(offset);
        let (after, ran) = signal(&machine, hooked, 11, rip);
        if emitted.loads.iter().any(|load| load.0 == rip) {
            continue;
        }
        assert!(ran);
        if after != rip {
            let piece = emitted.pc_map.original(rip).expect("in a stub");
            assert_eq!((piece.start, piece.original), (rip, home(after)));
            assert!(piece.is_moved);
            translated += 1;
        }
    }
    // `mov rax, [rdx]` of moved_read, and nothing else.
    assert_eq!(translated, 1);
    for far in [Avma(0), Avma(machine.options.code_base.0 - 1), Avma(u64::MAX)] {
        assert_eq!(signal(&machine, hooked, 11, far), (far, true));
    }
}

#[test]
fn without_room_for_the_hook_nothing_is_read_and_nothing_that_faults_moves() {
    let hand = Hand::new();
    let plan = hand.plan(ARGS, &[]);
    // No such function.
    let machine = Machine::with_hook(&hand, &plan, (1, 1 << 16), true, Some(entry(100)));
    let emitted = &machine.emitted;
    assert_eq!((emitted.hook, emitted.loads.len()), (None, 0));
    let reads = FUNCTIONS.iter().position(|function| function.0 == "moved_read").expect("it");
    let refused = emitted.refused.iter().find(|refused| refused.0 == reads as u32);
    assert!(refused.is_some(), "{:?}", emitted.refused);
    let with_values = emitted.without_values.len() + emitted.refused.len();
    assert_eq!(with_values, FUNCTIONS.len());
}
