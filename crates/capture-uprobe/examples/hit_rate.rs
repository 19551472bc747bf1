//! What a hit costs: an empty BPF program, ours, and ours with a fetch program, all on one
//! instruction that the kernel emulates, in turn for many rounds. Prints medians and shares of
//! the empty program's rate in the same round, with the 95% interval of their median. Needs root.
//!
//! `cargo run --release -p capture-uprobe --example hit_rate [ROUNDS]`
#![allow(clippy::print_stdout)] // It is a program whose result is text.

#[path = "../tests/support/mod.rs"]
mod support;

use capture::Capture as _;
use capture_uprobe::Options;
use std::ffi::CStr;
use std::time::Duration;
use support::{count, counted_address, file_offset, install, plan, sled_address};
use wire::{Op, OpCode, SiteKind};

const HITS: u64 = 150_000;
const ROUNDS: usize = 25;

/// The median, and the ends of its 95% interval: the order statistics that 1.96 standard
/// deviations of a fair coin's count lead to, whatever the distribution.
fn median(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let reach = 0.98 * n.sqrt();
    let low = (n / 2.0 - reach).floor().max(1.0) as usize - 1;
    let high = ((n / 2.0 + reach).ceil() as usize).min(values.len() - 1);
    (values[values.len() / 2], values[low], values[high])
}

fn print(name: &str, empty: &[f64], costs: &[f64]) {
    let (cost, ..) = median(costs.iter().copied());
    let (share, low, high) = median(empty.iter().zip(costs).map(|(e, c)| 100.0 * e / c));
    println!("{name}: {cost:.0} ns, {share:.1}% ({low:.1}-{high:.1})");
}

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
fn ours(kind: SiteKind, ops: &[Op], g: u64, options: Options) -> (f64, f64) {
    let mut plan = plan(&[counted_address()], &[ops.to_vec()]);
    plan.sites[0].kind = kind;
    // Where Go 1.23 and newer have it: the distance from stack.hi is read at every hit.
    plan.runtime.g_goid = 152;
    // Never passed: each hit after the first knows whose it is.
    plan.g_changes = vec![file_offset(sled_address(0))];
    let mut capture = install(&plan, 8 << 20, options);
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
    // And the one that announces the process.
    assert_eq!(counters.produced + counters.lost, HITS + 1);
    (cost, counters.lost as f64 / HITS as f64)
}

fn main() {
    let text = *b"sixteen bytes...";
    let mut g = [0u64; 64];
    (g[1], g[3], g[19]) = (1 << 40, text.as_ptr() as u64, 7);
    let g_address = g.as_ptr() as u64;
    let mut four = vec![Op::new(OpCode::CurrentG, 0, 0), Op::new(OpCode::Add, 0, 24)];
    four.extend([Op::new(OpCode::Deref, 0, 0), Op::new(OpCode::EmitBytes, 0, 16)]);
    let many: Vec<_> = four.iter().copied().cycle().take(26).collect();
    let callers = Options::default();
    let reading = Options { read_g_always: true, ..callers };
    let stat = Options { without_callers: true, ..callers };
    let ours_in_turn = [
        ("entry", SiteKind::Entry, &[][..], callers),
        ("entry, g read", SiteKind::Entry, &[], reading),
        ("entry, no caller", SiteKind::Entry, &[], stat),
        ("return", SiteKind::Return, &[], callers),
        ("4 ops", SiteKind::Entry, &four, callers),
        ("26 ops", SiteKind::Entry, &many, callers),
    ];
    let rounds = std::env::args().nth(1).map_or(ROUNDS, |n| n.parse().expect("a number"));
    let mut empty = Vec::new();
    let mut costs = ours_in_turn.map(|_| Vec::new());
    let mut worst_loss = 0f64;
    for _ in 0..rounds {
        {
            let _empty = EmptyProgram::attach(counted_address());
            empty.push(measure(g_address));
        }
        for ((_, kind, ops, options), costs) in ours_in_turn.iter().zip(&mut costs) {
            let (cost, lost) = ours(*kind, ops, g_address, *options);
            costs.push(cost);
            worst_loss = worst_loss.max(lost);
        }
    }
    println!(
        "empty program: {:.0} ns; share of its rate over {rounds} rounds:",
        median(empty.iter().copied()).0
    );
    for ((name, ..), costs) in ours_in_turn.iter().zip(&costs) {
        print(name, &empty, costs);
    }
    let of = |name| ours_in_turn.iter().position(|(other, ..)| *other == name).expect("a name");
    let pairs = costs[of("entry")].iter().zip(&costs[of("return")]);
    let calls: Vec<_> = pairs.map(|(entry, exit)| (entry + exit) / 2.0).collect();
    print("entry and return, per hit", &empty, &calls);
    println!("lost at the most: {:.1}%", 100.0 * worst_loss);
}
