//! Reads the scheduler: `sched`, `allp`, `allm`.

use super::TimeHistogram;
use super::confirmed::{Confirmed, address};
use super::layout::{HistogramAt, Layouts, SchedLayout};
use super::pieces::{Pieces, View};
use super::processors::{self, ProcessorNow};
use super::reader::Reader;
use super::scheduler::{Processors, Scheduler};
use super::threads::{self, ThreadNow};
use super::unknown::{Unknown, Value};
use address::{Avma, ReadMemory as _};
use binary::globals::Global;

/// Pairs of readings before the last one is taken as it is.
const TRIES: usize = 6;

/// Threads followed beyond those that the scheduler counts: so many may be new.
const NEW_THREADS: u64 = 64;

/// What belongs together: goroutines go from one of these counts to another.
struct Moment {
    sched: Result<Vec<u8>, Unknown>,
    processors: Value<Vec<ProcessorNow>>,
    descriptors: Value<u64>,
}

/// What must be the same in two readings: all that goroutines are counted from.
#[derive(PartialEq)]
struct Counts {
    descriptors: Value<u64>,
    sched: Value<u64>,
    processors: Value<u64>,
}

impl Counts {
    fn read(reader: &Reader<'_>, layouts: &Layouts, found: &Confirmed) -> Self {
        let processors = || {
            let layout = layouts.processor.as_ref().map_err(Unknown::clone)?;
            processors::free(reader, address(&found.allp)?, layout)
        };
        let sched = || {
            let layout = layouts.sched.as_ref().map_err(Unknown::clone)?;
            let bytes = read_sched(reader, found, &layout.pieces)?;
            Ok(gone(layout.pieces.view(&bytes), layout))
        };
        Self { descriptors: descriptors(reader, found), sched: sched(), processors: processors() }
    }
}

/// What is read of the scheduler, and of its threads for others.
pub(super) struct Machine {
    pub(super) scheduler: Scheduler,
    pub(super) cgo_calls: Value<u64>,
    /// Pauses for the collector, since Go 1.22.
    pub(super) pauses_gc: Value<TimeHistogram>,
    /// Caches of processors.
    pub(super) caches: Value<Vec<Avma>>,
}

pub(super) fn read(reader: &Reader<'_>, layouts: &Layouts, found: &Confirmed) -> Machine {
    let mut before = Counts::read(reader, layouts, found);
    let mut moment = Moment::read(reader, layouts, found);
    for _ in 0..TRIES {
        let after = moment.counts(layouts);
        if before == after {
            break;
        }
        before = after;
        moment = Moment::read(reader, layouts, found);
        reader.again();
    }
    let threads = moment.threads(reader, layouts, found);
    let histograms = read_histograms(reader, layouts, found);
    let histogram = |of: fn(&SchedLayout) -> Option<HistogramAt>| -> Value<TimeHistogram> {
        let layout = layouts.sched.as_ref().map_err(Unknown::clone)?;
        let bytes = histograms.as_ref().map_err(Unknown::clone)?;
        let at = of(layout).ok_or(Unknown::NotInVersion)?;
        at.read(layout.histograms.view(bytes)).ok_or(Unknown::Implausible(Global::Sched.symbol()))
    };
    let mut scheduler = moment.scheduler(layouts, &threads);
    scheduler.latencies = histogram(|sched| sched.time_to_run);
    scheduler.pauses_stopping_gc = histogram(|sched| sched.stopping_gc);
    scheduler.pauses_stopping_other = histogram(|sched| sched.stopping_other);
    scheduler.pauses_other = histogram(|sched| sched.total_other);
    let caches = moment.processors.as_ref().map_err(Unknown::clone);
    Machine {
        scheduler,
        cgo_calls: cgo_calls(reader, found, &threads),
        pauses_gc: histogram(|sched| sched.total_gc),
        caches: caches.map(|all| all.iter().map(|p| Avma(p.mcache)).collect()),
    }
}

