//! What happens at the end of a capture and at the limits of memory.

#[allow(dead_code, reason = "shared with the output's tests")]
mod support;

use std::sync::Arc;
use support::{Entry, Story};
use timeline::{End, Event, Filter, FilterOptions, Limits, Options, Timeline};
use wire::{Record, RecordFlags};

fn push(timeline: &mut Timeline, entries: &[Entry]) -> Vec<Event> {
    let mut events = Vec::new();
    for entry in entries {
        timeline.push(&Record { payload: &entry.payload, ..entry.record }, &mut events);
    }
    events
}

/// (stack depth in calls, end) of every call that ended, in order.
fn ends(events: &[Event]) -> Vec<(u32, End)> {
    let leave = |event: &Event| match event {
        Event::Leave(call) => Some((call.depth, call.end)),
        _ => None,
    };
    events.iter().filter_map(leave).collect()
}

#[test]
fn draining_finishes_open_trees_and_begins_no_new_one() {
    let mut story = Story::of(&["main.a", "main.b"]);
    story.g(1).enter("", "main.a", 100, &[]);
    let begun = story.records.len();
    story.enter("main.a", "main.b", 200, &[]).ret("main.b", 200, &[]).ret("main.a", 100, &[]);
    story.g(2).enter("", "main.a", 100, &[]).ret("main.a", 100, &[]);
    let mut timeline = Timeline::new(Arc::new(story.plan.clone()), Options::default());
    push(&mut timeline, &story.records[..begun]);
    timeline.drain_from(story.records.get(begun).map_or(0, |record| record.record.ts_ns));
    assert!(!timeline.is_idle());
    let events = push(&mut timeline, &story.records[begun..]);
    assert_eq!(ends(&events), [(1, End::Return), (0, End::Return)]);
    assert!(timeline.is_idle());
    let counters = timeline.counters();
    assert_eq!((counters.drained, counters.drained_exits, counters.orphan_exits), (1, 1, 0));
}

/// What is open of a function that is not watched any more is not continued by the exit of a later call, and the
/// calls around it and within it go on.
#[test]
fn what_is_released_ends_at_once_and_nothing_else_does() {
    let mut story = Story::of(&["main.a", "main.b", "main.c"]);
    story.g(1).enter("", "main.a", 100, &[]).enter("main.a", "main.b", 200, &[]);
    story.enter("main.b", "main.c", 300, &[]);
    story.g(2).enter("", "main.b", 100, &[]);
    let begun = story.records.len();
    // Neither the return of the first main.b nor the begin of the next one was seen.
    story.g(1).ret("main.c", 300, &[]).ret("main.b", 200, &[]).ret("main.a", 100, &[]);
    story.g(2).ret("main.b", 100, &[]).enter("", "main.b", 100, &[]).ret("main.b", 100, &[]);
    let mut timeline = Timeline::new(Arc::new(story.plan.clone()), Options::default());
    push(&mut timeline, &story.records[..begun]);
    let b = story.plan.functions.iter().position(|function| function.name == "main.b");
    let b = b.expect("a function") as u32;
    let now = story.records.get(begun).map_or(0, |record| record.record.ts_ns);
    let mut released = Vec::new();
    timeline.release(&|function| function == b, now, &mut released);
    assert_eq!(ends(&released), [(1, End::Lost), (0, End::Lost)]);
    let events = push(&mut timeline, &story.records[begun..]);
    assert_eq!(ends(&events), [(2, End::Return), (0, End::Return), (0, End::Return)]);
    assert!(timeline.is_idle());
    assert_eq!(timeline.counters().orphan_exits, 2);
}

/// What every goroutine ends in does not return, and is not lost either.
#[test]
fn the_last_call_of_a_goroutine_ends_with_it() {
    let mut story = Story::of(&["runtime.goexit1", "main.a"]);
    story.g(1).enter("", "runtime.goexit1", 16, &[]).die();
    story.g(2).enter("", "runtime.goexit1", 16, &[]).lose(3).die();
    story.g(3).enter("", "main.a", 16, &[]).die();
    let (events, _) = story.events(Options::default());
    assert_eq!(ends(&events), [(0, End::Goexit), (0, End::Lost), (0, End::Lost)]);
}

