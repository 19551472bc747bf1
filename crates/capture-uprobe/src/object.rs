//! The BPF object: opened with the plan's numbers in it, loaded, its maps filled.

use crate::error::{from_io, from_libbpf};
use crate::features::create_map;
use crate::kernel::KernelVersion;
use crate::options::Options;
use crate::ring::RingLayout;
use capture::{Error, Request, Scope};
use libbpf_rs::{
    Map, MapCore as _, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramAttachType,
    ProgramMut,
};
use probe::RuntimeLayout;
use std::os::linux::fs::MetadataExt as _;
use std::sync::{Mutex, Once, PoisonError};

/// Compiled by the build script from `bpf/gospect.bpf.c`.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gospect.bpf.o"));

/// The program for sites without a fetch program.
pub(crate) const PLAIN: &str = "hit";
/// The program for sites with one.
pub(crate) const FETCHING: &str = "hit_fetch";
/// The program for [`Plan::g_changes`](probe::Plan::g_changes).
pub(crate) const CHANGES: &str = "g_changes";

/// Inode of the initial pid namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INITIAL_PIDNS: u64 = 0xEFFF_FFFC;

/// Thread groups the `targets` map holds at the least: with every process in scope.
const TARGETS: u32 = 16_384;

/// Where libbpf's messages go: a library prints nothing, but a refusal by the verifier
/// says why in them.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

const LOG_LINES: usize = 8;

fn keep_line(_level: PrintLevel, line: String) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    if log.len() >= LOG_LINES {
        log.remove(0);
    }
    // A verifier log is one message of megabytes; its end tells the reason.
    let line = line.trim_end();
    let start = line.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
    log.push(line[start..].to_owned());
}

/// Diverts libbpf's messages from stderr to the buffer errors are made of.
pub(crate) fn quiet_libbpf() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, keep_line)));
    });
}

/// Takes what libbpf said last.
pub(crate) fn take_log() -> String {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *log).join("; ")
}

/// Mirrors `struct config` of `bpf/wire.h`.
struct Config {
    layout: RuntimeLayout,
    every_process: bool,
    bounded_loop: bool,
    may_fault: bool,
    only_pid: u32,
    pidns: (u64, u64),
    wake_bytes: u64,
    ring_mask: u64,
}

impl Config {
    const SIZE: usize = 72;

    fn to_bytes(&self) -> Vec<u8> {
        let l = &self.layout;
        let mut bytes = Vec::with_capacity(Self::SIZE);
        for word in [l.g_goid, l.g_stack_hi, l.g_m, l.m_g0, l.m_curg] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        let switches = [self.every_process, self.bounded_loop, self.may_fault, false];
        bytes.extend(switches.map(u8::from));
        bytes.extend_from_slice(&u64::from(self.only_pid).to_le_bytes());
        bytes.extend_from_slice(&l.tls_g.to_le_bytes());
        for word in [self.pidns.0, self.pidns.1, self.wake_bytes, self.ring_mask] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// Device and inode of our own pid namespace, in which the request's pids are meant;
/// zeros in the initial one, where the kernel's own numbers are the same.
fn own_pidns() -> Result<(u64, u64), Error> {
    let meta = std::fs::metadata("/proc/self/ns/pid")
        .map_err(|e| from_io("read our own pid namespace", e))?;
    if meta.st_ino() == INITIAL_PIDNS {
        return Ok((0, 0));
    }
    Ok((meta.st_dev(), meta.st_ino()))
}

/// What of the object is needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Multi links, rather than a perf event per site.
    pub(crate) multi: bool,
    /// [`FETCHING`], which takes the verifier most of its time.
    pub(crate) fetching: bool,
    /// [`CHANGES`].
    pub(crate) changes: bool,
}

/// The rings for `total` bytes here. Older kernels take no map value larger than an allocation
/// (array_map_alloc_check, kernel/bpf/arraymap.c), 4 MiB.
fn ring_layout(total: usize) -> RingLayout {
    // SAFETY: takes a number, gives one.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    RingLayout::new(total, usize::try_from(cpus).unwrap_or(1), |size| {
        size <= 4 << 20 || create_map(libbpf_sys::BPF_MAP_TYPE_ARRAY, 4, size, 1).is_ok()
    })
}

/// Loads the programs for `request` and fills their maps.
pub(crate) fn load(request: &Request<'_>, options: Options, needs: Needs) -> Result<Object, Error> {
    quiet_libbpf();
    let mut open = ObjectBuilder::default()
        .open_memory(OBJECT)
        .map_err(|e| from_libbpf("open the BPF object", &e))?;
    configure(&mut open, request, options, needs.multi)?;
    for mut program in open.progs_mut() {
        let name = program.name().to_owned();
        if name == FETCHING || name == CHANGES {
            program.set_autoload(if name == FETCHING { needs.fetching } else { needs.changes });
        }
    }
    let object = open.load().map_err(|e| from_libbpf("load the BPF programs", &e))?;
    fill(&object, request)?;
    Ok(object)
}

