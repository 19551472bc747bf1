//! The search in a map, a group at a step.

use super::Machine;
use address::{Avma, MemoryError};
use wire::{
    FieldStatus, HMAP_BUCKETS, HMAP_FLAGS, HMAP_LOG, HMAP_OLD, HMAP_SAME_SIZE, MAX_MAP_GROUPS,
    MapKey, Op, SWISS_DIR, SWISS_DIR_LEN, SWISS_GROUPS, SWISS_MASK,
};

/// How far it is.
pub(super) struct Search {
    /// Group to look at.
    group: u64,
    /// The next one of the array, and how many there are from it on.
    next: u64,
    left: u64,
    /// The array to go on with.
    old: Option<(u64, u64)>,
    /// Groups that were looked at.
    seen: usize,
}

/// What a step comes to.
enum Step {
    Found(u64),
    Missing,
    GoesOn(Search),
}

/// It could not be read, or is too large.
struct Failed;

impl From<MemoryError> for Failed {
    fn from(_: MemoryError) -> Self {
        Self
    }
}

impl Machine<'_> {
    pub(super) fn map_elem(&mut self, op: Op) {
        if self.field.failure.is_some() {
            return;
        }
        let key = MapKey::of_operand(op.a);
        let search = self.search.take().map_or_else(|| self.begin(key), |search| Ok(Some(search)));
        let step = search.and_then(|search| match search {
            Some(search) => self.look(search, key, op.imm as u64),
            None => Ok(Step::Missing),
        });
        match step {
            Ok(Step::Found(elem)) => self.field.acc = elem,
            Ok(Step::Missing) => self.field.acc = 0,
            Ok(Step::GoesOn(search)) => {
                self.search = Some(search);
                self.next -= 1;
            }
            Err(Failed) => self.field.failure = Some(FieldStatus::Fault),
        }
    }

    fn word(&self, at: u64) -> Result<u64, Failed> {
        Ok(self.memory.read_word(Avma(at))?)
    }

    fn begin(&self, key: MapKey) -> Result<Option<Search>, Failed> {
        let map = self.field.acc;
        let at = |offset: u64| map.wrapping_add(offset);
        let (first, old) = match key.is_swiss {
            true => {
                let (dir, tables) = (self.word(at(SWISS_DIR))?, self.word(at(SWISS_DIR_LEN))?);
                let groups = match tables {
                    0 => (dir, 1),
                    1 => {
                        let table = self.word(dir)?;
                        let mask = self.word(table.wrapping_add(SWISS_MASK))?;
                        (self.word(table.wrapping_add(SWISS_GROUPS))?, mask.wrapping_add(1))
                    }
                    _ => return Err(Failed),
                };
                (groups, None)
            }
            false => {
                let mut bytes = [0; 2];
                self.memory.read_memory(Avma(at(HMAP_FLAGS)), &mut bytes)?;
                let [flags, log] = bytes;
                const { assert!(HMAP_LOG == HMAP_FLAGS + 1) };
                if log > 6 {
                    return Err(Failed);
                }
                let (buckets, old) = (self.word(at(HMAP_BUCKETS))?, self.word(at(HMAP_OLD))?);
                let halves = u8::from(flags & HMAP_SAME_SIZE == 0).min(log);
                let old = (old != 0).then_some((old, 1 << (log - halves)));
                ((buckets, 1 << log), old)
            }
        };
        let (group, left) = first;
        if group == 0 {
            return Ok(None);
        }
        if left == 0 || left > MAX_MAP_GROUPS as u64 {
            return Err(Failed);
        }
        let next = group.wrapping_add(key.group());
        Ok(Some(Search { group, next, left: left - 1, old, seen: 0 }))
    }

    fn look(&self, mut search: Search, key: MapKey, first: u64) -> Result<Step, Failed> {
        let mut group = vec![0; key.group() as usize];
        self.memory.read_memory(Avma(search.group), &mut group)?;
        let word = |at: u64| {
            let bytes = group.get(at as usize..).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        for index in 0..8 {
            let place = 8 + index * key.stride();
            let (text, len) = (word(place), word(place + 8));
            if len != u64::from(key.len) || self.word(text)? != first {
                continue;
            }
            if self.word(text.wrapping_add(len - 8))? == self.field.aux {
                return Ok(Step::Found(search.group.wrapping_add(key.elem(index))));
            }
        }
        search.seen += 1;
        let behind = if key.is_swiss { 0 } else { word(key.group() - 8) };
        if behind != 0 {
            search.group = behind;
        } else if search.left > 0 {
            search.group = search.next;
            search.next = search.next.wrapping_add(key.group());
            search.left -= 1;
        } else if let Some((old, left)) = search.old.take() {
            search.group = old;
            search.next = old.wrapping_add(key.group());
            search.left = left - 1;
        } else {
            return Ok(Step::Missing);
        }
        if search.seen == MAX_MAP_GROUPS { Err(Failed) } else { Ok(Step::GoesOn(search)) }
    }
}

