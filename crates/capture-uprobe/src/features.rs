//! What this system offers the backend, tried rather than guessed, for `doctor`.

use crate::error::{PERMISSION_HINT, os_error};
use crate::kernel::KernelVersion;
use crate::object::{self, Needs};
use crate::options::Options;
use capture::{Error, Request, Scope};
use libbpf_rs::{Object, ProgramType, UprobeMultiOpts};
use probe::Plan;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::Path;

/// Whether something works, or why not.
pub type Outcome = Result<(), String>;

/// What the uprobe backend needs, and what of it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// The running kernel.
    pub kernel: KernelVersion,
    /// The kernel is not too old.
    pub kernel_version: Outcome,
    /// The bpf system call is there and we may use it.
    pub bpf: Outcome,
    /// The kernel describes its types (BTF), which the programs are adapted by.
    pub btf: Outcome,
    /// The BPF ring buffer.
    pub ring_buffer: Outcome,
    /// The helper that runs fetch programs; without it a bounded loop does.
    pub bpf_loop: Outcome,
    /// Our programs pass the verifier.
    pub programs: Outcome,
    /// Thousands of sites at once; without it each is a perf event.
    pub uprobe_multi: Outcome,
    /// Uprobes by perf events.
    pub perf_uprobe: Outcome,
}

impl Features {
    /// Every feature with a name for people.
    pub fn list(&self) -> [(&'static str, &Outcome); 8] {
        [
            ("kernel version", &self.kernel_version),
            ("bpf system call", &self.bpf),
            ("kernel BTF", &self.btf),
            ("BPF ring buffer", &self.ring_buffer),
            ("bpf_loop", &self.bpf_loop),
            ("BPF programs", &self.programs),
            ("uprobe.multi", &self.uprobe_multi),
            ("perf uprobes", &self.perf_uprobe),
        ]
    }
}

/// Tries everything out; changes nothing that outlives the call.
pub fn probe_features() -> Features {
    object::quiet_libbpf();
    let kernel = KernelVersion::running();
    let loaded = load();
    Features {
        kernel,
        kernel_version: if kernel >= KernelVersion::OLDEST {
            Ok(())
        } else {
            Err(format!("{kernel}, {} or newer is needed", KernelVersion::OLDEST))
        },
        bpf: create_map(libbpf_sys::BPF_MAP_TYPE_ARRAY, 4, 4, 1),
        btf: exists(
            "/sys/kernel/btf/vmlinux",
            "the kernel was built without CONFIG_DEBUG_INFO_BTF",
        ),
        ring_buffer: create_map(libbpf_sys::BPF_MAP_TYPE_RINGBUF, 0, 0, 4096),
        bpf_loop: match ProgramType::Kprobe.is_helper_supported(libbpf_sys::BPF_FUNC_loop) {
            Ok(true) => Ok(()),
            Ok(false) => Err("missing (Linux 5.17 has it), or no permission to try".to_owned()),
            Err(error) => Err(error.to_string()),
        },
        uprobe_multi: loaded.as_ref().map_err(Clone::clone).and_then(try_multi),
        programs: loaded.map(drop),
        perf_uprobe: exists(
            "/sys/bus/event_source/devices/uprobe/type",
            "the kernel was built without CONFIG_UPROBE_EVENTS, or /sys is hidden",
        ),
    }
}

fn exists(path: &str, otherwise: &str) -> Outcome {
    if Path::new(path).exists() { Ok(()) } else { Err(format!("no {path}: {otherwise}")) }
}

/// Whether the kernel makes such a map; it is gone again.
pub(crate) fn create_map(kind: u32, key_size: u32, value_size: u32, entries: u32) -> Outcome {
    // SAFETY: the name is a C string literal, and null options are allowed.
    let fd = unsafe {
        libbpf_sys::bpf_map_create(
            kind,
            c"probe".as_ptr(),
            key_size,
            value_size,
            entries,
            std::ptr::null(),
        )
    };
    if fd >= 0 {
        // SAFETY: the kernel just made this descriptor for us.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        return Ok(());
    }
    Err(match -fd {
        libc::EPERM => format!("no permission: {PERMISSION_HINT}"),
        libc::ENOSYS => {
            "the kernel has no bpf system call, or a seccomp filter hides it".to_owned()
        }
        libc::EINVAL => "the kernel does not know it".to_owned(),
        code => std::io::Error::from_raw_os_error(code).to_string(),
    })
}

fn load() -> Result<Object, String> {
    let request = Request {
        plan: &Plan::default(),
        path: "/proc/self/exe".into(),
        scope: Scope::Pids(Vec::new()),
        ring_bytes: 4096,
    };
    let needs = Needs { multi: true, fetching: true, changes: true };
    object::load(&request, Options::default(), needs).map_err(|error| match error {
        Error::Failed { what, source } => format!("failed to {what}: {source}"),
        other => other.to_string(),
    })
}

/// A kernel that knows multi links finds that `/` is no regular file (EBADF); another one
/// does not get that far.
fn try_multi(object: &Object) -> Outcome {
    let program = object::find_program(object, object::PLAIN).map_err(|e| e.to_string())?;
    let opts = UprobeMultiOpts { offsets: vec![0], cookies: vec![0], ..UprobeMultiOpts::default() };
    match program.attach_uprobe_multi_with_opts(-1, "/", "", opts) {
        Ok(_) => Ok(()),
        Err(error) if os_error(&error) == Some(libc::EBADF) => Ok(()),
        Err(error) => Err(format!("{} has it; here: {error}", KernelVersion::UPROBE_MULTI)),
    }
}
