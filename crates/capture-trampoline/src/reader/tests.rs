//! Rings written by a simulated target, honest and hostile.

mod losses;

use super::*;
use crate::layout::{DATA, DROPS, HEAD, LIMIT, SLACK, tag};
use crate::payload::{Packed, Payload};
use address::Avma;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::AsFd as _;

const RINGS: Rings = Rings { base: Avma(0), count: 2, bytes: SLACK };
/// Units of a record of site 5 at the most, and of one with no field.
const LONG: u8 = 6;
const SHORT: u8 = 2;
const SLOTS: u64 = SLACK as u64 / UNIT as u64;

/// Site 0 carries nothing, site 1 carries 40 bytes, site 2 is not installed, site 3 is a swap, site
/// 4 carries 4 bytes and 1, site 5 up to 160 bytes.
fn sites() -> Vec<SiteInfo> {
    let site = |installed, payload: usize, units, is_guarded| SiteInfo {
        record: SiteRecord {
            installed,
            payload: Payload::Packed(Packed::new(vec![Some(8); payload / 8])),
            units,
            system_units: units + 1,
            sp_delta: 16,
            is_guarded,
        },
        is_entry: payload == 0 && !is_guarded,
    };
    let mut narrow = site(true, 0, 2, false);
    narrow.record.payload = Payload::Packed(Packed::new([Some(4), Some(1)]));
    let mut long = site(true, 0, LONG, false);
    long.record.payload = Payload::Wire { before: 0, most: 160, fields: None };
    vec![
        site(true, 0, 1, false),
        site(true, 40, 3, false),
        site(false, 0, 1, false),
        site(true, 0, 1, true),
        narrow,
        long,
    ]
}

struct Target {
    view: View,
    reader: Reader,
    clock: Clock,
    seen: Vec<Vec<u8>>,
}

impl Target {
    fn new() -> Self {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, RINGS.size()).unwrap();
        let view = View::new(fd.as_fd(), RINGS.size() as usize).unwrap();
        for index in 0..RINGS.count {
            Ring::of(&view, &RINGS, index).release(0);
        }
        let reader = Reader::new(7, RINGS, 10, sites(), clock::tsc());
        Self { view, reader, clock: Clock::new(), seen: Vec::new() }
    }

    fn start(ring: u32) -> usize {
        (RINGS.stride() * ring) as usize
    }

    fn reserve(&self, ring: u32, units: u32) -> Option<(usize, u8)> {
        self.writer().reserve(ring, units)
    }

    fn fill(&self, at: usize, drops: u8, site: u32, goid: u64, payload: &[u8]) {
        self.writer().fill(at, drops, site, goid, payload);
    }

    fn commit(&self, at: usize) {
        self.writer().commit(at);
    }

    fn record(&self, ring: u32, goid: u64) -> bool {
        self.writer().record(ring, goid)
    }

    fn writer(&self) -> Writer<'_> {
        Writer { view: &self.view }
    }

    fn round(&mut self, writers: Writers) -> Vec<u64> {
        let seen = &mut self.seen;
        let before = seen.len();
        let sink = &mut |bytes: &[u8]| seen.push(bytes.to_vec());
        self.reader.round(&self.view, &mut self.clock, writers, sink);
        self.seen[before..].iter().map(|bytes| Record::parse(bytes).unwrap().goid).collect()
    }

    /// Rounds until the margin has passed.
    fn settle(&mut self) -> Vec<u64> {
        let mut all = self.round(Writers::Live);
        std::thread::sleep(Duration::from_micros(50));
        all.extend(self.round(Writers::Live));
        all
    }

    /// Produced and lost.
    fn counters(&self) -> (u64, u64) {
        let (produced, lost, _) = self.reader.counters(&self.view);
        (produced, lost)
    }

    fn unfinished(&self) -> u64 {
        self.reader.counters(&self.view).2
    }
}

/// What the code in the target does.
#[derive(Clone, Copy)]
struct Writer<'a> {
    view: &'a View,
}

