//! Losses: where the running count of a CPU (or ring) jumps.

use crate::event::Event;
use crate::hash::KeyHash;
use std::collections::HashMap;
use wire::Record;

#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    lost: u32,
    last_ns: u64,
}

/// The last count seen of each CPU; at most 65,536 of them.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    cpus: HashMap<u16, Cpu, KeyHash>,
}

impl Losses {
    /// The gap that lies before `record` on its CPU, and how many records it swallowed.
    pub fn note(&mut self, record: &Record<'_>) -> Option<(Event, u32)> {
        let cpu = self.cpus.entry(record.cpu).or_default();
        let delta = record.lost.wrapping_sub(cpu.lost);
        let from_ns = cpu.last_ns;
        cpu.last_ns = record.ts_ns.max(from_ns);
        // The count wraps; a step back is a record out of its CPU's order, not a loss.
        if delta == 0 || delta > u32::MAX / 2 {
            return None;
        }
        cpu.lost = record.lost;
        let gap = Event::Gap { cpu: record.cpu, from_ns, to_ns: record.ts_ns, lost: delta };
        Some((gap, delta))
    }
}
