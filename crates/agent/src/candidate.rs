//! What is known of a process before it is decided what to do with it.

use crate::config::Match;

/// A process, as far as services are told apart by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Path of its executable, as the kernel names it.
    pub exe: String,
    /// Its command line, as [`command_of`] has it.
    pub command: String,
    /// TCP ports that it listens on; empty while nobody asks for them.
    pub ports: Vec<u16>,
    /// Its control group, `/` when there is none.
    pub cgroup: String,
}

/// Bytes of a command line that count: anybody may give a program megabytes, and all of them are kept and shown.
const COMMAND: usize = 4096;

/// A command line in one text with spaces between; of a long one the first bytes.
pub fn command_of<'a>(words: impl IntoIterator<Item = impl AsRef<str> + 'a>) -> String {
    let mut command = String::new();
    for (at, word) in words.into_iter().enumerate() {
        if at > 0 {
            command.push(' ');
        }
        let left = COMMAND.saturating_sub(command.len());
        let word = word.as_ref();
        if word.len() > left {
            let ends = word.char_indices().map(|(at, c)| at + c.len_utf8());
            let end = ends.take_while(|&end| end <= left).last().unwrap_or(0);
            command.push_str(&word[..end]);
            break;
        }
        command.push_str(word);
    }
    command
}

/// The container a process is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its id (64 hexadecimal digits), or its name where the control group has that.
    pub id: String,
}

/// Digits of a container's id.
const ID: usize = 64;

/// Short ids have at least so many digits.
const SHORT: usize = 12;

/// By the control group: Docker, containerd, CRI-O and Podman put the id there, LXC, systemd-nspawn and
/// systemd-machined a name.
pub fn container_of(cgroup: &str) -> Option<Container> {
    let parts = || cgroup.rsplit('/').filter(|part| !part.is_empty());
    let made = |id: &str| Some(Container { id: id.to_owned() });
    for part in parts() {
        // docker-ID.scope, cri-containerd-ID.scope, crio-ID.scope, libpod-ID.scope, and the bare ID.
        let name = part.strip_suffix(".scope").unwrap_or(part);
        let id = name.rsplit(['-', ':']).next().unwrap_or(name);
        if id.len() == ID && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return made(id);
        }
    }
    for part in parts() {
        let named = part
            .strip_prefix("lxc.payload.")
            .or_else(|| part.strip_prefix("systemd-nspawn@")?.strip_suffix(".service"))
            .or_else(|| part.strip_prefix("machine-")?.strip_suffix(".scope"));
        if let Some(name) = named.filter(|name| !name.is_empty()) {
            return made(name);
        }
    }
    let (_, name) = cgroup.split_once("/lxc/")?;
    name.split('/').next().filter(|name| !name.is_empty()).and_then(made)
}

impl Container {
    /// Whether `named` is it: the whole of it, or the first twelve or more digits of its id.
    fn is(&self, named: &crate::Glob) -> bool {
        let short = named.text();
        named.matches(&self.id)
            || short.len() >= SHORT && self.id.len() == ID && self.id.starts_with(short)
    }
}

impl Match {
    /// Whether a process is meant: by one of the alternatives of each kind that is given.
    pub fn takes(&self, candidate: &Candidate) -> bool {
        let is_port = |port: &u16| candidate.ports.contains(port);
        self.takes_but_for_ports(candidate)
            && (self.port.is_empty() || self.port.iter().any(is_port))
    }

    /// Whether it would be if it listened on the right port.
    pub fn takes_but_for_ports(&self, candidate: &Candidate) -> bool {
        let one = |globs: &[crate::Glob], text: &str| {
            globs.is_empty() || globs.iter().any(|glob| glob.matches(text))
        };
        let container = || container_of(&candidate.cgroup);
        // A file that was replaced while it runs is the same program to people.
        let exe = candidate.exe.strip_suffix(" (deleted)").unwrap_or(&candidate.exe);
        (one(&self.exe, exe) || one(&self.exe, &candidate.exe))
            && one(&self.command, &candidate.command)
            && one(&self.cgroup, &candidate.cgroup)
            && (self.container.is_empty()
                || container()
                    .is_some_and(|found| self.container.iter().any(|named| found.is(named))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Glob;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn containers_are_found_in_control_groups() {
        let found = |cgroup: &str| container_of(cgroup).map(|container| container.id);
        for cgroup in [
            format!("/docker/{HEX}"),
            format!("/system.slice/docker-{HEX}.scope"),
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{HEX}.scope"),
            format!("/kubepods/burstable/pod12/{HEX}"),
            format!("/machine.slice/libpod-{HEX}.scope/container"),
            format!("/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{HEX}"),
        ] {
            assert_eq!(found(&cgroup).as_deref(), Some(HEX), "{cgroup}");
        }
        assert_eq!(found("/lxc.payload.web/init.scope").as_deref(), Some("web"));
        assert_eq!(found("/lxc/web/system.slice").as_deref(), Some("web"));
        assert_eq!(found("/machine.slice/systemd-nspawn@web.service").as_deref(), Some("web"));
        for cgroup in ["/", "", "/system.slice/shop.service", "/user.slice/session-1.scope"] {
            assert_eq!(found(cgroup), None, "{cgroup}");
        }
    }

    #[test]
    fn a_command_line_is_cut_where_a_character_ends() {
        assert_eq!(command_of(["/srv/shop", "", "-a b"]), "/srv/shop  -a b");
        assert_eq!(command_of([] as [&str; 0]), "");
        let long = command_of(["x".repeat(COMMAND - 2), "éé".to_owned(), "rest".to_owned()]);
        assert_eq!((long.len(), long.ends_with("x ")), (COMMAND - 1, true));
        let many = command_of(std::iter::repeat_n("é", 1 << 20));
        assert!((COMMAND - 3..=COMMAND).contains(&many.len()), "{}", many.len());
    }

    #[test]
    fn all_that_is_given_has_to_be_so() {
        let candidate = Candidate {
            exe: "/srv/bin/shop (deleted)".to_owned(),
            command: "/srv/bin/shop --api :80".to_owned(),
            ports: vec![80, 81],
            cgroup: format!("/docker/{HEX}"),
        };
        let globs = |text: &str| vec![Glob::new(text)];
        let both = Match { exe: globs("/srv/*/shop"), port: vec![9, 81], ..Match::default() };
        assert!(Match::default().takes(&candidate) && both.takes(&candidate));
        assert!(!Match { command: globs("*--web*"), ..both.clone() }.takes(&candidate));
        assert!(
            Match { exe: globs("/srv/bin/shop (deleted)"), ..Match::default() }.takes(&candidate)
        );
        let container = |text: &str| Match { container: globs(text), ..both.clone() };
        assert!(container(&HEX[..12]).takes(&candidate) && container("0123*").takes(&candidate));
        assert!(!container(&HEX[..11]).takes(&candidate) && !container("web").takes(&candidate));
        assert!(!Match { port: vec![9], ..both.clone() }.takes(&candidate));
        assert!(!Match { cgroup: globs("/system.slice/*"), ..both }.takes(&candidate));
    }
}
