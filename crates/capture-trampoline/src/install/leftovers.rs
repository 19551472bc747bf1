//! What a killed tracer left in a process: found by the names of its mappings, taken out with
//! the file as the witness of what was there before.

use super::area::{CODE_NAME, RINGS_NAME};
use super::gap::PAGE;
use super::place::Place;
use super::remote::{self, CallSites};
use super::rest;
use super::stacks::StackFacts;
use super::stop::while_stopped;
use super::target::{Removal, Unmapping};
use super::text::{self, Direction, TextPatch};
use crate::Error;
use crate::emit::PATCH_LEN;
use crate::layout::{CONTROL_MARK, ENABLED, MARK, OWNER};
use crate::memory::TargetMemory;
use crate::ptrace;
use address::{Avma, ReadMemory, Svma};
use binary::{Executable, Image};
use process::{Mapping, Maps, Process};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes compared at once.
const PIECE: u64 = 1 << 20;

/// `jmp rel32`.
const JUMP: u8 = 0xe9;

/// `int3`, which another tool may have set over the first byte of a jump of ours.
const BREAKPOINT: u8 = 0xcc;

/// Areas that carry our names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    code: Vec<Range<Avma>>,
    /// With their inodes, by which a live tracer is known.
    rings: Vec<(Range<Avma>, u64)>,
    control: Vec<Range<Avma>>,
}

impl Found {
    /// What the process has of ours.
    fn of(process: &Process) -> Result<Self, Error> {
        let maps = process.maps()?;
        let mut found = Self::in_maps(&maps);
        let memory = process.memory()?;
        // A tracer that died early has left nothing but the page: alone, and known by its mark.
        let alone = maps.mappings.iter().filter(|mapping| is_page(mapping));
        let alone = alone.map(|mapping| mapping.start..mapping.end);
        let marked = alone.filter(|page| !found.control.contains(page) && is_marked(page, &memory));
        let marked: Vec<_> = marked.collect();
        found.control.extend(marked);
        Ok(found)
    }

    fn in_maps(maps: &Maps) -> Self {
        let mut found = Self::default();
        for mapping in &maps.mappings {
            if is_named(mapping, CODE_NAME) {
                found.code.push(mapping.start..mapping.end);
            } else if is_named(mapping, RINGS_NAME) {
                found.rings.push((mapping.start..mapping.end, mapping.inode));
                let page = maps.find(Avma(mapping.start.0.wrapping_sub(1)));
                found.control.extend(page.filter(|m| is_page(m)).map(|m| m.start..m.end));
            }
        }
        found
    }

    /// Whether it is code, which the process may run, or rings.
    fn has_areas(&self) -> bool {
        !self.code.is_empty() || !self.rings.is_empty()
    }

    fn ranges(&self) -> Vec<(u64, u64)> {
        let rings = self.rings.iter().map(|(range, _)| range);
        let all = self.code.iter().chain(rings).chain(&self.control);
        all.map(|range| (range.start.0, range.end.0.saturating_sub(range.start.0))).collect()
    }

    fn holds_code(&self, address: Avma) -> bool {
        self.code.iter().any(|range| range.contains(&address))
    }
}

/// Whether a mapping is one page of private memory, as a control page is.
fn is_page(mapping: &Mapping) -> bool {
    let is_small = mapping.end.since(mapping.start) == Some(PAGE);
    is_small && mapping.inode == 0 && mapping.writable && !mapping.executable
}

fn is_marked(page: &Range<Avma>, memory: &dyn ReadMemory) -> bool {
    let mut mark = [0; CONTROL_MARK.len()];
    let read = memory.read_memory(page.start.add(u64::from(MARK)), &mut mark);
    read.is_ok() && mark == CONTROL_MARK
}

fn is_named(mapping: &Mapping, name: &str) -> bool {
    let path = mapping.path.as_deref().map(|path| path.to_string_lossy());
    path.is_some_and(|path| {
        path.strip_prefix("/memfd:").and_then(|path| path.strip_prefix(name)).is_some()
    })
}

/// Whether anything of ours is mapped in the process; `false` when that cannot be told.
pub fn is_carrier(pid: u32) -> bool {
    let maps = Process::open(pid).and_then(|process| process.maps());
    maps.is_ok_and(|maps| Found::in_maps(&maps).has_areas())
}

/// Whether `remove_leftovers` would find anything in the process; `false` when that cannot be told.
pub fn has_leftovers(pid: u32) -> bool {
    let found = Process::open(pid).map_err(Error::from).and_then(|process| Found::of(&process));
    found.is_ok_and(|found| found != Found::default())
}

