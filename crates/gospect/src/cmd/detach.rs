//! `gospect detach`: removes what a killed gospect left in processes.

use crate::args::DetachArgs;
use crate::failure::{Outcome, nothing, usage};
use crate::sink;
use anyhow::Context as _;
use capture_trampoline::{Removal, has_leftovers, remove_leftovers};
use std::io::Write as _;

/// Looks into the processes named, or into all.
pub fn run(args: &DetachArgs) -> anyhow::Result<Outcome> {
    let pids = match (args.all, args.pids.is_empty()) {
        (true, true) => every_process(),
        (false, false) => args.pids.clone(),
        _ => return Err(usage("name processes with --pid PID, or take --all")),
    };
    // Buffered: a reader that has gone keeps no process from being looked into.
    let mut out = sink::open(None)?;
    let (mut cleaned, mut failed) = (0, 0);
    let is_one = pids.len() == 1;
    for pid in pids {
        let removal = remove_leftovers(pid).with_context(|| format!("process {pid}"));
        match removal {
            Ok(Some(removal)) => {
                cleaned += 1;
                writeln!(out, "{pid}: {}", Told(&removal))?;
            }
            Ok(None) if !args.all => writeln!(out, "{pid}: nothing of gospect in it")?,
            Ok(None) => {}
            // Of all processes most are none that we could have been in, and some end meanwhile.
            Err(_) if args.all => {}
            // One line says it all.
            Err(error) if is_one => return Err(error),
            Err(error) => {
                failed += 1;
                sink::say(format!("{error:#}"));
            }
        }
    }
    out.flush()?;
    anyhow::ensure!(failed == 0, "could not look into {failed} of the processes");
    if cleaned == 0 && args.all {
        return Err(nothing("no process has anything of gospect in it"));
    }
    Ok(Outcome::Done)
}

/// Processes that have something of ours; others need no look.
fn every_process() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| pid != std::process::id()).filter(|&pid| has_leftovers(pid)).collect()
}

struct Told<'a>(&'a Removal);

impl std::fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("removed")?;
        if self.0.foreign > 0 {
            write!(f, "; {} places that another tool has changed are left alone", self.0.foreign)?;
        }
        if self.0.left_bytes > 0 {
            let kib = self.0.left_bytes / 1024;
            write!(f, "; {kib} KiB stay mapped, since something may still return into them")?;
        }
        Ok(())
    }
}
