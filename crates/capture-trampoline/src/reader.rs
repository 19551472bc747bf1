//! From rings to records in an order that is right for every goroutine.
//!
//! A goroutine's records may lie in several rings, so all are merged by time. A record's place
//! is reserved before its time is taken: what was taken before T lies below the heads as
//! they are after T. Each round notes (T, heads); once every ring is read up to those heads,
//! all records older than T are here and are handed over, sorted.
//!
//! The target can write anything into the rings. Every field is checked, every loop is bounded by
//! the size of a ring, and what makes no sense is counted as lost.

mod losses;
mod queue;

use crate::clock::{self, Clock};
use crate::emit::SiteRecord;
use crate::layout::{Header, Rings, UNIT};
use crate::payload::Payload;
use crate::rings::Ring;
use crate::view::View;
use losses::{Losses, Place};
use queue::{Merge, Queue};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{Record, RecordFlags, RecordKind};

/// Distance of the watermark from T: CPUs take the time a little before or after what stands
/// beside it in the program.
const MARGIN_NS: u64 = 2_000;

/// How long a reserved and unwritten record holds everything back. Its thread lost the CPU in the
/// nanoseconds in between; when it does not get one for so long, the others go ahead.
const HOLD: Duration = Duration::from_secs(2);

/// Bytes of records that wait for others, at the most and besides what has to be read before any
/// of them can leave; a ring that is not read fills up and drops, counted.
const MAX_PENDING: usize = 32 << 20;

/// Records that are handed over between two looks at the rings: whoever takes them may be slow,
/// and the rings fill up meanwhile.
const STEP: usize = 4096;

/// Bytes that a record takes here at the most.
const MAX_RECORD: usize = wire::HEADER_SIZE + wire::MAX_PAYLOAD + 64;

/// A time that lies further ahead is none. Less ahead lies what is committed while we read, on a
/// CPU whose counter is a little ahead.
const AHEAD_NS: u64 = 1_000_000_000;

/// Whether the target can still write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writers {
    /// It does.
    Live,
    /// Its code is out of it. What a thread had begun by then may have happened since, unseen.
    Removed,
    /// All its threads are dead, or have been since it became another program.
    Dead,
}

/// A site, as far as its records are concerned.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SiteInfo {
    /// Size and whether there can be any.
    pub record: SiteRecord,
    /// Whether `caller` means something, and only 8 bits count drops.
    pub is_entry: bool,
}

