//! Which processes run a file.

use crate::FileIdentity;
use std::path::Path;

/// Ids of the processes whose executable is `file`, ascending, our own left out. Processes whose
/// executable we may not look at are not found.
pub fn find_by_exe(file: FileIdentity) -> Vec<u32> {
    let own = std::process::id();
    let mut pids: Vec<u32> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid| pid != own && runs(pid, file))
        .collect();
    pids.sort_unstable();
    pids
}

fn runs(pid: u32, file: FileIdentity) -> bool {
    FileIdentity::of(Path::new(&format!("/proc/{pid}/exe"))).is_ok_and(|found| found == file)
}
