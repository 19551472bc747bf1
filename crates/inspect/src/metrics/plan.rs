//! Where the figures are in one executable, and reading them.

use super::{
    Collector, Effort, GoroutineStates, Memory, Options, RuntimeMetrics, Scheduler, Unknown,
};
use crate::Error;
use address::{Bias, MemoryError, ReadMemory};
use binary::Executable;
use binary::layout::RuntimeLayouts;

/// What is known of one executable: serves all processes that run it.
#[derive(Clone, Debug)]
pub struct MetricsPlan {}

/// The global variables of one process that passed.
#[derive(Clone, Debug)]
pub struct Confirmed {}

impl MetricsPlan {
    /// Gathers facts: once per executable.
    ///
    /// Fails only when the executable's own tables are damaged; what is not known for this
    /// build is a reason at each figure.
    pub fn prepare(executable: &Executable, _layouts: &RuntimeLayouts<'_>) -> Result<Self, Error> {
        executable.functions()?;
        Ok(Self {})
    }

    /// Holds the candidates against a process's memory: once per process. Do it again when
    /// [`Confirmed::is_complete`] is false a while later: a process that has just begun has
    /// not initialised its runtime yet.
    pub fn confirm(&self, _memory: &dyn ReadMemory, _bias: Bias) -> Confirmed {
        Confirmed {}
    }

    /// Reads all figures.
    ///
    /// Fails when nothing can be read: the process is gone, or runs another executable now.
    pub fn sample(
        &self,
        _memory: &dyn ReadMemory,
        _confirmed: &Confirmed,
        _options: Options,
    ) -> Result<RuntimeMetrics, MemoryError> {
        let why = Unknown::NotAsked;
        Ok(RuntimeMetrics {
            scheduler: Scheduler::unknown(&why),
            memory: Memory::unknown(&why),
            collector: Collector::unknown(&why),
            cgo_calls: Err(why),
            effort: Effort::default(),
        })
    }

    /// Counts goroutines by state: reads each descriptor (a million take seconds).
    ///
    /// Fails when the list of goroutines is not known or unreadable.
    pub fn goroutine_states(
        &self,
        _memory: &dyn ReadMemory,
        _confirmed: &Confirmed,
    ) -> Result<GoroutineStates, Unknown> {
        Err(Unknown::NotAsked)
    }
}

impl Confirmed {
    /// Whether every global variable that this version has was confirmed.
    pub fn is_complete(&self) -> bool {
        true
    }
}
