//! What is known of goroutines: their open spans, who made them, and whether they panic.

use crate::span::SpanContext;
use std::collections::{HashMap, VecDeque};
use timeline::KeyHash;

/// A span that a goroutine was made in, by itself or by those that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) context: SpanContext,
    pub(crate) tree: u64,
}

/// Where a goroutine comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ancestry {
    pub(crate) origin: Origin,
    /// Whether the one that made it was in that span itself.
    pub(crate) is_direct: bool,
    /// Somebody who does not work for that span handed something to it, or to one of those that made it: it
    /// may work for anyone.
    pub(crate) is_shared: bool,
}

/// Which goroutine of which process.
pub(crate) type Key = (u32, u64);

/// Where goroutines come from, as far as that is a span. An id is never used again within a process,
/// so that an entry does no harm when its goroutine has ended; the oldest make room.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    by_goroutine: HashMap<Key, Ancestry, KeyHash>,
    in_order: VecDeque<Key>,
}

impl Origins {
    pub(crate) fn get(&self, key: Key) -> Option<Ancestry> {
        self.by_goroutine.get(&key).copied()
    }

    /// It may work for anyone from now on.
    pub(crate) fn share(&mut self, key: Key) {
        if let Some(ancestry) = self.by_goroutine.get_mut(&key) {
            ancestry.is_shared = true;
        }
    }

    /// Keeps at most `most`.
    pub(crate) fn insert(&mut self, key: Key, ancestry: Ancestry, most: usize) {
        if self.by_goroutine.insert(key, ancestry).is_none() {
            self.in_order.push_back(key);
        }
        while self.by_goroutine.len() > most.max(1) {
            let Some(oldest) = self.in_order.pop_front() else { break };
            self.by_goroutine.remove(&oldest);
        }
    }

    pub(crate) fn forget_process(&mut self, pid: u32) {
        self.by_goroutine.retain(|key, _| key.0 != pid);
        self.in_order.retain(|key| key.0 != pid);
    }
}

/// Ids of spans that were used lately.
#[derive(Debug, Default)]
pub(crate) struct Used {
    ids: HashMap<u64, usize, KeyHash>,
    in_order: VecDeque<u64>,
}

impl Used {
    pub(crate) fn contains(&self, id: u64) -> bool {
        self.ids.contains_key(&id)
    }

    /// Remembers the last `most`.
    pub(crate) fn insert(&mut self, id: u64, most: usize) {
        *self.ids.entry(id).or_default() += 1;
        self.in_order.push_back(id);
        while self.in_order.len() > most.max(1) {
            let Some(oldest) = self.in_order.pop_front() else { break };
            if let Some(count) = self.ids.get_mut(&oldest) {
                *count -= 1;
                if *count == 0 {
                    self.ids.remove(&oldest);
                }
            }
        }
    }
}
