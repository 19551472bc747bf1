//! `--stat --by EXPR`: a line per function and value.

use crate::printable::push_printable;
use crate::stat::{Figures, function_name, write_aligned};
use crate::value_json::{push_body, push_str};
use crate::value_text::push_value;
use probe::Plan;
use probe::expression::Term;
use probe::screen::By;
use probe::value::{Value, ValueKind, ValueSpec};
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use timeline::{Call, End, Event, Stats, Symbolizer};

/// Values told apart per function; calls with further ones are counted together.
const MAX_VALUES: usize = 1000;

/// Values told apart in all.
const MAX_ROWS: usize = 100_000;

/// Statistics by function and value.
#[derive(Debug)]
pub struct StatBy {
    plan: Arc<Plan>,
    /// Calls are counted as ones of a function that is a row.
    stats: Stats,
    rows: Vec<Row>,
    by_value: HashMap<(u32, Vec<u8>), u32>,
    by_function: HashMap<u32, PerFunction>,
    /// The value as JSON, of the call at hand.
    key: Vec<u8>,
}

#[derive(Debug, Default)]
struct PerFunction {
    values: usize,
    other: Option<u32>,
}

#[derive(Debug)]
struct Row {
    function: u32,
    /// Members of a JSON object.
    json: Vec<u8>,
    text: String,
}

impl StatBy {
    /// For calls of `plan`, which says by what.
    pub fn new(plan: Arc<Plan>) -> Self {
        Self {
            plan,
            stats: Stats::default(),
            rows: Vec::new(),
            by_value: HashMap::new(),
            by_function: HashMap::new(),
            key: Vec::new(),
        }
    }

    /// Whether a plan says by what its statistics are split.
    pub fn is_asked(plan: &Plan) -> bool {
        plan.screens.values().any(|screen| screen.by.is_some())
    }

    /// Takes one event; only [`Event::Leave`] says something.
    pub fn push(&mut self, event: Event, symbols: &dyn Symbolizer) {
        let Event::Leave(mut call) = event else { return };
        let row = self.row(&call, symbols);
        call.function = row;
        self.stats.push(&Event::Leave(call));
    }

    fn row(&mut self, call: &Call, symbols: &dyn Symbolizer) -> u32 {
        let (spec, value) = value_of(&self.plan, call);
        self.key.clear();
        push_body(&mut self.key, &spec, &value, call.pid, symbols);
        let known = (call.function, std::mem::take(&mut self.key));
        if let Some(&row) = self.by_value.get(&known) {
            self.key = known.1;
            return row;
        }
        let of_function = self.by_function.entry(call.function).or_default();
        let next = self.rows.len() as u32;
        if of_function.values >= MAX_VALUES || self.rows.len() >= MAX_ROWS {
            self.key = known.1;
            let row = *of_function.other.get_or_insert(next);
            if row == next {
                let json = b"\"other\":true".to_vec();
                self.rows.push(Row { function: call.function, json, text: "(other)".to_owned() });
            }
            return row;
        }
        of_function.values += 1;
        let mut text = String::new();
        push_value(&mut text, &spec, &value, call.pid, symbols);
        let mut json = b"\"type\":".to_vec();
        push_str(&mut json, &spec.type_name);
        json.push(b',');
        json.extend_from_slice(&known.1);
        self.rows.push(Row { function: call.function, json, text });
        self.by_value.insert(known, next);
        next
    }

    /// By what.
    fn text(&self) -> &str {
        let mut all = self.plan.screens.values().filter_map(|screen| screen.by.as_ref());
        all.next().map_or("", |by| &by.text)
    }

    /// Writes one `{"type":"stat"}` line per function and value.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        for stat in self.stats.table() {
            let Some(row) = self.rows.get(stat.function as usize) else { continue };
            let mut line = b"{\"type\":\"stat\",\"func\":".to_vec();
            push_str(&mut line, function_name(&self.plan, row.function));
            line.extend_from_slice(b",\"by\":{\"name\":");
            push_str(&mut line, self.text());
            line.push(b',');
            line.extend_from_slice(&row.json);
            line.extend_from_slice(b"},");
            let figures = serde_json::to_vec(&Figures::of(&stat))?;
            line.extend_from_slice(figures.get(1..).unwrap_or_default());
            line.push(b'\n');
            out.write_all(&line)?;
        }
        Ok(())
    }

    /// Writes the table for people.
    pub fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut head = "FUNCTION  ".to_owned();
        push_printable(&mut head, self.text());
        let stats = self.stats.table();
        let rows = stats.iter().filter_map(|stat| {
            let row = self.rows.get(stat.function as usize)?;
            let mut name = String::new();
            push_printable(&mut name, function_name(&self.plan, row.function));
            name.push_str("  ");
            name.push_str(&row.text);
            Some((stat, name))
        });
        write_aligned(head, rows, out)
    }
}

/// The value that a call counts under.
fn value_of(plan: &Plan, call: &Call) -> (ValueSpec, Value) {
    let by = plan.screens.get(&call.function).and_then(|screen| screen.by.as_ref());
    let function = plan.functions.get(call.function as usize);
    let (Some(By { text, term }), Some(function)) = (by, function) else {
        return unavailable("", "not asked of this function");
    };
    let captured = |specs: &[ValueSpec], values: &[Value], index: u16, missing: &str| {
        let index = usize::from(index);
        match (specs.get(index), values.get(index)) {
            (Some(spec), Some(value)) => (spec.clone(), value.clone()),
            _ => unavailable(text, missing),
        }
    };
    let number = |type_name: &str, value: Value| {
        let kind = ValueKind::Uint { size: 8 };
        (ValueSpec { name: text.as_str().into(), type_name: type_name.into(), kind }, value)
    };
    match term {
        Ok(Term::Arg(index)) => captured(&function.args, &call.args, *index, "not captured"),
        Ok(Term::Result(index)) => {
            captured(&function.results, &call.results, *index, "the call did not return")
        }
        Ok(Term::Goid) => number("uint64", Value::Uint(call.goid)),
        Ok(Term::Duration) if matches!(call.end, End::Lost | End::Open) => {
            unavailable(text, "when the call ended is not known")
        }
        Ok(Term::Duration) => {
            let ns = call.end_ns.saturating_sub(call.start_ns);
            number("time.Duration", Value::Int(i64::try_from(ns).unwrap_or(i64::MAX)))
        }
        Ok(_) => unavailable(text, "a constant"),
        Err(reason) => unavailable(text, reason),
    }
}

fn unavailable(name: &str, reason: &str) -> (ValueSpec, Value) {
    let kind = ValueKind::Unavailable(reason.to_owned());
    let spec = ValueSpec { name: name.into(), type_name: "".into(), kind };
    (spec, Value::Unavailable(reason.to_owned().into()))
}
