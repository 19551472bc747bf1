//! pprof labels of a goroutine: `g.labels` points to what `runtime/pprof` set.

use crate::descriptor::word_at;
use address::{Avma, MemoryError, ReadMemory};
use binary::GoVersion;
use std::collections::BTreeMap;

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

/// The labels at `address`, by key; the order of Go's own output.
pub(crate) fn read(
    memory: &dyn ReadMemory,
    version: &GoVersion,
    address: Avma,
) -> Result<BTreeMap<String, String>, MemoryError> {
    if address.0 == 0 {
        return Ok(BTreeMap::new());
    }
    if version.minor >= SLICE_SINCE {
        return read_slice(memory, address);
    }
    match memory.read_word(address)? {
        0 => Ok(BTreeMap::new()),
        map => read_map(memory, Avma(map)),
    }
}

/// `[]struct{ Key, Value string }`.
fn read_slice(
    memory: &dyn ReadMemory,
    address: Avma,
) -> Result<BTreeMap<String, String>, MemoryError> {
    let mut header = [0; 16];
    memory.read_memory(address, &mut header)?;
    let count = word_at(&header, 8).min(MAX_LABELS);
    let mut pairs = vec![0; count as usize * PAIR];
    memory.read_memory(Avma(word_at(&header, 0)), &mut pairs)?;
    pairs.chunks_exact(PAIR).map(|pair| read_pair(memory, pair)).collect()
}

/// `map[string]string` before Swiss maps (`runtime/map.go`).
fn read_map(
    memory: &dyn ReadMemory,
    address: Avma,
) -> Result<BTreeMap<String, String>, MemoryError> {
    let mut header = [0; hmap::SIZE];
    memory.read_memory(address, &mut header)?;
    let mut labels = BTreeMap::new();
    if word_at(&header, hmap::COUNT) == 0 {
        return Ok(labels);
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
                bucket = read_bucket(memory, Avma(bucket), &mut labels)?;
            }
        }
    }
    Ok(labels)
}

/// Adds a bucket's entries; returns the next one's address.
fn read_bucket(
    memory: &dyn ReadMemory,
    address: Avma,
    labels: &mut BTreeMap<String, String>,
) -> Result<u64, MemoryError> {
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
        let (key, value) = read_pair(memory, &pair)?;
        labels.insert(key, value);
    }
    Ok(word_at(&bytes, BUCKET_SIZE - 8))
}

fn read_pair(memory: &dyn ReadMemory, pair: &[u8]) -> Result<(String, String), MemoryError> {
    let text = |at: usize| read_text(memory, Avma(word_at(pair, at)), word_at(pair, at + 8));
    Ok((text(0)?, text(16)?))
}

fn read_text(memory: &dyn ReadMemory, address: Avma, len: u64) -> Result<String, MemoryError> {
    let mut bytes = vec![0; len.min(MAX_TEXT) as usize];
    if !bytes.is_empty() {
        memory.read_memory(address, &mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
