//! Records that wait until everything older is known, and the order they leave in.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use wire::Record;

/// Bytes of a chunk, more than the longest record has. What has left is given back by the chunk: one
/// piece of memory for all would grow by doubling, and never shrink.
const CHUNK: usize = 1 << 15;

/// Records that there is always room for.
const FEW: usize = 1 << 12;

/// A record that waits for its turn.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    tsc: u64,
    /// Number of the chunk that has its wire form, wrapping, and where it begins there.
    chunk: u32,
    at: u16,
    len: u16,
}

/// Wire forms, without a time.
#[derive(Debug, Default)]
struct Chunk {
    data: Vec<u8>,
    /// How many of its records have not left.
    waiting: usize,
}

/// What came from one ring, in its order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    records: VecDeque<Waiting>,
    chunks: VecDeque<Chunk>,
    /// Number of the first chunk.
    first: u32,
    /// A chunk that nothing is in.
    spare: Option<Chunk>,
    /// Whether times run back: a thread that lost the CPU between reserving and taking the time.
    unsorted: bool,
    /// Losses that the records that left have told of.
    told: u32,
}

impl Queue {
    /// Adds a record, whose time is set when it leaves; gives the bytes that it takes.
    pub(super) fn push(&mut self, tsc: u64, record: &Record<'_>) -> usize {
        self.unsorted |= self.records.back().is_some_and(|last| last.tsc > tsc);
        let len = record.wire_len();
        if self.chunks.back().is_none_or(|last| last.data.len() + len > CHUNK) {
            let spare = self.spare.take();
            let empty = || Chunk { data: Vec::with_capacity(CHUNK), waiting: 0 };
            self.chunks.push_back(spare.unwrap_or_else(empty));
        }
        let chunk = self.first.wrapping_add(self.chunks.len() as u32).wrapping_sub(1);
        let Some(last) = self.chunks.back_mut() else { return 0 };
        let at = last.data.len();
        record.write(&mut last.data);
        last.waiting += 1;
        let len = last.data.len() - at;
        self.records.push_back(Waiting { tsc, chunk, at: at as u16, len: len as u16 });
        len + size_of::<Waiting>()
    }

    /// Bytes in use.
    pub(super) fn size(&self) -> usize {
        let last = self.chunks.back().map_or(0, |last| last.data.len());
        let whole = self.chunks.len().saturating_sub(1) * CHUNK;
        whole + last + self.records.len() * size_of::<Waiting>()
    }

    /// How many leave: those up to `watermark`. They are in order from here on.
    fn ready(&mut self, watermark: u64) -> usize {
        if std::mem::take(&mut self.unsorted) {
            // Stable: equal times stay in ring order. Nearly sorted, so nearly linear.
            self.records.make_contiguous().sort_by_key(|record| record.tsc);
        }
        self.records.partition_point(|record| record.tsc <= watermark)
    }

    /// The next one to leave, if any of `ready` are left.
    fn next(&self, ready: usize) -> Option<u64> {
        self.records.front().filter(|_| ready > 0).map(|record| record.tsc)
    }

    fn bytes(&mut self, record: Waiting) -> Option<&mut [u8]> {
        let chunk = self.chunks.get_mut(record.chunk.wrapping_sub(self.first) as usize)?;
        let at = usize::from(record.at);
        chunk.data.get_mut(at..at + usize::from(record.len))
    }

    /// Whether records were lost between the last that left and what comes next: the next record
    /// that waits, or, where none does, all that the ring has lost until now.
    fn is_at_loss(&mut self, latest: u32) -> bool {
        let next = self.records.front().copied();
        let next = next.and_then(|next| self.bytes(next)).map(|bytes| wire::lost_so_far(bytes));
        let more = next.unwrap_or(latest).wrapping_sub(self.told);
        (1..=u32::MAX / 2).contains(&more)
    }

    /// Lets the next one leave, at a time on the capture's clock.
    fn pop(
        &mut self,
        ns: impl FnOnce(u64) -> u64,
        is_beside_loss: bool,
        sink: &mut dyn FnMut(&[u8]),
    ) {
        let Some(record) = self.records.pop_front() else { return };
        let told = self.told;
        let Some(bytes) = self.bytes(record) else { return };
        // Sorting can swap two records of a ring; the count must not run back.
        let told = wire::stamp(bytes, ns(record.tsc), told);
        if is_beside_loss {
            wire::mark_beside_loss(bytes);
        }
        sink(bytes);
        self.told = told;
        self.leave(record.chunk);
    }

