//! Goroutines, threads and processors.

use super::histogram::TimeHistogram;
use super::unknown::{Unknown, Value};
use std::sync::Arc;

/// What the scheduler has (`runtime.sched`, `allp`, `allm`).
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduler {
    /// Goroutines that exist, those of the runtime left out (`runtime.NumGoroutine`). While
    /// many begin and end it may be some off, as the runtime's own count may: the dead ones go
    /// from a processor to the scheduler by the dozen.
    pub goroutines: Value<u64>,
    /// The runtime's own goroutines (`sched.ngsys`).
    pub goroutines_system: Value<u64>,
    /// Goroutines created since the start, the runtime's own among them
    /// (`/sched/goroutines-created`, since Go 1.26).
    pub goroutines_created: Value<u64>,
    /// Goroutines in system calls or C whose processor was taken away (since Go 1.26).
    pub goroutines_without_processor: Value<u64>,
    /// Threads the runtime has (`runtime.ThreadCreateProfile`: `go_threads`); with cgo also
    /// those it keeps ready for threads of C, which may not exist for the kernel.
    pub threads: Value<u64>,
    /// Threads the runtime had since the start (`sched.mnext`).
    pub threads_created: Value<u64>,
    /// Parked threads without work (`sched.nmidle`).
    pub threads_idle: Value<u64>,
    /// Parked threads that wait for the goroutine locked to them (`sched.nmidlelocked`).
    pub threads_idle_locked: Value<u64>,
    /// Threads that look for work (`sched.nmspinning`).
    pub threads_spinning: Value<u64>,
    /// Threads that hold a running processor.
    pub threads_running: Value<u64>,
    /// `GOMAXPROCS`.
    pub gomaxprocs: Value<u64>,
    /// Processors (P) by what they do.
    pub processors: Value<Processors>,
    /// Goroutines in the global run queue.
    pub run_queue_global: Value<u64>,
    /// Goroutines in the run queue of each processor, the one to run next among them.
    pub run_queue_local: Value<Vec<u64>>,
    /// Time goroutines waited for a `sync.Mutex` or `RWMutex`, and threads for locks of the
    /// runtime (these since Go 1.22), in nanoseconds (`/sync/mutex/wait/total`, since
    /// Go 1.20).
    pub mutex_wait_ns: Value<u64>,
    /// Times goroutines were runnable before they ran (`/sched/latencies`).
    pub latencies: Value<TimeHistogram>,
    /// Times from the wish to stop all threads for the collector until they stood
    /// (`/sched/pauses/stopping/gc`, since Go 1.22).
    pub pauses_stopping_gc: Value<TimeHistogram>,
    /// The same for other reasons (`/sched/pauses/stopping/other`, since Go 1.22).
    pub pauses_stopping_other: Value<TimeHistogram>,
    /// Whole pauses for other reasons than the collector (`/sched/pauses/total/other`, since
    /// Go 1.22); the collector's are [`super::Collector::pause_histogram`].
    pub pauses_other: Value<TimeHistogram>,
}

impl Scheduler {
    /// Goroutines that could run and do not: all run queues.
    pub fn run_queue(&self) -> Value<u64> {
        let local: u64 = self.run_queue_local.as_ref().map_err(Unknown::clone)?.iter().sum();
        Ok(local.saturating_add(self.run_queue_global.clone()?))
    }

    pub(crate) fn unknown(why: &Unknown) -> Self {
        Self {
            goroutines: Err(why.clone()),
            goroutines_system: Err(why.clone()),
            goroutines_created: Err(why.clone()),
            goroutines_without_processor: Err(why.clone()),
            threads: Err(why.clone()),
            threads_created: Err(why.clone()),
            threads_idle: Err(why.clone()),
            threads_idle_locked: Err(why.clone()),
            threads_spinning: Err(why.clone()),
            threads_running: Err(why.clone()),
            gomaxprocs: Err(why.clone()),
            processors: Err(why.clone()),
            run_queue_global: Err(why.clone()),
            run_queue_local: Err(why.clone()),
            mutex_wait_ns: Err(why.clone()),
            latencies: Err(why.clone()),
            pauses_stopping_gc: Err(why.clone()),
            pauses_stopping_other: Err(why.clone()),
            pauses_other: Err(why.clone()),
        }
    }
}

/// Processors (P) by status (`runtime/runtime2.go`, `_Pidle` and following).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processors {
    /// Without a thread.
    pub idle: u64,
    /// Of a thread that runs Go code or the scheduler; since Go 1.26 also in a short system
    /// call.
    pub running: u64,
    /// Of a thread in a system call (up to Go 1.25).
    pub syscall: u64,
    /// Stopped for the collector or another stop of the world.
    pub stopped: u64,
}

/// Goroutines by state; the runtime's own are among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoroutineStates {
    /// On a run queue.
    pub runnable: u64,
    /// Executing Go code.
    pub running: u64,
    /// In a system call or C.
    pub syscall: u64,
    /// Blocked; [`Self::waiting_by_reason`] says why.
    pub waiting: u64,
    /// In another state: just allocated, stack being moved, preempted, leaked.
    pub other: u64,
    /// Those waiting, by the runtime's name of the wait reason (`IO wait`, `select`), most
    /// frequent first; the name is empty when there is no reason or its name is not known.
    pub waiting_by_reason: Vec<(Arc<str>, u64)>,
    /// Descriptors whose memory could not be read.
    pub unreadable: u64,
}

impl GoroutineStates {
    /// All goroutines seen.
    pub fn total(&self) -> u64 {
        [self.runnable, self.running, self.syscall, self.waiting, self.other].iter().sum()
    }
}
