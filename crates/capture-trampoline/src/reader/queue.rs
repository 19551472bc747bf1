//! Records that wait until everything older is known, and the order they leave in.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use wire::Record;

/// A record that waits for its turn.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    tsc: u64,
    /// Where its wire form begins.
    at: u32,
    len: u16,
}

/// What came from one ring, in its order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    records: Vec<Waiting>,
    /// Wire forms, without a time.
    data: Vec<u8>,
    /// How many records have left.
    left: usize,
    /// Whether times run back: a thread that lost the CPU between reserving and taking the time.
    unsorted: bool,
    /// Losses that the records that left have told of.
    told: u32,
}

impl Queue {
    /// Adds a record, whose time is set when it leaves; gives the bytes that it takes.
    pub(super) fn push(&mut self, tsc: u64, record: &Record<'_>) -> usize {
        self.unsorted |= self.records.last().is_some_and(|last| last.tsc > tsc);
        let at = self.data.len();
        record.write(&mut self.data);
        let len = (self.data.len() - at) as u16;
        self.records.push(Waiting { tsc, at: at as u32, len });
        usize::from(len) + size_of::<Waiting>()
    }

    /// Bytes in use.
    pub(super) fn size(&self) -> usize {
        self.data.len() + self.records.len() * size_of::<Waiting>()
    }

    /// How many leave: those up to `watermark`. They are in order from here on.
    fn ready(&mut self, watermark: u64) -> usize {
        let waiting = &mut self.records[self.left..];
        if std::mem::take(&mut self.unsorted) {
            // Stable: equal times stay in ring order. Nearly sorted, so nearly linear.
            waiting.sort_by_key(|record| record.tsc);
        }
        self.left + waiting.partition_point(|record| record.tsc <= watermark)
    }

    /// The next one to leave, if it is one of the first `ready`.
    fn next(&self, ready: usize) -> Option<u64> {
        if self.left >= ready {
            return None;
        }
        self.records.get(self.left).map(|record| record.tsc)
    }

    /// Whether records were lost between the last that left and what comes next: the next record
    /// that waits, or, where none does, all that the ring has lost until now.
    fn is_at_loss(&self, latest: u32) -> bool {
        let next = self.records.get(self.left).and_then(|next| self.data.get(next.at as usize..));
        let more = next.map_or(latest, wire::lost_so_far).wrapping_sub(self.told);
        (1..=u32::MAX / 2).contains(&more)
    }

    /// Lets the next one leave, at a time on the capture's clock.
    fn pop(
        &mut self,
        ns: impl FnOnce(u64) -> u64,
        is_beside_loss: bool,
        sink: &mut dyn FnMut(&[u8]),
    ) {
        let Some(&Waiting { tsc, at, len }) = self.records.get(self.left) else { return };
        self.left += 1;
        let range = at as usize..at as usize + usize::from(len);
        let Some(bytes) = self.data.get_mut(range) else { return };
        // Sorting can swap two records of a ring; the count must not run back.
        self.told = wire::stamp(bytes, ns(tsc), self.told);
        if is_beside_loss {
            wire::mark_beside_loss(bytes);
        }
        sink(bytes);
    }

    /// Gives back the room of what has left.
    fn compact(&mut self) {
        if self.left == self.records.len() {
            self.records.clear();
            self.data.clear();
            self.left = 0;
            return;
        }
        if self.left * 2 < self.records.len() {
            return;
        }
        self.records.drain(..self.left);
        self.left = 0;
        let first = self.records.iter().map(|record| record.at).min().unwrap_or_default();
        self.data.drain(..first as usize);
        self.records.iter_mut().for_each(|record| record.at -= first);
    }
}

/// Rings, in the order of the times of what leaves them next.
type Order = BinaryHeap<Reverse<(u64, usize)>>;

/// What a merge has still to do.
#[derive(Debug)]
pub(super) struct Merge {
    /// Of each queue, how many records leave.
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
        let losses = queues.iter().zip(&latest).map(|(queue, &latest)| queue.is_at_loss(latest));
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
            let (Some(queue), Some(&ready)) = (queues.get_mut(index), self.ready.get(index)) else {
                continue;
            };
            // While it stays the first.
            while let Some(tsc) = queue.next(ready) {
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
        queues.iter_mut().for_each(Queue::compact);
    }
}
