//! From rings to records in an order that is right for every goroutine.
//!
//! A goroutine's records may lie in several rings, so all are merged by time. A record's place
//! is reserved before its time is taken: what was taken before T lies below the heads as
//! they are after T. Each round notes (T, heads); once every ring is read up to those heads,
//! all records older than T are here and are handed over, sorted.
//!
//! The target can write anything into the rings. Every field is checked, every loop is bounded by
//! the size of a ring, and what makes no sense is counted as lost.

use crate::clock::{self, Clock};
use crate::emit::SiteRecord;
use crate::layout::{Header, Rings, UNIT};
use crate::rings::Ring;
use crate::view::View;
use std::time::{Duration, Instant};
use wire::{Record, RecordFlags, RecordKind};

/// Distance of the watermark from T: CPUs take the time a little before or after what stands
/// beside it in the program.
const MARGIN_NS: u64 = 2_000;

/// How long a reserved and unwritten record holds everything back. Its thread lost the CPU in the
/// nanoseconds in between; when it does not get one for so long, the others go ahead.
const HOLD: Duration = Duration::from_secs(2);

/// Bytes of records that wait for others at the most; a ring that is not read fills up
/// and drops, counted.
const MAX_PENDING: usize = 64 << 20;

/// A site, as far as its records are concerned.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SiteInfo {
    /// Size and whether there can be any.
    pub record: SiteRecord,
    /// Whether `caller` means something.
    pub is_entry: bool,
}

/// A record that waits for its turn.
#[derive(Clone, Copy, Debug)]
struct Pending {
    header: Header,
    stack: u64,
    lost: u64,
    ring: u32,
    payload: usize,
    payload_len: usize,
}

/// What is known about one ring.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    consumed: u64,
    /// `drops`, as far as the records read so far go.
    drops: u64,
    /// Records that were here and could not be delivered.
    spoiled: u64,
    /// Losses that the records handed over have told of.
    told: u64,
    /// Since when a reserved record is awaited.
    stuck: Option<Instant>,
}

/// A moment, and what has to be read before everything older is known.
#[derive(Clone, Debug)]
struct Epoch {
    tsc: u64,
    heads: Vec<u64>,
    drops: Vec<u64>,
}

/// Reads the rings of one target.
#[derive(Debug)]
pub(crate) struct Reader {
    pid: u32,
    rings: Rings,
    /// Ring numbers of this target begin here: they tell the targets' losses apart.
    first_ring: u32,
    sites: Vec<SiteInfo>,
    progress: Vec<Progress>,
    epoch: Option<Epoch>,
    watermark: u64,
    /// No earlier time is believed.
    started: u64,
    pending: Vec<Pending>,
    payloads: Vec<u8>,
    produced: u64,
    hold: Duration,
}

/// What one round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// Records handed over.
    pub handed: usize,
    /// How full the fullest ring was, in percent.
    pub fill: u64,
}

impl Reader {
    /// For the rings of process `pid`, which were opened when the counter was `started`.
    pub(crate) fn new(
        pid: u32,
        rings: Rings,
        first_ring: u32,
        sites: Vec<SiteInfo>,
        started: u64,
    ) -> Self {
        Self {
            pid,
            rings,
            first_ring,
            sites,
            progress: vec![Progress::default(); rings.count as usize],
            epoch: None,
            watermark: 0,
            started,
            pending: Vec::new(),
            payloads: Vec::new(),
            produced: 0,
            hold: HOLD,
        }
    }

