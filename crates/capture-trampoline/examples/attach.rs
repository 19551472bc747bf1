//! Attaches to a process, reads for some seconds, detaches, and says how it went:
//! `attach PID SECONDS PATTERN…`.
#![allow(clippy::print_stdout, reason = "it is its purpose")]

#[path = "../tests/support/mod.rs"]
mod support;

use capture::Capture as _;
use std::time::{Duration, Instant};
use support::Subject;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let pid: u32 = args[1].parse().expect("a process id");
    let seconds = Duration::from_secs_f64(args[2].parse().expect("seconds"));
    let patterns: Vec<&str> = args[3..].iter().map(String::as_str).collect();
    let start = Instant::now();
    let subject = Subject::new(format!("/proc/{pid}/exe").as_ref(), &patterns);
    let planned = start.elapsed();
    let mut capture = subject.attach(pid).expect("an installation");
    println!("planned in {planned:?}, installed in {:?}", start.elapsed() - planned);
    println!(
        "{} functions planned, {} refused",
        subject.plan.functions.len(),
        capture.refused().len()
    );
    for (&function, reason) in capture.refused() {
        println!("  {}: {reason}", subject.plan.functions[function as usize].name);
    }
    for (_, report) in capture.reports() {
        println!("{report:?}");
    }
    let (start, mut handed) = (Instant::now(), 0);
    while start.elapsed() < seconds {
        handed += capture.poll(Duration::from_millis(100), &mut |_| {}).expect("records");
    }
    let before = Instant::now();
    capture.detach().expect("a removal");
    println!("removed in {:?}: {:?}", before.elapsed(), capture.removals());
    println!("{handed} records, {:?}", capture.counters());
}
