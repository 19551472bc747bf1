//! Records into a file: how many a second reach it, and what that takes.

use std::fs;
use std::time::Instant;

use anyhow::Context;

use super::Rounds;
use super::http::Server;
use super::setup::{Programs, cpu_ns, end, lost_share};

/// Requests in a capture.
const REQUESTS: &str = "12000";

/// One round: the server at full load with everything recorded.
pub fn round(programs: &Programs, server: &Server, rounds: &mut Rounds) -> anyhow::Result<()> {
    let key = |what: &str| format!("store.{what}");
    let path = std::env::temp_dir().join(format!("gospect-bench-{}.rec", std::process::id()));
    let patterns = ["main.*", "net/http.*"].map(str::to_owned);
    let record = ["--record".to_owned(), path.to_string_lossy().into_owned()];
    let (gospect, _) = programs.attach_with("trampoline", server.pid(), &patterns, &record);
    let before = cpu_ns(gospect.pid())?;
    let begin = Instant::now();
    server.load(programs, REQUESTS, "0s")?;
    let seconds = begin.elapsed().as_secs_f64();
    let spent = cpu_ns(gospect.pid())? - before;
    let summary = end(gospect)?;
    let number = |what: &str| summary[what].as_f64().unwrap_or(f64::NAN);
    let stored = number("entries") + number("exits");
    let size = fs::metadata(&path).with_context(|| format!("no {}", path.display()))?.len();
    fs::remove_file(&path).with_context(|| format!("failed to remove {}", path.display()))?;
    rounds.add(key("records_per_s"), stored / seconds);
    rounds.add(key("gospect_ns_per_record"), spent / stored);
    rounds.add(key("bytes_per_record"), size as f64 / stored);
    rounds.add(key("lost_share"), lost_share(&summary));
    Ok(())
}
