//! What a process has mapped where.

use crate::error::Error;
use address::{Avma, Bias, FileOffset, Svma};
use procfs::FromRead as _;
use procfs::process::{MMPermissions, MMapPath, MemoryMaps};
use std::path::{Path, PathBuf};

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First byte.
    pub start: Avma,
    /// First byte after it.
    pub end: Avma,
    /// What `start` shows of the file.
    pub offset: FileOffset,
    /// Whether it holds code.
    pub executable: bool,
    /// Whether it can be written.
    pub writable: bool,
    /// Whether what is written to it is seen by others who have it.
    pub shared: bool,
    /// Inode of the file, 0 for anonymous memory.
    pub inode: u64,
    /// The file, as the kernel names it (with ` (deleted)` when it is).
    pub path: Option<PathBuf>,
    /// A name given by the kernel or the process: `[stack]`, `[anon: Go: heap]` …
    pub label: Option<String>,
}

/// The mappings of a process at one moment, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps {
    /// The mappings.
    pub mappings: Vec<Mapping>,
}

impl Maps {
    /// Parses the text of `/proc/PID/maps`; `path` is for messages.
    pub(crate) fn parse(text: &[u8], path: &Path) -> Result<Self, Error> {
        let maps = MemoryMaps::from_read(text)
            .map_err(|e| Error::Format { path: path.to_owned(), reason: e.to_string() })?;
        let mappings = maps.into_iter().map(|map| {
            let (path, label) = match map.pathname {
                MMapPath::Path(path) => (Some(path), None),
                MMapPath::Anonymous => (None, None),
                MMapPath::Other(name) => (None, Some(name)),
                other => (None, Some(format!("{other:?}"))),
            };
            Mapping {
                start: Avma(map.address.0),
                end: Avma(map.address.1),
                offset: FileOffset(map.offset),
                executable: map.perms.contains(MMPermissions::EXECUTE),
                writable: map.perms.contains(MMPermissions::WRITE),
                shared: map.perms.contains(MMPermissions::SHARED),
                inode: map.inode,
                path,
                label,
            }
        });
        Ok(Self { mappings: mappings.collect() })
    }

    /// The mapping `address` lies in.
    pub fn find(&self, address: Avma) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|m| m.start <= address);
        self.mappings.get(after.checked_sub(1)?).filter(|m| address < m.end)
    }

    /// Bias of the executable named `exe`: start of the mapping of its first page minus
    /// `first_load`, the page of its first PT_LOAD's `p_vaddr`.
    pub(crate) fn bias(&self, exe: &Path, first_load: Svma) -> Option<Bias> {
        let page = rustix::param::page_size() as u64;
        let first = self
            .mappings
            .iter()
            .find(|m| m.path.as_deref() == Some(exe) && m.offset == FileOffset(0))?;
        Some(Bias(first.start.0.wrapping_sub(first_load.0 & !(page - 1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIE: &[u8] = b"\
c000000000-c000400000 rw-p 00000000 00:00 0 [anon: Go: heap]\n\
55d4c0a00000-55d4c0b00000 r--p 00000000 08:01 42 /srv/app\n\
55d4c0b00000-55d4c0c00000 r-xp 00100000 08:01 42 /srv/app\n\
7f0000000000-7f0000001000 r-xp 00000000 08:01 43 /lib/libc.so.6\n\
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]\n";

    #[test]
    fn the_bias_is_that_of_the_first_page() {
        let maps = Maps::parse(PIE, Path::new("maps")).unwrap();
        let exe = Path::new("/srv/app");
        assert_eq!(maps.bias(exe, Svma(0)), Some(Bias(0x55d4_c0a0_0000)));
        // Internally linked Go PIE starts at 0x400000, not 0.
        assert_eq!(maps.bias(exe, Svma(0x40_0000)), Some(Bias(0x55d4_c060_0000)));
        assert_eq!(maps.bias(Path::new("/srv/other"), Svma(0)), None);
    }

    #[test]
    fn addresses_find_their_mapping() {
        let maps = Maps::parse(PIE, Path::new("maps")).unwrap();
        assert!(maps.find(Avma(0x55d4_c0b0_0010)).is_some_and(|m| m.executable && m.inode == 42));
        assert_eq!(maps.find(Avma(0x1000)), None);
        assert_eq!(maps.find(Avma(0x55d4_c0c0_0000)), None);
        assert!(maps.find(Avma(0xc0_0000_0000)).is_some_and(|m| m.writable && m.path.is_none()));
    }
}
