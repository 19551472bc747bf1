//! Hand-made captures, their whole output as text and as JSON: how calls pair and end.

#[allow(dead_code, reason = "shared with the timeline's tests")]
#[path = "../../timeline/tests/support/mod.rs"]
mod support;

use output::{Clock, Json, Text, TextOptions};
use std::sync::Arc;
use support::{Names, Story, int, word};
use timeline::Options;

/// 2026-01-02 21:06:01 UTC at the capture's time 0.
const CLOCK: Clock = Clock { unix_offset_ns: 1_767_387_961_000_000_000, utc_offset_s: 0 };

/// Text, JSON and counters of a story.
fn render(story: &Story) -> String {
    let plan = Arc::new(story.plan.clone());
    let names = Names::of(&plan);
    let (events, timeline) = story.events(Options::default());
    let mut out = Vec::new();
    let mut text = Text::new(Arc::clone(&plan), CLOCK, TextOptions::default());
    let mut json = Json::new(plan, CLOCK);
    for event in &events {
        text.event(event, &names, &mut out).unwrap();
    }
    text.finish(story.now(), &mut out).unwrap();
    out.extend_from_slice(b"\n");
    for event in &events {
        json.event(event, &names, &mut out).unwrap();
    }
    out.extend_from_slice(format!("\n{:#?}\n", timeline.counters()).as_bytes());
    String::from_utf8(out).unwrap()
}

fn check(name: &str, story: &Story) {
    let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    testkit::assert_golden(path, &render(story));
}

#[test]
fn nested_calls_with_arguments_and_results() {
    let mut story = Story::of(&["main.main"]);
    story
        .function("main.add", vec![int("a"), int("b")], vec![int("~r0")])
        .function("main.add1", vec![int("a"), int("b")], vec![int("sum"), int("err")])
        .enter("main.main", "main.add", 128, &[word(1), word(2)])
        .enter("main.add", "main.add1", 256, &[word(1), word(2)])
        .wait(100)
        .ret("main.add1", 256, &[word(3), word(0)])
        .ret("main.add", 128, &[word(3)]);
    check("nested", &story);
}

#[test]
fn recursion_is_told_apart_by_depth() {
    let mut story = Story::of(&["main.fact"]);
    for depth in [100, 200, 300] {
        story.enter("main.fact", "main.fact", depth, &[]);
    }
    for depth in [300, 200, 100] {
        story.ret("main.fact", depth, &[]);
    }
    check("recursion", &story);
}

#[test]
fn goroutines_interleave_and_change_threads() {
    let mut story = Story::of(&["main.a", "main.b"]);
    story.g(18).enter("main.a", "main.a", 100, &[]);
    story.g(19).enter("main.a", "main.a", 100, &[]);
    story.g(18).enter("main.a", "main.b", 200, &[]);
    story.g(19).ret("main.a", 100, &[]);
    story.g(18).ret("main.b", 200, &[]).ret("main.a", 100, &[]);
    for (i, entry) in story.records.iter_mut().enumerate() {
        entry.record.tid += i as u32;
    }
    check("interleaved", &story);
}

#[test]
fn a_tail_jump_ends_a_call_and_the_target_runs_at_its_depth() {
    let mut story = Story::of(&["main.outer", "main.wrapper", "main.target"]);
    story
        .enter("main.outer", "main.outer", 100, &[])
        .enter("main.outer", "main.wrapper", 200, &[])
        .tail("main.wrapper", 200)
        .enter("main.outer", "main.target", 200, &[])
        .ret("main.target", 200, &[])
        .ret("main.outer", 100, &[]);
    check("tail", &story);
}

#[test]
fn a_recovered_panic_ends_what_lies_above_the_recovering_frame() {
    let mut story = Story::of(&["main.safe", "main.work", "main.deep", "main.safe.func1"]);
    story
        .enter("", "main.safe", 100, &[])
        .enter("main.safe", "main.work", 200, &[])
        .enter("main.work", "main.deep", 300, &[])
        .panic(400, 0x50_0000, &[0; 16], "boom")
        .enter("", "main.safe.func1", 600, &[])
        .ret("main.safe.func1", 600, &[])
        .recover(180)
        .ret("main.safe", 100, &[])
        .die();
    check("recovered", &story);
}

#[test]
fn a_panic_in_a_deferred_function_aborts_the_first() {
    let mut story = Story::of(&["main.safe", "main.work", "main.cleanup", "main.handler"]);
    story
        .enter("", "main.safe", 100, &[])
        .enter("", "main.work", 200, &[])
        .panic(300, 0x50_0000, &[0; 16], "first")
        .enter("", "main.cleanup", 500, &[])
        .panic(600, 0x50_0000, &[0; 16], "second")
        .enter("", "main.handler", 800, &[])
        .ret("main.handler", 800, &[])
        .recover(180)
        .enter("main.safe", "main.work", 200, &[])
        .ret("main.work", 200, &[])
        .ret("main.safe", 100, &[]);
    check("repanic", &story);
}

