//! Which instructions of a function move out, so that jumps fit over them.
//!
//! An *event* (a call begins, a call ends) may be recorded at one of several places; a
//! *region* is a run of instructions, at least as long as a jump, that holds such a place or
//! ends at it. Preferred are regions that leave the function's first byte and its RETs
//! alone, where other tools put their breakpoints; next, those with no instruction that can
//! fault; then short ones: in a region of one instruction no saved PC can lie.

use super::body::{Body, can_fault, can_move, is_last, sp_change, spares_values};
use super::live::check_dead;
use super::refused::Obstacle;
use super::{PATCH_LEN, Refused};
use address::Svma;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory};
use std::ops::Range;
use wire::SiteKind;

/// How far an event may move from where it happens, instructions.
const MAX_SHIFT: usize = 5;
/// How far before an event its region may start, instructions.
const MAX_BACK: usize = 10;
/// Size of a page: a patch is one write into one page.
const PAGE: u64 = 4096;

/// Something to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Index of the site in the plan.
    pub(super) site: u32,
    /// Index of the instruction before which it is recorded.
    pub(super) at: usize,
    /// SP at the function's first instruction minus SP there, bytes.
    pub(super) sp_delta: i32,
    /// What it is.
    pub(super) kind: SiteKind,
    /// Set when the instruction at `at` is a branch to a block that ends the call and has no room
    /// for a jump: the moved branch leads to a copy of these instructions, which records the
    /// event before the last one.
    pub(super) detour: Option<(usize, usize)>,
}

/// Instructions that move, and what is recorded among them.
#[derive(Clone, Debug)]
pub(super) struct Region {
    /// Indexes of the instructions.
    pub(super) range: Range<usize>,
    /// Address of the first.
    pub(super) start: Svma,
    /// End of the last, or of the patch when that runs into padding.
    pub(super) end: Svma,
    /// In order of place; entries before exits.
    pub(super) events: Vec<Event>,
}

/// What is in the way of a region, or how good it is (less is better).
type Rating = Result<(bool, bool, usize, usize), Obstacle>;

/// Chooses the regions of one function.
pub(super) struct Chooser<'a, 'b> {
    body: &'a Body<'b>,
    moves_faulting: bool,
    info: InstructionInfoFactory,
    pub(super) regions: Vec<Region>,
    /// Branch targets that nothing leads to any more: all branches take a detour.
    bypassed: Vec<Svma>,
    /// Indexes of instructions that have a patch of their own.
    taken: Vec<Range<usize>>,
}

/// Whether a patch at `start` would lie across two pages.
pub(super) fn crosses_page(start: Svma) -> bool {
    start.0 % PAGE > PAGE - PATCH_LEN as u64
}

impl<'a, 'b> Chooser<'a, 'b> {
    pub(super) fn new(body: &'a Body<'b>, moves_faulting: bool) -> Self {
        let (info, regions, bypassed) = (InstructionInfoFactory::new(), Vec::new(), Vec::new());
        Self { body, moves_faulting, info, regions, bypassed, taken: Vec::new() }
    }

    /// Keeps regions away from some instructions.
    pub(super) fn leave(&mut self, range: Range<usize>) {
        self.taken.push(range);
    }

    /// Places for the beginning of a call.
    pub(super) fn add_entry(&mut self, site: u32) -> Result<(), Refused> {
        let first = self.body.code.analysis.body;
        let mut at = self.body.index_of(first).ok_or(Refused::NoSuchSite(first))?;
        let kind = SiteKind::Entry;
        let mut sp_delta = 0;
        let mut places = Vec::new();
        loop {
            // Nothing may lead back behind the function's first instruction and up to here.
            let here = self.body.address(at);
            if self.has_target(self.body.entry..here.add(1)) {
                break;
            }
            if u16::try_from(sp_delta).is_err() {
                break;
            }
            places.push(Event { site, at, sp_delta, kind, detour: None });
            let Some(instruction) = self.body.instructions.get(at) else { break };
            let Some(change) = sp_change(instruction) else { break };
            if places.len() == MAX_SHIFT
                || !spares_values(instruction, sp_delta, &mut self.info)
                || can_fault(instruction, &mut self.info)
            {
                break;
            }
            sp_delta += change;
            at += 1;
        }
        self.place(places, first)
    }

    /// The one place for a hook that may return for the function: where SP has not moved.
    pub(super) fn add_hook(&mut self) -> Result<(), Refused> {
        let first = self.body.code.analysis.body;
        let at = self.body.index_of(first).ok_or(Refused::NoSuchSite(first))?;
        let event = Event { site: u32::MAX, at, sp_delta: 0, kind: SiteKind::Entry, detour: None };
        self.place(vec![event], first)
    }

