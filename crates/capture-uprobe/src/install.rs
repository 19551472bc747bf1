//! An installed plan: attach, read, count, detach.

use crate::attach::{self, Links, MAX_PERF_SITES, MAX_SITES, SkippedSite, Target};
use crate::error::{from_io, from_libbpf};
use crate::kernel::KernelVersion;
use crate::object::{self, CHANGES, FETCHING, Needs, PLAIN, find_map, find_program};
use crate::options::Options;
use crate::order::{Clock, Reader};
use crate::ring::{Bell, RingLayout, Rings};
use address::FileOffset;
use capture::{Capture, Counters, Error, Request, Scope};
use libbpf_rs::{Link, MapCore as _, MapFlags, Object, UprobeMultiOpts};
use rustix::event::epoll;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use wire::HEADER_SIZE;

/// How long records gather before they are looked at, unless the ring fills up first. A
/// wake-up per record costs the target more than the record.
const GATHER: Duration = Duration::from_millis(5);

/// Records handed over by one `poll` at the most.
const POLL_BUDGET: usize = 65_536;

/// A plan on the sites of an executable, by uprobes.
#[derive(Debug)]
pub struct UprobeCapture {
    // In the order they have to go: links before the object whose programs they hold.
    links: Links,
    /// On all the while that hits rely on what earlier ones found: last off.
    changes: Option<Link>,
    process_events: Vec<Link>,
    object: Object,
    /// The program for sites with a fetch program is loaded.
    fetching: bool,
    reader: Reader,
    bell: Bell,
    epoll: OwnedFd,
    /// The last poll ended at its budget: more is waiting.
    more_waiting: bool,
    /// See [`Capture::rest_up_to`].
    gather: Duration,
    attached: bool,
    skipped: Vec<SkippedSite>,
    notes: Vec<String>,
}

impl UprobeCapture {
    /// Loads the programs and puts them on every site of the request's plan. Hits count from
    /// the moment all sites are in place.
    ///
    /// Process ids are those of our own pid namespace. With one process in scope its id must
    /// exist already (it may be about to execve the image).
    ///
    /// Errors: [`Error::Unsupported`] for kernels before 5.17 and plans too large for perf links,
    /// [`Error::Permission`], [`Error::ProcessGone`], [`Error::Failed`].
    pub fn install(request: &Request<'_>, options: Options) -> Result<Self, Error> {
        Self::install_with(request, options, true)
    }

    /// The same without an eye on execve and the end of processes.
    pub(crate) fn install_sites(request: &Request<'_>, options: Options) -> Result<Self, Error> {
        Self::install_with(request, options, false)
    }

    fn install_with(
        request: &Request<'_>,
        options: Options,
        process_events: bool,
    ) -> Result<Self, Error> {
        let kernel = KernelVersion::running();
        check_kernel(kernel, options)?;
        check_size(request.plan.sites.len())?;
        let multi = kernel >= KernelVersion::UPROBE_MULTI && !options.perf_link;
        let notes = if multi { Vec::new() } else { vec![perf_note(request.plan.sites.len())?] };
        let fetching = request.plan.sites.iter().any(attach::needs_fetching);
        // On a perf event the kernel may leave out a hit of one program during another's.
        let changes = multi && !options.read_g_always && !request.plan.g_changes.is_empty();
        let object = object::load(request, options, Needs { multi, fetching, changes })?;
        let reader = map_rings(&object)?;
        let bell_map = find_map(&object, "bell")?;
        let bell = Bell::new(bell_map.as_fd());
        let bell = bell.map_err(|e| from_io("map the BPF ring buffer", e))?;
        let epoll = watch(&bell_map).map_err(|e| from_io("watch the BPF ring buffer", e))?;
        let process_events =
            if process_events { attach_process_events(&object)? } else { Vec::new() };
        let (path, name) = (with_directory(&request.path), request.name());
        let target = Target {
            plain: &find_program(&object, PLAIN)?,
            fetching: &find_program(&object, if fetching { FETCHING } else { PLAIN })?,
            path: &path,
            name: &name,
            pid: pid_filter(&request.scope, kernel, multi),
            multi,
            callers: !options.without_callers,
        };
        let changes = changes
            .then(|| attach_changes(&object, &target, &request.plan.g_changes))
            .transpose()?;
        let (links, skipped) = attach::attach_plan(&target, request.plan)?;
        set_gate(&object, true, changes.as_ref().is_some_and(Option::is_some))?;
        Ok(Self {
            links,
            changes: changes.flatten(),
            process_events,
            object,
            fetching,
            reader,
            bell,
            epoll,
            more_waiting: false,
            gather: GATHER,
            attached: true,
            skipped,
            notes,
        })
    }