#[test]
fn a_panic_recovered_inside_a_deferred_function_leaves_the_first_pending() {
    let mut story = Story::of(&["main.main", "main.cleanup", "main.inner"]);
    story
        .enter("", "main.main", 100, &[])
        .panic(300, 0x50_0000, &[0; 16], "first")
        .enter("", "main.cleanup", 500, &[])
        .enter("main.cleanup", "main.inner", 600, &[])
        .panic(700, 0x50_0000, &[0; 16], "second")
        .recover(560)
        .ret("main.cleanup", 500, &[])
        .fatal(360)
        .exit();
    check("nested-recover", &story);
}

#[test]
fn an_unrecovered_panic_closes_its_goroutine_and_the_others_stay_open() {
    let mut story = Story::of(&["main.main", "main.deep", "main.worker"]);
    story.g(21).enter("", "main.worker", 100, &[]);
    story
        .g(1)
        .enter("", "main.main", 100, &[])
        .enter("main.main", "main.deep", 200, &[])
        .panic(300, 0x50_0020, &[0; 16], "disk full")
        .fatal(360)
        .exit();
    check("fatal", &story);
}

#[test]
fn panic_values_of_every_kind() {
    let mut story = Story::of(&["main.main"]);
    story.g(1).panic(300, 0x50_0040, &42u128.to_le_bytes(), "").fatal(360);
    story.g(2).panic(300, 0x50_0060, &[0; 16], "").fatal(360);
    story.g(3).panic(300, 0x50_0000, &[0; 16], "a \"quoted\"\nline").fatal(360);
    story.g(4).panic(300, 0xdead, &[0; 16], "").fatal(360);
    story.g(5).panic(300, 0, &[0; 16], "").fatal(360);
    story.g(6).fatal(360).exit();
    check("panic-values", &story);
}

#[test]
fn goexit_runs_deferred_functions_and_ends_the_rest() {
    let mut story = Story::of(&["main.worker", "main.step", "main.cleanup"]);
    story
        .trace_witness("runtime.Goexit")
        .enter("", "main.worker", 100, &[])
        .enter("main.worker", "main.step", 200, &[])
        .goexit(300)
        .enter("", "main.cleanup", 500, &[])
        .ret("main.cleanup", 500, &[])
        .die();
    check("goexit", &story);
}

#[test]
fn a_panic_recovered_during_goexit_goes_back_to_goexit() {
    let mut story = Story::of(&["main.worker", "main.step", "main.cleanup", "main.last"]);
    story
        .enter("", "main.worker", 100, &[])
        .enter("main.worker", "main.step", 200, &[])
        .goexit(300)
        .enter("", "main.cleanup", 500, &[])
        .panic(600, 0x50_0000, &[0; 16], "in a deferred function")
        .recover(180)
        .enter("", "main.last", 500, &[])
        .ret("main.last", 500, &[])
        .die();
    check("goexit-recover", &story);
}

#[test]
fn goexit_in_a_deferred_function_of_a_panic_wins() {
    let mut story = Story::of(&["main.worker", "main.cleanup"]);
    story
        .enter("", "main.worker", 100, &[])
        .panic(300, 0x50_0000, &[0; 16], "superseded")
        .enter("", "main.cleanup", 500, &[])
        .goexit(600)
        .die();
    check("panic-goexit", &story);
}

#[test]
fn calls_running_at_the_attach_are_counted_and_open_ones_reported() {
    let mut story = Story::of(&["main.old", "main.new"]);
    story
        .ret("main.old", 300, &[])
        .enter("", "main.new", 200, &[])
        .ret("main.old", 100, &[])
        .enter("", "main.new", 200, &[])
        .enter("main.new", "main.new", 300, &[]);
    check("attach-detach", &story);
}

#[test]
fn losses_are_gaps_and_never_bridges() {
    let mut story = Story::of(&["main.a", "main.b"]);
    story
        .enter("", "main.a", 100, &[])
        .enter("main.a", "main.b", 200, &[])
        .lose(1)
        .enter("main.a", "main.b", 200, &[])
        .lose(2)
        .ret("main.b", 200, &[])
        .lose(3)
        .ret("main.b", 200, &[])
        .ret("main.a", 100, &[])
        .enter("", "main.a", 100, &[])
        .die();
    check("losses", &story);
}

#[test]
fn an_exec_and_an_exit_end_everything() {
    let mut story = Story::of(&["main.a", "main.b"]);
    story.enter("", "main.a", 100, &[]).enter("main.a", "main.b", 200, &[]);
    story.g(19).enter("", "main.a", 100, &[]).exec();
    story.g(1).enter("", "main.a", 100, &[]).exit();
    check("exec-exit", &story);
}

#[test]
fn system_stack_frames_stand_below_their_goroutine() {
    let mut story = Story::of(&["main.f", "runtime.sys", "runtime.schedule"]);
    story
        .enter("", "main.f", 100, &[])
        .g0(0xc000_0001, 18)
        .enter("main.f", "runtime.sys", 40, &[])
        .ret("runtime.sys", 40, &[])
        .enter("main.f", "runtime.sys", 40, &[])
        .enter("runtime.sys", "runtime.schedule", 80, &[])
        .g0(0xc000_0001, 0)
        .enter("", "runtime.schedule", 60, &[])
        .g(18)
        .ret("main.f", 100, &[]);
    check("system-stack", &story);
}
