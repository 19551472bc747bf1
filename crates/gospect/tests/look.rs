//! `info`, `funcs` and `types` on fixtures: no privileges, no running process but in one test.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use testkit::{
    Fixture, Mask, Mode, Output, Running, Toolchain, assert_golden, newest, oldest, toolchain,
};

use common::{gospect, number, temporary, text};

/// A fixture of the newest Go, so that golden files do not depend on the matrix.
fn built(name: &str) -> String {
    path_text(&Fixture::build(name, &newest(), Mode::Exe))
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn run(args: &[&str]) -> Output {
    gospect().run(args)
}

#[track_caller]
fn json(args: &[&str]) -> Vec<Value> {
    let mut line = args.to_vec();
    line.extend(["--format", "json"]);
    let output = run(&line);
    output.expect_code(0);
    output.json()
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Addresses and sizes change with every compiler, the rest of a listing does not.
fn mask(output: &str, binary: &str) -> String {
    let sources = path_text(&testkit::source_root());
    Mask::new().text(binary, "binary").text(&sources, "sources").lines(output)
}

/// What the symbol table says, by `go tool nm -size`: name to address and size.
fn symbols(go: &Toolchain, binary: &str) -> BTreeMap<String, (u64, u64)> {
    let out = Command::new(&go.go).args(["tool", "nm", "-size", binary]).output().unwrap();
    let lines = String::from_utf8(out.stdout).unwrap();
    let parsed = lines.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let size = words.next()?.parse().ok()?;
        words.next().filter(|kind| matches!(*kind, "T" | "t"))?;
        Some((words.collect::<Vec<_>>().join(" "), (address, size)))
    });
    parsed.collect()
}

#[test]
fn every_function_of_the_demo_is_found_with_its_place() {
    for go in [oldest(), toolchain("1.21.13"), newest()] {
        let binary = path_text(&Fixture::build("ftrace_demo", &go, Mode::Exe));
        let bytes = std::fs::read(&binary).unwrap();
        let listed = json(&["funcs", &binary, "main.*"]);
        let known = symbols(&go, &binary);
        let of_main: BTreeMap<_, _> =
            known.into_iter().filter(|(name, _)| name.starts_with("main.")).collect();
        let found: BTreeMap<String, (u64, u64)> = listed
            .iter()
            .filter(|function| !function["addr"].is_null())
            .map(|f| (text(&f["name"]), (number(&f["addr"]), number(&f["size"]))))
            .collect();
        let addresses = |map: &BTreeMap<String, (u64, u64)>| -> BTreeMap<String, u64> {
            map.iter().map(|(name, (address, _))| (name.clone(), *address)).collect()
        };
        assert_eq!(addresses(&found), addresses(&of_main), "go {}", go.version);
        for (name, (_, size)) in &of_main {
            // Symbols count their padding.
            let own = found[name].1;
            assert!(own > 0 && own <= *size && size - own < 32, "{name}: {own} of {size}");
        }
        for function in listed.iter().filter(|function| !function["addr"].is_null()) {
            let entry = number(&function["entry"]);
            assert!(entry > 0 && entry < bytes.len() as u64, "{function}");
            let exits: Vec<u64> =
                function["exits"].as_array().unwrap().iter().map(number).collect();
            let is_return = |at: &&u64| bytes[**at as usize] == 0xc3;
            assert!(exits.iter().filter(is_return).count() >= 1, "{function}");
            assert!(exits.iter().all(|exit| *exit >= entry), "{function}");
            assert_eq!(function["uprobe"], serde_json::json!({"ok": true, "reason": null}));
        }
    }
}

#[test]
fn a_pattern_gives_its_functions_with_their_returns() {
    let binary = built("ftrace_demo");
    let bytes = std::fs::read(&binary).unwrap();
    let listed = json(&["funcs", &binary, "main.add*"]);
    let names: Vec<String> = listed.iter().map(|function| text(&function["name"])).collect();
    assert_eq!(names, ["main.add", "main.add1", "main.add2", "main.add3"]);
    for function in &listed {
        for value in ["params", "results"] {
            assert!(!function[value].as_array().unwrap().is_empty(), "{function}");
        }
        for exit in function["exits"].as_array().unwrap() {
            assert_eq!(bytes[number(exit) as usize], 0xc3, "a RET at {exit} of {function}");
        }
    }
}

#[test]
fn functions_as_text() {
    let demo = built("ftrace_demo");
    let inlined = built("inlined");
    let mut shown = run(&["funcs", &demo, "main.*", "--callees"]).expect_code(0).stdout.clone();
    shown.push_str(&run(&["funcs", &inlined, "main.*"]).expect_code(0).stdout);
    assert_golden(golden("funcs.txt"), &mask(&shown, &demo));
}

