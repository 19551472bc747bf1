//! Runs emitted code in this process: text, stubs, rings and goroutines of our own.

use super::RUNTIME;
use super::hand::{Hand, SWAPPED, TEXT, TEXT_LEN, entry};
use address::{Avma, Bias};
use capture_trampoline::emit::{EmitOptions, Emitted, emit};
use capture_trampoline::layout::{DATA, HEAD, Header, LIMIT, Rings, UNIT};
use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::{CodeAssembler, ptr, qword_ptr, xmmword_ptr};
use probe::Plan;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of the whole arena.
const ARENA: usize = 96 << 20;
/// Where things lie in it.
const HARNESS: usize = 0;
const PATCHED: usize = 1 << 20;
const PLAIN: usize = 2 << 20;
const CONTROL: usize = 3 << 20;
const CODE: usize = 4 << 20;
const RINGS: usize = 8 << 20;

/// Registers, in hardware order.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub gpr: [u64; 16],
    pub xmm: [u128; 16],
}

impl State {
    /// Low halves of the vector registers.
    pub fn low_halves(&self) -> [u64; 16] {
        self.xmm.map(|whole| whole as u64)
    }
}

/// A g, its m, and that one's curg, with room around them for programs that stray.
pub struct Goroutine {
    words: Box<[u64]>,
}

/// Words before and behind them.
const AROUND: usize = 4096;

impl Goroutine {
    /// With a goid of 0 it is a system stack; `curg` is the goid of the user goroutine.
    pub fn new(goid: u64, stack_hi: u64, tid: u32, curg: u64) -> Self {
        let mut all = vec![0; 96 + 2 * AROUND].into_boxed_slice();
        let words = &mut all[AROUND..];
        let g = words.as_ptr() as u64;
        // g at word 0, m at 32, curg at 64.
        words[RUNTIME.g_stack_hi as usize / 8] = stack_hi;
        words[RUNTIME.g_goid as usize / 8] = goid;
        words[RUNTIME.g_m as usize / 8] = g + 32 * 8;
        words[32 + 72 / 8] = u64::from(tid);
        words[32 + RUNTIME.m_curg as usize / 8] = g + 64 * 8;
        words[64 + RUNTIME.g_goid as usize / 8] = curg;
        Self { words: all }
    }

    pub fn address(&self) -> u64 {
        self.words[AROUND..].as_ptr() as u64
    }

    /// The word that swaps change.
    pub fn swapped(&self) -> &AtomicU32 {
        // SAFETY: an aligned word of the box, which lives as long as `self`; emitted code changes
        // it by locked instructions only.
        unsafe { AtomicU32::from_ptr((self.address() + SWAPPED as u64) as *mut u32) }
    }

    /// Makes it its m's gsignal.
    pub fn is_signal_stack(&mut self) {
        self.words[AROUND + 32 + 80 / 8] = self.address();
    }

    /// Makes the next stack check fail once.
    pub fn exhaust(&mut self) {
        self.words[AROUND + 2] = u64::MAX;
    }
}

/// The arena.
pub struct Machine {
    arena: *mut u8,
    pub emitted: Emitted,
    pub options: EmitOptions,
}

// SAFETY: the arena is plain memory; what threads write at once (rings, control word) is
// accessed through atomics or by code that locks.
unsafe impl Sync for Machine {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Machine {}

impl Machine {
    pub fn new(hand: &Hand, plan: &Plan, rings: (u32, u32), has_rdpid: bool) -> Self {
        Self::with_hook(hand, plan, rings, has_rdpid, None)
    }