    /// Reads what is there and hands over what is complete. With `is_over`, nobody writes any more:
    /// all that is left is handed over, and holes are skipped.
    pub(crate) fn round(
        &mut self,
        view: &View,
        clock: &mut Clock,
        is_over: bool,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Round {
        let now = self.snapshot(view);
        let latest = now.tsc;
        let epoch = self.epoch.take().unwrap_or(now);
        let mut fill = 0;
        for index in 0..self.rings.count {
            let ring = Ring::of(view, &self.rings, index);
            fill = fill.max(self.read_ring(&ring, index as usize, is_over));
        }
        let margin = clock.ticks(MARGIN_NS);
        if is_over {
            self.watermark = u64::MAX;
        } else if self.has_passed(&epoch) {
            self.watermark = self.watermark.max(epoch.tsc.saturating_sub(margin));
            self.settle_drops(&epoch);
        } else {
            self.epoch = Some(epoch);
        }
        self.drop_future(latest, clock, is_over);
        Round { handed: self.hand_over(clock, sink), fill }
    }

    /// The time first, then the heads. Drops before heads: those counted now belong before
    /// all records that come after.
    fn snapshot(&self, view: &View) -> Epoch {
        let tsc = clock::tsc();
        let rings = (0..self.rings.count).map(|index| Ring::of(view, &self.rings, index));
        let (drops, heads) = rings.map(|ring| (ring.drops(), ring.head())).unzip();
        Epoch { tsc, heads, drops }
    }

    /// Whether every ring is read up to the epoch's heads, or waited for long enough.
    fn has_passed(&self, epoch: &Epoch) -> bool {
        self.progress.iter().zip(&epoch.heads).all(|(progress, &head)| {
            progress.consumed >= head
                || progress.stuck.is_some_and(|since| since.elapsed() > self.hold)
        })
    }

    fn settle_drops(&mut self, epoch: &Epoch) {
        for (progress, &drops) in self.progress.iter_mut().zip(&epoch.drops) {
            progress.drops = progress.drops.max(drops);
        }
    }

    /// Reads one ring up to its head or the first record that is not there yet; gives how full it was.
    fn read_ring(&mut self, ring: &Ring<'_>, index: usize, is_over: bool) -> u64 {
        let head = ring.head();
        let Some(mut progress) = self.progress.get(index).copied() else { return 0 };
        let waiting = head.wrapping_sub(progress.consumed);
        if waiting > ring.bytes() || !head.is_multiple_of(UNIT as u64) {
            // Not written by our code: start again from what it says.
            progress.spoiled += 1;
            progress.consumed = head & !(UNIT as u64 - 1);
            ring.release(progress.consumed);
            self.put_back(index, progress);
            return 0;
        }
        let drops = ring.drops();
        let mut released = progress.consumed;
        while progress.consumed < head {
            if self.payloads.len() + self.pending.len() * size_of::<Pending>() > MAX_PENDING {
                break;
            }
            if ring.commit_word(progress.consumed) == 0 {
                if is_over {
                    self.skip_hole(ring, &mut progress, head);
                    continue;
                }
                progress.stuck = progress.stuck.or_else(|| Some(Instant::now()));
                break;
            }
            progress.stuck = None;
            self.take(ring, index, &mut progress, head, drops);
            // Room for the target while we go on reading.
            if progress.consumed - released >= ring.bytes() / 8 {
                released = progress.consumed;
                ring.release(released);
            }
        }
        if progress.consumed >= head {
            progress.stuck = None;
        }
        if progress.consumed != released {
            ring.release(progress.consumed);
        }
        self.put_back(index, progress);
        waiting.saturating_mul(100) / ring.bytes().max(1)
    }

    fn put_back(&mut self, index: usize, progress: Progress) {
        if let Some(place) = self.progress.get_mut(index) {
            *place = progress;
        }
    }

    /// Takes one committed record, or spoils one unit.
    fn take(
        &mut self,
        ring: &Ring<'_>,
        index: usize,
        progress: &mut Progress,
        head: u64,
        drops: u64,
    ) {
        let at = progress.consumed;
        let header = Header::read(&ring.unit(at));
        let left = head.wrapping_sub(at) / UNIT as u64;
        let Some(site) = self.plausible(&header, left) else {
            progress.spoiled += 1;
            progress.consumed += UNIT as u64;
            ring.clear(at, 1);
            return;
        };
        // The records of a ring are in order of reservation and count drops a little earlier or
        // later than that: only steps forward count, and none beyond what the ring says.
        let step = header.drops.wrapping_sub(progress.drops as u8);
        if step < 128 && progress.drops + u64::from(step) <= drops {
            progress.drops += u64::from(step);
        }
        progress.consumed += u64::from(header.units) * UNIT as u64;
        // A compare-and-swap that did not swap: nothing happened, and nothing is lost.
        if site.record.is_guarded && header.caller as u8 == 0 {
            ring.clear(at, header.units);
            return;
        }
        let payload_at = UNIT * (1 + usize::from(header.system_stack));
        let most = usize::from(site.record.payload).next_multiple_of(8);
        let payload = self.payloads.len();
        ring.append(at, payload_at, most, &mut self.payloads);
        let payload_len = site.record.payload_len(self.payloads.get(payload..).unwrap_or_default());
        self.payloads.truncate(payload + payload_len.next_multiple_of(8));
        let stack = if header.system_stack { ring.word(at, UNIT) } else { 0 };
        let lost = progress.drops.wrapping_add(progress.spoiled);
        let caller = if site.is_entry { header.caller } else { 0 };
        let depth = (i64::from(header.depth) - i64::from(site.record.sp_delta)).max(0) as u32;
        self.pending.push(Pending {
            header: Header { caller, depth, ..header },
            stack,
            lost,
            ring: index as u32,
            payload,
            payload_len,
        });
        self.produced += 1;
        ring.clear(at, header.units);
    }

    /// The site of a record that our code can have written.
    fn plausible(&self, header: &Header, left: u64) -> Option<SiteInfo> {
        let site = self.sites.get(header.site as usize).filter(|site| site.record.installed)?;
        let units = u32::from(site.record.units) + u32::from(header.system_stack);
        let room = units as usize * UNIT - UNIT * (1 + usize::from(header.system_stack));
        let is_right = header.units == units
            && u64::from(units) <= left
            && usize::from(site.record.payload) <= room
            // A time from before the installation, or from an earlier lap, is none.
            && header.tsc >= self.started
            && header.tsc > self.watermark.min(u64::MAX - 1);
        is_right.then_some(*site)
    }

    /// Steps over a record that was reserved by a thread that is dead: up to the next one that can
    /// be one.
    fn skip_hole(&self, ring: &Ring<'_>, progress: &mut Progress, head: u64) {
        progress.spoiled += 1;
        while progress.consumed < head {
            progress.consumed += UNIT as u64;
            let left = head.wrapping_sub(progress.consumed) / UNIT as u64;
            let header = Header::read(&ring.unit(progress.consumed));
            if left == 0 || (header.tsc != 0 && self.plausible(&header, left).is_some()) {
                return;
            }
        }
    }

    /// Times that have not come yet would wait for ever.
    fn drop_future(&mut self, latest: u64, clock: &Clock, is_over: bool) {
        let limit = if is_over { clock::tsc() } else { latest };
        // Committed while we were reading, on a CPU whose counter is a little ahead.
        let limit = limit.saturating_add(clock.ticks(1_000_000_000));
        let progress = &mut self.progress;
        self.pending.retain(|record| {
            let is_past = record.header.tsc <= limit;
            if !is_past && let Some(progress) = progress.get_mut(record.ring as usize) {
                progress.spoiled += 1;
            }
            is_past
        });
    }

    /// Sorts, and hands over what is older than the watermark.
    fn hand_over(&mut self, clock: &mut Clock, sink: &mut dyn FnMut(&[u8])) -> usize {
        // Stable: equal times stay in ring order. Each ring's records are nearly sorted.
        self.pending.sort_by_key(|record| record.header.tsc);
        let ready = self.pending.partition_point(|record| record.header.tsc <= self.watermark);
        let mut bytes = Vec::with_capacity(256);
        for record in self.pending.drain(..ready) {
            let payload = self.payloads.get(record.payload..).unwrap_or_default();
            let payload = payload.get(..record.payload_len).unwrap_or_default();
            // Sorting by time can swap two records of a ring; the count must not run back.
            let mut lost = record.lost;
            if let Some(progress) = self.progress.get_mut(record.ring as usize) {
                progress.told = progress.told.max(lost);
                lost = progress.told;
            }
            bytes.clear();
            let record = Pending { lost, ..record };
            wire_record(self.pid, self.first_ring, &record, payload, clock).write(&mut bytes);
            sink(&bytes);
        }
        self.compact();
        ready
    }

    /// Drops the payloads of records that are gone.
    fn compact(&mut self) {
        if self.pending.is_empty() {
            self.payloads.clear();
            return;
        }
        let live: usize = self.pending.iter().map(|r| r.payload_len.next_multiple_of(8)).sum();
        if live * 2 > self.payloads.len() {
            return;
        }
        let mut kept = Vec::with_capacity(live);
        for record in &mut self.pending {
            let end = record.payload + record.payload_len.next_multiple_of(8);
            let from = kept.len();
            kept.extend_from_slice(self.payloads.get(record.payload..end).unwrap_or_default());
            record.payload = from;
        }
        self.payloads = kept;
    }

    /// Records that reached a ring, and those that did not or were spoiled there.
    pub(crate) fn counters(&self, view: &View) -> (u64, u64) {
        let drops: u64 = (0..self.rings.count)
            .map(|index| Ring::of(view, &self.rings, index).drops())
            .fold(0, u64::wrapping_add);
        let spoiled: u64 = self.progress.iter().map(|progress| progress.spoiled).sum();
        (self.produced, drops.wrapping_add(spoiled))
    }
}

fn wire_record<'a>(
    pid: u32,
    first_ring: u32,
    record: &Pending,
    payload: &'a [u8],
    clock: &mut Clock,
) -> Record<'a> {
    let header = &record.header;
    let flags = if header.system_stack { RecordFlags::SYSTEM_STACK } else { 0 };
    Record {
        ts_ns: clock.ns(header.tsc),
        goid: header.goid,
        stack: record.stack,
        depth: u64::from(header.depth),
        caller: header.caller,
        site: header.site,
        pid,
        tid: header.tid,
        lost: record.lost as u32,
        cpu: first_ring.wrapping_add(record.ring) as u16,
        flags: RecordFlags(flags),
        kind: RecordKind::Hit,
        payload,
    }
}

#[cfg(test)]
mod tests;
