//! Every change of every goroutine's state, by both backends, against what the program says of
//! itself.

use binary::layout::RuntimeLayouts;
use binary::{DebugInfo, Executable, tls};
use capture::{Capture, Request, Scope};
use capture_trampoline::TrampolineCapture;
use capture_uprobe::UprobeCapture;
use probe::states::{StateEvent, StateOffsets, add_states};
use probe::{Plan, RuntimeLayout};
use process::FileSource;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{Fixture, Mode, Running, newest, oldest, toolchain};
use wire::{Record, RecordKind};

const LIMIT: Duration = Duration::from_secs(60);

/// `_Gidle`, `_Grunnable`, `_Grunning`, `_Gwaiting`, `_Gdead` (runtime/runtime2.go).
const IDLE: u32 = 0;
const RUNNABLE: u32 = 1;
const RUNNING: u32 = 2;
const WAITING: u32 = 4;
const DEAD: u32 = 6;

fn plan(executable: &Executable) -> Plan {
    let debug = DebugInfo::open(executable.image()).unwrap();
    let layouts = RuntimeLayouts::new(executable.go_version(), debug.as_ref());
    let field = |structure, field| layouts.field(structure, field).unwrap().offset as u32;
    let runtime = RuntimeLayout {
        g_goid: field("runtime.g", "goid"),
        g_stack_hi: field("runtime.g", "stack.hi"),
        g_m: field("runtime.g", "m"),
        m_g0: field("runtime.m", "g0"),
        m_curg: field("runtime.m", "curg"),
        tls_g: tls::g_offset(executable).unwrap().0,
    };
    let mut plan = Plan { runtime, ..Plan::default() };
    add_states(&mut plan, executable, &StateOffsets::of(&layouts).unwrap()).unwrap();
    assert!(plan.refused.is_empty(), "{:?}", plan.refused);
    plan
}

/// What the records of one run say.
#[derive(Debug, Default)]
struct States {
    /// State that a goroutine was seen to go into last.
    last: BTreeMap<u64, u32>,
    created: u64,
    /// Creations by a goroutine that is the new one's parent as the runtime has it.
    of_parent: u64,
    died: u64,
    ran: u64,
    /// Of waiting goroutines to running, which only coroutines do.
    switched: u64,
    changes: u64,
    /// Changes from a state that the goroutine was not in.
    breaks: u64,
    ended: bool,
}

impl States {
    fn add(&mut self, plan: &Plan, bytes: &[u8]) {
        let record = Record::parse(bytes).unwrap();
        if record.kind != RecordKind::Hit {
            self.ended |= record.kind == RecordKind::ProcessExit;
            return;
        }
        match StateEvent::parse(plan, &record).expect("a site of states") {
            StateEvent::Creation(creation) => {
                self.created += 1;
                self.of_parent += u64::from(creation.parent.is_none_or(|p| p == record.goid));
                self.last.insert(creation.goid, creation.state);
            }
            StateEvent::Change(change) => {
                self.changes += 1;
                // Before its creation a g still has the id of the goroutine it was.
                if matches!(change.old, IDLE | DEAD) || change.goid == 0 {
                    return;
                }
                let last = self.last.insert(change.goid, change.new);
                self.breaks += u64::from(last.is_some_and(|last| last != change.old));
                self.ran += u64::from(change.new == RUNNING && change.old == RUNNABLE);
                self.switched += u64::from(change.new == RUNNING && change.old == WAITING);
                self.died += u64::from(change.new == DEAD);
            }
        }
    }
}

fn install(name: &str, plan: &Plan, path: &Path, pid: u32) -> Box<dyn Capture> {
    let scope = Scope::Pids(vec![pid]);
    let request = Request { plan, path: path.to_owned(), scope, ring_bytes: 16 << 20 };
    if name == "uprobe" {
        return Box::new(UprobeCapture::install(&request, Default::default()).unwrap());
    }
    let capture = TrampolineCapture::install(&request, Default::default()).unwrap();
    assert!(capture.refused().is_empty(), "{:?}", capture.refused());
    Box::new(capture)
}

