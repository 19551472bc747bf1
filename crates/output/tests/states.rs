//! Every form of goroutine states over one hand-made capture.

#[path = "../../timeline/tests/support_states/mod.rs"]
mod support;

use output::{
    Arrows, Clock, GoroutineRows, Perfetto, PerfettoFile, StatesHead, StatesJson, StatesPart,
    StatesSummary, StatesText, Summary, SymbolTable, nothing_changed, write_goroutine_table,
    write_reason_table, write_site_table,
};
use std::io::Write as _;
use support::{change, creation, found, plan, record};
use timeline::states::{Event, Lifetime, Origin, StateCounters, States};
use timeline::{Location, Symbolizer};
use wire::{Record, RecordKind};

const CLOCK: Clock = Clock { unix_offset_ns: 1_767_387_961_000_000_000, utc_offset_s: 3600 };
const END_NS: u64 = 9_000_000;

struct Names;

impl Symbolizer for Names {
    fn location(&self, _: u32, address: u64) -> Option<Location> {
        let (func, file, line) = match address {
            0xff => ("main.serve", "/src/main.go", 12),
            0x200 => ("main.serve.func1", "/src/main.go", 13),
            0x2ff => ("runtime.rt0_go", "/go/asm_amd64.s", 1),
            0x400 => ("main.\u{202e}evil\n", "/src/main.go", 20),
            _ => return None,
        };
        Some(Location { func: func.into(), offset: 1, file: file.into(), line })
    }

    fn image_location(&self, _: u64) -> Option<Location> {
        None
    }

    fn type_name(&self, _: u32, _: u64) -> Option<(String, u8)> {
        None
    }
}

/// A goroutine that was there, one that lives its life, one that only begins, and a loss.
fn tape() -> Vec<Vec<u8>> {
    let ms = 1_000_000;
    let lost = |mut bytes: Vec<u8>| {
        bytes[52..56].copy_from_slice(&3u32.to_le_bytes());
        bytes
    };
    vec![
        record(RecordKind::Process, 0, 0, 0, &[], 0),
        found(0, 0, 0),
        found(0, 1, 4),
        found(0, 0, 0),
        creation(ms, 7, 1, 1),
        change(ms + 500, 7, 1, 2, 0, 0),
        change(ms + 90_500, 7, 2, 3, 0, 7),
        change(ms + 100_500, 7, 3, 2, 0, 7),
        change(ms + 200_500, 7, 2, 4, 18, 7),
        change(4 * ms, 7, 4, 1, 18, 1),
        change(4 * ms + 10_000, 7, 1, 2, 18, 0),
        change(4 * ms + 20_000, 7, 2, 8, 18, 7),
        change(4 * ms + 30_000, 7, 8, 2, 18, 7),
        change(4 * ms + 40_000, 7, 2, 77, 18, 7),
        change(4 * ms + 50_000, 7, 77, 2, 18, 7),
        change(5 * ms, 7, 2, 6, 18, 7),
        creation(6 * ms, 8, 4, 1),
        lost(change(7 * ms, 1, 4, 1, 19, 0)),
    ]
}

struct Told {
    events: Vec<Event>,
    living: Vec<Lifetime>,
    counters: StateCounters,
    states: States,
}

fn told() -> Told {
    let mut states = States::new(plan());
    let mut events = Vec::new();
    for bytes in tape() {
        states.push(&Record::parse(&bytes).unwrap(), &mut events);
    }
    let mut living: Vec<Lifetime> = states.living(END_NS).collect();
    living.sort_by_key(|lifetime| lifetime.who);
    let counters = states.counters();
    Told { events, living, counters, states }
}

fn golden(name: &str, actual: Vec<u8>) {
    let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    testkit::assert_golden(path, &String::from_utf8(actual).expect("UTF-8"));
}

#[test]
fn changes_as_text() {
    let mut out = Vec::new();
    for color in [false, true] {
        let mut text = StatesText::new(CLOCK, color, StatesHead::default());
        for event in told().events.iter().take(if color { 4 } else { usize::MAX }) {
            text.event(event, &mut out).unwrap();
        }
    }
    golden("states-text", out);
}

#[test]
fn texts_of_several_executables_have_one_head() {
    let head = StatesHead::default();
    let mut out = Vec::new();
    for _ in 0..2 {
        let mut text = StatesText::new(CLOCK, false, head.clone());
        told().events.iter().take(2).for_each(|event| text.event(event, &mut out).unwrap());
    }
    let out = String::from_utf8(out).unwrap();
    let heads: Vec<usize> = out.match_indices("OLD_STATE").map(|(at, _)| at).collect();
    assert_eq!((out.lines().count(), heads), (5, vec![16]), "{out}");
}

