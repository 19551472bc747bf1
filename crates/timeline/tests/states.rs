//! Goroutine states: chains from generated lives, in order, out of order, with losses.

#[path = "support_states/lives.rs"]
mod generated;
mod support_states;

use generated::{Life, Tape, lives};
use proptest::prelude::*;
use support_states::{
    change, change_at, creation, found, on_thread, ordered, reasons, record, with_lost,
};
use timeline::states::{Change, Event, Lifetime, State, StateCounters, States, Who};
use wire::{Record, RecordKind};

/// All that comes of records, and the counts before the end.
fn follow(records: &[Vec<u8>], end_ns: u64) -> (Vec<Event>, StateCounters, States) {
    let mut states = States::new(support_states::plan());
    let mut events = Vec::new();
    for bytes in records {
        states.push(&Record::parse(bytes).unwrap(), &mut events);
    }
    states.tick(u64::MAX, &mut events);
    let counters = states.counters();
    states.finish(end_ns, &mut events);
    (events, counters, states)
}

fn changes(events: &[Event]) -> Vec<&Change> {
    fn change(event: &Event) -> Option<&Change> {
        match event {
            Event::Change(change) => Some(change),
            _ => None,
        }
    }
    events.iter().filter_map(change).collect()
}

fn lifetimes(events: &[Event]) -> Vec<&Lifetime> {
    fn lifetime(event: &Event) -> Option<&Lifetime> {
        match event {
            Event::Lifetime(lifetime) => Some(lifetime),
            _ => None,
        }
    }
    events.iter().filter_map(lifetime).collect()
}

/// As `from>to reason @time by`.
fn brief(change: &Change) -> String {
    let (from, to) = (change.from.name(), change.to.name());
    let by = change.by.map_or(String::new(), |by| format!(" by {by}"));
    let reason = change.reason.as_deref().map_or(String::new(), |reason| format!(" {reason}"));
    format!("g{} {from}>{to}{reason} @{}{by}", change.who.goid, change.ts_ns)
}

/// Each change begins where the one before of its goroutine ended, in state and time.
fn assert_unbroken(events: &[Event]) {
    let mut last: std::collections::BTreeMap<Who, (State, u64)> = Default::default();
    for change in changes(events) {
        if let Some((state, ts_ns)) = last.insert(change.who, (change.to, change.ts_ns)) {
            assert_eq!((change.from, change.since_ns), (state, ts_ns), "{}", brief(change));
        }
    }
}

#[test]
fn a_life_is_told_with_who_woke_it() {
    let tape = vec![
        creation(10, 7, 1, 5),
        change(12, 7, 1, 2, 0, 0),
        change(20, 7, 2, 4, 19, 7),
        change(50, 7, 4, 1, 19, 9),
        change(60, 7, 1, 2, 19, 0),
        change(65, 7, 2, 6, 19, 7),
    ];
    let (events, counters, _) = follow(&tape, 100);
    let told: Vec<String> = changes(&events).into_iter().map(brief).collect();
    let expected = [
        "g7 dead>runnable @10 by 5",
        "g7 runnable>running @12",
        "g7 running>waiting chan receive @20",
        "g7 waiting>runnable chan receive @50 by 9",
        "g7 runnable>running @60",
        "g7 running>dead @65",
    ];
    assert_eq!(told, expected);
    let [life] = lifetimes(&events)[..] else { panic!("{events:?}") };
    assert_eq!(
        (life.born_ns, life.ended_ns, life.from_ns, life.to_ns),
        (Some(10), Some(65), 10, 65)
    );
    assert_eq!((life.times.running_ns, life.times.runnable_ns), (13, 12));
    assert_eq!(life.times.waiting, [(19, 30)]);
    assert_eq!((life.origin.parent, life.origin.gopc, life.origin.startpc), (5, 0x100, 0x200));
    assert_eq!((counters.made, counters.ended, counters.live, counters.breaks), (1, 1, 0, 0));
}

#[test]
fn what_makes_a_goroutine_is_told_once_whatever_its_id_was_then() {
    // Before its creation is recorded a goroutine has the id of the one before (Go 1.23).
    let tape = vec![
        creation(1, 3, 1, 1),
        change(2, 3, 1, 2, 0, 0),
        change(3, 3, 2, 6, 0, 3),
        change(4, 0, 0, 6, 0, 1),
        change(5, 3, 6, 1, 0, 1),
        creation(6, 4, 1, 1),
        change(7, 4, 1, 2, 0, 0),
    ];
    let (events, counters, _) = follow(&tape, 9);
    assert_eq!((counters.made, counters.ended, counters.live, counters.making), (2, 1, 1, 2));
    assert_eq!((counters.breaks, counters.no_goroutine), (0, 0));
    assert_unbroken(&events);
}

