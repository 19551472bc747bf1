//! Plans for fixtures, and records read until nothing is missing.
#![allow(dead_code, reason = "each test binary uses its part")]

use address::ReadMemory as _;
use binary::layout::RuntimeLayouts;
use binary::{DebugInfo, Executable, tls};
use capture::{Capture as _, Request, Scope};
use capture_trampoline::{Options, TrampolineCapture};
use probe::compile::{RecoverySp, WitnessOffsets};
use probe::pattern::Pattern;
use probe::planner::{Question, RuntimeFacts, ValueOptions, plan};
use probe::selection::{Selection, Wanted};
use probe::{Limits, Plan, RuntimeLayout};
use process::{FileSource, Process};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wire::{Record, RecordKind, SiteKind};

/// An executable and a plan for some of its functions.
pub struct Subject {
    pub path: PathBuf,
    pub executable: Arc<Executable>,
    pub plan: Plan,
}

impl Subject {
    pub fn new(path: &Path, patterns: &[&str]) -> Self {
        let source = Arc::new(FileSource::open(path).unwrap());
        let executable = Arc::new(Executable::open(source).unwrap());
        let plan = make_plan(&executable, patterns);
        Self { path: path.to_owned(), executable, plan }
    }

    pub fn request(&self, pid: u32) -> Request<'_> {
        Request {
            plan: &self.plan,
            path: self.path.clone(),
            scope: Scope::Pids(vec![pid]),
            ring_bytes: 16 << 20,
        }
    }

    pub fn options(&self) -> Options {
        Options { executable: Some(Arc::clone(&self.executable)), ..Options::default() }
    }

    pub fn attach(&self, pid: u32) -> Result<TrampolineCapture, capture::Error> {
        TrampolineCapture::install(&self.request(pid), self.options())
    }

    /// Asserts that the process's code is the file's and that nothing of ours is mapped.
    pub fn assert_clean(&self, pid: u32) {
        let different = self.different_bytes(pid);
        assert!(different.is_empty(), "text differs at {different:x?}");
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert!(!maps.contains("memfd:gospect"), "{maps}");
    }

    /// Addresses (in the image) where the code in memory is not the file's.
    pub fn different_bytes(&self, pid: u32) -> Vec<u64> {
        let process = Process::open(pid).unwrap();
        let image = self.executable.image();
        let bias = process.bias(image.base()).unwrap();
        let code = image.segments().iter().find(|s| s.kind == 1 && s.flags & 1 != 0).unwrap();
        let file = image.read_vec(code.address, code.file_size).unwrap();
        let mut live = vec![0; file.len()];
        process.memory().unwrap().read_memory(bias.to_avma(code.address), &mut live).unwrap();
        let pairs = file.iter().zip(&live).enumerate();
        pairs.filter(|(_, (a, b))| a != b).map(|(at, _)| code.address.0 + at as u64).collect()
    }
}

/// Records of calls by function and kind of site.
#[derive(Debug, Default)]
pub struct Seen {
    pub hits: HashMap<(String, SiteKind), u64>,
    pub other: Vec<RecordKind>,
    /// The last record of each goroutine is never older than the one before.
    pub disordered: u64,
    last: BTreeMap<u64, u64>,
}

impl Seen {
    pub fn add(&mut self, plan: &Plan, bytes: &[u8]) {
        let record = Record::parse(bytes).unwrap();
        if record.kind != RecordKind::Hit {
            self.other.push(record.kind);
            return;
        }
        let (site, function) = plan.function_of(record.site).unwrap();
        *self.hits.entry((function.name.clone(), site.kind)).or_default() += 1;
        let last = self.last.entry(record.goid).or_default();
        self.disordered += u64::from(record.ts_ns < *last);
        *last = record.ts_ns;
    }

    pub fn count(&self, function: &str, kind: SiteKind) -> u64 {
        self.hits.get(&(function.to_owned(), kind)).copied().unwrap_or_default()
    }
}

/// Polls until the process has ended and everything is read.
pub fn read_to_end(capture: &mut TrampolineCapture, plan: &Plan, limit: Duration) -> Seen {
    let mut seen = Seen::default();
    let start = std::time::Instant::now();
    let ended = |kind: &RecordKind| matches!(kind, RecordKind::Exec | RecordKind::ProcessExit);
    while !seen.other.iter().any(ended) {
        assert!(start.elapsed() < limit, "no end within {limit:?}");
        capture.poll(Duration::from_millis(100), &mut |bytes| seen.add(plan, bytes)).unwrap();
    }
    seen
}

fn make_plan(executable: &Executable, patterns: &[&str]) -> Plan {
    let debug = DebugInfo::open(executable.image()).unwrap();
    let layouts = RuntimeLayouts::new(executable.go_version(), debug.as_ref());
    let field = |structure, field| layouts.field(structure, field).unwrap().offset as u32;
    let layout = RuntimeLayout {
        g_goid: field("runtime.g", "goid"),
        g_stack_hi: field("runtime.g", "stack.hi"),
        g_m: field("runtime.g", "m"),
        m_g0: field("runtime.m", "g0"),
        m_curg: field("runtime.m", "curg"),
        tls_g: tls::g_offset(executable).unwrap().0,
    };
    let witness = WitnessOffsets {
        g_goid: layout.g_goid,
        g_stack_hi: layout.g_stack_hi,
        recovery: RecoverySp::ViaG { sigcode0: field("runtime.g", "sigcode0") },
    };
    let wanted = patterns.iter().map(|&text| Wanted {
        text: text.to_owned(),
        pattern: Pattern::parse(text).unwrap(),
        params: None,
        results: None,
        declared: probe::expression::Declarations::default(),
    });
    let selection = Selection { wanted: wanted.collect(), ..Selection::default() };
    let question = Question {
        executable,
        debug: debug.as_ref(),
        selection: &selection,
        values: ValueOptions { arguments: true, results: true, limits: Limits::default() },
        runtime: RuntimeFacts { layout, witness },
        fips: None,
    };
    plan(&question).unwrap().plan
}