#[cfg(test)]
mod tests {
    use crate::interpret::{Registers, interpret};
    use crate::test_image::Image;
    use wire::{FieldStatus, Fields, MapKey, Op, OpCode};

    const BASE: u64 = 0xc000_0000_0000;
    /// Words of a group of one-word elements: a bucket, with the one it overflows into, and a swiss one.
    const BUCKET: usize = 1 + 16 + 8 + 1;
    const GROUP: usize = 1 + 24;

    fn address(word: usize) -> u64 {
        BASE + 8 * word as u64
    }

    /// The words from 4 on, behind a header, with texts at the end.
    fn image(header: [u64; 4], mut words: Vec<u64>, len: usize) -> Image {
        words.resize(len - 4, 0);
        let bytes: Vec<u8> = header.into_iter().chain(words).flat_map(u64::to_le_bytes).collect();
        Image { base: BASE, bytes: [&bytes[..], b"traceparent tracepresent traceparenT"].concat() }
    }

    /// Where the element of `traceparent` is, in words from the begin of the image on.
    fn found(image: &Image, is_swiss: bool) -> String {
        let key = MapKey { len: 11, elem_words: 1, is_swiss };
        let ops = [
            Op::new(OpCode::Add, 0, i64::from_le_bytes(*b"ceparent")),
            Op::new(OpCode::SetAux, 0, 0),
            Op::new(OpCode::Reg, 0, 0),
            Op::new(OpCode::MapElem, key.to_operand(), i64::from_le_bytes(*b"tracepar")),
            Op::new(OpCode::EmitAcc, 8, 0),
        ];
        let mut registers = Registers::default();
        registers.gpr[0] = BASE;
        let payload = interpret(&ops, &registers, 0, image);
        let field = Fields::new(&payload).next().unwrap();
        match (field.status, field.as_u64()) {
            (FieldStatus::Ok, Some(0)) => "nothing".to_owned(),
            (FieldStatus::Ok, Some(at)) => format!("word {}", (at - BASE) / 8),
            (status, _) => format!("{status:?}"),
        }
    }

    /// Three buckets at 4, 30 and 56; the texts are behind 100 words.
    fn buckets(log: u64, old: u64, key_at: (usize, u64), links: &[(usize, usize)]) -> Image {
        let mut words = vec![0; 3 * BUCKET];
        // Look-alikes: another text of that length, and one that begins so.
        (words[1], words[2]) = (address(100) + 25, 11);
        (words[3], words[4]) = (address(100) + 12, 12);
        let (at, text) = key_at;
        (words[at - 4], words[at - 3]) = (address(100) + text, 11);
        for (from, to) in links {
            words[from * BUCKET + BUCKET - 1] = address(4 + to * BUCKET);
        }
        image([20, log << 8, address(4), old], words, 100)
    }

    #[test]
    fn buckets_are_searched_with_those_that_they_overflow_into_and_grow_out_of() {
        // Its fourth key is at 4 + 1 + 6, the element behind all keys.
        assert_eq!(found(&buckets(0, 0, (11, 0), &[]), false), "word 24");
        assert_eq!(found(&buckets(0, 0, (11, 25), &[]), false), "nothing");
        // In the second bucket: of two, overflowed into, grown out of, and none of these.
        assert_eq!(found(&buckets(1, 0, (31, 0), &[]), false), "word 47");
        assert_eq!(found(&buckets(0, 0, (31, 0), &[(0, 1)]), false), "word 47");
        assert_eq!(found(&buckets(0, 0, (57, 0), &[(0, 1), (1, 2)]), false), "word 73");
        assert_eq!(found(&buckets(0, address(30), (31, 0), &[]), false), "word 47");
        assert_eq!(found(&buckets(0, 0, (31, 0), &[]), false), "nothing");
        // In a circle, and of more than are looked at.
        assert_eq!(found(&buckets(0, 0, (57, 0), &[(0, 1), (1, 0)]), false), "Fault");
        assert_eq!(found(&buckets(7, 0, (11, 0), &[]), false), "Fault");
    }

    #[test]
    fn swiss_maps_have_one_group_or_a_table_of_them() {
        let small = |header| {
            let mut words = vec![0; 2 * GROUP];
            (words[GROUP + 4], words[GROUP + 5]) = (address(100), 11);
            // Directory, and a table of two groups.
            words.extend([address(55), 0, 0, address(4), 1]);
            image(header, words, 100)
        };
        // The second slot of the second group.
        let second = 4 + GROUP + 6;
        let header = [20, 0, address(4 + GROUP), 0];
        assert_eq!(found(&small(header), true), format!("word {second}"));
        assert_eq!(found(&small([20, 0, address(4), 0]), true), "nothing");
        assert_eq!(found(&small([20, 0, address(54), 1]), true), format!("word {second}"));
        assert_eq!(found(&small([20, 0, address(54), 2]), true), "Fault");
        assert_eq!(found(&small([0, 0, 0, 0]), true), "nothing");
    }
}
