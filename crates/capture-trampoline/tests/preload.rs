//! Programs that are started with `libgospect_preload.so`, and this test as their agent.

#[path = "support/agent.rs"]
mod agent;
mod support;

use agent::Stage;
use capture::Capture as _;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use support::Subject;
use testkit::{Fixture, Mode, Running, Toolchain, newest, oldest, toolchains};
use wire::{Record, RecordKind, SiteKind};

const LIMIT: Duration = Duration::from_secs(60);

/// Rings that hold all that the programs do.
const LARGE: usize = 16 << 20;

const SPIN: [&str; 5] = ["main.round", "main.mix", "main.scale", "main.fold", "main.fib"];

/// What can be preloaded: what has a dynamic loader.
const MODES: [Mode; 3] = [Mode::Pie, Mode::Cgo, Mode::CgoPie];

fn preloaded(toolchain: &Toolchain, mode: Mode) {
    let path = Fixture::build("spin", toolchain, mode);
    let subject = Subject::new(&path, &SPIN);
    let stage = Stage::new(Some(&subject), LARGE);
    let (mut running, mut injected) = stage.start(&path, &["-rounds", "5", "-g", "3"]);
    let seen = agent::read_to_end(&mut injected, LIMIT);
    let done = running.wait_for("done", LIMIT);
    assert!(running.wait(LIMIT).success(), "{} {mode}", toolchain.version);
    assert_eq!(done["wrong"], 0);
    assert_eq!(seen.other, [RecordKind::Process, RecordKind::ProcessExit]);
    assert_eq!(seen.disordered, 0);
    assert_eq!(injected.capture.counters().unwrap().lost, 0);
    for function in SPIN {
        let expected = done["calls"][function].as_u64().unwrap();
        let entries = seen.count(function, SiteKind::Entry);
        let exits =
            seen.count(function, SiteKind::Return) + seen.count(function, SiteKind::TailJump);
        assert_eq!(
            (entries, exits),
            (expected, expected),
            "{} {mode} {function}",
            toolchain.version
        );
    }
}

#[test]
fn every_call_of_a_preloaded_program_is_recorded() {
    for toolchain in toolchains() {
        for mode in MODES {
            preloaded(&toolchain, mode);
        }
    }
}

/// A record without what differs from run to run: function, kind, goroutine, depth, payload.
type Call = (String, u8, u64, u64, Vec<u8>);

/// Records of the main goroutine until the program has ended.
fn calls(capture: &mut dyn capture::Capture, plan: &probe::Plan) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut is_over = false;
    let begun = Instant::now();
    while !is_over {
        assert!(begun.elapsed() < LIMIT, "no end within {LIMIT:?}");
        let mut sink = |bytes: &[u8]| {
            let record = Record::parse(bytes).unwrap();
            is_over |= record.kind == RecordKind::ProcessExit;
            if record.kind == RecordKind::Hit && record.goid == 1 {
                let (site, function) = plan.function_of(record.site).unwrap();
                let name = function.name.clone();
                let payload = record.payload.to_vec();
                calls.push((name, site.kind as u8, record.goid, record.depth, payload));
            }
        };
        capture.poll(Duration::from_millis(100), &mut sink).unwrap();
    }
    calls
}

/// Functions whose arguments and results are numbers, floats and strings, in registers and on the stack: no
/// addresses, which differ from run to run.
const VALUES: [&str; 8] = [
    "main.bools",
    "main.ints",
    "main.uints",
    "main.floats",
    "main.mixed",
    "main.text",
    "main.overflow",
    "main.manyFloats",
];

