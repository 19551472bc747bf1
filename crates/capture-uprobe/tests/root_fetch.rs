//! The interpreter in BPF against the reference interpreter. Needs root.
//!
//! `GOSPECT_FETCH_PROGRAMS` says how many programs, where the usual number is not enough.

mod support;

use address::{Avma, MemoryError};
use capture::Capture as _;
use capture_uprobe::Options;
use probe::interpret::{Registers, interpret_hit};
use std::os::fd::AsRawFd as _;
use support::{drain_hits, exclusive, install, plan, run, sled_address};
use wire::{
    Body, Elements, FieldStatus, Fields, MAX_CONDITION_OPS, MAX_PROGRAM_OPS, Op, OpCode, Record,
};

/// Numbers that are the same on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // xorshift64*, Vigna.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

const WORDS: usize = 4096;

/// Words that point at one another, are small, are nil, are nonsense. Programs may stray
/// before and after those pointed at, the second third: nothing else lies there.
fn memory(random: &mut Random) -> Box<[u64]> {
    let mut words = vec![0u64; 3 * WORDS].into_boxed_slice();
    let start = words[WORDS..].as_ptr() as u64;
    let bad = [closed_page(), lost_page()];
    for word in &mut words {
        *word = match random.below(8) {
            0..4 => start + random.below(WORDS as u64 * 8),
            4 => 0,
            5 => random.below(300),
            6 => {
                let nonsense = [u64::MAX, 1 << 63, 0x8000_0000_0000, 0xffff_8000_0000_0000, 8];
                random.pick(&[&nonsense[..], &bad].concat())
            }
            _ => random.next(),
        };
    }
    words
}

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

/// A value that is asked about, and what comes of it: ways to reject a hit as real conditions have.
fn condition(random: &mut Random) -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..random.below(4) {
        let mut way = vec![Op::new(OpCode::Reject, 0, 0)];
        for _ in 0..=random.below(2) {
            let skip = random.pick(&[OpCode::SkipZero, OpCode::SkipNonZero]);
            let mut guard = question(random);
            guard.push(Op::new(skip, 0, way.len() as i64));
            guard.extend(way);
            way = guard;
        }
        ops.extend(way);
    }
    ops.truncate(MAX_CONDITION_OPS);
    ops
}

fn question(random: &mut Random) -> Vec<Op> {
    let register = |random: &mut Random| Op::new(OpCode::Reg, random.below(16) as u8, 0);
    let word = random.pick(&[1, 2, 4, 8, 17, 18, 20, 24]);
    let mut ops = vec![register(random)];
    match random.below(4) {
        0 => ops.push(Op::new(OpCode::Narrow, word, 0)),
        1 => ops.push(Op::new(OpCode::Load, word, 0)),
        2 => {
            ops.extend([Op::new(OpCode::SetAux, 0, 0), register(random)]);
            ops.push(Op::new(OpCode::Touch, 0, random.below(1100) as i64));
            let length = random.below(3) as i64 * -8;
            ops.push(Op::new(OpCode::AddAux, 0, length));
            ops.push(Op::new(OpCode::Match, word, random.below(300) as i64));
            ops.push(Op::new(OpCode::GetAux, 0, 0));
        }
        _ => ops.extend([Op::new(OpCode::SetAux, 0, 0), register(random)]),
    }
    if random.below(2) == 0 {
        let relation = random.below(32) as u8;
        ops.push(Op::new(OpCode::Compare, relation, random.pick(&[0, 1, -1, 255, 1 << 40])));
    }
    ops
}

/// What became of the fields, and how many hits were rejected.
fn compare(options: Options, seed: u64, programs: usize) -> ([usize; 6], usize) {
    let mut random = Random(seed);
    let words = memory(&mut random);
    let at = |random: &mut Random| words[WORDS..].as_ptr() as u64 + random.below(WORDS as u64) * 8;
    let mut registers = [0; 16];
    for register in &mut registers {
        *register = match random.below(4) {
            0 => random.below(400),
            _ => at(&mut random),
        };
    }
    // Aligned, with room for what the fetch programs address relative to it.
    registers[4] = words[WORDS..].as_ptr() as u64 + 8 * 2048;
    registers[14] = at(&mut random);
    let addresses: Vec<_> = (0..programs).map(sled_address).collect();
    let conditions: Vec<_> = (0..programs).map(|_| condition(&mut random)).collect();
    let programs: Vec<_> = (0..programs).map(|_| program(&mut random)).collect();
    let whole: Vec<_> =
        conditions.iter().zip(&programs).map(|(c, p)| [&c[..], p].concat()).collect();
    let mut plan = plan(&addresses, &whole);
    for (site, condition) in plan.sites.iter_mut().zip(&conditions) {
        site.condition = condition.len() as u16;
        site.program.start += condition.len() as u32;
        site.program.len -= site.condition;
    }
    let mut capture = install(&plan, 64 << 20, options);
    run(&registers);
    let records = drain_hits(&mut capture);
    let mut records = records.iter().map(|bytes| Record::parse(bytes).unwrap()).peekable();
    // Where it is not known whose the hit is, and on system stacks, nothing is rejected.
    let mut goid = [0; 8];
    read(Avma(registers[14] + 16), &mut goid).unwrap();
    let decides = u64::from_le_bytes(goid) != 0;

    let sp_first = registers[4].wrapping_add(support::PUSHED);
    let state = Registers { gpr: registers, sp_first, xmm: None, bias: support::BIAS };
    let (mut statuses, mut rejected) = ([0; 6], 0);
    for (site, (condition, ops)) in (0u32..).zip(conditions.iter().zip(&programs)) {
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
    let counters = capture.counters().unwrap();
    assert_eq!((counters.rejected, counters.lost), (rejected as u64, 0));
    (statuses, rejected)
}

#[test]
fn bpf_interprets_fetch_programs_as_the_reference_does() {
    let _sled = exclusive();
    let programs = std::env::var("GOSPECT_FETCH_PROGRAMS").map_or(100_000, |n| n.parse().unwrap());
    let most: u64 = programs / 5_000;
    for (bounded_loop, seeds) in [(false, 1..=most), (true, most + 1..=most + 4)] {
        let options = Options { bounded_loop, ..Options::default() };
        let (mut seen, mut rejected) = ([0; 6], 0);
        for seed in seeds {
            let (statuses, more) = compare(options, seed, 5_000);
            rejected += more;
            for (sum, n) in seen.iter_mut().zip(statuses) {
                *sum += n;
            }
        }
        assert!(rejected > 1000, "{bounded_loop}: {rejected}");
        // Every outcome was among them.
        use FieldStatus::*;
        for status in [Ok, Fault, Nil, NoRoom, NoRegister] {
            assert!(seen[status as usize] > 100, "{bounded_loop}: {seen:?}");
        }
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
