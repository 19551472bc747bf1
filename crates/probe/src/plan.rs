//! The plan: all that a backend installs and all that a reader needs to give records
//! their meaning. Belongs to an image, not to a process.

use crate::screen::Screen;
use crate::states::StateNames;
use crate::value::ValueSpec;
use address::{FileOffset, Svma};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{GSource, Op, SiteConfig, SiteKind};

/// Which executable a plan is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageId {
    /// Go build id (`.note.go.buildid`), or the GNU one in hex; empty when the file has neither.
    pub build_id: String,
    /// Path the image was opened by; for messages and for `report` to find it again.
    pub path: String,
    /// Go version as the binary states it, e.g. `go1.27.3`.
    pub go_version: String,
}

/// Offsets (bytes) that the code at a hit needs to know whose hit it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeLayout {
    /// `g.goid`.
    pub g_goid: u32,
    /// `g.stack.hi`.
    pub g_stack_hi: u32,
    /// `g.m`.
    pub g_m: u32,
    /// `m.g0`.
    pub m_g0: u32,
    /// `m.curg`.
    pub m_curg: u32,
    /// Offset of g from the thread pointer (fs base); negative on amd64.
    pub tls_g: i64,
}

/// A runtime function every plan watches, because it tells how calls ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Witness {
    /// `runtime.gopanic`: the goroutine in the header starts to panic.
    /// Fields: 0 type word, 1 data word, 2 sixteen bytes at data (fault or nil
    /// when unreadable), 3 the bytes of a string whose header lies at data.
    Panic,
    /// `runtime.recovery`, on g0. Fields: 0 goid, 1 stack.hi, 2 SP of the recovering frame:
    /// every call with depth > stack.hi - SP is gone, by the panic.
    Recovery,
    /// `runtime.Goexit`: the goroutine in the header runs its deferred calls and dies.
    Goexit,
    /// `runtime.fatalpanic`: the goroutine in the header ends the process by a panic.
    FatalPanic,
    /// `runtime.gdestroy` (1.22+) or `runtime.goexit0`, on g0. Field: 0 goid of the dead.
    GoroutineDeath,
}

/// One function of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedFunction {
    /// Symbol name as pclntab has it (`main.(*T).Method`, `main.Map[go.shape.int]`).
    pub name: String,
    /// Source file of its first line, empty when unknown.
    pub file: String,
    /// First line, 0 when unknown.
    pub line: u32,
    /// First instruction.
    pub entry: Svma,
    /// Size in bytes.
    pub size: u64,
    /// Whether calls of it are reported (a function may be here only as a witness).
    pub traced: bool,
    /// Set when it is one of the watched runtime functions.
    pub witness: Option<Witness>,
    /// Values at entry; they consume the payload fields of an entry record in order.
    /// For a witness the witness fields come first.
    pub args: Vec<ValueSpec>,
    /// Values at a return; likewise.
    pub results: Vec<ValueSpec>,
}

/// A fetch program: a range of [`Plan::ops`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// First op.
    pub start: u32,
    /// Number of ops, 0 for none.
    pub len: u16,
}

/// A condition on the record of a site that only the site's instruction decides: it must leave
/// the zero flag set, as a compare-and-swap does that has swapped. Hits for which it does not hold
/// are no records and not lost either.
///
/// Values are read with the registers and memory as they are before the instruction, by a backend
/// that can wait for what comes of it; else behind it, at `after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// An instruction behind the site's, which nothing leads to but past the site, and at which
    /// the registers that are read hold the same.
    pub after: Svma,
    /// Its place in the file.
    pub after_offset: FileOffset,
    /// What the zero flag is at `after` when the condition holds: what the site's instruction
    /// left, or the opposite once that was turned into a byte and the byte tested.
    pub zero: bool,
}

/// One place to watch. Its index in [`Plan::sites`] is its id: cookie and `Record::site`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Index into [`Plan::functions`].
    pub function: u32,
    /// Where in the function.
    pub kind: SiteKind,
    /// Address in the image.
    pub address: Svma,
    /// Place in the file.
    pub file_offset: FileOffset,
    /// SP at the function's first instruction minus SP here, bytes.
    pub sp_delta: i32,
    /// Where g is here.
    pub g_source: GSource,
    /// What to read.
    pub program: Program,
    /// On what the record hangs; sites of [`SiteKind::At`] only.
    #[serde(default)]
    pub guard: Option<Guard>,
    /// So many ops right before the program decide whether the hit is wanted, at entries of functions whose calls
    /// have to fulfil a condition: they reject it when that surely does not hold.
    #[serde(default)]
    pub condition: u16,
}

impl Site {
    /// The entry of the site table.
    pub fn config(&self) -> SiteConfig {
        SiteConfig {
            kind: self.kind,
            g_source: self.g_source,
            program_start: self.program.start,
            program_len: self.program.len,
            condition_len: self.condition,
            sp_delta: self.sp_delta,
            address: self.guard.map_or(self.address, |guard| guard.after).0,
        }
    }
}

