//! Writing jumps into the text and taking them out again.
//!
//! Only bytes of a patch are ever written. What lies between two of them may change at any moment,
//! also while the process stands: the kernel takes a uprobe of another tool out when that
//! tool says so, and a breakpoint written back after that would kill the process.

use super::gap::PAGE;
use crate::Error;
use crate::emit::{PATCH_LEN, Patch};
use crate::memory::TargetMemory;
use crate::step;
use address::{Avma, Bias, ReadMemory as _};
use std::collections::BTreeSet;

/// `int3`.
const BREAKPOINT: u8 = 0xcc;

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
            if bytes_of(&live, patch) != Some(direction.from(patch)) {
                foreign.insert(patch.function);
            }
        }
    }
    Ok(foreign)
}

/// Whether the code at one of `function`'s patches was changed by other means than breakpoints: a
/// uprobe there would put the file's instruction in its place.
pub(crate) fn is_rewritten(
    memory: &TargetMemory,
    mut patches: impl Iterator<Item = TextPatch>,
) -> bool {
    patches.any(|patch| {
        let mut live = [0; PATCH_LEN];
        let read = memory.read_memory(patch.start, &mut live);
        let pairs = || live.iter().zip(&patch.original);
        read.is_err() || pairs().any(|(live, file)| live != file && *live != BREAKPOINT)
    })
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

/// Writes every patch by itself, page after page, and reads each page back. Patches whose place
/// holds neither of its contents are left alone.
pub(crate) fn write<'a>(
    memory: &TargetMemory,
    patches: impl Iterator<Item = &'a TextPatch>,
    direction: Direction,
) -> Result<Written, Error> {
    let mut written = Written::default();
    for page in pages(patches) {
        let live = read_page(memory, &page)?;
        let mut fresh = Vec::new();
        for patch in page {
            let there = bytes_of(&live, patch);
            if there == Some(direction.from(patch)) {
                memory.write(patch.start, &direction.to(patch))?;
                fresh.push(patch);
            } else if there != Some(direction.to(patch)) && !is_out(there, patch, direction) {
                written.foreign += 1;
                continue;
            }
            written.right += 1;
        }
        if fresh.is_empty() {
            continue;
        }
        written.pages += 1;
        step::at("page written");
        let live = read_page(memory, &fresh)?;
        if let Some(patch) = fresh.iter().find(|p| bytes_of(&live, p) != Some(direction.to(p))) {
            return Err(Error::ForeignCode { pid: memory.pid(), address: patch.start.0 });
        }
    }
    Ok(written)
}

/// Whether a jump is out although somebody's breakpoint stands there.
fn is_out(there: Option<[u8; PATCH_LEN]>, patch: &TextPatch, direction: Direction) -> bool {
    let holds = |bytes: &[u8; PATCH_LEN]| {
        let mut pairs = there.iter().flatten().zip(bytes);
        there.is_some() && pairs.all(|(live, byte)| live == byte || *live == BREAKPOINT)
    };
    direction == Direction::Out && holds(&patch.original) && !holds(&patch.replacement)
}

struct Live {
    start: Avma,
    bytes: Vec<u8>,
}

/// Pages that writing all of `patches` touches.
pub(crate) fn page_count<'a>(patches: impl Iterator<Item = &'a TextPatch>) -> u64 {
    patches.map(|patch| patch.start.0 / PAGE).collect::<BTreeSet<_>>().len() as u64
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
        Err(_) if !memory.is_current() => Err(memory.gone()),
        Err(_) => Err(Error::ForeignCode { pid: memory.pid(), address: start.0 }),
    }
}

fn bytes_of(live: &Live, patch: &TextPatch) -> Option<[u8; PATCH_LEN]> {
    let at = usize::try_from(patch.start.since(live.start)?).ok()?;
    live.bytes.get(at..)?.first_chunk().copied()
}
