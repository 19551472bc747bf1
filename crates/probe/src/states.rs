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
use wire::{DEREF_MAPPED, Field, Fields, GSource, Op, OpCode, Record, RecordFlags, SiteKind};

/// What changes the state of a goroutine, where it has no copy inlined.
const SWAPPING: &str = "runtime.casgstatus";

/// Functions that set and clear the scan bit.
const SCAN_BIT: [&str; 2] = ["runtime.castogscanstatus", "runtime.casfrom_Gscanstatus"];

/// What makes a goroutine; its result is the new g.
pub const CREATING: &str = "runtime.newproc1";

/// Sets the wait reason of a goroutine that only looks blocked (`runtime/proc.go`): older versions
/// leave the reason of the last wait there, or set it afterwards.
const GIVING_REASON: &str = "runtime.casGToWaiting";

/// What a goroutine seems to be in while its thread works for it on the system stack
/// (`gosave_systemstack_switch`, `runtime/asm_amd64.s`).
const SYSTEM_STACK: &str = "runtime.systemstack_switch";

/// Where it is when it blocks.
const BLOCKING: &str = "runtime.gopark";

/// Bytes of a call of a function by its distance.
const CALL_LEN: u64 = 5;

/// What of an address is the same wherever an image is loaded.
const IN_PAGE: u64 = 0xfff;

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
    /// `sched.pc`: where the goroutine goes on.
    pub sched_pc: u32,
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
            sched_pc: field("sched.pc")?,
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
    /// Whether the goroutine's thread works for it on, whatever the new state: on the system
    /// stack, for the goroutine, or on the goroutine's own, which one that blocks has left. Known
    /// only of versions whose wait reasons do not tell.
    pub works: bool,
}

/// What the reader of state records needs to know besides the sites.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateNames {
    /// Names of wait reasons by number; empty when they are not known.
    pub reasons: Vec<String>,
    /// The place within its page where goroutines seem to be whose thread works on its system
    /// stack; `None` when wait reasons tell that.
    #[serde(default)]
    pub system_stack: Option<u16>,
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
            let (reason, old, new) = (reason as u8, old as u32, new as u32);
            let known = plan.states.as_ref().and_then(|names| names.system_stack);
            let works = known.is_some_and(|place| {
                let is_there = |pc| pc & IN_PAGE == u64::from(place);
                !record.flags.has(RecordFlags::SYSTEM_STACK) || word().is_some_and(is_there)
            });
            return Some(Self::Change(StateChange { goid, reason, old, new, works }));
        }
        let (goid, gopc, startpc) = (word()?, word()?, word()?);
        let (state, reason) = (word()? as u32, word()? as u8);
        Some(Self::Creation(Creation { goid, gopc, startpc, state, reason, parent: word() }))
    }
}

pub(crate) fn op(code: OpCode, a: u8, imm: i64) -> Op {
    Op::new(code, a, imm)
}

/// Emits `width` bytes at a distance from what a register points to.
fn at(register: u8, distance: i64, width: u8) -> [Op; 4] {
    [
        op(OpCode::Reg, register, 0),
        op(OpCode::Add, 0, distance),
        op(OpCode::Deref, DEREF_MAPPED, 0),
        op(OpCode::EmitAcc, width, 0),
    ]
}

/// What is read at a swap. Fields: goid, wait reason, old state, new state; `with_pc`: and
/// `sched.pc`.
pub fn change_ops(swap: &Swap, offsets: &StateOffsets, with_pc: bool) -> Vec<Op> {
    // Behind a call of what swaps, a register points to the field, not to the g.
    let base = if swap.is_call { i64::from(swap.displacement) } else { 0 };
    let mut ops = at(swap.base, i64::from(offsets.goid) - base, 8).to_vec();
    ops.extend(at(swap.base, i64::from(offsets.waitreason) - base, 1));
    for register in [swap.old, swap.new] {
        ops.extend([op(OpCode::Reg, register, 0), op(OpCode::EmitAcc, 4, 0)]);
    }
    if with_pc {
        ops.extend(at(swap.base, i64::from(offsets.sched_pc) - base, 8));
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
    fields.flat_map(|(offset, width)| at(RAX, i64::from(offset), width)).collect()
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
    add_creations(plan, executable, offsets)
}

/// Adds to `plan` the sites of creations alone, as [`add_states`] does.
pub fn add_creations(
    plan: &mut Plan,
    executable: &Executable,
    offsets: &StateOffsets,
) -> Result<(), binary::Error> {
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
pub(crate) fn add_ops(plan: &mut Plan, ops: &[Op]) -> Program {
    let program = Program { start: plan.ops.len() as u32, len: ops.len() as u16 };
    plan.ops.extend_from_slice(ops);
    program
}

/// Index of a function, which is added when the plan does not have it.
pub(crate) fn index_of(plan: &mut Plan, executable: &Executable, function: &Function) -> u32 {
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
        condition: 0,
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
    let with_pc = plan.states.as_ref().is_some_and(|names| names.system_stack.is_some());
    for swap in swaps {
        let ops = change_ops(swap, offsets, with_pc);
        add_swap(plan, executable, function, swap, &ops);
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
            condition: 0,
        });
    }
    Ok(())
}

/// The place that tells who works on the system stack, when nothing better does.
fn system_stack(executable: &Executable) -> Result<Option<u16>, binary::Error> {
    let table = executable.functions()?;
    let is_told = !table.by_name(GIVING_REASON).is_empty()
        || !table.inlined_copies(&|name| name == GIVING_REASON).is_empty();
    if is_told {
        return Ok(None);
    }
    let Some(place) = table.by_name(SYSTEM_STACK).first().map(|it| it.entry.0 & IN_PAGE) else {
        return Ok(None);
    };
    // Who blocks goes on behind a call there.
    for function in table.by_name(BLOCKING) {
        let calls = analyze_function(executable, &function, None)?.calls;
        if calls.iter().any(|call| call.address.add(CALL_LEN).0 & IN_PAGE == place) {
            return Ok(None);
        }
    }
    Ok(u16::try_from(place).ok())
}

/// What a plan that watches states says of their names.
pub fn state_names(executable: &Executable) -> Result<StateNames, binary::Error> {
    let reasons = WaitReasons::of(executable).map(|reasons| reasons.names().to_vec());
    let system_stack = system_stack(executable)?;
    Ok(StateNames { reasons: reasons.unwrap_or_default(), system_stack })
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
    let names = state_names(executable)?;
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
