//! The backend on our own process. Needs root.

mod support;

use capture::{Capture as _, Error, Request, Scope};
use capture_uprobe::{
    KernelVersion, Options, UprobeCapture, calibrate, foreign_uprobes, probe_features,
};
use std::time::{Duration, Instant};
use support::{
    FakeG, count, counted_address, drain, drain_hits, exclusive, file_offset, function, install,
    plan, run, sled_address, unprobeable_address,
};
use wire::{GSource, Record, RecordFlags, RecordKind};

const DEFAULT: Options = Options {
    no_bpf: false,
    perf_link: false,
    bounded_loop: false,
    without_callers: false,
    read_g_always: false,
};

const ALL: [Options; 2] = [DEFAULT, Options { perf_link: true, ..DEFAULT }];

#[test]
fn a_hit_tells_goroutine_depth_and_caller() {
    let _sled = exclusive();
    for options in ALL {
        let g = FakeG { stack_lo: 0, stack_hi: 0x7fff_ffff_f000, goid: 77, m: 0 };
        let mut registers = [0; 16];
        registers[14] = &raw const g as u64;
        let plan = plan(&[sled_address(3), sled_address(9)], &[]);
        let mut capture = install(&plan, 1 << 20, options);
        run(&registers);
        let records = drain_hits(&mut capture);
        let records: Vec<_> = records.iter().map(|r| Record::parse(r).unwrap()).collect();
        assert_eq!(records.len(), 2);
        for (site, record) in records.iter().enumerate() {
            assert_eq!(record.site, site as u32);
            assert_eq!(record.kind, RecordKind::Hit);
            assert_eq!((record.goid, record.stack, record.flags), (77, 0, RecordFlags(0)));
            assert_eq!(record.pid, std::process::id());
            let return_slot = 0x7fff_ffff_f000 - record.depth;
            let here = &raw const registers as u64;
            assert!(return_slot.abs_diff(here) < 4096, "0x{return_slot:x} is not our stack");
            assert!(record.caller.abs_diff(run as *const () as u64) < 1 << 24);
        }
        assert!(records[0].ts_ns < records[1].ts_ns);
        capture.detach().unwrap();
        run(&registers);
        assert!(drain_hits(&mut capture).is_empty());
    }
}

#[test]
fn callers_are_left_out_when_nobody_asks() {
    let _sled = exclusive();
    for perf_link in [false, true] {
        let g = FakeG { stack_lo: 0, stack_hi: 1 << 47, goid: 77, m: 0 };
        let mut registers = [0; 16];
        registers[14] = &raw const g as u64;
        let options = Options { perf_link, without_callers: true, ..Options::default() };
        let mut capture = install(&plan(&[sled_address(0)], &[]), 4096, options);
        run(&registers);
        let records = drain_hits(&mut capture);
        let record = Record::parse(&records[0]).unwrap();
        assert_eq!((record.goid, record.caller, record.flags), (77, 0, RecordFlags(0)));
        assert_ne!(record.depth, 0);
    }
}

/// goid too far from stack.hi for one read, and at a distance no structure would have.
#[test]
fn any_distance_between_the_fields_of_g_will_do() {
    let _sled = exclusive();
    let mut g = [0u64; 64];
    (g[1], g[2], g[32], g[33], g[60]) = (1 << 47, 2, 32, 33, 60);
    let mut registers = [0; 16];
    registers[14] = g.as_ptr() as u64;
    for goid in [2u64, 32, 33, 60] {
        let mut plan = plan(&[sled_address(0)], &[]);
        plan.runtime.g_goid = goid as u32 * 8;
        let mut capture = install(&plan, 4096, Options::default());
        run(&registers);
        let records = drain_hits(&mut capture);
        let record = Record::parse(&records[0]).unwrap();
        assert_eq!((record.goid, record.flags), (goid, RecordFlags(0)));
        assert!(record.depth < 1 << 47 && record.depth > 0);
    }
    assert_eq!(g[0], 0);
}

#[test]
fn a_process_is_announced_with_the_place_of_its_image() {
    let _sled = exclusive();
    for options in ALL {
        let mut capture = install(&plan(&[sled_address(4), sled_address(7)], &[]), 4096, options);
        run(&[0; 16]);
        run(&[0; 16]);
        let seen: Vec<_> = drain(&mut capture)
            .iter()
            .map(|bytes| Record::parse(bytes).unwrap())
            .map(|r| (r.kind, r.site, if r.kind == RecordKind::Process { r.caller } else { 0 }))
            .collect();
        let hit = |site| (RecordKind::Hit, site, 0);
        let announced = (RecordKind::Process, 0, sled_address(4));
        assert_eq!(seen, [announced, hit(0), hit(1), hit(0), hit(1)]);
    }
}

