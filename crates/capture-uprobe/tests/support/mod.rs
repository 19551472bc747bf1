//! A sled of probeable instructions in the test binary itself, entered with known registers.
#![allow(dead_code)] // Each test binary uses a part.

use address::{FileOffset, Svma};
use capture::{Capture, Request, Scope};
use capture_uprobe::{Options, UprobeCapture};
use probe::{Plan, PlannedFunction, Program, RuntimeLayout, Site};
use std::io::Read as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::{GSource, Op, Record, RecordKind, SiteKind};

/// Sites in the sled.
pub const SLED: usize = 10_000;

// sled_run(registers): loads the general registers from the array (hardware order; rsp only
// when not 0), runs through the sled of one-byte nops, which the kernel emulates, and returns.
std::arch::global_asm!(
    ".pushsection .text.sled, \"ax\", @progbits",
    ".globl sled_run",
    ".type sled_run, @function",
    "sled_run:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov rax, [rdi]",
    "mov rcx, [rdi + 8]",
    "mov rdx, [rdi + 16]",
    "mov rbx, [rdi + 24]",
    "mov rbp, [rdi + 40]",
    "mov rsi, [rdi + 48]",
    "mov r8, [rdi + 64]",
    "mov r9, [rdi + 72]",
    "mov r10, [rdi + 80]",
    "mov r11, [rdi + 88]",
    "mov r12, [rdi + 96]",
    "mov r13, [rdi + 104]",
    "mov r14, [rdi + 112]",
    "mov r15, [rdi + 120]",
    "mov [rip + sled_saved_rsp], rsp",
    "cmp qword ptr [rdi + 32], 0",
    "cmovne rsp, [rdi + 32]",
    "mov rdi, [rdi + 56]",
    ".globl sled_start",
    "sled_start:",
    ".rept 10000",
    "nop",
    ".endr",
    "mov rsp, [rip + sled_saved_rsp]",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    // sled_count(n, g): hits its one site, of the kind that most Go functions have, n times.
    ".globl sled_count",
    "sled_count:",
    "push r14",
    "mov r14, rsi",
    ".globl sled_counted",
    "sled_counted:",
    "push rbp",
    "pop rbp",
    "dec rdi",
    "jnz sled_counted",
    "pop r14",
    "ret",
    // The kernel refuses a probe on a breakpoint.
    ".globl sled_unprobeable",
    "sled_unprobeable:",
    "int3",
    ".popsection",
    ".pushsection .bss",
    "sled_saved_rsp: .quad 0",
    ".popsection",
);

unsafe extern "C" {
    fn sled_run(registers: *const [u64; 16]);
    fn sled_start();
    fn sled_count(n: u64, g: u64);
    fn sled_counted();
    fn sled_unprobeable();
}

/// Bytes `sled_run` has pushed when it reaches the sled, without its return address.
pub const PUSHED: u64 = 48;

/// Runs through the sled with `registers`, on the stack they name or, if that is 0, on ours.
pub fn run(registers: &[u64; 16]) {
    // SAFETY: the routine keeps what the C convention wants kept, and the sled is nops.
    unsafe { sled_run(registers) }
}

/// Hits the counted site `n > 0` times with R14 = `g`.
pub fn count(n: u64, g: u64) {
    assert!(n > 0);
    // SAFETY: as above.
    unsafe { sled_count(n, g) }
}

/// Tests of one process share the sled.
pub fn exclusive() -> MutexGuard<'static, ()> {
    static SLED_IN_USE: Mutex<()> = Mutex::new(());
    SLED_IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Address of sled site `index`.
pub fn sled_address(index: usize) -> u64 {
    sled_start as *const () as u64 + index as u64
}

/// Address of the counted site.
pub fn counted_address() -> u64 {
    sled_counted as *const () as u64
}

/// Address of an instruction that cannot be probed.
pub fn unprobeable_address() -> u64 {
    sled_unprobeable as *const () as u64
}

/// Place in our own executable of the code at `address`.
pub fn file_offset(address: u64) -> FileOffset {
    let mut maps = String::new();
    std::fs::File::open("/proc/self/maps").unwrap().read_to_string(&mut maps).unwrap();
    for line in maps.lines() {
        let mut parts = line.split_whitespace();
        let (start, end) = parts.next().unwrap().split_once('-').unwrap();
        let start = u64::from_str_radix(start, 16).unwrap();
        let end = u64::from_str_radix(end, 16).unwrap();
        let offset = u64::from_str_radix(parts.nth(1).unwrap(), 16).unwrap();
        if (start..end).contains(&address) {
            return FileOffset(address - start + offset);
        }
    }
    panic!("0x{address:x} is not mapped");
}

/// The g of the tests: goid at 16, stack.hi at 8, m at 24.
#[repr(C)]
pub struct FakeG {
    pub stack_lo: u64,
    pub stack_hi: u64,
    pub goid: u64,
    pub m: u64,
}

/// Where things are in [`FakeG`] and a fake m.
pub fn layout() -> RuntimeLayout {
    RuntimeLayout { g_goid: 16, g_stack_hi: 8, g_m: 24, m_g0: 0, m_curg: 8, tls_g: -8 }
}

/// Where the image of [`plan`] lies, as it tells.
pub const BIAS: u64 = 0x12_3456_7000;

/// A plan of one function whose sites lie at `addresses`, each with its program.
pub fn plan(addresses: &[u64], programs: &[Vec<Op>]) -> Plan {
    let base = file_offset(addresses[0]).0;
    let mut plan = Plan { runtime: layout(), ..Plan::default() };
    plan.functions.push(function("sled"));
    for (index, &address) in addresses.iter().enumerate() {
        let ops = programs.get(index).map_or(&[][..], Vec::as_slice);
        let program = Program { start: plan.ops.len() as u32, len: ops.len() as u16 };
        plan.ops.extend_from_slice(ops);
        plan.sites.push(Site {
            function: 0,
            kind: SiteKind::Entry,
            address: Svma(address.wrapping_sub(BIAS)),
            file_offset: FileOffset(base + (address - addresses[0])),
            sp_delta: PUSHED as i32,
            g_source: GSource::R14,
            program,
            guard: None,
            condition: 0,
        });
    }
    plan
}

/// A traced function without values.
pub fn function(name: &str) -> PlannedFunction {
    PlannedFunction {
        name: name.to_owned(),
        file: String::new(),
        line: 0,
        entry: Svma(0),
        size: 0,
        traced: true,
        witness: None,
        args: Vec::new(),
        results: Vec::new(),
    }
}

/// Installs `plan` on this process.
pub fn install(plan: &Plan, ring_bytes: usize, options: Options) -> UprobeCapture {
    let request = Request {
        plan,
        path: "/proc/self/exe".into(),
        scope: Scope::Pids(vec![std::process::id()]),
        ring_bytes,
    };
    UprobeCapture::install(&request, options)
        .unwrap_or_else(|e| panic!("these tests need root and BPF: {}", chain(&e)))
}

/// An error with its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// All records that are there.
pub fn drain(capture: &mut UprobeCapture) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while capture.poll(Duration::ZERO, &mut |bytes| records.push(bytes.to_vec())).unwrap() > 0 {}
    records
}

/// All records that are there but those that announce a process.
pub fn drain_hits(capture: &mut UprobeCapture) -> Vec<Vec<u8>> {
    let mut records = drain(capture);
    records.retain(|bytes| Record::parse(bytes).unwrap().kind != RecordKind::Process);
    records
}