    /// Places for the end of a call that leaves by the instruction at `exit`.
    pub(super) fn add_exit(
        &mut self,
        site: u32,
        kind: SiteKind,
        exit: Svma,
        mut sp_delta: i32,
    ) -> Result<(), Refused> {
        let mut at = self.body.index_of(exit).ok_or(Refused::NoSuchSite(exit))?;
        let mut places = vec![Event { site, at, sp_delta, kind, detour: None }];
        while places.len() < MAX_SHIFT
            && !self.has_target(self.body.address(at)..self.body.address(at).add(1))
        {
            let Some(before) = at.checked_sub(1) else { break };
            let Some(instruction) = self.body.instructions.get(before) else { break };
            let Some(change) = sp_change(instruction) else { break };
            sp_delta -= change;
            if !spares_values(instruction, sp_delta, &mut self.info) {
                break;
            }
            at = before;
            if u16::try_from(sp_delta).is_err() {
                break;
            }
            places.push(Event { site, at, sp_delta, kind, detour: None });
        }
        let at_exit = places.first().copied();
        match (self.place(places, exit), at_exit) {
            (Err(refused @ Refused::NoRoom { .. }), Some(event)) => self.detour(event, refused),
            (placed, _) => placed,
        }
    }

    /// Leads every branch to a short last block to a copy of it.
    fn detour(&mut self, event: Event, refused: Refused) -> Result<(), Refused> {
        let (regions, bypassed) = (self.regions.clone(), self.bypassed.len());
        let taken = self.take_detour(event);
        if taken.is_none() {
            self.regions = regions;
            self.bypassed.truncate(bypassed);
        }
        taken.ok_or(refused)
    }