#[test]
fn a_system_stack_is_named_with_the_goroutine_it_works_for() {
    let _sled = exclusive();
    let curg = FakeG { stack_lo: 0, stack_hi: 1, goid: 5, m: 0 };
    let mut m = [0, &raw const curg as u64];
    let g0 = FakeG { stack_lo: 0, stack_hi: 1 << 40, goid: 0, m: &raw const m as u64 };
    m[0] = &raw const g0 as u64;
    let mut registers = [0; 16];
    let mut capture = install(&plan(&[sled_address(0)], &[]), 1 << 20, Options::default());
    registers[14] = &raw const g0 as u64;
    run(&registers);
    registers[14] = 8;
    run(&registers);
    let records = drain_hits(&mut capture);
    let seen: Vec<_> = records
        .iter()
        .map(|r| Record::parse(r).unwrap())
        .map(|r| (r.goid, r.stack, r.flags.0))
        .collect();
    let g0 = &raw const g0 as u64;
    assert_eq!(seen, [(5, g0, RecordFlags::SYSTEM_STACK), (0, 0, RecordFlags::NO_G)]);
    assert_eq!(m[0], g0);
}

#[test]
fn nothing_is_lost_uncounted_in_a_ring_that_is_too_small() {
    let _sled = exclusive();
    const HITS: u64 = 20_000;
    for options in ALL {
        let mut capture = install(&plan(&[counted_address()], &[]), 4096, options);
        let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(|| count(HITS, 0))).collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let records = drain(&mut capture);
        let counters = capture.counters().unwrap();
        assert_eq!(records.len() as u64, counters.produced);
        let kinds = records.iter().map(|bytes| Record::parse(bytes).unwrap().kind);
        let announced = kinds.filter(|&kind| kind == RecordKind::Process).count() as u64;
        assert!((1..=2).contains(&announced), "{announced}");
        assert_eq!(counters.produced + counters.lost, 2 * HITS + announced);
        assert!(counters.lost > 0, "the ring was large enough");
    }
}

fn attach_and_detach(sites: usize) {
    let addresses: Vec<_> = (0..sites).map(sled_address).collect();
    let plan = plan(&addresses, &[]);
    let mut before = vec![0; sites];
    std::os::unix::fs::FileExt::read_exact_at(
        &std::fs::File::open("/proc/self/exe").unwrap(),
        &mut before,
        file_offset(addresses[0]).0,
    )
    .unwrap();
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    let text = || {
        let mut bytes = vec![0; sites];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, addresses[0]).unwrap();
        bytes
    };
    let mut times = Vec::new();
    for _ in 0..10 {
        let start = Instant::now();
        let mut capture = install(&plan, 4 << 20, Options::default());
        let attached = start.elapsed();
        assert_eq!(text(), vec![0xcc; sites]);
        let start = Instant::now();
        capture.detach().unwrap();
        let detached = start.elapsed();
        assert_eq!(text(), before);
        times.push((attached, detached));
    }
    let worst = times.iter().map(|(a, d)| *a + *d).max().unwrap();
    assert!(worst < Duration::from_secs(5), "{times:?}");
}

#[test]
fn thousands_of_sites_come_and_go_and_leave_the_text_as_it_was() {
    let _sled = exclusive();
    attach_and_detach(3_000);
    attach_and_detach(10_000);
}