    /// With one of the functions in the place of `sigtrampgo`.
    pub fn with_hook(
        hand: &Hand,
        plan: &Plan,
        rings: (u32, u32),
        has_rdpid: bool,
        sigtrampgo: Option<address::Svma>,
    ) -> Self {
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let arena = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                ARENA,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(arena, libc::MAP_FAILED);
        let arena = arena.cast::<u8>();
        let at = |offset: usize| Avma(arena.addr() as u64 + offset as u64);
        let options = EmitOptions {
            code_base: at(CODE),
            bias: Bias(at(PATCHED).0.wrapping_sub(TEXT.0)),
            control: at(CONTROL),
            rings: Rings { base: at(RINGS), count: rings.0, bytes: rings.1 },
            has_rdpid,
            m_procid: Some(72),
            m_gsignal: Some(80),
            sigtrampgo,
            recovers_loads: true,
            translates_faults: true,
        };
        let emitted = emit(plan, hand, &options).expect("emits");
        let machine = Self { arena, emitted, options };
        machine.put(PLAIN, &hand.text);
        machine.put(PATCHED, &hand.text);
        for patch in machine.emitted.patches.iter().chain(&machine.emitted.hook) {
            let offset = PATCHED + (patch.address.0 - TEXT.0) as usize;
            machine.put(offset, &patch.replacement);
        }
        machine.put(CODE, &machine.emitted.code);
        machine.put(HARNESS, &harness(at(HARNESS).0));
        for (offset, len) in [(HARNESS, 4096), (PATCHED, TEXT_LEN), (PLAIN, TEXT_LEN)] {
            machine.make_executable(offset, len as usize);
        }
        machine.make_executable(CODE, machine.emitted.code.len());
        for ring in 0..rings.0 {
            machine.word(ring, LIMIT).store(u64::from(rings.1), Ordering::Release);
        }
        machine.enable(true);
        machine
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= ARENA);
        // SAFETY: inside the arena, which is writable until `make_executable`, and nobody else
        // has it yet.
        unsafe { self.arena.add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    fn make_executable(&self, offset: usize, len: usize) {
        // SAFETY: whole pages of the arena that hold code only.
        let changed = unsafe {
            let len = len.next_multiple_of(4096);
            libc::mprotect(self.arena.add(offset).cast(), len, libc::PROT_READ | libc::PROT_EXEC)
        };
        assert_eq!(changed, 0);
    }

    /// Sets the enable word.
    pub fn enable(&self, enabled: bool) {
        // SAFETY: an aligned word of the arena, which lives as long as `self`; the emitted code
        // only reads it.
        let word = unsafe { AtomicU64::from_ptr(self.arena.add(CONTROL).cast()) };
        word.store(u64::from(enabled), Ordering::Release);
    }

    /// A word in the header of a ring.
    pub fn word(&self, ring: u32, offset: u32) -> &AtomicU64 {
        let at = RINGS + (self.options.rings.stride() * ring + offset) as usize;
        // SAFETY: an aligned word of the arena, written by the emitted code with locked
        // instructions and by tests through this reference.
        unsafe { AtomicU64::from_ptr(self.arena.add(at).cast()) }
    }

    /// Bytes of a record at `position`.
    pub fn bytes(&self, ring: u32, position: u64, len: usize) -> Vec<u8> {
        let mask = u64::from(self.options.rings.bytes) - 1;
        let at = RINGS
            + (self.options.rings.stride() * ring + DATA) as usize
            + (position & mask) as usize;
        // SAFETY: inside the ring or its slack; the record there is committed, so nobody
        // writes it.
        unsafe { std::slice::from_raw_parts(self.arena.add(at), len) }.to_vec()
    }

    fn commit_word(&self, ring: u32, position: u64) -> &AtomicU64 {
        let mask = u64::from(self.options.rings.bytes) - 1;
        self.word(ring, DATA + (position & mask) as u32)
    }

    /// Takes all committed records out of a ring, from `position` on, which it moves.
    pub fn drain(&self, ring: u32, position: &mut u64, mut each: impl FnMut(Header, &[u8])) {
        while *position < self.word(ring, HEAD).load(Ordering::Acquire) {
            if self.commit_word(ring, *position).load(Ordering::Acquire) == 0 {
                break;
            }
            let unit: [u8; UNIT] = self.bytes(ring, *position, UNIT).try_into().expect("a unit");
            let header = Header::read(&unit);
            let len = header.units as usize * UNIT;
            assert_ne!(len, 0, "{header:?}");
            each(header, &self.bytes(ring, *position, len)[UNIT..]);
            for unit in 0..u64::from(header.units) {
                self.commit_word(ring, *position + unit * UNIT as u64).store(0, Ordering::Relaxed);
            }
            *position += len as u64;
            let limit = *position + u64::from(self.options.rings.bytes);
            self.word(ring, LIMIT).store(limit, Ordering::Release);
        }
    }

    /// The payload of a record on the wire; `rest` is what follows its first unit.
    pub fn payload(&self, header: &Header, rest: &[u8]) -> Vec<u8> {
        let payload = self.emitted.sites[header.site as usize].payload;
        let mut out = Vec::new();
        payload.unpack(&rest[payload.offset(header.system_stack) - UNIT..], &mut out);
        out
    }

    /// Calls a function, with the registers of `state` but SP. Gives the registers behind the call.
    pub fn call(&self, function: usize, patched: bool, state: &State) -> State {
        let base = if patched { PATCHED } else { PLAIN };
        let target = self.arena.addr() + base + (entry(function).0 - TEXT.0) as usize;
        let mut after = State::default();
        // SAFETY: the arena begins with the code of `harness`, which follows the C calling
        // convention, saves what it must and writes `after` only. The functions of `Hand` use
        // no memory but their stack, g and their data.
        unsafe {
            let harness: extern "sysv64" fn(*const State, *mut State, usize) =
                std::mem::transmute(self.arena.add(HARNESS));
            harness(state, &raw mut after, target);
        }
        after
    }

    /// Return address of every call.
    pub fn caller(&self) -> std::ops::Range<u64> {
        let start = self.arena.addr() as u64 + HARNESS as u64;
        start..start + 4096
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size; no code of it runs any more, since calls
        // borrow `self`.
        unsafe { libc::munmap(self.arena.cast(), ARENA) };
    }
}

/// `fn(before: *const State, after: *mut State, target)`: loads registers, calls, stores.
fn harness(at: u64) -> Vec<u8> {
    let mut asm = CodeAssembler::new(64).expect("64 bits");
    let gpr = [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15];
    let xmm = [
        xmm0, xmm1, xmm2, xmm3, xmm4, xmm5, xmm6, xmm7, xmm8, xmm9, xmm10, xmm11, xmm12, xmm13,
        xmm14, xmm15,
    ];
    let mut write = || {
        for saved in [rbx, rbp, r12, r13, r14, r15, rsi, rdx] {
            asm.push(saved)?;
        }
        asm.mov(r12, rdi)?;
        for (index, register) in xmm.into_iter().enumerate() {
            asm.movups(register, xmmword_ptr(r12 + (128 + 16 * index as i32)))?;
        }
        for (index, register) in gpr.into_iter().enumerate() {
            if register != rsp && register != r12 {
                asm.mov(register, qword_ptr(r12 + 8 * index as i32))?;
            }
        }
        asm.mov(r12, qword_ptr(r12 + 8 * 12))?;
        asm.call(qword_ptr(rsp))?;
        asm.mov(r12, qword_ptr(rsp + 8))?;
        for (index, register) in gpr.into_iter().enumerate() {
            asm.mov(qword_ptr(r12 + 8 * index as i32), register)?;
        }
        for (index, register) in xmm.into_iter().enumerate() {
            asm.movups(xmmword_ptr(r12 + (128 + 16 * index as i32)), register)?;
        }
        asm.lea(rsp, ptr(rsp + 16))?;
        for saved in [r15, r14, r13, r12, rbp, rbx] {
            asm.pop(saved)?;
        }
        asm.ret()
    };
    write().expect("assembles");
    asm.assemble(at).expect("encodes")
}
