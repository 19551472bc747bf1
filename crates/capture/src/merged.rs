//! Two backends on one process: trampolines where they fit, uprobes in the functions that
//! they refuse. Never both inside one function.

use crate::{Capture, CodeEffects, Counters, Error};
use std::collections::VecDeque;
use std::time::Duration;

/// Where a record's time, CPU and site stand (see `wire::Record`).
const TS: std::ops::Range<usize> = 0..8;
const SITE: std::ops::Range<usize> = 40..44;
const CPU: std::ops::Range<usize> = 56..58;

/// Set in the ring number of the second capture, whose losses are its own.
const SECOND_RING: u16 = 1 << 15;

/// Polls of the first capture after which it has handed over all that came before a given
/// record of the second: one to take the heads of its rings, one to pass them.
const SETTLED: u64 = 2;

/// Reads of the second capture in one round at the most.
const MAX_READS: usize = 16;

/// A capture made of two, with one stream in the order of time.
///
/// The order is right for every goroutine. What of the second came before a record of the first
/// is in its ring when that record is read, and it is read afterwards. What of the first came
/// before a record of the second is handed over by the first within two more polls, and that
/// long the record waits. Both clocks are CLOCK_MONOTONIC; a trap takes longer than
/// they differ.
pub struct Merged {
    // Dropped before the first one, as `detach` has it.
    second: Box<dyn Capture>,
    first: Box<dyn Capture>,
    /// Site ids of the second's own plan, as the whole plan has them.
    sites: Vec<u32>,
    waiting: VecDeque<Waiting>,
    round: u64,
    attached: bool,
}

struct Waiting {
    ts_ns: u64,
    /// Round in which the second capture gave it; `None` for the first's.
    since: Option<u64>,
    bytes: Vec<u8>,
}

impl Merged {
    /// `second` has a plan of its own, whose site `i` is `sites[i]` in the plan of `first`.
    pub fn new(first: Box<dyn Capture>, second: Box<dyn Capture>, sites: Vec<u32>) -> Self {
        Self { first, second, sites, waiting: VecDeque::new(), round: 0, attached: true }
    }

    /// One round of reading; tells how many records came.
    fn read(&mut self, timeout: Duration) -> Result<usize, Error> {
        self.round += 1;
        let mut arrived = Vec::new();
        let mut handed = self.first.poll(timeout, &mut |bytes| {
            arrived.extend(Waiting::of_first(bytes));
        })?;
        let (sites, round) = (&self.sites, self.round);
        for _ in 0..MAX_READS {
            let read = self.second.poll(Duration::ZERO, &mut |bytes| {
                arrived.extend(Waiting::of_second(bytes, sites, round));
            })?;
            handed += read;
            if read == 0 {
                break;
            }
        }
        self.waiting.extend(arrived);
        // Stable: records of one time keep the order they were read in.
        self.waiting.make_contiguous().sort_by_key(|waiting| waiting.ts_ns);
        Ok(handed)
    }

    fn hand_over(&mut self, sink: &mut dyn FnMut(&[u8])) -> usize {
        let settled = |waiting: &Waiting| match waiting.since {
            None => true,
            Some(since) => !self.attached || since + SETTLED <= self.round,
        };
        let ready = self.waiting.iter().take_while(|waiting| settled(waiting)).count();
        self.waiting.drain(..ready).for_each(|waiting| sink(&waiting.bytes));
        ready
    }
}

impl Waiting {
    fn of_first(bytes: &[u8]) -> Option<Self> {
        let mut bytes = bytes.to_vec();
        wire::clear_ordered(&mut bytes);
        Some(Self { ts_ns: ts_of(&bytes)?, since: None, bytes })
    }

    /// With the site's number in the whole plan. Ids that no plan gave out are dropped later,
    /// by who knows the plan: they get a number that none has.
    fn of_second(bytes: &[u8], sites: &[u32], round: u64) -> Option<Self> {
        let mut bytes = bytes.to_vec();
        let site = u32::from_le_bytes(bytes.get(SITE)?.try_into().ok()?);
        let cpu = u16::from_le_bytes(bytes.get(CPU)?.try_into().ok()?);
        let site = sites.get(site as usize).copied().unwrap_or(u32::MAX);
        bytes[SITE].copy_from_slice(&site.to_le_bytes());
        bytes[CPU].copy_from_slice(&(cpu | SECOND_RING).to_le_bytes());
        Some(Self { ts_ns: ts_of(&bytes)?, since: Some(round), bytes })
    }
}

fn ts_of(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(TS)?.try_into().ok()?))
}

impl Capture for Merged {
    fn backend(&self) -> &'static str {
        self.first.backend()
    }

    fn poll(&mut self, timeout: Duration, sink: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
        let read = self.read(timeout)?;
        let handed = self.hand_over(sink);
        // Not done while something waits: a caller that drains asks until nothing comes.
        Ok(handed.max(usize::from(read > 0 || !self.waiting.is_empty())))
    }

    fn counters(&self) -> Result<Counters, Error> {
        let (first, second) = (self.first.counters()?, self.second.counters()?);
        Ok(Counters {
            produced: first.produced + second.produced,
            lost: first.lost + second.lost,
            foreign: first.foreign + second.foreign,
        })
    }

    /// The second first: its breakpoints are gone before the first restores the text, which it
    /// does even when the other fails: they are never in the same function.
    fn detach(&mut self) -> Result<(), Error> {
        let second = self.second.detach();
        let first = self.first.detach();
        self.attached = false;
        second.and(first)
    }

    fn code_effects(&self) -> Option<CodeEffects> {
        self.first.code_effects().or_else(|| self.second.code_effects())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            Ok(Counters { produced: 1, lost: 2, foreign: 3 })
        }

        fn detach(&mut self) -> Result<(), Error> {
            Ok(())
        }
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
        assert_eq!(counters, Counters { produced: 2, lost: 4, foreign: 6 });
    }
}
