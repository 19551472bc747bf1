//! Where the figures are in one executable, and reading them.

use super::confirmed::Confirmed;
use super::layout::Layouts;
use super::reader::Reader;
use super::sums::Figures;
use super::{GoroutineStates, Options, RuntimeMetrics, Unknown, machine, states, unflushed};
use crate::descriptor::Layout;
use crate::{Error, WaitReasons};
use address::{Bias, MemoryError, ReadMemory, Svma};
use binary::Executable;
use binary::globals::{Candidate, Global, find};
use binary::layout::{LimitHeadroom, Provenance, RuntimeLayouts};
use std::sync::Arc;

/// Size classes (`sizeclasses.go`, `_NumSizeClasses`), the same in Go 1.19 to 1.27.
const SIZE_CLASSES: usize = 68;

/// The largest size of a small object, bytes.
const MAX_SMALL: u16 = 32768;

/// What is known of one executable: serves all processes that run it.
#[derive(Clone, Debug)]
pub struct MetricsPlan {
    pub(super) layouts: Layouts,
    pub(super) goroutines: Result<Layout, Unknown>,
    pub(super) headroom: Result<LimitHeadroom, Unknown>,
    pub(super) size_classes: Result<Vec<u16>, Unknown>,
    layout_source: Option<Provenance>,
    candidates: Vec<(Global, Vec<Candidate>)>,
    reasons: Vec<Arc<str>>,
}

impl MetricsPlan {
    /// Gathers facts: once per executable.
    ///
    /// Fails only when the executable's own tables are damaged; what is not known for this
    /// build is a reason at each figure.
    pub fn prepare(executable: &Executable, layouts: &RuntimeLayouts<'_>) -> Result<Self, Error> {
        let layouts = &layouts.with_code(executable);
        let mut candidates = Vec::new();
        for global in Global::ALL {
            candidates.push((global, find(executable, global)?));
        }
        let reasons = WaitReasons::of(executable);
        let names = reasons.iter().flat_map(|reasons| reasons.names());
        let unknown_headroom =
            || Unknown::NoLayout("the memory limit's headroom is not known".into());
        let mut plan = Self {
            layouts: Layouts::new(layouts),
            goroutines: Layout::new(layouts).map_err(|e| Unknown::NoLayout(e.to_string().into())),
            headroom: LimitHeadroom::of(executable.go_version()).ok_or_else(unknown_headroom),
            size_classes: Err(Unknown::NotAsked),
            layout_source: layouts.field("runtime.mstats", "numgc").ok().map(|at| at.provenance),
            candidates,
            reasons: names.map(|name| Arc::from(name.as_str())).collect(),
        };
        plan.size_classes = plan.read_size_classes(executable);
        Ok(plan)
    }

    /// Where a global variable may be, best first; the reason when there is no such place.
    pub fn candidates(&self, global: Global) -> Result<&[Candidate], Unknown> {
        let known = self.candidates.iter().find(|(of, _)| *of == global);
        let places = known.map(|(_, places)| places.as_slice()).unwrap_or_default();
        if places.is_empty() { Err(Unknown::NoGlobal(global.symbol())) } else { Ok(places) }
    }

    /// What the offsets of fields are from; `None` when they are not known.
    pub fn layout_source(&self) -> Option<Provenance> {
        self.layout_source
    }

    /// A constant table: the file has it.
    fn read_size_classes(&self, executable: &Executable) -> Result<Vec<u16>, Unknown> {
        let read = |at: Svma| -> Option<Vec<u16>> {
            let bytes = executable.image().read_vec(at, 2 * SIZE_CLASSES as u64).ok()?;
            let pairs = bytes.chunks_exact(2);
            let sizes: Vec<u16> =
                pairs.map(|pair| pair.try_into().map(u16::from_le_bytes).unwrap_or(0)).collect();
            let rises = sizes.is_sorted_by(|a, b| a < b);
            (rises && sizes.starts_with(&[0, 8, 16]) && sizes.ends_with(&[MAX_SMALL]))
                .then_some(sizes)
        };
        let places = self.candidates(Global::SizeClasses)?;
        let found = places.iter().find_map(|place| read(place.address));
        found.ok_or(Unknown::NotConfirmed(Global::SizeClasses.symbol()))
    }

    /// Holds the candidates against a process's memory: once per process. Do it again when
    /// [`Confirmed::is_complete`] is false a while later: a process that has just begun has
    /// not initialised its runtime yet.
    pub fn confirm(&self, memory: &dyn ReadMemory, bias: Bias) -> Confirmed {
        Confirmed::new(self, memory, bias)
    }

    /// Reads all figures.
    ///
    /// Fails when nothing can be read: the process is gone, or runs another executable now. A
    /// process that runs another Go program now may be readable at the same addresses: the caller
    /// looks after reading whether it does (`process::Process::image_stamp`).
    pub fn sample(
        &self,
        memory: &dyn ReadMemory,
        confirmed: &Confirmed,
        options: Options,
    ) -> Result<RuntimeMetrics, MemoryError> {
        let reader = Reader::new(memory);
        if let Some((at, _)) = confirmed.globals().into_iter().find_map(|(_, found)| found.ok()) {
            reader.read_word(at)?;
        }
        let machine = machine::read(&reader, &self.layouts, confirmed);
        let figures = Figures::read(self, &reader, confirmed);
        let mut memory = figures.memory();
        if options.unflushed {
            memory.unflushed =
                self.layouts.spans.as_ref().map_err(Unknown::clone).and_then(|spans| {
                    unflushed::read(
                        &reader,
                        machine.caches.as_ref().map_err(Unknown::clone)?,
                        spans,
                    )
                });
        }
        let collector = figures.collector(&machine);
        let effort = reader.effort();
        Ok(RuntimeMetrics {
            scheduler: machine.scheduler,
            memory,
            collector,
            cgo_calls: machine.cgo_calls,
            effort,
        })
    }

    /// Counts goroutines by state: reads each descriptor (a million take a second).
    ///
    /// Fails when the list of goroutines is not known or unreadable.
    pub fn goroutine_states(
        &self,
        memory: &dyn ReadMemory,
        confirmed: &Confirmed,
    ) -> Result<GoroutineStates, Unknown> {
        let layout = self.goroutines.as_ref().map_err(Unknown::clone)?;
        let list = confirmed.goroutines.as_ref().map_err(Unknown::clone)?;
        let reader = Reader::new(memory);
        let unreadable = |_| Unknown::Unreadable(Global::Allgs.symbol());
        let addresses = list.addresses(&reader).map_err(unreadable)?;
        Ok(states::count(&reader, addresses, layout, &self.reasons))
    }
}
