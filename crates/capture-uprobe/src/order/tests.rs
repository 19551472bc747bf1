//! The reader on rings that a test writes.

use super::{Clock, HOLD, Reader, monotonic_offset};
use crate::ring::{Mapping, RingLayout, Rings};
use std::time::Instant;

const LAYOUT: RingLayout = RingLayout { count: 2, bytes: 4096 };

fn reader() -> Reader {
    let memory = Mapping::anonymous(Rings::len(LAYOUT));
    Reader::new(Rings::over(memory, LAYOUT), Clock::default())
}

/// Time and length of all that one round gives.
fn round(reader: &mut Reader, is_over: bool) -> Vec<(u64, usize)> {
    let mut seen = Vec::new();
    let mut sink = |bytes: &[u8]| {
        seen.push((u64::from_le_bytes(bytes[..8].try_into().unwrap()), bytes.len()));
    };
    reader.consume(usize::MAX, is_over, Vec::new, &mut sink);
    seen
}

#[test]
fn rings_are_merged_by_time_and_what_is_not_old_enough_waits() {
    let mut reader = reader();
    let future = u64::MAX / 2;
    for (ring, ts, payload) in [(0, 10, 0), (0, 40, 100), (1, 20, 8), (1, 30, 0), (1, future, 0)] {
        reader.rings.write(ring, ts, payload);
    }
    assert_eq!(round(&mut reader, false), [(10, 64), (20, 72), (30, 64), (40, 164)]);
    assert_eq!([reader.rings.tail(0), reader.rings.tail(1)], [64 + 168, 72 + 64]);
    assert_eq!(round(&mut reader, false), []);
    assert_eq!(round(&mut reader, true), [(future, 64)]);
    assert_eq!(reader.rings.tail(1), reader.rings.head(1));
}

#[test]
fn a_record_that_is_not_there_holds_back_what_is_newer() {
    let mut reader = reader();
    reader.rings.write(0, 10, 0);
    let late = reader.rings.write(0, 0, 0);
    reader.rings.write(0, 15, 0);
    reader.rings.write(1, 30, 0);
    assert_eq!(round(&mut reader, false), []);
    reader.rings.write(1, 40, 0);
    assert_eq!(round(&mut reader, false), []);
    reader.rings.commit(0, late, 20);
    // The next is behind the heads of the round that is now complete.
    assert_eq!(round(&mut reader, false), [(10, 64), (15, 64), (20, 64), (30, 64)]);
    assert_eq!(round(&mut reader, false), [(40, 64)]);
    assert_eq!([reader.rings.tail(0), reader.rings.tail(1)], [192, 128]);
}

#[test]
fn a_record_that_stays_away_is_left_behind() {
    let mut reader = reader();
    let lost = reader.rings.write(0, 0, 0);
    reader.rings.write(1, 30, 0);
    assert_eq!(round(&mut reader, false), []);
    reader.held = Instant::now().checked_sub(2 * HOLD);
    assert_eq!(round(&mut reader, false), [(30, 64)]);
    reader.rings.commit(0, lost, 20);
    assert_eq!(round(&mut reader, false), [(20, 64)]);
}

#[test]
fn the_tail_stays_before_the_first_that_waits() {
    let mut reader = reader();
    let future = u64::MAX / 2;
    for ts in [future, 10, 20] {
        reader.rings.write(0, ts, 0);
    }
    assert_eq!(round(&mut reader, false), [(10, 64), (20, 64)]);
    assert_eq!(reader.rings.tail(0), 0);
    assert_eq!(round(&mut reader, true), [(future, 64)]);
    assert_eq!(reader.rings.tail(0), 192);
}

/// Laps of a ring whose end is not the end of a record.
#[test]
fn no_record_is_split_or_seen_twice() {
    let mut reader = reader();
    for lap in 1..200u64 {
        let payload = (lap as usize * 37) % 1000;
        reader.rings.write(0, 2 * lap, payload);
        reader.rings.write(0, 2 * lap + 1, 0);
        let expected = [(2 * lap, 64 + payload), (2 * lap + 1, 64)];
        assert_eq!(round(&mut reader, false), expected);
        assert_eq!(reader.rings.tail(0), reader.rings.head(0));
    }
}

#[test]
fn a_budget_ends_a_round_and_the_next_goes_on() {
    let mut reader = reader();
    for ts in 1..=5 {
        reader.rings.write(ts as usize % 2, ts, 0);
    }
    let mut seen = Vec::new();
    let mut sink = |bytes: &[u8]| seen.push(bytes[0]);
    assert_eq!(reader.consume(2, false, Vec::new, &mut sink), (2, true));
    assert_eq!(reader.consume(2, false, Vec::new, &mut sink), (2, true));
    assert_eq!(reader.consume(2, false, Vec::new, &mut sink), (1, false));
    assert_eq!(seen, [1, 2, 3, 4, 5]);
}

#[test]
fn the_offset_of_a_time_namespace_is_read() {
    let text = "monotonic      -86400         5\nboottime        7 0\n";
    assert_eq!(monotonic_offset(text), Some(-86_400_000_000_000 + 5));
    assert_eq!(monotonic_offset("boottime 1 1\n"), None);
    assert_eq!(monotonic_offset("monotonic x 1\n"), None);
}

/// Times of what is ready when each CPU has lost so many by now, and whether a loss of another CPU
/// lies beside it.
fn beside(reader: &mut Reader, latest: [u32; 2]) -> Vec<(u64, bool)> {
    let mut seen = Vec::new();
    let mut sink = |bytes: &[u8]| {
        let bytes = [&bytes[..60], &[1, 0], &bytes[62..]].concat();
        let record = wire::Record::parse(&bytes).unwrap();
        seen.push((record.ts_ns, record.flags.has(wire::RecordFlags::BESIDE_LOSS)));
    };
    reader.consume(usize::MAX, false, || latest.to_vec(), &mut sink);
    seen
}

#[test]
fn records_beside_a_loss_of_another_cpu_say_so() {
    let mut reader = reader();
    let write = |reader: &Reader, records: &[(u64, u16, u32)]| {
        for &(ts_ns, cpu, lost) in records {
            let position = reader.rings.write(usize::from(cpu), 0, 0);
            reader.rings.set_loss(usize::from(cpu), position, cpu, lost);
            reader.rings.commit(usize::from(cpu), position, ts_ns);
        }
    };
    // CPU 0 loses between 20 and 50, and one that nothing tells of yet behind 60.
    let future = u64::MAX / 2;
    write(&reader, &[(10, 1, 0), (20, 0, 0), (30, 1, 0), (40, 1, 0), (50, 0, 3), (55, 1, 0)]);
    write(&reader, &[(60, 0, 3), (70, 1, 0)]);
    let expected = [10, 20, 30, 40, 50, 55, 60, 70].map(|ts| (ts, [30, 40, 70].contains(&ts)));
    assert_eq!(beside(&mut reader, [4, 0]), expected);
    // Up to the next record of CPU 0, which tells itself; and what waits behind counts as next.
    write(&reader, &[(80, 1, 0), (90, 0, 4), (100, 1, 0), (future, 0, 4)]);
    assert_eq!(beside(&mut reader, [9, 0]), [(80, true), (90, false), (100, false)]);
    write(&reader, &[(110, 1, 0), (future, 0, 9)]);
    assert_eq!(beside(&mut reader, [9, 0]), [(110, false)]);
}
