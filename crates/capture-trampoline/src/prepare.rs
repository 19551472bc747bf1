//! From a plan to what is installed in one process.

use crate::Error;
use crate::emit::{
    CodeSource, EmitError, EmitOptions, Emitted, ExecutableCode, FunctionCode, Refused, emit,
};
use crate::install::{Layout, Place, Prepared, StackFacts, TextPatch, Wanted, sleepers};
use crate::layout::{Rings, SLACK};
use crate::offsets::Offsets;
use crate::reader::SiteInfo;
use address::{Avma, Bias, Svma};
use binary::{Executable, flag};
use probe::Plan;
use process::Process;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use wire::SiteKind;

/// Bytes of all rings together at the most, however many are asked for: they lie near the text,
/// and are filled with pages when they are made.
const RING_BUDGET: usize = 1 << 30;

/// Data of one ring at the most, which is what [`Rings::is_valid`] takes.
const MAX_RING: usize = 1 << 28;

/// Room for code: recorders, and a bound for each site and each op of a fetch program. Address
/// space, not memory.
const CODE_BASE: u64 = 4 << 20;
const CODE_PER_SITE: u64 = 512;
const CODE_PER_OP: u64 = 128;

/// What the code of one process is made for.
pub(crate) struct Made {
    /// To be installed.
    pub prepared: Prepared,
    /// The whole result of emitting, without the code.
    pub emitted: Emitted,
    /// The sites, for the reader.
    pub sites: Vec<SiteInfo>,
    /// Where the image lies in the process.
    pub bias: Bias,
}

/// Number and size of rings for `cpus` CPUs and `shares` processes that divide the `wanted` bytes:
/// no more than these, rounded down to powers of two, unless they are less than the smallest ring.
pub(crate) fn ring_sizes(cpus: usize, wanted: usize, shares: usize) -> (u32, u32) {
    let budget = wanted.clamp(1, RING_BUDGET) / shares.max(1);
    let fixed = 3 * SLACK as usize;
    let mut count = cpus.clamp(1, 4096).next_power_of_two();
    // Fewer rings than CPUs are right too: they share.
    while count > 1 && budget / count < fixed {
        count /= 2;
    }
    let bytes = (budget / count).clamp(SLACK as usize, MAX_RING);
    let bytes = if bytes.is_power_of_two() { bytes } else { bytes.next_power_of_two() / 2 };
    (count as u32, bytes as u32)
}

/// Whether the Go runtime's signal handler may be hooked: it is only of use when it is the one
/// that faults reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hooks {
    Allowed,
    Forbidden,
}

/// What the Go runtime handles signals with.
struct Handlers {
    sigtrampgo: Option<Svma>,
    /// What the kernel calls: `runtime.sigtramp`, in cgo programs `runtime.cgoSigtramp`.
    entered: Vec<Range<Svma>>,
}

impl Handlers {
    fn of(executable: &Executable) -> Self {
        let mut found = Self { sigtrampgo: None, entered: Vec::new() };
        let Ok(functions) = executable.functions() else { return found };
        for function in functions.iter() {
            match function.name.as_str() {
                // An assembly function of that name is a wrapper for the other convention.
                crate::HOOKED if function.flags & flag::ASM == 0 => {
                    found.sigtrampgo = Some(function.entry);
                }
                "runtime.sigtramp" | "runtime.cgoSigtramp" => {
                    found.entered.push(function.entry..function.end);
                }
                _ => {}
            }
        }
        found
    }

    fn ranges(&self, bias: Bias) -> Vec<Range<Avma>> {
        let range = |r: &Range<Svma>| bias.to_avma(r.start)..bias.to_avma(r.end);
        self.entered.iter().map(range).collect()
    }
}

/// What code is made for, whatever the process.
#[derive(Clone, Copy)]
pub(crate) struct Order<'a> {
    pub executable: &'a Executable,
    pub plan: &'a Plan,
    /// Functions of the plan that get no code, whatever else says yes.
    pub excluded: &'a BTreeSet<u32>,
    /// Number and size of rings.
    pub rings: (u32, u32),
    /// Whether to do without `rdpid`.
    pub no_rdpid: bool,
}