impl Writer<'_> {
    /// Reserves as the recorder does: position and low drops, `None` when full.
    fn reserve(self, ring: u32, units: u32) -> Option<(usize, u8)> {
        let start = Target::start(ring);
        let head = self.view.load(start + HEAD as usize);
        let next = head + u64::from(units) * UNIT as u64;
        let drops = self.view.load(start + DROPS as usize);
        if next > self.view.load(start + LIMIT as usize) {
            self.view.store(start + DROPS as usize, drops + 1);
            return None;
        }
        self.view.store(start + HEAD as usize, next);
        let at = start + DATA as usize + (head as usize & (RINGS.bytes as usize - 1));
        Some((at, drops as u8))
    }

    fn fill(self, at: usize, drops: u8, site: u32, goid: u64, payload: &[u8]) {
        let units = 1 + payload.len().div_ceil(UNIT) as u32;
        self.view.store(at + 8, goid);
        // Low bits of the count are all there is of it, in either form.
        let other =
            if sites()[site as usize].is_entry { 0x40_1000 } else { u64::from(drops) << 16 };
        self.view.store(at + 16, other | u64::from(drops) << 56);
        self.view.store(at + 24, u64::from(tag(site, units)) | 96 << 32);
        self.view.fill(at + UNIT, payload);
    }

    fn commit(self, at: usize) {
        self.view.store(at, clock::tsc());
    }

    /// Fills a record of site 5 that has no field, and gives back what is left over.
    fn shorten(self, ring: u32, at: usize, drops: u8, goid: u64) {
        self.fill(at, drops, 5, goid, &crate::payload::END.to_le_bytes());
        let head = Target::start(ring) + HEAD as usize;
        let left_over = u64::from(LONG - SHORT) * UNIT as u64;
        self.view.store(head, self.view.load(head) - left_over);
        self.commit(at);
    }

    /// One whole record; false when it was dropped.
    fn record(self, ring: u32, goid: u64) -> bool {
        let Some((at, drops)) = self.reserve(ring, 1) else { return false };
        self.fill(at, drops, 0, goid, &[]);
        self.commit(at);
        true
    }
}

#[test]
fn a_swap_that_did_not_swap_is_neither_a_record_nor_lost() {
    let mut target = Target::new();
    for goid in 1..=9 {
        let (at, drops) = target.reserve(0, 1).unwrap();
        target.fill(at, drops, 3, goid, &[]);
        // The lowest byte of what is the caller elsewhere.
        target.view.store(at + 16, u64::from(goid % 3 == 0));
        target.commit(at);
    }
    assert_eq!(target.settle(), [3, 6, 9]);
    assert_eq!(target.counters(), (3, 0));
}

#[test]
fn fields_of_less_than_a_word_are_whole() {
    let mut target = Target::new();
    let (at, drops) = target.reserve(0, 2).unwrap();
    target.fill(at, drops, 4, 5, &[1, 2, 3, 4, 5]);
    target.commit(at);
    target.settle();
    let record = Record::parse(&target.seen[0]).unwrap();
    let fields = wire::Fields::new(record.payload).map(|field| field.data.to_vec());
    assert_eq!(fields.collect::<Vec<_>>(), [vec![1, 2, 3, 4], vec![5]]);
}

/// A head that was seen before it went back is never reached.
#[test]
fn what_a_record_had_too_much_is_not_waited_for() {
    let mut target = Target::new();
    assert!(target.record(1, 4));
    let (at, drops) = target.reserve(0, LONG.into()).unwrap();
    assert!(target.round(Writers::Live).is_empty());
    target.writer().shorten(0, at, drops, 5);
    assert_eq!(target.settle(), [4, 5]);
    assert_eq!(target.counters(), (2, 0));
}

/// While the ring is read, records begin before the head that was read first, and end behind it.
#[test]
fn heads_that_go_back_while_the_ring_is_read_cost_no_record() {
    const RECORDS: u64 = 200_000;
    let Target { view, mut reader, mut clock, .. } = Target::new();
    // One field that takes it all.
    let mut whole = [0; 160];
    whole[..8].copy_from_slice(&[0, 0, 152, 0, 152, 0, 0, 0]);
    let mut seen = Vec::new();
    let mut sink = |bytes: &[u8]| seen.push(Record::parse(bytes).unwrap().goid);
    std::thread::scope(|scope| {
        let view = &view;
        let producer = scope.spawn(move || {
            let writer = Writer { view };
            let begin = Instant::now();
            for goid in 1..=RECORDS {
                let (at, drops) = loop {
                    if let Some(place) = writer.reserve(0, LONG.into()) {
                        break place;
                    }
                    assert!(begin.elapsed() < Duration::from_secs(60), "the reader is stuck");
                    std::thread::yield_now();
                };
                if goid % 2 == 0 {
                    writer.shorten(0, at, drops, goid);
                } else {
                    writer.fill(at, drops, 5, goid, &whole);
                    writer.commit(at);
                }
            }
        });
        while !producer.is_finished() {
            reader.round(view, &mut clock, Writers::Live, &mut sink);
        }
    });
    reader.round(&view, &mut clock, Writers::Dead, &mut sink);
    // Some found it full and came again.
    let (produced, ..) = reader.counters(&view);
    assert_eq!(produced, RECORDS);
    assert!(seen.iter().copied().eq(1..=RECORDS), "{} of {RECORDS}", seen.len());
}