#[test]
fn json_lines() {
    let mut told = told();
    told.states.finish(END_NS, &mut told.events);
    let mut out = Vec::new();
    let mut json = StatesJson::new(CLOCK, true);
    let reasons = told.states.reasons();
    for event in &told.events {
        json.event(event, reasons, &Names, &mut out).unwrap();
    }
    let tally = told.states.tally(END_NS);
    json.sites(&tally, reasons, &Names, &mut out).unwrap();
    json.reasons(&tally, reasons, &mut out).unwrap();
    let capture = Summary { backend: "uprobe".into(), sites: 8, ..Summary::default() };
    let counters = told.counters;
    let part = StatesPart { counters, tally: &tally, reasons, symbols: &Names };
    let summary = StatesSummary { capture: &capture, parts: vec![part] };
    summary.write_json(&mut out).unwrap();
    // Of two executables there is one summary.
    StatesSummary { capture: &capture, parts: vec![part, part] }.write_json(&mut out).unwrap();
    golden("states-json", out);
}

#[test]
fn tables_and_summary() {
    let told = told();
    let (tally, reasons) = (told.states.tally(END_NS), told.states.reasons());
    let mut rows = GoroutineRows::default();
    for event in &told.events {
        if let Event::Lifetime(lifetime) = event {
            rows.push(lifetime);
        }
    }
    let mut out = Vec::new();
    for most in [100, 1] {
        write_site_table(&tally, reasons, most, &Names, &mut out).unwrap();
        out.push(b'\n');
    }
    write_reason_table(&tally, reasons, &mut out).unwrap();
    out.push(b'\n');
    write_goroutine_table(&rows, &told.living, reasons, 100, &Names, &mut out).unwrap();
    let capture = Summary {
        backend: "trampoline".into(),
        sites: 8,
        attach_ms: Some(12.5),
        notes: vec!["said by\nthe way".into()],
        ..Summary::default()
    };
    let counters = told.counters;
    let part = StatesPart { counters, tally: &tally, reasons, symbols: &Names };
    let summary = StatesSummary { capture: &capture, parts: vec![part] };
    summary.write_results(&mut out).unwrap();
    out.write_all(b"\n").unwrap();
    summary.write_text(&mut out).unwrap();
    golden("states-tables", out);
}

#[test]
fn a_timeline_for_perfetto() {
    let mut told = told();
    told.states.finish(END_NS, &mut told.events);
    let mut out = Vec::new();
    let file = PerfettoFile::default();
    let mut perfetto = Perfetto::new(file.clone(), Arrows::All);
    for event in &told.events {
        perfetto.event(event, &Names, &mut out).unwrap();
    }
    perfetto.finish(END_NS, &mut out).unwrap();
    file.close(&mut out).unwrap();
    let timeline = testkit::import_timeline(str::from_utf8(&out).unwrap());
    let arrows = timeline.arrows.iter().map(|&(from, to)| {
        let [from, to] = [from, to].map(|index| &timeline.slices[index]);
        format!("g{} {} > g{} {}", from.tid, from.name, to.tid, to.name)
    });
    let expected =
        ["g1 waiting > g7 runnable", "g1 waiting > g7 runnable", "g1 waiting > g8 waiting"];
    assert_eq!(arrows.collect::<Vec<_>>(), expected);
    golden("states-perfetto", out);
    let mut empty = Vec::new();
    PerfettoFile::default().close(&mut empty).unwrap();
    assert_eq!(serde_json::from_slice::<Vec<serde_json::Value>>(&empty).unwrap().len(), 0);
}

