//! A small language for hand-made captures: functions, then hits in order.

use address::{FileOffset, Svma};
use probe::value::{ValueKind, ValueSpec};
use probe::{Plan, PlannedFunction, Program, Site, Witness};
use std::collections::HashMap;
use std::sync::Arc;
use timeline::{Event, Location, Options, Symbolizer, Timeline};
use wire::{FIELD_HEADER, FieldStatus, GSource, Record, RecordFlags, RecordKind, SiteKind};

/// Upper end of every goroutine stack in the stories.
pub const STACK_HI: u64 = 0xc000_0800_0000;

/// An owned record.
#[derive(Clone, Debug)]
pub struct Entry {
    pub record: Record<'static>,
    pub payload: Vec<u8>,
}

/// A capture under construction. Every hit is 1 ms after the one before.
#[derive(Default)]
pub struct Story {
    pub plan: Plan,
    pub records: Vec<Entry>,
    sites: HashMap<(String, &'static str), u32>,
    goid: u64,
    now: u64,
    lost: u32,
    stack: u64,
}

/// One payload field.
pub fn field(data: &[u8]) -> Vec<u8> {
    raw_field(FieldStatus::Ok, data, data.len() as u32)
}

/// A field of any status and original length.
pub fn raw_field(status: FieldStatus, data: &[u8], original: u32) -> Vec<u8> {
    let mut bytes = vec![0; FIELD_HEADER];
    bytes[0] = status as u8;
    bytes[2..4].copy_from_slice(&(data.len() as u16).to_le_bytes());
    bytes[4..8].copy_from_slice(&original.to_le_bytes());
    bytes.extend_from_slice(data);
    bytes.resize(FIELD_HEADER + data.len().next_multiple_of(8), 0);
    bytes
}

/// A field of one word.
pub fn word(value: u64) -> Vec<u8> {
    field(&value.to_le_bytes())
}

/// A value specification.
pub fn value(name: &str, type_name: &str, kind: ValueKind) -> ValueSpec {
    ValueSpec { name: name.into(), type_name: type_name.into(), kind }
}

/// `name int`.
pub fn int(name: &str) -> ValueSpec {
    value(name, "int", ValueKind::Int { size: 8 })
}

const WITNESSES: [(&str, Witness); 5] = [
    ("runtime.gopanic", Witness::Panic),
    ("runtime.recovery", Witness::Recovery),
    ("runtime.Goexit", Witness::Goexit),
    ("runtime.fatalpanic", Witness::FatalPanic),
    ("runtime.gdestroy", Witness::GoroutineDeath),
];

impl Story {
    /// A plan with the watched runtime functions and `names`, which take and return nothing.
    pub fn of(names: &[&str]) -> Self {
        let mut story = Self { goid: 18, ..Self::default() };
        for (name, witness) in WITNESSES {
            story.add(name, Some(witness), false, vec![], vec![]);
        }
        for name in names {
            story.function(name, vec![], vec![]);
        }
        story
    }

    /// A traced function.
    pub fn function(
        &mut self,
        name: &str,
        args: Vec<ValueSpec>,
        results: Vec<ValueSpec>,
    ) -> &mut Self {
        self.add(name, None, true, args, results);
        self
    }

    fn add(
        &mut self,
        name: &str,
        witness: Option<Witness>,
        traced: bool,
        args: Vec<ValueSpec>,
        results: Vec<ValueSpec>,
    ) {
        let function = self.plan.functions.len() as u32;
        let entry = u64::from(function + 1) << 12;
        self.plan.functions.push(PlannedFunction {
            name: name.to_owned(),
            file: "/src/app/main.go".to_owned(),
            line: 10 * (function + 1),
            entry: Svma(entry),
            size: 0x1000,
            traced,
            witness,
            args,
            results,
        });
        let kinds = [
            ("entry", SiteKind::Entry, 0x11),
            ("return", SiteKind::Return, 0x101),
            ("tail", SiteKind::TailJump, 0x201),
        ];
        for (label, kind, offset) in kinds {
            self.sites.insert((name.to_owned(), label), self.plan.sites.len() as u32);
            self.plan.sites.push(Site {
                function,
                kind,
                address: Svma(entry + offset),
                file_offset: FileOffset(entry + offset),
                sp_delta: 0,
                g_source: GSource::R14,
                program: Program::default(),
                guard: None,
                condition: 0,
            });
        }
    }

    /// Makes a watched function a traced one too.
    pub fn trace_witness(&mut self, name: &str) -> &mut Self {
        for function in self.plan.functions.iter_mut().filter(|f| f.name == name) {
            function.traced = true;
        }
        self
    }

    /// What follows happens on this goroutine's own stack.
    pub fn g(&mut self, goid: u64) -> &mut Self {
        (self.goid, self.stack) = (goid, 0);
        self
    }

    /// What follows happens on a system stack, for this goroutine.
    pub fn g0(&mut self, stack: u64, goid: u64) -> &mut Self {
        (self.goid, self.stack) = (goid, stack);
        self
    }

    /// Time passes, ms.
    pub fn wait(&mut self, ms: u64) -> &mut Self {
        self.now += ms * 1_000_000;
        self
    }

    /// So many records are lost before the next one.
    pub fn lose(&mut self, lost: u32) -> &mut Self {
        self.lost += lost;
        self
    }

