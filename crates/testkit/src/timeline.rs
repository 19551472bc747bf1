//! Reads a timeline in Chrome's JSON trace format by the rules of Perfetto's importer, and refuses
//! whatever that would drop, move or connect otherwise.
//!
//! The rules (src/trace_processor/importers/json and common/flow_tracker.cc, common/slice_tracker.cc there): events
//! are taken in the order of time, equal ones as they come. Slices of a track lie in each other
//! or apart. An arrow begins in the slice that began last on its track - who switches to a
//! coroutine, or ends by that, has left its own by then - and ends, without a binding point, at the
//! next slice that begins on its track.

use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// A slice, as imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Group of its track.
    pub pid: u64,
    /// Its track in the group.
    pub tid: u64,
    /// What it is called.
    pub name: String,
    /// Its category.
    pub cat: String,
    /// Begin, nanoseconds.
    pub from_ns: i64,
    /// End, nanoseconds.
    pub to_ns: i64,
}

/// What was imported.
#[derive(Debug, Default)]
pub struct Timeline {
    /// In the order of their begin.
    pub slices: Vec<Slice>,
    /// Arrows, as the slices that they connect.
    pub arrows: Vec<(usize, usize)>,
    /// Names of tracks.
    pub names: BTreeMap<(u64, u64), String>,
    stacks: HashMap<(u64, u64), Vec<usize>>,
    /// Ends of arrows that wait for a slice, by track.
    pending: HashMap<(u64, u64), Vec<(u64, i64)>>,
    /// Begins of arrows: in which slice, and when.
    begun: HashMap<u64, (usize, i64)>,
}

/// Imports a whole timeline.
///
/// # Panics
/// When something in it is against the rules, or would not be shown as it is meant.
pub fn import_timeline(text: &str) -> Timeline {
    let mut events: Vec<Value> = serde_json::from_str(text).expect("one JSON array");
    events.sort_by_key(|event| if event["ph"] == "M" { i64::MIN } else { nanos(event, "ts") });
    let mut timeline = Timeline::default();
    events.iter().for_each(|event| timeline.take(event));
    assert!(timeline.pending.is_empty(), "arrows that end nowhere: {:?}", timeline.pending);
    assert_eq!(timeline.begun.len(), timeline.arrows.len(), "arrows without an end");
    timeline.check_begins();
    for slice in &timeline.slices {
        let is_named = timeline.names.contains_key(&(slice.pid, slice.tid)) || slice.cat == "loss";
        assert!(is_named, "the track of {slice:?} has no name");
    }
    timeline
}

/// Microseconds with a fraction, as whole nanoseconds.
fn nanos(event: &Value, key: &str) -> i64 {
    let micros = event[key].as_f64().unwrap_or_else(|| panic!("no {key} in {event}"));
    assert!(micros >= 0.0, "a negative {key} in {event}");
    (micros * 1e3).round() as i64
}

fn text(event: &Value, key: &str) -> String {
    let text = event[key].as_str().unwrap_or_else(|| panic!("no {key} in {event}"));
    assert!(!text.is_empty(), "an empty {key} in {event}");
    text.to_owned()
}

impl Timeline {
    fn take(&mut self, event: &Value) {
        let id = |key: &str| {
            let number = event[key].as_u64().filter(|&number| u32::try_from(number).is_ok());
            number.unwrap_or_else(|| panic!("no 32 bits of {key} in {event}"))
        };
        let track = (id("pid"), id("tid"));
        match &*text(event, "ph") {
            "M" if event["name"] == "process_name" => _ = text(&event["args"], "name"),
            "M" => {
                assert_eq!(event["name"], "thread_name", "{event}");
                let known = self.names.insert(track, text(&event["args"], "name"));
                assert_eq!(known, None, "named twice: {event}");
            }
            "X" => self.slice(track, event),
            "s" => {
                let number = event["id"].as_u64().expect("an id");
                let top = self.stacks.get(&track).and_then(|stack| stack.last()).copied();
                let top = top.unwrap_or_else(|| panic!("an arrow from nowhere: {event}"));
                let begin = (top, nanos(event, "ts"));
                assert_eq!(self.begun.insert(number, begin), None, "begun twice: {event}");
            }
            "f" => {
                assert!(event["bp"].is_null(), "{event}");
                let number = event["id"].as_u64().expect("an id");
                self.pending.entry(track).or_default().push((number, nanos(event, "ts")));
            }
            other => panic!("phase {other} in {event}"),
        }
    }

