//! Every writer over hand-made captures: values, filters, waiting lines, tables, summaries.

#[allow(dead_code, reason = "shared with the timeline's tests")]
#[path = "../../timeline/tests/support/mod.rs"]
mod support;

use output::{
    Clock, Json, Summary, SymbolTable, Text, TextOptions, Trampolines, write_stat_json,
    write_stat_table, zero_hits_reason,
};
use probe::value::ValueKind;
use probe::{Refusal, RefusalReason};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use support::{Names, Story, field, int, raw_field, value, word};
use timeline::{Event, Filter, FilterOptions, Options, Stats};
use wire::FieldStatus;

const CLOCK: Clock = Clock { unix_offset_ns: 1_767_387_961_000_000_000, utc_offset_s: 3600 };

fn golden(name: &str, actual: &[u8]) {
    let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    testkit::assert_golden(path, std::str::from_utf8(actual).expect("UTF-8"));
}

fn write_text(story: &Story, events: &[Event], options: TextOptions, out: &mut Vec<u8>) {
    let names = Names::of(&story.plan);
    let mut text = Text::new(Arc::new(story.plan.clone()), CLOCK, options);
    for event in events {
        text.event(event, &names, out).unwrap();
    }
    text.finish(story.now(), out).unwrap();
}

fn write_json(story: &Story, events: &[Event], out: &mut Vec<u8>) {
    let names = Names::of(&story.plan);
    let mut json = Json::new(Arc::new(story.plan.clone()), CLOCK);
    for event in events {
        json.event(event, &names, out).unwrap();
    }
}

/// A function with every kind of argument, and the fields of one call of it.
fn values() -> (Story, Vec<Vec<u8>>) {
    let mut story = Story::of(&[]);
    let number = |size| ValueKind::Int { size };
    let natural = |size| ValueKind::Uint { size };
    let args = [
        ("bool", "bool", ValueKind::Bool, vec![field(&[1])]),
        ("i8", "int8", number(1), vec![field(&[0xff])]),
        ("i64", "int64", number(8), vec![word(i64::MIN as u64)]),
        ("exact", "int64", number(8), vec![word(1 << 53)]),
        ("beyond", "int64", number(8), vec![word((1 << 53) + 1)]),
        ("u64", "uint64", natural(8), vec![word(u64::MAX)]),
        ("f32", "float32", ValueKind::Float { size: 4 }, vec![field(&0.1f32.to_le_bytes())]),
        ("nan", "float64", ValueKind::Float { size: 8 }, vec![word(f64::NAN.to_bits())]),
        ("inf", "float64", ValueKind::Float { size: 8 }, vec![word(f64::NEG_INFINITY.to_bits())]),
        (
            "c64",
            "complex64",
            ValueKind::Complex { size: 8 },
            vec![field(&1.5f32.to_le_bytes()), field(&(-0.1f32).to_le_bytes())],
        ),
        (
            "c128",
            "complex128",
            ValueKind::Complex { size: 16 },
            vec![word(f64::NAN.to_bits()), word(f64::INFINITY.to_bits())],
        ),
        ("wait", "time.Duration", number(8), vec![word(1_500_000_000)]),
        ("text", "string", ValueKind::String, vec![field("grüße \"日本\"\u{1b}[0m".as_bytes())]),
        ("bytes", "string", ValueKind::String, vec![field(b"\xff\x00a")]),
        ("cut", "string", ValueKind::String, vec![raw_field(FieldStatus::Ok, b"ab\xc3", 1000)]),
        ("rule", "c8", ValueKind::Text, vec![field(b"ab\0junk!")]),
        ("ptr", "*main.T", ValueKind::Pointer, vec![word(0xc000_1000)]),
        ("nil", "*main.T", ValueKind::Pointer, vec![word(0)]),
        ("list", "[]int", ValueKind::Slice, vec![word(0xc000_2000), word(3), word(4)]),
        ("empty", "[]int", ValueKind::Slice, vec![word(0), word(0), word(0)]),
        ("err", "error", ValueKind::Interface, vec![word(0x50_0020), word(0xc000_3000)]),
        ("any", "any", ValueKind::Interface, vec![word(0xdead), word(0xc000_4000)]),
        ("none", "error", ValueKind::Interface, vec![word(0), word(0)]),
        ("fault", "string", ValueKind::String, vec![raw_field(FieldStatus::Fault, b"", 0)]),
        ("never", "main.Big", ValueKind::Unavailable("passed in memory".to_owned()), vec![]),
        ("full", "int", number(8), vec![]),
    ];
    let specs = args.iter().map(|(name, kind, how, _)| value(name, kind, how.clone())).collect();
    story.function("main.values", specs, vec![]);
    (story, args.into_iter().flat_map(|(_, _, _, fields)| fields).collect())
}

