//! Losses between records that have only 8 bits of the count.

use super::*;

/// What was told before and with a record, and whether it is beside a loss.
fn told(bytes: &[u8]) -> (u32, bool) {
    let record = Record::parse(bytes).unwrap();
    (record.lost, record.flags.has(RecordFlags::BESIDE_LOSS))
}

/// However many were lost between two entries, the second tells it.
#[test]
fn a_loss_between_entries_is_told_in_full() {
    for lost in [1, 127, 128, 200, 255, 256, 257, 300, 512, 70_000] {
        let mut target = Target::new();
        // What holds the other ring back keeps the counts from being settled.
        target.reserve(1, 1).unwrap();
        assert!(target.round(Writers::Live).is_empty());
        while target.record(0, 1) {}
        (1..lost).for_each(|_| assert!(!target.record(0, 2)));
        target.round(Writers::Live);
        assert!(target.record(0, 3));
        assert!(target.record(0, 4));
        target.round(Writers::Dead);
        let seen: Vec<_> = target.seen.iter().map(|bytes| told(bytes)).collect();
        let (before, behind) = seen.split_at(SLOTS as usize);
        assert_eq!(behind, [(lost, false); 2]);
        // Those that a longer one would have found no room behind cannot tell.
        let (early, last) = before.split_at(before.len() - usize::from(LONG));
        assert!(early.iter().all(|&record| record == (0, false)), "{lost}");
        assert!(last.iter().all(|&(told, _)| told == 0), "{lost}");
    }
}

/// Long records find no room where short ones still do, and nobody looked in between.
#[test]
fn what_cannot_be_told_of_a_loss_is_said() {
    for lost in [100, 128, 256, 300] {
        let mut target = Target::new();
        for goid in 0..SLOTS - 2 {
            assert!(target.record(0, goid));
        }
        (0..lost).for_each(|_| assert!(target.reserve(0, 3).is_none()));
        assert!(target.record(0, 1));
        assert!(target.record(0, 1));
        target.settle();
        assert!(target.record(0, 1));
        target.settle();
        let seen: Vec<_> = target.seen.iter().map(|bytes| told(bytes)).collect();
        let [before, first, second, behind] = seen[seen.len() - 4..] else { panic!("too few") };
        assert_eq!(before, (0, lost > 127));
        let is_whole = first == (lost, false) && second == (lost, false);
        assert!(is_whole || (first.1 && second.1 && lost > 127), "{lost}: {first:?} {second:?}");
        assert_eq!(behind, (lost, false));
        // Where all have room no record is doubted.
        let early = &seen[..seen.len() - 3 - LONG as usize];
        assert!(early.iter().all(|&record| record == (0, false)), "{lost}");
    }
}

/// What a target does next.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// Records, as long as one may be.
    Write(u8, u16),
    /// A look of the reader.
    Read,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let number = prop_oneof![1..40u16, 200..300u16, 500..530u16];
    let write = (prop_oneof![Just(1u8), Just(LONG)], number);
    let write = write.prop_map(|(units, number)| Move::Write(units, number));
    prop::collection::vec(prop_oneof![3 => write, 1 => Just(Move::Read)], 1..60)
}

proptest! {
    /// Every record tells all that was lost before it, or that it is beside a loss; no later one
    /// that is not leaves any of it out.
    #[test]
    fn no_loss_is_told_short(moves in moves()) {
        let mut target = Target::new();
        let mut truth = Vec::new();
        for one in moves {
            let Move::Write(units, number) = one else {
                target.round(Writers::Live);
                continue;
            };
            for _ in 0..number {
                let drops = target.view.load(Target::start(0) + DROPS as usize) as u32;
                let Some((at, low)) = target.reserve(0, units.into()) else { continue };
                if units == 1 {
                    target.fill(at, low, 0, 1, &[]);
                    target.commit(at);
                } else {
                    target.writer().shorten(0, at, low, 1);
                }
                truth.push(drops);
            }
        }
        target.round(Writers::Dead);
        prop_assert_eq!(target.seen.len(), truth.len());
        for (bytes, lost) in target.seen.iter().zip(truth) {
            let (told, is_beside) = told(bytes);
            prop_assert!(told == lost || (told < lost && is_beside), "{} of {}", told, lost);
        }
    }
}
