//! Writing jumps into the text and taking them out again, a page at a time.

use super::gap::PAGE;
use crate::Error;
use crate::emit::{PATCH_LEN, Patch};
use crate::memory::TargetMemory;
use crate::step;
use address::{Avma, Bias, ReadMemory as _};
use std::collections::BTreeSet;

/// One patch, in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextPatch {
    /// Index of the function in the plan.
    pub function: u32,
    /// First byte.
    pub start: Avma,
    /// End of the last moved instruction.
    pub end: Avma,
    /// What the file has there.
    pub original: [u8; PATCH_LEN],
    /// The jump.
    pub replacement: [u8; PATCH_LEN],
}

impl TextPatch {
    /// The patch where the image lies in the process.
    pub(crate) fn at(patch: &Patch, bias: Bias) -> Self {
        Self {
            function: patch.function,
            start: bias.to_avma(patch.address),
            end: bias.to_avma(patch.end),
            original: patch.original,
            replacement: patch.replacement,
        }
    }
}

/// Which way to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the file's bytes to jumps.
    In,
    /// Back.
    Out,
}

impl Direction {
    fn from(self, patch: &TextPatch) -> [u8; PATCH_LEN] {
        match self {
            Self::In => patch.original,
            Self::Out => patch.replacement,
        }
    }

    fn to(self, patch: &TextPatch) -> [u8; PATCH_LEN] {
        match self {
            Self::In => patch.replacement,
            Self::Out => patch.original,
        }
    }
}

/// Functions at least one of whose patches does not find the bytes it expects.
pub(crate) fn foreign<'a>(
    memory: &TargetMemory,
    patches: impl Iterator<Item = &'a TextPatch>,
    direction: Direction,
) -> Result<BTreeSet<u32>, Error> {
    let mut foreign = BTreeSet::new();
    for page in pages(patches) {
        let live = read_page(memory, &page)?;
        for patch in page {
            if bytes_of(&live.bytes, live.start, patch) != Some(direction.from(patch)) {
                foreign.insert(patch.function);
            }
        }
    }
    Ok(foreign)
}

/// What [`write`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Patches that are now as wanted, also those that were before.
    pub right: usize,
    /// Patches left alone because somebody else's bytes are there.
    pub foreign: usize,
    /// Pages written.
    pub pages: usize,
}

/// Writes every patch, one write for each page, and reads it back. Patches whose place holds
/// neither of its contents are left alone.
pub(crate) fn write<'a>(
    memory: &TargetMemory,
    patches: impl Iterator<Item = &'a TextPatch>,
    direction: Direction,
) -> Result<Written, Error> {
    let mut written = Written::default();
    for page in pages(patches) {
        let live = read_page(memory, &page)?;
        let mut bytes = live.bytes.clone();
        for patch in page {
            let there = bytes_of(&live.bytes, live.start, patch);
            if there == Some(direction.from(patch)) || there == Some(direction.to(patch)) {
                written.right += 1;
                put(&mut bytes, live.start, patch, direction.to(patch));
            } else {
                written.foreign += 1;
            }
        }
        if bytes == live.bytes {
            continue;
        }
        memory.write(live.start, &bytes)?;
        written.pages += 1;
        step::at("page written");
        let mut check = vec![0; bytes.len()];
        let read = memory.read_memory(live.start, &mut check);
        if read.is_err() || check != bytes {
            return Err(if memory.is_current() {
                Error::ForeignCode { pid: memory.pid(), address: live.start.0 }
            } else {
                Error::Gone(memory.pid())
            });
        }
    }
    Ok(written)
}

struct Live {
    start: Avma,
    bytes: Vec<u8>,
}

/// Groups patches that lie on one page; they are sorted, and none crosses a page boundary.
fn pages<'a>(patches: impl Iterator<Item = &'a TextPatch>) -> Vec<Vec<&'a TextPatch>> {
    let mut pages: Vec<Vec<&TextPatch>> = Vec::new();
    for patch in patches {
        let page = patch.start.0 / PAGE;
        match pages.last_mut() {
            Some(last) if last.first().is_some_and(|p| p.start.0 / PAGE == page) => {
                last.push(patch);
            }
            _ => pages.push(vec![patch]),
        }
    }
    pages
}

/// The bytes from a page's first patch to its last.
fn read_page(memory: &TargetMemory, page: &[&TextPatch]) -> Result<Live, Error> {
    let start = page.first().map_or(Avma(0), |patch| patch.start);
    let end = page.last().map_or(start, |patch| patch.start.add(PATCH_LEN as u64));
    // The patches of a page lie on one page, so this is small.
    let len = end.since(start).unwrap_or_default().min(PAGE);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
    match memory.read_memory(start, &mut bytes) {
        Ok(()) => Ok(Live { start, bytes }),
        Err(_) if !memory.is_current() => Err(Error::Gone(memory.pid())),
        Err(_) => Err(Error::ForeignCode { pid: memory.pid(), address: start.0 }),
    }
}

fn bytes_of(bytes: &[u8], start: Avma, patch: &TextPatch) -> Option<[u8; PATCH_LEN]> {
    let at = usize::try_from(patch.start.since(start)?).ok()?;
    bytes.get(at..)?.first_chunk().copied()
}

fn put(bytes: &mut [u8], start: Avma, patch: &TextPatch, content: [u8; PATCH_LEN]) {
    let at = patch.start.since(start).and_then(|at| usize::try_from(at).ok());
    if let Some(place) = at.and_then(|at| bytes.get_mut(at..at + PATCH_LEN)) {
        place.copy_from_slice(&content);
    }
}