    fn push(&mut self, kind: RecordKind, site: u32, depth: u64, fields: &[Vec<u8>]) -> &mut Self {
        self.now += 1_000_000;
        let system = if self.stack != 0 { RecordFlags::SYSTEM_STACK } else { 0 };
        let record = Record {
            ts_ns: self.now,
            goid: self.goid,
            stack: self.stack,
            depth,
            caller: 0,
            site,
            pid: 77,
            tid: 78,
            lost: self.lost,
            cpu: 3,
            flags: RecordFlags(system),
            kind,
            payload: &[],
        };
        self.records.push(Entry { record, payload: fields.concat() });
        self
    }

    fn site(&self, name: &str, label: &'static str) -> u32 {
        self.sites[&(name.to_owned(), label)]
    }

    /// An entry, called from 0x2f bytes into the function `caller`.
    pub fn enter(&mut self, caller: &str, name: &str, depth: u64, fields: &[Vec<u8>]) -> &mut Self {
        let place = self.plan.functions.iter().position(|f| f.name == caller);
        self.push(RecordKind::Hit, self.site(name, "entry"), depth, fields);
        if let (Some(place), Some(entry)) = (place, self.records.last_mut()) {
            entry.record.caller = (place as u64 + 1) * 0x1000 + 0x2f;
        }
        self
    }

    /// A return.
    pub fn ret(&mut self, name: &str, depth: u64, fields: &[Vec<u8>]) -> &mut Self {
        self.push(RecordKind::Hit, self.site(name, "return"), depth, fields)
    }

    /// A tail jump.
    pub fn tail(&mut self, name: &str, depth: u64) -> &mut Self {
        self.push(RecordKind::Hit, self.site(name, "tail"), depth, &[])
    }

    /// `panic(v)`: type word, data word, head and text as the witness reads them.
    pub fn panic(&mut self, depth: u64, type_word: u64, head: &[u8], text: &str) -> &mut Self {
        let fields = [word(type_word), word(0xc000_0100), field(head), field(text.as_bytes())];
        self.push(RecordKind::Hit, self.site("runtime.gopanic", "entry"), depth, &fields)
    }

    /// The frame whose stack pointer lies `depth` below the stack's end recovers; seen on g0.
    pub fn recover(&mut self, depth: u64) -> &mut Self {
        let goid = self.goid;
        let fields = [word(goid), word(STACK_HI), word(STACK_HI - depth)];
        let site = self.site("runtime.recovery", "entry");
        self.g0(0xc000_0001, goid).push(RecordKind::Hit, site, 32, &fields).g(goid)
    }

    /// `runtime.Goexit()`.
    pub fn goexit(&mut self, depth: u64) -> &mut Self {
        self.push(RecordKind::Hit, self.site("runtime.Goexit", "entry"), depth, &[])
    }

    /// The panic reaches the end of the stack.
    pub fn fatal(&mut self, depth: u64) -> &mut Self {
        self.push(RecordKind::Hit, self.site("runtime.fatalpanic", "entry"), depth, &[])
    }

    /// The goroutine is gone; seen on g0.
    pub fn die(&mut self) -> &mut Self {
        let goid = self.goid;
        let site = self.site("runtime.gdestroy", "entry");
        self.g0(0xc000_0001, 0).push(RecordKind::Hit, site, 32, &[word(goid)]).g(goid)
    }

    /// execve.
    pub fn exec(&mut self) -> &mut Self {
        self.push(RecordKind::Exec, 0, 0, &[])
    }

    /// The process is gone.
    pub fn exit(&mut self) -> &mut Self {
        self.push(RecordKind::ProcessExit, 0, 0, &[])
    }

    /// Time of the last record, nanoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// All events, calls still open at the end included.
    pub fn events(&self, options: Options) -> (Vec<Event>, Timeline) {
        let mut timeline = Timeline::new(Arc::new(self.plan.clone()), options);
        let mut events = Vec::new();
        for entry in &self.records {
            let record = Record { payload: &entry.payload, ..entry.record };
            timeline.push(&record, &mut events);
        }
        timeline.finish(self.now + 1_000_000, &mut events);
        (events, timeline)
    }
}

/// Names by the address scheme of [`Story`], and a few types.
pub struct Names(pub Vec<String>);

impl Names {
    pub fn of(plan: &Plan) -> Self {
        Self(plan.functions.iter().map(|function| function.name.clone()).collect())
    }
}

impl Symbolizer for Names {
    fn location(&self, _pid: u32, address: u64) -> Option<Location> {
        self.image_location(address)
    }

    fn image_location(&self, address: u64) -> Option<Location> {
        let index = (address >> 12).checked_sub(1)?;
        Some(Location {
            func: self.0.get(usize::try_from(index).ok()?)?.clone(),
            offset: address & 0xfff,
            file: "/src/app/main.go".to_owned(),
            line: (10 * (index + 1) + ((address & 0xfff) >> 8)) as u32,
        })
    }

    fn type_name(&self, _pid: u32, address: u64) -> Option<(String, u8)> {
        let (name, kind) = match address {
            0x50_0000 => ("string", 24),
            0x50_0020 => ("*errors.errorString", 22),
            0x50_0040 => ("int", 2),
            0x50_0060 => ("main.Broken", 25),
            _ => return None,
        };
        Some((name.to_owned(), kind))
    }
}
