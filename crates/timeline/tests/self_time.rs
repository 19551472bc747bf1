//! Time that a call spent in the calls it made.

#[allow(dead_code, reason = "shared with the output's tests")]
mod support;

use std::collections::HashMap;
use std::sync::Arc;
use support::Story;
use timeline::{Options, Stats, Timeline};
use wire::Record;

/// (calls, total ms, self ms) by function: from events, and without any.
fn table(story: &Story) -> HashMap<String, (u64, u64, u64)> {
    let (events, _) = story.events(Options { enters: false, ..Options::default() });
    let mut stats = Stats::default();
    events.iter().for_each(|event| stats.push(event));
    let mut timeline = Timeline::new(Arc::new(story.plan.clone()), Options::default());
    let mut tally = Stats::default();
    for entry in &story.records {
        timeline.tally(&Record { payload: &entry.payload, ..entry.record }, &mut tally);
    }
    let mut open = Vec::new();
    timeline.finish(story.now(), &mut open);
    open.iter().for_each(|event| tally.push(event));
    assert_eq!(tally.table(), stats.table());
    let row = |stat: &timeline::FunctionStat| {
        let name = story.plan.functions[stat.function as usize].name.clone();
        (name, (stat.calls, stat.total_ns / 1_000_000, stat.self_ns / 1_000_000))
    };
    stats.table().iter().map(row).collect()
}

#[test]
fn calls_on_a_system_stack_count_below_the_call_that_switched() {
    let mut story = Story::of(&["main.a", "main.b", "main.c"]);
    // a from 1 to 8; on the system stack b from 2 to 6, in it another goroutine's c from 3 to 7
    // and its own c from 4 to 5.
    story.g(1).enter("", "main.a", 100, &[]);
    story.g0(0x1000, 1).enter("main.a", "main.b", 50, &[]);
    story.g0(0x2000, 2).enter("", "main.c", 50, &[]);
    story.g0(0x1000, 1).enter("main.b", "main.c", 80, &[]).ret("main.c", 80, &[]);
    story.g0(0x1000, 1).ret("main.b", 50, &[]);
    story.g0(0x2000, 2).ret("main.c", 50, &[]);
    story.g(1).ret("main.a", 100, &[]);
    let expected = [("main.a", (1, 7, 3)), ("main.b", (1, 4, 3)), ("main.c", (2, 5, 5))];
    assert_eq!(table(&story), expected.map(|(name, row)| (name.to_owned(), row)).into());
}

#[test]
fn a_lost_call_has_no_time_to_count() {
    let mut story = Story::of(&["main.a", "main.b", "main.c"]);
    // b and the c in it are gone when a returns; c was left by another b's return before.
    story.enter("", "main.a", 100, &[]).enter("main.a", "main.b", 200, &[]);
    story.enter("main.b", "main.c", 300, &[]).ret("main.c", 300, &[]);
    story.enter("main.b", "main.c", 300, &[]).ret("main.a", 100, &[]);
    let expected = [("main.a", (1, 5, 5)), ("main.b", (1, 0, 0)), ("main.c", (2, 1, 1))];
    assert_eq!(table(&story), expected.map(|(name, row)| (name.to_owned(), row)).into());
}
