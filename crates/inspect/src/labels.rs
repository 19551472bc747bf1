//! pprof labels of a goroutine: `g.labels` points to what `runtime/pprof` set.

use crate::descriptor::word_at;
use address::{Avma, MemoryError, ReadMemory};
use binary::GoVersion;
use std::collections::BTreeMap;
use std::fmt;

/// The minor version from which labels are a sorted slice (`label.Set`, Go 1.24) instead
/// of a map (`runtime/pprof/label.go`).
const SLICE_SINCE: u32 = 24;

/// Labels read of one goroutine.
const MAX_LABELS: u64 = 256;

/// Longer texts are cut, bytes.
const MAX_TEXT: u64 = 4096;

/// Entries of a bucket (`internal/abi.MapBucketCount` up to Go 1.23).
const BUCKET: usize = 8;

/// Two strings.
const PAIR: usize = 32;

/// A map bucket: a byte per entry, the keys, the values, the next bucket.
const BUCKET_SIZE: usize = BUCKET + BUCKET * PAIR + 8;

/// Top hashes below this mark entries that are empty or moved (`minTopHash`).
const MIN_TOP_HASH: u8 = 5;

/// Buckets looked at of one map.
const MAX_BUCKETS: u64 = 256;

/// Offsets in `runtime.hmap`, the same in Go 1.19 to 1.23, bytes.
mod hmap {
    pub(super) const COUNT: usize = 0;
    pub(super) const B: usize = 9;
    pub(super) const BUCKETS: usize = 16;
    pub(super) const OLD_BUCKETS: usize = 24;
    pub(super) const SIZE: usize = 32;
}

/// pprof labels of a goroutine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// By key: the order of Go's own output.
    pub texts: BTreeMap<String, String>,
    /// Whether these are all.
    pub end: LabelsEnd,
}

/// How far labels were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelsEnd {
    /// All of them.
    Complete,
    /// Some are missing, or the end of a text: there is more than is read.
    Cut,
    /// Their memory could not be read, or they changed each time.
    Unreadable,
}

impl fmt::Display for LabelsEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Complete => "complete",
            Self::Cut => "there is more than is read",
            Self::Unreadable => "their memory cannot be read, or they changed each time",
        })
    }
}

impl Labels {
    /// Labels of which nothing is known.
    pub(crate) fn unknown() -> Self {
        Self { texts: BTreeMap::new(), end: LabelsEnd::Unreadable }
    }

    /// Those at `address`.
    pub(crate) fn read(memory: &dyn ReadMemory, version: &GoVersion, address: Avma) -> Self {
        let mut labels = Self { texts: BTreeMap::new(), end: LabelsEnd::Complete };
        match labels.add(memory, version, address) {
            Ok(()) => labels,
            Err(_) => Self::unknown(),
        }
    }

    fn add(
        &mut self,
        memory: &dyn ReadMemory,
        version: &GoVersion,
        address: Avma,
    ) -> Result<(), MemoryError> {
        if address.0 == 0 {
            return Ok(());
        }
        if version.minor >= SLICE_SINCE {
            return self.add_slice(memory, address);
        }
        match memory.read_word(address)? {
            0 => Ok(()),
            map => self.add_map(memory, Avma(map)),
        }
    }

    /// `[]struct{ Key, Value string }`.
    fn add_slice(&mut self, memory: &dyn ReadMemory, address: Avma) -> Result<(), MemoryError> {
        let mut header = [0; 16];
        memory.read_memory(address, &mut header)?;
        let count = word_at(&header, 8);
        if count > MAX_LABELS {
            self.end = LabelsEnd::Cut;
        }
        let mut pairs = vec![0; count.min(MAX_LABELS) as usize * PAIR];
        memory.read_memory(Avma(word_at(&header, 0)), &mut pairs)?;
        pairs.chunks_exact(PAIR).try_for_each(|pair| self.add_pair(memory, pair))
    }

    /// `map[string]string` before Swiss maps (`runtime/map.go`).
    fn add_map(&mut self, memory: &dyn ReadMemory, address: Avma) -> Result<(), MemoryError> {
        let mut header = [0; hmap::SIZE];
        memory.read_memory(address, &mut header)?;
        let entries = word_at(&header, hmap::COUNT);
        if entries == 0 {
            return Ok(());
        }
        let log = header.get(hmap::B).copied().unwrap_or_default().min(8);
        let count = 1u64 << log;
        // A map that grew keeps entries in its old buckets until they are moved.
        let old = word_at(&header, hmap::OLD_BUCKETS);
        let mut budget = MAX_BUCKETS;
        for (start, count) in [(word_at(&header, hmap::BUCKETS), count), (old, count.div_ceil(2))] {
            for index in (0..count).take_while(|_| start != 0) {
                let mut bucket = start.wrapping_add(index * BUCKET_SIZE as u64);
                while bucket != 0 && budget > 0 {
                    budget -= 1;
                    bucket = self.add_bucket(memory, Avma(bucket))?;
                }
            }
        }
        if self.texts.len() as u64 != entries {
            self.end = LabelsEnd::Cut;
        }
        Ok(())
    }

    /// Adds a bucket's entries; returns the next one's address.
    fn add_bucket(&mut self, memory: &dyn ReadMemory, address: Avma) -> Result<u64, MemoryError> {
        let mut bytes = [0; BUCKET_SIZE];
        memory.read_memory(address, &mut bytes)?;
        for slot in 0..BUCKET {
            if bytes.get(slot).is_none_or(|&top| top < MIN_TOP_HASH) {
                continue;
            }
            let key = BUCKET + slot * 16;
            let value = key + BUCKET * 16;
            let (key, value) = (bytes.get(key..key + 16), bytes.get(value..value + 16));
            let pair = [key.unwrap_or_default(), value.unwrap_or_default()].concat();
            self.add_pair(memory, &pair)?;
        }
        Ok(word_at(&bytes, BUCKET_SIZE - 8))
    }

    fn add_pair(&mut self, memory: &dyn ReadMemory, pair: &[u8]) -> Result<(), MemoryError> {
        let [key, value] = [0, 16].map(|at| (Avma(word_at(pair, at)), word_at(pair, at + 8)));
        if key.1.max(value.1) > MAX_TEXT {
            self.end = LabelsEnd::Cut;
        }
        let (key, value) = (read_text(memory, key)?, read_text(memory, value)?);
        self.texts.insert(key, value);
        Ok(())
    }
}

fn read_text(memory: &dyn ReadMemory, (address, len): (Avma, u64)) -> Result<String, MemoryError> {
    let mut bytes = vec![0; len.min(MAX_TEXT) as usize];
    if !bytes.is_empty() {
        memory.read_memory(address, &mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