#[test]
fn values_of_every_kind() {
    let (mut story, fields) = values();
    story.enter("", "main.values", 100, &fields).ret("main.values", 100, &[]);
    let (events, _) = story.events(Options::default());
    let mut out = Vec::new();
    write_text(&story, &events, TextOptions::default(), &mut out);
    write_json(&story, &events, &mut out);
    let json = out.split(|&byte| byte == b'\n').nth(1).unwrap();
    let parsed: serde_json::Value = serde_json::from_slice(json).unwrap();
    for arg in parsed["args"].as_array().unwrap() {
        out.extend_from_slice(format!("\n{arg}").as_bytes());
    }
    golden("values", &out);
}

/// main calls work three times: 10 ms, 1 ms with a nested call, and one that goes on.
fn work() -> Story {
    let mut story = Story::of(&["main.main", "main.work", "main.part"]);
    story
        .enter("", "main.main", 100, &[])
        .enter("main.main", "main.work", 200, &[])
        .wait(9)
        .ret("main.work", 200, &[])
        .enter("main.main", "main.work", 200, &[])
        .enter("main.work", "main.part", 300, &[])
        .enter("main.part", "main.part", 400, &[])
        .wait(4)
        .ret("main.part", 400, &[])
        .ret("main.part", 300, &[])
        .ret("main.work", 200, &[])
        .enter("main.main", "main.work", 200, &[]);
    story
}

#[test]
fn filters_hide_what_was_not_asked_for() {
    let story = work();
    let work_id = 6;
    let none = FilterOptions::default();
    let cases = [
        ("drilldown", FilterOptions { drilldown: Some(HashSet::from([work_id])), ..none.clone() }),
        ("depth 2", FilterOptions { depth: Some(2), ..none.clone() }),
        ("min 5ms", FilterOptions { min_ns: Some(5_000_000), ..none.clone() }),
        ("min 8ms", FilterOptions { min_ns: Some(8_000_000), ..none.clone() }),
        (
            "drilldown, limit 1",
            FilterOptions {
                drilldown: Some(HashSet::from([work_id])),
                limit: Some(1),
                ..none.clone()
            },
        ),
        ("depth 1, limit 1", FilterOptions { depth: Some(1), limit: Some(1), ..none }),
    ];
    let mut out = Vec::new();
    for (name, options) in cases {
        let mut filter = Filter::new(options);
        let mut shown = Vec::new();
        for event in story.events(Options::default()).0 {
            filter.push(event, &mut shown);
        }
        out.extend_from_slice(format!("{name}, done: {}\n", filter.done()).as_bytes());
        write_text(&story, &shown, TextOptions::default(), &mut out);
        out.push(b'\n');
    }
    golden("filters", &out);
}

#[test]
fn an_entry_line_waits_100_ms_and_keeps_its_time() {
    let mut story = Story::of(&["main.slow"]);
    story.enter("", "main.slow", 100, &[]).wait(500).ret("main.slow", 100, &[]);
    let (events, _) = story.events(Options::default());
    let names = Names::of(&story.plan);
    let mut text = Text::new(Arc::new(story.plan.clone()), CLOCK, TextOptions::default());
    let mut out = Vec::new();
    text.event(&events[0], &names, &mut out).unwrap();
    text.tick(100_999_999, &names, &mut out).unwrap();
    assert!(out.is_empty(), "99.999999 ms after the entry");
    text.tick(101_000_000, &names, &mut out).unwrap();
    text.event(&events[1], &names, &mut out).unwrap();
    golden("held", &out);
}

#[test]
fn colour_pids_and_deep_frames() {
    let mut story = Story::of(&["main.f"]);
    for depth in 1..=44 {
        story.enter("", "main.f", depth * 64, &[]);
    }
    story.exit();
    let (events, _) = story.events(Options::default());
    let mut out = Vec::new();
    write_text(&story, &events, TextOptions { color: true, pids: true }, &mut out);
    golden("colour", &out);
}

