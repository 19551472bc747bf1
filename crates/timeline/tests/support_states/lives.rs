//! Generated lives of goroutines, and their records.

use super::support_states::{CREATION, change, creation};
use proptest::prelude::*;
use wire::Record;

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