fn configure(
    open: &mut OpenObject,
    request: &Request<'_>,
    options: Options,
    multi: bool,
) -> Result<(), Error> {
    let rings = ring_layout(request.ring_bytes);
    let only_pid = match &request.scope {
        Scope::Pids(pids) => <[u32; 1]>::try_from(pids.as_slice()).map_or(0, |[pid]| pid),
        Scope::EveryProcess => 0,
    };
    let may_fault = multi || KernelVersion::running() >= KernelVersion::SLEEPABLE_UPROBE;
    let config = Config {
        may_fault,
        only_pid,
        layout: request.plan.runtime,
        every_process: request.scope == Scope::EveryProcess,
        bounded_loop: options.bounded_loop,
        pidns: own_pidns()?,
        wake_bytes: u64::from(rings.bytes / 4),
        ring_mask: u64::from(rings.bytes - 1),
    };
    let entries = |len: usize| u32::try_from(len.max(1)).unwrap_or(u32::MAX);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let set = match name.as_str() {
            "sites" => map.set_max_entries(entries(request.plan.sites.len())),
            "ops" => map.set_max_entries(entries(request.plan.ops.len())),
            "rings" => map
                .set_max_entries(rings.count)
                .and_then(|()| map.set_value_size(rings.value_size())),
            "targets" => match &request.scope {
                Scope::Pids(pids) => map.set_max_entries(entries(pids.len()).max(TARGETS)),
                Scope::EveryProcess => map.set_max_entries(TARGETS),
            },
            name if name.ends_with(".config") => map.set_initial_value(&config.to_bytes()),
            _ => Ok(()),
        };
        set.map_err(|e| from_libbpf(&format!("set up the BPF map {name}"), &e))?;
    }
    for mut program in open.progs_mut().filter(|p| p.name().to_string_lossy().starts_with("hit")) {
        if !multi {
            // A program for multi links cannot be attached to a perf event.
            program.set_attach_type(ProgramAttachType::CgroupInetIngress);
        }
        if !may_fault {
            // Not sleepable either.
            program.set_flags(0);
        }
    }
    Ok(())
}

fn fill(object: &Object, request: &Request<'_>) -> Result<(), Error> {
    let sites: Vec<_> = request.plan.sites.iter().map(|s| s.config().to_bytes()).collect();
    fill_array(&find_map(object, "sites")?, &sites)?;
    let ops: Vec<_> = request.plan.ops.iter().map(|op| op.to_bytes()).collect();
    fill_array(&find_map(object, "ops")?, &ops)?;
    share_rings(object)?;
    if let Scope::Pids(pids) = &request.scope {
        let targets = find_map(object, "targets")?;
        for pid in pids {
            targets
                .update(&pid.to_ne_bytes(), &[1], MapFlags::ANY)
                .map_err(|e| from_libbpf("name the target processes to the BPF program", &e))?;
        }
    }
    Ok(())
}

/// Tells each CPU its ring, `ring` of `struct cpu` in `bpf/wire.h`.
fn share_rings(object: &Object) -> Result<(), Error> {
    let rings = find_map(object, "rings")?.max_entries();
    let cpus = find_map(object, "cpus")?;
    let possible = libbpf_rs::num_possible_cpus().map_err(|e| from_libbpf("count the CPUs", &e))?;
    let values = (0u32..).take(possible).map(|cpu| {
        let mut value = (cpu % rings.max(1)).to_ne_bytes().to_vec();
        value.resize(cpus.value_size() as usize, 0);
        value
    });
    cpus.update_percpu(&0u32.to_ne_bytes(), &values.collect::<Vec<_>>(), MapFlags::ANY)
        .map_err(|e| from_libbpf("share the rings among the CPUs", &e))
}

fn fill_array<const N: usize>(map: &Map<'_>, values: &[[u8; N]]) -> Result<(), Error> {
    if values.is_empty() {
        return Ok(());
    }
    let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
    let keys: Vec<u8> = (0..count).flat_map(u32::to_ne_bytes).collect();
    map.update_batch(&keys, values.as_flattened(), count, MapFlags::ANY, MapFlags::ANY)
        .map_err(|e| from_libbpf("fill the tables of the BPF program", &e))
}

/// The map `name`, which the object has by construction.
pub(crate) fn find_map<'a>(object: &'a Object, name: &str) -> Result<Map<'a>, Error> {
    object.maps().find(|m| m.name() == name).ok_or_else(|| missing("map", name))
}

/// The program `name`, which the object has by construction.
pub(crate) fn find_program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, Error> {
    object.progs_mut().find(|p| p.name() == name).ok_or_else(|| missing("program", name))
}

fn missing(kind: &str, name: &str) -> Error {
    let source = std::io::Error::new(std::io::ErrorKind::NotFound, name.to_owned());
    Error::Failed { what: format!("find the BPF {kind} {name}"), source: Box::new(source) }
}
