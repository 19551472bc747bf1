//! The interpreter in BPF against the reference interpreter: on the list of `probe::random_programs`, and on programs that no
//! compiler makes. Needs root.
//!
//! `GOSPECT_FETCH_PROGRAMS` says how many of the list, where the usual number is not enough.

mod support;

use address::{Avma, MemoryError};
use capture::Capture as _;
use capture_uprobe::Options;
use probe::interpret::{Registers, interpret_hit};
use probe::random_programs::{Batch, PER_BATCH, PROGRAMS, Random, WORDS};
use std::os::fd::AsRawFd as _;
use support::{drain_hits, exclusive, install, plan, run, sled_address};
use wire::{Body, Elements, FieldStatus, Fields, MAX_PROGRAM_OPS, Op, OpCode, Record};

fn op(random: &mut Random) -> Op {
    use OpCode::*;
    let code = random.pick(&[
        Reg,
        Reg,
        StackSlot,
        CurrentG,
        Add,
        Add,
        Deref,
        Deref,
        Deref,
        SetAux,
        GetAux,
        Reset,
        EmitAcc,
        EmitBytes,
        EmitString,
        EmitString,
        NilCheck,
        FloatReg,
        EmitElements,
        EmitDynamic,
        Each,
        Each,
        BlockWord,
        BlockWord,
        BlockWord,
        SkipZero,
        SkipNonZero,
        Image,
        Load,
        Narrow,
        Compare,
        Touch,
        AddAux,
        Match,
        MapElem,
        Reject,
    ]);
    let a = random.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 15, 16, 17, 18, 20, 24, 255]);
    let imm = match random.below(6) {
        0..3 => random.below(64) as i64 * 8,
        3 => random.below(1100) as i64,
        4 => -(random.below(64) as i64),
        _ => random.pick(&[i64::MIN, i64::MAX, 1024, 1023, 1025, 0, -1]),
    };
    let imm = match code {
        EmitElements => elements(random),
        Each => Body { ops: random.below(24) as u16, stride: random.pick(&STRIDES) }.to_imm(),
        SkipZero | SkipNonZero => random.below(9) as i64 - 1,
        BlockWord if random.below(4) > 0 => random.below(40) as i64,
        _ => imm,
    };
    let a = if code == BlockWord { random.below(4) as u8 } else { a };
    Op::new(code, a, imm)
}

const STRIDES: [u16; 9] = [0, 0, 1, 3, 8, 16, 24, 40, 2000];

fn elements(random: &mut Random) -> i64 {
    Elements { stride: random.pick(&STRIDES), most: random.below(20) as u16 }.to_imm()
}

/// A field, and (often) bodies for what lies behind it.
fn nest(random: &mut Random, ops: &mut Vec<Op>, depth: u8) {
    match depth {
        0 => ops.push(Op::new(OpCode::Reg, random.below(16) as u8, 0)),
        _ => ops.push(Op::new(OpCode::BlockWord, depth - 1, random.below(5) as i64 * 8)),
    }
    if random.below(3) == 0 {
        ops.push(Op::new(OpCode::SkipZero, 0, random.below(8) as i64));
        ops.push(Op::new(OpCode::BlockWord, depth.saturating_sub(1), 0));
    }
    let mut stride = 0;
    match random.below(4) {
        0 => ops.push(Op::new(OpCode::EmitBytes, 0, random.below(80) as i64)),
        1 => {
            ops.push(Op::new(OpCode::NilCheck, 0, 0));
            ops.push(Op::new(OpCode::EmitBytes, 0, 40));
        }
        _ => {
            ops.push(Op::new(OpCode::Reg, random.below(16) as u8, 0));
            ops.push(Op::new(OpCode::SetAux, 0, 0));
            ops.push(Op::new(OpCode::Reg, random.below(16) as u8, 0));
            let imm = elements(random);
            stride = Elements::of_imm(imm).stride;
            ops.push(Op::new(OpCode::EmitElements, 0, imm));
        }
    }
    if depth < 4 && random.below(4) > 0 {
        let at = ops.len();
        ops.push(Op::new(OpCode::Each, 0, 0));
        for _ in 0..=random.below(2) {
            nest(random, ops, depth + 1);
        }
        ops[at].imm = Body { ops: (ops.len() - at - 1) as u16, stride }.to_imm();
    }
}