#[test]
fn who_only_seems_to_wait_runs() {
    let stopping = reasons().iter().position(|name| *name == "stopping the world").unwrap() as u8;
    let coroutine = reasons().iter().position(|name| *name == "coroutine").unwrap() as u8;
    let tape = vec![
        creation(0, 2, 1, 1),
        change(10, 2, 1, 2, 0, 0),
        change(20, 2, 2, 4, stopping, 2),
        change(30, 2, 4, 2, stopping, 2),
        change(40, 2, 2, 4, coroutine, 2),
        change(50, 2, 4, 2, coroutine, 3),
        // Go 1.19 sets the reason behind the state.
        change(60, 2, 2, 4, 19, 2),
        change(70, 2, 4, 2, 19, 2),
    ];
    let (events, counters, _) = follow(&tape, 100);
    let [life] = lifetimes(&events)[..] else { panic!("{events:?}") };
    assert_eq!(life.times.waiting, [(coroutine, 10)]);
    assert_eq!((life.times.running_ns, life.times.runnable_ns), (80, 10));
    assert_eq!((counters.pseudo, counters.breaks), (2, 0));
    assert_unbroken(&events);
}

/// Before Go 1.20 the wait reason is that of another wait, and where the goroutine seems to be tells.
#[test]
fn who_works_on_the_system_stack_runs_whatever_the_reason() {
    let place = u64::from(support_states::SYSTEM_STACK);
    let on_its_own = |mut bytes: Vec<u8>| {
        bytes[support_states::FLAGS] = 0;
        bytes
    };
    let tape = [
        creation(0, 2, 1, 1),
        change_at(0x7000, 10, 2, [1, 2], 0),
        // Loaded elsewhere, it is the same place in another page.
        change_at(0x55_0000_4000 + place, 20, 2, [2, 4], 19),
        change_at(0x55_0000_4000 + place, 30, 2, [4, 2], 19),
        change_at(0x7000, 40, 2, [2, 4], 19),
        change_at(0x7000, 60, 2, [4, 1], 19),
        change_at(0x7000, 61, 2, [1, 2], 19),
        // On its own stack, which who blocks has left.
        on_its_own(change_at(0x7000, 70, 2, [2, 4], 19)),
        on_its_own(change_at(0x7000, 80, 2, [4, 2], 19)),
    ];
    let mut states = States::new(support_states::plan_with(Some(support_states::SYSTEM_STACK)));
    let mut events = Vec::new();
    for bytes in &tape {
        states.push(&Record::parse(bytes).unwrap(), &mut events);
    }
    states.finish(100, &mut events);
    let told: Vec<String> = changes(&events).into_iter().map(brief).collect();
    let expected = [
        "g2 dead>runnable @0 by 1",
        "g2 runnable>running @10",
        "g2 running>waiting chan receive @40",
        "g2 waiting>runnable chan receive @60",
        "g2 runnable>running @61",
    ];
    assert_eq!(told, expected);
    assert_eq!((states.counters().pseudo, states.counters().breaks), (4, 0));
}

#[test]
fn goroutines_that_were_there_are_found_and_corrected() {
    let tape = vec![
        found(5, 0, 0),
        change(8, 11, 2, 4, 19, 11),
        change(9, 13, 2, 6, 0, 13),
        found(5, 10, 4),
        found(5, 11, 2),
        found(5, 12, 3),
        found(5, 13, 2),
        found(5, 0, 0),
        // It had moved on before its record came.
        change(20, 12, 2, 1, 0, 12),
    ];
    let (events, counters, _) = follow(&tape, 30);
    assert_eq!((counters.found, counters.ended, counters.live), (2, 1, 3));
    assert_eq!((counters.breaks, counters.mended, counters.vanished), (0, 0, 0));
    let of = |goid| lifetimes(&events).into_iter().find(|l| l.who.goid == goid).unwrap();
    assert_eq!((of(10).state, of(10).times.waiting.clone()), (State::WAITING, vec![(19, 25)]));
    assert_eq!(of(11).origin.gopc, 0x300);
    assert_eq!((of(12).times.running_ns, of(12).times.runnable_ns), (15, 10));
    assert_eq!(of(13).ended_ns, Some(9));
}

