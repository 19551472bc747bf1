//! What of the calls is shown and how: filters, statistics, selection, formats, limits. Needs
//! root.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{
    Backend, Directory, LIMIT, Trace, fixture, functions, gospect, json_lines, number, path_text,
    text, wait_attached,
};
use serde_json::Value;
use testkit::{Fixture, Mask, Mode, Output, Running, assert_golden, newest};

/// `trace options… -- program args…` with text in a file: what it says there, and the rest.
fn shown(options: &[&str], program: &Path, args: &[&str]) -> (String, Output) {
    let dir = Directory::new();
    let file = dir.file("out");
    let line = [&["trace", "-o", path_text(&file)], options, &["--", path_text(program)], args];
    let output = gospect().run(&line.concat());
    (fs::read_to_string(&file).expect("the output file"), output)
}

fn counted(trace: &Trace) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for call in trace.of_type("call") {
        *counts.entry(text(&call["func"])).or_default() += 1;
    }
    counts
}

fn counts(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

// Filters.

#[test]
fn root_depth_shows_the_outer_levels() {
    let trace = Trace::launch(&["-u", "main.add*", "--depth", "2"], &fixture("ftrace_demo"), &[]);
    trace.output.expect_code(0);
    assert_eq!(counted(&trace), counts(&[("main.add", 1), ("main.add1", 1)]));
    assert_eq!(trace.summary()["calls"], 4, "the summary counts before the filter");
}

#[test]
fn root_min_hides_short_calls_and_text_holds_their_lines() {
    let demo = fixture("ftrace_demo");
    let select = ["-u", "main.add*", "-u", "main.(*Student).String", "--min", "400ms"];
    let trace = Trace::launch(&select, &demo, &["-demo", "all"]);
    trace.output.expect_code(0);
    let want = counts(&[("main.add", 1), ("main.add1", 1), ("main.add2", 1)]);
    assert_eq!(counted(&trace), want);

    let (shown, output) = shown(&[&select[..], &["-q"]].concat(), &demo, &["-demo", "all"]);
    output.expect_code(0);
    let lines = Mask::new().lines(&shown);
    let kept: Vec<String> = lines.lines().map(without_place).collect();
    let want = [
        "<time> <g> main.add(a=1, b=2) {",
        "<time> <g> main.add1(a=1, b=2) {",
        "<time> <g> main.add2(a=1, b=2) {",
        "<time> <g> <duration> } = 3",
        "<time> <g> <duration> } = 3",
        "<time> <g> <duration> } = 3",
    ];
    assert_eq!(kept, want, "{shown}");
    expect_times_in_order(&shown, 3);
}

/// A masked line without its last words, which say where.
fn without_place(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let end = words.iter().position(|word| word.contains(".go:")).unwrap_or(words.len());
    let end = words.iter().position(|word| word.contains("+0x")).unwrap_or(end).min(end);
    words[..end].join(" ")
}

/// The first `entries` lines are entries that keep their own times: in order, and hardly apart,
/// though they were held back.
#[track_caller]
fn expect_times_in_order(shown: &str, entries: usize) {
    let times: Vec<u64> = shown.lines().map(|line| microseconds(&line[..15])).collect();
    assert!(times.is_sorted(), "{shown}");
    // main.add2 begins 100 ms after main.add; the lines were held for 400.
    assert!(times[entries - 1] - times[0] < 200_000, "{shown}");
}

/// `21:06:01.001123` as microseconds of the day.
#[track_caller]
fn microseconds(clock: &str) -> u64 {
    let part = |range: std::ops::Range<usize>| -> u64 {
        clock[range].parse().unwrap_or_else(|_| panic!("no time of day: {clock}"))
    };
    assert_eq!(&clock[8..9], ".", "{clock}");
    (part(0..2) * 3600 + part(3..5) * 60 + part(6..8)) * 1_000_000 + part(9..15)
}

#[test]
fn root_drilldown_shows_trees_of_one_function() {
    let program = fixture("ftrace_demo");
    let trace = Trace::launch(&["-u", "main.add*", "-D", "main.add1"], &program, &[]);
    trace.output.expect_code(0);
    assert_eq!(counted(&trace), counts(&[("main.add1", 1), ("main.add2", 1), ("main.add3", 1)]));
    let root = trace.calls_of("main.add1")[0];
    assert_eq!((&root["depth"], &root["parent"]), (&0.into(), &Value::Null));
    // It is traced though no pattern names it, and its name is what is asked for: nothing else.
    let alone = Trace::launch(&["-D", "main.add2"], &program, &[]);
    assert_eq!(counted(&alone), counts(&[("main.add2", 1)]));
    // What does not exist hides everything: that is said before anything runs.
    let line = ["trace", "-u", "main.add*", "-D", "main.add9", "--", path_text(&program)];
    let output = gospect().run(&line);
    output.expect_code(3);
    assert_eq!(output.stdout, "", "nothing ran");
    assert!(output.stderr.contains("main.add9"), "{}", output.story());
    assert!(output.stderr.contains("nearest: main.add"), "{}", output.story());
}

#[test]
fn root_limit_ends_the_capture_after_so_many_roots() {
    let mut target = Running::held(&fixture("spin"), &["-for", "0"]);
    let select = ["-u", "main.round", "-u", "main.scale", "--limit", "5"];
    let dir = Directory::new();
    let file = dir.file("out");
    let pid = target.pid().to_string();
    let line = ["trace", "--format", "json", "-o", path_text(&file), "-p", &pid];
    let mut tracer = gospect().start(&[&line[..], &select].concat());
    wait_attached(&tracer);
    target.go();
    gospect().finish(&mut tracer).expect_code(0);
    let lines = json_lines(&file);
    let roots = lines.iter().filter(|line| line["type"] == "call" && line["depth"] == 0);
    assert_eq!(roots.clone().count(), 5);
    assert!(roots.clone().all(|call| call["func"] == "main.round" && call["exit"] == "return"));
    let ids: Vec<_> = roots.map(|call| &call["id"]).collect();
    let mut inner = lines.iter().filter(|line| line["type"] == "call" && line["depth"] != 0);
    assert!(inner.all(|call| ids.contains(&&call["parent"])), "trees are whole");
    assert!(target.is_running(), "the target goes on");
}

#[test]
fn root_duration_ends_the_capture() {
    let target = Running::start(&fixture("sleepy"), &["-g", "1"]);
    let pid = target.pid().to_string();
    let start = std::time::Instant::now();
    let line = ["trace", "--duration", "300ms", "-u", "main.tick", "-p", &pid];
    let output = gospect().run(&line);
    output.expect_code(3);
    assert!(output.stderr.contains("never called while attached"), "{}", output.story());
    let took = start.elapsed();
    assert!((Duration::from_millis(300)..Duration::from_secs(30)).contains(&took), "{took:?}");
}

#[test]
fn root_a_limit_of_overhead_ends_the_capture() {
    let mut target = Running::held(&fixture("spin"), &["-for", "0"]);
    let pid = target.pid().to_string();
    let line = ["trace", "--stat", "--max-overhead", "20", "-u", "main.*", "-p", &pid];
    let mut tracer = gospect().start(&line);
    wait_attached(&tracer);
    target.go();
    let output = gospect().finish(&mut tracer);
    output.expect_code(0);
    let told = format!("sites ({})", Backend::selected().name());
    assert!(output.stderr.contains(&told), "{}", output.story());
    let said: Vec<&str> = output.stderr.lines().filter(|l| l.contains("of a CPU")).collect();
    assert!(said.iter().any(|line| line.contains("tracing costs the target")), "{said:?}");
    assert!(said.iter().any(|line| line.contains("--max-overhead")), "{said:?}");
    assert!(target.is_running(), "the target goes on");
}

// Statistics.

#[test]
fn root_statistics_count_every_call() {
    let select = functions(&["main.guard", "main.middle", "main.thrower"]);
    let options = [&select[..], &["--stat"]].concat();
    let args = ["-mode", "recover", "-n", "200"];
    let trace = Trace::launch(&options, &fixture("panics"), &args);
    trace.output.expect_code(0);
    let ends = trace.done()["ends"].clone();
    let rows = trace.of_type("stat");
    assert_eq!(rows.len(), 3, "{rows:?}");
    for row in rows {
        let name = text(&row["func"]);
        assert_eq!(row["ends"], ends[&name], "{row}");
        assert_eq!(row["calls"], 200, "{row}");
        let at = |key: &str| number(&row[key]);
        assert!(at("p50_ns") <= at("p99_ns") && at("p99_ns") <= at("max_ns"), "{row}");
        assert!(at("self_ns") <= at("total_ns") && at("max_ns") <= at("total_ns"), "{row}");
    }
    let summary = trace.summary();
    assert_eq!((&summary["calls"], &summary["lost"]), (&600.into(), &0.into()));
    assert_eq!(trace.of_type("call").len(), 0, "a table instead of the calls");
}

#[test]
fn root_statistics_are_a_table_for_people() {
    let select = functions(&["main.guard", "main.middle", "main.thrower"]);
    let options = [&select[..], &["--stat", "-q"]].concat();
    let (table, output) = shown(&options, &fixture("panics"), &["-mode", "recover", "-n", "200"]);
    output.expect_code(0);
    assert_eq!(output.stderr, "", "-q");
    let mut lines: Vec<String> = Mask::new().lines(&table).lines().map(str::to_owned).collect();
    let columns: Vec<usize> = table.lines().map(name_column).collect();
    assert!(columns.iter().all(|column| *column == columns[0]), "{table}");
    lines.iter_mut().for_each(|line| *line = line.trim().to_owned());
    lines[1..].sort();
    let five = "<duration> <duration> <duration> <duration> <duration>";
    let want = [
        "CALLS TOTAL SELF P50 P99 MAX FUNCTION".to_owned(),
        format!("200 {five} main.guard"),
        format!("200 {five} main.middle (panic 200)"),
        format!("200 {five} main.thrower (panic 200)"),
    ];
    assert_eq!(lines, want, "{table}");
}

/// Where the name begins, in characters.
#[track_caller]
fn name_column(line: &str) -> usize {
    let at = line.find("main.").or_else(|| line.find("FUNCTION")).expect("a name");
    line[..at].chars().count()
}

// Selection.

#[test]
fn root_selection_takes_and_leaves_what_it_names() {
    let program = fixture("counts");
    let names = |options: &[&str]| -> Vec<String> {
        let trace = Trace::launch(options, &program, &["-n", "4"]);
        trace.output.expect_code(0);
        counted(&trace).into_keys().collect()
    };
    let own = ["main.leaf", "main.main", "main.main.func1", "main.work"];
    let without = |left_out: &[&str]| -> Vec<&str> {
        own.iter().filter(|name| !left_out.contains(name)).copied().collect()
    };
    // What the compiler adds (wrappers of go and defer statements, init) differs by version.
    let same = |options: &[&str], want: Vec<&str>| {
        let names: Vec<String> =
            names(options).into_iter().filter(|name| own.contains(&name.as_str())).collect();
        assert_eq!(names, want, "{options:?}");
    };
    same(&["-u", "main.*"], without(&[]));
    same(&["-u", "main.*", "--exclude", "main.main*"], vec!["main.leaf", "main.work"]);
    same(&["-u", "main.*", "--exclude", "/work|leaf/"], without(&["main.work", "main.leaf"]));
    same(
        &["-u", "main.*", "--exclude", "main.leaf", "--exclude", "main.work"],
        without(&["main.work", "main.leaf"]),
    );
    same(&["-f", "/^main\\.(work|leaf)$/"], vec!["main.leaf", "main.work"]);
    same(&["--calls-of", "main.work"], vec!["main.leaf", "main.work"]);
    same(&["--calls-of", "main.main.func1:1"], without(&["main.leaf", "main.main"]));
    same(&["--calls-of", "main.main.func1:2"], without(&["main.main"]));
    same(&["-u", "*.leaf", "--main-module"], vec!["main.leaf"]);
    same(&["-u", "main.?eaf"], vec!["main.leaf"]);
    // All of the module, and nothing of the runtime or the standard library.
    let module = names(&["--main-module"]);
    for name in ["main.work", "main.main", "gospect.test/fixtures/fact.Begin"] {
        assert!(module.iter().any(|n| n == name), "no {name} in {module:?}");
    }
    let ours = |name: &str| name.starts_with("main.") || name.starts_with("gospect.test/");
    assert!(module.iter().all(|name| ours(name)), "{module:?}");
}

#[test]
fn root_values_can_be_left_out() {
    let program = fixture("counts");
    let of = |options: &[&str]| {
        let options = [&["-u", "main.work"], options].concat();
        let trace = Trace::launch(&options, &program, &["-n", "1"]);
        let call = trace.calls_of("main.work")[0].clone();
        let len = |key: &str| call[key].as_array().map_or(0, Vec::len);
        (len("args"), len("results"))
    };
    assert_eq!(of(&[]), (1, 1));
    assert_eq!(of(&["--args", "none"]), (0, 1));
    assert_eq!(of(&["--results", "none"]), (1, 0));
    assert_eq!(of(&["--args", "none", "--results", "none"]), (0, 0));
}

#[test]
fn root_vendored_packages_are_left_out_unless_asked_for() {
    // The standard library carries vendored packages; the fixture's server links some.
    let program = fixture("httpserver");
    let line = |rest: &[&str]| {
        let line = [&["trace", "--dry-run", "-u", "vendor/*"], rest].concat();
        gospect().run(&[&line[..], &["--", path_text(&program)]].concat())
    };
    for excluded in [&[][..], &["-x"], &["-x=true"], &["--exclude-vendor=true"]] {
        let output = line(excluded);
        output.expect_code(3);
        assert!(output.stderr.contains("--exclude-vendor"), "{}", output.story());
    }
    for included in ["-x=false", "--exclude-vendor=false"] {
        let output = line(&[included]);
        output.expect_code(0);
        assert!(output.stdout.contains("vendor/golang.org/x/"), "{included}");
    }
}

// Plans and messages.

#[test]
fn root_a_dry_run_prints_the_plan_and_does_nothing() {
    let program = common::own(&Fixture::build("counts", &newest(), Mode::Exe));
    let line = ["trace", "--dry-run", "-u", "main.work", "-u", "main.leaf"];
    let output = gospect().run(&[&line[..], &["--", path_text(&program)]].concat());
    output.expect_code(0);
    assert!(!output.stdout.contains("\"ready\""), "nothing ran");
    let mask = Mask::new().text(path_text(&program), "program");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/plan.txt");
    let plan = masked_plan(&mask.lines(&output.stdout));
    assert_golden(golden, &plan);
    // Being seen from the first instruction on or not, the plan of these is the same.
    let target = Running::held(&program, &[]);
    let attach = gospect().run(&[&line[..], &["-p", &target.pid().to_string()]].concat());
    assert_eq!(masked_plan(&mask.lines(&attach.stdout)), plan);
}

/// A plan without what another machine changes: the build id, and where sources lie.
fn masked_plan(plan: &str) -> String {
    let mask = |word: &str| match word.rsplit_once('/') {
        Some((dir, file)) if dir.starts_with('/') => format!("<dir>/{file}"),
        _ => word.to_owned(),
    };
    let mask_line = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let line = line.split_once(" build ").map_or(line, |(head, _)| head);
        let words: Vec<String> = line.split_whitespace().map(mask).collect();
        format!("{}{}\n", " ".repeat(indent), words.join(" "))
    };
    plan.lines().map(mask_line).collect()
}

