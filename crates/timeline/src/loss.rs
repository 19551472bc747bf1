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

/// CPUs that have a place in a table.
const FEW: usize = 1024;

/// The last count seen of each CPU; at most 65,536 of them.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    first: Vec<Cpu>,
    others: HashMap<u16, Cpu, KeyHash>,
}

impl Losses {
    /// The gap that lies before `record` on its CPU, and how many records it swallowed.
    pub fn note(&mut self, record: &Record<'_>) -> Option<(Event, u32)> {
        let cpu = self.of(record.cpu);
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

    fn of(&mut self, cpu: u16) -> &mut Cpu {
        let index = usize::from(cpu);
        if index >= FEW {
            return self.others.entry(cpu).or_default();
        }
        if index >= self.first.len() {
            self.first.resize(index + 1, Cpu::default());
        }
        &mut self.first[index]
    }
}