    /// Sites that are not watched because the kernel refused one of their function.
    pub fn skipped_sites(&self) -> &[SkippedSite] {
        &self.skipped
    }

    /// What a person should know about this installation, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Waits for a wake-up, at most `timeout`.
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let timeout = rustix::event::Timespec::try_from(timeout).ok();
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 1];
        match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {
                self.bell.silence();
                Ok(())
            }
            Err(error) => Err(from_io("wait for records", error.into())),
        }
    }
}

impl Capture for UprobeCapture {
    fn backend(&self) -> &'static str {
        crate::NAME
    }

    fn poll(&mut self, timeout: Duration, sink: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let left =
                deadline.map_or(self.gather, |d| d.saturating_duration_since(Instant::now()));
            if self.attached && !self.more_waiting && !left.is_zero() {
                self.wait(left.min(self.gather))?;
            }
            let object = &self.object;
            // Without the counts, what follows in a ring tells of what was lost.
            let lost = || -> Vec<u32> {
                let per_cpu = counters_of(object).unwrap_or_default();
                per_cpu.iter().map(|cpu| word(cpu, LOST) as u32).collect()
            };
            let (handed, more) = self.reader.consume(POLL_BUDGET, !self.attached, lost, sink);
            self.more_waiting = more;
            let over = deadline.is_some_and(|d| Instant::now() >= d);
            if handed > 0 || over || !self.attached {
                return Ok(handed);
            }
        }
    }

    fn rest_up_to(&mut self, longest: Duration) {
        self.gather = longest.max(GATHER);
    }

    fn counters(&self) -> Result<Counters, Error> {
        let per_cpu = counters_of(&self.object)?;
        let mut counters = Counters::default();
        let mut payloads = 0;
        for cpu in per_cpu {
            counters.lost += word(&cpu, LOST);
            counters.foreign += word(&cpu, 16);
            payloads += word(&cpu, 24);
            counters.rejected += word(&cpu, 32);
        }
        // What is reserved is a header for each record, and the payloads.
        counters.produced = self.reader.reserved().saturating_sub(payloads) / HEADER_SIZE as u64;
        for program in [PLAIN, FETCHING].iter().take(1 + usize::from(self.fetching)) {
            counters.lost += recursion_misses(&self.object, program)?;
        }
        Ok(counters)
    }

    fn detach(&mut self) -> Result<(), Error> {
        // Taking probes off a busy program takes a while, in which nobody reads the rings: all sites
        // end at this moment, and what comes later is no loss.
        if self.attached {
            set_gate(&self.object, false, false)?;
        }
        self.links.entries.clear();
        self.links.others.clear();
        self.changes = None;
        self.process_events.clear();
        self.attached = false;
        Ok(())
    }
}

/// Of the lost records, in what the program counts for a CPU (`struct cpu` in `bpf/wire.h`).
const LOST: usize = 8;

/// What the program counts, for each CPU.
fn counters_of(object: &Object) -> Result<Vec<Vec<u8>>, Error> {
    let per_cpu = find_map(object, "cpus")?
        .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|e| from_libbpf("read the counters of the BPF program", &e))?;
    Ok(per_cpu.unwrap_or_default())
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    word.map_or(0, u64::from_ne_bytes)
}

fn check_kernel(kernel: KernelVersion, options: Options) -> Result<(), Error> {
    let unsupported = |needs: String, have: String| {
        Err(Error::Unsupported { feature: "the uprobe backend", needs, have })
    };
    if options.no_bpf {
        return unsupported("BPF".to_owned(), "none (forced)".to_owned());
    }
    if kernel < KernelVersion::OLDEST {
        let have = format!("{kernel} (from uname)");
        return unsupported(format!("{} or newer", KernelVersion::OLDEST), have);
    }
    Ok(())
}

fn check_size(sites: usize) -> Result<(), Error> {
    if sites <= MAX_SITES {
        return Ok(());
    }
    Err(Error::Unsupported {
        feature: "a plan of this size",
        needs: format!("at most {MAX_SITES} sites"),
        have: format!("{sites}: trace fewer functions"),
    })
}

/// Refuses what would take hours, and says what the rest costs.
fn perf_note(sites: usize) -> Result<String, Error> {
    if sites > MAX_PERF_SITES {
        return Err(Error::Unsupported {
            feature: "a plan of this size",
            needs: format!("{} or newer (uprobe.multi)", KernelVersion::UPROBE_MULTI),
            have: format!(
                "perf events, which take about 0.1 s per site to remove: {sites} sites, at most \
                 {MAX_PERF_SITES} accepted"
            ),
        });
    }
    Ok(format!(
        "{sites} sites are probed by one perf event each: removing them takes about {} s ({} or \
         newer does it at once)",
        sites.div_ceil(9),
        KernelVersion::UPROBE_MULTI
    ))
}

