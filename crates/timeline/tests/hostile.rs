//! Whatever the records hold: no panic, bounded memory, exact books, no bridge over a loss.

#[allow(dead_code, reason = "shared with the output's tests")]
mod support;

use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use support::Story;
use timeline::{End, Event, Filter, FilterOptions, Limits, Options, Stats, Timeline};
use wire::{Record, RecordFlags, RecordKind};

fn plan() -> Arc<probe::Plan> {
    let mut story = Story::of(&["main.a", "main.b", "main.c"]);
    story.trace_witness("runtime.gopanic").trace_witness("runtime.Goexit");
    Arc::new(story.plan)
}

/// Few distinct keys, so that records meet; now and then anything at all.
fn number(few: u64) -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..few, 1 => any::<u64>()]
}

#[derive(Clone, Debug)]
struct Raw {
    words: [u64; 5],
    site: u32,
    pid: u32,
    lost: u32,
    flags: u16,
    kind: RecordKind,
    payload: Vec<u8>,
}

fn raw() -> impl Strategy<Value = Raw> {
    let words = [number(1000), number(4), number(2), number(6), number(9000)];
    let kind = prop_oneof![
        50 => Just(RecordKind::Hit), 1 => Just(RecordKind::Exec), 1 => Just(RecordKind::ProcessExit)
    ];
    let payload = prop_oneof![
        any::<[u8; 24]>().prop_map(Vec::from),
        (number(4), number(8), number(8)).prop_map(|(goid, hi, sp)| {
            [support::word(goid), support::word(hi), support::word(sp)].concat()
        }),
    ];
    (words, 0u32..26, 1u32..3, 0u32..5, 0u16..8, kind, payload).prop_map(
        |(words, site, pid, lost, flags, kind, payload)| {
            let flags = if words[2] == 0 { flags & !RecordFlags::SYSTEM_STACK } else { flags };
            Raw { words, site, pid, lost, flags, kind, payload }
        },
    )
}

fn record(raw: &Raw) -> Record<'_> {
    Record {
        ts_ns: raw.words[0],
        goid: raw.words[1],
        stack: raw.words[2],
        depth: raw.words[3],
        caller: raw.words[4],
        site: raw.site,
        pid: raw.pid,
        tid: 1,
        lost: raw.lost,
        cpu: 0,
        flags: RecordFlags(raw.flags),
        kind: raw.kind,
        payload: &raw.payload,
    }
}