#[test]
fn rings_are_merged_by_time() {
    let mut target = Target::new();
    for goid in 1..=20 {
        assert!(target.record((goid * 7 % 2) as u32, goid));
    }
    assert_eq!(target.settle(), (1..=20).collect::<Vec<_>>());
    assert_eq!(target.counters(), (20, 0));
    let times: Vec<u64> =
        target.seen.iter().map(|bytes| Record::parse(bytes).unwrap().ts_ns).collect();
    assert!(times.is_sorted());
}

#[test]
fn a_record_has_all_its_parts() {
    let mut target = Target::new();
    let payload: Vec<u8> = (0..40).collect();
    let (at, drops) = target.reserve(1, 3).unwrap();
    target.fill(at, drops, 1, 5, &payload);
    target.commit(at);
    target.settle();
    let record = Record::parse(&target.seen[0]).unwrap();
    // Five fields of 8 bytes, of which the ring has the data alone.
    let fields = payload.chunks(8).flat_map(|data| [&[0, 0, 8, 0, 8, 0, 0, 0], data].concat());
    let payload: Vec<u8> = fields.collect();
    let expected = Record {
        ts_ns: record.ts_ns,
        goid: 5,
        stack: 0,
        depth: 80,
        caller: 0,
        site: 1,
        pid: 7,
        tid: 0,
        lost: 0,
        cpu: 11,
        flags: RecordFlags(RecordFlags::ORDERED),
        kind: RecordKind::Hit,
        payload: &payload,
    };
    assert_eq!(record, expected);
    // The same ring again: every first word was zeroed.
    assert!(target.record(1, 6));
    assert_eq!(target.settle(), [6]);
}

#[test]
fn a_full_ring_loses_exactly_what_it_counts() {
    let mut target = Target::new();
    let mut written = 0;
    for goid in 0..1000 {
        written += u64::from(target.record(0, goid));
    }
    assert_eq!(written, SLOTS);
    target.settle();
    assert!(target.record(0, 5000));
    target.settle();
    assert_eq!(target.seen.len() as u64, SLOTS + 1);
    assert_eq!(target.counters(), (SLOTS + 1, 1000 - SLOTS));
    // The loss lies between the last record before it and the first after it.
    let lost = |at: usize| Record::parse(&target.seen[at]).unwrap().lost;
    assert_eq!(u64::from(lost(SLOTS as usize)), 1000 - SLOTS);
    assert_eq!(lost(SLOTS as usize - 1), 0);
}

/// Chains of goroutines go on where a loss is told: it has to be where it was.
#[test]
fn a_loss_of_many_records_is_told_by_the_next_one() {
    let mut target = Target::new();
    // What holds the other ring back keeps the reader from looking at the counts.
    let (held, _) = target.reserve(1, 1).unwrap();
    assert!(target.round(Writers::Live).is_empty());
    let mut lost = 0;
    while target.record(0, 1) {}
    for _ in 0..200 {
        lost += u64::from(!target.record(0, 2));
    }
    target.round(Writers::Live);
    let (at, _) = target.reserve(0, 1).unwrap();
    target.fill(at, 0, 3, 3, &[]);
    // A swap that was made, and all of the count.
    target.view.store(at + 16, (lost + 1) << 16 | 1);
    target.commit(at);
    assert!(target.record(0, 4));
    target.round(Writers::Live);
    target.fill(held, 0, 0, 5, &[]);
    target.commit(held);
    target.settle();
    let records = target.seen.iter().map(|bytes| Record::parse(bytes).unwrap());
    let told: Vec<(u64, u32)> = records.map(|record| (record.goid, record.lost)).collect();
    assert_eq!(told[..2], [(1, 0), (1, 0)]);
    assert_eq!(told[told.len() - 3..], [(3, 201), (4, 201), (5, 0)]);
}