#[test]
fn root_quiet_says_nothing_and_verbose_says_what_is_done() {
    let program = fixture("counts");
    let (_, output) = shown(&["-q", "-u", "main.work"], &program, &["-n", "3"]);
    assert_eq!(output.stderr, "");
    let (_, output) = shown(&["-u", "main.work"], &program, &["-n", "3"]);
    assert!(output.stderr.starts_with("3 calls; 1 function at "), "{}", output.story());
    let (_, output) = shown(&["-v", "-u", "main.work"], &program, &["-n", "3"]);
    let phases = [
        "opened",
        "planned",
        &format!("{} backend (asked for with --backend)", Backend::selected().name()),
        "started the command",
        "captured until",
        "detached",
        "3 calls; 1 function at ",
    ];
    let mut rest = output.stderr.as_str();
    for phase in phases {
        let at = rest.find(phase).unwrap_or_else(|| panic!("no {phase:?}: {}", output.story()));
        rest = &rest[at..];
    }
    // Each phase tells its time.
    let said: Vec<&str> =
        output.stderr.lines().filter(|line| line.starts_with("gospect: ")).collect();
    assert!(said.len() >= 6 && said.iter().all(|line| line.ends_with(" ms)")), "{said:?}");
}

#[test]
fn root_colour_is_where_it_was_asked_for() {
    let demo = fixture("ftrace_demo");
    let run = |options: &[&str]| {
        let options = [&["-q", "-u", "main.add"], options].concat();
        shown(&options, &demo, &["-demo", "loop", "-n", "1"]).0
    };
    let plain = run(&[]);
    assert!(!plain.contains('\x1b'), "{plain:?}");
    assert!(!run(&["--color", "never"]).contains('\x1b'));
    let coloured = run(&["--color", "always"]);
    assert!(coloured.contains("\x1b[1mmain.add(a=1, b=2) = 3\x1b[0m"), "{coloured:?}");
}

