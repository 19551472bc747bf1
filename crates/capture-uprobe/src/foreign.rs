//! Uprobes that others have in a file.

use address::FileOffset;
use libbpf_rs::query::{LinkInfo, LinkTypeInfo, PerfEventType, ProgInfoIter};
use std::ffi::{CStr, OsStr};
use std::fmt;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Links looked at before giving up: more than any machine has.
const MAX_LINKS: usize = 100_000;

/// A uprobe in a file, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignUprobe {
    /// Where in the file; `None` when the kernel does not say.
    pub offset: Option<FileOffset>,
    /// Who put it there, as far as the kernel tells.
    pub owner: String,
}

impl fmt::Display for ForeignUprobe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "a uprobe at file offset 0x{offset:x}, by {}", self.owner),
            None => write!(f, "a uprobe by {}", self.owner),
        }
    }
}

/// Uprobes in the file `path` that the kernel tells of: BPF links, perf events with a BPF
/// program, and those of tracefs. Ours are among them while they are installed. Without
/// privileges nothing is found.
pub fn foreign_uprobes(path: &Path) -> Vec<ForeignUprobe> {
    crate::object::quiet_libbpf();
    let Ok(meta) = std::fs::metadata(path) else { return Vec::new() };
    let file = (meta.dev(), meta.ino());
    let mut found = of_links(file);
    // The event behind a link of that kind is the same uprobe.
    let known: Vec<_> = found.iter().map(|probe| probe.offset).collect();
    found.extend(of_perf_events(file).into_iter().filter(|probe| !known.contains(&probe.offset)));
    found.extend(of_tracefs(file));
    found
}

fn is_file(name: &Path, file: (u64, u64)) -> bool {
    std::fs::metadata(name).is_ok_and(|meta| (meta.dev(), meta.ino()) == file)
}

fn of_links(file: (u64, u64)) -> Vec<ForeignUprobe> {
    let mut found = Vec::new();
    let mut id = 0;
    for _ in 0..MAX_LINKS {
        // SAFETY: writes one number to `id`.
        if unsafe { libbpf_sys::bpf_link_get_next_id(id, &raw mut id) } != 0 {
            break;
        }
        // SAFETY: takes a number.
        let fd = unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) };
        if fd < 0 {
            continue;
        }
        // SAFETY: the kernel just made this descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let Ok(info) = LinkInfo::from_fd(fd.as_fd()) else { continue };
        let offsets = match info.info {
            LinkTypeInfo::UprobeMulti(multi) => match multi.path {
                Some(name) if is_file(&name, file) => multi.offsets,
                _ => continue,
            },
            LinkTypeInfo::PerfEvent(perf) => match perf.event_type {
                PerfEventType::Uprobe { file_name: Some(name), offset, .. }
                    if is_file(Path::new(&name), file) =>
                {
                    vec![u64::from(offset)]
                }
                _ => continue,
            },
            _ => continue,
        };
        let owner = format!("BPF link {id}, program {}", program_name(info.prog_id));
        found.extend(offsets.into_iter().map(|offset| ForeignUprobe {
            offset: Some(FileOffset(offset)),
            owner: owner.clone(),
        }));
    }
    found
}

fn program_name(id: u32) -> String {
    let info = ProgInfoIter::default().find(|program| program.id == id);
    let name = info.map(|program| program.name.to_string_lossy().into_owned());
    name.map_or_else(|| id.to_string(), |name| format!("{id} `{name}`"))
}

/// Perf events that carry a BPF program without a link: bpftrace and bcc make such.
fn of_perf_events(file: (u64, u64)) -> Vec<ForeignUprobe> {
    let mut found = Vec::new();
    for pid in numbers("/proc") {
        let dir = format!("/proc/{pid}/fd");
        for fd in numbers(&dir) {
            let link = std::fs::read_link(format!("{dir}/{fd}"));
            if !link.is_ok_and(|name| name.as_os_str() == "anon_inode:[perf_event]") {
                continue;
            }
            if let Some((name, offset)) = query_event(pid, fd)
                && is_file(Path::new(OsStr::from_bytes(name.to_bytes())), file)
            {
                let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                found.push(ForeignUprobe {
                    offset: Some(FileOffset(offset)),
                    owner: format!("process {pid} ({})", comm.trim_end()),
                });
            }
        }
    }
    found
}

fn numbers(dir: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// File and offset of the uprobe behind descriptor `fd` of process `pid`.
fn query_event(pid: u32, fd: u32) -> Option<(std::ffi::CString, u64)> {
    let mut name = [0u8; libc::PATH_MAX as usize];
    let mut len = u32::try_from(name.len()).ok()?;
    let (mut program, mut kind, mut offset, mut address) = (0u32, 0u32, 0u64, 0u64);
    // SAFETY: the kernel writes at most `len` bytes to `name` and a number to each of the others.
    let code = unsafe {
        libbpf_sys::bpf_task_fd_query(
            i32::try_from(pid).ok()?,
            i32::try_from(fd).ok()?,
            0,
            name.as_mut_ptr().cast(),
            &raw mut len,
            &raw mut program,
            &raw mut kind,
            &raw mut offset,
            &raw mut address,
        )
    };
    if code != 0 || kind != libbpf_sys::BPF_FD_TYPE_UPROBE {
        return None;
    }
    Some((CStr::from_bytes_until_nul(&name).ok()?.to_owned(), offset))
}

/// Lines such as `p:probe_app/main /srv/app:0x0000000000001234`.
fn of_tracefs(file: (u64, u64)) -> Vec<ForeignUprobe> {
    let text = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .iter()
        .find_map(|dir| std::fs::read_to_string(format!("{dir}/uprobe_events")).ok())
        .unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (event, place) = (words.next()?, words.next()?);
            let (name, offset) = place.rsplit_once(':')?;
            let digits = offset.split('(').next()?.strip_prefix("0x")?;
            let offset = u64::from_str_radix(digits, 16).ok()?;
            is_file(Path::new(name), file).then(|| ForeignUprobe {
                offset: Some(FileOffset(offset)),
                owner: format!("tracefs event {event}"),
            })
        })
        .collect()
}
