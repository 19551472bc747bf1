//! Records per second through timeline and writers: `cargo bench -p output`.

#[allow(dead_code, reason = "shared with the timeline's tests")]
#[path = "../../timeline/tests/support/mod.rs"]
mod support;

use output::{Clock, Json, Text, TextOptions};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;
use support::{Names, Story, int, word};
use timeline::{Event, Options, Stats, Timeline};
use wire::Record;

const ROUNDS: u32 = 5_000;

/// 100 goroutines, each a call with a nested call; two arguments and a result each.
fn story() -> Story {
    let mut story = Story::of(&[]);
    let args = || vec![int("a"), int("b")];
    story.function("main.outer", args(), vec![int("~r0")]);
    story.function("main.inner", args(), vec![int("~r0")]);
    let fields = [word(1), word(2)];
    for goid in 1..=100 {
        story
            .g(goid)
            .enter("main.outer", "main.outer", 128, &fields)
            .enter("main.outer", "main.inner", 256, &fields)
            .ret("main.inner", 256, &[word(3)])
            .ret("main.outer", 128, &[word(3)]);
    }
    story
}

fn measure(
    name: &str,
    enters: bool,
    story: &Story,
    mut write: impl FnMut(&Event) -> io::Result<()>,
) -> io::Result<()> {
    let plan = Arc::new(story.plan.clone());
    let mut timeline = Timeline::new(plan, Options { enters, ..Options::default() });
    let mut events = Vec::new();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        for entry in &story.records {
            let record = Record { payload: &entry.payload, ..entry.record };
            timeline.push(&record, &mut events);
            for event in events.drain(..) {
                write(&event)?;
            }
        }
    }
    let rate = timeline.counters().records as f64 / start.elapsed().as_secs_f64();
    writeln!(io::stdout(), "{name}: {:.2} million records/s", rate / 1e6)
}

fn main() -> io::Result<()> {
    let story = story();
    let plan = Arc::new(story.plan.clone());
    let names = Names::of(&plan);
    let clock = Clock::default();
    measure("timeline", true, &story, |_| Ok(()))?;
    let mut stats = Stats::default();
    measure("timeline and statistics", true, &story, |event| {
        stats.push(event);
        Ok(())
    })?;
    let mut json = Json::new(Arc::clone(&plan), clock);
    let mut sink = io::sink();
    measure("timeline and JSON", false, &story, |event| json.event(event, &names, &mut sink))?;
    let mut text = Text::new(plan, clock, TextOptions::default());
    measure("timeline and text", true, &story, |event| text.event(event, &names, &mut sink))
}