#[test]
fn root_an_output_file_is_kept_when_nothing_is_done() {
    let dir = Directory::new();
    let file = dir.file("precious");
    fs::write(&file, "precious, and longer than what comes in its place\n".repeat(99)).expect("it");
    let program = fixture("counts");
    let line = ["trace", "-o", path_text(&file), "-u", "main.nowhere", "--", path_text(&program)];
    gospect().run(&line).expect_code(3);
    assert!(fs::read_to_string(&file).expect("it").starts_with("precious"));
    let line =
        ["trace", "-qo", path_text(&file), "-u", "main.work", "--", path_text(&program), "-n", "1"];
    gospect().run(&line).expect_code(0);
    let text = fs::read_to_string(&file).expect("it");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains("precious"));
}

#[test]
fn root_no_file_is_overwritten_that_is_in_use() {
    let dir = Directory::new();
    let program = dir.copy(&fixture("counts"), "counts");
    let (program, record) = (path_text(&program), path_text(&dir.file("recording")).to_owned());
    let select = ["trace", "-u", "main.work"];
    let refused = |options: &[&str]| {
        let output = gospect().run(&[&select[..], options].concat());
        output.expect_code(2);
        assert!(output.stderr.contains("overwritten"), "{}", output.story());
        assert_eq!(output.stdout, "", "{}", output.story());
    };
    refused(&["-o", &record, "--record", &record, "--", program]);
    refused(&["-o", program, "--", program]);
    refused(&["--record", program, "--", program]);
    let line = [&select[..], &["--record", &record, "-o", "/dev/null", "--", program]].concat();
    gospect().run(&line).expect_code(0);
    let output = gospect().run(&["report", &record, "-o", &record]);
    output.expect_code(2);
    gospect().run(&["report", &record]).expect_code(0);
}