#[test]
fn values_are_those_that_ptrace_brings() {
    for (toolchain, mode) in [
        (oldest(), Mode::Pie),
        (oldest(), Mode::CgoPie),
        (newest(), Mode::Cgo),
        (newest(), Mode::Pie),
    ] {
        let path = Fixture::build("args", &toolchain, mode);
        let subject = Subject::new(&path, &VALUES);
        let stage = Stage::new(Some(&subject), LARGE);
        let arguments = ["-wait", "-rounds", "3"];
        let (mut running, mut injected) = stage.start(&path, &arguments);
        running.go();
        let preloaded = calls(&mut injected.capture, &subject.plan);

        let mut running = Running::held(&path, &arguments[1..]);
        let mut capture = subject.attach(running.pid()).unwrap();
        running.go();
        let traced = calls(&mut capture, &subject.plan);
        let mut names: Vec<&str> = traced.iter().map(|call| &*call.0).collect();
        names.sort_unstable();
        names.dedup();
        assert!(VALUES.iter().all(|name| names.contains(name)), "{names:?}");
        assert!(preloaded == traced, "{mode}: {preloaded:?}\n{traced:?}");
    }
}

#[test]
fn code_is_made_once_wherever_programs_lie() {
    let path = Fixture::build("spin", &newest(), Mode::Pie);
    let subject = Subject::new(&path, &["main.*", "runtime.*"]);
    let stage = Stage::new(Some(&subject), LARGE);
    let mut places = BTreeMap::new();
    for _ in 0..4 {
        let (mut running, mut injected) = stage.start(&path, &["-rounds", "1"]);
        let seen = agent::read_to_end(&mut injected, LIMIT);
        assert!(running.wait(LIMIT).success());
        assert!(seen.count("main.round", SiteKind::Entry) > 0);
        let (_, report) = injected.capture.reports().next().unwrap();
        *places.entry((report.patches, report.functions)).or_insert(0) += 1;
    }
    // All got the same, and nothing was made besides what was there before.
    assert_eq!(places.values().collect::<Vec<_>>(), [&4]);
    assert_eq!(stage.planned().made(), 1);
}

/// Interfaces and functions in values are told by addresses in the image.
#[test]
fn code_for_one_place_is_code_for_another() {
    use address::{Avma, Bias};
    use capture_trampoline::emit::{EmitOptions, ExecutableCode, emit};
    use capture_trampoline::layout::Rings;
    let path = Fixture::build("values", &newest(), Mode::Pie);
    let subject = Subject::new(&path, &["main.*"]);
    assert!(subject.plan.ops.iter().any(|op| op.code == wire::OpCode::Image));
    let make = |bias: u64| {
        let at = |distance: u64| Avma(bias - (1 << 24) + distance);
        let options = EmitOptions {
            code_base: at(1 << 20),
            bias: Bias(bias),
            control: at(0),
            rings: Rings { base: at(4096), count: 2, bytes: 1 << 16 },
            has_rdpid: true,
            m_procid: None,
            m_gsignal: Some(80),
            sigtrampgo: subject
                .executable
                .functions()
                .unwrap()
                .iter()
                .find(|function| function.name == "runtime.sigtrampgo")
                .map(|function| function.entry),
            recovers_loads: true,
            translates_faults: true,
        };
        emit(&subject.plan, &ExecutableCode::new(&subject.executable), &options).unwrap()
    };
    let (one, other) = (make(0x5555_5555_4000), make(0x5612_3456_7000));
    assert!(one.is_movable && other.is_movable);
    assert!(!one.loads.is_empty());
    assert!(one.code == other.code && one.patches == other.patches && one.hook == other.hook);
}

#[test]
fn root_what_a_program_was_given_can_be_taken_out() {
    for mode in [Mode::Pie, Mode::Cgo] {
        let path = Fixture::build("spin", &newest(), mode);
        let subject = Subject::new(&path, &["main.*", "runtime.*"]);
        let stage = Stage::new(Some(&subject), 1 << 20);
        let (mut running, mut injected) = stage.start(&path, &["-for", "0"]);
        assert!(!subject.different_bytes(running.pid()).is_empty());
        let begun = Instant::now();
        while injected.capture.counters().unwrap().produced == 0 {
            injected.capture.poll(Duration::from_millis(20), &mut |_| {}).unwrap();
            assert!(begun.elapsed() < LIMIT, "no call came");
        }
        injected.capture.detach().unwrap();
        let removals = injected.capture.removals();
        assert!(matches!(removals, [one] if one.left_bytes == 0), "{removals:?}");
        subject.assert_clean(running.pid());
        // And again, the other way.
        let again = subject.attach(running.pid()).unwrap();
        drop(again);
        subject.assert_clean(running.pid());
        running.close_stdin();
        assert_eq!(running.wait_for("done", LIMIT)["wrong"], 0);
        assert!(running.wait(LIMIT).success());
    }
}

