//! JSON Lines: one object a line, as `cli.md` says.

use crate::call_json::{push_arguments, push_caller, push_results, push_ret};
use crate::clock::Clock;
use crate::panic_value::describe;
use crate::places::Places;
use crate::printable::without_half_char;
use crate::value_json::{push_body, push_str};
use probe::Plan;
use probe::value::Value;
use std::io::{self, Write};
use std::sync::Arc;
use timeline::{Call, End, Event, Panic, Symbolizer};

/// The name of an end in JSON and text.
pub(crate) const fn end_name(end: End) -> &'static str {
    match end {
        End::Return => "return",
        End::Tail => "tail",
        End::Panic => "panic",
        End::Goexit => "goexit",
        End::Switch => "switch",
        End::Exec => "exec",
        End::Lost => "lost",
        End::Open => "open",
    }
}

/// Writes events as JSON Lines. Calls are written when they end.
#[derive(Debug)]
pub struct Json {
    plan: Arc<Plan>,
    clock: Clock,
    places: Places,
    line: Vec<u8>,
}

impl Json {
    /// A writer for events of `plan`.
    pub fn new(plan: Arc<Plan>, clock: Clock) -> Self {
        Self { plan, clock, places: Places::default(), line: Vec::with_capacity(1024) }
    }

    /// Writes what `event` says; nothing for entries and process ends.
    pub fn event(
        &mut self,
        event: &Event,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.line.clear();
        match event {
            Event::Enter(_) => return Ok(()),
            Event::Leave(call) => {
                self.call(call, symbols);
                if call.end == End::Exec {
                    self.places.forget(call.pid);
                }
            }
            Event::Panic(panic) => self.panic(panic, symbols),
            Event::Panicking(_) => return Ok(()),
            Event::Gap { cpu, from_ns, to_ns, lost } => self.gap(*cpu, *from_ns, *to_ns, *lost),
            Event::ProcessExit { pid, .. } => {
                self.places.forget(*pid);
                return Ok(());
            }
        }
        self.line.push(b'\n');
        out.write_all(&self.line)
    }

    fn call(&mut self, call: &Call, symbols: &dyn Symbolizer) {
        let plan = Arc::clone(&self.plan);
        let function = plan.functions.get(call.function as usize);
        let caller = self.places.caller(call, symbols);
        let ret = self.places.exit(call, &plan, symbols);
        let line = &mut self.line;
        let parent = call.parent.map_or("null".to_owned(), |id| id.to_string());
        put(line, format_args!("{{\"type\":\"call\",\"pid\":{},\"tid\":{}", call.pid, call.tid));
        put(line, format_args!(",\"goid\":{},\"id\":{}", call.goid, call.id));
        put(line, format_args!(",\"parent\":{parent},\"depth\":{},\"func\":", call.depth));
        push_str(line, function.map_or("", |function| &function.name));
        let duration = call.end_ns.saturating_sub(call.start_ns);
        put(line, format_args!(",\"start_ns\":{}", self.clock.unix_ns(call.start_ns)));
        put(line, format_args!(",\"duration_ns\":{duration},\"exit\":"));
        put(line, format_args!("\"{}\",\"end_exact\":{}", end_name(call.end), call.end_exact));
        line.push(b',');
        push_arguments(line, &plan, call, symbols);
        line.push(b',');
        push_results(line, &plan, call, symbols);
        line.push(b',');
        push_caller(line, &caller, call.caller);
        line.push(b',');
        push_ret(line, &ret);
        line.push(b'}');
    }

    fn panic(&mut self, panic: &Panic, symbols: &dyn Symbolizer) {
        let described = describe(panic, symbols);
        let line = &mut self.line;
        put(line, format_args!("{{\"type\":\"panic\",\"pid\":{}", panic.pid));
        put(line, format_args!(",\"goid\":{}", panic.goid));
        put(line, format_args!(",\"ts_ns\":{},\"value_type\":", self.clock.unix_ns(panic.ts_ns)));
        match &described.type_name {
            Some(name) => push_str(line, name),
            None => line.extend_from_slice(b"null"),
        }
        line.push(b',');
        match described.value {
            Value::Pointer(address) => {
                put(line, format_args!("\"value\":{{\"addr\":\"0x{address:x}\"}}"));
            }
            value => push_body(line, &described.spec, &value, panic.pid, symbols),
        }
        if let Some((bytes, len)) = described.message {
            let shown = without_half_char(&bytes);
            line.extend_from_slice(b",\"error\":");
            push_str(line, &String::from_utf8_lossy(shown));
            if len > shown.len() as u64 {
                put(line, format_args!(",\"error_cut\":{}", len - shown.len() as u64));
            }
        }
        line.extend_from_slice(b",\"recovered\":false}");
    }

    fn gap(&mut self, cpu: u16, from_ns: u64, to_ns: u64, lost: u32) {
        let from = match from_ns {
            0 => "null".to_owned(),
            _ => self.clock.unix_ns(from_ns).to_string(),
        };
        let to = self.clock.unix_ns(to_ns);
        put(&mut self.line, format_args!("{{\"type\":\"gap\",\"cpu\":{cpu},\"from_ns\":{from}"));
        put(&mut self.line, format_args!(",\"to_ns\":{to},\"lost\":{lost}}}"));
    }
}

fn put(line: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A Vec takes everything.
    _ = line.write_fmt(text);
}
