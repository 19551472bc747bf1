//! Calls whose condition does not hold: with a record of their entry, and without, as where the hit decides.

#[allow(dead_code, reason = "shared with the output's tests")]
mod support;

use probe::expression::{Comparison, Predicate, Term};
use probe::screen::{Screen, Screening};
use support::{Story, int, word};
use timeline::{Counters, Event, Options};
use wire::SiteKind;

/// `main.a(n)` if `n > 0`, and `main.b`.
fn story() -> Story {
    let mut story = Story::of(&["main.a", "main.b"]);
    let a = index_of(&story, "main.a");
    story.plan.functions[a].args = vec![int("n")];
    let predicate = Predicate::Compare(Comparison::Greater, Term::Arg(0), Term::Int(0));
    let entry = Some(Screening { text: "n > 0".to_owned(), predicate });
    story.plan.screens.insert(a as u32, Screen { entry, ..Screen::default() });
    set_condition(&mut story, 1);
    story
}

fn index_of(story: &Story, name: &str) -> usize {
    story.plan.functions.iter().position(|function| function.name == name).unwrap()
}

/// So many ops decide at the hit.
fn set_condition(story: &mut Story, ops: u16) {
    let a = index_of(story, "main.a") as u32;
    let is_entry = |site: &&mut probe::Site| site.function == a && site.kind == SiteKind::Entry;
    story.plan.sites.iter_mut().find(is_entry).unwrap().condition = ops;
}

/// Calls as they end: function, n, parent, level, end, own time in ms.
fn told(story: &Story) -> (Vec<String>, Counters) {
    let (events, timeline) = story.events(Options::default());
    let leave = |event: &Event| match event {
        Event::Leave(call) => {
            let own = (call.end_ns - call.start_ns - call.below_ns) / 1_000_000;
            let exact = if call.end_exact { "exact" } else { "inexact" };
            let (id, parent) = (call.id, call.parent.unwrap_or(0));
            let name = &story.plan.functions[call.function as usize].name;
            Some(format!(
                "{name} {:?} #{id} in {parent} at {}: {:?} {exact}, {own} ms",
                call.args, call.depth, call.end
            ))
        }
        _ => None,
    };
    (events.iter().filter_map(leave).collect(), timeline.counters())
}

/// An outer call that is wanted, an inner one that is not, and calls in it.
fn nested(with_records: bool) -> Story {
    let mut story = story();
    story.g(1).enter("", "main.a", 100, &[word(7)]);
    if with_records {
        story.enter("main.a", "main.a", 200, &[word(0)]);
    } else {
        story.wait(1);
    }
    story.enter("main.a", "main.b", 300, &[]).ret("main.b", 300, &[]);
    story.enter("main.a", "main.a", 300, &[word(1)]).ret("main.a", 300, &[]);
    story.ret("main.a", 200, &[]).ret("main.a", 100, &[]);
    story
}

#[test]
fn a_call_that_is_not_wanted_is_as_if_it_were_not_traced() {
    let expected = [
        "main.b [] #2 in 1 at 1: Return exact, 1 ms",
        "main.a [Int(1)] #3 in 1 at 1: Return exact, 1 ms",
        "main.a [Int(7)] #1 in 0 at 0: Return exact, 5 ms",
    ];
    let (with, without) = (told(&nested(true)), told(&nested(false)));
    assert_eq!((&with.0[..], &without.0[..]), (&expected.map(String::from)[..], &with.0[..]));
    for (counters, hidden) in [(with.1, 1), (without.1, 0)] {
        let Counters { entries, calls, hidden_exits, orphan_exits, .. } = counters;
        assert_eq!((entries - hidden, counters.hidden), (calls, hidden));
        assert_eq!((hidden_exits, orphan_exits), (1, 0));
    }
}

#[test]
fn behind_a_loss_the_exit_of_an_unwanted_call_ends_no_other() {
    let mut story = story();
    // The return of the first call is lost; what comes is that of one that was rejected.
    story.g(1).enter("", "main.a", 100, &[word(7)]);
    story.lose(1).ret("main.a", 100, &[]);
    let (calls, _) = told(&story);
    assert_eq!(calls, ["main.a [Int(7)] #1 in 0 at 0: Lost inexact, 1 ms"]);
    // Where every entry has its record it would have ended the first call: it may be its own.
    set_condition(&mut story, 0);
    let (calls, _) = told(&story);
    assert_eq!(calls, ["main.a [Int(7)] #1 in 0 at 0: Return inexact, 1 ms"]);
}