/// As under `MemoryDenyWriteExecute=`: what was written can never be run again.
#[test]
fn a_policy_against_written_code_leaves_the_program_as_it_was() {
    use std::os::unix::process::CommandExt as _;
    const PR_SET_MDWE: libc::c_int = 65;
    let path = Fixture::build("spin", &newest(), Mode::CgoPie);
    let subject = Subject::new(&path, &["main.*", "runtime.*"]);
    let stage = Stage::new(Some(&subject), 1 << 20);
    let mut command = stage.command(&path, &["-for", "0"]);
    // SAFETY: numbers only.
    let forbid = || match unsafe { libc::prctl(PR_SET_MDWE, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: one system call between fork and exec.
    unsafe { command.pre_exec(forbid) };
    let mut running = Running::spawn(command);
    let reason = stage.failed();
    assert!(reason.contains("a security policy may forbid it"), "{reason}");
    running.wait_for("ready", LIMIT);
    subject.assert_clean(running.pid());
    running.close_stdin();
    assert_eq!(running.wait_for("done", LIMIT)["wrong"], 0);
    assert!(running.wait(LIMIT).success());
}

#[test]
fn no_descriptor_is_left_in_the_program() {
    let path = Fixture::build("spin", &newest(), Mode::CgoPie);
    let subject = Subject::new(&path, &SPIN);
    let stage = Stage::new(Some(&subject), 1 << 20);
    let descriptors = |running: &Running| {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", running.pid())).unwrap();
        let links = entries.map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap());
        let kind = |link: &std::path::PathBuf| {
            link.to_string_lossy().trim_end_matches(|c: char| "[]0123456789".contains(c)).to_owned()
        };
        let mut kinds: Vec<String> = links.map(|link| kind(&link)).collect();
        kinds.sort_unstable();
        kinds
    };
    let plain = Running::held(&path, &["-rounds", "1"]);
    let (preloaded, _injected) = stage.start(&path, &["-wait", "-rounds", "1"]);
    preloaded.wait_for("ready", LIMIT);
    assert_eq!(descriptors(&preloaded), descriptors(&plain));
}

/// The library as the loader sees it.
#[test]
fn the_library_needs_and_exports_nothing() {
    let readelf = |argument: &str| {
        let output = std::process::Command::new("readelf")
            .args([argument, "-W"])
            .arg(agent::library())
            .output()
            .expect("readelf is there");
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let dynamic = readelf("-d");
    assert!(dynamic.contains("INIT_ARRAY") && dynamic.contains("libgospect_preload.so"));
    for wrong in ["NEEDED", "TEXTREL", "RPATH", "RUNPATH"] {
        assert!(!dynamic.contains(wrong), "{dynamic}");
    }
    // All are looked for, none is offered, and it loads without any.
    let symbols = readelf("--dyn-syms");
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut names = Vec::new();
    for line in
        symbols.lines().map(fields).filter(|fields| fields.len() == 8 && fields[0] != "Num:")
    {
        assert_eq!((&*line[4], &*line[6]), ("WEAK", "UND"), "{symbols}");
        names.push(line[7].clone());
    }
    names.sort_unstable();
    assert_eq!(names, ["__libc_stack_end", "environ", "getauxval"]);
    let segments = readelf("-l");
    assert!(!segments.contains("RWE"), "{segments}");
}