#[test]
fn functions_that_exist_only_inlined_are_listed() {
    for go in [oldest(), newest()] {
        let binary = path_text(&Fixture::build("inlined", &go, Mode::Exe));
        let listed = json(&["funcs", &binary, "main.tiny"]);
        let [tiny] = &listed[..] else { panic!("one function: {listed:?}") };
        assert!(tiny["addr"].is_null() && tiny["entry"].is_null(), "{tiny}");
        assert_eq!(tiny["uprobe"], serde_json::json!({"ok": false, "reason": "only inlined"}));
        let places = tiny["inlined_at"].as_array().unwrap();
        assert_eq!(places.len(), 1, "{tiny}");
        assert_eq!(places[0]["func"], "main.host");
        assert!(text(&places[0]["file"]).ends_with("inlined/main.go"), "{tiny}");
        assert!(text(&tiny["file"]).ends_with("inlined/main.go"), "{tiny}");
        let once = json(&["funcs", &binary, "main.once"]);
        assert!(number(&once[0]["addr"]) > 0, "{once:?}");
        assert_eq!(once[0]["inlined_at"][0]["func"], "main.host", "{once:?}");
    }
}

#[test]
fn a_pattern_that_matches_nothing_names_the_nearest() {
    let binary = built("ftrace_demo");
    let none = run(&["funcs", &binary, "main.ad1"]);
    none.expect_code(3);
    assert_eq!(none.stdout, "");
    assert!(none.stderr.contains("no function matches main.ad1; nearest: main.add"), "{none:?}");
    // One that matches is shown, the other is told.
    let some = run(&["funcs", &binary, "main.add", "main.nothing_like_it"]);
    some.expect_code(0);
    assert!(some.stdout.contains("main.add(") && some.stderr.contains("main.nothing_like_it"));
    let malformed = run(&["funcs", &binary, "/ma(in/"]);
    malformed.expect_code(2);
    assert!(malformed.stderr.contains("malformed pattern `/ma(in/`: column 4"), "{malformed:?}");
}

#[test]
fn without_debug_info_functions_keep_their_places() {
    let stripped = path_text(&Fixture::build("ftrace_demo", &newest(), Mode::StrippedPie));
    let listed = json(&["funcs", &stripped, "main.add*"]);
    assert_eq!(listed.len(), 4);
    for function in &listed {
        assert_eq!(function["params"], serde_json::json!([]));
        assert_eq!(
            function["signature_unavailable"],
            "there is no debug information (try --debug-file)"
        );
        assert!(text(&function["file"]).ends_with("ftrace_demo/main.go"));
        assert!(number(&function["entry"]) > 0 && number(&function["line"]) > 0);
    }
    // Types that the program needs when it runs are described by what it needs.
    let stripped = path_text(&Fixture::build("httpserver", &newest(), Mode::StrippedPie));
    let layout = |binary: &str| json(&["types", binary, "net/http.Request", "main.order"]);
    assert_eq!(layout(&stripped), layout(&built("httpserver")));
    let none = run(&["types", &stripped, "net/http.Requst"]);
    none.expect_code(3);
    let told = "no type net/http.Requst in the type descriptors; nearest: net/http.Request";
    assert!(none.stderr.contains(told), "{}", none.stderr);
}

#[test]
fn parameters_that_are_not_kept_are_marked_beside_their_places() {
    let said = |function: &Value| -> Vec<String> {
        let params = function["params"].as_array().expect("a list").iter();
        params.map(|param| format!("{} {}", param["loc"], param["unavailable"])).collect()
    };
    let listed = json(&["funcs", &built("recycle"), "main.lost", "main.beside"]);
    let found: BTreeMap<String, Vec<String>> =
        listed.iter().map(|function| (text(&function["name"]), said(function))).collect();
    let unused = "\"not used by the function, so not kept when its stack grows\"";
    let pointee = "\"what it points to is not kept when the stack grows\"";
    let lost = ["ax", "x0", "bx+cx"].map(|loc| format!("\"{loc}\" {unused}"));
    let beside = [("ax", "null"), ("x0", "null"), ("bx+cx", pointee), ("di", "null")];
    let beside = beside.map(|(loc, said)| format!("\"{loc}\" {said}"));
    assert_eq!(found["main.lost"], lost);
    assert_eq!(found["main.beside"], beside);
}