    fn slice(&mut self, (pid, tid): (u64, u64), event: &Value) {
        let from_ns = nanos(event, "ts");
        let to_ns = from_ns + nanos(event, "dur");
        let (name, cat) = (text(event, "name"), text(event, "cat"));
        let index = self.slices.len();
        let stack = self.stacks.entry((pid, tid)).or_default();
        while stack.last().is_some_and(|&top| self.slices[top].to_ns <= from_ns) {
            stack.pop();
        }
        if let Some(&top) = stack.last() {
            assert!(self.slices[top].to_ns >= to_ns, "{event} crosses {:?}", self.slices[top]);
        }
        stack.push(index);
        self.slices.push(Slice { pid, tid, name, cat, from_ns, to_ns });
        for (number, ts_ns) in self.pending.remove(&(pid, tid)).unwrap_or_default() {
            assert_eq!(from_ns, ts_ns, "arrow {number} ends at a later slice: {event}");
            let begun = self.begun.get(&number);
            let begun = begun.unwrap_or_else(|| panic!("arrow {number} has no begin: {event}"));
            self.arrows.push((begun.0, index));
        }
    }

    /// An arrow from a track that shows nothing then would be drawn from the slice before. Only
    /// that of one that has ended, and so has no later slice, is right.
    fn check_begins(&self) {
        let mut last: HashMap<(u64, u64), usize> = HashMap::new();
        for (index, slice) in self.slices.iter().enumerate() {
            last.insert((slice.pid, slice.tid), index);
        }
        for (number, &(index, ts_ns)) in &self.begun {
            let slice = &self.slices[index];
            let is_last = last[&(slice.pid, slice.tid)] == index;
            assert!(
                ts_ns <= slice.to_ns || is_last,
                "arrow {number} begins at {ts_ns}, where nothing is, behind {slice:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = r#"{"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"a"}},
        {"name":"thread_name","ph":"M","pid":1,"tid":2,"args":{"name":"b"}}"#;

    fn slice(tid: u32, ts: f64, dur: f64) -> String {
        format!(
            r#"{{"name":"n","cat":"c","ph":"X","ts":{ts},"dur":{dur},"pid":1,"tid":{tid},"args":{{}}}}"#
        )
    }

    fn arrow(ph: &str, tid: u32, ts: f64) -> String {
        format!(r#"{{"name":"n","cat":"c","ph":"{ph}","ts":{ts},"pid":1,"tid":{tid},"id":1}}"#)
    }

    fn import(events: &[String]) -> std::thread::Result<Timeline> {
        let text = format!("[{NAMES},{}]", events.join(","));
        std::panic::catch_unwind(|| import_timeline(&text))
    }

    #[test]
    fn what_perfetto_takes_is_taken_and_nothing_else() {
        let whole = [
            arrow("s", 1, 2.0),
            arrow("f", 2, 2.0),
            slice(2, 2.0, 1.0),
            slice(1, 0.5, 3.0),
            slice(1, 3.5, 1.0),
        ];
        let timeline = import(&whole).expect("it is right");
        let [from, to] =
            [timeline.arrows[0].0, timeline.arrows[0].1].map(|index| &timeline.slices[index]);
        assert_eq!((from.tid, from.from_ns, to.tid, to.from_ns), (1, 500, 2, 2000));
        for wrong in [
            vec![slice(1, -1.0, 2.0)],
            vec![slice(1, 0.0, 2.0), slice(1, 1.0, 2.0)],
            vec![arrow("s", 1, 2.0), arrow("f", 2, 2.0), slice(2, 2.0, 1.0)],
            vec![slice(1, 0.0, 3.0), arrow("s", 1, 2.0), arrow("f", 2, 2.0)],
            vec![slice(1, 0.0, 3.0), slice(2, 2.0, 1.0), arrow("s", 1, 2.0), arrow("f", 2, 2.0)],
            vec![slice(3, 0.0, 1.0)],
            // From where nothing is: records were lost there.
            vec![
                slice(1, 0.0, 1.0),
                arrow("s", 1, 2.0),
                arrow("f", 2, 2.0),
                slice(2, 2.0, 1.0),
                slice(1, 3.0, 1.0),
            ],
            // One id for two.
            vec![
                slice(1, 0.0, 9.0),
                arrow("s", 1, 2.0),
                arrow("f", 2, 2.0),
                arrow("f", 2, 2.0),
                slice(2, 2.0, 1.0),
            ],
        ] {
            assert!(import(&wrong).is_err(), "{wrong:?}");
        }
    }
}