/// A goroutine wakes another one when nobody knows what it does itself, the woken one is lost right
/// afterwards, and one that was never heard of wakes a third.
#[test]
fn arrows_of_a_timeline_with_losses_begin_and_end_at_what_is_shown() {
    let lost = |mut bytes: Vec<u8>, lost: u32| {
        bytes[52..56].copy_from_slice(&lost.to_le_bytes());
        bytes
    };
    let us = 1000;
    let tape = [
        record(RecordKind::Process, 0, 0, 0, &[], 0),
        creation(us, 7, 1, 0),
        change(2 * us, 7, 1, 2, 0, 0),
        creation(3 * us, 8, 4, 7),
        creation(4 * us, 9, 4, 7),
        // 7 began to wait, and runs again by now.
        lost(change(50 * us, 8, 4, 1, 19, 7), 3),
        change(60 * us, 7, 4, 1, 19, 8),
        change(61 * us, 9, 4, 1, 19, 77),
        // 8 ran meanwhile.
        lost(change(80 * us, 8, 2, 4, 19, 8), 6),
        change(81 * us, 9, 1, 2, 0, 0),
    ];
    let mut states = States::new(plan());
    let mut events = Vec::new();
    for bytes in tape {
        states.push(&Record::parse(&bytes).unwrap(), &mut events);
    }
    assert_eq!((states.counters().mended, states.counters().breaks), (2, 0));
    states.finish(90 * us, &mut events);
    let mut out = Vec::new();
    let file = PerfettoFile::default();
    let mut perfetto = Perfetto::new(file.clone(), Arrows::All);
    events.iter().for_each(|event| perfetto.event(event, &Names, &mut out).unwrap());
    perfetto.finish(90 * us, &mut out).unwrap();
    file.close(&mut out).unwrap();
    let timeline = testkit::import_timeline(str::from_utf8(&out).unwrap());
    let slice = |index: usize| {
        let slice = &timeline.slices[index];
        format!("g{} {} {}-{}", slice.tid, slice.name, slice.from_ns / 1000, slice.to_ns / 1000)
    };
    let arrows = timeline.arrows.iter().map(|&(from, to)| [slice(from), slice(to)].join(" > "));
    // The file begins a microsecond before the first change.
    let expected = [
        "g7 unknown 2-60 > g8 waiting 3-50",
        "g7 unknown 2-60 > g9 waiting 4-61",
        "g7 unknown 2-60 > g8 unknown 50-80",
        "g8 unknown 50-80 > g7 runnable 60-90",
    ];
    assert_eq!(arrows.collect::<Vec<_>>(), expected);
    let threads = timeline.slices.iter().filter(|slice| slice.cat == "thread");
    // Whether 7 ran on for so long nobody knows.
    assert_eq!(threads.map(|slice| &*slice.name).collect::<Vec<_>>(), ["unknown", "g9"]);
}

/// Two executables are watched at once, and of one goroutine only.
#[test]
fn timelines_share_a_file_and_draw_no_arrow_from_what_is_not_shown() {
    let mut out = Vec::new();
    let file = PerfettoFile::default();
    let events = told().events;
    let mut all =
        [Arrows::Among(vec![7]), Arrows::None].map(|arrows| Perfetto::new(file.clone(), arrows));
    for event in &events {
        for (pid, perfetto) in [100, 200].into_iter().zip(&mut all) {
            let mut event = event.clone();
            match &mut event {
                Event::Change(change) => change.who.pid = pid,
                Event::Unknown(unknown) => unknown.who.pid = pid,
                Event::Lifetime(lifetime) => lifetime.who.pid = pid,
                Event::Gap { .. } | Event::ProcessExit { .. } => continue,
            }
            perfetto.event(&event, &Names, &mut out).unwrap();
        }
    }
    for perfetto in &mut all {
        perfetto.finish(END_NS, &mut out).unwrap();
    }
    file.close(&mut out).unwrap();
    let timeline = testkit::import_timeline(str::from_utf8(&out).unwrap());
    assert_eq!(timeline.arrows, []);
    let of = |pid| timeline.slices.iter().filter(|slice| slice.pid == pid).count();
    assert!(of(100) > 5 && of(100) == of(200), "{timeline:?}");
}

#[test]
fn names_of_origins_are_kept_for_a_recording() {
    let mut names = SymbolTable::default();
    let origin = Origin { gopc: 0x100, startpc: 0x200, parent: 1 };
    names.observe_origin(9, &origin, &Names);
    assert_eq!(names.location(9, 0xff), Names.location(9, 0xff));
    assert_eq!(names.location(9, 0x200), Names.location(9, 0x200));
    assert_eq!(names.location(8, 0x200), None);
}

#[test]
fn nothing_seen_has_a_reason() {
    let seen = StateCounters { changes: 1, ..StateCounters::default() };
    let none = StateCounters::default();
    let of = |sites, lost, counters: &StateCounters| {
        nothing_changed(&Summary { sites, lost, ..Summary::default() }, counters)
    };
    assert_eq!(of(3, 0, &seen), None);
    assert_eq!(of(3, 0, &none).unwrap(), "no goroutine changed its state while attached");
    assert_eq!(of(3, 5, &none).unwrap(), "no change was seen, but 5 records were lost");
    assert!(of(0, 0, &none).unwrap().starts_with("nothing is watched"));
}
