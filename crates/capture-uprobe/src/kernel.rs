//! The running kernel's version.

use std::fmt;

/// Major and minor version of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVersion(pub u32, pub u32);

impl KernelVersion {
    /// `bpf_loop`, and the oldest kernel this backend supports.
    pub const OLDEST: Self = Self(5, 17);
    /// Uprobe programs on perf events that may wait for memory.
    pub const SLEEPABLE_UPROBE: Self = Self(6, 0);
    /// `uprobe.multi` links.
    pub const UPROBE_MULTI: Self = Self(6, 6);
    /// The pid filter of multi links covers all threads; before, it drops the hits of
    /// all but the leader.
    pub const MULTI_PID_FILTER: Self = Self(6, 10);

    /// The version of the running kernel; 0.0 when its release cannot be read.
    pub fn running() -> Self {
        let uname = rustix::system::uname();
        Self::parse(&uname.release().to_string_lossy()).unwrap_or(Self(0, 0))
    }

    /// Parses a release such as `6.18.4-generic`.
    pub fn parse(release: &str) -> Option<Self> {
        let mut parts = release.split(|c: char| !c.is_ascii_digit());
        Some(Self(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Linux {}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions_are_read_and_ordered() {
        assert_eq!(KernelVersion::parse("6.18.44-fc"), Some(KernelVersion(6, 18)));
        assert_eq!(KernelVersion::parse("5.15.0-91-generic"), Some(KernelVersion(5, 15)));
        assert_eq!(KernelVersion::parse("6.1"), Some(KernelVersion(6, 1)));
        assert_eq!(KernelVersion::parse("linux"), None);
        assert!(KernelVersion(6, 10) > KernelVersion(6, 9));
    }
}
