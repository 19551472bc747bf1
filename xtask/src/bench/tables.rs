//! The tables of docs/evaluation.md, made from the results: between
//! `<!-- bench:NAME -->` and `<!-- /bench -->` nobody writes by hand.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

use super::statistics::{Estimate, estimate};
use crate::root;

const DOCUMENT: &str = "docs/evaluation.md";
const BEGIN: &str = "<!-- bench:";
const END: &str = "<!-- /bench -->";

/// Writes the tables anew from the results in `path`.
pub fn update(path: &Path) -> anyhow::Result<()> {
    let document = root().join(DOCUMENT);
    let text = fs::read_to_string(&document).context("failed to read the evaluation")?;
    let new = with_tables(&text, &read(path)?)?;
    fs::write(&document, new).context("failed to write the evaluation")
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let failed = || format!("failed to read {}", path.display());
    let text = fs::read_to_string(path).with_context(failed)?;
    serde_json::from_str(&text).with_context(failed)
}

/// `text` with every table replaced.
fn with_tables(text: &str, results: &Value) -> anyhow::Result<String> {
    let (mut new, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(BEGIN) {
        let (before, marked) = rest.split_at(at);
        let name = marked[BEGIN.len()..].split(' ').next().unwrap_or_default();
        let end = marked.find(END).with_context(|| format!("table {name} has no end"))?;
        let table = Tables { results }.named(name)?;
        new += &format!("{before}{BEGIN}{name} -->\n{table}{END}");
        rest = &marked[end + END.len()..];
    }
    Ok(new + rest)
}

/// The values of all rounds, by key.
pub fn rounds_of(results: &Value) -> Vec<(String, Vec<f64>)> {
    let all = results["results"].as_object();
    all.into_iter()
        .flatten()
        .map(|(key, it)| {
            let values = it["rounds"].as_array().into_iter().flatten();
            (key.clone(), values.filter_map(Value::as_f64).collect())
        })
        .collect()
}

struct Tables<'a> {
    results: &'a Value,
}

