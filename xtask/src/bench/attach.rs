//! Attaching, letting go and starting: how long they take, and what memory they leave.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use testkit::Running;

use super::Rounds;
use super::setup::{BACKENDS, LIMIT, Programs, capture, end, millis, objects, private_dirty_kib};

/// Patterns that choose about as many functions as wanted.
pub struct Choice {
    wanted: usize,
    patterns: Vec<String>,
}

/// Packages of the big fixture whose functions together are about 1,000 and 10,000. The
/// runtime is left out: only registers are captured there, and it is not what people trace.
pub fn choices(programs: &Programs) -> anyhow::Result<Vec<Choice>> {
    let out = Command::new(&programs.gospect)
        .args(["funcs", "--format", "json"])
        .arg(&programs.big)
        .output()
        .context("failed to run gospect funcs")?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut packages: BTreeMap<String, usize> = BTreeMap::new();
    for function in objects(&String::from_utf8_lossy(&out.stdout)) {
        let name = function["name"].as_str().unwrap_or_default();
        let last = name.split('[').next().unwrap_or_default().rfind('/').map_or(0, |at| at + 1);
        let Some(dot) = name.get(last..).and_then(|rest| rest.find('.')) else { continue };
        let package = &name[..last + dot];
        if function["uprobe"]["ok"] == true && !package.starts_with("runtime") {
            *packages.entry(package.to_owned()).or_default() += 1;
        }
    }
    Ok([1_000, 10_000].map(|wanted| choose(&packages, wanted)).into())
}

/// The largest package that still fits, again and again.
fn choose(packages: &BTreeMap<String, usize>, wanted: usize) -> Choice {
    let mut by_size: Vec<_> = packages.iter().collect();
    by_size.sort_by_key(|(_, size)| std::cmp::Reverse(**size));
    let (mut left, mut patterns) = (wanted, Vec::new());
    for (package, size) in by_size {
        if *size <= left && !package.contains(['*', '?', ':', '(']) {
            left -= size;
            patterns.push(format!("{package}.*"));
        }
    }
    Choice { wanted, patterns }
}

/// One round: both backends take and leave a running process, for each number of functions.
pub fn round(programs: &Programs, choices: &[Choice], rounds: &mut Rounds) -> anyhow::Result<()> {
    for Choice { wanted, patterns } in choices {
        for backend in BACKENDS {
            let key = |what: &str| format!("attach.{wanted}.{backend}.{what}");
            let target = Running::start(&programs.big, &["-for", "600s"]);
            target.wait_for("ready", Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(300));
            let before = private_dirty_kib(target.pid())?;
            let (gospect, by_the_clock) = programs.attach(backend, target.pid(), patterns);
            std::thread::sleep(Duration::from_millis(300));
            let during = private_dirty_kib(target.pid())?;
            let code = mapped_code(target.pid())?;
            let summary = end(gospect)?;
            let after = private_dirty_kib(target.pid())?;
            let number = |what: &str| summary[what].as_f64().unwrap_or(f64::NAN);
            rounds.add(key("start_to_attached_ms"), by_the_clock);
            for what in ["functions", "sites", "refused", "attach_ms", "detach_ms"] {
                rounds.add(key(what), number(what));
            }
            if backend == "trampoline" {
                rounds.add(key("code_bytes_per_function"), code / number("functions"));
            }
            rounds.add(key("target_dirty_kib"), during - before);
            rounds.add(key("target_dirty_after_kib"), after - before);
        }
    }
    Ok(())
}

/// Bytes of the trampolines in a process: its executable mapping that gospect named.
fn mapped_code(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/maps");
    let text = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    let sizes = text.lines().filter(|line| line.contains("gospect-code")).map(|line| {
        let (low, high) = line.split(' ').next()?.split_once('-')?;
        let [low, high] = [low, high].map(|end| u64::from_str_radix(end, 16).ok());
        high?.checked_sub(low?)
    });
    Ok(sizes.flatten().sum::<u64>() as f64)
}

/// One round of starting a program: from its exec (or gospect's) to its first line in main.main.
pub fn start_round(programs: &Programs, rounds: &mut Rounds) {
    let ready = |running: &mut Running, begin: Instant| {
        running.wait_line(LIMIT, |line| line.contains("\"ready\""));
        let took = millis(begin.elapsed());
        running.wait(LIMIT);
        took
    };
    let begin = Instant::now();
    let mut plain = Running::start(&programs.big, &["-for", "1ms"]);
    rounds.add("start.untraced.ms".into(), ready(&mut plain, begin));
    for backend in BACKENDS {
        let mut args = capture(backend, &["main.*".to_owned(), "net/http.*".to_owned()]);
        args.push("--".to_owned());
        args.push(programs.big.to_string_lossy().into_owned());
        args.extend(["-for", "1ms"].map(str::to_owned));
        let begin = Instant::now();
        let mut traced = Running::start(&programs.gospect, &args);
        rounds.add(format!("start.{backend}.ms"), ready(&mut traced, begin));
    }
}
