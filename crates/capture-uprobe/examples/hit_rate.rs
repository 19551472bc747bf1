//! What a hit costs: an empty BPF program, ours, and ours with a fetch program, all on one
//! instruction that the kernel emulates. Needs root.
//!
//! `cargo run --release -p capture-uprobe --example hit_rate`
#![allow(clippy::print_stdout)] // It is a program whose result is text.

#[path = "../tests/support/mod.rs"]
mod support;

use capture::Capture as _;
use capture_uprobe::Options;
use std::ffi::CStr;
use std::time::{Duration, Instant};
use support::{FakeG, count, counted_address, file_offset, install, plan};
use wire::{Op, OpCode, SiteKind};

const HITS: u64 = 300_000;
const ROUNDS: usize = 5;

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Nanoseconds of CPU per hit.
fn measure(g: u64) -> f64 {
    let start = cpu_time();
    count(HITS, g);
    (cpu_time() - start).as_nanos() as f64 / HITS as f64
}

/// An uprobe whose program returns at once; detached when the descriptors close.
struct EmptyProgram([i32; 2]);

impl EmptyProgram {
    fn attach(address: u64) -> Self {
        let instructions = [
            libbpf_sys::bpf_insn { code: 0xb7, ..Default::default() },
            libbpf_sys::bpf_insn { code: 0x95, ..Default::default() },
        ];
        let mut load = libbpf_sys::bpf_prog_load_opts {
            sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as _,
            expected_attach_type: libbpf_sys::BPF_TRACE_UPROBE_MULTI,
            ..Default::default()
        };
        let offsets = [file_offset(address).0];
        // SAFETY: all pointers are to live, initialised values of the sizes stated beside them.
        let (program, link) = unsafe {
            let program = libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_KPROBE,
                c"empty".as_ptr(),
                c"GPL".as_ptr(),
                instructions.as_ptr(),
                instructions.len() as _,
                &raw mut load,
            );
            let mut opts = libbpf_sys::bpf_link_create_opts {
                sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
                ..Default::default()
            };
            let path: &CStr = c"/proc/self/exe";
            opts.__bindgen_anon_1.uprobe_multi.path = path.as_ptr();
            opts.__bindgen_anon_1.uprobe_multi.offsets = offsets.as_ptr().cast();
            opts.__bindgen_anon_1.uprobe_multi.cnt = 1;
            let link = libbpf_sys::bpf_link_create(
                program,
                0,
                libbpf_sys::BPF_TRACE_UPROBE_MULTI,
                &raw const opts,
            );
            (program, link)
        };
        assert!(program >= 0 && link >= 0, "needs root: {program} {link}");
        Self([program, link])
    }
}

impl Drop for EmptyProgram {
    fn drop(&mut self) {
        for fd in self.0 {
            // SAFETY: the descriptors are ours and closed once.
            unsafe { libc::close(fd) };
        }
    }
}

/// CPU per hit with `ops` read at each, a reader emptying the ring as it does in earnest; and
/// the share of hits that were lost.
fn ours(kind: SiteKind, ops: &[Op], g: u64) -> (f64, f64) {
    let mut plan = plan(&[counted_address()], &[ops.to_vec()]);
    plan.sites[0].kind = kind;
    let mut capture = install(&plan, 8 << 20, Options::default());
    let hitter = std::thread::spawn(move || measure(g));
    let mut seen = 0u64;
    while !hitter.is_finished() {
        capture.poll(Duration::from_millis(20), &mut |_| seen += 1).unwrap();
    }
    let cost = hitter.join().unwrap();
    capture.detach().unwrap();
    while capture.poll(Duration::ZERO, &mut |_| seen += 1).unwrap() > 0 {}
    let counters = capture.counters().unwrap();
    assert_eq!(seen, counters.produced);
    assert_eq!(counters.produced + counters.lost, HITS);
    (cost, counters.lost as f64 / HITS as f64)
}

fn main() {
    let text = *b"sixteen bytes...";
    let g = FakeG { stack_lo: 0, stack_hi: 1 << 40, goid: 7, m: text.as_ptr() as u64 };
    let g_address = &raw const g as u64;
    let mut four = vec![Op::new(OpCode::CurrentG, 0, 0), Op::new(OpCode::Add, 0, 24)];
    four.extend([Op::new(OpCode::Deref, 0, 0), Op::new(OpCode::EmitBytes, 0, 16)]);
    let many: Vec<_> = four.iter().copied().cycle().take(26).collect();
    for _ in 0..ROUNDS {
        let mut line = String::new();
        {
            let _empty = EmptyProgram::attach(counted_address());
            line += &format!("empty {:.0} ns", measure(g_address));
        }
        let measured = [
            ("return", SiteKind::Return, &[][..]),
            ("entry", SiteKind::Entry, &[]),
            ("4 ops", SiteKind::Entry, &four),
            ("26 ops", SiteKind::Entry, &many),
        ];
        for (name, kind, ops) in measured {
            let started = Instant::now();
            let (cost, lost) = ours(kind, ops, g_address);
            let rate = HITS as f64 / started.elapsed().as_secs_f64() / 1e3;
            line += &format!(", {name} {cost:.0} ns ({rate:.0} k/s, lost {:.1}%)", lost * 100.0);
        }
        println!("{line}");
    }
}
