//! Sites that tell what becomes of goroutines: every change of a goroutine's state, and its
//! creation.
//!
//! The runtime changes a state by one compare-and-swap of `g.atomicstatus` (`runtime/proc.go`,
//! `runtime/coro.go`, `runtime/mgcmark.go`, Go 1.19 to 1.27): in `casgstatus`, in a few functions that
//! have one of their own, and wherever `casgstatus` is inlined - in some places from 1.26 on, in
//! builds with a profile (PGO) in any. So the whole runtime is looked through. Those that only set
//! or clear the scan bit (`castogscanstatus`, `casfrom_Gscanstatus`) leave the state alone and are
//! not watched; a copy of one, inlined by a profile, gives records of changes that change nothing.

use crate::plan::{Guard, Program, Refusal, RefusalReason};
use crate::planner::analyze_function;
use crate::{ImageId, Plan, PlannedFunction, RuntimeLayout, Site};
use address::FileOffset;
use binary::code::{ExitKind, ProbeCost, Swap, swaps_of_function};
use binary::globals::WaitReasons;
use binary::layout::{LayoutError, RuntimeLayouts};
use binary::{Executable, Function, flag};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use wire::{DEREF_MAPPED, Field, Fields, GSource, Op, OpCode, Record, SiteKind};

/// What changes the state of a goroutine, where it has no copy inlined.
const SWAPPING: &str = "runtime.casgstatus";

/// Functions that set and clear the scan bit.
const SCAN_BIT: [&str; 2] = ["runtime.castogscanstatus", "runtime.casfrom_Gscanstatus"];

/// What makes a goroutine; its result is the new g.
pub const CREATING: &str = "runtime.newproc1";

/// Register of the result of [`CREATING`].
const RAX: u8 = 0;

/// Offsets in `runtime.g`, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateOffsets {
    /// `goid`.
    pub goid: u32,
    /// `atomicstatus`.
    pub atomicstatus: u32,
    /// `waitreason`, 1 byte.
    pub waitreason: u32,
    /// `parentGoid`; `None` before Go 1.21, which has none.
    pub parent_goid: Option<u32>,
    /// `gopc`: where the `go` statement is.
    pub gopc: u32,
    /// `startpc`: the function that the goroutine begins with.
    pub startpc: u32,
}

impl StateOffsets {
    /// Looks them up.
    pub fn of(layouts: &RuntimeLayouts<'_>) -> Result<Self, LayoutError> {
        let field = |name| Ok(layouts.field("runtime.g", name)?.offset as u32);
        let parent_goid = match field("parentGoid") {
            Ok(offset) => Some(offset),
            Err(LayoutError::NoField { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Self {
            goid: field("goid")?,
            atomicstatus: field("atomicstatus")?,
            waitreason: field("waitreason")?,
            parent_goid,
            gopc: field("gopc")?,
            startpc: field("startpc")?,
        })
    }
}

/// A change of a goroutine's state, as the record of a swap has it. The record's own goid is that
/// of whoever changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// Whose state. Up to Go 1.23 stale at the first change of a new goroutine (6 to 1).
    pub goid: u64,
    /// `g.waitreason` before the change, on backends that can read it then.
    pub reason: u8,
    /// State before (`_Gidle` 0, `_Grunnable` 1, …; `runtime/runtime2.go`).
    pub old: u32,
    /// State afterwards.
    pub new: u32,
}

/// What the reader of state records needs to know besides the sites.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateNames {
    /// Names of wait reasons by number; empty when they are not known.
    pub reasons: Vec<String>,
}

/// The creation of a goroutine. The record's own goid is that of the creator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creation {
    /// The new goroutine.
    pub goid: u64,
    /// `g.parentGoid`, from Go 1.21 on.
    pub parent: Option<u64>,
    /// Return address of the call that made it (avma).
    pub gopc: u64,
    /// First instruction of its function (avma).
    pub startpc: u64,
    /// Its state by now: runnable (1), or waiting (4) for whoever made it to start it, as
    /// coroutines do.
    pub state: u32,
    /// `g.waitreason`, which means something when it waits.
    pub reason: u8,
}

/// What the record of a site of [`add_states`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateEvent {
    /// A state changed.
    Change(StateChange),
    /// A goroutine was made; it is runnable from then on.
    Creation(Creation),
}

impl StateEvent {
    /// Whether records of a site of `plan` are such events.
    pub fn is_at(plan: &Plan, site: u32) -> bool {
        plan.function_of(site).is_some_and(|(site, function)| match site.kind {
            SiteKind::At => site.guard.is_some(),
            SiteKind::Return => !function.traced && function.name == CREATING,
            _ => false,
        })
    }

