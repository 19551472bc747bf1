//! Records of several CPUs: in order, and each loss where it was. Needs root.

mod support;

use capture::Capture as _;
use capture_uprobe::{Options, UprobeCapture};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{count, counted_address, drain, exclusive, install, plan};
use wire::{Record, RecordKind};

/// The CPUs we may run on.
fn cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect()
}

/// Moves this thread.
fn run_on(cpu: usize) {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).unwrap();
}

/// A goroutine that notes its step in its g and hits, each time on another CPU if there is one.
fn hop(steps: u64, cpus: &[usize]) {
    let mut g = Box::new([0, 1 << 47, 0, 0u64]);
    for (step, &cpu) in (1..=steps).zip(cpus.iter().cycle()) {
        run_on(cpu);
        // The program in the kernel looks at it.
        std::hint::black_box(&mut g)[2] = step;
        count(1, g.as_ptr() as u64);
    }
}

/// Time, CPU and goroutine of what is there.
fn collect(
    capture: &mut UprobeCapture,
    timeout: Duration,
    seen: &mut Vec<(u64, u16, u64)>,
) -> usize {
    let mut sink = |bytes: &[u8]| {
        let record = Record::parse(bytes).unwrap();
        seen.push((record.ts_ns, record.cpu, record.goid));
    };
    capture.poll(timeout, &mut sink).unwrap()
}

/// With one ring for all CPUs, and with several.
#[test]
fn the_hits_of_a_goroutine_that_changes_cpus_stay_in_order() {
    const STEPS: u64 = 1_000;
    let _sled = exclusive();
    let cpus = cpus();
    for ring_bytes in [2 << 20, 32 << 20] {
        let mut capture = install(&plan(&[counted_address()], &[]), ring_bytes, Options::default());
        let mut seen = Vec::new();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let hopping = scope.spawn(|| hop(STEPS, &cpus));
            // Others, so that the rings fill while they are read.
            for &cpu in cpus.iter().take(2) {
                let over = &over;
                scope.spawn(move || {
                    run_on(cpu);
                    while !over.load(Ordering::Relaxed) {
                        count(100, 0);
                        std::thread::sleep(Duration::from_micros(200));
                    }
                });
            }
            while !hopping.is_finished() {
                collect(&mut capture, Duration::from_millis(1), &mut seen);
            }
            over.store(true, Ordering::Relaxed);
        });
        while collect(&mut capture, Duration::ZERO, &mut seen) > 0 {}
        let counters = capture.counters().unwrap();
        assert_eq!((counters.produced, counters.lost), (seen.len() as u64, 0));
        assert!(seen.is_sorted_by_key(|&(ts_ns, ..)| ts_ns));
        let hops: Vec<_> = seen.iter().filter(|&&(.., goid)| goid != 0).collect();
        assert!(hops.iter().map(|&&(.., goid)| goid).eq(1..=STEPS));
        let on: BTreeSet<_> = hops.iter().map(|&&(_, cpu, _)| usize::from(cpu)).collect();
        assert!(on.into_iter().eq(cpus.iter().copied()));
    }
}

/// Each CPU's records count its own losses, and those after a gap tell of it.
#[test]
fn each_cpu_counts_what_it_lost() {
    const HITS: u64 = 80_000;
    let _sled = exclusive();
    let cpus = cpus();
    for ring_bytes in [1 << 20, 4 << 20] {
        let mut capture = install(&plan(&[counted_address()], &[]), ring_bytes, Options::default());
        let hit_everywhere = |hits| {
            std::thread::scope(|scope| {
                for &cpu in cpus.iter().take(2) {
                    scope.spawn(move || {
                        run_on(cpu);
                        count(hits, 0);
                    });
                }
            });
        };
        hit_everywhere(HITS);
        let mut records = drain(&mut capture);
        hit_everywhere(1);
        records.extend(drain(&mut capture));
        // Hits and the last count of each CPU.
        let mut tallies: BTreeMap<u16, (u64, u32)> = BTreeMap::new();
        for bytes in &records {
            let record = Record::parse(bytes).unwrap();
            let (hits, lost) = tallies.entry(record.cpu).or_default();
            *hits += u64::from(record.kind == RecordKind::Hit);
            assert!(record.lost >= *lost);
            *lost = record.lost;
        }
        assert_eq!(tallies.len(), cpus.len().min(2));
        for &(hits, lost) in tallies.values() {
            assert!(lost > 0, "the ring was large enough");
            assert_eq!(hits + u64::from(lost), HITS + 1, "{tallies:?}");
        }
        let lost: u64 = tallies.values().map(|&(_, lost)| u64::from(lost)).sum();
        assert_eq!(capture.counters().unwrap().lost, lost);
    }
}
