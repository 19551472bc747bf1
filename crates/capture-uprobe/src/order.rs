//! Many rings, one stream in the order of time.
//!
//! A goroutine's hits come one after the other, but from one CPU and then another. What puts them in
//! order is their time: the clock is the same on all CPUs. What is handed over must not be followed by
//! anything older, so each round takes the time T and *then* the heads of all rings. A program
//! reserves a place before it reads the clock: what is older than T lies below those heads. Once
//! all of that is there, what is older than T is handed over, and the rest waits for the
//! next round.

use crate::ring::{Rings, UNIT, room};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// How long after T the heads are read. The clocks of programs and of ours are the same but for
/// corrections of some nanoseconds that reach CPUs one after the other.
const SKEW_NS: u64 = 2_000;

/// How often a record is looked at that is reserved and not there yet: some microseconds.
const LOOKS: usize = 200;

/// How long such a record holds everything back. Its program lost the CPU in the
/// nanoseconds in between; when it does not get one for so long, the others go ahead.
const HOLD: Duration = Duration::from_secs(2);

/// The clock of the programs: CLOCK_MONOTONIC of the initial time namespace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// What our time namespace adds, nanoseconds.
    offset: i64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        Self { offset: monotonic_offset(&offsets).unwrap_or(0) }
    }

    fn now(self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let ns = time.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec);
        ns.wrapping_sub(self.offset).cast_unsigned()
    }
}

/// Lines such as `monotonic  86400  0`: seconds and nanoseconds (fs/proc/base.c, Linux 5.6).
fn monotonic_offset(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix("monotonic"))?;
    let mut numbers = line.split_ascii_whitespace().map(|number| number.parse::<i64>().ok());
    let (seconds, nanoseconds) = (numbers.next()??, numbers.next()??);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// A record that is there and waits for its turn.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    ts_ns: u64,
    ring: u32,
    /// Its place in the ring, in units.
    unit: u32,
}

impl Waiting {
    /// In the ring, bytes.
    fn position(&self) -> u64 {
        u64::from(self.unit) * UNIT as u64
    }
}

/// How much a CPU had lost when its last record came that could be handed over.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    lost: u32,
    /// Among the records that are ready now, the one behind that record.
    next: usize,
    /// Whether it is known how much was lost before the record that follows.
    is_settled: bool,
}

impl Told {
    /// Before other records.
    fn begin(&mut self) {
        (self.next, self.is_settled) = (0, false);
    }
}

/// A ring, as far as it is read.
#[derive(Debug, Default)]
struct Progress {
    /// What lies before is noted in `waiting` or was handed over.
    noted: u64,
    /// What lies before was handed over and cleared.
    cleared: u64,
    /// The tail the writers see.
    tail: u64,
    /// Units handed over before older ones of the same ring, and their lengths in bytes.
    ahead: BTreeMap<u32, u64>,
}

/// A moment, and what has to be read before everything older is known.
#[derive(Debug)]
struct Epoch {
    ts_ns: u64,
    heads: Vec<u64>,
}

/// Reads the rings of a capture.
#[derive(Debug)]
pub(crate) struct Reader {
    rings: Rings,
    clock: Clock,
    progress: Vec<Progress>,
    epoch: Option<Epoch>,
    /// Since when a reserved record is awaited.
    held: Option<Instant>,
    /// What is older can be handed over.
    watermark: u64,
    /// In the order of time.
    waiting: Vec<Waiting>,
    /// What is known of the losses of each CPU.
    told: HashMap<u16, Told>,
}

impl Reader {
    pub(crate) fn new(rings: Rings, clock: Clock) -> Self {
        let progress = (0..rings.count()).map(|_| Progress::default()).collect();
        let (waiting, told) = (Vec::new(), HashMap::new());
        Self { rings, clock, progress, epoch: None, held: None, watermark: 0, waiting, told }
    }

