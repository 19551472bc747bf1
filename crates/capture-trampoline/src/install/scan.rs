//! Looking for saved program counters in a stopped process.
//!
//! A goroutine that was preempted asynchronously, and whatever a signal interrupted, goes on
//! one day at an address that stands somewhere in memory. If it points into the middle of a
//! patch, the patch must wait. The search is conservative: every aligned word of resident,
//! private, writable memory may be one, whoever's stack it is; of a file's, in the pages that were
//! written (a signal stack of C may lie in .data or .bss). Words that merely look so,
//! stale frames among them, cost a retry, and at the worst one function.

use super::gap::PAGE;
use super::text::TextPatch;
use crate::Error;
use crate::ptrace::Stopped;
use address::{Avma, ReadMemory};
use process::{Mapping, Maps, ProcessMemory};
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes read at once.
const PIECE: u64 = 1 << 18;

/// Memory that is looked through at the most: some seconds of standing still are no tracing.
const MAX_SCAN: u64 = 8 << 30;

/// Threads that look, at the most.
const MAX_WORKERS: usize = 4;

/// Present or swapped, in an entry of `/proc/PID/pagemap`.
const RESIDENT: u64 = 3 << 62;

/// A page of a file, or shared.
const FILE_PAGE: u64 = 1 << 61;

/// Address ranges to look for, each with a number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Sorted, disjoint: first address, end, number.
    ranges: Vec<(u64, u64, u32)>,
}

impl Wanted {
    /// The insides of patches (a PC at the first byte runs the jump), numbered by function.
    pub(crate) fn inside<'a>(patches: impl Iterator<Item = &'a TextPatch>) -> Self {
        let mut ranges: Vec<_> = patches
            .map(|p| (p.start.0.saturating_add(1), p.end.0, p.function))
            .filter(|(start, end, _)| start < end)
            .collect();
        ranges.sort_unstable();
        Self { ranges }
    }

    /// One whole range, numbered 0.
    pub(crate) fn all_of(range: Range<Avma>) -> Self {
        Self { ranges: vec![(range.start.0, range.end.0, 0)] }
    }

    /// The number of the range that holds `address`.
    pub(crate) fn find(&self, address: u64) -> Option<u32> {
        let after = self.ranges.partition_point(|&(start, ..)| start <= address);
        let &(_, end, number) = self.ranges.get(after.checked_sub(1)?)?;
        (address < end).then_some(number)
    }

    fn span(&self) -> (u64, u64) {
        let start = self.ranges.first().map_or(0, |r| r.0);
        let end = self.ranges.last().map_or(0, |r| r.1);
        (start, end.saturating_sub(start))
    }
}