/// Takes everything out. `Ok(None)` when there is nothing.
pub(crate) fn remove_leftovers(pid: u32) -> Result<Option<Removal>, Error> {
    let process = Process::open(pid)?;
    let found = Found::of(&process)?;
    if found == Found::default() {
        return Ok(None);
    }
    // What a forked child has is its own, whoever captures its parent.
    let is_forked = || {
        let memory = TargetMemory::open(pid).ok()?;
        let mut owners = found.control.iter().map(|page| {
            let mut word = [0; 4];
            memory.read_memory(page.start.add(u64::from(OWNER)), &mut word).ok()?;
            Some(u32::from_le_bytes(word))
        });
        Some(owners.len() > 0 && owners.all(|owner| owner == Some(0)))
    };
    let owner = found.rings.iter().find_map(|(_, inode)| lock_owner(*inode));
    if let Some(owner) = owner.filter(|_| is_forked() != Some(true)) {
        return Err(Error::Permission {
            pid,
            hint: format!("process {owner} has trampolines in it already; end that first"),
        });
    }
    ptrace::check_access(pid)?;
    let memory = TargetMemory::open(pid)?;
    let executable = Executable::open(Arc::new(process.executable()?))
        .map_err(|e| Error::Unsuitable { pid, reason: e.to_string() })?;
    let image = executable.image();
    let place = Place::of(&process, image)?;
    for control in &found.control {
        memory.write(control.start.add(u64::from(ENABLED)), &[0; 4])?;
    }
    let patches = find_patches(&memory, image, &place, &found)?;
    let sleepers = remote::sleepers(&executable, place.bias);
    let sites = CallSites::find(&process.maps()?, &place.text, sleepers, &memory)?;
    let mut removal = Removal::default();
    // The hook of the signal handler is needed as long as a thread may be in our code.
    let is_hook = |patch: &TextPatch| {
        let functions = executable.functions().ok();
        functions
            .and_then(|functions| functions.find(place.bias.to_svma(patch.start)))
            .is_some_and(|function| function.name == crate::HOOKED)
    };
    let (hooks, patches): (Vec<_>, Vec<_>) = patches.into_iter().partition(is_hook);
    let (written, stop) =
        while_stopped(&memory, |_| text::write(&memory, patches.iter(), Direction::Out))?;
    removal.stops.push(stop);
    removal.foreign = written.foreign;
    if written.foreign > 0 {
        // Whoever owns the breakpoint puts the jump back when it goes.
        removal.left_bytes = found.ranges().iter().map(|range| range.1).sum();
        return Ok(Some(removal));
    }
    let stacks = StackFacts::of(&executable);
    let unmapping = Unmapping {
        process: &process,
        memory: &memory,
        sites: &sites,
        code: whole(&found.code),
        ranges: &found.ranges(),
        hook: hooks.first(),
        stacks: stacks.as_ref(),
    };
    removal.left_bytes = unmapping.run(&mut removal)?;
    Ok(Some(removal))
}

/// Patches of a process that put them in by itself, which rest for a while.
#[derive(Default)]
pub(crate) struct Resting(Vec<TextPatch>);

impl Resting {
    /// Takes the patches of functions with these entries out, or puts back those that were. Whether all are as
    /// wanted: somebody's breakpoint may stand over one, or something return into it.
    pub(crate) fn set(
        &mut self,
        pid: u32,
        functions: &BTreeMap<Svma, u32>,
        watched: bool,
    ) -> Result<bool, Error> {
        ptrace::check_access(pid)?;
        let (process, memory) = (Process::open(pid)?, TargetMemory::open(pid)?);
        let mut stops = Vec::new();
        if watched {
            let is_theirs =
                |patch: &mut TextPatch| functions.values().any(|it| *it == patch.function);
            let waiting = self.0.extract_if(.., is_theirs).collect();
            let put = rest::put_back(&process, &memory, waiting, &mut stops);
            self.0.extend(put.waiting);
            return put.result;
        }
        let executable = Executable::open(Arc::new(process.executable()?))
            .map_err(|e| Error::Unsuitable { pid, reason: e.to_string() })?;
        let image = executable.image();
        let place = Place::of(&process, image)?;
        let found = Found::of(&process)?;
        let table =
            executable.functions().map_err(|e| Error::Unsuitable { pid, reason: e.to_string() })?;
        let mut theirs = find_patches(&memory, image, &place, &found)?;
        theirs.retain_mut(|patch| {
            let at = table.find(place.bias.to_svma(patch.start));
            let function = at.and_then(|at| functions.get(&at.entry).copied());
            patch.function = function.unwrap_or_default();
            function.is_some()
        });
        if !rest::take_out(&memory, &theirs, &mut stops)? {
            return Ok(false);
        }
        self.0.extend(theirs);
        Ok(true)
    }
}

/// From the first to the last of some ranges.
fn whole(ranges: &[Range<Avma>]) -> Range<Avma> {
    let start = ranges.iter().map(|range| range.start).min().unwrap_or_default();
    let end = ranges.iter().map(|range| range.end).max().unwrap_or_default();
    start..end
}