#[test]
fn behind_a_loss_chains_go_on_and_what_is_gone_is_said() {
    let mut tape = vec![
        creation(1, 1, 1, 0),
        creation(2, 2, 1, 1),
        creation(3, 3, 1, 1),
        change(4, 1, 1, 2, 0, 0),
    ];
    // Lost: 2 ran and ended, 1 waits.
    tape.push(with_lost(change(50, 1, 4, 1, 19, 0), 7));
    tape.extend([found(60, 0, 0), found(60, 1, 1), found(60, 3, 4), found(60, 0, 0)]);
    let (events, counters, _) = follow(&tape, 100);
    assert_eq!((counters.gaps, counters.lost, counters.breaks), (1, 7, 0));
    assert_eq!((counters.mended, counters.vanished, counters.live), (2, 1, 2));
    assert!(events.contains(&Event::Gap { cpu: 0, from_ns: 4, to_ns: 50, lost: 7 }));
    for life in lifetimes(&events) {
        assert_eq!(life.times.total_ns(), life.to_ns - life.from_ns, "{life:?}");
    }
}

/// The ring of a thread that rests then tells of no loss.
#[test]
fn a_loss_that_only_a_reading_tells_of_leaves_nothing_as_it_was() {
    let mark = |lost: u64| record(RecordKind::Goroutine, 0, 60, 0, &[0, 0, lost, 0, 0], 0);
    let end = || found(60, 0, 0);
    let begin = || [creation(1, 1, 1, 0), change(2, 1, 1, 2, 0, 0), creation(3, 2, 1, 1)];
    // 1 waits by now, 2 is gone.
    let of = |lost| {
        let tape: Vec<_> =
            begin().into_iter().chain([mark(lost), found(60, 1, 4), end()]).collect();
        follow(&tape, 100)
    };
    let (events, counters, _) = of(5);
    assert_eq!((counters.gaps, counters.mended, counters.vanished, counters.live), (0, 1, 1, 1));
    assert_eq!(lifetimes(&events).last().unwrap().state, State::WAITING);
    let (_, counters, _) = of(0);
    assert_eq!((counters.gaps, counters.mended, counters.vanished, counters.live), (0, 0, 0, 2));
}

/// What a goroutine was in when records were lost, and what it is in later, may look the same.
#[test]
fn a_reading_after_a_loss_tells_a_wait_from_what_seems_to_be_one() {
    let stopping = reasons().iter().position(|name| *name == "stopping the world").unwrap() as u8;
    let begin = [creation(1, 1, 1, 0), change(2, 1, 1, 2, 0, 0), creation(3, 2, 1, 1)];
    let mark = |ts_ns: u64| found(ts_ns, 0, 0);
    let at_end = |before: u8, after: u64| {
        let waits = change(10, 1, 2, 4, before, 0);
        let lost = with_lost(change(20, 2, 1, 2, 0, 0), 5);
        let read = record(RecordKind::Goroutine, 0, 60, 1, &[4, after, 0x300, 0x400, 0], 0);
        let tape = [&begin[..], &[waits, lost, mark(60), read, mark(60)]].concat();
        let (events, counters, _) = follow(&tape, 100);
        let life = lifetimes(&events).into_iter().find(|life| life.who.goid == 1).unwrap();
        assert_eq!(life.times.total_ns(), life.to_ns - life.from_ns, "{life:?}");
        (life.state, life.reason.as_deref().map(str::to_owned), counters.mended)
    };
    let waits = |reason: &str| (State::WAITING, Some(reason.to_owned()), 1);
    assert_eq!(at_end(stopping, 19), waits("chan receive"));
    assert_eq!(at_end(18, 19), waits("chan receive"));
    assert_eq!(at_end(19, stopping.into()), (State::RUNNING, None, 1));
    assert_eq!(at_end(19, 19), (State::WAITING, Some("chan receive".to_owned()), 0));
}

#[test]
fn without_its_predecessor_a_change_is_a_break_that_is_counted() {
    let tape = vec![
        creation(1, 1, 1, 0),
        change(2, 1, 1, 2, 0, 0),
        change(3, 1, 4, 1, 19, 0),
        change(900_000_000, 1, 1, 2, 19, 0),
    ];
    let (events, counters, _) = follow(&tape, 1_000_000_000);
    assert_eq!((counters.breaks, counters.gaps), (1, 0));
    let [life] = lifetimes(&events)[..] else { panic!("{events:?}") };
    assert_eq!(life.times.total_ns(), life.to_ns - life.from_ns);
}