#[test]
fn statistics_as_table_and_as_json() {
    let story = work();
    let mut stats = Stats::default();
    for event in story.events(Options::default()).0 {
        stats.push(&event);
    }
    let mut out = Vec::new();
    write_stat_table(&story.plan, &stats.table(), &mut out).unwrap();
    write_stat_json(&story.plan, &stats.table(), &mut out).unwrap();
    golden("stat", &out);
}

#[test]
fn summaries_name_what_was_refused_and_why_nothing_was_seen() {
    let mut story = work();
    for i in 0..12 {
        let reason = RefusalReason("no frame of its own".to_owned());
        story.plan.refused.push(Refusal { function: format!("main.small{i}"), reason });
    }
    let (_, timeline) = story.events(Options::default());
    let mut full = Summary::of_plan("uprobe", &story.plan);
    full.count(&timeline.counters());
    (full.attach_ms, full.detach_ms, full.overhead_pct) = (Some(3.25), Some(0.5), Some(1.25));
    (full.target_exit, full.lost) = (Some(3), 7);
    let (code_bytes, functions, private_pages) = (8192, 90, 12);
    let (stops, longest_stop_ms) = (3, 1.5);
    full.trampolines =
        Some(Trampolines { code_bytes, functions, private_pages, stops, longest_stop_ms });
    full.notes.push("a note\x1b[31m".to_owned());
    let old = Story::of(&["main.a"]).ret("main.a", 100, &[]).events(Options::default()).1;
    let mut empty = Summary::of_plan("uprobe", &Story::of(&["main.a"]).plan);
    empty.count(&old.counters());
    empty.zero_hits = zero_hits_reason(&empty, &old.counters());
    let mut out = Vec::new();
    for summary in [&full, &empty] {
        summary.write_text(&mut out).unwrap();
        summary.write_json(&mut out).unwrap();
        let mut again = Vec::new();
        summary.write_json(&mut again).unwrap();
        assert_eq!(&serde_json::from_slice::<Summary>(&again).unwrap(), summary);
    }
    golden("summary", &out);
    assert_eq!(zero_hits_reason(&full, &timeline.counters()), None);
}

#[test]
fn a_recorded_symbol_table_gives_the_same_output() {
    let (mut story, fields) = values();
    story
        .enter("runtime.Goexit", "main.values", 100, &fields)
        .panic(200, 0x50_0020, &[0; 16], "disk full")
        .fatal(300);
    let (events, _) = story.events(Options::default());
    let names = Names::of(&story.plan);
    let mut table = SymbolTable::default();
    table.observe_plan(&story.plan, &names);
    for event in &events {
        table.observe(event, &names);
    }
    let bytes = serde_json::to_vec(&table).unwrap();
    let table: SymbolTable = serde_json::from_slice(&bytes).unwrap();
    let mut json = Json::new(Arc::new(story.plan.clone()), CLOCK);
    let (mut live, mut later) = (Vec::new(), Vec::new());
    write_json(&story, &events, &mut live);
    for event in &events {
        json.event(event, &table, &mut later).unwrap();
    }
    assert_eq!(String::from_utf8_lossy(&later), String::from_utf8_lossy(&live));
}

#[test]
fn a_closed_pipe_is_the_callers_to_judge() {
    struct Closed;
    impl io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let story = work();
    let (events, _) = story.events(Options::default());
    let leave = events.iter().find(|event| matches!(event, Event::Leave(_))).unwrap();
    let names = Names::of(&story.plan);
    let plan = Arc::new(story.plan.clone());
    let mut text = Text::new(Arc::clone(&plan), CLOCK, TextOptions::default());
    let mut json = Json::new(plan, CLOCK);
    let text = text.event(leave, &names, &mut Closed).unwrap_err();
    let json = json.event(leave, &names, &mut Closed).unwrap_err();
    assert_eq!([text.kind(), json.kind()], [io::ErrorKind::BrokenPipe; 2]);
}

#[test]
fn arguments_of_a_watched_function_come_after_the_witness_fields() {
    let mut story = Story::of(&[]);
    story.trace_witness("runtime.gopanic").plan.functions[0].args.push(int("e"));
    story.panic(100, 1, &[0; 16], "text");
    let entry = story.records.last_mut().unwrap();
    entry.payload.extend_from_slice(&word(42));
    let (events, _) = story.events(Options::default());
    let mut out = Vec::new();
    write_text(&story, &events, TextOptions::default(), &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "22:06:01.001000 g18   ~1.000ms runtime.gopanic(e=42) open\n"
    );
}