/// A program in the form real ones have (load, walk, emit), or of any ops at all.
fn program(random: &mut Random) -> Vec<Op> {
    let len = random.pick(&[1, 4, 12, 40, 100, MAX_PROGRAM_OPS as u64]);
    let mut ops: Vec<Op> = Vec::new();
    let wild = random.below(2) == 0;
    while ops.len() < len as usize {
        if wild {
            ops.push(op(random));
            continue;
        }
        if random.below(3) == 0 {
            nest(random, &mut ops, 0);
            continue;
        }
        ops.push(Op::new(OpCode::Reg, random.below(16) as u8, 0));
        for _ in 0..random.below(3) {
            ops.push(Op::new(OpCode::NilCheck, 0, 0));
            ops.push(Op::new(OpCode::Add, 0, random.below(32) as i64 * 8));
            ops.push(Op::new(OpCode::Deref, 0, 0));
        }
        let emit = match random.below(3) {
            0 => Op::new(OpCode::EmitAcc, random.pick(&[1, 2, 4, 8]), 0),
            1 => Op::new(OpCode::EmitBytes, 0, random.below(1025) as i64),
            _ => {
                ops.push(Op::new(OpCode::SetAux, 0, 0));
                ops.push(Op::new(OpCode::Reg, random.below(16) as u8, 0));
                Op::new(OpCode::EmitString, 0, random.below(1025) as i64)
            }
        };
        ops.push(emit);
    }
    ops.truncate(len as usize);
    ops
}

/// Programs, the memory that they are run over, and the registers that they are run with.
struct Run {
    programs: Vec<Vec<Op>>,
    /// What decides before each whether the hit is wanted.
    conditions: Vec<Vec<Op>>,
    /// What is pointed at is the second third.
    words: Vec<u64>,
    states: Vec<[u64; 16]>,
}

impl Run {
    /// The programs of a batch, or others in their place.
    fn new(batch: Batch, others: Option<Vec<Vec<Op>>>) -> Self {
        let mut words = vec![0; 3 * WORDS];
        let start = words[WORDS..].as_ptr() as u64;
        words.copy_from_slice(&batch.memory(start, &[closed_page(), lost_page()]));
        let mut states = batch.registers(start).to_vec();
        for state in &mut states {
            // SP, aligned, with room for what programs address relative to it; g is among the words too.
            state[4] = start + 8 * 2048;
            state[14] = start + 8 * (state[14] % WORDS as u64);
        }
        // Every site is run through in each state.
        let (programs, conditions) = (others.unwrap_or(batch.programs), batch.conditions);
        Self { programs, conditions, words, states }
    }

    /// Runs all and compares; gives how often there was each status, and how many hits were rejected.
    fn compare(&self, options: Options) -> ([usize; 6], usize) {
        let addresses: Vec<_> = (0..self.programs.len()).map(sled_address).collect();
        let both = self.conditions.iter().zip(&self.programs);
        let whole: Vec<_> = both.map(|(one, other)| [&one[..], other].concat()).collect();
        let mut plan = plan(&addresses, &whole);
        for (site, condition) in plan.sites.iter_mut().zip(&self.conditions) {
            site.condition = condition.len() as u16;
            site.program.start += condition.len() as u32;
            site.program.len -= site.condition;
        }
        let mut capture = install(&plan, 64 << 20, options);
        assert!(self.words.len() == 3 * WORDS);
        let (mut statuses, mut rejected) = ([0; 6], 0);
        for registers in &self.states {
            run(registers);
            let records = drain_hits(&mut capture);
            let mut records = records.iter().map(|bytes| Record::parse(bytes).unwrap()).peekable();
            // Where it is not known whose the hit is, and on system stacks, nothing is rejected.
            let mut goid = [0; 8];
            read(Avma(registers[14] + 16), &mut goid).unwrap();
            let decides = u64::from_le_bytes(goid) != 0;
            let sp_first = registers[4].wrapping_add(support::PUSHED);
            let state = Registers { gpr: *registers, sp_first, xmm: None, bias: support::BIAS };
            for (site, (condition, ops)) in (0u32..).zip(self.conditions.iter().zip(&self.programs))
            {
                let condition = if decides { &condition[..] } else { &[] };
                let expected = interpret_hit(condition, ops, &state, registers[14], &read);
                let record = records.next_if(|record| record.site == site);
                let payload = record.map(|record| record.payload);
                assert!(
                    payload == expected.as_deref(),
                    "{condition:?}\n{ops:?}\n{payload:?}\n{expected:?}"
                );
                rejected += usize::from(expected.is_none());
                for field in Fields::new(payload.unwrap_or_default()) {
                    statuses[field.status as usize] += 1;
                }
            }
            assert!(records.next().is_none());
        }
        let counters = capture.counters().unwrap();
        assert_eq!((counters.rejected, counters.lost), (rejected as u64, 0));
        (statuses, rejected)
    }
}