    /// Takes a record apart; `None` for records of other sites, and for payloads that are not
    /// what these sites give.
    pub fn parse(plan: &Plan, record: &Record<'_>) -> Option<Self> {
        if !Self::is_at(plan, record.site) {
            return None;
        }
        let (site, _) = plan.function_of(record.site)?;
        let mut fields = Fields::new(record.payload);
        let mut word = || fields.next().as_ref().and_then(Field::as_u64);
        if site.kind == SiteKind::At {
            let (goid, reason, old, new) = (word()?, word()?, word()?, word()?);
            let (old, new) = (old as u32, new as u32);
            return Some(Self::Change(StateChange { goid, reason: reason as u8, old, new }));
        }
        let (goid, gopc, startpc) = (word()?, word()?, word()?);
        let (state, reason) = (word()? as u32, word()? as u8);
        Some(Self::Creation(Creation { goid, gopc, startpc, state, reason, parent: word() }))
    }
}

fn op(code: OpCode, a: u8, imm: i64) -> Op {
    Op::new(code, a, imm)
}

/// Emits `width` bytes at an offset of the g in a register.
fn of_g(register: u8, offset: u32, width: u8) -> [Op; 4] {
    [
        op(OpCode::Reg, register, 0),
        op(OpCode::Add, 0, i64::from(offset)),
        op(OpCode::Deref, DEREF_MAPPED, 0),
        op(OpCode::EmitAcc, width, 0),
    ]
}

/// What is read at a swap. Fields: goid, wait reason, old state, new state.
pub fn change_ops(swap: &Swap, offsets: &StateOffsets) -> Vec<Op> {
    let mut ops = of_g(swap.base, offsets.goid, 8).to_vec();
    ops.extend(of_g(swap.base, offsets.waitreason, 1));
    // EAX holds the old value before the instruction, and after one that swapped.
    for register in [RAX, swap.new] {
        ops.extend([op(OpCode::Reg, register, 0), op(OpCode::EmitAcc, 4, 0)]);
    }
    ops
}

/// What is read at a return of [`CREATING`]. Fields: goid, gopc, startpc, state, wait reason,
/// parent (from Go 1.21 on).
pub fn creation_ops(offsets: &StateOffsets) -> Vec<Op> {
    let words = [offsets.goid, offsets.gopc, offsets.startpc].map(|offset| (offset, 8));
    let state = [(offsets.atomicstatus, 4), (offsets.waitreason, 1)];
    let parent = offsets.parent_goid.map(|offset| (offset, 8));
    let fields = words.into_iter().chain(state).chain(parent);
    fields.flat_map(|(offset, width)| of_g(RAX, offset, width)).collect()
}

/// Adds to `plan` the sites of all state changes and creations. What cannot be watched is
/// refused in the plan, by function. Sites of functions that the plan has already go behind
/// these, so that later sites get other numbers.
pub fn add_states(
    plan: &mut Plan,
    executable: &Executable,
    offsets: &StateOffsets,
) -> Result<(), binary::Error> {
    for function in executable.functions()?.iter() {
        let is_wanted = function.name.starts_with("runtime.")
            && !SCAN_BIT.contains(&&*function.name)
            && function.flags & flag::ASM == 0;
        if !is_wanted {
            continue;
        }
        let swaps = swaps_of_function(executable, &function, offsets.atomicstatus)?;
        if swaps.is_empty() {
            if function.name == SWAPPING {
                refuse(plan, &function, "no compare-and-swap of a state was found in it");
            }
        } else if swaps.iter().any(|swap| swap.outcome.is_none()) {
            refuse(plan, &function, "something jumps behind its compare-and-swap");
        } else {
            add_swaps(plan, executable, &function, &swaps, offsets);
        }
    }
    let table = executable.functions()?;
    for function in table.by_name(CREATING) {
        if table.inlined_copies(&|name| name == CREATING).is_empty() {
            add_creation(plan, executable, &function, offsets)?;
        } else {
            refuse(plan, &function, "it is inlined elsewhere, where no return is seen");
        }
    }
    Ok(())
}

fn refuse(plan: &mut Plan, function: &Function, reason: &str) {
    let reason = RefusalReason(format!("watched for goroutine states: {reason}"));
    plan.refused.push(Refusal { function: function.name.clone(), reason });
}

/// Adds a program and tells where it is.
fn add_ops(plan: &mut Plan, ops: &[Op]) -> Program {
    let program = Program { start: plan.ops.len() as u32, len: ops.len() as u16 };
    plan.ops.extend_from_slice(ops);
    program
}

