//! The recipes: which function uses which variable how.
//!
//! Measured on builds of Go 1.19 to 1.27 with symbols (exe, PIE, cgo, race, PGO, `-N -l`):
//! where a recipe answers, it is right; inlining changes (`-l=4`, `-cover`) make some
//! abstain.

use super::Global;
use super::operand::{Access, Use, accesses};
use crate::layout::RuntimeLayouts;
use crate::{Error, Executable};
use address::Svma;

/// Longer functions are not decoded to their end.
const MAX_CODE: u64 = 1 << 16;

/// How one function gives away one variable.
pub(super) struct Recipe {
    pub(super) global: Global,
    /// The first of them that exists.
    functions: &'static [&'static str],
    pick: Pick,
    minus: Minus,
}

/// Which operand leads to the variable.
enum Pick {
    /// The distinct addresses so used lie at these distances from the variable, and no others
    /// are so used.
    Exactly(Use, usize, &'static [u64]),
    /// The only address so used.
    Only(Use, usize),
    /// The only address so used with this constant.
    OnlyWith(Use, usize, u64),
    /// The only address that is this argument of calls of that function.
    Passed(u8, &'static str),
    /// The first such use.
    First(Use, usize),
    /// The last such use.
    Last(Use, usize),
}

/// What the operand's address is more than the variable's.
enum Minus {
    /// Bytes.
    Bytes(u64),
    /// The offset of a field, by struct and name, as the table has it.
    Field(&'static str, &'static str),
}

const fn recipe(
    global: Global,
    functions: &'static [&'static str],
    pick: Pick,
    minus: Minus,
) -> Recipe {
    Recipe { global, functions, pick, minus }
}

const HERE: Minus = Minus::Bytes(0);

#[rustfmt::skip]
pub(super) const RECIPES: &[Recipe] = &[
    // proc.go, forEachG: `for _, gp := range allgs`.
    recipe(Global::Allgs, &["runtime.forEachG"], Pick::Exactly(Use::Load, 8, &[0, 8]), HERE),
    // proc.go, allgadd: `allgs = append(allgs, gp)`.
    recipe(Global::Allgs, &["runtime.allgadd"], Pick::Exactly(Use::Store, 8, &[0, 8, 16]), HERE),
    // proc.go, allgadd: `atomic.Storeuintptr(&allglen, uintptr(len(allgs)))` at its end.
    recipe(Global::Allglen, &["runtime.allgadd"], Pick::Last(Use::Exchange, 8), HERE),
    // proc.go, atomicAllG: `length := atomic.Loaduintptr(&allglen)`.
    recipe(Global::Allglen, &["runtime.atomicAllG", "runtime.forEachGRace"],
        Pick::First(Use::Load, 8), HERE),
    // runtime2.go, waitReason.String: `return waitReasonStrings[w]` after the bound check.
    recipe(Global::WaitReasonStrings, &["runtime.waitReason.String"],
        Pick::Last(Use::Address, 0), HERE),
    recipe(Global::WaitReasonStrings, &["runtime.(*waitReason).String"],
        Pick::Last(Use::Address, 0), HERE),
    // proc.go, mcommoninit: `mp.alllink = allm`, the last global read there.
    recipe(Global::Allm, &["runtime.mcommoninit"], Pick::Last(Use::Load, 8), HERE),
    // The same function: `atomicstorep(unsafe.Pointer(&allm), unsafe.Pointer(mp))`.
    recipe(Global::Allm, &["runtime.mcommoninit"], Pick::Passed(0, "runtime.atomicwb"), HERE),
    recipe(Global::Allm, &["runtime.mcommoninit"], Pick::Passed(0, "runtime.atomicstorep"), HERE),
    // proc.go, procresize: `if nprocs > int32(len(allp))` and its like.
    recipe(Global::Allp, &["runtime.procresize"], Pick::Only(Use::Compare, 8), Minus::Bytes(8)),
    // proc.go, retake: `for i := 0; i < len(allp); i++`.
    recipe(Global::Allp, &["runtime.retake"], Pick::Only(Use::Compare, 8), Minus::Bytes(8)),
    // proc.go, preemptall: `for _, pp := range allp`.
    recipe(Global::Allp, &["runtime.preemptall"], Pick::Exactly(Use::Load, 8, &[0, 8]), HERE),
    // proc.go, incidlelocked: `sched.nmidlelocked += v`.
    recipe(Global::Sched, &["runtime.incidlelocked"], Pick::Only(Use::Add, 4),
        Minus::Field("runtime.schedt", "nmidlelocked")),
    // proc.go, allocm: `if sched.freem != nil`.
    recipe(Global::Sched, &["runtime.allocm"], Pick::Only(Use::Compare, 8),
        Minus::Field("runtime.schedt", "freem")),
    // proc.go, gcstopm: `sched.stopwait--`.
    recipe(Global::Sched, &["runtime.gcstopm"], Pick::Only(Use::Load, 4),
        Minus::Field("runtime.schedt", "stopwait")),
    // mcache.go, releaseAll: `memstats.heapStats.acquire()`.
    recipe(Global::Memstats, &["runtime.(*mcache).releaseAll"],
        Pick::Passed(0, "runtime.(*consistentHeapStats).acquire"), HERE),
    // mheap.go, freeSpanLocked: the same.
    recipe(Global::Memstats, &["runtime.(*mheap).freeSpanLocked"],
        Pick::Passed(0, "runtime.(*consistentHeapStats).acquire"), HERE),
    // mgclimit.go, accumulate: `l.lastEnabledCycle.Store(memstats.numgc + 1)`.
    recipe(Global::Memstats, &["runtime.(*gcCPULimiterState).accumulate"],
        Pick::Only(Use::Load, 4), Minus::Field("runtime.mstats", "numgc")),
    // mcache.go, releaseAll: `gcController.update(dHeapLive, scanAlloc)`.
    recipe(Global::GcController, &["runtime.(*mcache).releaseAll"],
        Pick::Passed(0, "runtime.(*gcControllerState).update"), HERE),
    // mgcpacer.go, endCycle: `gcController.lastHeapGoal = c.heapGoal()`.
    recipe(Global::GcController, &["runtime.(*gcControllerState).endCycle"],
        Pick::Only(Use::Store, 8), Minus::Field("runtime.gcControllerState", "lastHeapGoal")),
    // mheap.go, grow: `sysMap(unsafe.Pointer(v), nBase-v, &gcController.heapReleased)`.
    recipe(Global::GcController, &["runtime.(*mheap).grow"], Pick::Passed(2, "runtime.sysMap"),
        Minus::Field("runtime.gcControllerState", "heapReleased")),
    // mcache.go, allocLarge: `mheap_.alloc(npages, spc)`.
    recipe(Global::Mheap, &["runtime.(*mcache).allocLarge"],
        Pick::Passed(0, "runtime.(*mheap).alloc"), HERE),
    // mcache.go, prepareForSweep: `sg := mheap_.sweepgen`.
    recipe(Global::Mheap, &["runtime.(*mcache).prepareForSweep"], Pick::Only(Use::Load, 4),
        Minus::Field("runtime.mheap", "sweepgen")),
    // mcentral.go, uncacheSpan: the same.
    recipe(Global::Mheap, &["runtime.(*mcentral).uncacheSpan"], Pick::Only(Use::Load, 4),
        Minus::Field("runtime.mheap", "sweepgen")),
    // mgcmark.go, gcDrainN: `work.full == 0`.
    recipe(Global::Work, &["runtime.gcDrainN"], Pick::Only(Use::Compare, 8),
        Minus::Field("runtime.workType", "full")),
    // mgc.go, gcResetMarkState: `work.bytesMarked = 0`.
    recipe(Global::Work, &["runtime.gcResetMarkState"], Pick::OnlyWith(Use::Store, 8, 0),
        Minus::Field("runtime.workType", "bytesMarked")),
    // mgcmark.go, gcMark: `if gcphase != _GCmarktermination`.
    recipe(Global::GcPhase, &["runtime.gcMark"], Pick::OnlyWith(Use::Compare, 4, 2), HERE),
    // mgcwork.go, freeSomeWbufs: `if gcphase != _GCoff`.
    recipe(Global::GcPhase, &["runtime.freeSomeWbufs"], Pick::OnlyWith(Use::Compare, 4, 0), HERE),
    // stack.go, stackpoolfree: `if gcphase == _GCoff`.
    recipe(Global::GcPhase, &["runtime.stackpoolfree"], Pick::OnlyWith(Use::Compare, 4, 0), HERE),
    // malloc.go, mallocinit: `if class_to_size[_TinySizeClass] != _TinySize`.
    recipe(Global::SizeClasses, &["runtime.mallocinit"], Pick::OnlyWith(Use::Compare, 2, 16),
        Minus::Bytes(4)),
    // proc.go, mexit: `atomic.Xadd64(&ncgocall, int64(mp.ncgocall))`.
    recipe(Global::CgoCalls, &["runtime.mexit"], Pick::First(Use::ExchangeAdd, 8), HERE),
];

impl Recipe {
    /// What this recipe says; `None` when it abstains.
    pub(super) fn answer(&self, executable: &Executable) -> Result<Option<Svma>, Error> {
        let Some(minus) = self.minus.bytes(executable) else { return Ok(None) };
        let table = executable.functions()?;
        for name in self.functions {
            let bodies = table.by_name(name);
            if bodies.is_empty() {
                continue;
            }
            let mut found = Vec::new();
            for body in bodies {
                let size = body.end.since(body.entry).unwrap_or_default().min(MAX_CODE);
                let code = executable.image().read_vec(body.entry, size)?;
                found.extend(accesses(&code, body.entry.0));
            }
            let entries = |name: &str| -> Vec<u64> {
                table.by_name(name).iter().map(|body| body.entry.0).collect()
            };
            let address = self.pick.from(&found, &entries);
            return Ok(address.map(|address| Svma(address.wrapping_sub(minus))));
        }
        Ok(None)
    }
}

impl Minus {
    /// `None` when the layout is not known.
    fn bytes(&self, executable: &Executable) -> Option<u64> {
        match *self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Field(structure, field) => {
                let layouts = RuntimeLayouts::new(executable.go_version(), None);
                Some(layouts.field(structure, field).ok()?.offset)
            }
        }
    }
}

