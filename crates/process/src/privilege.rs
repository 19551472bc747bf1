//! What we may do, and what forbids the rest: for `doctor` and for errors.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// A capability this project needs somewhere (include/uapi/linux/capability.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Write to `/proc` entries of other users, such as their memory.
    DacOverride = 1,
    /// Read `/proc` entries and executables of other users.
    DacReadSearch = 2,
    /// Look into and stop other users' processes.
    SysPtrace = 19,
    /// What BPF and perf needed before 5.8.
    SysAdmin = 21,
    /// Raise the locked-memory limit.
    SysResource = 24,
    /// Attach probes.
    Perfmon = 38,
    /// Load BPF programs.
    Bpf = 39,
}

/// Effective capabilities of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Our own; none when `/proc` does not say.
    pub fn own() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self(
            field(&status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0),
        )
    }

    /// Whether `capability` is among them.
    pub fn has(self, capability: Capability) -> bool {
        self.0 >> capability as u8 & 1 == 1
    }
}

/// System-wide and own restrictions; `None` where the kernel does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// `kernel.yama.ptrace_scope`: 0 classic, 1 children only, 2 CAP_SYS_PTRACE only, 3 nobody.
    pub yama_ptrace_scope: Option<u8>,
    /// Kernel lockdown: `none`, `integrity` or `confidentiality` (which forbids BPF to read).
    pub lockdown: Option<String>,
    /// Our own seccomp mode: 0 none, 1 strict, 2 a filter.
    pub seccomp: Option<u8>,
    /// Whether we can not gain privileges by execve.
    pub no_new_privs: Option<bool>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i32>,
    /// `kernel.unprivileged_bpf_disabled`.
    pub unprivileged_bpf_disabled: Option<u8>,
}

impl Restrictions {
    /// As they are now.
    pub fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            yama_ptrace_scope: number("/proc/sys/kernel/yama/ptrace_scope"),
            lockdown: fs::read_to_string("/sys/kernel/security/lockdown")
                .ok()
                .and_then(|text| chosen(&text).map(str::to_owned)),
            seccomp: field(&status, "Seccomp").and_then(|n| n.parse().ok()),
            no_new_privs: field(&status, "NoNewPrivs").map(|n| n == "1"),
            perf_event_paranoid: number("/proc/sys/kernel/perf_event_paranoid"),
            unprivileged_bpf_disabled: number("/proc/sys/kernel/unprivileged_bpf_disabled"),
        }
    }
}

/// Whether this process ignores `signal` (a number), as one that was started with nohup does
/// SIGHUP.
pub fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = field(&status, "SigIgn").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    (1..=64).contains(&signal) && mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Why we may not look into the process `pid`; `None` when nothing known forbids it.
pub fn why_inaccessible(pid: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let capabilities = Capabilities::own();
    let own = rustix::process::geteuid().as_raw();
    let uid = field(&status, "Uid").and_then(|ids| ids.split_whitespace().next()?.parse().ok());
    let owner = fs::metadata(format!("/proc/{pid}/stat")).ok()?.uid();
    if capabilities.has(Capability::SysPtrace) {
        // Yama's mode 3 forbids attaching to everyone; reading memory stays allowed. The entries' modes
        // are asked beside that.
        return why_unopened(owner, own, capabilities);
    }
    if let Some(uid) = uid.filter(|&uid: &u32| uid != own) {
        let needed =
            if own == 0 { "CAP_SYS_PTRACE is missing" } else { "run as root or as that user" };
        return Some(format!(
            "process {pid} belongs to user {uid} and we are user {own}: {needed}"
        ));
    }
    // The kernel gives the entries of a process that is not dumpable to root.
    if owner != own {
        return Some(format!(
            "process {pid} is not dumpable (file capabilities, setuid, or PR_SET_DUMPABLE 0): run as root"
        ));
    }
    match Restrictions::now().yama_ptrace_scope {
        Some(scope @ 1..) => {
            Some(format!("kernel.yama.ptrace_scope is {scope}: run as root, or set it to 0"))
        }
        _ => None,
    }
}

/// Why entries that belong to `owner` cannot be opened by user `own` with CAP_SYS_PTRACE.
fn why_unopened(owner: u32, own: u32, capabilities: Capabilities) -> Option<String> {
    if owner == own || capabilities.has(Capability::DacOverride) {
        return None;
    }
    let missing = match capabilities.has(Capability::DacReadSearch) {
        true => "to write there CAP_DAC_OVERRIDE is missing",
        false => "CAP_DAC_READ_SEARCH is missing, or to write there CAP_DAC_OVERRIDE",
    };
    Some(format!("it belongs to user {owner} and we are user {own}: {missing}"))
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn number<T: std::str::FromStr>(path: &str) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// `none [integrity] confidentiality` chooses the one in brackets.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        let status = "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert_eq!(field(status, "Seccomp"), Some("2"));
        assert_eq!(field(status, "Missing"), None);
        assert_eq!(chosen("none [integrity] confidentiality\n"), Some("integrity"));
        let reads = Capabilities(1 << 2);
        assert_eq!(why_unopened(7, 7, Capabilities(0)), None);
        assert_eq!(why_unopened(7, 0, Capabilities(1 << 1)), None);
        assert_eq!(
            why_unopened(7, 0, reads).as_deref(),
            Some(
                "it belongs to user 7 and we are user 0: to write there CAP_DAC_OVERRIDE is missing"
            )
        );
        assert!(why_unopened(7, 0, Capabilities(0)).is_some_and(|why| why.contains("READ_SEARCH")));
        let bpf = Capabilities(1 << 39);
        assert!(bpf.has(Capability::Bpf) && !bpf.has(Capability::Perfmon));
    }
}
