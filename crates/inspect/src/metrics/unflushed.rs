//! What processors allocated from the spans in their caches since the spans were counted.

use super::layout::Spans;
use super::memory::Unflushed;
use super::reader::Reader;
use super::unknown::Unknown;
use address::{Avma, ReadMemory as _};

/// Reads the caches and their spans. A processor that allocates meanwhile has more.
pub(super) fn read(
    reader: &Reader<'_>,
    caches: &[Avma],
    layout: &Spans,
) -> Result<Unflushed, Unknown> {
    let unreadable = |_| Unknown::Unreadable("the caches of processors");
    let mut all = Unflushed::default();
    let size = layout.cache.size().max(1);
    let mut bytes = vec![0; size * caches.len()];
    let mut parts = Vec::new();
    for (cache, bytes) in caches.iter().zip(bytes.chunks_exact_mut(size)) {
        parts.extend(layout.cache.parts(*cache, bytes));
    }
    reader.read_parts(&mut parts).map_err(unreadable)?;
    drop(parts);
    let mut spans = Vec::new();
    for cache in bytes.chunks_exact(size) {
        let cache = layout.cache.view(cache);
        all.tiny = all.tiny.wrapping_add(cache.word(layout.tiny_allocs));
        spans.extend(cache.words(layout.alloc, layout.spans).filter(|span| *span != 0));
    }
    // Empty slots share one span without objects.
    spans.sort_unstable();
    spans.dedup();
    let size = layout.span.size().max(1);
    let mut bytes = vec![0; size * spans.len()];
    let mut parts = Vec::new();
    for (span, bytes) in spans.iter().zip(bytes.chunks_exact_mut(size)) {
        parts.extend(layout.span.parts(Avma(*span), bytes));
    }
    reader.read_parts(&mut parts).map_err(unreadable)?;
    drop(parts);
    for span in bytes.chunks_exact(size) {
        let span = layout.span.view(span);
        let before = span.short(layout.alloc_count_before);
        // It is 0 in a span that is being exchanged.
        let objects = u64::from(span.short(layout.alloc_count).saturating_sub(before));
        all.objects += objects;
        all.bytes = all.bytes.wrapping_add(objects.wrapping_mul(span.word(layout.elem_size)));
    }
    Ok(all)
}
