//! A plan of state changes, records for it, and generated lives.

use address::{FileOffset, Svma};
use probe::states::StateNames;
use probe::{Guard, Plan, PlannedFunction, Program, Site};
use proptest::prelude::*;
use std::sync::Arc;
use wire::{GSource, Record, RecordFlags, RecordKind, SiteKind};

const CHANGE: u32 = 0;
const CREATION: u32 = 1;
pub const PID: u32 = 100;

/// Names of reasons by number.
pub fn reasons() -> Vec<&'static str> {
    let mut names = vec!["other"; 40];
    names[0] = "";
    names[18] = "select";
    names[19] = "chan receive";
    names[33] = "stopping the world";
    names[38] = "coroutine";
    names
}

pub fn plan() -> Arc<Plan> {
    let function = |name: &str| PlannedFunction {
        name: name.to_owned(),
        file: String::new(),
        line: 0,
        entry: Svma(0x1000),
        size: 16,
        traced: false,
        witness: None,
        args: Vec::new(),
        results: Vec::new(),
    };
    let site = |function, kind, guard| Site {
        function,
        kind,
        address: Svma(0x1000),
        file_offset: FileOffset(0),
        sp_delta: 0,
        g_source: GSource::R14,
        program: Program::default(),
        guard,
    };
    let guard = Guard { after: Svma(0x1008), after_offset: FileOffset(8), zero: true };
    Arc::new(Plan {
        functions: vec![function("runtime.casgstatus"), function("runtime.newproc1")],
        sites: vec![site(0, SiteKind::At, Some(guard)), site(1, SiteKind::Return, None)],
        states: Some(StateNames { reasons: reasons().into_iter().map(str::to_owned).collect() }),
        ..Plan::default()
    })
}

/// A record with these words as fields.
pub fn record(
    kind: RecordKind,
    site: u32,
    ts_ns: u64,
    goid: u64,
    words: &[u64],
    lost: u32,
) -> Vec<u8> {
    let mut payload = Vec::new();
    for word in words {
        payload.extend_from_slice(&[0, 0, 8, 0, 8, 0, 0, 0]);
        payload.extend_from_slice(&word.to_le_bytes());
    }
    let record = Record {
        ts_ns,
        goid,
        stack: 0,
        depth: 0,
        caller: 0,
        site,
        pid: PID,
        tid: 1,
        lost,
        cpu: 0,
        flags: RecordFlags(0),
        kind,
        payload: &payload,
    };
    let mut bytes = Vec::new();
    record.write(&mut bytes);
    bytes
}

pub fn change(ts_ns: u64, goid: u64, old: u32, new: u32, reason: u8, by: u64) -> Vec<u8> {
    let words = [goid, reason.into(), old.into(), new.into()];
    record(RecordKind::Hit, CHANGE, ts_ns, by, &words, 0)
}

pub fn creation(ts_ns: u64, goid: u64, state: u64, parent: u64) -> Vec<u8> {
    let words = [goid, 0x100, 0x200, state, 0, parent];
    record(RecordKind::Hit, CREATION, ts_ns, parent, &words, 0)
}

pub fn found(ts_ns: u64, goid: u64, state: u64) -> Vec<u8> {
    record(RecordKind::Goroutine, 0, ts_ns, goid, &[state, 19, 0x300, 0x400, 1], 0)
}

/// What a goroutine goes through after it was made, and how long it takes each time.
#[derive(Clone, Debug)]
pub struct Life {
    start_ns: u64,
    steps: Vec<(u32, u64)>,
}

impl Life {
    pub fn ends(&self) -> bool {
        self.steps.last().is_some_and(|(state, _)| *state == 6)
    }
}

/// Walks over what may follow a state.
fn life() -> impl Strategy<Value = Life> {
    let step = (any::<prop::sample::Index>(), 1u64..1000);
    (0u64..5000, prop::collection::vec(step, 0..30)).prop_map(|(start_ns, choices)| {
        let mut state = 1;
        let mut steps = Vec::new();
        for (choice, ns) in choices {
            let next: &[u32] = match state {
                1 => &[2],
                2 => &[1, 3, 4, 6, 8],
                3 => &[2, 1],
                4 => &[1],
                8 => &[2],
                _ => break,
            };
            state = *choice.get(next);
            steps.push((state, ns));
        }
        Life { start_ns, steps }
    })
}

pub fn lives() -> impl Strategy<Value = Vec<Life>> {
    prop::collection::vec(life(), 1..20)
}

/// Records of all lives in the order of time.
pub struct Tape {
    pub records: Vec<Vec<u8>>,
    pub end_ns: u64,
}

impl Tape {
    pub fn of(lives: &[Life]) -> Self {
        let mut all = Vec::new();
        for (goid, life) in (10u64..).zip(lives) {
            let (mut now, mut old) = (life.start_ns, 1);
            all.push((now, creation(now, goid, 1, 1)));
            for &(new, ns) in &life.steps {
                now += ns;
                all.push((now, change(now, goid, old, new, 19, goid)));
                old = new;
            }
        }
        all.sort_by_key(|(ts_ns, _)| *ts_ns);
        let end_ns = all.last().map_or(0, |(ts_ns, _)| *ts_ns);
        Self { records: all.into_iter().map(|(_, record)| record).collect(), end_ns }
    }

    pub fn is_creation(&self, at: usize) -> bool {
        Record::parse(&self.records[at]).unwrap().site == CREATION
    }
}
