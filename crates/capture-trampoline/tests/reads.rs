//! Programs that read memory, as emitted code and as the reference interpreter has them, on
//! addresses that are there, half there and not there: the list of `probe::random_programs`.
//!
//! `GOSPECT_FETCH_PROGRAMS` says how many of them, where the usual number is not enough.

mod common;

use address::{Avma, MemoryError};
use capture_trampoline::layout::{DROPS, REJECTED};
use common::hand::{FUNCTIONS, Hand};
use common::machine::{Goroutine, Machine, State};
use probe::interpret::{Registers, interpret_hit};
use probe::random_programs::{Batch, Random, WORDS};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use wire::{Field, FieldStatus, Fields, MapKey, Op, OpCode, SiteKind};

/// Reads that may fault and their landings, for the handler.
static LOADS: AtomicPtr<(Avma, Avma)> = AtomicPtr::new(std::ptr::null_mut());
static LOADS_LEN: AtomicUsize = AtomicUsize::new(0);
/// The handler knows one table at a time.
static ONE: Mutex<()> = Mutex::new(());
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

/// A page that cannot be read, and one of a file that has become shorter. They are never unmapped.
fn bad_pages() -> [u64; 2] {
    let map = |prot, flags, file| {
        // SAFETY: a fresh mapping at a place of the kernel's choice.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, flags, file, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        page.addr() as u64
    };
    let closed = map(libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
    // SAFETY: makes a file that nobody else has.
    let file = unsafe { libc::memfd_create(c"lost".as_ptr(), 0) };
    // SAFETY: sets the length of our own file.
    assert!(file >= 0 && unsafe { libc::ftruncate(file, 4096) } == 0);
    let lost = map(libc::PROT_READ, libc::MAP_SHARED, file);
    // SAFETY: the same file, which is closed then; who reads the page is prepared for a fault.
    assert_eq!(unsafe { libc::ftruncate(file, 0) | libc::close(file) }, 0);
    [closed, lost]
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

/// The state that a program meets: the registers of the list, but for those that emitted code is entered with.
fn state(gpr: [u64; 16], g: u64, number: u64) -> State {
    let mut state = State { gpr, ..State::default() };
    state.gpr[14] = g;
    for (index, half) in state.xmm.iter_mut().take(15).enumerate() {
        *half = u128::from(number << 32 | index as u64).wrapping_mul(0x1234_5678_9abc_def1_1357);
    }
    state
}

#[test]
fn reads_are_those_of_the_reference_interpreter_whatever_can_be_read() {
    let _one = ONE.lock().unwrap();
    install_handler();
    let hand = Hand::new();
    let (mut statuses, mut system_hits) = ([0; 4], 0);
    let (mut rejected, mut conditional) = (0, 0);
    // Function 0 has a stack check and a frame.
    assert_eq!(FUNCTIONS[0].0, "frame");
    let programs = std::env::var("GOSPECT_FETCH_PROGRAMS").map_or(20_000, |n| n.parse().unwrap());
    let bad = bad_pages();
    for batch in Batch::list(programs) {
        // Where it lies is known before what it holds.
        let mut memory = vec![0; 3 * WORDS];
        let start = memory[WORDS..].as_ptr() as u64;
        memory.copy_from_slice(&batch.memory(start, &bad));
        let registers = batch.registers(start);
        for (condition, args) in batch.conditions.iter().zip(&batch.programs) {
            let mut plan = hand.plan(&[&condition[..], args].concat(), &[]);
            plan.sites.retain(|site| site.function == 0);
            for site in plan.sites.iter_mut().filter(|site| site.kind == SiteKind::Entry) {
                site.condition = condition.len() as u16;
                site.program.start += condition.len() as u32;
                site.program.len -= site.condition;
            }
            let machine = Machine::new(&hand, &plan, (1, 1 << 16), true);
            assert_eq!(machine.emitted.refused, [], "{args:?}");
            let loads = machine.emitted.loads.clone().leak();
            LOADS_LEN.store(loads.len(), Ordering::Release);
            LOADS.store(loads.as_mut_ptr(), Ordering::Release);
            let (mut position, mut rejected_here) = (0, 0);
            for (number, gpr) in registers.into_iter().enumerate() {
                let goid = if number == 0 { 0 } else { 5 };
                let g = Goroutine::new(goid, 1 << 40, 5, 8);
                let before = state(gpr, g.address(), number as u64);
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
                // Nothing is rejected on system stacks.
                let decides = if goid == 0 { &[][..] } else { condition };
                conditional += u32::from(!decides.is_empty());
                let want = interpret_hit(decides, args, &registers, g.address(), &read);
                let mut got = Vec::new();
                machine.drain(0, &mut position, |header, rest| {
                    got.push(machine.payload(&header, rest));
                    system_hits += u32::from(header.system_stack);
                });
                // The exit is recorded whatever became of the entry.
                let seen = (got.len() == 2).then(|| got.swap_remove(0));
                assert_eq!(got.len(), 1);
                assert_eq!(seen, want, "state {number}: {condition:?} {args:?}");
                rejected_here += u64::from(want.is_none());
                for Field { status, .. } in Fields::new(&want.unwrap_or_default()) {
                    statuses[status as usize] += 1;
                }
            }
            assert_eq!(machine.word(0, DROPS).load(Ordering::Relaxed), 0);
            assert_eq!(machine.word(0, REJECTED).load(Ordering::Relaxed), rejected_here);
            rejected += rejected_here;
        }
    }
    assert!(rejected > 300 && u64::from(conditional) > 2 * rejected, "{rejected} {conditional}");
    // The cases that matter have occurred.
    assert!(statuses[FieldStatus::Ok as usize] > 1000, "{statuses:?}");
    assert!(statuses[FieldStatus::Fault as usize] > 1000, "{statuses:?}");
    assert!(statuses[FieldStatus::Nil as usize] > 20, "{statuses:?}");
    assert!(FAULTS.load(Ordering::Relaxed) > 500 && system_hits > 1000);
}

/// Memory in which headers of maps lie, with groups in some of whose places keys are, and the headers. Some are
/// nonsense, and some of what they lead to cannot be read.
fn maps(random: &mut Random, memory: &mut [u64], start: u64, bad: &[u64]) -> Vec<u64> {
    let text = start + 8;
    memory[WORDS + 1] = u64::from_le_bytes(*b"Tracepar");
    memory[WORDS + 2] = u64::from_le_bytes(*b"ent\0\0\0\0\0");
    let groups = start + 8 * 600;
    let address = |random: &mut Random| match random.below(40) {
        0 => random.pick(bad),
        1 => random.below(5000),
        _ => groups + 8 * random.below(2000),
    };
    // Groups of 41 and 42 words lie at any place among these: what is a length in one is a key in another.
    for index in 600..3000 {
        memory[WORDS + index] = match random.below(16) {
            0..3 => 11,
            3 => text,
            4 => text + random.below(4),
            5 => address(random),
            6 => random.below(20),
            _ => 0,
        };
    }
    let header = |number: u64| start + 8 * (16 + 8 * number);
    for number in 0..64 {
        let at = WORDS + 16 + 8 * number as usize;
        let is_swiss = number % 2 == 0;
        memory[at] = 30;
        memory[at + 1] = random.below(8) << 8 | random.pick(&[0, 8]);
        memory[at + 2] = if random.below(9) == 0 { 0 } else { address(random) };
        memory[at + 3] = match is_swiss {
            true => random.pick(&[0, 0, 1, 1, 1, 2]),
            false if random.below(2) == 0 => 0,
            false => address(random),
        };
        if is_swiss && memory[at + 3] == 1 {
            // Table and directory are what would be the next header's last words.
            (memory[at + 2], memory[at + 4]) = (header(number) + 32, header(number) + 24);
            (memory[at + 5], memory[at + 6]) =
                (address(random), random.pick(&[0, 1, 3, 7, 15, 63, 64, u64::MAX]));
        }
    }
    (0..64).map(header).collect()
}

#[test]
fn maps_are_searched_as_by_the_reference_interpreter() {
    let _one = ONE.lock().unwrap();
    install_handler();
    let hand = Hand::new();
    let bad = bad_pages();
    let programs = [true, false].map(|is_swiss| {
        let key = MapKey { len: 11, elem_words: 3, is_swiss }.to_operand();
        let first = i64::from_le_bytes(*b"Tracepar");
        let search = [
            Op::new(OpCode::Add, 0, i64::from_le_bytes(*b"ceparent")),
            Op::new(OpCode::SetAux, 0, 0),
            Op::new(OpCode::Reg, 3, 0),
            Op::new(OpCode::MapElem, key, first),
        ];
        let all = [
            &search[..],
            &[Op::new(OpCode::EmitAcc, 8, 0)],
            &search,
            &[Op::new(OpCode::NilCheck, 0, 0), Op::new(OpCode::EmitBytes, 0, 24)],
            &[Op::new(OpCode::Reg, 3, 0), Op::new(OpCode::EmitAcc, 8, 0)],
        ];
        all.concat()
    });
    let mut told = [0; 3];
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut memory = vec![0; 3 * WORDS];
        let start = memory[WORDS..].as_ptr() as u64;
        let headers = maps(&mut random, &mut memory, start, &bad);
        for args in &programs {
            let mut plan = hand.plan(args, &[]);
            plan.sites.retain(|site| site.function == 0);
            let machine = Machine::new(&hand, &plan, (1, 1 << 16), true);
            assert_eq!(machine.emitted.refused, []);
            let loads = machine.emitted.loads.clone().leak();
            LOADS_LEN.store(loads.len(), Ordering::Release);
            LOADS.store(loads.as_mut_ptr(), Ordering::Release);
            let mut position = 0;
            for header in &headers {
                let g = Goroutine::new(5, 1 << 40, 5, 8);
                let mut gpr = [0; 16];
                gpr[3] = *header;
                let before = state(gpr, g.address(), seed);
                let after = machine.call(0, true, &before);
                let registers = Registers {
                    gpr: before.gpr,
                    sp_first: after.gpr[4] - 8,
                    xmm: Some(before.low_halves()),
                    bias: machine.options.bias.0,
                };
                let want = interpret_hit(&[], args, &registers, g.address(), &read).unwrap();
                let mut got = Vec::new();
                machine.drain(0, &mut position, |header, rest| {
                    got.push(machine.payload(&header, rest));
                });
                assert_eq!(got[0], want, "seed {seed}, header {header:#x}: {args:?}");
                let first = Fields::new(&want).next().unwrap();
                told[match (first.status, first.as_u64()) {
                    (FieldStatus::Fault, _) => 0,
                    (_, Some(0)) => 1,
                    _ => 2,
                }] += 1;
            }
        }
    }
    assert!(told.iter().all(|count| *count > 200), "faults, nothing, something: {told:?}");
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