/// Runs a fixture under a backend from its hold to its end.
fn run(path: &Path, args: &[&str], backend: &str) -> States {
    let executable = Executable::open(Arc::new(FileSource::open(path).unwrap())).unwrap();
    let plan = plan(&executable);
    let mut running = Running::held(path, args);
    let mut capture = install(backend, &plan, path, running.pid());
    running.go();
    let mut states = States::default();
    let start = Instant::now();
    while !states.ended {
        assert!(start.elapsed() < LIMIT);
        capture.poll(Duration::from_millis(50), &mut |bytes| states.add(&plan, bytes)).unwrap();
    }
    assert!(running.wait(LIMIT).success(), "{}", running.stderr());
    states.last.clear();
    let counters = capture.counters().unwrap();
    assert_eq!(counters.lost, 0, "{states:?} {counters:?}");
    // Uprobes count what they tell of the process, too.
    let events = states.created + states.changes;
    assert!((events..events + 4).contains(&counters.produced), "{states:?} {counters:?}");
    assert_eq!(states.of_parent, states.created, "{states:?}");
    // Behind a swap the next one may be made, and recorded, before it is.
    let allowed = if backend == "uprobe" { states.changes / 100 } else { 0 };
    assert!(states.breaks <= allowed, "{backend} {states:?}");
    states
}

#[test]
fn root_states_of_every_goroutine_are_seen() {
    const GOROUTINES: u64 = 2_000;
    let number = GOROUTINES.to_string();
    for toolchain in [oldest(), newest()] {
        let path = Fixture::build("goroutines", &toolchain, Mode::Exe);
        for backend in ["trampoline", "uprobe"] {
            let states = run(&path, &["-n", &number, "-at-once", "50"], backend);
            let told = format!("{} {backend} {states:?}", toolchain.version);
            // The runtime may make a few of its own.
            assert!((GOROUTINES..GOROUTINES + 20).contains(&states.created), "{told}");
            // The last ones may still be on their way out when the program ends.
            assert!(states.died + 50 >= GOROUTINES, "{told}");
            // Every goroutine begins to run, and yields once.
            assert!(states.ran >= 2 * GOROUTINES, "{told}");
        }
    }
}

#[test]
fn root_switches_to_coroutines_are_seen() {
    const VALUES: u64 = 500;
    let number = VALUES.to_string();
    for toolchain in [toolchain("1.23.9"), newest()] {
        let path = Fixture::build("coro", &toolchain, Mode::Exe);
        for backend in ["trampoline", "uprobe"] {
            let states = run(&path, &["-g", "2", "-n", &number], backend);
            let told = format!("{} {backend} {states:?}", toolchain.version);
            // To the coroutine and back for each value, and once for its end.
            assert!((4 * VALUES..4 * VALUES + 20).contains(&states.switched), "{told}");
        }
    }
}

#[test]
fn root_changes_that_a_profile_inlined_are_seen() {
    let path = Fixture::build("profiled", &newest(), Mode::Exe);
    let executable = Executable::open(Arc::new(FileSource::open(&path).unwrap())).unwrap();
    let functions = plan(&executable).functions;
    for holder in ["runtime.ready", "runtime.execute", "runtime.park_m"] {
        let found = functions.iter().any(|function| function.name == holder);
        assert!(found, "{holder} has no copy of casgstatus: make the fixture's profile anew");
    }
    for backend in ["trampoline", "uprobe"] {
        let states = run(&path, &["-g", "4", "-n", "200"], backend);
        // The runtime may make a few of its own.
        assert!((808..828).contains(&states.created), "{backend} {states:?}");
        assert!(states.ran >= 808, "{backend} {states:?}");
    }
}

#[test]
fn root_attach_and_detach_at_any_moment() {
    for (toolchain, mode) in [(oldest(), Mode::Exe), (newest(), Mode::Cgo)] {
        let path = Fixture::build("migrate", &toolchain, mode);
        let executable = Executable::open(Arc::new(FileSource::open(&path).unwrap())).unwrap();
        let plan = plan(&executable);
        let mut running = Running::held(&path, &["-n", "1000000"]);
        running.go();
        for _ in 0..5 {
            let mut capture = install("trampoline", &plan, &path, running.pid());
            let mut states = States::default();
            let start = Instant::now();
            let mut take = |bytes: &[u8]| states.add(&plan, bytes);
            while start.elapsed() < Duration::from_millis(100) {
                capture.poll(Duration::from_millis(10), &mut take).unwrap();
            }
            capture.detach().unwrap();
            while capture.poll(Duration::ZERO, &mut take).unwrap() > 0 {}
            states.last.clear();
            assert!(states.changes > 0, "{states:?}");
            // What was lost breaks chains.
            let lost = capture.counters().unwrap().lost;
            assert!(states.breaks == 0 || lost > 0, "{states:?} lost {lost}");
        }
        assert!(running.is_running(), "{}", running.stderr());
    }
}
