//! Two backends on one process: trampolines where they fit, uprobes in the functions that
//! they refuse. Never both inside one function.

use crate::{Capture, CodeEffects, Counters, Error};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Where a record's time, site, process and CPU stand (see `wire::Record`).
const TS: std::ops::Range<usize> = 0..8;
const SITE: std::ops::Range<usize> = 40..44;
const PID: std::ops::Range<usize> = 44..48;
const CPU: std::ops::Range<usize> = 56..58;
const KIND: usize = 60;
const HIT: u8 = wire::RecordKind::Hit as u8;

/// Set in the ring number of the second capture, whose losses are its own.
const SECOND_RING: u16 = 1 << 15;

/// Polls of the first capture after which it has handed over all that came before a given
/// record of the second: one to take the heads of its rings, one to pass them.
const SETTLED: u64 = 2;

/// Bytes of the second capture's records that wait, at the most. What is not read then stays in its
/// ring, which fills up and drops, counted.
const MAX_WAITING: usize = 8 << 20;

/// A capture made of two, with one stream per process in the order of time.
///
/// The order is right for every goroutine. What of the second came before a record of the first
/// is in its ring when that record is read, and it is read before that is handed on. What of the
/// first came before a record of the second is handed over by the first within two more polls, and
/// that long the record waits, unless the first hands over a later one of that process before: it
/// is in order itself. Both clocks are CLOCK_MONOTONIC; a trap takes longer than they differ.
pub struct Merged {
    // Dropped before the first one, as `detach` has it.
    second: Second,
    first: Box<dyn Capture>,
    round: u64,
    attached: bool,
    /// A record of the first as it is handed on.
    bytes: Vec<u8>,
}

/// The second capture, and what it gave.
struct Second {
    capture: Box<dyn Capture>,
    /// Site ids of its own plan, as the whole plan has them.
    sites: Vec<u32>,
    /// By process, in the order of time.
    waiting: BTreeMap<u32, VecDeque<Waiting>>,
    /// Bytes that wait.
    size: usize,
    most: usize,
}

struct Waiting {
    ts_ns: u64,
    /// Round in which the second capture gave it.
    since: u64,
    bytes: Vec<u8>,
}

impl Waiting {
    fn size(&self) -> usize {
        self.bytes.len() + size_of::<Self>()
    }
}

impl Merged {
    /// `second` has a plan of its own, whose site `i` is `sites[i]` in the plan of `first`.
    pub fn new(first: Box<dyn Capture>, second: Box<dyn Capture>, sites: Vec<u32>) -> Self {
        let (waiting, most) = (BTreeMap::new(), MAX_WAITING);
        let second = Second { capture: second, sites, waiting, size: 0, most };
        Self { second, first, round: 0, attached: true, bytes: Vec::new() }
    }
}