/// Whether a call returned for certain, with a loss on another CPU beside some of the records:
/// its entry, one of another goroutine, its exit, and one behind it.
fn is_certain(beside_loss: [bool; 4]) -> bool {
    let mut story = Story::of(&["main.a", "main.b"]);
    story.g(1).enter("", "main.a", 100, &[]).g(2).enter("", "main.b", 100, &[]);
    story.g(1).ret("main.a", 100, &[]).g(2).ret("main.b", 100, &[]);
    for (entry, beside_loss) in story.records.iter_mut().zip(beside_loss) {
        entry.record.flags.0 |= u16::from(beside_loss) * RecordFlags::BESIDE_LOSS;
    }
    let mut timeline = Timeline::new(Arc::new(story.plan.clone()), Options::default());
    let events = push(&mut timeline, &story.records);
    let ended = |event: &Event| match event {
        Event::Leave(call) if call.goid == 1 => Some((call.end, call.end_exact)),
        _ => None,
    };
    let ended: Vec<_> = events.iter().filter_map(ended).collect();
    assert!(matches!(ended[..], [(End::Return, _)]));
    ended[0].1
}

/// The exit may be that of a later call if others lost some beside what lies between.
#[test]
fn a_call_over_a_loss_on_another_cpu_is_not_certain() {
    for index in 0..16u8 {
        let beside = [0, 1, 2, 3].map(|bit| index >> bit & 1 == 1);
        assert_eq!(is_certain(beside), beside[..3] == [false; 3], "{beside:?}");
    }
}

/// A limit shows whole trees: those of the roots that began first. Another one that ends counts, and
/// shows neither itself nor what it called.
#[test]
fn a_limit_shows_whole_trees() {
    let mut story = Story::of(&["main.a", "main.b"]);
    story.g(1).enter("", "main.a", 100, &[]);
    story.g(2).enter("", "main.a", 100, &[]).enter("main.a", "main.b", 200, &[]);
    story.ret("main.b", 200, &[]).ret("main.a", 100, &[]);
    story.g(1).enter("main.a", "main.b", 200, &[]).ret("main.b", 200, &[]).ret("main.a", 100, &[]);
    let (events, _) = story.events(Options::default());
    let mut filter = Filter::new(FilterOptions { limit: Some(1), ..FilterOptions::default() });
    let (mut shown, mut done_at) = (Vec::new(), None);
    for (at, event) in events.into_iter().enumerate() {
        filter.push(event, &mut shown);
        done_at = done_at.or(filter.done().then_some(at));
    }
    assert_eq!(done_at, Some(4), "when the second root has returned");
    let told = |event: &Event| match event {
        Event::Enter(call) => (call.goid, call.depth, "enter"),
        Event::Leave(call) => (call.goid, call.depth, "leave"),
        other => panic!("{other:?}"),
    };
    let want = [(1, 0, "enter"), (1, 1, "enter"), (1, 1, "leave"), (1, 0, "leave")];
    assert_eq!(shown.iter().map(told).collect::<Vec<_>>(), want);
}

#[test]
fn too_many_open_calls_give_up_the_outer_half() {
    let mut story = Story::of(&["main.a"]);
    for depth in 1..=5 {
        story.enter("", "main.a", 100 * depth, &[]);
    }
    for depth in (1..=5).rev() {
        story.ret("main.a", 100 * depth, &[]);
    }
    let limits = Limits { frames: 4, ..Limits::default() };
    let plan = Arc::new(story.plan.clone());
    let mut timeline = Timeline::new(plan, Options { limits, enters: false, ..Options::default() });
    let events = push(&mut timeline, &story.records);
    let lost = [(1, End::Lost), (0, End::Lost)];
    let returned = [(4, End::Return), (3, End::Return), (2, End::Return)];
    assert_eq!(ends(&events), [&lost[..], &returned[..]].concat());
    assert_eq!((timeline.counters().evicted, timeline.counters().orphan_exits), (2, 2));
}

#[test]
fn too_many_stacks_give_up_the_oldest() {
    let mut story = Story::of(&["main.a"]);
    for goid in 1..=3 {
        story.g(goid).enter("", "main.a", 100, &[]);
    }
    let limits = Limits { stacks: 2, ..Limits::default() };
    let plan = Arc::new(story.plan.clone());
    let mut timeline = Timeline::new(plan, Options { limits, enters: false, ..Options::default() });
    let mut events = push(&mut timeline, &story.records);
    timeline.finish(story.now(), &mut events);
    let who: Vec<(u64, End)> = events
        .iter()
        .map(|event| match event {
            Event::Leave(call) => (call.goid, call.end),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(who, [(1, End::Lost), (2, End::Open), (3, End::Open)]);
}