/// The code of all functions but some.
struct Remaining<'a> {
    code: ExecutableCode<'a>,
    /// Entries of those left out.
    excluded: BTreeSet<Svma>,
}

impl<'a> Remaining<'a> {
    fn of(order: &Order<'a>) -> Self {
        let function = |&index: &u32| Some(order.plan.functions.get(index as usize)?.entry);
        Self {
            code: ExecutableCode::new(order.executable),
            excluded: order.excluded.iter().filter_map(function).collect(),
        }
    }
}

impl CodeSource for Remaining<'_> {
    fn function(&self, entry: Svma) -> Result<FunctionCode, Refused> {
        match self.excluded.contains(&entry) {
            true => Err(Refused::Elsewhere),
            false => self.code.function(entry),
        }
    }

    fn is_ordinary(&self, entry: Svma) -> bool {
        self.code.is_ordinary(entry)
    }
}

/// What areas an order needs.
pub(crate) fn wanted(order: &Order<'_>) -> Wanted {
    let Order { plan, rings, .. } = *order;
    Wanted {
        ring_count: rings.0,
        ring_bytes: rings.1,
        code_room: CODE_BASE
            + plan.sites.len() as u64 * CODE_PER_SITE
            + plan.ops.len() as u64 * CODE_PER_OP,
    }
}

/// Makes the code for areas in their places, and for the image where it lies. The error says why there can
/// be none.
pub(crate) fn make(
    order: &Order<'_>,
    layout: &Layout,
    bias: Bias,
    sigtrampgo: Option<Svma>,
) -> Result<Emitted, String> {
    let options = EmitOptions {
        code_base: layout.code,
        bias,
        control: layout.control,
        rings: layout.rings,
        has_rdpid: has_rdpid() && !order.no_rdpid,
        ..options_of(order.executable, sigtrampgo)
    };
    let emitted = emit(order.plan, &Remaining::of(order), &options)
        .map_err(|error: EmitError| error.to_string())?;
    if emitted.code.len() as u64 > layout.code_room {
        return Err(format!(
            "the code is larger than expected ({} bytes); select fewer functions",
            emitted.code.len()
        ));
    }
    Ok(emitted)
}

/// The function that is to be hooked, if the executable has it.
pub(crate) fn hooked(executable: &Executable) -> Option<Svma> {
    Handlers::of(executable).sigtrampgo
}

/// Makes the code for `process`, whose image lies at `place`.
pub(crate) fn prepare(
    process: &Process,
    place: &Place,
    order: &Order<'_>,
    hooks: Hooks,
) -> Result<Made, Error> {
    let Order { executable, plan, .. } = *order;
    let layout = Layout::choose(process.pid(), &process.maps()?, &place.text, wanted(order))?;
    let handlers = Handlers::of(executable);
    let sigtrampgo = handlers.sigtrampgo.filter(|_| hooks == Hooks::Allowed);
    let mut emitted = make(order, &layout, place.bias, sigtrampgo)
        .map_err(|reason| Error::Unsuitable { pid: process.pid(), reason })?;
    let code = std::mem::take(&mut emitted.code);
    let patches = emitted.patches.iter().map(|patch| TextPatch::at(patch, place.bias)).collect();
    let (map, bias) = (emitted.pc_map.clone(), place.bias);
    let relocated = Box::new(move |pc: Avma| map.relocated(bias.to_svma(pc)));
    let sites = site_infos(plan, &emitted);
    let hook = emitted.hook.as_ref().map(|hook| TextPatch::at(hook, place.bias));
    let handlers = handlers.ranges(place.bias);
    let prepared = Prepared {
        layout,
        code,
        patches,
        hook,
        handlers,
        stacks: StackFacts::of(executable),
        sleepers: sleepers(executable, place.bias),
        relocated,
    };
    Ok(Made { prepared, emitted, sites, bias: place.bias })
}

