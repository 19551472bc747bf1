//! Search of an image's segments in chunks of bounded size.

use crate::image::{Image, Segment};
use address::Svma;
use object::elf;

/// Bytes read at a time.
const CHUNK: u64 = 1 << 20;

/// Which segments to search, in the order in which Go's data is likely there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Writable segments, then read-only ones.
    WritableFirst,
    /// Read-only segments, then writable ones, then code.
    ReadOnlyFirst,
}

/// Calls `visit` with successive pieces of the loaded, file-backed segments until it gives
/// something. A piece starts at a multiple of 16 and is followed by up to `overlap`
/// bytes of the next piece, so that what crosses the border is seen whole. Pieces that
/// cannot be read are passed over.
pub(crate) fn search<T>(
    image: &Image,
    order: Order,
    overlap: u64,
    mut visit: impl FnMut(Svma, &[u8]) -> Option<T>,
) -> Option<T> {
    let rank = |segment: &&Segment| {
        let executable = segment.flags & elf::PF_X != 0;
        let writable = segment.flags & elf::PF_W != 0;
        match order {
            Order::WritableFirst => (executable, !writable),
            Order::ReadOnlyFirst => (executable, writable),
        }
    };
    let mut segments: Vec<&Segment> =
        image.segments().iter().filter(|segment| segment.kind == elf::PT_LOAD).collect();
    segments.sort_by_key(rank);
    // Headers that announce the same bytes again and again do not make the search endless.
    let mut budget = image.source().size().saturating_mul(2);
    for segment in segments {
        let size = segment.file_size.min(budget);
        budget -= size;
        let skew = segment.address.0.wrapping_neg() % 16;
        let mut at = skew;
        while at < size {
            let address = segment.address.add(at);
            let len = (size - at).min(CHUNK + overlap);
            if let Ok(piece) = image.read_vec(address, len)
                && let Some(found) = visit(address, &piece)
            {
                return Some(found);
            }
            at += CHUNK;
        }
    }
    None
}
