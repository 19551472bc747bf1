//! How much memory a process may still get from its control groups.
//!
//! A page that a tracer makes the kernel copy for a process is charged to the process's group, and a
//! group that is at its limit has one of its processes killed.

use std::fs;
use std::path::{Path, PathBuf};

/// The group with the least room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRoom {
    /// Bytes that can be had before something must be killed; what files cache counts as free.
    pub bytes: u64,
    /// The group's directory.
    pub group: PathBuf,
}

/// The two versions of the interface (Documentation/admin-guide/cgroup-v1/memory.rst and
/// cgroup-v2.rst): limit, usage, and in `memory.stat` the cached files, of the group with all below.
struct Names {
    limit: &'static str,
    usage: &'static str,
    cached: [&'static str; 2],
}

const V2: Names = Names {
    limit: "memory.max",
    usage: "memory.current",
    cached: ["inactive_file", "active_file"],
};

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cached: ["total_inactive_file", "total_active_file"],
};

/// The least room of all memory groups that `pid` is in; `None` when none has a limit, or none can
/// be read.
#[must_use]
pub fn memory_room(pid: u32) -> Option<MemoryRoom> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    least(&groups, &mounts)
}

fn least(groups: &str, mounts: &str) -> Option<MemoryRoom> {
    let mut rooms = Vec::new();
    for line in groups.lines() {
        // `4:memory:/a/b` or `0::/a/b`
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let names = match controllers {
            "" => &V2,
            all if all.split(',').any(|name| name == "memory") => &V1,
            _ => continue,
        };
        let Some((mount, root)) = mount_of(mounts, controllers) else { continue };
        let Ok(below) = Path::new(path).strip_prefix(&root) else { continue };
        let group = mount.join(below);
        let ancestors = group.ancestors().take_while(|dir| dir.starts_with(&mount));
        rooms.extend(ancestors.filter_map(|dir| room_of(dir, names)));
    }
    rooms.into_iter().min_by_key(|room| room.bytes)
}

/// Where the hierarchy is mounted, and which group lies there.
fn mount_of(mounts: &str, controllers: &str) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        // 36 35 98:0 ROOT MOUNT rw,noatime shared:1 - TYPE SOURCE OPTIONS
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, mount) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1).unwrap_or_default());
        let is_it = match controllers {
            "" => kind == "cgroup2",
            _ => kind == "cgroup" && options.split(',').any(|name| name == "memory"),
        };
        is_it.then(|| (PathBuf::from(mount), PathBuf::from(root)))
    })
}

fn room_of(group: &Path, names: &Names) -> Option<MemoryRoom> {
    let number = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    // `max` is no number, and no limit; version 1 has a huge one.
    let (limit, usage) = (number(names.limit)?, number(names.usage)?);
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().filter_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        names.cached.contains(&name).then(|| bytes.parse::<u64>().ok()).flatten()
    });
    let used = usage.saturating_sub(cached.sum());
    Some(MemoryRoom { bytes: limit.saturating_sub(used), group: group.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of groups as the kernel shows it.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let path = std::env::temp_dir().join(format!("room-{name}-{}", std::process::id()));
            for (file, text) in files {
                let file = path.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            Self(path)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_narrowest_ancestor_counts_and_cached_files_are_free() {
        let tree = Tree::new(
            "v2",
            &[
                ("a/memory.max", "1000000\n"),
                ("a/memory.current", "900000\n"),
                ("a/memory.stat", "anon 500000\ninactive_file 100000\nactive_file 250000\n"),
                ("a/b/memory.max", "max\n"),
                ("a/b/memory.current", "900000\n"),
            ],
        );
        let mounts = format!("30 23 0:26 / {} rw - cgroup2 cgroup2 rw\n", tree.0.display());
        let room = MemoryRoom { bytes: 450_000, group: tree.0.join("a") };
        assert_eq!(least("0::/a/b\n", &mounts), Some(room));
        assert_eq!(least("0::/elsewhere\n", &mounts), None);
        assert_eq!(least("", &mounts), None);
    }

    #[test]
    fn the_first_version_is_read_below_the_mounted_group() {
        let tree = Tree::new(
            "v1",
            &[
                ("c/memory.limit_in_bytes", "5000"),
                ("c/memory.usage_in_bytes", "6000"),
                ("c/memory.stat", "inactive_file 9\ntotal_inactive_file 500\n"),
            ],
        );
        let mounts = format!(
            "30 23 0:26 / /x rw - cgroup cgroup rw,cpu\n\
             31 23 0:27 /pod {} rw shared:7 - cgroup cgroup rw,memory\n",
            tree.0.display()
        );
        let room = MemoryRoom { bytes: 0, group: tree.0.join("c") };
        assert_eq!(least("3:cpu:/pod/c\n4:memory:/pod/c\n0::/\n", &mounts), Some(room));
    }
}
