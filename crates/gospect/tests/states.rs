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
use std::time::Duration;
use testkit::{Fixture, Mode, Running, newest, oldest};
use wire::{Record, RecordKind};

const LIMIT: Duration = Duration::from_secs(60);

/// `_Gidle`, `_Grunnable`, `_Grunning`, `_Gdead` (runtime/runtime2.go).
const IDLE: u32 = 0;
const RUNNABLE: u32 = 1;
const RUNNING: u32 = 2;
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
                self.last.insert(creation.goid, RUNNABLE);
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

#[test]
fn root_states_of_every_goroutine_are_seen() {
    const GOROUTINES: u64 = 2_000;
    for toolchain in [oldest(), newest()] {
        let path = Fixture::build("goroutines", &toolchain, Mode::Exe);
        let executable = Executable::open(Arc::new(FileSource::open(&path).unwrap())).unwrap();
        let plan = plan(&executable);
        for backend in ["trampoline", "uprobe"] {
            let number = GOROUTINES.to_string();
            let mut running = Running::held(&path, &["-n", &number, "-at-once", "50"]);
            let mut capture = install(backend, &plan, &path, running.pid());
            running.go();
            let mut states = States::default();
            let start = std::time::Instant::now();
            while !states.ended {
                assert!(start.elapsed() < LIMIT);
                capture
                    .poll(Duration::from_millis(50), &mut |bytes| states.add(&plan, bytes))
                    .unwrap();
            }
            assert!(running.wait(LIMIT).success(), "{}", running.stderr());
            let counters = capture.counters().unwrap();
            states.last.clear();
            let told = format!("{} {backend} {states:?} {counters:?}", toolchain.version);
            assert_eq!(counters.lost, 0, "{told}");
            // Uprobes count what they tell of the process, too.
            let events = states.created + states.changes;
            assert!((events..events + 4).contains(&counters.produced), "{told}");
            // The runtime may make a few of its own.
            assert!((GOROUTINES..GOROUTINES + 20).contains(&states.created), "{told}");
            assert_eq!(states.of_parent, states.created, "{told}");
            assert!(states.died >= GOROUTINES, "{told}");
            // Every goroutine begins to run, and yields once.
            assert!(states.ran >= 2 * GOROUTINES, "{told}");
            // Behind the swap the next one may be made, and recorded, before it is.
            let allowed = if backend == "uprobe" { states.changes / 100 } else { 0 };
            assert!(states.breaks <= allowed, "{told}");
        }
    }
}
