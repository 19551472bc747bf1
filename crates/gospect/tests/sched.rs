//! `gospect sched`: chains of states without a break, on both backends, whatever goroutines do.

#[path = "common/chains.rs"]
mod chains;

use chains::{LIMIT, check, gospect, lines, result_file, summary, watch};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use testkit::{
    Fixture, Mode, Output, Running, Toolchain, import_timeline, newest, oldest, toolchains,
};

/// Every work, as large as the issue has it.
#[test]
fn root_chains_are_unbroken_under_everything_goroutines_do() {
    for go in [oldest(), newest()] {
        let lines = watch(&go, Mode::Exe, "uprobe", &[]);
        let reasons: BTreeSet<&str> =
            lines.iter().filter_map(|line| line.reason.as_deref()).collect();
        for reason in ["chan receive", "chan send", "select", "sleep", "IO wait", "sync.Cond.Wait"]
        {
            assert!(reasons.contains(reason), "go {}: {reason} in {reasons:?}", go.version);
        }
        if go.version.starts_with("1.27") {
            for reason in ["coroutine", "sync.Mutex.Lock", "sync.RWMutex.RLock", "synctest.Run"] {
                assert!(reasons.contains(reason), "go {}: {reason} in {reasons:?}", go.version);
            }
        }
    }
}

/// The core of it for every version, on both backends.
#[test]
fn root_every_version_is_followed() {
    for go in toolchains() {
        for backend in ["uprobe", "trampoline"] {
            watch(&go, Mode::Exe, backend, &["-n", "60", "-short", "300"]);
        }
    }
}

#[test]
fn root_every_way_of_building_is_followed() {
    for mode in [Mode::Pie, Mode::Cgo, Mode::CgoPie, Mode::Stripped, Mode::StrippedPie] {
        for go in [oldest(), newest()] {
            for backend in ["uprobe", "trampoline"] {
                watch(&go, mode, backend, &["-n", "40", "-short", "100"]);
            }
        }
    }
}