#[test]
fn root_refused_functions_are_listed_with_reasons() {
    // Assembly without a frame the runtime knows is among what a wide pattern matches.
    let program = fixture("counts");
    let options = ["-u", "main.work", "-u", "runtime.goexit*", "-u", "runtime.mcall"];
    let trace = Trace::launch(&options, &program, &["-n", "3"]);
    trace.output.expect_code(0);
    let summary = trace.summary();
    let refusals = summary["refusals"].as_array().expect("refusals");
    assert!(!refusals.is_empty(), "{summary}");
    assert_eq!(summary["refused"], refusals.len());
    for refusal in refusals {
        assert!(text(&refusal["reason"]).len() > 10, "{refusal}");
    }
    let (_, output) = shown(&options, &program, &["-n", "3"]);
    assert!(output.stderr.contains("not traced:"), "{}", output.story());
    for refusal in refusals.iter().take(10) {
        let line = format!("    {}: {}", text(&refusal["func"]), text(&refusal["reason"]));
        assert!(output.stderr.contains(&line), "no {line:?} in {}", output.story());
    }
}

#[test]
fn root_one_pattern_of_several_that_matches_nothing_is_named() {
    let program = fixture("counts");
    let trace = Trace::launch(&["-u", "main.work", "-u", "main.wrok"], &program, &["-n", "3"]);
    trace.output.expect_code(0);
    assert!(trace.output.stderr.contains("main.wrok"), "{}", trace.output.story());
    assert_eq!(trace.calls_of("main.work").len(), 3);
}