/// Jumps into our code that the file does not have.
fn find_patches(
    memory: &TargetMemory,
    image: &Image,
    place: &Place,
    found: &Found,
) -> Result<Vec<TextPatch>, Error> {
    let mut patches = Vec::new();
    let mut start = place.text.start;
    while start < place.text.end {
        // Patches cross no page, so none is cut here.
        let len = place.text.end.since(start).unwrap_or_default().min(PIECE);
        let unreadable = || Error::ForeignCode { pid: memory.pid(), address: start.0 };
        let file = image.read_vec(place.bias.to_svma(start), len).map_err(|_| unreadable())?;
        let mut live = vec![0; file.len()];
        memory.read_memory(start, &mut live).map_err(|_| unreadable())?;
        if live != file {
            patches_in(start, &live, &file, found, &mut patches);
        }
        start = start.add(len);
    }
    Ok(patches)
}

fn patches_in(start: Avma, live: &[u8], file: &[u8], found: &Found, patches: &mut Vec<TextPatch>) {
    let pairs = live.windows(PATCH_LEN).zip(file.windows(PATCH_LEN));
    for (at, (live, file)) in pairs.enumerate() {
        let chunks = (live.first_chunk::<PATCH_LEN>(), file.first_chunk::<PATCH_LEN>());
        let (Some(live), Some(file)) = chunks else { continue };
        let at_address = start.add(at as u64);
        // A byte 0xe9 of the program shortly before a patch, or one in its distance, can make up
        // a second jump into our code. Taken for a patch as well, it gets the file's bytes
        // too; taken instead of it, the rest of the true one would stay.
        let [first, distance @ ..] = *live;
        let is_stopped = first == BREAKPOINT && file.first() != Some(&BREAKPOINT);
        let jump = if is_stopped { with_jump(distance) } else { *live };
        if live == file || !leads_into(&jump, at_address, found) {
            continue;
        }
        patches.push(TextPatch {
            function: 0,
            start: at_address,
            end: at_address.add(PATCH_LEN as u64),
            original: *file,
            // Not what is there when a breakpoint is: then the place is left alone.
            replacement: jump,
        });
    }
}

fn with_jump([a, b, c, d]: [u8; PATCH_LEN - 1]) -> [u8; PATCH_LEN] {
    [JUMP, a, b, c, d]
}

fn leads_into(jump: &[u8; PATCH_LEN], at: Avma, found: &Found) -> bool {
    let [JUMP, a, b, c, d] = *jump else { return false };
    let distance = i32::from_le_bytes([a, b, c, d]);
    found.holds_code(at.add(PATCH_LEN as u64).add(distance as i64 as u64))
}

/// The process that holds a lock on the memfd of this inode: a tracer that lives.
fn lock_owner(inode: u64) -> Option<u32> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 4711 00:01:1037 0 EOF`
    locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (kind, owner) = (fields.next()?, fields.nth(2)?);
        let file = fields.next()?;
        let number = file.rsplit(':').next()?.parse::<u64>().ok()?;
        // memfds lie on a device without a name of its own.
        (kind == "FLOCK" && file.starts_with("00:") && number == inode)
            .then(|| owner.parse().ok())
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A byte 0xe9 of the program right before a patch makes up another jump into our code; all
    /// bytes must be the file's again nevertheless.
    #[test]
    fn a_jump_that_only_seems_one_hides_no_patch() {
        let start = Avma(0x40_0000);
        let file = [0x90, 0xe9, 0x48, 0x83, 0xc4, 0x18, 0x5d, 0xc3];
        let mut live = file;
        live[2..7].copy_from_slice(&[JUMP, 0x11, 0x22, 0x33, 0x01]);
        let area = Avma(0x41_0000)..Avma(0x8000_0000);
        let found = Found { code: vec![area], ..Found::default() };
        let mut patches = Vec::new();
        patches_in(start, &live, &file, &found, &mut patches);
        let places: Vec<u64> = patches.iter().map(|patch| patch.start.0).collect();
        assert_eq!(places, [0x40_0001, 0x40_0002]);
        for patch in &patches {
            let at = patch.start.since(start).unwrap() as usize;
            live[at..at + PATCH_LEN].copy_from_slice(&patch.original);
        }
        assert_eq!(live, file);
    }

    #[test]
    fn a_breakpoint_over_a_jump_is_seen_and_left_alone() {
        let start = Avma(0x40_0000);
        let file = [0x48, 0x83, 0xc4, 0x18, 0x5d, 0xc3, BREAKPOINT, BREAKPOINT];
        let mut live = file;
        live[..PATCH_LEN].copy_from_slice(&[BREAKPOINT, 0x11, 0x22, 0x33, 0x01]);
        let found = Found { code: vec![Avma(0x41_0000)..Avma(0x8000_0000)], ..Found::default() };
        let mut patches = Vec::new();
        patches_in(start, &live, &file, &found, &mut patches);
        let replacements: Vec<_> = patches.iter().map(|p| (p.start.0, p.replacement)).collect();
        assert_eq!(replacements, [(0x40_0000, [JUMP, 0x11, 0x22, 0x33, 0x01])]);
    }
}
