//! Programs that read memory, as emitted code and as the reference interpreter has them, on
//! addresses that are there, half there and not there.
//!
//! `GOSPECT_FETCH_PROGRAMS` says how many programs, where the usual number is not enough.

mod common;

use address::{Avma, MemoryError};
use capture_trampoline::emit::Refused;
use capture_trampoline::layout::{DROPS, REJECTED};
use common::hand::{FUNCTIONS, Hand};
use common::machine::{Goroutine, Machine, State};
use probe::interpret::{Registers, interpret_hit};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use wire::{Body, Elements, Field, FieldStatus, Fields, IMAGE_PLACE, Op, OpCode, SiteKind};

/// Reads that may fault and their landings, for the handler.
static LOADS: AtomicPtr<(Avma, Avma)> = AtomicPtr::new(std::ptr::null_mut());
static LOADS_LEN: AtomicUsize = AtomicUsize::new(0);
static FAULTS: AtomicUsize = AtomicUsize::new(0);

/// What the hook in the target does: a fault of a read goes on at its landing.
extern "C" fn on_fault(signal: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a ucontext to handlers installed with SA_SIGINFO.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let rip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    let (start, len) = (LOADS.load(Ordering::Acquire), LOADS_LEN.load(Ordering::Acquire));
    // SAFETY: the test leaks every table before it stores it here.
    let loads = unsafe { std::slice::from_raw_parts(start, len) };
    match loads.iter().find(|load| load.0.0 == *rip as u64) {
        Some(load) => {
            *rip = load.1.0 as i64;
            FAULTS.fetch_add(1, Ordering::Relaxed);
        }
        None => {
            // SAFETY: sets the default action, with which the fault ends the test.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

fn install_handler() {
    // SAFETY: a zeroed sigaction is valid; the handler has the signature of SA_SIGINFO.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut())
            | libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut())
    };
    assert_eq!(failed, 0);
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Two pages that can be read, one behind that can't, and one of a file that has become shorter.
struct Memory {
    start: u64,
    /// The page of the file.
    lost: u64,
}

const PAGES: usize = 2 * 4096;

impl Memory {
    fn new(random: &mut Random) -> Self {
        // SAFETY: a fresh mapping; its last page is closed before anyone knows of it.
        let start = unsafe {
            let start = libc::mmap(
                std::ptr::null_mut(),
                PAGES + 4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(start.byte_add(PAGES), 4096, libc::PROT_NONE), 0);
            start.cast::<u64>()
        };
        // SAFETY: a mapping of its own, at a place of the kernel's choice.
        let lost = unsafe {
            let file = libc::memfd_create(c"lost".as_ptr(), 0);
            assert!(file >= 0 && libc::ftruncate(file, 4096) == 0);
            let (prot, flags) = (libc::PROT_READ, libc::MAP_SHARED);
            let lost = libc::mmap(std::ptr::null_mut(), 4096, prot, flags, file, 0);
            assert_ne!(lost, libc::MAP_FAILED);
            assert_eq!(libc::ftruncate(file, 0) | libc::close(file), 0);
            lost
        };
        let memory = Self { start: start.addr() as u64, lost: lost.addr() as u64 };
        for index in 0..PAGES / 8 {
            let word = memory.word(random);
            // SAFETY: inside the two pages, which nobody else has yet.
            unsafe { start.add(index).write(word) };
        }
        memory
    }

    /// A pointer that may be good, a length, or anything.
    fn word(&self, random: &mut Random) -> u64 {
        match random.below(10) {
            0..=4 => self.start + random.below(PAGES as u64 - 64),
            // Around the end.
            5 => self.start + PAGES as u64 - random.below(40) + random.below(8),
            6 => random.below(100),
            7 => [0, 0, self.lost, self.lost + random.below(4096)][random.below(4) as usize],
            // Not canonical, kernel, negative.
            8 => [0x8000_0000_0000_0000, u64::MAX - 3, 0xffff_8000_0000_0000]
                [random.below(3) as usize],
            _ => random.next(),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; who reads there is prepared for a fault.
        let failed = unsafe {
            libc::munmap(std::ptr::with_exposed_provenance_mut(self.start as usize), PAGES + 4096)
                | libc::munmap(std::ptr::with_exposed_provenance_mut(self.lost as usize), 4096)
        };
        assert_eq!(failed, 0);
    }
}

/// Reads this process's memory as it is, whole or not at all.
fn read(at: Avma, buf: &mut [u8]) -> Result<(), MemoryError> {
    let local = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let address = std::ptr::with_exposed_provenance_mut(at.0 as usize);
    let remote = libc::iovec { iov_base: address, iov_len: buf.len() };
    // SAFETY: the kernel writes to `buf` only, and says so of what it cannot read.
    let got = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    if got == buf.len() as isize { Ok(()) } else { Err(MemoryError(at)) }
}

/// A program of a few fields, with all ops.
fn program(random: &mut Random) -> Vec<Op> {
    let mut ops = vec![
        Op::new(OpCode::Image, 0, (random.next() >> random.below(64)) as i64),
        Op::new(OpCode::EmitAcc, 8, 0),
        Op::new(OpCode::Reg, [0, 1, 7, 11][random.below(4) as usize], 0),
        Op::new(OpCode::Image, IMAGE_PLACE, (random.next() >> random.below(64)) as i64),
        Op::new(OpCode::EmitAcc, 8, 0),
    ];
    for _ in 0..random.below(3) {
        nest(random, &mut ops, 0);
    }
    for _ in 0..=random.below(4) {
        for _ in 0..random.below(6) {
            ops.push(match random.below(16) {
                13 => Op::new(OpCode::CurrentG, random.next() as u8, random.next() as i64),
                14 => Op::new(OpCode::Reset, random.next() as u8, random.next() as i64),
                15 => Op::new(OpCode::Add, 0, random.next() as i64 | 1 << 60),
                11 => Op::new(OpCode::FloatReg, random.below(15) as u8, 0),
                0..=4 => {
                    let register = [0, 1, 2, 3, 6, 7, 8, 9, 10, 11][random.below(10) as usize];
                    Op::new(OpCode::Reg, register, 0)
                }
                5 => Op::new(OpCode::Add, 0, random.below(64) as i64 - 16),
                // So far that it leads to no other mapping of this process.
                6 => Op::new(OpCode::Add, 0, (random.next() | 1 << 60) as i64 >> random.below(8)),
                7 | 8 => Op::new(OpCode::Deref, 0, 0),
                9 => Op::new(OpCode::SetAux, 0, 0),
                10 => Op::new(OpCode::GetAux, 0, 0),
                _ => Op::new(OpCode::NilCheck, 0, 0),
            });
        }
        let size = [0, 1, 3, 7, 8, 12, 16, 64, 65, 200, -1, i64::MIN][random.below(12) as usize];
        match random.below(5) {
            0 => ops.push(Op::new(OpCode::EmitAcc, random.below(10) as u8, random.next() as i64)),
            4 => {
                // An address on the stack, which is not to be looked at: it changes.
                ops.push(Op::new(OpCode::StackSlot, 0, (random.next() as i64) >> 40));
                ops.push(Op::new(OpCode::EmitAcc, 8, 0));
            }
            1 => ops.push(Op::new(OpCode::EmitBytes, 0, size)),
            2 => {
                ops.push(Op::new(OpCode::Reg, 3, 0));
                ops.push(Op::new(OpCode::SetAux, 0, 0));
                ops.push(Op::new(OpCode::Reg, 0, 0));
                ops.push(Op::new(OpCode::EmitString, 0, size));
            }
            _ => ops.push(Op::new(OpCode::EmitString, 0, size)),
        }
    }
    ops
}

fn any_register(random: &mut Random) -> Op {
    Op::new(OpCode::Reg, [0, 1, 2, 3, 6, 7, 8, 9, 10, 11][random.below(10) as usize], 0)
}

/// A field with bodies for what lies behind it.
fn nest(random: &mut Random, ops: &mut Vec<Op>, depth: u8) {
    let word = |random: &mut Random| match depth {
        0 => any_register(random),
        _ => Op::new(
            OpCode::BlockWord,
            (depth - 1).saturating_sub(random.below(2) as u8),
            [0, 0, 8, 8, 16, 16, 4, 24, -1, 2000][random.below(10) as usize],
        ),
    };
    let when = (random.below(3) == 0).then(|| {
        ops.push(word(random));
        if random.below(3) == 0 {
            ops.push(Op::new(OpCode::Deref, 0, 0));
        }
        let skip = [OpCode::SkipZero, OpCode::SkipNonZero][random.below(2) as usize];
        ops.push(Op::new(skip, 0, 0));
        ops.len()
    });
    let mut stride = 0;
    match random.below(6) {
        0 => ops.extend([word(random), Op::new(OpCode::EmitAcc, 8, 0)]),
        1 => {
            let check = Op::new(OpCode::NilCheck, 0, 0);
            ops.extend([word(random), check, Op::new(OpCode::EmitBytes, 0, 24)]);
        }
        2 => {
            let (aux, acc) = (word(random), word(random));
            ops.extend([aux, Op::new(OpCode::SetAux, 0, 0), acc]);
            ops.push(Op::new(OpCode::EmitDynamic, 0, random.below(40) as i64));
        }
        _ => {
            stride = [0, 1, 8, 8, 16, 24][random.below(6) as usize];
            let (aux, acc) = (any_register(random), word(random));
            ops.extend([aux, Op::new(OpCode::SetAux, 0, 0), acc]);
            let elements = Elements { stride, most: random.below(4) as u16 };
            ops.push(Op::new(OpCode::EmitElements, 0, elements.to_imm()));
        }
    }
    if depth < 3 && random.below(4) > 0 {
        let at = ops.len();
        ops.push(Op::new(OpCode::Each, 0, 0));
        for _ in 0..random.below(3) {
            nest(random, ops, depth + 1);
        }
        if random.below(4) == 0 {
            ops.push(word(random));
        }
        ops[at].imm = Body { ops: (ops.len() - at - 1) as u16, stride }.to_imm();
    }
    if let Some(at) = when {
        ops[at - 1].imm = (ops.len() - at) as i64;
    }
}

/// Ways to reject a hit.
fn condition(random: &mut Random) -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..random.below(4) {
        let mut way = vec![Op::new(OpCode::Reject, 0, 0)];
        for _ in 0..=random.below(2) {
            let skip = [OpCode::SkipZero, OpCode::SkipNonZero][random.below(2) as usize];
            let mut guard = question(random);
            guard.push(Op::new(skip, 0, way.len() as i64));
            guard.extend(way);
            way = guard;
        }
        ops.extend(way);
    }
    ops
}

/// What a condition asks, with all ops that may stand there.
fn question(random: &mut Random) -> Vec<Op> {
    let word = [1, 2, 4, 8, 17, 18, 20, 24, 3][random.below(9) as usize];
    let mut ops = match random.below(12) {
        0 => vec![Op::new(OpCode::Image, 0, random.next() as i64)],
        1 => vec![Op::new(OpCode::StackSlot, 0, 0), Op::new(OpCode::Narrow, 17, 0)],
        2 => vec![Op::new(OpCode::CurrentG, 0, 0)],
        3 => vec![],
        _ => vec![any_register(random)],
    };
    match random.below(8) {
        0 => ops.push(Op::new(OpCode::Narrow, word, 0)),
        1 => ops.push(Op::new(OpCode::NilCheck, 0, 0)),
        2 => ops.push(Op::new(OpCode::Deref, 0, 0)),
        3 => ops.push(Op::new(OpCode::Add, 0, (random.next() | 1 << 60) as i64 >> random.below(8))),
        4 => ops.push(Op::new(OpCode::Image, IMAGE_PLACE, random.next() as i64)),
        _ => {}
    }
    match random.below(5) {
        0 => {}
        1 => ops.push(Op::new(OpCode::Load, word, 0)),
        2 | 3 => {
            let most = [0, 1, 7, 8, 24, 1024, -1][random.below(7) as usize];
            let length = if random.below(3) == 0 { random.next() as i64 } else { 0 };
            if random.below(4) > 0 {
                ops.extend([Op::new(OpCode::SetAux, 0, 0), any_register(random)]);
            }
            ops.push(Op::new(OpCode::Touch, 0, most));
            ops.push(Op::new(OpCode::AddAux, 0, length - random.below(3) as i64 * 8));
            for _ in 0..random.below(3) {
                ops.push(Op::new(OpCode::Match, word, (random.next() >> random.below(64)) as i64));
            }
            ops.push(Op::new(OpCode::GetAux, 0, 0));
        }
        _ => ops.extend([Op::new(OpCode::SetAux, 0, 0), any_register(random)]),
    }
    if random.below(3) > 0 {
        let imm = [0, 1, -1, 255, 1 << 40, random.next() as i64][random.below(6) as usize];
        ops.push(Op::new(OpCode::Compare, random.below(32) as u8, imm));
    }
    ops
}

fn state(random: &mut Random, memory: &Memory, g: u64) -> State {
    let mut state = State::default();
    state.gpr.fill_with(|| memory.word(random));
    state.xmm.fill_with(|| u128::from(random.next()) << 64 | u128::from(random.next()));
    if random.below(4) != 0 {
        state.gpr[3] = random.below(80);
    }
    state.gpr[14] = g;
    state.xmm[15] = 0;
    state
}

#[test]
fn reads_are_those_of_the_reference_interpreter_whatever_can_be_read() {
    install_handler();
    let hand = Hand::new();
    let mut random = Random(0xfeed_1234_5678_9abc);
    let (mut statuses, mut system_hits, mut large) = ([0; 4], 0, 0);
    let (mut rejected, mut conditional) = (0, 0);
    // Function 0 has a stack check and a frame.
    assert_eq!(FUNCTIONS[0].0, "frame");
    let programs = std::env::var("GOSPECT_FETCH_PROGRAMS").map_or(400, |n| n.parse().unwrap());
    for round in 0..programs {
        let memory = Memory::new(&mut random);
        let (condition, args) = (condition(&mut random), program(&mut random));
        let mut plan = hand.plan(&[&condition[..], &args].concat(), &[]);
        plan.sites.retain(|site| site.function == 0);
        for site in plan.sites.iter_mut().filter(|site| site.kind == SiteKind::Entry) {
            site.condition = condition.len() as u16;
            site.program.start += condition.len() as u32;
            site.program.len -= site.condition;
        }
        let machine = Machine::new(&hand, &plan, (1, 1 << 16), true);
        if let [(0, Refused::Payload(_))] = machine.emitted.refused[..] {
            large += 1;
            continue;
        }
        assert_eq!(machine.emitted.refused, []);
        let loads = machine.emitted.loads.clone().leak();
        LOADS_LEN.store(loads.len(), Ordering::Release);
        LOADS.store(loads.as_mut_ptr(), Ordering::Release);
        let (mut position, mut rejected_here) = (0, 0);
        for call in 0..12 {
            let goid = if call % 3 == 0 { 0 } else { 5 };
            let g = Goroutine::new(goid, 1 << 40, 5, 8);
            let before = state(&mut random, &memory, g.address());
            let plain = machine.call(0, false, &before);
            let after = machine.call(0, true, &before);
            for number in [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14] {
                assert_eq!(plain.gpr[number], after.gpr[number], "register {number}");
            }
            assert_eq!(plain.xmm, after.xmm);
            let registers = Registers {
                gpr: before.gpr,
                sp_first: after.gpr[4] - 8,
                xmm: Some(before.low_halves()),
                bias: machine.options.bias.0,
            };
            let decides = if goid == 0 { &[][..] } else { &condition };
            conditional += u32::from(!decides.is_empty());
            let want = interpret_hit(decides, &args, &registers, g.address(), &read);
            let mut got = Vec::new();
            machine.drain(0, &mut position, |header, rest| {
                got.push(machine.payload(&header, rest));
                system_hits += u32::from(header.system_stack);
            });
            // The exit is recorded whatever became of the entry.
            let seen = (got.len() == 2).then(|| got.swap_remove(0));
            assert_eq!(got.len(), 1);
            assert_eq!(seen, want, "round {round}, call {call}: {condition:?} {args:?}");
            rejected_here += u64::from(want.is_none());
            for Field { status, .. } in Fields::new(&want.unwrap_or_default()) {
                statuses[status as usize] += 1;
            }
        }
        assert_eq!(machine.word(0, DROPS).load(Ordering::Relaxed), 0);
        assert_eq!(machine.word(0, REJECTED).load(Ordering::Relaxed), rejected_here);
        rejected += rejected_here;
    }
    assert!(rejected > 300 && u64::from(conditional) > 2 * rejected, "{rejected} {conditional}");
    // The cases that matter have occurred.
    assert!(large < programs / 8, "{large}");
    assert!(statuses[FieldStatus::Ok as usize] > 1000, "{statuses:?}");
    assert!(statuses[FieldStatus::Fault as usize] > 1000, "{statuses:?}");
    assert!(statuses[FieldStatus::Nil as usize] > 20, "{statuses:?}");
    assert!(FAULTS.load(Ordering::Relaxed) > 500 && system_hits > 1000);
}

#[test]
fn nothing_is_read_on_the_signal_stack_and_where_faults_cannot_be_handled() {
    let hand = Hand::new();
    let args = [
        Op::new(OpCode::Reg, 0, 0),
        Op::new(OpCode::EmitAcc, 8, 0),
        Op::new(OpCode::Reg, 0, 0),
        Op::new(OpCode::Deref, 0, 0),
        Op::new(OpCode::EmitAcc, 8, 0),
    ];
    let mut plan = hand.plan(&args, &[]);
    plan.sites.retain(|site| site.function == 0 || site.function == 2);
    plan.functions[2].name = "syscall.leaf".to_owned();
    let machine = Machine::new(&hand, &plan, (1, 1 << 16), true);
    // No stack check, in a package near the kernel: the field that reads nothing.
    assert_eq!(machine.emitted.without_values, [2]);
    let mut g = Goroutine::new(0, 1 << 40, 5, 8);
    g.is_signal_stack();
    let mut before = State::default();
    (before.gpr[0], before.gpr[14]) = (0x1_2345, g.address());
    machine.call(0, true, &before);
    machine.call(2, true, &before);
    let mut got = Vec::new();
    machine.drain(0, &mut 0, |header, rest| {
        let payload = machine.payload(&header, rest);
        let fields = Fields::new(&payload);
        got.push(fields.map(|field| (field.status, field.as_u64())).collect::<Vec<_>>());
    });
    let fault = (FieldStatus::Fault, None);
    assert_eq!(got[0], [fault, fault]);
    assert_eq!(got[2], [(FieldStatus::Ok, Some(0x1_2345)), (FieldStatus::Unread, None)]);
    assert_eq!([got[1].len(), got[3].len()], [0, 0]);
}