impl Tables<'_> {
    fn named(&self, name: &str) -> anyhow::Result<String> {
        Ok(match name {
            "machine" => self.machine(),
            "aims" => self.aims(),
            "call" => self.call(),
            "http-paced" => self.http("paced"),
            "http-full" => self.http("full"),
            "attach" => self.attach(),
            "start" => self.start(),
            "store" => self.store(),
            "compile" => self.compile(),
            "caddy" => self.caddy(),
            "spans" => self.spans(),
            "preload" => self.preload(),
            "states-ping" => self.states_ping(),
            "states-http" => self.states_http(),
            "thesis" => self.thesis(),
            _ => bail!("no table is called {name}"),
        })
    }

    fn of(&self, key: &str) -> Option<Estimate> {
        let values = self.results["results"][key]["rounds"].as_array()?;
        estimate(&values.iter().filter_map(Value::as_f64).collect::<Vec<_>>())
    }

    /// Median and interval of a key, `–` when it was not measured.
    fn cell(&self, key: &str) -> String {
        self.scaled(key, 1.0)
    }

    fn scaled(&self, key: &str, factor: f64) -> String {
        let Some(it) = self.of(key) else { return "–".to_owned() };
        let [median, low, high] = [it.median, it.low, it.high].map(|it| number(it * factor));
        if low == high { median } else { format!("{median} ({low} … {high})") }
    }

    fn percent(&self, key: &str) -> String {
        match self.scaled(key, 100.0) {
            none if none == "–" => none,
            cell => format!("{cell} %"),
        }
    }

    fn median(&self, key: &str, factor: f64) -> String {
        self.of(key).map_or("–".to_owned(), |it| number(it.median * factor))
    }

    fn machine(&self) -> String {
        let machine = &self.results["machine"];
        let text = |key: &str| machine[key].as_str().unwrap_or("unknown").to_owned();
        let load = machine["load_average"].as_array().into_iter().flatten();
        let load: Vec<&str> = load.filter_map(Value::as_str).collect();
        format!(
            "{}, {} CPUs, Linux {}, fixtures built by Go {}, gospect as of commit {}. Load averages at \
             the end of the run: {}.\n",
            text("cpu"),
            machine["cpus"],
            text("kernel"),
            text("go"),
            text("commit"),
            load.join(", "),
        )
    }

    fn aims(&self) -> String {
        let mut rows = Vec::new();
        for (load, what) in [("paced", "paced"), ("full", "at full load")] {
            let cpu = format!("http.{load}.trampoline/untraced.server_cpu");
            let name = format!("server's CPU, all functions, {what}: ratio to untraced");
            rows.push((name, cpu, 1.0, 1.10));
            let lost = format!("http.{load}.trampoline.lost_share");
            rows.push((format!("records lost, {what}, %"), lost, 100.0, 1.0));
        }
        for threads in [1, 2] {
            let key = |what: &str| format!("call.{threads}t.trampoline.{what}");
            let on = format!("{threads} thread{}", if threads == 1 { "" } else { "s" });
            let name = format!("a call without values, {on}: ratio to two rdtsc and jumps");
            rows.push((name, key("empty/twice_rdtsc"), 1.0, 1.5));
            rows.push((format!("ns more for 2 integers, {on}"), key("two_ints-empty"), 1.0, 10.0));
            let name = format!("ns more for a string of 64 B, {on}");
            rows.push((name, key("one_string-empty"), 1.0, 25.0));
        }
        let rows = rows.into_iter().map(|(name, key, factor, aim)| {
            let verdict = match self.of(&key) {
                None => "not measured",
                Some(it) if it.high * factor <= aim => "met",
                Some(it) if it.median * factor <= aim => "by the median, not by the upper end",
                Some(_) => "**missed**",
            };
            vec![name, number(aim), self.scaled(&key, factor), verdict.to_owned()]
        });
        table(&["", "at most", "measured", ""], rows)
    }

    fn call(&self) -> String {
        let mut rows = Vec::new();
        for threads in [1, 2] {
            let on = format!("{threads} thread{}", if threads == 1 { "" } else { "s" });
            let floor = format!("call.{threads}t.untraced.twice_rdtsc");
            rows.push(vec![
                format!("two rdtsc and jumps, {on}"),
                self.cell(&floor),
                String::new(),
                String::new(),
                String::new(),
            ]);
            for backend in ["trampoline", "uprobe"] {
                let key = |what: &str| format!("call.{threads}t.{backend}.{what}");
                let mut row = vec![format!("{backend}, {on}")];
                row.extend(["empty", "two_ints", "one_string"].map(|what| self.cell(&key(what))));
                row.push(self.percent(&key("lost_share")));
                rows.push(row);
            }
            let ratio = format!("call.{threads}t.uprobe/trampoline.empty");
            let mut row = vec![format!("uprobe / trampoline, {on}"), self.cell(&ratio)];
            row.resize(5, String::new());
            rows.push(row);
        }
        let head = ["ns per call (entry and exit)", "no argument", "2 integers"];
        table(&[&head[..], &["1 string of 64 B", "records lost"]].concat(), rows)
    }

    fn http(&self, load: &str) -> String {
        let ways = [
            ("untraced", "untraced"),
            ("trampoline", "trampolines, all functions"),
            ("uprobe_one", "uprobes, one function"),
        ];
        let rows = ways.map(|(way, name)| {
            let key = |what: &str| format!("http.{load}.{way}.{what}");
            let ratio = format!("http.{load}.{way}/untraced.server_cpu");
            vec![
                name.to_owned(),
                self.cell(&key("server_cpu_us")),
                if way == "untraced" { "1".to_owned() } else { self.cell(&ratio) },
                self.cell(&key("p50_us")),
                self.cell(&key("p99_us")),
                self.cell(&key("gospect_cpu_us")),
                self.cell(&key("gospect_ns_per_record")),
                self.percent(&key("lost_share")),
            ]
        });
        let head = ["per request", "server CPU, µs", "ratio to untraced", "p50, µs", "p99, µs"];
        let more = ["gospect's CPU, µs", "gospect's CPU per record, ns", "records lost"];
        table(&[&head[..], &more].concat(), rows)
    }

    fn attach(&self) -> String {
        let mut rows = Vec::new();
        for wanted in [1_000, 10_000] {
            for backend in ["trampoline", "uprobe"] {
                let key = |what: &str| format!("attach.{wanted}.{backend}.{what}");
                let mut row = vec![backend.to_owned()];
                row.extend(["functions", "sites", "refused"].map(|it| self.median(&key(it), 1.0)));
                let measured = ["attach_ms", "detach_ms", "start_to_attached_ms"];
                row.extend(measured.map(|it| self.cell(&key(it))));
                let measured = ["target_dirty_kib", "target_dirty_after_kib"];
                row.extend(measured.map(|it| self.cell(&key(it))));
                row.push(self.median(&key("code_bytes_per_function"), 1.0));
                rows.push(row);
            }
        }
        let head = ["backend", "functions", "sites", "refused", "attach, ms", "detach, ms"];
        let more = ["start to attached, ms", "target's private pages, KiB more"];
        let last = ["after letting go, KiB", "trampoline bytes per function"];
        table(&[&head[..], &more, &last].concat(), rows)
    }

    fn start(&self) -> String {
        let ways = ["untraced", "trampoline", "uprobe"];
        let row = |way: &str| vec![way.to_owned(), self.cell(&format!("start.{way}.ms"))];
        table(&["", "ms"], ways.map(row))
    }

    fn store(&self) -> String {
        let row = vec![
            self.cell("store.records_per_s"),
            self.cell("store.gospect_ns_per_record"),
            self.cell("store.bytes_per_record"),
            self.percent("store.lost_share"),
        ];
        let head = ["records stored per second", "gospect's CPU per record, ns"];
        table(&[&head[..], &["bytes per record", "records lost"]].concat(), [row])
    }

    fn compile(&self) -> String {
        let row = |way: &str, ratio: String| {
            let key = |what: &str| format!("compile.{way}.{what}");
            vec![
                way.to_owned(),
                self.median(&key("functions"), 1.0),
                self.median(&key("records"), 1.0),
                self.cell(&key("cpu_ms")),
                ratio,
                self.cell(&key("ns_per_record")),
                self.cell(&key("wall_ms")),
                self.percent(&key("lost_share")),
            ]
        };
        let ratio = self.cell("compile.trampoline/untraced.cpu");
        let rows = [row("untraced", "1".to_owned()), row("trampoline", ratio)];
        let head =
            ["", "functions", "records", "compiler's CPU, ms", "ratio", "ns more per record"];
        table(&[&head[..], &["start to end, ms", "records lost"]].concat(), rows)
    }

    fn caddy(&self) -> String {
        let ways = [
            ("untraced", "untraced"),
            ("attached", "`net/http.*`, attached under load"),
            ("launched", "`net/http.*`, launched"),
            ("uprobe_one", "uprobe, one function"),
        ];
        let rows = ways.map(|(way, name)| {
            let key = |what: &str| format!("caddy.{way}.{what}");
            vec![
                name.to_owned(),
                self.median(&key("functions"), 1.0),
                self.cell(&key("mean_us")),
                self.cell(&key("sd_us")),
                self.cell(&key("p50_us")),
                self.cell(&key("p99_us")),
                self.cell(&key("cpu_us")),
                self.percent(&key("lost_share")),
                self.scaled(&key("rss_kib"), 1.0 / 1024.0),
                self.cell(&key("start_ms")),
                self.median(&key("right_responses"), 1.0),
            ]
        });
        let head = ["", "functions", "mean, µs", "SD, µs", "p50, µs", "p99, µs", "CPU, µs"];
        let more = ["records lost", "memory, MiB", "start to first answer, ms", "right answers"];
        table(&[&head[..], &more].concat(), rows)
    }

    fn spans(&self) -> String {
        let ways = ["untraced", "trampoline", "uprobe"];
        let all = ["full", "paced"].into_iter().flat_map(|load| ways.map(|way| (load, way)));
        let rows = all.map(|(load, way)| {
            let key = |what: &str| format!("spans.{load}.{way}.{what}");
            let ratio = self.cell(&key("/untraced.cpu"));
            vec![
                format!("{load}, {way}"),
                self.cell(&key("cpu_us")),
                if way == "untraced" { "1".to_owned() } else { ratio },
                self.cell(&key("p50_us")),
                self.cell(&key("gospect_cpu_us")),
                self.percent(&key("lost_share")),
            ]
        });
        let head = ["per request", "caddy's CPU, µs", "ratio to untraced", "p50, µs"];
        table(&[&head[..], &["gospect's CPU, µs", "records lost"]].concat(), rows)
    }

    fn preload(&self) -> String {
        let programs = [
            ("true", "`/bin/true`, to its end"),
            ("server", "HTTP server, to `main.main`"),
            ("caddy", "`caddy version`, to its end"),
        ];
        let ways = [
            ("nothing", "no library"),
            ("empty", "a library that does nothing"),
            ("absent", "no agent"),
            ("cached", "an agent with the code ready"),
            ("first", "an agent that has no plan yet"),
        ];
        let all = programs.into_iter().flat_map(|program| ways.map(|way| (program, way)));
        // None of Go's has anything to do with an agent.
        let all = all.filter(|((subject, _), (way, _))| {
            *subject != "true" || !["cached", "first"].contains(way)
        });
        let rows = all.map(|((subject, program), (way, name))| {
            let key = |what: &str| format!("preload.{subject}.{way}.{what}");
            vec![
                format!("{program}: {name}"),
                self.cell(&key("ms")),
                self.cell(&key("added_ms")),
                self.cell(&key("to_empty_ms")),
                self.median(&key("starts"), 1.0),
                self.percent(&key("served_share")),
            ]
        });
        let head = ["", "ms", "more than without, ms", "more than the empty library's, ms"];
        table(&[&head[..], &["starts in a round", "of them took code"]].concat(), rows)
    }

    fn states_ping(&self) -> String {
        let mut rows = Vec::new();
        for procs in [1, 2] {
            for way in ["untraced", "trampoline", "uprobe"] {
                let key = |what: &str| format!("states.ping.{procs}p.{way}.{what}");
                rows.push(vec![
                    format!("{way}, GOMAXPROCS {procs}"),
                    self.cell(&key("cpu_ns")),
                    if way == "untraced" {
                        "1".to_owned()
                    } else {
                        self.cell(&key("/untraced.cpu"))
                    },
                    self.percent(&key("lost_share")),
                ]);
            }
        }
        table(&["", "CPU of a round trip, ns", "ratio to untraced", "records lost"], rows)
    }

    fn states_http(&self) -> String {
        let rows = ["untraced", "trampoline", "uprobe"].map(|way| {
            let key = |what: &str| format!("states.http.{way}.{what}");
            let ratio = self.cell(&key("/untraced.server_cpu"));
            vec![
                way.to_owned(),
                self.median(&key("changes_per_request"), 1.0),
                self.cell(&key("server_cpu_us")),
                if way == "untraced" { "1".to_owned() } else { ratio },
                self.cell(&key("p50_us")),
                self.cell(&key("p99_us")),
                self.percent(&key("lost_share")),
            ]
        });
        let head = ["per request", "changes", "server CPU, µs", "ratio to untraced", "p50, µs"];
        table(&[&head[..], &["p99, µs", "records lost"]].concat(), rows)
    }

    fn thesis(&self) -> String {
        let ms = |way: &str, what: &str| self.scaled(&format!("caddy.{way}.{what}_us"), 1e-3);
        let memory = |way: &str| self.scaled(&format!("caddy.{way}.rss_kib"), 1.0 / 1024.0);
        let rows = [
            ["an instrumented empty function, ns more", "", &self.cell("call.1t.trampoline.empty")],
            [
                "trampoline bytes per function",
                "296",
                &self.median("attach.10000.trampoline.code_bytes_per_function", 1.0),
            ],
            ["process memory, MiB: Caddy untraced", "", &memory("untraced")],
            ["process memory, MiB: Caddy traced", "19", &memory("attached")],
            ["start of a program to main.main, ms, untraced", "", &self.cell("start.untraced.ms")],
            ["start of a program to main.main, ms, traced", "", &self.cell("start.trampoline.ms")],
            ["Caddy, 1,000 requests, ms: mean, untraced", "1.339", &ms("untraced", "mean")],
            ["Caddy, 1,000 requests, ms: mean, traced", "1.317", &ms("attached", "mean")],
            ["SD, untraced", "", &ms("untraced", "sd")],
            ["SD, traced", "", &ms("attached", "sd")],
            ["p50, untraced", "", &ms("untraced", "p50")],
            ["p50, traced", "", &ms("attached", "p50")],
        ];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        table(&["", "thesis of 2017", "here"], rows)
    }
}