/// The process the kernel shall filter by, -1 for none; the program checks in any case.
fn pid_filter(scope: &Scope, kernel: KernelVersion, multi: bool) -> i32 {
    match scope {
        Scope::Pids(pids) if !multi || kernel >= KernelVersion::MULTI_PID_FILTER => {
            match pids[..] {
                [pid] => i32::try_from(pid).unwrap_or(-1),
                _ => -1,
            }
        }
        _ => -1,
    }
}

/// The only process whose code the kernel puts breakpoints into for such a capture; `None` when it
/// puts them into every process that runs the file, though only hits of those in scope count.
pub fn only_process(scope: &Scope, options: Options) -> Option<u32> {
    let kernel = KernelVersion::running();
    let multi = kernel >= KernelVersion::UPROBE_MULTI && !options.perf_link;
    u32::try_from(pid_filter(scope, kernel, multi)).ok()
}

/// libbpf looks a bare name up in PATH.
fn with_directory(path: &Path) -> std::path::PathBuf {
    if path.components().count() == 1 { Path::new(".").join(path) } else { path.to_owned() }
}

fn attach_process_events(object: &Object) -> Result<Vec<Link>, Error> {
    [("process_exec", "sched_process_exec"), ("process_exit", "sched_process_exit")]
        .into_iter()
        .map(|(program, tracepoint)| {
            find_program(object, program)?
                .attach_raw_tracepoint(tracepoint)
                .map_err(|e| from_libbpf(&format!("attach to the tracepoint {tracepoint}"), &e))
        })
        .collect()
}

/// Watches where a g may change; `None` when the kernel refuses a place, and hits must not rely
/// on what earlier ones found.
fn attach_changes(
    object: &Object,
    target: &Target<'_>,
    places: &[FileOffset],
) -> Result<Option<Link>, Error> {
    let program = find_program(object, CHANGES)?;
    let offsets = places.iter().map(|place| usize::try_from(place.0).unwrap_or(usize::MAX));
    let opts = UprobeMultiOpts { offsets: offsets.collect(), ..UprobeMultiOpts::default() };
    Ok(program.attach_uprobe_multi_with_opts(target.pid, target.path, "", opts).ok())
}

/// Opens or closes the gate all sites wait behind. `changes`: those of g are watched.
fn set_gate(object: &Object, open: bool, changes: bool) -> Result<(), Error> {
    let bss = object
        .maps()
        .find(|m| m.name().to_string_lossy().ends_with(".bss"))
        .map_or_else(|| find_map(object, ".bss"), Ok)?;
    let mut value = vec![0; bss.value_size() as usize];
    // `struct gate` of `bpf/seen.h`: active at 0, era at 8.
    if let Some(active) = value.get_mut(0) {
        *active = u8::from(open);
    }
    if let Some(era) = value.get_mut(8) {
        *era = u8::from(changes);
    }
    bss.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
        .map_err(|e| from_libbpf("start or stop the BPF program", &e))
}

fn map_rings(object: &Object) -> Result<Reader, Error> {
    let map = find_map(object, "rings")?;
    let layout = RingLayout::of_map(map.max_entries(), map.value_size());
    let rings = Rings::new(map.as_fd(), layout).map_err(|e| from_io("map the rings", e))?;
    Ok(Reader::new(rings, Clock::new()))
}

/// Edge-triggered: the ring is readable whenever a record waits, but only a wake-up is news.
fn watch(ring: &libbpf_rs::Map<'_>) -> std::io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, ring.as_fd(), epoll::EventData::new_u64(0), flags)?;
    Ok(epoll)
}

/// Hits for which the kernel did not run the program, because it ran already on that CPU.
fn recursion_misses(object: &Object, program: &str) -> Result<u64, Error> {
    let program = find_program(object, program)?;
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = u32::try_from(size_of_val(&info)).unwrap_or(u32::MAX);
    // SAFETY: the descriptor is open as long as `object`; `info` is a plain structure of `len`
    // bytes, and all its pointers are null, which asks for no arrays.
    let code = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(
            program.as_fd().as_raw_fd(),
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    if code != 0 {
        let error = std::io::Error::from_raw_os_error(-code);
        return Err(from_io("ask how many hits the kernel skipped", error));
    }
    Ok(info.recursion_misses)
}