impl Pick {
    /// The operand's address; `entries` tells where functions of a name begin.
    fn from(&self, accesses: &[Access], entries: &dyn Fn(&str) -> Vec<u64>) -> Option<u64> {
        let of = |what: Use, size: usize| {
            accesses.iter().filter(move |a| a.what == what && a.size == size)
        };
        match *self {
            Self::First(what, size) => of(what, size).map(|a| a.address).next(),
            Self::Last(what, size) => of(what, size).map(|a| a.address).next_back(),
            Self::Only(what, size) => only(of(what, size)),
            Self::OnlyWith(what, size, constant) => {
                only(of(what, size).filter(|a| a.constant == Some(constant)))
            }
            Self::Passed(argument, function) => {
                let called = entries(function);
                let to = |a: &&Access| a.constant.is_some_and(|call| called.contains(&call));
                only(of(Use::Argument(argument), 0).filter(to))
            }
            Self::Exactly(what, size, distances) => {
                let places = distinct(of(what, size));
                let base = *places.first()?;
                let found = places.iter().map(|place| place - base);
                found.eq(distances.iter().copied()).then_some(base)
            }
        }
    }
}

fn distinct<'a>(accesses: impl Iterator<Item = &'a Access>) -> Vec<u64> {
    let mut places: Vec<u64> = accesses.map(|access| access.address).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// The address, when it is one and the same.
fn only<'a>(accesses: impl Iterator<Item = &'a Access>) -> Option<u64> {
    match distinct(accesses)[..] {
        [place] => Some(place),
        _ => None,
    }
}