/// What is known about one ring.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    consumed: u64,
    /// Records that were here and could not be delivered.
    spoiled: u64,
    /// Those of them that were reserved and not written when the code was removed. Nothing of
    /// theirs can follow.
    holes: u64,
    /// What the dead left reserved.
    unfinished: u64,
    /// Since when a reserved record is awaited.
    stuck: Option<Instant>,
    /// The last look read all that was reserved when it began.
    is_empty: bool,
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
    sites: Arc<[SiteInfo]>,
    progress: Vec<Progress>,
    losses: Vec<Losses>,
    /// The longest record that there is, bytes.
    longest: u64,
    epoch: Option<Epoch>,
    watermark: u64,
    /// No earlier time is believed.
    started: u64,
    /// No later time is believed, until the counter is read again.
    latest: u64,
    /// [`AHEAD_NS`] in ticks, and [`MARGIN_NS`].
    ahead: u64,
    margin: u64,
    queues: Vec<Queue>,
    /// A payload as it lies in a ring, and as it is on the wire.
    data: Vec<u8>,
    payload: Vec<u8>,
    produced: u64,
    hold: Duration,
    step: usize,
    most: usize,
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
        sites: impl Into<Arc<[SiteInfo]>>,
        started: u64,
    ) -> Self {
        let sites = sites.into();
        let installed = sites.iter().map(|site| site.record).filter(|record| record.installed);
        let longest = installed.map(|record| record.units.max(record.system_units)).max();
        let losses = (0..rings.count).map(|_| Losses::new(u64::from(rings.bytes)));
        Self {
            pid,
            rings,
            first_ring,
            sites,
            losses: losses.collect(),
            longest: u64::from(longest.unwrap_or_default()) * UNIT as u64,
            progress: vec![Progress::default(); rings.count as usize],
            epoch: None,
            watermark: 0,
            started,
            latest: 0,
            ahead: 0,
            margin: 0,
            queues: (0..rings.count).map(|_| Queue::default()).collect(),
            data: Vec::new(),
            payload: Vec::new(),
            produced: 0,
            hold: HOLD,
            step: STEP,
            most: MAX_PENDING,
        }
    }

    /// Reads what is there and hands over what is complete. When nobody writes any more all that is
    /// left is handed over, and holes are skipped.
    pub(crate) fn round(
        &mut self,
        view: &View,
        clock: &mut Clock,
        writers: Writers,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Round {
        let now = self.snapshot(view);
        let epoch = self.epoch.take().unwrap_or(now);
        self.ahead = clock.ticks(AHEAD_NS);
        self.margin = clock.ticks(MARGIN_NS);
        let fill = self.read_rings(view, writers, &epoch.heads);
        if writers != Writers::Live {
            self.watermark = u64::MAX;
        } else if self.has_passed(&epoch) {
            self.watermark = self.watermark.max(epoch.tsc.saturating_sub(self.margin));
            self.settle_drops(&epoch);
        } else {
            self.epoch = Some(epoch);
        }
        Round { handed: self.hand_over(view, clock, sink), fill }
    }

    /// Reads all rings, up to `needed` whatever waits already: without that nothing would ever
    /// leave. Gives how full the fullest was of which something was read, in percent.
    fn read_rings(&mut self, view: &View, writers: Writers, needed: &[u64]) -> u64 {
        let rings = self.rings;
        let each = (0..rings.count).map(|index| {
            // The last look takes all: a ring holds no more than its size.
            let needed = needed.get(index as usize).copied().unwrap_or_default();
            let needed = if writers == Writers::Live { needed } else { u64::MAX };
            self.read_ring(&Ring::of(view, &rings, index), index as usize, writers, needed)
        });
        each.max().unwrap_or_default()
    }

    /// The time first, then the heads. Drops before heads: those counted now belong before
    /// all records that come after.
    fn snapshot(&self, view: &View) -> Epoch {
        let tsc = clock::tsc();
        let rings = (0..self.rings.count).map(|index| Ring::of(view, &self.rings, index));
        let (drops, heads) = rings.map(|ring| (ring.drops(), ring.head())).unzip();
        Epoch { tsc, heads, drops }
    }

    /// Whether every ring is read up to the epoch's heads, or waited for long enough. A head may have
    /// gone back since, with what a record had too much: then nothing is left to read.
    fn has_passed(&self, epoch: &Epoch) -> bool {
        self.progress.iter().zip(&epoch.heads).all(|(progress, &head)| {
            progress.consumed >= head
                || progress.is_empty
                || progress.stuck.is_some_and(|since| since.elapsed() > self.hold)
        })
    }

    fn settle_drops(&mut self, epoch: &Epoch) {
        for (losses, &drops) in self.losses.iter_mut().zip(&epoch.drops) {
            losses.settle(drops);
        }
    }

    /// Reads one ring up to its head or the first record that is not there yet; gives how full it was.
    fn read_ring(&mut self, ring: &Ring<'_>, index: usize, writers: Writers, needed: u64) -> u64 {
        let mut head = self.look(ring, index);
        let Some(mut progress) = self.progress.get(index).copied() else { return 0 };
        let waiting = head.wrapping_sub(progress.consumed);
        if waiting > ring.bytes() || !head.is_multiple_of(UNIT as u64) {
            // Not written by our code: start again from what it says.
            progress.spoiled += 1;
            progress.consumed = head & !(UNIT as u64 - 1);
            self.release(ring, index, progress.consumed);
            self.put_back(index, progress);
            return 0;
        }
        let mut released = progress.consumed;
        let begin = progress.consumed;
        let mut room = self.most.saturating_sub(self.queues.iter().map(Queue::size).sum());
        while progress.consumed < head {
            let unit = ring.unit(progress.consumed);
            if unit[0] == 0 {
                if writers == Writers::Live {
                    progress.stuck = progress.stuck.or_else(|| Some(Instant::now()));
                    break;
                }
                self.skip_hole(ring, &mut progress, head);
                if writers == Writers::Dead {
                    progress.unfinished += 1;
                } else {
                    progress.spoiled += 1;
                    progress.holes += 1;
                }
                continue;
            }
            if room < MAX_RECORD && progress.consumed >= needed {
                break;
            }
            progress.stuck = None;
            let header = Header::of(unit);
            if u64::from(header.units) * UNIT as u64 > head - progress.consumed {
                // The record before this one gave back what it had too much, so that this one begins
                // before the head that was read, and may end behind it.
                let now = self.look(ring, index);
                if now.wrapping_sub(progress.consumed) <= ring.bytes() {
                    head = head.max(now);
                }
            }
            let size = self.take(ring, index, &mut progress, header, head);
            room = room.saturating_sub(size);
            // Room for the target while we go on reading.
            if progress.consumed - released >= ring.bytes() / 8 {
                released = progress.consumed;
                self.release(ring, index, released);
            }
        }
        progress.is_empty = progress.consumed >= head;
        if progress.is_empty {
            progress.stuck = None;
        }
        if progress.consumed != released {
            self.release(ring, index, progress.consumed);
        }
        self.put_back(index, progress);
        if progress.consumed == begin {
            return 0;
        }
        waiting.saturating_mul(100) / ring.bytes().max(1)
    }

    /// The ring's head, and what had been lost by then.
    fn look(&mut self, ring: &Ring<'_>, index: usize) -> u64 {
        // A record's time may be taken a little before its thread has read what was lost.
        let tsc = clock::tsc().saturating_sub(self.margin);
        let before = ring.drops();
        let head = ring.head();
        if let Some(losses) = self.losses.get_mut(index) {
            losses.look(tsc, head, [before, ring.drops()]);
        }
        head
    }

    /// Gives the target room for more.
    fn release(&mut self, ring: &Ring<'_>, index: usize, consumed: u64) {
        let before = ring.drops();
        ring.release(consumed);
        if let Some(losses) = self.losses.get_mut(index) {
            let limit = consumed.saturating_add(ring.bytes());
            losses.give_room(limit, [before, ring.drops()]);
        }
    }

    fn put_back(&mut self, index: usize, progress: Progress) {
        if let Some(place) = self.progress.get_mut(index) {
            *place = progress;
        }
    }

    /// Takes one committed record, or spoils one unit; gives the bytes that it holds here.
    fn take(
        &mut self,
        ring: &Ring<'_>,
        index: usize,
        progress: &mut Progress,
        header: Header,
        head: u64,
    ) -> usize {
        let at = progress.consumed;
        let left = head.wrapping_sub(at) / UNIT as u64;
        let Some(site) = self.plausible(&header, left) else {
            progress.spoiled += 1;
            progress.consumed += UNIT as u64;
            ring.clear(at, 1);
            return 0;
        };
        progress.consumed += u64::from(header.units) * UNIT as u64;
        let place = Place {
            start: at,
            end: progress.consumed,
            is_entry: site.is_entry,
            longest: self.longest,
        };
        let losses = self.losses.get_mut(index);
        let (is_beside, drops) = losses.map_or((false, 0), |losses| {
            (losses.pass(&header, place, || ring.drops()), losses.told())
        });
        // A compare-and-swap that did not swap: nothing happened, and nothing is lost.
        if site.record.is_guarded && header.caller as u8 == 0 {
            ring.clear(at, header.units);
            return 0;
        }
        self.payload.clear();
        let payload = site.record.payload;
        if payload.size() > 0 {
            self.data.clear();
            let offset = payload.offset(header.system_stack);
            // Rings are copied in words.
            let words = payload.size().next_multiple_of(8);
            // It may be shorter than it could have become.
            let there = (header.units as usize * UNIT).saturating_sub(offset);
            ring.append(at, offset, words.min(there), &mut self.data);
            payload.unpack(&self.data, &mut self.payload);
        }
        let stack = if header.system_stack { ring.word(at, UNIT) } else { 0 };
        ring.clear(at, header.units);
        let depth = i64::from(header.depth) - i64::from(site.record.sp_delta);
        let system = if header.system_stack { RecordFlags::SYSTEM_STACK } else { 0 };
        let beside = if is_beside { RecordFlags::BESIDE_LOSS } else { 0 };
        let flags = RecordFlags::ORDERED | system | beside;
        let record = Record {
            // Known when it leaves the queue.
            ts_ns: 0,
            goid: header.goid,
            stack,
            depth: depth.clamp(0, i64::from(u32::MAX)) as u64,
            caller: if site.is_entry { header.caller } else { 0 },
            site: header.site,
            pid: self.pid,
            tid: header.tid,
            lost: drops.wrapping_add(progress.spoiled) as u32,
            cpu: self.first_ring.wrapping_add(index as u32) as u16,
            flags: RecordFlags(flags),
            kind: RecordKind::Hit,
            payload: &self.payload,
        };
        self.produced += 1;
        self.queues.get_mut(index).map_or(0, |queue| queue.push(header.tsc, &record))
    }

    /// The site of a record that our code can have written.
    #[inline]
    fn plausible(&mut self, header: &Header, left: u64) -> Option<SiteInfo> {
        let site = self.shaped(header, left)?;
        // A time from before the installation, or from an earlier lap, is none.
        let is_right = header.tsc >= self.started
            && header.tsc > self.watermark.min(u64::MAX - 1)
            && !self.is_future(header.tsc);
        is_right.then_some(site)
    }

    /// The site of a record that has a shape of that site's.
    #[inline]
    fn shaped(&self, header: &Header, left: u64) -> Option<SiteInfo> {
        let site = *self.sites.get(header.site as usize).filter(|site| site.record.installed)?;
        let SiteRecord { units, system_units, payload, .. } = site.record;
        let most = u32::from(if header.system_stack { system_units } else { units });
        let start = payload.offset(header.system_stack);
        let (least, end) = match payload {
            Payload::Packed(_) => (most, start + payload.size()),
            // What is left over may have been given back.
            Payload::Wire { .. } => (start.div_ceil(UNIT) as u32, start),
        };
        let is_right = (least..=most).contains(&header.units)
            && u64::from(header.units) <= left
            && end <= header.units as usize * UNIT;
        is_right.then_some(site)
    }

    /// Times that have not come yet would wait for ever.
    fn is_future(&mut self, tsc: u64) -> bool {
        if tsc <= self.latest {
            return false;
        }
        self.latest = clock::tsc().saturating_add(self.ahead);
        tsc > self.latest
    }

    /// Steps over a record that was reserved and not written: up to the next one, whether that can be
    /// shown or not. Two of which none is written and nothing lies between are one here.
    fn skip_hole(&self, ring: &Ring<'_>, progress: &mut Progress, head: u64) {
        while progress.consumed < head {
            progress.consumed += UNIT as u64;
            let left = head.wrapping_sub(progress.consumed) / UNIT as u64;
            let header = Header::of(ring.unit(progress.consumed));
            if left == 0 || (header.tsc != 0 && self.shaped(&header, left).is_some()) {
                return;
            }
        }
    }

    /// Hands over what is older than the watermark, in order.
    fn hand_over(&mut self, view: &View, clock: &mut Clock, sink: &mut dyn FnMut(&[u8])) -> usize {
        let rings = (0..self.rings.count).map(|index| Ring::of(view, &self.rings, index));
        let latest = rings.zip(&self.progress);
        let latest =
            latest.map(|(ring, own)| ring.drops().wrapping_add(own.spoiled - own.holes) as u32);
        let mut merge = Merge::new(&mut self.queues, self.watermark, latest.collect());
        let mut handed = 0;
        loop {
            let step = merge.step(&mut self.queues, self.step, &mut |tsc| clock.ns(tsc), sink);
            handed += step;
            if step < self.step {
                merge.finish(&mut self.queues);
                return handed;
            }
            // What comes now is younger than the watermark and goes behind what leaves.
            self.read_rings(view, Writers::Live, &[]);
        }
    }

    /// Records that reached a ring; those that did not or were spoiled there; those that were begun by
    /// threads that died before they had written them.
    ///
    /// What a thread was about to do, or had just done, when it died in the midst of recording it is
    /// not lost: nobody but that thread would have built on it. Whatever follows from a swap or a call
    /// is done by the thread that made it, behind the record's end.
    pub(crate) fn counters(&self, view: &View) -> (u64, u64, u64) {
        let drops: u64 = (0..self.rings.count)
            .map(|index| Ring::of(view, &self.rings, index).drops())
            .fold(0, u64::wrapping_add);
        let spoiled: u64 = self.progress.iter().map(|progress| progress.spoiled).sum();
        let unfinished = self.progress.iter().map(|progress| progress.unfinished).sum();
        (self.produced, drops.wrapping_add(spoiled), unfinished)
    }

    /// Hits that a condition rejected.
    pub(crate) fn rejected(&self, view: &View) -> u64 {
        let rings = (0..self.rings.count).map(|index| Ring::of(view, &self.rings, index));
        rings.map(|ring| ring.rejected()).fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests;