impl Second {
    /// Reads all that is there, or that there is room for.
    fn read(&mut self, round: u64) -> Result<(), Error> {
        while self.size < self.most {
            let (sites, waiting, size) = (&self.sites, &mut self.waiting, &mut self.size);
            let read = self.capture.poll(Duration::ZERO, &mut |bytes| {
                let Some((pid, record)) = Waiting::of(bytes, sites, round) else { return };
                *size += record.size();
                let queue = waiting.entry(pid).or_default();
                // Stable: records of one time keep the order they were read in.
                let at = queue.partition_point(|other| other.ts_ns <= record.ts_ns);
                queue.insert(at, record);
            })?;
            if read == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Hands over what waits of a process for as long as `leaves` says so; tells how many.
    fn hand_over(
        &mut self,
        pid: u32,
        leaves: impl Fn(&Waiting) -> bool,
        sink: &mut dyn FnMut(&[u8]),
    ) -> usize {
        let Some(queue) = self.waiting.get_mut(&pid) else { return 0 };
        let mut handed = 0;
        while queue.front().is_some_and(&leaves)
            && let Some(record) = queue.pop_front()
        {
            self.size = self.size.saturating_sub(record.size());
            sink(&record.bytes);
            handed += 1;
        }
        if queue.is_empty() {
            self.waiting.remove(&pid);
        }
        handed
    }
}

impl Waiting {
    /// With the site's number in the whole plan, and its process. Ids that no plan gave out are dropped
    /// later, by who knows the plan: they get a number that none has.
    fn of(bytes: &[u8], sites: &[u32], round: u64) -> Option<(u32, Self)> {
        let mut bytes = bytes.to_vec();
        let site = u32::from_le_bytes(bytes.get(SITE)?.try_into().ok()?);
        let cpu = u16::from_le_bytes(bytes.get(CPU)?.try_into().ok()?);
        let site = sites.get(site as usize).copied().unwrap_or(u32::MAX);
        bytes[SITE].copy_from_slice(&site.to_le_bytes());
        bytes[CPU].copy_from_slice(&(cpu | SECOND_RING).to_le_bytes());
        let (ts_ns, pid) = place_of(&bytes)?;
        Some((pid, Self { ts_ns, since: round, bytes }))
    }
}

/// Time and process.
fn place_of(bytes: &[u8]) -> Option<(u64, u32)> {
    let ts_ns = u64::from_le_bytes(bytes.get(TS)?.try_into().ok()?);
    Some((ts_ns, u32::from_le_bytes(bytes.get(PID)?.try_into().ok()?)))
}

impl Capture for Merged {
    fn backend(&self) -> &'static str {
        self.first.backend()
    }

    fn poll(&mut self, timeout: Duration, sink: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
        self.round += 1;
        let Self { first, second, round, attached, bytes: scratch } = self;
        let (mut handed, mut current, mut failed) = (0, None, None);
        let came = first.poll(timeout, &mut |bytes| {
            let Some((ts_ns, pid)) = place_of(bytes) else { return };
            // The first has read the hits that it hands over of a process before it begins to; what it says of
            // the process itself comes before that or behind it.
            let is_hit = bytes.get(KIND) == Some(&HIT);
            let is_read = is_hit && current.replace(pid) == Some(pid);
            if !is_read && failed.is_none() {
                failed = second.read(*round).err();
            }
            handed += second.hand_over(pid, |waiting| waiting.ts_ns < ts_ns, sink);
            scratch.clear();
            scratch.extend_from_slice(bytes);
            wire::clear_ordered(scratch);
            sink(scratch);
        })?;
        failed.map_or(Ok(()), Err)?;
        second.read(*round)?;
        let is_settled = |waiting: &Waiting| !*attached || waiting.since + SETTLED <= *round;
        for pid in second.waiting.keys().copied().collect::<Vec<_>>() {
            handed += second.hand_over(pid, is_settled, sink);
        }
        // Not done while something waits: a caller that drains asks until nothing comes.
        Ok((came + handed).max(usize::from(!second.waiting.is_empty())))
    }

    fn rest_up_to(&mut self, longest: Duration) {
        self.first.rest_up_to(longest);
        self.second.capture.rest_up_to(longest);
    }

    fn counters(&self) -> Result<Counters, Error> {
        let (first, second) = (self.first.counters()?, self.second.capture.counters()?);
        Ok(Counters {
            produced: first.produced + second.produced,
            lost: first.lost + second.lost,
            unfinished: first.unfinished + second.unfinished,
            foreign: first.foreign + second.foreign,
            rejected: first.rejected + second.rejected,
        })
    }

    /// The second first: its breakpoints are gone before the first restores the text, which it
    /// does even when the other fails: they are never in the same function.
    fn detach(&mut self) -> Result<(), Error> {
        let second = self.second.capture.detach();
        let first = self.first.detach();
        self.attached = false;
        second.and(first)
    }

    fn set_watched(&mut self, sites: &BTreeSet<u32>, watched: bool) -> Result<bool, Error> {
        let own = (0u32..).zip(&self.second.sites).filter(|(_, site)| sites.contains(site));
        let own: BTreeSet<u32> = own.map(|(own, _)| own).collect();
        if !own.is_empty() && !self.second.capture.set_watched(&own, watched)? {
            return Ok(false);
        }
        self.first.set_watched(sites, watched)
    }

    fn code_effects(&self) -> Option<CodeEffects> {
        self.first.code_effects().or_else(|| self.second.capture.code_effects())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use wire::RecordKind;

    /// Is told what to watch, and says whether it can.
    struct Asked(bool, Told);

    type Told = Arc<std::sync::Mutex<Vec<(BTreeSet<u32>, bool)>>>;

    impl Capture for Asked {
        fn backend(&self) -> &'static str {
            "asked"
        }

        fn poll(&mut self, _: Duration, _: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
            Ok(0)
        }

        fn counters(&self) -> Result<Counters, Error> {
            Ok(Counters::default())
        }

        fn detach(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn set_watched(&mut self, sites: &BTreeSet<u32>, watched: bool) -> Result<bool, Error> {
            self.1.lock().unwrap().push((sites.clone(), watched));
            Ok(self.0)
        }
    }

    /// Each is asked about its own sites, by its own numbers, and the second only about some it has.
    #[test]
    fn what_is_to_be_watched_is_told_to_those_who_watch_it() {
        let asked = |can: bool, sites: &[u32]| {
            let [first, second] = [Arc::default(), Arc::default()];
            let both = [Asked(true, Arc::clone(&first)), Asked(can, Arc::clone(&second))];
            let [a, b] = both.map(Box::new);
            let mut merged = Merged::new(a, b, vec![7, 3, 9]);
            let done = merged.set_watched(&sites.iter().copied().collect(), false).unwrap();
            let told = |list: &Told| {
                let list = list.lock().unwrap();
                list.iter().map(|(sites, _)| sites.iter().copied().collect()).collect()
            };
            let (first, second): (Vec<Vec<u32>>, Vec<Vec<u32>>) = (told(&first), told(&second));
            (done, first, second)
        };
        assert_eq!(asked(true, &[1, 9, 7]), (true, vec![vec![1, 7, 9]], vec![vec![0, 2]]));
        assert_eq!(asked(false, &[1, 2]), (true, vec![vec![1, 2]], vec![]));
        assert_eq!(asked(false, &[1, 3]), (false, vec![], vec![vec![1]]));
    }

    /// Hands over what each poll is to give.
    struct Script {
        polls: VecDeque<Vec<Vec<u8>>>,
    }

    impl Capture for Script {
        fn backend(&self) -> &'static str {
            "script"
        }

        fn poll(&mut self, _: Duration, sink: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
            let records = self.polls.pop_front().unwrap_or_default();
            records.iter().for_each(|record| sink(record));
            Ok(records.len())
        }

        fn counters(&self) -> Result<Counters, Error> {
            Ok(Counters { produced: 1, lost: 2, unfinished: 5, foreign: 3, rejected: 4 })
        }

        fn detach(&mut self) -> Result<(), Error> {
            Ok(())
        }
    }

    /// Hands over records of these kinds, 20 ns apart from 10 on, each after another has come in the other.
    struct Saying(&'static [RecordKind], Arc<AtomicBool>);

    impl Capture for Saying {
        fn backend(&self) -> &'static str {
            "saying"
        }

        fn poll(&mut self, _: Duration, sink: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
            for (ts_ns, kind) in (10..).step_by(20).zip(self.0) {
                let mut bytes = record(ts_ns, 0);
                bytes[KIND] = *kind as u8;
                sink(&bytes);
                self.1.store(true, Relaxed);
            }
            Ok(self.0.len())
        }

        fn counters(&self) -> Result<Counters, Error> {
            Ok(Counters::default())
        }

        fn detach(&mut self) -> Result<(), Error> {
            Ok(())
        }
    }

    /// Hands over a record of that time once it is there.
    struct Coming(u64, Arc<AtomicBool>);

    impl Capture for Coming {
        fn backend(&self) -> &'static str {
            "coming"
        }

        fn poll(&mut self, _: Duration, sink: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
            let is_there = self.1.swap(false, Relaxed);
            if is_there {
                sink(&record(self.0, 0));
            }
            Ok(usize::from(is_there))
        }

        fn counters(&self) -> Result<Counters, Error> {
            Ok(Counters::default())
        }

        fn detach(&mut self) -> Result<(), Error> {
            Ok(())
        }
    }