// Text.

#[test]
fn root_an_entry_line_is_held_for_a_child_or_100_ms() {
    // add calls add1 at once; add1 sleeps 100 ms, add2 200 ms and add3 300 ms.
    let mut target = Running::held(&fixture("ftrace_demo"), &["-linger"]);
    let pid = target.pid().to_string();
    let line = ["trace", "-q", "-v", "-u", "main.add", "-u", "main.add3", "-p", &pid];
    let mut tracer = gospect().start(&line);
    tracer.wait_error_line(LIMIT, |line| line.contains("attached by"));
    target.go();
    // Long before they end: add3 is not over when the line of add is there.
    tracer.wait_line(LIMIT, |line| line.contains("main.add(a=1, b=2) {"));
    assert!(!target.stdout().contains("main.add3"), "it was held until the end");
    target.wait_for("done", LIMIT);
    tracer.signal("INT");
    let output = gospect().finish(&mut tracer);
    output.expect_code(0);
    let shown: Vec<String> = Mask::new().lines(&output.stdout).lines().map(str::to_owned).collect();
    let starts = [
        "<time> <g> main.add(a=1, b=2) {",
        "<time> <g> main.add3(a=1, b=2) {",
        "<time> <g> <duration> } = 3",
        "<time> <g> <duration> } = 3",
    ];
    assert_eq!(shown.iter().map(|line| without_place(line)).collect::<Vec<_>>(), starts);
    // Wall-clock time, to the microsecond: within the last minutes.
    let times: Vec<u64> = output.stdout.lines().map(|line| microseconds(&line[..15])).collect();
    assert!(times.is_sorted(), "{}", output.story());
    let apart = times[3] - times[0];
    assert!((600_000..900_000).contains(&apart), "{apart}: {}", output.story());
    let now = std::process::Command::new("date").arg("+%H:%M:%S.%6N").output().expect("date");
    let now = microseconds(String::from_utf8_lossy(&now.stdout).trim());
    let day = 86_400_000_000;
    let ago = (now + day - times[3]) % day;
    assert!(ago < 60_000_000, "{ago} µs ago: {}", output.story());
}
