//! What a hit costs on this machine: measured on two instructions of our own.

use crate::error::from_io;
use crate::install::UprobeCapture;
use crate::kernel::KernelVersion;
use crate::options::Options;
use address::{FileOffset, Svma};
use capture::{Capture as _, Error, Request, Scope};
use probe::{Plan, Program, RuntimeLayout, Site};
use std::os::linux::fs::MetadataExt as _;
use std::time::Duration;
use wire::{GSource, SiteKind};

/// CPU time that a hit without a fetch program costs the target, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteCost {
    /// On an instruction that the kernel emulates, such as `push rbp`.
    pub emulated_ns: u64,
    /// On one that it executes out of line by a single step, such as `ret`.
    pub stepped_ns: u64,
}

/// Hits per batch; the middle one of [`BATCHES`] counts, for a machine that does other work too.
const EMULATED_HITS: u64 = 300;
const STEPPED_HITS: u64 = 30;
const BATCHES: usize = 7;

/// Where Go 1.23 and newer have the fields (runtime/runtime2.go); any place would do here.
const LAYOUT: RuntimeLayout =
    RuntimeLayout { g_goid: 152, g_stack_hi: 8, g_m: 48, m_g0: 0, m_curg: 184, tls_g: -8 };

/// A g with a stack and an id, as at any hit of a goroutine.
static FAKE_G: [u64; 64] = [7; 64];

// Both take (n, g) and hit their site n times with R14 = g.
std::arch::global_asm!(
    ".pushsection .text.gospect_calibrate, \"ax\", @progbits",
    "gospect_calibrate_pushes:",
    "push r14",
    "mov r14, rsi",
    "gospect_calibrate_push:",
    "push rbp",
    "pop rbp",
    "dec rdi",
    "jnz gospect_calibrate_push",
    "pop r14",
    "ret",
    "gospect_calibrate_returns:",
    "push r14",
    "mov r14, rsi",
    "2:",
    "call gospect_calibrate_return",
    "dec rdi",
    "jnz 2b",
    "pop r14",
    "ret",
    "gospect_calibrate_return:",
    "ret",
    ".globl gospect_calibrate_pushes, gospect_calibrate_push",
    ".globl gospect_calibrate_returns, gospect_calibrate_return",
    ".popsection",
);

unsafe extern "C" {
    fn gospect_calibrate_pushes(n: u64, g: *const [u64; 64]);
    fn gospect_calibrate_push();
    fn gospect_calibrate_returns(n: u64, g: *const [u64; 64]);
    fn gospect_calibrate_return();
}

/// Measures what hits cost here, in the CPU time of the calling thread: some 50 milliseconds of an
/// idle machine,
/// most of them spent on putting the probes in and taking them out. Only the calling process is
/// probed, and only in code that nothing else runs.
///
/// Errors: [`Error::Unsupported`] before Linux 6.6, where the removal would take longer than all
/// the rest; those of [`UprobeCapture::install`]; [`Error::Failed`] when the code does not lie in
/// the executable (in a shared library).
pub fn calibrate() -> Result<SiteCost, Error> {
    let kernel = KernelVersion::running();
    if kernel < KernelVersion::UPROBE_MULTI {
        return Err(Error::Unsupported {
            feature: "measuring the cost of a hit",
            needs: format!("{} or newer", KernelVersion::UPROBE_MULTI),
            have: format!("{kernel} (from uname)"),
        });
    }
    let pushes = gospect_calibrate_push as *const () as u64;
    let returns = gospect_calibrate_return as *const () as u64;
    let plan =
        Plan { runtime: LAYOUT, sites: vec![site(pushes)?, site(returns)?], ..Plan::default() };
    let request = Request {
        plan: &plan,
        path: "/proc/self/exe".into(),
        scope: Scope::Pids(vec![std::process::id()]),
        ring_bytes: 1 << 19,
    };
    let mut capture = UprobeCapture::install_sites(&request, Options::default())?;
    let emulated_ns = cost(EMULATED_HITS, gospect_calibrate_pushes);
    let stepped_ns = cost(STEPPED_HITS, gospect_calibrate_returns);
    capture.detach()?;
    let mut hits = 0;
    while capture.poll(Duration::ZERO, &mut |_| hits += 1)? > 0 {}
    // With probes that do not hit the times mean nothing.
    if hits < BATCHES as u64 * (EMULATED_HITS + STEPPED_HITS) {
        let short = std::io::Error::other(format!("only {hits} hits were seen"));
        return Err(from_io("measure the cost of a hit", short));
    }
    Ok(SiteCost { emulated_ns, stepped_ns })
}

/// Both are entries: those of one kind go with one link, and removing a link takes longest.
fn site(address: u64) -> Result<Site, Error> {
    let file_offset =
        own_file_offset(address).map_err(|e| from_io("find our own code in our executable", e))?;
    Ok(Site {
        function: 0,
        kind: SiteKind::Entry,
        address: Svma(address),
        file_offset,
        sp_delta: 0,
        g_source: GSource::R14,
        program: Program::default(),
        guard: None,
        condition: 0,
    })
}

/// Place in our executable of what is mapped at `address`.
fn own_file_offset(address: u64) -> std::io::Result<FileOffset> {
    let inode = std::fs::metadata("/proc/self/exe")?.st_ino();
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let offset = maps.lines().find_map(|line| {
        let mut parts = line.split_ascii_whitespace();
        let (start, end) = parts.next()?.split_once('-')?;
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        let since = address.checked_sub(hex(start)?)?;
        let offset = hex(parts.nth(1)?)?;
        (address < hex(end)? && parts.nth(1)?.parse() == Ok(inode)).then(|| offset + since)
    });
    offset.map(FileOffset).ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// CPU time per hit, nanoseconds.
fn cost(hits: u64, hit: unsafe extern "C" fn(u64, *const [u64; 64])) -> u64 {
    let mut batches = [0; BATCHES];
    for batch in &mut batches {
        let start = cpu_time();
        // SAFETY: both routines keep what the C convention wants kept, end after `hits > 0` rounds
        // and only carry the pointer, which the probe reads through.
        unsafe { hit(hits, &raw const FAKE_G) };
        let nanoseconds = cpu_time().saturating_sub(start).as_nanos();
        *batch = u64::try_from(nanoseconds).unwrap_or(u64::MAX) / hits;
    }
    batches.sort_unstable();
    batches[BATCHES / 2]
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