/// Index of a function, which is added when the plan does not have it.
fn index_of(plan: &mut Plan, executable: &Executable, function: &Function) -> u32 {
    if let Some(index) = plan.functions.iter().position(|known| known.entry == function.entry) {
        return index as u32;
    }
    let place =
        executable.functions().ok().and_then(|table| table.file_line(function, function.entry));
    let (file, line) = place.unwrap_or_default();
    plan.functions.push(PlannedFunction {
        name: function.name.clone(),
        file,
        line: function.start_line.unwrap_or(line),
        entry: function.entry,
        size: function.end.since(function.entry).unwrap_or_default(),
        traced: false,
        witness: None,
        args: Vec::new(),
        results: Vec::new(),
    });
    plan.functions.len() as u32 - 1
}

/// Adds the site of a compare-and-swap, with what to read there: see [`Guard`]. Nothing when its
/// outcome cannot be seen.
pub fn add_swap(
    plan: &mut Plan,
    executable: &Executable,
    function: &Function,
    swap: &Swap,
    ops: &[Op],
) {
    let Some(outcome) = swap.outcome else { return };
    let index = index_of(plan, executable, function);
    let offset = |address| executable.image().file_offset(address).unwrap_or(FileOffset(0));
    let sp_delta =
        executable.functions().ok().and_then(|table| table.sp_delta(function, swap.address));
    let site = Site {
        function: index,
        kind: SiteKind::At,
        address: swap.address,
        file_offset: offset(swap.address),
        sp_delta: sp_delta.unwrap_or(0),
        g_source: GSource::R14,
        program: add_ops(plan, ops),
        guard: Some(Guard {
            after: outcome.address,
            after_offset: offset(outcome.address),
            zero: outcome.zero,
        }),
    };
    plan.insert_site(site);
}

fn add_swaps(
    plan: &mut Plan,
    executable: &Executable,
    function: &Function,
    swaps: &[Swap],
    offsets: &StateOffsets,
) {
    for swap in swaps {
        add_swap(plan, executable, function, swap, &change_ops(swap, offsets));
    }
}

fn add_creation(
    plan: &mut Plan,
    executable: &Executable,
    function: &Function,
    offsets: &StateOffsets,
) -> Result<(), binary::Error> {
    if plan.functions.iter().any(|known| known.entry == function.entry && known.traced) {
        refuse(plan, function, "it is traced too; exclude it from the traced functions");
        return Ok(());
    }
    let analysis = analyze_function(executable, function, None)?;
    let returns = || analysis.exits.iter().filter(|exit| exit.kind == ExitKind::Return);
    if let Some(reason) = returns().find_map(|exit| exit.site.uprobe.err()) {
        refuse(plan, function, &reason.to_string());
        return Ok(());
    }
    let index = index_of(plan, executable, function);
    let program = add_ops(plan, &creation_ops(offsets));
    for exit in returns() {
        let address = exit.site.address;
        plan.insert_site(Site {
            function: index,
            kind: SiteKind::Return,
            address,
            file_offset: executable.image().file_offset(address).unwrap_or_default(),
            sp_delta: exit.site.sp_delta,
            g_source: GSource::R14,
            program,
            guard: None,
        });
    }
    Ok(())
}

/// A plan of nothing but state changes and creations, and what each of its sites costs under
/// uprobes.
pub fn plan_states(
    executable: &Executable,
    layout: RuntimeLayout,
    offsets: &StateOffsets,
) -> Result<(Plan, Vec<ProbeCost>), binary::Error> {
    let image = ImageId {
        build_id: executable.build_id().unwrap_or_default().to_owned(),
        path: String::new(),
        go_version: executable.go_version().text.clone(),
    };
    let reasons = WaitReasons::of(executable).map(|reasons| reasons.names().to_vec());
    let names = StateNames { reasons: reasons.unwrap_or_default() };
    let mut plan = Plan { image, runtime: layout, states: Some(names), ..Plan::default() };
    add_states(&mut plan, executable, offsets)?;
    let table = executable.functions()?;
    let mut costs = HashMap::new();
    for function in plan.functions.iter().filter_map(|function| table.find(function.entry)) {
        let swaps = swaps_of_function(executable, &function, offsets.atomicstatus)?;
        costs.extend(swaps.iter().filter_map(|swap| Some((swap.address, swap.outcome?.cost))));
    }
    // Returns are emulated only in part; the dearer kind is assumed.
    let of = |site: &Site| costs.get(&site.address).copied().unwrap_or(ProbeCost::SingleStepped);
    let costs = plan.sites.iter().map(of).collect();
    Ok((plan, costs))
}
