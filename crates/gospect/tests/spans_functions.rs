//! `gospect spans --functions`: the calls that a request makes, in its tree, over its goroutines.

#[path = "common/trees.rs"]
mod trees;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use testkit::{
    Fixture, Gospect, Mode, Output, Slice, Timeline, import_timeline, newest, oldest, toolchains,
};
use trees::text;

const LIMIT: Duration = Duration::from_secs(240);

/// Wrappers and closures have other names in every version.
const MADE_UP: &str = r"/\.(func|gowrap|deferwrap)[0-9]/";

fn gospect(line: &[&str]) -> Output {
    let output = Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT).run(line);
    output.expect_code(0);
    output
}

fn line<'a>(format: &'a str, options: &[&'a str], program: &'a Path) -> Vec<&'a str> {
    let fixed = ["spans", "--format", format, "--functions", "main.*", "--exclude", MADE_UP];
    let values = ["--args", "none", "--functions", "main.price(id)"];
    let program = ["--", program.to_str().unwrap()];
    [&fixed[..], &values, options, &program].concat()
}

/// A line without time, goroutine and duration, without the place of a call, and without what differs by version.
fn shown(line: &str) -> String {
    let line: String = line.chars().skip(35).collect();
    let indent = line.len() - line.trim_start().len();
    let (space, text) = line.split_at(indent);
    let text = text.split("  ").next().unwrap_or_default();
    let text = match (text.strip_prefix("go "), text.split_once("127.0.0.1:")) {
        (Some(go), _) => format!("go by {}", go.split(" by ").last().unwrap_or_default()),
        (None, Some((before, after))) => {
            format!("{before}{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        (None, None) => text.to_owned(),
    };
    format!("{space}{text}\n")
}

const BUY: &str = "\
GET /buy 200 /buy
  main.buy()
    main.price(id=7) = (72, nil)
      main.tax() = 72
    main.fetch()
      > GET 200 http:///stock
      main.tax() = 2
    main.price(id=0) = (0, *errors.errorString(\"no such thing\"))
    main.guarded() = true
      main.breaks() panic
        main.breaks() panic
    main.fan()
      go by main.fan main.go:81
        main.worker()
          main.price(id=1) = (12, nil)
            main.tax() = 12
      go by main.fan main.go:81
        main.worker()
          main.price(id=2) = (22, nil)
            main.tax() = 22
          main.fetch()
            > GET 200 http:///stock
            main.tax() = 2
    go by main.buy main.go:103
      main.level()
        go by main.level main.go:89
          main.level()
            go by main.level main.go:89
              main.level()
                go by main.level main.go:89
                  main.level()
                    main.tax() = 7
";

#[test]
fn root_calls_stand_where_they_were_made() {
    for go in [newest(), oldest()] {
        let program = Fixture::build("purepath", &go, Mode::Exe);
        for backend in ["uprobe", "trampoline"] {
            let output = gospect(&line("text", &["--backend", backend, "--ring", "64"], &program));
            let lines: Vec<String> = output.stdout.lines().map(shown).collect();
            let from = lines.iter().position(|line| line.starts_with("GET /buy")).unwrap();
            let own = lines[from + 1..].iter().take_while(|line| line.starts_with(' '));
            let tree: String = lines[from..=from + own.count()].concat();
            assert_eq!(tree, BUY, "go {} {backend}:\n{tree}", go.version);
        }
    }
}

/// The calls of a span in one another, those of goroutines by the function that they begin with.
fn nested(calls: &Value) -> String {
    let calls = calls.as_array().unwrap().iter().map(|call| {
        let below = nested(&call["calls"]);
        let below = if below.is_empty() { below } else { format!("[{below}]") };
        let end = match text(call, "exit") {
            "return" => String::new(),
            other => format!(" {other}"),
        };
        format!("{}{end}{below}", text(call, "func").trim_start_matches("main."))
    });
    calls.collect::<Vec<_>>().join(" ")
}

fn found<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    let mut found = spans.iter().filter(|span| span["name"] == name && span["kind"] == "server");
    found.next().unwrap_or_else(|| panic!("no {name} in {spans:?}"))
}

/// What of a capture with `--format json` is the same in every run.
fn told(output: &Output) -> String {
    let spans = output.of_type("span");
    let summary = output.of_type("summary").remove(0);
    assert_eq!(summary["lost"], 0, "{summary}");
    let buy = found(&spans, "GET /buy");
    let mut told = format!("buy: {}\n", nested(&buy["calls"]));
    let own = |calls: &Value| calls.as_array().unwrap()[0].clone();
    let price = own(&own(&buy["calls"])["calls"]);
    told += &format!("price: {} {}\n", price["args"][0]["value"], price["results"][0]["value"]);
    assert_eq!(price["parent"], own(&buy["calls"])["id"]);
    assert_eq!((&price["depth"], &price["goid"]), (&Value::from(1), &buy["goid"]));
    told += &format!("by: {}\n", text(&price["caller"], "func"));
    let made = buy["goroutines"].as_array().unwrap();
    let by = made.iter().map(|one| text(&one["created_by"], "func"));
    told += &format!("goroutines: {}\n", by.collect::<Vec<_>>().join(" "));
    assert_eq!(made[5]["parent_goid"], made[4]["goid"]);
    let within = spans.iter().filter(|span| span["kind"] == "client");
    let calls = buy["calls"].to_string();
    let within = within.filter(|span| calls.contains(&format!("\"id\":{}", span["in_call"])));
    told += &format!("clients within calls: {}\n", within.count());
    let stock = spans.iter().filter(|span| span["name"] == "GET /stock");
    let stock: Vec<String> = stock.map(|span| nested(&span["calls"])).collect();
    told += &format!("stock: {}\n", stock.join(", "));
    let many = found(&spans, "GET /many");
    let count = nested(&many["calls"]).split([' ', '[']).count();
    told += &format!("many: {count} and {}\n", many["calls_cut"]);
    let leave = found(&spans, "GET /leave");
    told += &format!("leave: {}\n", nested(&leave["calls"]));
    told + &format!("outside: {}\n", summary["calls_outside_spans"])
}

/// Outside are `main`, `init`, two of `serve`, three of `ask`, and a `tax` when its request is over.
const TOLD: &str = "\
buy: buy[price[tax] fetch[tax] price guarded[breaks panic[breaks panic]] fan] \
worker[price[tax]] worker[price[tax] fetch[tax]] level level level level[tax]
price: 7 72
by: main.buy
goroutines: main.fan main.fan main.buy main.level main.level main.level
clients within calls: 2
stock: shelf[tax], shelf[tax]
many: 1000 and 401
leave: leave lasting open
outside: 8
";

#[test]
fn root_calls_are_the_same_in_every_version() {
    for go in toolchains() {
        let program = Fixture::build("purepath", &go, Mode::Exe);
        let output = gospect(&line("json", &["--ring", "64"], &program));
        assert_eq!(told(&output), TOLD, "go {}", go.version);
    }
}

/// A recorded file has the same calls.
#[test]
fn root_a_recording_has_the_same_calls() {
    let program = Fixture::build("purepath", &newest(), Mode::Exe);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("functions.gospect");
    let file = file.to_str().unwrap();
    let options = ["--time", "--record", file, "--ring", "64", "--backend", "trampoline"];
    let live = gospect(&line("json", &options, &program));
    assert_eq!(told(&live), TOLD);
    assert_eq!(told(&gospect(&["report", file, "--format", "json"])), TOLD);
    let lines = gospect(&["report", file]).stdout;
    assert!(lines.lines().map(shown).any(|line| line == "  main.buy()\n"), "{lines}");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn root_functions_that_are_not_there_are_told() {
    let program = Fixture::build("purepath", &newest(), Mode::Exe);
    let program = program.to_str().unwrap();
    let run = |patterns: &[&str]| {
        let functions = patterns.iter().flat_map(|pattern| ["--functions", *pattern]);
        let line: Vec<&str> =
            ["spans"].into_iter().chain(functions).chain(["--", program]).collect();
        Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT).run(&line)
    };
    let none = run(&["main.prise"]);
    none.expect_code(3);
    assert!(
        none.stderr.contains("no function matches main.prise; nearest: main.price"),
        "{none:?}"
    );
    let sensed = run(&["net/http.(*Transport).roundTrip"]);
    sensed.expect_code(3);
    assert!(sensed.stderr.contains("none of the functions of --functions"), "{sensed:?}");
    let less = run(&["main.prise", "main.tax"]);
    less.expect_code(0);
    assert!(less.stderr.contains("no function matches main.prise"), "{less:?}");
    let wrong = run(&["main.tax(amount.size)"]);
    wrong.expect_code(2);
}

/// A timeline that Perfetto takes: what is in what, and what arrows lead to, on both backends and of a recording.
#[test]
fn root_a_timeline_has_requests_and_calls_in_one_another() {
    let program = Fixture::build("purepath", &newest(), Mode::Exe);
    let path =
        |name: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).to_str().unwrap().to_owned();
    let (file, recorded, again) = (path("spans.json"), path("spans.record"), path("again.json"));
    let written = |file: &str| {
        let timeline = import_timeline(&std::fs::read_to_string(file).unwrap());
        std::fs::remove_file(file).unwrap();
        timeline
    };
    for backend in ["uprobe", "trampoline"] {
        let options = ["--backend", backend, "--ring", "64", "-o", &file, "--record", &recorded];
        gospect(&line("perfetto", &options, &program));
        let timeline = written(&file);
        assert_eq!(in_one_another(&timeline), TIMELINE, "{backend}");
        gospect(&["report", &recorded, "--perfetto", "-o", &again]);
        assert_eq!(in_one_another(&written(&again)), TIMELINE, "{backend}, recorded");
        std::fs::remove_file(&recorded).unwrap();
    }
}

/// The slices of the tracks that `GET /buy` has slices on, by levels, and where arrows lead to.
fn in_one_another(timeline: &Timeline) -> String {
    let named = |slice: &Slice| slice.cat == "span" && slice.name == "GET /buy";
    let buy = timeline.slices.iter().find(|slice| named(slice)).unwrap();
    let within = |slice: &&Slice| buy.from_ns <= slice.from_ns && slice.to_ns <= buy.to_ns;
    let mut tracks: BTreeMap<(u64, u64), Vec<&Slice>> = BTreeMap::new();
    for slice in timeline.slices.iter().filter(within) {
        tracks.entry((slice.pid, slice.tid)).or_default().push(slice);
    }
    let mut tracks: Vec<Vec<&Slice>> = tracks.into_values().collect();
    tracks.sort_by_key(|slices| slices[0].from_ns);
    let mut told = String::new();
    for slices in tracks {
        let mut around: Vec<&Slice> = Vec::new();
        for slice in slices {
            while around.last().is_some_and(|outer| outer.to_ns <= slice.from_ns) {
                around.pop();
            }
            let led = timeline.arrows.iter().filter(|(_, to)| timeline.slices[*to] == *slice);
            let led: String =
                led.map(|(from, _)| format!(" <- {}", timeline.slices[*from].name)).collect();
            told += &format!("{}{} {}{led}\n", "  ".repeat(around.len()), slice.cat, slice.name);
            around.push(slice);
        }
    }
    told
}

const TIMELINE: &str = "\
span GET /buy
  call main.buy
    call main.price
      call main.tax
    call main.fetch
      span GET
      call main.tax
    call main.price
    call main.guarded
      call main.breaks
        call main.breaks
    call main.fan
      begin to main.worker
      begin to main.worker
      begin to GET
    begin to main.level
span GET /stock
  call main.shelf
    call main.tax
span GET /stock
  call main.shelf
    call main.tax
call main.worker <- to main.worker
  call main.price
    call main.tax
call main.worker <- to main.worker
  call main.price
    call main.tax
  call main.fetch
    span GET <- to GET
    call main.tax
call main.level <- to main.level
  begin to main.level
call main.level <- to main.level
  begin to main.level
call main.level <- to main.level
  begin to main.level
call main.level <- to main.level
  call main.tax
";