    /// Gives back the room of chunks that all has left.
    fn leave(&mut self, chunk: u32) {
        let index = chunk.wrapping_sub(self.first) as usize;
        if let Some(chunk) = self.chunks.get_mut(index) {
            chunk.waiting = chunk.waiting.saturating_sub(1);
        }
        // A record sorted behind later ones holds the chunks behind its own for a while.
        while let Some(chunk) = self.chunks.front_mut()
            && chunk.waiting == 0
        {
            chunk.data.clear();
            if self.chunks.len() == 1 {
                return;
            }
            self.spare = self.chunks.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// Gives back room that was needed once.
    fn shrink(&mut self) {
        let (len, room) = (self.records.len(), self.records.capacity());
        if room > FEW && len * 8 < room {
            self.records.shrink_to((len * 2).max(FEW));
        }
    }
}

/// Rings, in the order of the times of what leaves them next.
type Order = BinaryHeap<Reverse<(u64, usize)>>;

/// What a merge has still to do.
#[derive(Debug)]
pub(super) struct Merge {
    /// Of each queue, how many records are to leave.
    ready: Vec<usize>,
    order: Order,
    /// What each ring has lost until now.
    latest: Vec<u32>,
    /// Whether each queue is at a loss.
    at_loss: Vec<bool>,
    /// How many are.
    losses: usize,
}

impl Merge {
    /// Of everything up to `watermark`; `latest` is what each ring has lost until now, read later
    /// than the watermark.
    pub(super) fn new(queues: &mut [Queue], watermark: u64, latest: Vec<u32>) -> Self {
        let ready: Vec<usize> = queues.iter_mut().map(|queue| queue.ready(watermark)).collect();
        let first = |(index, (queue, &ready)): (usize, (&Queue, &usize))| {
            Some(Reverse((queue.next(ready)?, index)))
        };
        let order = queues.iter().zip(&ready).enumerate().filter_map(first).collect();
        let losses = queues.iter_mut().zip(&latest);
        let losses = losses.map(|(queue, &latest)| queue.is_at_loss(latest));
        let at_loss: Vec<bool> = losses.collect();
        let losses = at_loss.iter().filter(|&&at_loss| at_loss).count();
        Self { ready, order, latest, at_loss, losses }
    }

    /// Lets the next record of a queue leave.
    fn pop(
        &mut self,
        queue: &mut Queue,
        index: usize,
        ns: impl FnOnce(u64) -> u64,
        sink: &mut dyn FnMut(&[u8]),
    ) {
        let latest = self.latest.get(index).copied().unwrap_or_default();
        if let Some(ready) = self.ready.get_mut(index) {
            *ready = ready.saturating_sub(1);
        }
        let was = self.at_loss.get(index).copied().unwrap_or_default();
        queue.pop(ns, self.losses > usize::from(was), sink);
        let is = queue.is_at_loss(latest);
        if was != is
            && let Some(at_loss) = self.at_loss.get_mut(index)
        {
            *at_loss = is;
            self.losses = if is { self.losses + 1 } else { self.losses - 1 };
        }
    }

    /// Lets `most` records leave, or as many as there are; gives the number.
    pub(super) fn step(
        &mut self,
        queues: &mut [Queue],
        most: usize,
        ns: &mut impl FnMut(u64) -> u64,
        sink: &mut dyn FnMut(&[u8]),
    ) -> usize {
        let mut done = 0;
        while done < most
            && let Some(Reverse((_, index))) = self.order.pop()
        {
            let other = self.order.peek().map_or((u64::MAX, usize::MAX), |first| first.0);
            let Some(queue) = queues.get_mut(index) else { continue };
            // While it stays the first.
            while let Some(tsc) = queue.next(self.ready.get(index).copied().unwrap_or_default()) {
                if done == most || (tsc, index) > other {
                    self.order.push(Reverse((tsc, index)));
                    break;
                }
                self.pop(queue, index, &mut *ns, sink);
                done += 1;
            }
        }
        done
    }

    /// Ends it.
    pub(super) fn finish(self, queues: &mut [Queue]) {
        queues.iter_mut().for_each(Queue::shrink);
    }
}
