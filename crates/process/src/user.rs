//! Users by name, from the files: no NSS, which a static binary does not have.

use crate::error::Error;
use std::path::PathBuf;

/// Whom to run a program as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups, the primary one included.
    pub groups: Vec<u32>,
    /// Home directory.
    pub home: PathBuf,
}

impl User {
    /// The user `name` (or numeric id) of `/etc/passwd`, with the groups of `/etc/group`.
    pub fn find(name: &str) -> Result<Self, Error> {
        let read = |path: &str| std::fs::read_to_string(path).map_err(|e| Error::file(path, e));
        let passwd = read("/etc/passwd")?;
        let group = read("/etc/group").unwrap_or_default();
        Self::parse(name, &passwd, &group).ok_or_else(|| Error::NoUser(name.to_owned()))
    }

    fn parse(name: &str, passwd: &str, group: &str) -> Option<Self> {
        let fields = passwd
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|f| f.len() >= 6 && (f[0] == name || f[2] == name))?;
        let gid = fields[3].parse().ok()?;
        let mut user = Self {
            name: fields[0].to_owned(),
            uid: fields[2].parse().ok()?,
            gid,
            groups: vec![gid],
            home: PathBuf::from(fields[5]),
        };
        for line in group.lines() {
            let fields: Vec<_> = line.split(':').collect();
            let member = fields.get(3).is_some_and(|m| m.split(',').any(|m| m == user.name));
            let id = fields.get(2).and_then(|id| id.parse().ok());
            if let (true, Some(id)) = (member && id != Some(gid), id) {
                user.groups.push(id);
            }
        }
        Some(user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:web server:/var/www:/bin/false\n";
    const GROUP: &str = "adm:x:4:web,other\nweb:x:34:web\nempty:x:9:\nnot:x:10:webber\n";

    #[test]
    fn a_user_comes_with_home_and_groups() {
        let web = User {
            name: "web".to_owned(),
            uid: 33,
            gid: 34,
            groups: vec![34, 4],
            home: PathBuf::from("/var/www"),
        };
        assert_eq!(User::parse("web", PASSWD, GROUP), Some(web.clone()));
        assert_eq!(User::parse("33", PASSWD, GROUP), Some(web));
        assert_eq!(User::parse("nobody", PASSWD, GROUP), None);
    }
}