    /// Hands at most `budget` records to `sink`; true in the second place when more may follow
    /// at once. With `is_over`, nobody writes any more: all that is left is handed over. `lost` gives
    /// what each CPU has lost until now.
    pub(crate) fn consume(
        &mut self,
        budget: usize,
        is_over: bool,
        lost: impl FnOnce() -> Vec<u32>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> (usize, bool) {
        if self.ready() == 0 {
            self.gather(is_over);
            if self.ready() > 0 {
                self.mark_losses(&lost());
            }
        }
        let handed = self.hand_over(budget, sink);
        (handed, self.ready() > 0)
    }

    /// Bytes that were ever reserved in all rings.
    pub(crate) fn reserved(&self) -> u64 {
        (0..self.rings.count()).map(|ring| self.rings.head(ring)).sum()
    }

    fn ready(&self) -> usize {
        self.waiting.partition_point(|record| record.ts_ns < self.watermark)
    }

    /// Notes what the rings hold, and how much of it is in order.
    fn gather(&mut self, is_over: bool) {
        let epoch = self.epoch.take().unwrap_or_else(|| self.begin_epoch());
        let mut is_there = true;
        for (ring, &head) in epoch.heads.iter().enumerate() {
            is_there &= self.note(ring, head, is_over);
        }
        self.waiting.sort_by_key(|record| record.ts_ns);
        if is_over {
            self.watermark = u64::MAX;
        } else if is_there || self.held.is_some_and(|since| since.elapsed() > HOLD) {
            self.watermark = self.watermark.max(epoch.ts_ns);
            self.held = None;
        } else {
            self.held = self.held.or_else(|| Some(Instant::now()));
            self.epoch = Some(epoch);
        }
    }

    /// Marks those of the ready records that lie, in time, between two of another CPU where it
    /// has lost some: when that was can't be told more closely. `latest` is what each CPU has lost
    /// until now; it stands for a next record where there is none.
    fn mark_losses(&mut self, latest: &[u32]) {
        let ready = self.ready();
        self.told.values_mut().for_each(Told::begin);
        // Where a span of losses begins and where one ends.
        let mut steps = vec![0i32; ready + 1];
        let mut add = |from: usize, to: usize| {
            steps[from.min(ready)] += 1;
            steps[to.min(ready)] -= 1;
        };
        for (index, record) in self.waiting.iter().enumerate() {
            let (cpu, lost) = self.rings.loss(record.ring as usize, record.position());
            let told = self.told.entry(cpu).or_default();
            if !told.is_settled && told.lost != lost {
                add(told.next, index);
            }
            if index < ready {
                (told.lost, told.next) = (lost, index + 1);
            } else {
                told.is_settled = true;
            }
        }
        for (cpu, &lost) in (0u16..).zip(latest) {
            let told = self.told.entry(cpu).or_default();
            if !told.is_settled && told.lost != lost {
                add(told.next, ready);
            }
        }
        let mut open = 0;
        for (record, step) in self.waiting.iter().zip(&steps).take(ready) {
            open += step;
            if open > 0 {
                self.rings.mark_beside_loss(record.ring as usize, record.position());
            }
        }
    }

    fn begin_epoch(&self) -> Epoch {
        let ts_ns = self.clock.now();
        while self.clock.now() < ts_ns + SKEW_NS {
            std::hint::spin_loop();
        }
        Epoch { ts_ns, heads: (0..self.rings.count()).map(|ring| self.rings.head(ring)).collect() }
    }

    /// Notes the records of `ring` up to `head`; false when one is not there yet.
    fn note(&mut self, ring: usize, head: u64, is_over: bool) -> bool {
        let Some(progress) = self.progress.get_mut(ring) else { return true };
        while progress.noted < head {
            let ts_ns = await_time(&self.rings, ring, progress.noted, is_over);
            if ts_ns == 0 {
                return false;
            }
            let unit = (progress.noted & (self.rings.bytes() - 1)) / UNIT as u64;
            self.waiting.push(Waiting { ts_ns, ring: ring as u32, unit: unit as u32 });
            progress.noted += room(self.rings.record(ring, progress.noted).len());
        }
        true
    }

    fn hand_over(&mut self, budget: usize, sink: &mut dyn FnMut(&[u8])) -> usize {
        let ready = self.ready().min(budget);
        for record in self.waiting.drain(..ready) {
            let (ring, place) = (record.ring as usize, record.position());
            sink(self.rings.record(ring, place));
            let len = self.rings.clear(ring, place);
            let Some(progress) = self.progress.get_mut(ring) else { continue };
            progress.clear(record.unit, len, self.rings.bytes());
            // Room for the writers while we go on reading; each time it costs them a cache line.
            if progress.cleared - progress.tail >= self.rings.bytes() / 16 {
                progress.publish(&self.rings, ring);
            }
        }
        for (ring, progress) in self.progress.iter_mut().enumerate() {
            progress.publish(&self.rings, ring);
        }
        ready
    }
}

/// Time of the record at `position`; 0 when it does not get there soon.
fn await_time(rings: &Rings, ring: usize, position: u64, is_over: bool) -> u64 {
    for _ in 0..LOOKS {
        let ts_ns = rings.time(ring, position);
        if ts_ns != 0 {
            return ts_ns;
        }
        std::hint::spin_loop();
    }
    let start = Instant::now();
    // No later round will find it.
    while is_over && start.elapsed() < HOLD {
        std::thread::sleep(Duration::from_micros(100));
        let ts_ns = rings.time(ring, position);
        if ts_ns != 0 {
            return ts_ns;
        }
    }
    0
}

impl Progress {
    /// A record at `unit` was handed over and cleared.
    fn clear(&mut self, unit: u32, len: u64, bytes: u64) {
        let next = |cleared: u64| ((cleared & (bytes - 1)) / UNIT as u64) as u32;
        if unit != next(self.cleared) {
            self.ahead.insert(unit, len);
            return;
        }
        self.cleared += len;
        while let Some(len) = self.ahead.remove(&next(self.cleared)) {
            self.cleared += len;
        }
    }

    fn publish(&mut self, rings: &Rings, ring: usize) {
        if self.tail != self.cleared {
            self.tail = self.cleared;
            rings.set_tail(ring, self.tail);
        }
    }
}

#[cfg(test)]
mod tests;