#[test]
fn without_bpf_the_refusal_is_typed() {
    let request = Request {
        plan: &plan(&[sled_address(0)], &[]),
        path: "/proc/self/exe".into(),
        scope: Scope::EveryProcess,
        ring_bytes: 4096,
    };
    let options = Options { no_bpf: true, ..Options::default() };
    let error = UprobeCapture::install(&request, options).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[test]
fn doctor_finds_everything_on_a_kernel_that_has_it() {
    let features = probe_features();
    assert!(features.kernel >= KernelVersion::UPROBE_MULTI, "{features:?}");
    for (name, outcome) in features.list() {
        assert_eq!(outcome, &Ok(()), "{name}");
    }
}

#[test]
fn uprobes_in_a_file_are_named() {
    let _sled = exclusive();
    for options in ALL {
        let mut capture = install(&plan(&[sled_address(5)], &[]), 4096, options);
        let found = foreign_uprobes("/proc/self/exe".as_ref());
        let offset = Some(file_offset(sled_address(5)));
        assert!(found.iter().any(|probe| probe.offset == offset), "{found:?}");
        assert!(found[0].owner.contains("`hit`"), "{found:?}");
        capture.detach().unwrap();
        assert_eq!(foreign_uprobes("/proc/self/exe".as_ref()), []);
    }
}

#[test]
fn a_function_with_an_unprobeable_site_is_left_out_whole() {
    let _sled = exclusive();
    for options in ALL {
        let addresses: Vec<_> =
            (0..9).map(sled_address).chain([unprobeable_address(), counted_address()]).collect();
        let mut plan = plan(&addresses, &[]);
        plan.functions.push(function("unprobeable"));
        for site in &mut plan.sites[9..] {
            site.function = 1;
        }
        // A site of the same function among those of the other one.
        plan.sites[7].function = 1;
        let mut capture = install(&plan, 1 << 20, options);
        let skipped: Vec<_> =
            capture.skipped_sites().iter().map(|s| (s.site, s.function)).collect();
        assert_eq!(skipped, [(7, 1), (9, 1), (10, 1)]);
        assert!(capture.skipped_sites()[0].reason.contains("refuses"), "{skipped:?}");
        run(&[0; 16]);
        count(1, 0);
        let sites: Vec<_> =
            drain_hits(&mut capture).iter().map(|r| Record::parse(r).unwrap().site).collect();
        assert_eq!(sites, (0..9).filter(|&site| site != 7).collect::<Vec<u32>>());
    }
}

#[test]
fn g_is_found_in_thread_local_storage() {
    thread_local!(static G: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
    let _sled = exclusive();
    let g = FakeG { stack_lo: 0, stack_hi: 1 << 40, goid: 99, m: 0 };
    G.with(|cell| cell.set(&raw const g as u64));
    let fs_base: u64;
    // SAFETY: the x86-64 ABI keeps the thread pointer itself at fs:0; nothing is written.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) fs_base, options(readonly, nostack)) };
    let mut plan = plan(&[sled_address(0)], &[]);
    plan.runtime.tls_g = G.with(|cell| cell.as_ptr() as u64).wrapping_sub(fs_base) as i64;
    plan.sites[0].g_source = GSource::Tls;
    let mut capture = install(&plan, 4096, Options::default());
    run(&[0; 16]);
    let records = drain_hits(&mut capture);
    let record = Record::parse(&records[0]).unwrap();
    assert_eq!((record.goid, record.flags, records.len()), (99, RecordFlags(0), 1));
}

#[test]
fn the_cost_of_a_hit_is_measured_and_nothing_stays() {
    let _sled = exclusive();
    let cost = calibrate().unwrap_or_else(|e| panic!("{}", support::chain(&e)));
    assert!((50..50_000).contains(&cost.emulated_ns), "{cost:?}");
    assert!(cost.stepped_ns > cost.emulated_ns && cost.stepped_ns < 1_000_000, "{cost:?}");
    assert_eq!(foreign_uprobes("/proc/self/exe".as_ref()), []);
}

/// Whose hit it is stands in g; a g that changed unseen tells whether it was read.
#[test]
fn what_stands_in_g_is_remembered_until_it_may_change() {
    let _sled = exclusive();
    let cpu = rustix::thread::sched_getcpu();
    let mut one = rustix::thread::CpuSet::new();
    one.set(cpu);
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    let goids = |watched: bool, options: Options| {
        let mut g = Box::new([0, 1 << 47, 0, 0u64]);
        let (hit, change) = (counted_address(), sled_address(5));
        let mut plan = plan(&[hit], &[]);
        plan.sites[0].sp_delta = 0;
        if watched {
            plan.g_changes = vec![file_offset(change)];
        }
        let mut capture = install(&plan, 1 << 16, options);
        for (goid, changes) in [(7, false), (8, false), (8, true), (0, true), (9, false)] {
            // The program in the kernel looks at it.
            std::hint::black_box(&mut g)[2] = goid;
            if changes {
                run(&[0; 16]);
            }
            count(1, g.as_ptr() as u64);
        }
        capture.detach().unwrap();
        let records = drain_hits(&mut capture);
        records.iter().map(|bytes| Record::parse(bytes).unwrap().goid).collect::<Vec<_>>()
    };
    let reading = Options { read_g_always: true, ..DEFAULT };
    let remembered = goids(true, DEFAULT);
    let read = [goids(true, reading), goids(false, DEFAULT), goids(true, ALL[1])];
    rustix::thread::sched_setaffinity(None, &all).unwrap();
    assert_eq!(remembered, [7, 7, 8, 0, 9]);
    assert_eq!(read, [[7, 8, 8, 0, 9]; 3]);
}
