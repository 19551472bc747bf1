//! Where a process belongs: its control group, and the ports it listens on.

use crate::{Error, Process};
use std::collections::{BTreeSet, HashSet};
use std::fs;

/// `TCP_LISTEN` (include/net/tcp_states.h).
const LISTENING: &str = "0A";

impl Process {
    /// Its control group, from the root of those that we see; `/` where it has none. With the first version of
    /// groups that by systemd's own hierarchy, else the first one.
    pub fn cgroup(&self) -> Result<String, Error> {
        let path = format!("/proc/{}/cgroup", self.pid());
        let text = fs::read_to_string(&path).map_err(|e| Error::of_process(self.pid(), path, e))?;
        Ok(cgroup(&text).to_owned())
    }

    /// TCP ports that it listens on, ascending. Empty where its descriptors may not be looked at.
    pub fn listening_ports(&self) -> Vec<u16> {
        let pid = self.pid();
        let sockets: HashSet<u64> = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let link = fs::read_link(entry.ok()?.path()).ok()?;
                link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
            })
            .collect();
        if sockets.is_empty() {
            return Vec::new();
        }
        let ports: BTreeSet<u16> = ["tcp", "tcp6"]
            .iter()
            .filter_map(|name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).ok())
            .flat_map(|text| listening(&text, &sockets))
            .collect();
        ports.into_iter().collect()
    }
}

fn cgroup(text: &str) -> &str {
    let of = |wanted: &dyn Fn(&str, &str) -> bool| {
        text.lines().find_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            wanted(number, controllers).then_some(path)
        })
    };
    of(&|number, controllers| number == "0" && controllers.is_empty())
        // In mixed setups the second version's is the root.
        .filter(|path| *path != "/")
        .or_else(|| of(&|_, controllers| controllers == "name=systemd"))
        .or_else(|| of(&|_, controllers| !controllers.is_empty()))
        .unwrap_or("/")
}

/// Ports of `/proc/net/tcp` in the state of listening whose sockets are among these.
fn listening(text: &str, sockets: &HashSet<u64>) -> Vec<u16> {
    let port = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (local, state) = (words.nth(1)?, words.nth(1)?);
        let socket: u64 = words.nth(5)?.parse().ok()?;
        let (_, port) = local.rsplit_once(':')?;
        let is_own = state == LISTENING && sockets.contains(&socket);
        is_own.then(|| u16::from_str_radix(port, 16).ok()).flatten()
    };
    text.lines().skip(1).filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn groups_of_both_versions_are_read() {
        assert_eq!(cgroup("0::/system.slice/shop.service\n"), "/system.slice/shop.service");
        let mixed = "5:cpu,cpuacct:/docker/ab\n1:name=systemd:/docker/cd:x\n0::/\n";
        assert_eq!(cgroup(mixed), "/docker/cd:x");
        assert_eq!(cgroup("3:memory:/docker/ab\n"), "/docker/ab");
        assert_eq!((cgroup(""), cgroup("nonsense\n")), ("/", "/"));
        assert!(Process::open(std::process::id()).unwrap().cgroup().unwrap().starts_with('/'));
    }

    #[test]
    fn our_own_port_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = Process::open(std::process::id()).unwrap();
        assert!(own.listening_ports().contains(&port));
        drop(listener);
    }
}