/// Memory is taken and given back in pieces.
#[test]
fn a_queue_gives_back_what_has_left() {
    let mut queue = Queue::default();
    let mut record = Record {
        ts_ns: 0,
        goid: 0,
        stack: 0,
        depth: 0,
        caller: 0,
        site: 0,
        pid: 7,
        tid: 1,
        lost: 0,
        cpu: 0,
        flags: RecordFlags(0),
        kind: RecordKind::Hit,
        payload: &[1; 32],
    };
    let mut seen = Vec::new();
    for round in 0..3 {
        for goid in 0..20_000u64 {
            record.goid = goid;
            // One of a thousand is older than the ones before it.
            let late = if goid % 1000 == 999 { 500 } else { 0 };
            queue.push(round * 100_000 + 1000 + goid - late, &record);
        }
        assert!(queue.size() > 20_000 * 112 && queue.size() < 20_000 * 112 * 21 / 20);
        let queues = std::slice::from_mut(&mut queue);
        let mut merge = Merge::new(queues, u64::MAX, vec![0]);
        let mut sink = |bytes: &[u8]| seen.push(Record::parse(bytes).unwrap().ts_ns);
        assert_eq!(merge.step(queues, usize::MAX, &mut |tsc| tsc, &mut sink), 20_000);
        merge.finish(queues);
        assert_eq!(queue.size(), 0);
    }
    assert_eq!(seen.len(), 60_000);
    assert!(seen.is_sorted());
}

/// A goroutine can go on, on another CPU, where one has no room: which of the records there are older
/// than the loss can't be told.
#[test]
fn records_beside_a_loss_of_another_ring_say_so() {
    let mut target = Target::new();
    let beside = |target: &Target, from: usize| -> Vec<(u64, bool)> {
        let records = target.seen[from..].iter().map(|bytes| Record::parse(bytes).unwrap());
        records.map(|record| (record.goid, record.flags.has(RecordFlags::BESIDE_LOSS))).collect()
    };
    assert!(target.record(1, 1));
    while target.record(0, 2) {}
    assert!(target.record(1, 3));
    target.settle();
    // Nothing follows in the ring yet: what it has lost is known from its count.
    let seen = beside(&target, 0);
    assert_eq!((seen[0], seen[seen.len() - 1]), ((1, false), (3, true)));
    assert!(seen[1..seen.len() - 1].iter().all(|&record| record == (2, false)));
    // Up to the next record there, which tells the loss itself.
    let from = target.seen.len();
    for (ring, goid) in [(1, 4), (0, 5), (1, 6), (0, 7)] {
        assert!(target.record(ring, goid));
    }
    target.settle();
    assert_eq!(beside(&target, from), [(4, true), (5, false), (6, false), (7, false)]);
}

#[test]
fn rings_are_read_while_a_slow_reader_takes_what_there_was() {
    let mut target = Target::new();
    target.reader.step = 10;
    for goid in 0..SLOTS {
        assert!(target.record(0, goid));
    }
    // As many again come while those leave, which is more than the rings have room for.
    let (mut next, mut seen) = (SLOTS, Vec::new());
    let Target { view, reader, clock, .. } = &mut target;
    let writer = Writer { view };
    let mut sink = |bytes: &[u8]| {
        seen.push(Record::parse(bytes).unwrap().goid);
        for _ in 0..3 {
            assert!(writer.record((next % 2) as u32, next));
            next += 1;
        }
    };
    while reader.round(view, clock, Writers::Live, &mut sink).handed == 0 {}
    assert!(next > 2 * SLOTS);
    reader.round(view, clock, Writers::Dead, &mut |bytes| {
        seen.push(Record::parse(bytes).unwrap().goid)
    });
    assert_eq!(seen, (0..next).collect::<Vec<_>>());
    assert_eq!(target.counters(), (next, 0));
}

#[test]
fn what_waits_for_an_unwritten_record_never_keeps_it_out() {
    let mut target = Target::new();
    target.reader.most = 2 * MAX_RECORD;
    let (at, drops) = target.reserve(0, 1).unwrap();
    assert!(target.record(0, 1));
    // The other ring fills what may wait, and then itself.
    let mut written = 0;
    while target.record(1, 2) {
        written += 1;
        assert_eq!(target.round(Writers::Live), [0u64; 0]);
    }
    assert!(written > SLOTS);
    target.fill(at, drops, 0, 0, &[]);
    target.commit(at);
    let mut seen = 0;
    for _ in 0..100 {
        seen += target.settle().len() as u64;
    }
    assert_eq!((seen, target.counters()), (written + 2, (written + 2, 1)));
    assert!(target.record(1, 9));
    assert_eq!(target.settle(), [9]);
}

