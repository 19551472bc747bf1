//! What is to be done to one function.

use super::body::Body;
use super::condition::parts;
use super::program::{Base, TAKEN, evaluate};
use super::recorder::Key;
use super::region::{Chooser, Event, Region};
use super::swap::{Swap, swap};
use super::{CodeSource, EmitOptions, FunctionCode, Refused, SiteRecord};
use address::Svma;
use iced_x86::Register;
use probe::{Plan, Site};
use wire::{GSource, Op, SiteKind};

/// A function that gets trampolines.
pub(super) struct Selected {
    /// Index in the plan.
    pub(super) index: u32,
    pub(super) entry: Svma,
    pub(super) code: FunctionCode,
    /// Regions, with the recorder of each event.
    pub(super) regions: Vec<(Region, Vec<Key>)>,
    /// Sites in the middle.
    pub(super) swaps: Vec<Swap>,
    /// Whether every value of the plan is recorded.
    pub(super) has_all_values: bool,
}

/// A record's units as far as its tag can say.
const MAX_UNITS: usize = 254;

impl Selected {
    /// The recorders it needs.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        let of_swaps = self.swaps.iter().map(|swap| &swap.key);
        self.regions.iter().flat_map(|(_, keys)| keys).chain(of_swaps)
    }

    /// Says what the records of its sites look like.
    pub(super) fn describe(&self, sites: &mut [SiteRecord]) {
        let mut describe = |site: u32, key: &Key, sp_delta| {
            if let Some(site) = sites.get_mut(site as usize) {
                *site = SiteRecord {
                    installed: true,
                    payload: key.values.payload(),
                    units: key.units() as u8,
                    system_units: key.system_units() as u8,
                    sp_delta,
                    is_guarded: key.swap.is_some(),
                };
            }
        };
        for (region, keys) in &self.regions {
            for (event, key) in region.events.iter().zip(keys) {
                describe(event.site, key, event.sp_delta);
            }
        }
        for swap in &self.swaps {
            describe(swap.site, &swap.key, swap.sp_delta);
        }
    }
}

/// Chooses the regions and recorders of the function that `sites` belong to; `base` is the
/// index of the first in `plan`.
pub(super) fn select(
    plan: &Plan,
    sites: &[Site],
    base: u32,
    source: &dyn CodeSource,
    options: &EmitOptions,
) -> Result<Selected, Refused> {
    let missing = || Refused::Unreadable("the plan has no such function".to_owned());
    let first = sites.first().ok_or_else(missing)?;
    let entry = plan.functions.get(first.function as usize).ok_or_else(missing)?.entry;
    let code = source.function(entry)?;
    let body = Body::of(&code, entry);
    check_code(&body, sites)?;
    let mut chooser = Chooser::new(&body, options.translates_faults);
    let is_entry = |site: &Site| site.kind == SiteKind::Entry;
    // Beginnings first: an end may then be recorded in the same region.
    let numbered = || sites.iter().zip(base..);
    let mut swaps = Vec::new();
    for (site, number) in numbered().filter(|(site, _)| site.kind == SiteKind::At) {
        let swap = swap(plan, site, number, &body, source, options.translates_faults)?;
        chooser.leave(swap.start..swap.at + 1);
        swaps.push(swap);
    }
    for (_, number) in numbered().filter(|(site, _)| is_entry(site)) {
        chooser.add_entry(number)?;
    }
    let is_exit = |site: &Site| matches!(site.kind, SiteKind::Return | SiteKind::TailJump);
    for (site, number) in numbered().filter(|(site, _)| is_exit(site)) {
        chooser.add_exit(number, site.kind, site.address, site.sp_delta)?;
    }
    let may_read = may_read(plan, first.function, &code, options);
    let mut has_all_values = true;
    let mut regions = Vec::new();
    for region in chooser.regions {
        let mut keys = Vec::new();
        for event in &region.events {
            let (key, is_complete) = key(plan, event, may_read)?;
            keys.push(key);
            has_all_values &= is_complete;
        }
        regions.push((region, keys));
    }
    regions.sort_by_key(|(region, _)| region.start);
    Ok(Selected { index: first.function, entry, code, regions, swaps, has_all_values })
}

