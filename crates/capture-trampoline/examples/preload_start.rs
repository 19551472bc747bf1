//! What preloading adds to the start of a program: `preload_start PROGRAM PATTERN [ROUNDS [-- ARGUMENT...]]`.
//!
//! Starts the program (which has to end by itself) with an empty library, without an agent, with one that
//! declines, and with one that hands over, in turn, and gives the medians of what the library's part takes more. The
//! program's own time is in all of them: choose one that ends at once.
#![allow(clippy::print_stdout, reason = "an example")]

#[path = "../tests/support/agent.rs"]
mod agent;
#[path = "../tests/support/mod.rs"]
mod support;

use agent::{Directory, Stage, preloaded};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::Subject;

fn took(mut command: Command) -> Duration {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let mut child = command.spawn().expect("the program starts");
    child.wait().expect("the program ends");
    begun.elapsed()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, pattern, rest @ ..] = &arguments[..] else {
        println!("usage: preload_start PROGRAM PATTERN [ROUNDS [-- ARGUMENT...]]");
        return;
    };
    let rounds: usize = rest.first().and_then(|word| word.parse().ok()).unwrap_or(100);
    let given: Vec<&str> = rest.iter().skip(2).map(String::as_str).collect();
    let program = Path::new(program);
    let subject = Subject::new(program, &[pattern]);
    let begun = Instant::now();
    let stage = Stage::new(Some(&subject), 1 << 20);
    let made = begun.elapsed();
    let (declining, nobody) = (Stage::new(None, 1 << 20), Directory::new());
    let empty = {
        let (source, made) = (nobody.path().join("empty.c"), nobody.path().join("empty.so"));
        std::fs::write(&source, "static const char word = 1;\n").expect("a file can be written");
        let flags = ["-shared", "-fPIC", "-nostdlib", "-o"];
        let status = Command::new("cc").args(flags).args([&made, &source]).status();
        assert!(status.is_ok_and(|status| status.success()), "cc links the empty library");
        made
    };
    let absent = nobody.path().join("none/agent.sock");
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..rounds {
        let mut plain = Command::new(program);
        plain.args(&given).env("LD_PRELOAD", &empty);
        let commands = [
            plain,
            preloaded(program, &given, &absent),
            declining.command(program, &given),
            stage.command(program, &given),
        ];
        for (times, command) in times.iter_mut().zip(commands) {
            times.push(took(command).as_secs_f64() * 1e3);
        }
        // Captures are let go here, one after the other.
        if let Ok(injected) =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stage.injected()))
        {
            drop(injected);
        }
    }
    let [plain, absent, declined, injected] = times.map(median);
    println!("code made in {made:.1?}; {:?}", stage.server.counts());
    println!("empty library {plain:.3} ms");
    for (name, time) in [("no agent", absent), ("declined", declined), ("handed over", injected)] {
        println!("{name:12} {time:.3} ms, {:+.3} ms", time - plain);
    }
}