/// A binary whose debug information was taken out into a file, as distributions do it.
#[test]
fn a_separate_debug_file_serves() {
    let whole = built("ftrace_demo");
    let (bare, debug) = (temporary("bare"), temporary("debug"));
    let (bare_text, debug_text) = (path_text(&bare), path_text(&debug));
    for args in [["--only-keep-debug", &whole, &debug_text], ["--strip-debug", &whole, &bare_text]]
    {
        assert!(Command::new("objcopy").args(args).status().unwrap().success(), "{args:?}");
    }
    let own = json(&["funcs", &whole, "main.*"]);
    assert_eq!(json(&["funcs", &bare_text, "main.*", "--debug-file", &debug_text]), own);
    let student = |args: &[&str]| json(&[&["types"], args, &["main.Student"]].concat());
    assert_eq!(student(&[&bare_text, "--debug-file", &debug_text]), student(&[&whole]));
    let other = built("counts");
    let foreign = run(&["info", &other, "--debug-file", &debug_text]);
    foreign.expect_code(1);
    assert!(foreign.stderr.contains("is of another build than"), "{}", foreign.stderr);
    for file in [bare, debug] {
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn info_says_where_each_fact_comes_from() {
    let go = newest();
    let facts = |mode: Mode| {
        let binary = path_text(&Fixture::build("ftrace_demo", &go, mode));
        let mut info = json(&["info", &binary]);
        assert_eq!(info.len(), 1);
        info.remove(0)
    };
    let plain = facts(Mode::Exe);
    assert_eq!(plain["type"], "info");
    assert_eq!(plain["go_version"], format!("go{}", go.version));
    assert_eq!(plain["module"]["path"], "gospect.test/fixtures");
    assert_eq!(plain["build_mode"], "exe");
    assert_eq!(plain["stripped"], false);
    assert_eq!(plain["dwarf_version"], 5);
    assert_eq!(plain["settings"]["GOARCH"], "amd64");
    assert_eq!(plain["g_tls_offset"], serde_json::json!({"value": -8, "source": "code"}));
    assert_eq!(plain["goid_offset"]["source"], "dwarf");
    assert_eq!(text(&plain["gnu_build_id"]).len(), 40, "{plain}");
    let stripped = facts(Mode::StrippedPie);
    assert_eq!(stripped["build_mode"], "pie");
    assert_eq!(stripped["stripped"], true);
    assert_eq!(stripped["dwarf_version"], Value::Null);
    assert_eq!(stripped["dwarf_unavailable"], "the executable has none");
    assert_eq!(stripped["goid_offset"]["source"], "table");
    assert_eq!(stripped["goid_offset"]["value"], plain["goid_offset"]["value"]);
    assert_eq!(stripped["g_tls_offset"]["value"], -8);
    assert!(number(&stripped["functions"]) > 1000);
}

#[test]
fn info_as_text() {
    let binary = built("inlined");
    let shown = run(&["info", &binary]).expect_code(0).stdout.clone();
    // Sizes, counts and ids change with every compiler.
    let steady = |line: &&str| {
        !["size", "functions", "go build id", "gnu build id", "setting         DefaultGODEBUG"]
            .iter()
            .any(|name| line.starts_with(name))
    };
    let lines: Vec<&str> = shown.lines().filter(steady).collect();
    assert_golden(golden("info.txt"), &mask(&lines.join("\n"), &binary));
}

#[test]
fn layouts_of_types() {
    let binary = built("ftrace_demo");
    let mut shown = String::new();
    for path in ["main.Student", "runtime.special", "runtime.g->m.curg->sched.pc", "[]uint8"] {
        shown.push_str(&run(&["types", &binary, path]).expect_code(0).stdout);
    }
    shown.push_str(&run(&["types", &binary, "main.*"]).expect_code(0).stdout);
    for path in ["main.Student", "runtime.special", "os.File.name"] {
        let mut line = vec!["types", &binary, path];
        line.extend(["--format", "json"]);
        shown.push_str(&run(&line).expect_code(0).stdout);
    }
    assert_golden(golden("types.txt"), &shown);
}

/// The type's name holds a slash and a dot, the arrow equals the dot, and a field of an embedded
/// struct is found where Go promotes it.
#[test]
fn paths_lead_through_dotted_names_pointers_and_embedded_structs() {
    for go in [oldest(), newest()] {
        let binary = path_text(&Fixture::build("httpserver", &go, Mode::Exe));
        let steps = |path: &str| -> Vec<(String, String, bool)> {
            let layout = json(&["types", &binary, path]).remove(0);
            let steps = layout["path"].as_array().unwrap().iter();
            let step = |step: &Value| {
                let through = step["through_pointer"] == true;
                (text(&step["in"]), text(&step["field"]), through)
            };
            steps.map(step).collect()
        };
        let step = |of: &str, field: &str, through| (of.to_owned(), field.to_owned(), through);
        let url = [step("net/http.Request", "URL", false), step("net/url.URL", "Path", true)];
        assert_eq!(steps("net/http.Request.URL.Path"), url);
        assert_eq!(steps("net/http.Request.URL->Path"), url);
        let name = [step("os.File", "file", false), step("os.file", "name", true)];
        assert_eq!(steps("os.File.name"), name);
    }
}

#[test]
fn types_agree_with_the_offsets_that_info_shows() {
    let binary = built("ftrace_demo");
    let g = json(&["types", &binary, "runtime.g"]).remove(0);
    let fields = g["fields"].as_array().unwrap();
    let goid = fields.iter().find(|field| field["name"] == "goid").unwrap();
    let info = json(&["info", &binary]).remove(0);
    assert_eq!(goid["offset"], info["goid_offset"]["value"]);
    // Fields and holes together are the whole struct.
    let sum = |key: &str| -> u64 {
        g[key].as_array().unwrap().iter().map(|part| number(&part["size"])).sum()
    };
    assert_eq!(sum("fields") + sum("holes"), number(&g["size"]));
    assert_eq!(number(&g["cache_lines"]), number(&g["size"]).div_ceil(64));
}

#[test]
fn wrong_types_and_fields_are_told_with_what_there_is() {
    let binary = built("ftrace_demo");
    let field = run(&["types", &binary, "main.Student.nam"]);
    field.expect_code(3);
    assert!(field.stderr.contains("main.Student has no field nam; it has name, age"), "{field:?}");
    let name = run(&["types", &binary, "main.Studnet.name"]);
    name.expect_code(3);
    assert!(name.stderr.contains("nearest: main.Student"), "{name:?}");
    let deep = run(&["types", &binary, "main.Student.age.x"]);
    deep.expect_code(3);
    assert!(deep.stderr.contains("int is no struct and has no field x"), "{deep:?}");
}

#[test]
fn type_names_are_listed_when_none_is_given() {
    let binary = built("ftrace_demo");
    let names: Vec<String> =
        json(&["types", &binary]).iter().map(|line| text(&line["name"])).collect();
    assert!(names.len() > 1000, "{}", names.len());
    assert!(names.is_sorted());
    for name in ["main.Student", "*main.Student", "runtime.g", "string"] {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
}

#[test]
fn a_process_is_looked_at_through_its_executable() {
    let binary = built("ftrace_demo");
    let mut command = Command::new(&binary);
    command.args(["-demo", "loop", "-n", "100000"]);
    let mut running = Running::spawn(command);
    let pid = running.pid().to_string();
    let of_file = json(&["funcs", &binary, "main.add", "main.main"]);
    assert_eq!(json(&["funcs", "-p", &pid, "main.add", "main.main"]), of_file);
    let of_file = json(&["types", &binary, "main.Student", "runtime.g"]);
    assert_eq!(json(&["types", "main.Student", "runtime.g", "-p", &pid]), of_file);
    assert_eq!(
        json(&["info", "-p", &pid])[0]["functions"],
        json(&["info", &binary])[0]["functions"]
    );
    run(&["info", "-p", &pid, &binary]).expect_code(2);
    running.signal("KILL");
    running.wait(common::LIMIT);
}

#[test]
fn what_is_no_go_executable_is_an_error_with_its_reason() {
    for command in ["info", "funcs", "types"] {
        let missing = run(&[command, "/nowhere/at-all"]);
        missing.expect_code(1);
        assert!(missing.stderr.contains("/nowhere/at-all"), "{}", missing.stderr);
        let foreign = run(&[command, "/bin/sh"]);
        foreign.expect_code(1);
        assert!(foreign.stderr.contains("not a Go executable"), "{}", foreign.stderr);
        run(&[command]).expect_code(2);
        // Ids end at 2^22.
        run(&[command, "-p", "4194305"]).expect_code(1);
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let binary = built("ftrace_demo");
    let mut child = Command::new(env!("CARGO_BIN_EXE_gospect"))
        .args(["funcs", &binary])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

/// RLIMIT_DATA counts the private memory of a process, which an allocation beyond it ends.
/// The time is that of an optimised build on an idle machine; others get ten times it.
#[test]
fn info_on_a_large_executable_is_quick_and_small() {
    let binary = path_text(&testkit::big_binary(&newest()));
    assert!(std::fs::metadata(&binary).unwrap().len() > 60 << 20);
    let mut command = Command::new("sh");
    let limited = "ulimit -d 204800 && exec \"$@\"";
    command.args(["-c", limited, "sh", env!("CARGO_BIN_EXE_gospect"), "info", &binary]);
    let start = Instant::now();
    let output = command.output().unwrap();
    let seconds = start.elapsed().as_secs();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(seconds < 10, "{seconds} s");
}
