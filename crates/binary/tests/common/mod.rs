//! Files for the tests: real ones, and real ones with damage.

use address::ReadAt;
use binary::{Error, Executable};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

/// A file, read in place.
struct OnDisk {
    file: File,
    size: u64,
}

impl ReadAt for OnDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

/// Opens a file as the program does.
pub fn open(path: &Path) -> Result<Executable, Error> {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let size = file.metadata().unwrap().len();
    Executable::open(Arc::new(OnDisk { file, size }))
}

/// An executable that has to be one.
#[allow(dead_code)]
pub fn open_good(path: &Path) -> Executable {
    open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file with damage: cut at `size`, some bytes replaced. Shares the intact bytes.
#[allow(dead_code)]
pub struct Damaged {
    pub bytes: Arc<Vec<u8>>,
    pub size: u64,
    /// (offset, new bytes)
    pub patches: Vec<(u64, Vec<u8>)>,
}

impl ReadAt for Damaged {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.bytes.read_exact_at(offset, buf)?;
        for (at, patch) in &self.patches {
            for (place, &byte) in (*at..).zip(patch) {
                if let Some(target) =
                    place.checked_sub(offset).and_then(|index| buf.get_mut(index as usize))
                {
                    *target = byte;
                }
            }
        }
        Ok(())
    }
}

#[allow(dead_code)]
pub fn damaged(bytes: &Arc<Vec<u8>>, patches: Vec<(u64, Vec<u8>)>) -> Arc<dyn ReadAt> {
    Arc::new(Damaged { bytes: bytes.clone(), size: bytes.len() as u64, patches })
}

/// What removes the section headers from the ELF header (`e_shoff`, `e_shnum`,
/// `e_shstrndx`).
#[allow(dead_code)]
pub fn no_section_headers() -> Vec<(u64, Vec<u8>)> {
    vec![(0x28, vec![0; 8]), (0x3c, vec![0; 4])]
}