#[test]
fn an_unwritten_record_holds_back_what_may_come_after_it() {
    let mut target = Target::new();
    let (at, drops) = target.reserve(0, 1).unwrap();
    assert!(target.record(0, 2));
    assert!(target.record(1, 3));
    assert_eq!(target.settle(), [0u64; 0]);
    target.fill(at, drops, 0, 1, &[]);
    target.commit(at);
    assert_eq!(target.settle(), [2, 3, 1]);
    assert_eq!(target.counters(), (3, 0));
}

#[test]
fn the_dead_leave_holes_that_are_counted() {
    let mut target = Target::new();
    assert!(target.record(0, 1));
    // One was filled and never committed, one not even filled.
    let (at, drops) = target.reserve(0, 3).unwrap();
    target.fill(at, drops, 1, 2, &[1; 40]);
    assert!(target.record(0, 3));
    target.reserve(0, 3).unwrap();
    assert_eq!(target.round(Writers::Dead), [1, 3]);
    assert_eq!(target.counters(), (2, 0));
    assert_eq!(target.unfinished(), 2);
    // No loss is told behind the first one.
    assert!(target.seen.iter().all(|bytes| Record::parse(bytes).unwrap().lost == 0));
}

/// Its thread may go on, and what it recorded happen unseen.
#[test]
fn what_the_living_had_begun_at_the_removal_is_lost() {
    let mut target = Target::new();
    target.reserve(0, 3).unwrap();
    assert!(target.record(0, 3));
    assert_eq!(target.round(Writers::Removed), [3]);
    assert_eq!((target.counters(), target.unfinished()), ((1, 1), 0));
    assert_eq!(Record::parse(&target.seen[0]).unwrap().lost, 1);
}

/// A hole hides nothing that was written behind it.
#[test]
fn what_came_too_late_behind_a_hole_is_lost_all_the_same() {
    let mut target = Target::new();
    target.reader.hold = Duration::from_millis(5);
    target.reserve(0, 1).unwrap();
    assert!(target.record(0, 1));
    std::thread::sleep(Duration::from_micros(100));
    assert!(target.record(1, 2));
    assert_eq!(target.settle(), [0u64; 0]);
    std::thread::sleep(Duration::from_millis(10));
    // The other ring went ahead of both.
    assert_eq!(target.settle(), [2]);
    assert_eq!(target.round(Writers::Dead), [0u64; 0]);
    assert_eq!((target.counters(), target.unfinished()), ((1, 1), 1));
}

#[test]
fn others_go_ahead_of_a_record_that_never_comes() {
    let mut target = Target::new();
    target.reader.hold = Duration::from_millis(5);
    let (at, drops) = target.reserve(0, 1).unwrap();
    assert!(target.record(1, 2));
    assert_eq!(target.settle(), [0u64; 0]);
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(target.settle(), [2]);
    // It comes too late to be put in its place: its time is older than what was handed over.
    target.fill(at, drops, 0, 1, &[]);
    target.view.store(at, target.reader.started);
    assert_eq!(target.settle(), [0u64; 0]);
    assert_eq!(target.counters(), (1, 1));
}

proptest! {
    #[test]
    fn hostile_rings_give_valid_records_or_losses(
        heads in prop::collection::vec(prop_oneof![0..40_000u64, any::<u64>()], 2..8),
        words in prop::collection::vec((0..RINGS.size() / 8, word()), 0..600),
        writers in prop::sample::select(vec![Writers::Live, Writers::Removed, Writers::Dead]),
    ) {
        let mut target = Target::new();
        for (offset, word) in words {
            target.view.store(offset as usize * 8, word);
        }
        for (index, head) in heads.into_iter().enumerate() {
            let ring = index as u32 % 2;
            target.view.store(Target::start(ring) + HEAD as usize, head);
            target.round(writers);
        }
        prop_assert!(target.seen.len() as u64 <= 8 * SLOTS);
        let mut last = 0;
        for bytes in &target.seen {
            let record = Record::parse(bytes).unwrap();
            prop_assert!(record.site != 2 && record.pid == 7);
            prop_assert_eq!(record.payload.len(), [0, 80, 0, 0, 32][record.site as usize]);
            prop_assert!(record.ts_ns >= last);
            last = record.ts_ns;
        }
    }
}

/// Words that are nothing, anything, or nearly right: a time of now, a tag.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0..4u32, 0..5u32, any::<u32>())
            .prop_map(|(site, units, depth)| u64::from(tag(site, units)) | u64::from(depth) << 32),
        (0..1u64 << 32).prop_map(|later| clock::tsc() + later),
    ]
}
