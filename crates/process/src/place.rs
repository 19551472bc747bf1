//! Where a process belongs: its control group, and the ports it listens on.

use crate::{Error, Process};
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt as _;

/// `TCP_LISTEN` (include/net/tcp_states.h).
const LISTENING: &str = "0A";

impl Process {
    /// Its control group, from the root of those that we see; `/` where it has none. With the first version of
    /// groups that by systemd's own hierarchy, else the first one; hierarchies at whose root it is do not count.
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
        let listeners = self.listeners().into_iter();
        let own = listeners.filter(|listener| sockets.contains(&listener.socket));
        own.map(|listener| listener.port).collect::<BTreeSet<u16>>().into_iter().collect()
    }

    /// What listens to TCP in the network namespace that it is in, whoever that is.
    pub fn listeners(&self) -> BTreeSet<Listener> {
        let tables = ["tcp", "tcp6"].map(|name| format!("/proc/{}/net/{name}", self.pid()));
        let opened = tables.iter().filter_map(|path| fs::File::open(path).ok());
        opened.flat_map(|file| listening(BufReader::new(file))).collect()
    }

    /// The network namespace that it is in, by its inode; `None` when we may not look.
    pub fn network_namespace(&self) -> Option<u64> {
        fs::metadata(format!("/proc/{}/ns/net", self.pid())).ok().map(|meta| meta.ino())
    }
}

/// A socket that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// TCP port.
    pub port: u16,
    /// Inode of the socket, which links of descriptors name.
    pub socket: u64,
}

fn cgroup(text: &str) -> &str {
    let groups = text.lines().filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let rank = match (number, controllers) {
            ("0", "") => 0,
            (_, "name=systemd") => 1,
            (_, "") => return None,
            _ => 2,
        };
        // In mixed setups a process may be at the root of all hierarchies but one.
        (path != "/").then_some((rank, path))
    });
    groups.min_by_key(|(rank, _)| *rank).map_or("/", |(_, path)| path)
}

/// The first lines of `/proc/net/tcp`: those that listen. The kernel lists them before all connections
/// (`net/ipv4/tcp_ipv4.c`, `tcp_seq_start`), of which there may be a hundred thousand.
fn listening(table: impl BufRead) -> Vec<Listener> {
    let listener = |line: String| {
        let mut words = line.split_ascii_whitespace();
        let (local, state) = (words.nth(1)?, words.nth(1)?);
        let socket: u64 = words.nth(5)?.parse().ok()?;
        let (_, port) = local.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        (state == LISTENING).then_some(Listener { port, socket })
    };
    table.lines().skip(1).map_while(Result::ok).map_while(listener).collect()
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
        assert_eq!(cgroup("9:name=systemd:/\n4:memory:/a\n3:cpu:/b\n0::/\n"), "/a");
        assert_eq!(cgroup("4:memory:/a\n1:name=systemd:/b\n0::/c\n"), "/c");
        assert_eq!((cgroup(""), cgroup("nonsense\n")), ("/", "/"));
        assert!(Process::open(std::process::id()).unwrap().cgroup().unwrap().starts_with('/'));
    }

    #[test]
    fn what_listens_comes_first_in_the_table() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let line = |port: &str, state: &str, socket: u32| {
            let rest = "00000000:00000000 00:00000000 00000000 0 0";
            format!("   0: 0100007F:{port} 00000000:0000 {state} {rest} {socket} 1 0\n")
        };
        let text = head.to_owned()
            + &line("1F90", "0A", 77)
            + &line("0050", "0A", 78)
            + &line("0051", "01", 79)
            + &line("0052", "0A", 80);
        let expected = [(8080, 77), (80, 78)].map(|(port, socket)| Listener { port, socket });
        assert_eq!(listening(text.as_bytes()), expected);
        assert_eq!(listening("".as_bytes()), []);
        assert_eq!(listening(&b"head\n\xff\n"[..]), []);
    }

    #[test]
    fn our_own_port_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = Process::open(std::process::id()).unwrap();
        assert!(own.listening_ports().contains(&port));
        assert!(own.listeners().iter().any(|listener| listener.port == port));
        assert!(own.network_namespace().is_some());
        drop(listener);
    }
}
