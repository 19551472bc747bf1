//! Other processes with the same memory: vfork children that have not become a program yet, and
//! what `clone` with CLONE_VM alone makes. They run the target's text and are not among its
//! threads, so no stop reaches them.

use super::sys;
use std::fs;

/// A process that shares the memory of `pid`.
pub(crate) fn find(pid: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?;
    let mut others = processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&other| other != pid);
    let mut own = None;
    others.find(|&other| match sys::same_memory(pid, other) {
        Ok(same) => same,
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            looks_same(own.get_or_insert_with(|| Shape::of(pid)), other)
        }
        // Of another user, or gone.
        Err(_) => false,
    })
}

/// Where a process's memory has what, from `/proc/PID/stat` (proc_pid_stat(5)): size, code, stack,
/// data, heap, arguments, environment.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    pid: u32,
    numbers: Vec<u64>,
}

impl Shape {
    fn of(pid: u32) -> Self {
        const FIELDS: [usize; 11] = [23, 26, 27, 28, 45, 46, 47, 48, 49, 50, 51];
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        // The third field comes first here.
        let all: Vec<&str> = rest.split_whitespace().collect();
        let number = |field: usize| all.get(field - 3).and_then(|text| text.parse().ok());
        Self { pid, numbers: FIELDS.into_iter().filter_map(number).collect() }
    }

    /// Kernel threads, zombies and processes of others show nothing.
    fn is_known(&self) -> bool {
        self.numbers.get(3).is_some_and(|&stack| stack != 0)
    }
}

/// Whether `other` looks as if it had the memory of `own`, for kernels without kcmp. A forked child that
/// has changed no mapping looks so too: a refusal too many, and no missing one.
fn looks_same(own: &Shape, other: u32) -> bool {
    let shape = Shape::of(other);
    let maps = |pid| fs::read(format!("/proc/{pid}/maps")).ok();
    shape.is_known() && shape.numbers == own.numbers && maps(own.pid) == maps(other)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Blocked;
    use super::*;

    #[test]
    fn root_a_vfork_child_is_found_with_and_without_kcmp() {
        let blocked = Blocked::start();
        let pid = blocked.pid();
        let child = find(pid).unwrap();
        let parent = fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
        let parent = parent.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().to_owned();
        assert_eq!(parent, pid.to_string());
        let own = Shape::of(pid);
        assert!(own.is_known() && looks_same(&own, child));
        // Neither we nor its grandparent look like it.
        assert!(!looks_same(&own, std::process::id()) && !looks_same(&own, 1));
        assert_eq!(find(std::process::id()), None);
        blocked.finish();
    }
}