/// Runs all in both ways that the program loops, and sees that there was each of some statuses.
fn compare_all(runs: impl IntoIterator<Item = Run>, bounded_loop: bool, met: &[FieldStatus]) {
    let options = Options { bounded_loop, ..Options::default() };
    let (mut seen, mut rejected) = ([0; 6], 0);
    for run in runs {
        let (statuses, more) = run.compare(options);
        rejected += more;
        for (sum, n) in seen.iter_mut().zip(statuses) {
            *sum += n;
        }
    }
    assert!(rejected > 1000, "{bounded_loop}: {rejected}");
    for status in met {
        assert!(seen[*status as usize] > 100, "{bounded_loop}: {seen:?}");
    }
}

#[test]
fn bpf_interprets_fetch_programs_as_the_reference_does() {
    use FieldStatus::{Fault, Nil, NoRegister, Ok};
    let _sled = exclusive();
    let programs = std::env::var("GOSPECT_FETCH_PROGRAMS").map_or(PROGRAMS, |n| n.parse().unwrap());
    let runs = |programs| Batch::list(programs).map(|batch| Run::new(batch, None));
    compare_all(runs(programs), false, &[Ok, Fault, Nil, NoRegister]);
    compare_all(runs(programs.min(2 * PER_BATCH)), true, &[Ok, Fault, Nil, NoRegister]);
}

#[test]
fn bpf_interprets_programs_of_any_ops_as_the_reference_does() {
    use FieldStatus::{Fault, Nil, NoRegister, NoRoom, Ok};
    let _sled = exclusive();
    for bounded_loop in [false, true] {
        let mut random = Random::new(77);
        let runs = Batch::list(3 * PER_BATCH).map(|batch| {
            let programs = batch.programs.iter().map(|_| program(&mut random)).collect();
            Run::new(batch, Some(programs))
        });
        compare_all(runs, bounded_loop, &[Ok, Fault, Nil, NoRoom, NoRegister]);
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

/// A page that may not be read.
fn closed_page() -> u64 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at a place the kernel chooses; it is never unmapped.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page as u64
}

/// A page of a file that has become shorter since.
fn lost_page() -> u64 {
    // SAFETY: a new mapping at a place the kernel chooses; it is never unmapped.
    let page = unsafe {
        let file = libc::memfd_create(c"lost".as_ptr(), 0);
        assert!(file >= 0 && libc::ftruncate(file, 4096) == 0);
        let (prot, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        let page = libc::mmap(std::ptr::null_mut(), 4096, prot, flags, file, 0);
        assert_eq!(libc::ftruncate(file, 0) | libc::close(file), 0);
        page
    };
    assert_ne!(page, libc::MAP_FAILED);
    page as u64
}

/// A page of a file, mapped and never looked at.
fn untouched_page(content: &[u8]) -> u64 {
    let path = std::env::temp_dir().join(format!("untouched-{}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    // SAFETY: a new private mapping at a place the kernel chooses; it is never unmapped.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            content.len(),
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    page as u64
}

#[test]
fn a_constant_nobody_has_looked_at_yet_is_read() {
    let _sled = exclusive();
    for perf_link in [false, true] {
        let mut registers = [0; 16];
        registers[3] = untouched_page(b"never seen before");
        let ops = vec![Op::new(OpCode::Reg, 3, 0), Op::new(OpCode::EmitBytes, 0, 17)];
        let options = Options { perf_link, ..Options::default() };
        let mut capture = install(&plan(&[sled_address(0)], &[ops]), 4096, options);
        run(&registers);
        let records = drain_hits(&mut capture);
        let record = Record::parse(&records[0]).unwrap();
        let field = Fields::new(record.payload).next().unwrap();
        assert_eq!((field.status, field.data), (FieldStatus::Ok, &b"never seen before"[..]));
    }
}