/// Why a function that matched is not traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalReason(pub String);

/// A function that matched and is not traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Symbol name.
    pub function: String,
    /// Why, in words a person can act on.
    pub reason: RefusalReason,
}

/// Which of a generic function's values have a type that only its dictionary tells: for each shown argument and
/// result the place, among all values at the entry, of the interface that has this type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConcreteTypes {
    /// Of arguments.
    pub args: Vec<Option<u16>>,
    /// Of results.
    pub results: Vec<Option<u16>>,
}

/// All that is installed and all that is needed to read the records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The executable it is for.
    pub image: ImageId,
    /// Offsets for the code at a hit.
    pub runtime: RuntimeLayout,
    /// Functions, traced ones and witnesses.
    pub functions: Vec<PlannedFunction>,
    /// Sites, grouped by function.
    pub sites: Vec<Site>,
    /// Ops of all fetch programs.
    pub ops: Vec<Op>,
    /// What matched and is not traced.
    pub refused: Vec<Refusal>,
    /// Places that are passed, not by the goroutine itself, whenever one of these is about to
    /// change: the id that a g has, or the upper end of its stack. Backends that remember either
    /// watch them; no record comes from there. Empty when such changes can go unseen.
    #[serde(default)]
    pub g_changes: Vec<FileOffset>,
    /// Names for the records of state changes; `None` in a plan that watches none.
    #[serde(default)]
    pub states: Option<StateNames>,
    /// Conditions on the calls of functions, by index.
    #[serde(default)]
    pub screens: BTreeMap<u32, Screen>,
    /// How many of the last values at the entry of functions, by index, are variables that
    /// a closure captured.
    #[serde(default)]
    pub captured: BTreeMap<u32, u16>,
    /// Concrete types of the values of generic functions, by index.
    #[serde(default)]
    pub concrete: BTreeMap<u32, ConcreteTypes>,
}

impl Plan {
    /// Of `all` values at the entry of a function, or of their specs, those that are shown as arguments.
    pub fn shown_args<'a, T>(&self, function: u32, all: &'a [T]) -> &'a [T] {
        let hidden = self.screens.get(&function).map_or(0, |screen| screen.hidden_args);
        all.get(usize::from(hidden)..all.len() - self.captured_count(function, all))
            .unwrap_or_default()
    }

    /// Likewise those that a closure captured.
    pub fn captured<'a, T>(&self, function: u32, all: &'a [T]) -> &'a [T] {
        &all[all.len() - self.captured_count(function, all)..]
    }

    fn captured_count<T>(&self, function: u32, all: &[T]) -> usize {
        self.captured.get(&function).map_or(0, |count| usize::from(*count)).min(all.len())
    }

    /// Likewise at its returns.
    pub fn shown_results<'a, T>(&self, function: u32, all: &'a [T]) -> &'a [T] {
        let hidden = self.screens.get(&function).map_or(0, |screen| screen.hidden_results);
        all.get(usize::from(hidden)..).unwrap_or_default()
    }

    /// A plan with the sites of only those functions that `wanted` accepts (by their index),
    /// and for each of its sites the number it has in this plan. Functions keep their numbers.
    pub fn only(&self, wanted: &dyn Fn(u32) -> bool) -> (Self, Vec<u32>) {
        let numbered = (0u32..).zip(&self.sites);
        let (numbers, sites) =
            numbered.filter(|(_, site)| wanted(site.function)).map(|(i, site)| (i, *site)).unzip();
        (Self { sites, ..self.clone() }, numbers)
    }

    /// The ops that decide whether a site's hits are wanted.
    pub fn condition(&self, site: &Site) -> &[Op] {
        let end = site.program.start as usize;
        let start = end.checked_sub(site.condition.into());
        start.and_then(|start| self.ops.get(start..end)).unwrap_or_default()
    }

    /// Whether hits may be rejected where they happen.
    pub fn decides_at_hits(&self) -> bool {
        self.sites.iter().any(|site| site.condition > 0)
    }

    /// Has every hit recorded: conditions are then decided by the readers alone.
    pub fn decide_outside(&mut self) {
        self.sites.iter_mut().for_each(|site| site.condition = 0);
    }

    /// Puts a site behind the others of its function, so that sites stay grouped.
    pub(crate) fn insert_site(&mut self, site: Site) {
        let last = self.sites.iter().rposition(|other| other.function == site.function);
        self.sites.insert(last.map_or(self.sites.len(), |last| last + 1), site);
    }

    /// The function a site belongs to; `None` for ids no plan of ours gave out.
    pub fn function_of(&self, site: u32) -> Option<(&Site, &PlannedFunction)> {
        let site = self.sites.get(site as usize)?;
        Some((site, self.functions.get(site.function as usize)?))
    }
}