/// Numbers of the ranges that a word of the process's memory points into. The threads' own
/// registers are not among them.
pub(crate) fn saved(
    stopped: &Stopped,
    maps: &Maps,
    memory: &ProcessMemory,
    wanted: &Wanted,
) -> Result<BTreeSet<u32>, Error> {
    if wanted.ranges.is_empty() {
        return Ok(BTreeSet::new());
    }
    let runs = resident_runs(stopped, maps)?;
    let next = AtomicUsize::new(0);
    let found = Mutex::new(BTreeSet::new());
    let work = || {
        let mut buffer = vec![0; PIECE as usize];
        let mut own = BTreeSet::new();
        while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            search(memory, run, wanted, &mut buffer, &mut own);
        }
        let mut all = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.extend(own);
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = cpus.min(MAX_WORKERS).min(runs.len() / 16);
    std::thread::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(work);
        }
        work();
    });
    Ok(found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

fn search(
    memory: &dyn ReadMemory,
    run: &Range<u64>,
    wanted: &Wanted,
    buffer: &mut [u8],
    found: &mut BTreeSet<u32>,
) {
    let len = usize::try_from(run.end - run.start).unwrap_or_default();
    let Some(piece) = buffer.get_mut(..len) else { return };
    if memory.read_memory(Avma(run.start), piece).is_ok() {
        search_words(piece, wanted, found);
        return;
    }
    // A page of it can't be read (PROT_NONE guard, userfaultfd): each page for itself.
    for page in (run.start..run.end).step_by(PAGE as usize) {
        let Some(piece) = buffer.get_mut(..PAGE as usize) else { return };
        if memory.read_memory(Avma(page), piece).is_ok() {
            search_words(piece, wanted, found);
        }
    }
}

fn search_words(bytes: &[u8], wanted: &Wanted, found: &mut BTreeSet<u32>) {
    let (start, span) = wanted.span();
    for word in bytes.chunks_exact(8) {
        let mut value = [0; 8];
        value.copy_from_slice(word);
        let value = u64::from_le_bytes(value);
        if value.wrapping_sub(start) < span
            && let Some(number) = wanted.find(value)
        {
            found.insert(number);
        }
    }
}

/// Pieces of memory that can hold a saved PC, of at most [`PIECE`] bytes.
fn resident_runs(stopped: &Stopped, maps: &Maps) -> Result<Vec<Range<u64>>, Error> {
    let pid = stopped.pid();
    let failed = |e| Error::io(format!("read the page map of process {pid}"), e);
    let tid = stopped.threads().next().map_or(pid, |thread| thread.tid());
    let pagemap = File::open(format!("/proc/{pid}/task/{tid}/pagemap")).map_err(failed)?;
    let stack_pointers = stack_pointers(stopped)?;
    let mut runs = Vec::new();
    let mut total = 0u64;
    let own = |m: &&Mapping| m.writable && (m.inode == 0 || !m.shared);
    for mapping in maps.mappings.iter().filter(own) {
        let before = runs.len();
        let start = live_start(mapping, &stack_pointers);
        let without = if mapping.inode == 0 { 0 } else { FILE_PAGE };
        add_runs(&pagemap, start..mapping.end.0, without, &mut runs).map_err(failed)?;
        total += runs.iter().skip(before).map(|run: &Range<u64>| run.end - run.start).sum::<u64>();
        if total > MAX_SCAN {
            return Err(Error::Unsuitable {
                pid,
                reason: format!(
                    "it has more than {} GiB of memory to look through while it stands: \
                     use --backend uprobe",
                    MAX_SCAN >> 30
                ),
            });
        }
    }
    Ok(runs)
}

/// Where a mapping's live part begins: the main stack's at the main thread's SP.
fn live_start(mapping: &Mapping, stack_pointers: &[u64]) -> u64 {
    let is_stack = mapping
        .label
        .as_deref()
        .is_some_and(|l| l.eq_ignore_ascii_case("[stack]") || l.eq_ignore_ascii_case("stack"));
    let inside = |sp: &&u64| (mapping.start.0..mapping.end.0).contains(*sp);
    match stack_pointers.iter().filter(inside).min() {
        // The red zone of C code lies below SP.
        Some(&sp) if is_stack => (sp - (sp - mapping.start.0).min(128)) & !7,
        _ => mapping.start.0,
    }
}

fn stack_pointers(stopped: &Stopped) -> Result<Vec<u64>, Error> {
    let mut pointers = Vec::new();
    for thread in stopped.threads() {
        if let Some(registers) = thread.registers()? {
            pointers.push(registers.rsp);
        }
    }
    Ok(pointers)
}

/// The resident pages of `range`, but for those with a bit of `without` set in their entry.
fn add_runs(
    pagemap: &File,
    range: Range<u64>,
    without: u64,
    runs: &mut Vec<Range<u64>>,
) -> std::io::Result<()> {
    const ENTRIES: u64 = 8192;
    let Range { start, end } = range;
    let mut buffer = vec![0; ENTRIES as usize * 8];
    let (mut page, last) = (start / PAGE, end.div_ceil(PAGE));
    let mut run: Option<Range<u64>> = None;
    while page < last {
        let count = (last - page).min(ENTRIES);
        let bytes = &mut buffer[..count as usize * 8];
        let read = pagemap.read_at(bytes, page * 8)?;
        if read == 0 {
            break;
        }
        for entry in bytes[..read].chunks_exact(8) {
            let mut word = [0; 8];
            word.copy_from_slice(entry);
            let entry = u64::from_le_bytes(word);
            let resident = entry & RESIDENT != 0 && entry & without == 0;
            let (from, to) = ((page * PAGE).max(start), (page + 1) * PAGE);
            match &mut run {
                Some(open) if resident && to - open.start <= PIECE => open.end = to,
                _ => {
                    runs.extend(run.take());
                    run = resident.then_some(from..to);
                }
            }
            page += 1;
        }
    }
    runs.extend(run);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    use std::io::Write as _;

    /// A signal stack that lies in a program's own data is a page of that file that was written.
    #[test]
    fn of_a_private_file_the_pages_that_were_written_are_looked_through() {
        let mut file = File::from(memfd_create("scan-test", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(&[1; 4 * PAGE as usize]).unwrap();
        let (protection, len) = (ProtFlags::READ | ProtFlags::WRITE, 4 * PAGE as usize);
        // SAFETY: a new mapping where the kernel likes, of a file that keeps its length.
        let start = unsafe {
            mmap(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE, &file, 0).unwrap()
        };
        let page = |index: usize| start.cast::<u8>().wrapping_add(index * PAGE as usize);
        // SAFETY: the mapping is four pages long, readable and writable, and nobody else's.
        unsafe {
            assert_eq!(page(1).read_volatile(), 1);
            page(2).write_volatile(2);
        }
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let range = start as u64..start as u64 + len as u64;
        let mut runs = Vec::new();
        add_runs(&pagemap, range, FILE_PAGE, &mut runs).unwrap();
        let written = page(2) as u64;
        assert_eq!((runs.len(), runs.first()), (1, Some(&(written..written + PAGE))));
        // SAFETY: nothing refers to the mapping any more.
        unsafe { munmap(start, len).unwrap() };
    }
}