/// A table in Markdown.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let mut text = line(&head) + &"|---".repeat(head.len()) + "|\n";
    rows.into_iter().for_each(|row| text += &line(&row));
    text
}

/// As many digits as say something, thousands apart.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1000.0 || value.fract() == 0.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').map_or((&*text, None), |(a, b)| (a, Some(b)));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match rest {
        Some(rest) => format!("{sign}{grouped}.{rest}"),
        None => format!("{sign}{grouped}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_document_has_the_tables_of_the_results() {
        let text = fs::read_to_string(root().join(DOCUMENT)).unwrap();
        let results = read(&root().join("bench/latest.json")).unwrap();
        let new = with_tables(&text, &results).unwrap();
        assert!(new == text, "run `cargo run -p xtask -- bench --tables`");
        assert_eq!(text.matches(BEGIN).count(), text.matches(END).count());
    }

    #[test]
    fn tables_are_replaced_and_all_else_stays() {
        let results = json!({"results": {"start.untraced.ms": {"rounds": [1.0, 2.0, 1234.5]}}});
        let text = "a\n<!-- bench:start -->\nold\n<!-- /bench -->\nb\n";
        let expected = "a\n<!-- bench:start -->\n|  | ms |\n|---|---|\n| untraced | 2 (1 … 1,234) |\n\
                        | trampoline | – |\n| uprobe | – |\n<!-- /bench -->\nb\n";
        assert_eq!(with_tables(text, &results).unwrap(), expected);
        assert_eq!(with_tables(expected, &results).unwrap(), expected);
        assert!(with_tables("<!-- bench:other -->\n<!-- /bench -->", &results).is_err());
        assert!(with_tables("<!-- bench:start -->\n", &results).is_err());
    }

    #[test]
    fn numbers_are_grouped() {
        let numbers = [0.0, 1.0, 0.234, -2.5, 12.34, 999.96, 1000.4, 1_234_567.0, -1000.0];
        let shown = ["0", "1", "0.23", "-2.50", "12.3", "1,000.0", "1,000", "1,234,567", "-1,000"];
        assert_eq!(numbers.map(number), shown);
    }
}