    /// The times of what comes when the second gets a record of `ts_ns` behind the first one of these.
    fn times(kinds: &'static [RecordKind], ts_ns: u64) -> Vec<u64> {
        let there = Arc::new(AtomicBool::new(false));
        let first = Box::new(Saying(kinds, Arc::clone(&there)));
        let mut merged = Merged::new(first, Box::new(Coming(ts_ns, there)), vec![5]);
        stream(&mut merged, 1).into_iter().map(|(ts_ns, ..)| ts_ns).collect()
    }

    #[test]
    fn what_comes_behind_an_announcement_is_read_before_the_hits() {
        assert_eq!(times(&[RecordKind::Process, RecordKind::Hit], 20), [10, 20, 30]);
    }

    #[test]
    fn what_comes_behind_the_last_hit_is_read_before_the_process_is_gone() {
        assert_eq!(times(&[RecordKind::Hit, RecordKind::ProcessExit], 20), [10, 20, 30]);
        assert_eq!(times(&[RecordKind::Hit, RecordKind::Exec], 20), [10, 20, 30]);
    }

    /// The program that the process ran before is over when its new image is announced.
    #[test]
    fn an_exec_is_told_before_the_image_that_it_brought() {
        let there = Arc::new(AtomicBool::new(true));
        let first = Box::new(Saying(&[RecordKind::Process], Arc::clone(&there)));
        let mut merged = Merged::new(first, Box::new(Coming(5, there)), vec![5]);
        let all = stream(&mut merged, 1);
        assert_eq!(all.into_iter().map(|(ts_ns, ..)| ts_ns).collect::<Vec<_>>(), [5, 10]);
    }

