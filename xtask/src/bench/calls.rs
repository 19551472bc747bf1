//! What a traced call costs: entry and exit, by arguments and threads.

use anyhow::Context;
use serde_json::Value;
use testkit::Running;

use super::setup::{BACKENDS, LIMIT, Programs, capture, lost_share, objects, summary};
use super::{Rounds, statistics};

/// The fixture's name of a row, and the function that is traced for it.
const TRACED: [(&str, &str); 3] =
    [("empty", "main.empty"), ("two_ints", "main.twoInts"), ("one_string", "main.oneString")];

/// Calls of each function in a burst, of all threads together: so few that one ring of [`RING`]
/// holds them, and so many that making and ending the threads does not drown them.
const BURST: usize = 12_000;
/// MiB of all rings.
const RING: &str = "8";
/// A uprobe costs so much that fewer calls say as much.
const BURST_UPROBE: usize = 1_000;
/// Bursts in a process; the first warms up and does not count.
const BURSTS: usize = 21;
/// A capture that lost more than this share of its records measured how records are dropped.
const MOST_LOST: f64 = 0.01;
/// How often such a capture is made again before it counts as it is.
const TRIES: usize = 4;

/// One round: each way of running once, at one and at two threads.
pub fn round(programs: &Programs, rounds: &mut Rounds) -> anyhow::Result<()> {
    for threads in [1, 2] {
        let key = |way: &str, name: &str| format!("call.{threads}t.{way}.{name}");
        let mut plain = Running::start(&programs.callcost, &fixture_args(BURST, threads, "4ms"));
        plain.wait(LIMIT);
        let untraced = costs(&plain.stdout(), "twice_rdtsc")?;
        rounds.add(key("untraced", "twice_rdtsc"), untraced);
        let mut plain_costs = Vec::new();
        for (name, _) in TRACED {
            let cost = costs(&plain.stdout(), name)?;
            rounds.add(key("untraced", name), cost);
            plain_costs.push(cost);
        }
        for backend in BACKENDS {
            let (out, lost, tries) = traced(programs, backend, threads)?;
            rounds.add(key(backend, "lost_share"), lost);
            rounds.add(key(backend, "tries"), tries as f64);
            let floor = costs(&out, "twice_rdtsc")?;
            // A small burst measures the floor badly; the untraced run's is the same program.
            let floor = if backend == "uprobe" { untraced } else { floor };
            let mut without = 0.0;
            for ((name, _), plain) in TRACED.into_iter().zip(&plain_costs) {
                let cost = costs(&out, name)? - plain;
                rounds.add(key(backend, name), cost);
                if name == "empty" {
                    without = cost;
                    rounds.add(key(backend, "empty/twice_rdtsc"), cost / floor);
                } else {
                    rounds.add(key(backend, &format!("{name}-empty")), cost - without);
                }
            }
        }
        rounds.add_ratio(
            format!("call.{threads}t.uprobe/trampoline.empty"),
            &key("uprobe", "empty"),
            &key("trampoline", "empty"),
        );
    }
    Ok(())
}

/// Runs the fixture under gospect, again while too much was lost: the output, the share that was
/// lost and the number of runs.
fn traced(
    programs: &Programs,
    backend: &str,
    threads: usize,
) -> anyhow::Result<(String, f64, usize)> {
    let burst = if backend == "uprobe" { BURST_UPROBE } else { BURST };
    let mut args = capture(backend, &TRACED.map(|(_, function)| function.to_owned()));
    args.extend(["--results", "none", "--ring", RING, "--"].map(str::to_owned));
    args.push(programs.callcost.to_string_lossy().into_owned());
    args.extend(fixture_args(burst, threads, "20ms"));
    let mut tries = 0;
    loop {
        tries += 1;
        let mut gospect = Running::start(&programs.gospect, &args);
        gospect.wait(LIMIT);
        let lost = lost_share(&summary(&gospect)?);
        if lost <= MOST_LOST || tries == TRIES {
            return Ok((gospect.stdout(), lost, tries));
        }
    }
}

fn fixture_args(burst: usize, threads: usize, pause: &str) -> Vec<String> {
    let (calls, bursts) = ((burst / threads).to_string(), BURSTS.to_string());
    let threads = threads.to_string();
    ["-n", &calls, "-threads", &threads, "-rounds", &bursts, "-pause", pause]
        .map(str::to_owned)
        .to_vec()
}

/// CPU nanoseconds of one call of a function beyond the loop around it, the median of the
/// bursts. The loop's own burst carries the making and the end of the threads too.
fn costs(out: &str, function: &str) -> anyhow::Result<f64> {
    let of = |name: &str| -> Vec<f64> {
        objects(out)
            .filter(|line| line["type"] == "cost" && line["function"] == name)
            .filter(|line| line["round"].as_u64() > Some(0))
            .filter_map(|line: Value| line["cpu_ns"].as_f64())
            .collect()
    };
    let beyond: Vec<f64> = of(function).iter().zip(of("loop")).map(|(it, own)| it - own).collect();
    let found = statistics::estimate(&beyond).with_context(|| format!("no cost of {function}"))?;
    Ok(found.median)
}