fn check_code(body: &Body<'_>, sites: &[Site]) -> Result<(), Refused> {
    let code = body.code;
    match code.analysis.entry {
        // What uprobes cannot replace, a jump may.
        Ok(_) | Err(binary::code::Refused::Unprobeable(_)) => {}
        Err(refused) => return Err(refused.into()),
    }
    let uses_tls = sites.iter().any(|site| site.g_source == GSource::Tls);
    if code.is_assembly || ((code.analysis.loads_g || uses_tls) && !reloads_g(body)) {
        return Err(Refused::Abi0);
    }
    Ok(())
}

/// Whether g is loaded behind a call only: a Go function, entered with g in R14, that calls
/// assembly and restores R14 at once. One that is entered from assembly loads g first.
fn reloads_g(body: &Body<'_>) -> bool {
    let first_call = body.code.analysis.calls.first().map(|call| call.address);
    let mut loads = body.instructions.iter().filter(|instruction| {
        instruction.op0_register() == Register::R14 && instruction.segment_prefix() == Register::FS
    });
    let first_load = loads.next().map(|load| Svma(load.ip()));
    matches!((first_load, first_call), (Some(load), Some(call)) if call < load)
}

/// Beginnings of names of functions that run where a fault could not be handled: below the
/// signal handlers, in the child of a vfork, or before there are handlers.
const NO_READS: &[&str] = &[
    "runtime.",
    "runtime/internal/",
    "internal/runtime/",
    "syscall.RawSyscall",
    "syscall.rawSyscall",
    "syscall.rawVfork",
    "syscall.forkAndExec",
    "syscall.runtime_",
    "golang.org/x/sys/unix.RawSyscall",
];

/// Beginnings of names of packages that have functions for such places.
const NEAR_KERNEL: &[&str] = &["syscall.", "internal/", "golang.org/x/sys/", "os.", "sync"];

/// Whether values may be read from memory in a function.
fn may_read(plan: &Plan, index: u32, code: &FunctionCode, options: &EmitOptions) -> bool {
    let Some(function) = plan.functions.get(index as usize) else { return false };
    let is_named = |names: &[&str]| names.iter().any(|name| function.name.starts_with(name));
    // A function without a stack check may be part of what runs where there is no handler. Of
    // the packages that do, that is: elsewhere it only needs no stack.
    let is_safe = !is_named(NO_READS) && (code.analysis.has_stack_check || !is_named(NEAR_KERNEL));
    // What witnesses read belongs to the runtime, or to a panic of Go code.
    options.recovers_loads && (is_safe || function.witness.is_some())
}

/// The fetch program of a site.
pub(super) fn ops_of(plan: &Plan, site: u32) -> Result<&[Op], Refused> {
    let missing = || Refused::Unreadable("the plan has no such site".to_owned());
    let site = plan.sites.get(site as usize).ok_or_else(missing)?;
    let start = site.program.start as usize;
    plan.ops.get(start..start + usize::from(site.program.len)).ok_or_else(missing)
}

/// The recorder for an event, and whether it records all of the site's values.
fn key(plan: &Plan, event: &Event, may_read: bool) -> Result<(Key, bool), Refused> {
    let ops = ops_of(plan, event.site)?;
    let (values, is_complete) = evaluate(ops, may_read, TAKEN)?;
    let is_entry = event.kind == SiteKind::Entry;
    let condition = plan.sites.get(event.site as usize).filter(|_| is_entry);
    let condition = condition.map(|site| parts(plan.condition(site), may_read, TAKEN));
    let key = Key {
        has_caller: is_entry,
        saves_rdx: event.kind != SiteKind::Return || values.uses(Base::Register(2)),
        has_delta: is_entry || values.uses(Base::FirstSp),
        condition: condition.unwrap_or_default(),
        values,
        swap: None,
    };
    if key.units() > MAX_UNITS {
        return Err(Refused::Payload(key.values.payload().size()));
    }
    Ok((key, is_complete))
}