#[test]
fn a_break_is_explained_by_a_loss_that_becomes_known_later() {
    let on_cpu_1 = |mut bytes: Vec<u8>, lost: u32| {
        bytes[52..56].copy_from_slice(&lost.to_le_bytes());
        bytes[56] = 1;
        bytes
    };
    let tape = vec![
        on_cpu_1(creation(1, 1, 1, 0), 0),
        change(2, 1, 1, 2, 0, 0),
        change(3_000_000, 1, 4, 1, 19, 0),
        change(900_000_000, 1, 1, 2, 19, 0),
        on_cpu_1(creation(901_000_000, 2, 1, 0), 1),
    ];
    let (_, counters, _) = follow(&tape, 1_000_000_000);
    assert_eq!((counters.breaks, counters.mended, counters.gaps), (0, 1, 1));
}

#[test]
fn a_break_beside_a_loss_is_none_though_no_record_tells_of_it() {
    let mut beside = change(3, 1, 4, 1, 19, 0);
    wire::mark_beside_loss(&mut beside);
    let tape = [
        creation(1, 1, 1, 0),
        change(2, 1, 1, 2, 0, 0),
        beside,
        change(900_000_000, 1, 1, 2, 19, 0),
    ];
    let (events, counters, _) = follow(&tape, 1_000_000_000);
    assert_eq!((counters.breaks, counters.mended, counters.gaps), (0, 1, 0));
    let [life] = lifetimes(&events)[..] else { panic!("{events:?}") };
    assert_eq!((life.times.unknown_ns, life.times.total_ns()), (1, life.to_ns - life.from_ns));
}

fn told(events: &[Event]) -> Vec<String> {
    changes(events).into_iter().map(brief).collect()
}

#[test]
fn what_is_in_order_waits_for_nothing() {
    // No loss is known: one does not fit, and nothing is put before it.
    let tape = [
        creation(1, 1, 1, 0),
        change(2, 1, 1, 2, 0, 0),
        change(3, 1, 4, 1, 19, 9),
        change(4, 1, 2, 4, 18, 1),
        change(5, 1, 4, 1, 18, 9),
    ];
    let (events, counters, _) = follow(&tape.map(ordered), 10);
    let expected = [
        "g1 dead>runnable @1",
        "g1 runnable>running @2",
        "g1 waiting>runnable chan receive @3 by 9",
        "g1 running>waiting select @4",
        "g1 waiting>runnable select @5 by 9",
    ];
    assert_eq!(told(&events), expected);
    assert_eq!((counters.breaks, counters.mended, counters.repairs), (2, 0, 0));
}

/// The thread that found no room lost the CPU before it made the change.
#[test]
fn a_change_may_be_made_after_its_loss_was_told() {
    let tape = |late_ns: u64| {
        let told = with_lost(change(5, 1, 1, 2, 0, 0), 4);
        let begin = [creation(1, 1, 1, 0), creation(2, 2, 1, 1), told];
        let rest = [change(6, 2, 1, 2, 0, 0), change(late_ns, 2, 4, 1, 19, 9)];
        [&begin[..], &rest[..]].concat().into_iter().map(ordered).collect::<Vec<_>>()
    };
    let (_, counters, _) = follow(&tape(1_000_000_000), 9_000_000_000);
    assert_eq!((counters.breaks, counters.mended, counters.repairs), (0, 1, 0));
    let (_, counters, _) = follow(&tape(3_000_000_000), 9_000_000_000);
    assert_eq!((counters.breaks, counters.mended, counters.repairs), (1, 0, 0));
}

/// Where steps between were lost, the next one may begin with the same state as the last one ended.
#[test]
fn what_fits_by_chance_beside_a_loss_is_mended() {
    let stopping = reasons().iter().position(|name| *name == "stopping the world").unwrap() as u8;
    let begin = [
        creation(1, 1, 1, 0),
        change(2, 1, 1, 2, 0, 0),
        creation(3, 2, 1, 1),
        change(4, 2, 1, 2, 0, 0),
    ];
    let waits = change(10, 1, 2, 4, 19, 0);
    let after = |last: Option<&Vec<u8>>, next: Vec<u8>| {
        let tape: Vec<_> = begin.iter().chain(last).cloned().chain([with_lost(next, 1)]).collect();
        let (events, counters, _) = follow(&tape, 100);
        assert_eq!((counters.breaks, counters.repairs), (0, 0));
        for life in lifetimes(&events) {
            assert_eq!(life.times.total_ns(), life.to_ns - life.from_ns, "{life:?}");
        }
        let shown = told(&events).split_off(begin.len() + usize::from(last.is_some()));
        (shown, counters.mended, lifetimes(&events)[0].times.unknown_ns)
    };
    // It waits for something else by now.
    let other = after(Some(&waits), change(30, 1, 4, 1, 18, 9));
    assert_eq!(other, (vec!["g1 waiting>runnable select @30 by 9".to_owned()], 1, 20));
    // It ran again and only seemed to wait.
    let runs = after(Some(&waits), change(30, 1, 4, 2, stopping, 1));
    assert_eq!(runs, (vec![], 1, 20));
    // It runs on another thread by now.
    let moved = after(None, on_thread(change(30, 1, 2, 4, 19, 1), 7));
    assert_eq!(moved, (vec!["g1 running>waiting chan receive @30".to_owned()], 1, 28));
    // These may be the next ones.
    let same = after(Some(&waits), change(30, 1, 4, 1, 19, 9));
    assert_eq!(same, (vec!["g1 waiting>runnable chan receive @30 by 9".to_owned()], 0, 0));
    let runs_on = after(None, change(30, 1, 2, 1, 0, 1));
    assert_eq!(runs_on, (vec!["g1 running>runnable @30".to_owned()], 0, 0));
}

