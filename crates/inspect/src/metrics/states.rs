//! Counts goroutines by state.

use super::reader::Reader;
use super::scheduler::GoroutineStates;
use crate::descriptor::{Layout, StatusAt};
use crate::state::State;
use address::{Avma, Part, ReadMemory as _};
use std::sync::Arc;

/// Descriptors that are less apart than this are read in one piece, bytes: copying what lies
/// between costs less than a piece of its own.
const GAP: u64 = 4096;

/// Bytes of one piece, and of all pieces of one call.
const PIECE: u64 = 1 << 18;

/// Counts the goroutines whose descriptors are at `addresses`; `reasons` are the names of
/// wait reasons.
pub(super) fn count(
    reader: &Reader<'_>,
    mut addresses: Vec<Avma>,
    layout: &Layout,
    reasons: &[Arc<str>],
) -> GoroutineStates {
    let fields = layout.status_at();
    addresses.sort_unstable();
    let mut states = GoroutineStates::default();
    let mut waiting = [0u64; 256];
    let mut bytes = Vec::new();
    let near = |a: &Avma, b: &Avma| b.0 - a.0 < GAP;
    for run in addresses.chunk_by(near) {
        // Evenly spread, or nearly: so many fit into a piece.
        let mut left = run;
        while let Some(&first) = left.first() {
            let fit = left.partition_point(|a| a.0 - first.0 < PIECE);
            let (piece, rest) = left.split_at(fit.max(1));
            left = rest;
            let last = piece.last().unwrap_or(&first);
            let start = first.add(fields.start as u64);
            bytes.resize((last.0 - first.0) as usize + fields.len, 0);
            if reader.read_memory(start, &mut bytes).is_ok() {
                for address in piece {
                    let at = (address.0 - first.0) as usize;
                    let descriptor = bytes.get(at..at + fields.len).unwrap_or_default();
                    states.add(&fields, descriptor, &mut waiting);
                }
            } else {
                states.add_each(reader, piece, &fields, &mut waiting);
            }
        }
    }
    states.name(&waiting, reasons);
    states
}

impl GoroutineStates {
    fn add(&mut self, fields: &StatusAt, descriptor: &[u8], waiting: &mut [u64; 256]) {
        let (status, reason) = fields.of(descriptor);
        let state = State::of(status);
        let counter = match state {
            _ if !state.is_alive() => return,
            State::Runnable => &mut self.runnable,
            State::Running => &mut self.running,
            State::Syscall => &mut self.syscall,
            State::Waiting => {
                if let Some(count) = waiting.get_mut(usize::from(reason)) {
                    *count += 1;
                }
                &mut self.waiting
            }
            _ => &mut self.other,
        };
        *counter += 1;
    }

    /// One by one, where something among them cannot be read.
    fn add_each(
        &mut self,
        reader: &Reader<'_>,
        addresses: &[Avma],
        fields: &StatusAt,
        waiting: &mut [u64; 256],
    ) {
        let mut bytes = vec![0; fields.len];
        for address in addresses {
            let at = address.add(fields.start as u64);
            match reader.read_parts(&mut [Part { address: at, bytes: &mut bytes }]) {
                Ok(()) => self.add(fields, &bytes, waiting),
                Err(_) => self.unreadable += 1,
            }
        }
    }

    fn name(&mut self, waiting: &[u64; 256], reasons: &[Arc<str>]) {
        let mut unnamed = 0;
        for (reason, count) in waiting.iter().enumerate().filter(|(_, count)| **count > 0) {
            match reasons.get(reason).filter(|name| !name.is_empty()) {
                Some(name) => self.waiting_by_reason.push((Arc::clone(name), *count)),
                None => unnamed += count,
            }
        }
        if unnamed > 0 {
            self.waiting_by_reason.push((Arc::from(""), unnamed));
        }
        self.waiting_by_reason.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    }
}