fn read_histograms(
    reader: &Reader<'_>,
    layouts: &Layouts,
    found: &Confirmed,
) -> Result<Vec<u8>, Unknown> {
    let layout = layouts.sched.as_ref().map_err(Unknown::clone)?;
    read_sched(reader, found, &layout.histograms)
}

fn read_sched(reader: &Reader<'_>, found: &Confirmed, pieces: &Pieces) -> Result<Vec<u8>, Unknown> {
    let unreadable = |_| Unknown::Unreadable(Global::Sched.symbol());
    reader.pieces(address(&found.sched)?, pieces).map_err(unreadable)
}

/// `runtime.NumCgoCall`: threads that are gone left theirs in a counter.
fn cgo_calls(
    reader: &Reader<'_>,
    found: &Confirmed,
    threads: &Value<Vec<ThreadNow>>,
) -> Value<u64> {
    let name = Global::CgoCalls.symbol();
    let gone =
        reader.read_word(address(&found.cgo_calls)?).map_err(|_| Unknown::Unreadable(name))?;
    let threads = threads.as_ref().map_err(Unknown::clone)?;
    Ok(threads.iter().fold(gone, |sum, thread| sum.wrapping_add(thread.cgo_calls)))
}

impl Moment {
    fn read(reader: &Reader<'_>, layouts: &Layouts, found: &Confirmed) -> Self {
        let sched = layouts.sched.as_ref().map_err(Unknown::clone);
        let processors = layouts.processor.as_ref().map_err(Unknown::clone);
        Self {
            descriptors: descriptors(reader, found),
            sched: sched.and_then(|layout| read_sched(reader, found, &layout.pieces)),
            processors: processors
                .and_then(|layout| processors::read(reader, address(&found.allp)?, layout)),
        }
    }

    fn counts(&self, layouts: &Layouts) -> Counts {
        Counts {
            descriptors: self.descriptors.clone(),
            sched: self.sched(layouts, gone),
            processors: self.free_of_processors(),
        }
    }

    fn free_of_processors(&self) -> Value<u64> {
        let all = self.processors.as_ref().map_err(Unknown::clone)?;
        Ok(all.iter().map(|p| p.gfree).sum())
    }