proptest! {
    #[test]
    fn generated_lives_come_out_as_they_went_in(lives in lives(), end in 0u64..1000) {
        let tape = Tape::of(&lives);
        let end_ns = tape.end_ns + end;
        let (events, counters, states) = follow(&tape.records, end_ns);
        assert_unbroken(&events);
        prop_assert_eq!((counters.breaks, counters.repairs, counters.mended), (0, 0, 0));
        prop_assert_eq!(counters.made, lives.len() as u64);
        prop_assert_eq!(counters.changes, tape.records.len() as u64);
        let ended = lives.iter().filter(|life: &&Life| life.ends()).count() as u64;
        prop_assert_eq!((counters.ended, counters.live), (ended, lives.len() as u64 - ended));
        for life in lifetimes(&events) {
            prop_assert_eq!(life.times.total_ns(), life.to_ns - life.from_ns);
        }
        // The sums by site are the sums of the lives.
        let all: u64 = lifetimes(&events).iter().map(|life| life.times.total_ns()).sum();
        let sites: u64 = states.tally(end_ns).sites().map(|(_, sum)| sum.times.total_ns()).sum();
        prop_assert_eq!(all, sites);
    }

    #[test]
    fn neighbours_that_change_places_are_put_right(
        lives in lives(), swaps in prop::collection::vec(any::<prop::sample::Index>(), 1..20),
    ) {
        let mut tape = Tape::of(&lives);
        let (straight, _, _) = follow(&tape.records, tape.end_ns);
        let mut last = 0;
        let mut places: Vec<usize> =
            swaps.iter().map(|index| index.index(tape.records.len().max(2) - 1)).collect();
        places.sort_unstable();
        let pairs = tape.records.len().saturating_sub(1);
        for at in places.into_iter().filter(|&at| at < pairs) {
            // Not a creation: nothing of a goroutine comes before it was made.
            let is_creation = |at: usize| tape.is_creation(at);
            if at >= last && !is_creation(at) && !is_creation(at + 1) {
                tape.records.swap(at, at + 1);
                last = at + 2;
            }
        }
        let (events, counters, _) = follow(&tape.records, tape.end_ns);
        prop_assert_eq!(counters.breaks, 0);
        assert_unbroken(&events);
        let sorted = |events: &[Event]| {
            let mut all: Vec<String> = changes(events).into_iter().map(brief).collect();
            all.sort();
            all
        };
        prop_assert_eq!(sorted(&events).len(), sorted(&straight).len());
    }

    #[test]
    fn any_records_are_taken(
        all in prop::collection::vec((0u8..6, 0u32..4, 0u64..4, any::<u64>(), 0u32..12, 0u32..12,
            any::<u32>()), 0..200),
    ) {
        let mut states = States::new(support_states::plan());
        let mut events = Vec::new();
        for (kind, site, goid, ts_ns, old, new, lost) in all {
            let words = [goid, u64::from(old), u64::from(old), u64::from(new), 0, 0];
            let kind = match kind {
                0 => RecordKind::Exec,
                1 => RecordKind::ProcessExit,
                2 => RecordKind::Goroutine,
                _ => RecordKind::Hit,
            };
            let bytes = record(kind, site, ts_ns, goid, &words, lost);
            states.push(&Record::parse(&bytes).unwrap(), &mut events);
        }
        states.finish(u64::MAX, &mut events);
        prop_assert_eq!(states.living(0).count(), 0);
    }
}