/// Every Enter has one Leave, parents were open, times and depths make sense.
fn check_books(events: &[Event]) {
    let mut open = HashMap::new();
    let mut left = HashSet::new();
    for event in events {
        match event {
            Event::Enter(call) => {
                let above = call.parent.map(|id| open.get(&id).copied().expect("an open parent"));
                assert!(above.is_none_or(|depth| depth < call.depth), "{call:?}");
                assert!(open.insert(call.id, call.depth).is_none());
            }
            Event::Leave(call) => {
                assert!(open.remove(&call.id).is_some(), "left without an entry: {call:?}");
                assert!(left.insert(call.id) && call.end_ns >= call.start_ns);
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "never left: {open:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn hostile_records_keep_the_books(
        records in prop::collection::vec(raw(), 0..300),
        frames in 2usize..6,
        stacks in 1usize..4,
        drain_at in 0usize..400,
    ) {
        let limits = Limits { frames, stacks, bytes: 4096 };
        let mut timeline = Timeline::new(plan(), Options { limits, enters: true, panics: true });
        let mut events = Vec::new();
        for (i, raw) in records.iter().enumerate() {
            if i == drain_at {
                timeline.drain_from(0);
            }
            timeline.push(&record(raw), &mut events);
            let counters = timeline.counters();
            prop_assert_eq!(counters.entries, counters.calls + counters.open + counters.drained);
            prop_assert!(counters.open as usize <= frames * (stacks + 1), "{:?}", counters);
        }
        timeline.finish(1000, &mut events);
        let counters = timeline.counters();
        prop_assert!(timeline.is_idle());
        prop_assert_eq!(counters.entries, counters.calls + counters.drained);
        check_books(&events);
    }

    #[test]
    fn filters_and_statistics_keep_the_books(
        records in prop::collection::vec(raw(), 0..200),
        depth in prop::option::of(1u32..3),
        min_ns in prop::option::of(0u64..500),
        limit in prop::option::of(1u64..4),
        drill: bool,
    ) {
        let mut timeline = Timeline::new(plan(), Options::default());
        let drilldown = drill.then(|| HashSet::from([5]));
        let mut filter = Filter::new(FilterOptions { drilldown, depth, min_ns, limit });
        let (mut events, mut shown, mut stats) = (Vec::new(), Vec::new(), Stats::default());
        for raw in &records {
            timeline.push(&record(raw), &mut events);
        }
        timeline.finish(1000, &mut events);
        for (i, event) in events.into_iter().enumerate() {
            stats.push(&event);
            filter.push(event, &mut shown);
            filter.tick(i as u64, &mut shown);
        }
        check_books(&shown);
        let is_root = |event: &&Event| matches!(event, Event::Leave(call) if call.depth == 0);
        let roots = shown.iter().filter(is_root).count() as u64;
        prop_assert!(limit.is_none_or(|limit| roots <= limit), "{} {:?}", roots, limit);
        let calls: u64 = stats.table().iter().map(|stat| stat.calls).sum();
        prop_assert_eq!(calls, timeline.counters().calls);
        prop_assert!(stats.table().iter().all(|stat| stat.self_ns <= stat.total_ns));
        // Without events the same comes out.
        let (mut other, mut tally) = (Timeline::new(plan(), Options::default()), Stats::default());
        records.iter().for_each(|raw| other.tally(&record(raw), &mut tally));
        let mut open = Vec::new();
        other.finish(1000, &mut open);
        open.iter().for_each(|event| tally.push(event));
        prop_assert_eq!(tally.table(), stats.table());
        prop_assert_eq!(other.counters(), timeline.counters());
    }
}

/// A step of a well-behaved goroutine: call one of three functions, or return.
fn step() -> impl Strategy<Value = (u64, Option<u32>)> {
    (1u64..4, prop::option::weighted(0.55, 5u32..8))
}

/// True calls of one run: (goid, function, start, end).
type Truth = HashSet<(u64, u32, u64, u64)>;

/// Hits of well-behaved goroutines and the calls they make.
fn run(steps: &[(u64, Option<u32>)]) -> (Vec<Raw>, Truth) {
    let mut stacks: HashMap<u64, Vec<(u32, u64)>> = HashMap::new();
    let (mut hits, mut truth) = (Vec::new(), HashSet::new());
    for (now, (goid, call)) in (1u64..).zip(steps) {
        let stack = stacks.entry(*goid).or_default();
        let (site, level) = match call {
            Some(function) => {
                stack.push((*function, now));
                (function * 3, stack.len())
            }
            None => {
                let Some((function, start)) = stack.pop() else { continue };
                truth.insert((*goid, function, start, now));
                (function * 3 + 1, stack.len() + 1)
            }
        };
        hits.push(Raw {
            words: [now, *goid, 0, 64 * level as u64, 0],
            site,
            pid: 1,
            lost: 0,
            flags: 0,
            kind: RecordKind::Hit,
            payload: Vec::new(),
        });
    }
    (hits, truth)
}

fn exact_calls(hits: &[Raw]) -> (Truth, timeline::Counters) {
    let mut timeline = Timeline::new(plan(), Options::default());
    let mut events = Vec::new();
    for raw in hits {
        timeline.push(&record(raw), &mut events);
    }
    timeline.finish(u64::MAX / 2, &mut events);
    check_books(&events);
    let exact = events.iter().filter_map(|event| match event {
        Event::Leave(call) if call.end_exact => {
            assert_eq!(call.end, End::Return);
            Some((call.goid, call.function, call.start_ns, call.end_ns))
        }
        _ => None,
    });
    (exact.collect(), timeline.counters())
}

proptest! {
    #[test]
    fn without_losses_every_call_is_exact(steps in prop::collection::vec(step(), 0..300)) {
        let (hits, truth) = run(&steps);
        let (exact, counters) = exact_calls(&hits);
        prop_assert_eq!(exact, truth);
        prop_assert_eq!(counters.orphan_exits + counters.lost_ends, 0);
    }

    #[test]
    fn with_losses_no_exact_call_is_untrue(
        steps in prop::collection::vec(step(), 0..300),
        dropped in prop::collection::vec(prop::bool::weighted(0.1), 300),
    ) {
        let (hits, truth) = run(&steps);
        let mut lost = 0;
        let mut delivered = Vec::new();
        for (mut hit, dropped) in hits.into_iter().zip(dropped) {
            if dropped {
                lost += 1;
            } else {
                hit.lost = lost;
                delivered.push(hit);
            }
        }
        let (exact, counters) = exact_calls(&delivered);
        prop_assert!(exact.is_subset(&truth), "{:?}", exact.difference(&truth));
        let last = delivered.last().map_or(0, |hit| u64::from(hit.lost));
        prop_assert_eq!(counters.lost, last);
    }
}

/// Many goroutines that come and go leave nothing behind.
#[test]
fn short_goroutines_leave_nothing_behind() {
    let mut timeline = Timeline::new(plan(), Options::default());
    let mut events = Vec::new();
    for goid in 1..=50_000u64 {
        let hit = |site| Raw {
            words: [goid, goid, 0, 64, 0],
            site,
            pid: 1,
            lost: 0,
            flags: 0,
            kind: RecordKind::Hit,
            payload: Vec::new(),
        };
        // Half of them die without returning; their death is seen.
        timeline.push(&record(&hit(15)), &mut events);
        if goid % 2 == 0 {
            timeline.push(&record(&hit(16)), &mut events);
        } else {
            let mut death = hit(12);
            death.words[2] = 0x1000;
            death.payload = support::word(goid);
            timeline.push(&record(&death), &mut events);
        }
        assert!(timeline.is_idle() && events.len() == 2, "goroutine {goid}");
        events.clear();
        assert!(timeline.remembered() < 10_000, "goroutine {goid}");
    }
    assert_eq!(timeline.counters().calls, 50_000);
}