/// Goroutines that were there before the attach are known, with where they come from.
#[test]
fn root_goroutines_from_before_the_attach_are_told_of() {
    let program = Fixture::build("states", &newest(), Mode::Exe);
    for backend in ["uprobe", "trampoline"] {
        let mut running =
            Running::start(&program, &["-wait", "-work", "short", "-short", "50", "-linger"]);
        running.wait_for("ready", LIMIT);
        let pid = running.pid().to_string();
        let path = result_file(&format!("sched-attach-{backend}"));
        let out = path.to_str().unwrap();
        let command = [
            "sched",
            "-p",
            &pid,
            "--backend",
            backend,
            "--events",
            "--format",
            "json",
            "-o",
            out,
            "--duration",
            "3s",
        ];
        let mut watching = gospect().start(&command);
        watching.wait_error_line(LIMIT, |line| line.contains("watching goroutines"));
        running.go();
        running.wait_for("done", LIMIT);
        gospect().finish(&mut watching).expect_code(0);
        let lines = lines(&path);
        check(&lines, backend);
        let summary = summary(&lines);
        // The main goroutine and those of the runtime; main's 50 were made meanwhile.
        assert!(summary.found >= 1 && summary.made >= 51, "{backend}: {summary:?}");
        let main = lines.iter().find(|line| line.r#type == "goroutine" && line.goid == 1).unwrap();
        assert_eq!(main.born_ns, None, "{backend}: {main:?}");
        assert!(main.to_ns - main.from_ns > 1_000_000_000, "{backend}: {main:?}");
        running.close_stdin();
        assert!(running.wait(LIMIT).success());
    }
}

/// Of one executable and of another; goroutines of several processes have the same ids.
#[test]
fn root_several_processes_are_told_apart() {
    // Files of its own: uprobes for several processes are refused beside another test's trampolines.
    let own = |go: &Toolchain| {
        let file = result_file(&format!("several-{}", go.version)).with_extension("program");
        std::fs::copy(Fixture::build("states", go, Mode::Exe), &file).unwrap();
        file
    };
    let [new, old] = [newest(), oldest()].map(|go| own(&go));
    let programs = [&new, &new, &old];
    for backend in ["uprobe", "trampoline"] {
        let mut all: Vec<Running> = Vec::new();
        for (index, program) in programs.iter().enumerate() {
            let made = ["70", "140", "210"][index];
            let args = ["-wait", "-work", "short", "-short", made, "-linger", "-resize=false"];
            all.push(Running::start(program, &args));
        }
        all.iter().for_each(|running| _ = running.wait_for("ready", LIMIT));
        let pids: Vec<String> = all.iter().map(|running| running.pid().to_string()).collect();
        let path = result_file(&format!("sched-several-{backend}"));
        let (out, list) = (path.to_str().unwrap(), pids.join(","));
        let how = ["sched", "-p", &list, "--backend", backend, "--ring", "16", "--events"];
        let mut watching = gospect().start(&[&how[..], &["--format", "json", "-o", out]].concat());
        watching.wait_error_line(LIMIT, |line| line.contains("watching goroutines"));
        for running in &mut all {
            running.go();
            running.wait_for("done", LIMIT);
        }
        watching.signal("INT");
        gospect().finish(&mut watching).expect_code(0);
        let lines = lines(&path);
        check(&lines, backend);
        assert_eq!(summary(&lines).processes, 3, "{backend}");
        for (running, made) in all.iter_mut().zip([70, 140, 210]) {
            let own = || lines.iter().filter(|line| line.pid == running.pid());
            let whole = own().filter(|line| line.r#type == "goroutine" && line.born_ns.is_some());
            let ended = whole.filter(|line| line.ended_ns.is_some()).count();
            // The collector's may end too.
            assert!((made..made + 20).contains(&ended), "{backend}: {ended} of {made}");
            let mains = own().filter(|line| line.r#type == "goroutine" && line.goid == 1).count();
            assert_eq!(mains, 1, "{backend}");
            running.close_stdin();
            assert!(running.wait(LIMIT).success());
        }
    }
    [new, old].iter().for_each(|program| std::fs::remove_file(program).unwrap());
}

/// All goroutines of the old program end with it, at execve; the new one's are others, though their ids
/// are the same. Its file is the same too, so uprobes see it; trampolines are gone with the memory.
#[test]
fn root_a_process_that_becomes_another_program_ends_all_goroutines() {
    for go in [oldest(), newest()] {
        let program = Fixture::build("forkexec", &go, Mode::Exe);
        for (backend, mains) in [("uprobe", 2), ("trampoline", 1)] {
            let told = format!("go {} {backend}", go.version);
            let path = result_file(&format!("sched-exec-{}-{backend}", go.version));
            let [out, program] = [&path, &program].map(|path| path.to_str().unwrap());
            let how = ["sched", "--backend", backend, "--events", "--format", "json", "-o", out];
            let output =
                gospect().run(&[&how[..], &["--", program, "-children", "2", "-exec"]].concat());
            output.expect_code(0);
            let lines = lines(&path);
            check(&lines, &told);
            // The copies that it starts are other processes.
            let pids: BTreeSet<u32> =
                lines.iter().filter(|line| line.r#type == "state").map(|line| line.pid).collect();
            assert_eq!(pids.len(), 1, "{told}: {pids:?}");
            let of_main = || lines.iter().filter(|line| line.goid == 1);
            let lives: Vec<_> = of_main().filter(|line| line.r#type == "goroutine").collect();
            assert_eq!(lives.len(), mains, "{told}: {lives:?}");
            assert!(lives.iter().all(|line| line.born_ns.is_some()), "{told}: {lives:?}");
            assert!(lives.iter().all(|line| line.ended_ns.is_none()), "{told}: {lives:?}");
            assert!(lives.is_sorted_by_key(|line| line.from_ns), "{told}: {lives:?}");
            if let [before, after] = lives[..] {
                assert!(before.to_ns <= after.from_ns, "{told}: {lives:?}");
            }
        }
    }
}

/// Detached from while everything changes, and of two executables at once.
#[test]
fn root_chains_are_unbroken_up_to_the_detach() {
    let programs = [oldest(), newest()].map(|go| Fixture::build("states", &go, Mode::Exe));
    let running: Vec<Running> = programs
        .iter()
        .map(|program| {
            Running::start(program, &["-n", "20", "-work", "timer,mutex", "-repeat", "100000"])
        })
        .collect();
    let pids: Vec<String> = running.iter().map(|running| running.pid().to_string()).collect();
    running.iter().for_each(|running| _ = running.wait_for("ready", LIMIT));
    let path = result_file("sched-detach");
    let (out, pids) = (path.to_str().unwrap(), pids.join(","));
    let command =
        ["sched", "-p", &pids, "--duration", "1s", "--events", "--format", "json", "-o", out];
    gospect().run(&command).expect_code(0);
    let lines = lines(&path);
    check(&lines, "both");
    assert_eq!(lines.iter().filter(|line| line.r#type == "summary").count(), 1);
    let of = |running: &Running| lines.iter().filter(|line| line.pid == running.pid()).count();
    assert!(running.iter().all(|running| of(running) > 1000));
    // Of both there is one timeline.
    let how = ["--duration", "300ms", "--format", "perfetto", "--ring", "64"];
    let command = [&["sched", "-p", &pids, "-o", out][..], &how].concat();
    gospect().run(&command).expect_code(0);
    let timeline = import_timeline(&std::fs::read_to_string(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    let shown = |running: &Running| {
        timeline.slices.iter().any(|slice| slice.pid == u64::from(running.pid()))
    };
    assert!(running.iter().all(shown));
}

/// What is lost is said where it lies, counted, and followed by a new reading of memory: at the end
/// every goroutine is in the state that the process has it in.
#[test]
fn root_a_loss_is_a_gap_and_a_new_reading_follows() {
    let program = Fixture::build("states", &newest(), Mode::Exe);
    for backend in ["uprobe", "trampoline"] {
        // How long the machine may need for two readings is unknown; what is wrong stays wrong.
        let settled = [4, 15, 60].into_iter().map(Duration::from_secs);
        let mut differing = settled.map_while(|time| watch_a_loss(&program, backend, time));
        if let Some(last) = differing.nth(2) {
            panic!("{backend}: {last}");
        }
    }
}

/// Tells what differs in the end, if anything does.
fn watch_a_loss(program: &Path, backend: &str, settled: Duration) -> Option<String> {
    let work = ["-work", "short,timer", "-n", "40", "-resize=false"];
    let args = [&["-wait", "-pause", "-repeat", "1000"][..], &work].concat();
    let mut running = Running::start(program, &args);
    running.wait_for("ready", LIMIT);
    let pid = running.pid().to_string();
    let path = result_file(&format!("sched-loss-{backend}"));
    let recorded = result_file(&format!("sched-loss-recorded-{backend}"));
    let how = ["sched", "-p", &pid, "--backend", backend, "--ring", "1", "--events"];
    let [out, record] = [&path, &recorded].map(|path| path.to_str().unwrap());
    let to = ["--format", "json", "-o", out, "--record", record];
    let mut watching = gospect().start(&[&how[..], &to].concat());
    watching.wait_error_line(LIMIT, |line| line.contains("watching goroutines"));
    // A whole round that nobody reads: more than the rings hold.
    watching.signal("STOP");
    until("it stops", || state_of(watching.pid()) == 'T');
    let mut rounds = 1..;
    let mut work = || {
        running.go();
        let round = rounds.next();
        running.wait_line(LIMIT, |line| {
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            line["type"] == "paused" && line["round"].as_u64() == round
        });
    };
    work();
    watching.signal("CONT");
    // Until something tells of it.
    let told = || std::fs::read_to_string(&path).unwrap().contains("\"gap\"");
    let begin = Instant::now();
    while !told() {
        assert!(begin.elapsed() < LIMIT, "{backend}: no gap was told");
        work();
    }
    std::thread::sleep(settled);
    let output = gospect().run(&["goroutines", "-p", &pid, "--format", "json", "--system"]);
    watching.signal("INT");
    gospect().finish(&mut watching).expect_code(0);
    drop(running);
    check_timeline_with_losses(&recorded, backend);
    compare_at_end(&lines(&path), &output, backend)
}

/// No arrow leads from or to what a loss has swallowed: the importer refuses that.
fn check_timeline_with_losses(recorded: &Path, backend: &str) {
    let file = result_file(&format!("sched-loss-timeline-{backend}"));
    let [record, out] = [recorded, &file].map(|path| path.to_str().unwrap());
    gospect().run(&["report", record, "--perfetto", "-o", out]).expect_code(0);
    let timeline = import_timeline(&std::fs::read_to_string(&file).unwrap());
    std::fs::remove_file(&file).unwrap();
    std::fs::remove_file(recorded).unwrap();
    let of = |name: &str| timeline.slices.iter().filter(|slice| slice.name == name).count();
    let lost = timeline.slices.iter().filter(|slice| slice.cat == "loss").count();
    assert!(of("unknown") > 0 && lost > 0, "{backend}: {} {lost}", of("unknown"));
    assert!(timeline.arrows.len() > 100, "{backend}: {} arrows", timeline.arrows.len());
}

/// Checks what was told, and says how it differs from what the process had in the end.
fn compare_at_end(lines: &[chains::Line], output: &Output, backend: &str) -> Option<String> {
    let summary = summary(lines);
    let gaps: u64 = lines.iter().filter(|line| line.r#type == "gap").map(|line| line.lost).sum();
    assert!(gaps > 1000 && gaps <= summary.lost, "{backend}: {gaps} {summary:?}");
    assert_eq!((summary.breaks, summary.invalid), (0, 0), "{backend}: {summary:?}");
    assert!(summary.mended + summary.vanished > 0, "{backend}: {summary:?}");
    if backend == "trampoline" {
        assert_eq!(summary.repairs, 0, "{summary:?}");
    }
    let all = || lines.iter().filter(|line| line.r#type == "goroutine");
    for line in all() {
        assert_eq!(line.spent_ns() + line.unknown_ns, line.to_ns - line.from_ns, "{line:?}");
    }
    let end = all().map(|line| line.to_ns).max();
    let living = all().filter(|line| line.ended_ns.is_none() && Some(line.to_ns) == end);
    // The main goroutine's read may be interrupted by a signal of the runtime.
    let living = living.filter(|line| line.goid != 1);
    let told: BTreeMap<u64, String> = living.map(|line| (line.goid, line.state.clone())).collect();
    let found = output
        .of_type("goroutine")
        .into_iter()
        .map(|line| (line["goid"].as_u64().unwrap(), line["state"].as_str().unwrap().to_owned()));
    let found: BTreeMap<u64, String> = found.filter(|(goid, _)| *goid != 1).collect();
    (told != found).then(|| format!("{told:?} is not {found:?}: {summary:?}"))
}

/// The letter of a process's state.
fn state_of(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().chars().next().unwrap()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A recording gives what the capture gave.
#[test]
fn root_a_recording_is_shown_as_the_capture_was() {
    let program = Fixture::build("states", &newest(), Mode::Exe);
    let program = program.to_str().unwrap();
    let (direct, replayed) = (result_file("sched-direct"), result_file("sched-replayed"));
    let recorded = result_file("sched-recorded");
    let [direct_, replayed_, recorded_] =
        [&direct, &replayed, &recorded].map(|p| p.to_str().unwrap());
    gospect()
        .run(&[
            "sched", "--record", recorded_, "--events", "--format", "json", "-o", direct_, "--",
            program, "-n", "30", "-short", "30",
        ])
        .expect_code(0);
    gospect()
        .run(&["report", recorded_, "--events", "--format", "json", "-o", replayed_])
        .expect_code(0);
    assert_eq!(
        std::fs::read_to_string(&direct).unwrap(),
        std::fs::read_to_string(&replayed).unwrap()
    );
    let timeline = result_file("sched-timeline");
    gospect()
        .run(&["report", recorded_, "--perfetto", "-o", timeline.to_str().unwrap()])
        .expect_code(0);
    let shown = import_timeline(&std::fs::read_to_string(&timeline).unwrap());
    assert!(shown.slices.len() > 100 && shown.arrows.len() > 30, "{shown:?}");
    gospect().run(&["report", recorded_, "--by", "reason"]).expect_code(0);
    gospect().run(&["report", recorded_, "--stat"]).expect_code(2);
    for path in [direct, replayed, recorded, timeline] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    let run = |args: &[&str]| gospect().run(args);
    run(&["sched"]).expect_code(2);
    run(&["sched", "-p", "1", "--state", "asleep"]).expect_code(2);
    run(&["sched", "-p", "1", "--reason", "/(/"]).expect_code(2);
    run(&["sched", "-p", "1", "./prog"]).expect_code(2);
    run(&["sched", "--exe", "./prog", "--backend", "trampoline"]).expect_code(2);
    run(&["sched", "-p", "1", "--"]).expect_code(2);
    run(&["sched", "--", "/bin/true"]).expect_code(1);
}