    fn sched<T>(&self, layouts: &Layouts, of: impl Fn(View<'_>, &SchedLayout) -> T) -> Value<T> {
        let layout = layouts.sched.as_ref().map_err(Unknown::clone)?;
        let bytes = self.sched.as_ref().map_err(Unknown::clone)?;
        Ok(of(layout.pieces.view(bytes), layout))
    }

    fn threads(
        &self,
        reader: &Reader<'_>,
        layouts: &Layouts,
        found: &Confirmed,
    ) -> Value<Vec<ThreadNow>> {
        let layout = layouts.thread.as_ref().map_err(Unknown::clone)?;
        let counted = self.sched(layouts, |sched, layout| {
            sched.word(layout.mnext).wrapping_sub(sched.word(layout.nmfreed))
        })?;
        threads::read(reader, address(&found.allm)?, layout, counted.saturating_add(NEW_THREADS))
    }

    fn scheduler(&self, layouts: &Layouts, threads: &Value<Vec<ThreadNow>>) -> Scheduler {
        let sched = |field: fn(&SchedLayout) -> u64| {
            self.sched(layouts, |sched, layout| u64::from(sched.half(field(layout))))
        };
        let all = self.processors.as_ref().map_err(Unknown::clone);
        let with_status = |status: u32| all.clone().map(|all| count(all, status));
        let processors = || {
            Ok(Processors {
                idle: with_status(0)?,
                running: with_status(1)?,
                syscall: with_status(2)?,
                stopped: with_status(3)?,
            })
        };
        let running = |p: &&ProcessorNow| p.status == 1 && p.m != 0;
        Scheduler {
            goroutines: self.goroutines(layouts),
            goroutines_system: sched(|sched| sched.ngsys),
            goroutines_created: self.created(layouts),
            goroutines_without_processor: self.without_processor(layouts),
            threads: self.sched(layouts, |sched, layout| {
                sched.word(layout.mnext).saturating_sub(sched.word(layout.nmfreed))
            }),
            threads_created: self.sched(layouts, |sched, layout| sched.word(layout.mnext)),
            threads_idle: sched(|sched| sched.nmidle),
            threads_idle_locked: sched(|sched| sched.nmidlelocked),
            threads_spinning: sched(|sched| sched.nmspinning),
            threads_running: all.clone().map(|all| all.iter().filter(running).count() as u64),
            gomaxprocs: all.clone().map(|all| all.len() as u64),
            processors: processors(),
            run_queue_global: sched(|sched| sched.runq_size),
            run_queue_local: all.clone().map(|all| all.iter().map(|p| p.queued).collect()),
            mutex_wait_ns: self.mutex_wait(layouts, threads),
            ..Scheduler::unknown(&Unknown::NotInVersion)
        }
    }

    /// `runtime.gcount`.
    fn goroutines(&self, layouts: &Layouts) -> Value<u64> {
        let gone = self.sched(layouts, gone)?.saturating_add(self.free_of_processors()?);
        // At least the one that would ask.
        Ok(self.descriptors.clone()?.saturating_sub(gone).max(1))
    }

    fn created(&self, layouts: &Layouts) -> Value<u64> {
        let processors = self.processors.as_ref().map_err(Unknown::clone)?;
        let of_gone = self.sched(layouts, |sched, layout| Some(sched.word(layout.created?)))?;
        let sum = |all: u64, p: &ProcessorNow| all.wrapping_add(p.created);
        Ok(processors.iter().fold(of_gone.ok_or(Unknown::NotInVersion)?, sum))
    }

    fn without_processor(&self, layouts: &Layouts) -> Value<u64> {
        let count =
            self.sched(layouts, |sched, layout| Some(sched.half(layout.no_processor?) as i32))?;
        // Negative for moments (`proc.go`).
        Ok(count.ok_or(Unknown::NotInVersion)?.max(0).unsigned_abs().into())
    }

    /// `runtime.totalMutexWaitTimeNanos`.
    fn mutex_wait(&self, layouts: &Layouts, threads: &Value<Vec<ThreadNow>>) -> Value<u64> {
        let (mutexes, locks) = self.sched(layouts, |sched, layout| {
            let word = |field: Option<u64>| field.map(|field| sched.word(field));
            (word(layout.mutex_wait), word(layout.lock_wait))
        })?;
        let mutexes = mutexes.ok_or(Unknown::NotInVersion)?;
        // Since Go 1.22 locks of the runtime count too, each thread for itself.
        let Some(locks) = locks else { return Ok(mutexes) };
        let threads = threads.as_ref().map_err(Unknown::clone)?;
        let sum = |all: u64, thread: &ThreadNow| all.wrapping_add(thread.lock_wait);
        Ok(threads.iter().fold(mutexes.wrapping_add(locks), sum))
    }
}

fn count(all: &[ProcessorNow], status: u32) -> u64 {
    all.iter().filter(|p| p.status == status).count() as u64
}

/// Number of goroutine descriptors there are.
fn descriptors(reader: &Reader<'_>, found: &Confirmed) -> Value<u64> {
    let list = found.goroutines.as_ref().map_err(Unknown::clone)?;
    let unreadable = |_| Unknown::Unreadable(Global::Allglen.symbol());
    reader.read_word(list.len_at()).map_err(unreadable)
}

/// Descriptors that the scheduler knows to be none of the program's: the runtime's own
/// goroutines, and dead ones that it keeps.
fn gone(sched: View<'_>, layout: &SchedLayout) -> u64 {
    let free = layout.gfree_no_stack.map_or(0, |field| sched.half(field));
    [sched.half(layout.ngsys), sched.half(layout.gfree_size), free]
        .iter()
        .map(|count| u64::from(*count))
        .sum()
}