/// What does not depend on where in a process the code lies.
fn options_of(executable: &Executable, sigtrampgo: Option<Svma>) -> EmitOptions {
    let offsets = Offsets::of(executable);
    let field = |name| offsets.field("runtime.m", name).map(|offset| offset as u32);
    EmitOptions {
        code_base: Avma(0),
        bias: Bias(0),
        control: Avma(0),
        rings: Rings { base: Avma(0), count: 1, bytes: 1 << 16 },
        has_rdpid: has_rdpid(),
        m_procid: field("procid"),
        m_gsignal: field("gsignal"),
        sigtrampgo,
        recovers_loads: sigtrampgo.is_some(),
        translates_faults: sigtrampgo.is_some(),
    }
}

/// Functions of `plan` (by their index) that can carry no trampolines in any process, and why.
/// A process may have further reasons: see [`crate::TrampolineCapture::refused`].
///
/// Errors: [`capture::Error::Failed`] when the plan cannot be emitted at all.
pub fn refusals(
    executable: &Executable,
    plan: &Plan,
) -> Result<BTreeMap<u32, String>, capture::Error> {
    let text = executable.module().map(|module| module.text).unwrap_or_default();
    let near = Avma(text.0).add(1 << 30);
    let options = EmitOptions {
        code_base: near,
        control: near.add(1 << 28),
        rings: Rings { base: near.add(1 << 29), count: 1, bytes: 1 << 16 },
        ..options_of(executable, Handlers::of(executable).sigtrampgo)
    };
    let emitted = emit(plan, &ExecutableCode::new(executable), &options).map_err(|error| {
        capture::Error::Failed {
            what: "make the code of the trampolines".to_owned(),
            source: error.to_string().into(),
        }
    })?;
    let reasons = emitted.refused.iter().map(|(f, reason)| (*f, reason.to_string()));
    Ok(reasons.collect())
}

pub(crate) fn site_infos(plan: &Plan, emitted: &Emitted) -> Vec<SiteInfo> {
    plan.sites
        .iter()
        .zip(&emitted.sites)
        .map(|(site, &record)| SiteInfo { record, is_entry: site.kind == SiteKind::Entry })
        .collect()
}

/// Whether the CPU has `rdpid` (CPUID leaf 7, ECX bit 22).
pub(crate) fn has_rdpid() -> bool {
    use std::arch::x86_64::__cpuid_count;
    // SAFETY: every x86-64 CPU has the instruction, and leaf 0 says which leaves there are.
    #[allow(unused_unsafe)]
    unsafe {
        __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).ecx >> 22 & 1 == 1
    }
}

/// How many CPUs the kernel may number, also those that are off.
pub(crate) fn possible_cpus() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit(['-', ',']).next().and_then(|n| n.parse::<usize>().ok());
    last.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), |n| n + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_fit_the_budget_on_every_machine() {
        for cpus in [1, 2, 3, 16, 64, 255, 1024, 8192] {
            for wanted in [0, 1 << 16, 1 << 20, usize::MAX] {
                for shares in [1, 7] {
                    let (count, bytes) = ring_sizes(cpus, wanted, shares);
                    let rings = Rings { base: Avma(0), count, bytes };
                    assert!(rings.is_valid(), "{rings:?}");
                    let most = wanted.min(RING_BUDGET) / shares;
                    assert!(count == 1 || rings.size() <= 2 * most as u64, "{rings:?}");
                }
            }
        }
        assert_eq!(ring_sizes(2, usize::MAX, 1), (2, 1 << 28));
        assert_eq!(ring_sizes(2, 2 << 20, 1), (2, 1 << 20));
        assert_eq!(ring_sizes(2, 64 << 20, 1), (2, 32 << 20));
        assert_eq!(ring_sizes(2, 64 << 20, 4), (2, 8 << 20));
        assert_eq!(ring_sizes(64, 16 << 20, 1), (64, 256 << 10));
    }
}