    fn take_detour(&mut self, event: Event) -> Option<()> {
        let start = self.block_start(event.at)?;
        let block = self.body.instructions.get(start..=event.at)?;
        let can_move = |instruction: &Instruction| can_move(instruction);
        let faults = block.iter().any(|moved| can_fault(moved, &mut self.info));
        if !block.iter().all(can_move) || (faults && !self.moves_faulting) {
            return None;
        }
        let target = self.body.address(start);
        let leads_here = |instruction: &Instruction| {
            matches!(
                instruction.flow_control(),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            ) && instruction.near_branch_target() == target.0
        };
        let code = self.body.instructions.iter().enumerate();
        let branches: Vec<usize> =
            code.filter(|(_, branch)| leads_here(branch)).map(|(index, _)| index).collect();
        if branches.is_empty() || self.body.code.table_targets.contains(&target) {
            return None;
        }
        self.bypassed.push(target);
        for at in branches {
            let detour = Some((start, event.at));
            self.place(vec![Event { at, detour, ..event }], target).ok()?;
        }
        // Whoever falls into the block must pass a region that holds it.
        let before = self.body.instructions.get(start.checked_sub(1)?)?;
        match before.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch => {
                self.place(vec![event], target).ok()
            }
            FlowControl::Call | FlowControl::IndirectCall => None,
            _ => Some(()),
        }
    }

    /// The first instruction of the block, if it is a branch target and none before `at` leaves.
    fn block_start(&self, at: usize) -> Option<usize> {
        let mut start = at;
        loop {
            let here = self.body.address(start);
            if self.has_target(here..here.add(1)) {
                return Some(start);
            }
            start = start.checked_sub(1).filter(|start| at - start < MAX_BACK)?;
            let flow = self.body.instructions.get(start)?.flow_control();
            if flow != FlowControl::Next {
                return None;
            }
        }
    }

    /// Whether something still jumps to an address in the range.
    fn has_target(&self, range: Range<Svma>) -> bool {
        self.body.has_target(range, &self.bypassed)
    }

    /// Puts the event into the best region for any of its places.
    fn place(&mut self, mut places: Vec<Event>, at: Svma) -> Result<(), Refused> {
        let mut live = None;
        places.retain(|event| {
            if event.detour.is_some() {
                return true;
            }
            let is_return = event.kind == SiteKind::Return;
            let checked = check_dead(self.body, event.at, is_return, &mut self.info);
            checked.map_err(|refused| live.get_or_insert(refused).clone()).is_ok()
        });
        if places.is_empty() {
            return Err(live.unwrap_or(Refused::NoSuchSite(at)));
        }
        if self.join(&places) {
            return Ok(());
        }
        let mut obstacle = Obstacle::Short;
        let mut apart = Vec::new();
        let mut touching = Vec::new();
        for event in &places {
            for start in event.at.saturating_sub(MAX_BACK)..=event.at {
                let least = event.at + usize::from(event.detour.is_some());
                if let Some(range) = self.ranges(start, least) {
                    match self.rate(&range, event) {
                        Err(found) => obstacle = obstacle.max(found),
                        Ok(rating) if self.touches(&range) => {
                            touching.push((rating, range, *event))
                        }
                        Ok(rating) => apart.push((rating, range, *event)),
                    }
                }
            }
        }
        apart.sort_by_key(|(rating, ..)| *rating);
        touching.sort_by_key(|(rating, ..)| *rating);
        if let Some((_, range, event)) = apart.first() {
            let region = self.region(range, vec![*event]);
            self.regions.push(region);
            return Ok(());
        }
        let merged = touching.iter().any(|(_, range, event)| self.merge(range, *event));
        if merged { Ok(()) } else { Err(Refused::NoRoom { at, why: obstacle }) }
    }

    /// Records the event in a region that is there already.
    fn join(&mut self, places: &[Event]) -> bool {
        for event in places {
            let here = self.body.address(event.at);
            let is_target = self.has_target(here..here.add(1));
            let found = self.regions.iter_mut().find(|region| {
                let inside = region.range.contains(&event.at);
                let at_end = region.range.end == event.at
                    && event.detour.is_none()
                    && !is_target
                    && !self.body.instructions.get(region.range.end - 1).is_some_and(is_last);
                inside || at_end
            });
            if let Some(region) = found {
                insert(&mut region.events, *event);
                return true;
            }
        }
        false
    }

    /// The shortest run from `start` that a jump fits over and that holds `at` or ends there.
    fn ranges(&self, start: usize, at: usize) -> Option<Range<usize>> {
        let from = self.body.address(start);
        let mut end = at.max(start + 1);
        while self.body.address(end).since(from)? < PATCH_LEN as u64 {
            let last = self.body.instructions.get(end.checked_sub(1)?)?;
            if is_last(last) || end >= self.body.instructions.len() {
                break;
            }
            end += 1;
        }
        (end <= self.body.instructions.len()).then_some(start..end)
    }

    /// How good a region is for an event.
    fn rate(&mut self, range: &Range<usize>, event: &Event) -> Rating {
        let (start, end) = (self.body.address(range.start), self.body.address(range.end));
        self.fits(start, end)?;
        if self.taken.iter().any(|taken| overlap(taken, range)) {
            return Err(Obstacle::Fixed);
        }
        // Whatever leads between the start and the event would pass unseen.
        let last = end.max(self.body.address(event.at).add(u64::from(event.at != range.start)));
        if self.has_target(start.add(1)..last) {
            return Err(Obstacle::Branch);
        }
        let mut faults = false;
        let moved = self.body.instructions.get(range.clone()).ok_or(Obstacle::Short)?;
        for (index, instruction) in moved.iter().enumerate() {
            match instruction.flow_control() {
                FlowControl::Call | FlowControl::IndirectCall => return Err(Obstacle::Call),
                _ if !can_move(instruction) => return Err(Obstacle::Fixed),
                _ if is_last(instruction) && index + 1 != moved.len() => {
                    return Err(Obstacle::Short);
                }
                _ => {}
            }
            faults |= can_fault(instruction, &mut self.info);
        }
        let leaves = moved.last().is_some_and(is_last);
        if leaves && event.at == range.end {
            return Err(Obstacle::Short);
        }
        if faults && !self.moves_faulting {
            return Err(Obstacle::Fault);
        }
        let covers = start == self.body.entry
            || moved.last().is_some_and(|last| last.flow_control() == FlowControl::Return);
        Ok((covers, faults, moved.len(), end.since(start).unwrap_or(0) as usize))
    }

    /// Whether a jump at `start` stays in one page and, past `end`, in padding.
    fn fits(&self, start: Svma, end: Svma) -> Result<(), Obstacle> {
        let patched = start.add(PATCH_LEN as u64);
        if crosses_page(start) {
            return Err(Obstacle::Page);
        }
        if patched > end {
            let padding = self.body.bytes(end..patched).ok_or(Obstacle::Short)?;
            let is_padding =
                end == self.body.code.analysis.end && padding.iter().all(|&byte| byte == 0xcc);
            return if is_padding { Ok(()) } else { Err(Obstacle::Short) };
        }
        Ok(())
    }

    fn region(&self, range: &Range<usize>, events: Vec<Event>) -> Region {
        let start = self.body.address(range.start);
        let end = self.body.address(range.end);
        Region { range: range.clone(), start, end, events }
    }

    fn touches(&self, range: &Range<usize>) -> bool {
        self.regions.iter().any(|region| overlap(&region.range, range))
    }

    /// Makes one region of `range` and those it overlaps.
    fn merge(&mut self, range: &Range<usize>, event: Event) -> bool {
        let mut union = range.clone();
        // Each round takes in what the one before has come to touch.
        for _ in 0..=self.regions.len() {
            for region in &self.regions {
                if overlap(&region.range, &union) {
                    union = union.start.min(region.range.start)..union.end.max(region.range.end);
                }
            }
        }
        let inner = self.regions.iter().filter(|region| overlap(&region.range, &union));
        let mut events: Vec<Event> =
            inner.flat_map(|region| region.events.iter().copied()).collect();
        insert(&mut events, event);
        if events.iter().any(|event| self.rate(&union, event).is_err()) {
            return false;
        }
        self.regions.retain(|region| !overlap(&region.range, &union));
        let merged = self.region(&union, events);
        self.regions.push(merged);
        true
    }
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Keeps events in order of place, a beginning before an end.
fn insert(events: &mut Vec<Event>, event: Event) {
    let is_entry = event.kind == SiteKind::Entry;
    let index =
        events.partition_point(|other| other.at < event.at || (other.at == event.at && !is_entry));
    events.insert(index, event);
}