    fn record(ts_ns: u64, site: u32) -> Vec<u8> {
        let mut bytes = vec![0; wire::HEADER_SIZE];
        bytes[TS].copy_from_slice(&ts_ns.to_le_bytes());
        bytes[SITE].copy_from_slice(&site.to_le_bytes());
        bytes[60] = 1;
        bytes
    }

    fn script(polls: &[&[(u64, u32)]]) -> Box<Script> {
        let polls =
            polls.iter().map(|poll| poll.iter().map(|(ts, site)| record(*ts, *site)).collect());
        Box::new(Script { polls: polls.collect() })
    }

    /// (time, site, from the second) of all that comes in `polls` polls.
    fn stream(merged: &mut Merged, polls: usize) -> Vec<(u64, u32, bool)> {
        let mut seen = Vec::new();
        for _ in 0..polls {
            merged
                .poll(Duration::ZERO, &mut |bytes| {
                    let record = wire::Record::parse(bytes).unwrap();
                    seen.push((record.ts_ns, record.site, record.cpu & SECOND_RING != 0));
                })
                .unwrap();
        }
        seen
    }

    #[test]
    fn a_late_record_of_the_first_still_comes_before_the_seconds() {
        // The first hands over 10 and 30 only in its third poll; the second gave 20 at once.
        let first = script(&[&[], &[], &[(10, 0), (30, 2)]]);
        let second = script(&[&[(20, 0)], &[]]);
        let mut merged = Merged::new(first, second, vec![7]);
        assert_eq!(stream(&mut merged, 2), []);
        assert_eq!(stream(&mut merged, 1), [(10, 0, false), (20, 7, true), (30, 2, false)]);
    }

    /// A later record of the same process settles what waits, one of another process does not.
    #[test]
    fn a_record_waits_no_longer_than_until_the_first_is_past_it() {
        let of = |(ts, site, pid): (u64, u32, u32)| {
            let mut bytes = record(ts, site);
            bytes[PID].copy_from_slice(&pid.to_le_bytes());
            bytes
        };
        let polls = |polls: &[&[(u64, u32, u32)]]| {
            let poll = |poll: &&[(u64, u32, u32)]| poll.iter().copied().map(of).collect();
            Box::new(Script { polls: polls.iter().map(poll).collect() })
        };
        let first = polls(&[&[(10, 0, 1), (40, 1, 1), (15, 2, 2)]]);
        let second = polls(&[&[(20, 0, 1), (10, 0, 2)], &[], &[(12, 0, 2), (30, 0, 2)]]);
        let mut merged = Merged::new(first, second, vec![7]);
        let seen = stream(&mut merged, 1);
        // Of process 1, then of 2, of which more came when its first record did.
        let expected = [(10, 0, false), (20, 7, true), (40, 1, false)];
        assert_eq!(seen[..3], expected);
        assert_eq!(seen[3..], [(10, 7, true), (12, 7, true), (15, 2, false)]);
        assert_eq!(stream(&mut merged, 1), []);
        assert_eq!(stream(&mut merged, 1), [(30, 7, true)]);
        assert_eq!(merged.second.size, 0);
    }

    /// What there is no room for stays where it is.
    #[test]
    fn what_waits_takes_no_more_memory_than_it_may() {
        let many: Vec<(u64, u32)> = (0..10).map(|ts| (ts, 0)).collect();
        let second = script(&[many.as_slice(); 50]);
        let mut merged = Merged::new(script(&[]), second, vec![3]);
        merged.second.most = 2_000;
        let each = wire::HEADER_SIZE + size_of::<Waiting>();
        let mut seen = 0;
        for _ in 0..500 {
            seen += stream(&mut merged, 1).len();
            assert!(merged.second.size < 2_000 + 10 * each, "{}", merged.second.size);
        }
        assert_eq!((seen, merged.second.size), (500, 0));
    }

    #[test]
    fn what_waits_is_handed_over_after_the_detach() {
        let second = script(&[&[(5, 0), (6, 9)]]);
        let mut merged = Merged::new(script(&[]), second, vec![3]);
        assert_eq!(stream(&mut merged, 1), []);
        merged.detach().unwrap();
        assert_eq!(stream(&mut merged, 1), [(5, 3, true), (6, u32::MAX, true)]);
        assert_eq!(merged.poll(Duration::ZERO, &mut |_| panic!("nothing is left")).unwrap(), 0);
    }

    #[test]
    fn counters_add_up() {
        let merged = Merged::new(script(&[]), script(&[]), Vec::new());
        let counters = merged.counters().unwrap();
        let both = Counters { produced: 2, lost: 4, unfinished: 10, foreign: 6, rejected: 8 };
        assert_eq!(counters, both);
    }
}
