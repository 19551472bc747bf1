//! Loss is counted exactly, and the ways of older kernels give the same calls. Needs root.

mod common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{Directory, LIMIT, fixture, gospect, json_lines, number, path_text, wait_attached};
use testkit::Running;

#[test]
fn root_what_is_lost_is_counted_exactly() {
    let dir = Directory::new();
    let file = dir.file("out");
    let mut target = Running::held(&fixture("counts"), &["-n", "30000", "-g", "1", "-linger"]);
    let pid = target.pid().to_string();
    let how = ["trace", "--strict", "--ring", "1", "--format", "json", "-o", path_text(&file)];
    let what = ["-u", "main.work", "-u", "main.leaf", "-p", &pid];
    let mut tracer = gospect().start(&[&how[..], &what].concat());
    wait_attached(&tracer);
    tracer.signal("STOP");
    target.go();
    target.wait_for("done", LIMIT);
    tracer.signal("CONT");
    // What comes after the gap shows where it lies.
    tracer.signal("INT");
    let output = gospect().finish(&mut tracer);
    output.expect_code(4);
    let lines = json_lines(&file);
    let summary = lines.last().expect("a summary");
    let at = |key: &str| number(&summary[key]);
    assert!(at("lost") > 10_000, "{summary}");
    // Each call is an entry and an exit; the one goroutine's end is watched too.
    let produced = at("entries") + at("exits") + at("lost");
    assert!((120_000..=120_001).contains(&produced), "{produced}: {summary}");
    assert_eq!(at("calls"), at("entries") - at("drained"), "{summary}");
}

/// Starts `program` on the first CPU that it may use.
fn on_one_cpu(program: &Path, args: &[&str]) -> Running {
    let status = fs::read_to_string("/proc/self/status").expect("its status");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let list = list.expect("a list of CPUs").trim();
    let first = list.split([',', '-']).next().expect("a CPU");
    Running::start(Path::new("taskset"), &[&["-c", first, path_text(program)], args].concat())
}

#[test]
fn root_a_gap_is_shown_where_it_lies() {
    let dir = Directory::new();
    for format in ["json", "text"] {
        let file = dir.file(format);
        // Trampolines have a ring for each CPU, and what is lost in one shows in its next record.
        let mut target = on_one_cpu(&fixture("sleepy"), &["-g", "0", "-n", "20000"]);
        target.wait_for("parked", LIMIT);
        let pid = target.pid().to_string();
        let how = ["trace", "--ring", "1", "--format", format, "-o", path_text(&file)];
        let mut tracer = gospect().start(&[&how[..], &["-u", "main.tick", "-p", &pid]].concat());
        wait_attached(&tracer);
        tracer.signal("STOP");
        target.go();
        target.wait_for("tick", LIMIT);
        tracer.signal("CONT");
        // The ring is read empty before more comes: then all of it is seen.
        // A ring of trampolines is half as large: one for each CPU.
        let whole = |text: &str| text.lines().count() > 1000;
        common::until("the first part is written", || {
            whole(&fs::read_to_string(&file).unwrap_or_default())
        });
        std::thread::sleep(Duration::from_millis(200));
        target.go();
        target.wait_line(LIMIT, |line| line.contains("\"ticks\":40000"));
        tracer.signal("INT");
        // Without --strict a loss is no failure.
        let output = gospect().finish(&mut tracer);
        output.expect_code(0);
        let text = fs::read_to_string(&file).expect("the output");
        if format == "text" {
            assert!(
                text.contains(" records lost on cpu "),
                "no gap in {} lines",
                text.lines().count()
            );
            assert!(!output.stderr.contains("; 0 lost"), "{}", output.stderr);
            continue;
        }
        let lines = json_lines(&file);
        let summary = lines.last().expect("a summary");
        let gaps: u64 =
            lines.iter().filter(|line| line["type"] == "gap").map(|gap| number(&gap["lost"])).sum();
        assert!(gaps > 0, "{summary}");
        assert!(gaps <= number(&summary["lost"]), "{gaps} {summary}");
        let sum = ["entries", "exits", "lost"].map(|key| number(&summary[key])).iter().sum::<u64>();
        assert_eq!(sum, 80_000, "{summary}");
    }
}
