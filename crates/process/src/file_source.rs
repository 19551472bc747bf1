//! Executables as bytes.

use crate::error::Error;
use address::ReadAt;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Which file, whatever its name.
///
/// On overlay file systems the numbers seen through a container's mount differ from those of
/// the file below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Device number, as `stat` gives it.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

impl FileIdentity {
    /// The identity of what `path` opens.
    pub fn of(path: &Path) -> Result<Self, Error> {
        std::fs::metadata(path).map(|m| Self::from(&m)).map_err(|e| Error::file(path, e))
    }
}

impl From<&Metadata> for FileIdentity {
    fn from(meta: &Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino() }
    }
}

/// Which file, in which state: what is known about its contents is known under this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileStamp {
    /// The file.
    pub identity: FileIdentity,
    /// Bytes.
    pub size: u64,
    /// When its contents changed, seconds and nanoseconds since 1970.
    pub modified: (i64, i64),
    /// When anything about it changed, likewise; nobody can set it back.
    pub changed: (i64, i64),
}

impl From<&Metadata> for FileStamp {
    fn from(meta: &Metadata) -> Self {
        Self {
            identity: FileIdentity::from(meta),
            size: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// An open file read by `pread`: a file that shrinks gives an error, never a SIGBUS.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    identity: FileIdentity,
}

impl FileSource {
    /// Opens `path`, which must be a regular file. `/proc/PID/exe` works for deleted executables
    /// and those in other mount namespaces.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_io(path).map_err(|e| Error::file(path, e))
    }

    pub(crate) fn open_io(path: &Path) -> io::Result<Self> {
        Self::of_file(File::open(path)?)
    }

    /// What somebody else has opened, which must be a regular file; it has to be open for reading.
    pub fn of_file(file: File) -> io::Result<Self> {
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Self { identity: FileIdentity::from(&meta), file })
    }

    /// What tells this state of the file from others; `None` when the file cannot be asked.
    pub fn stamp(&self) -> Option<FileStamp> {
        self.file.metadata().ok().map(|meta| FileStamp::from(&meta))
    }

    /// Which file it is.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// A path that opens this very file, whatever has become of its name and of the process it was
    /// found by. Good in this process, as long as `self` is there.
    pub fn own_path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

impl AsFd for FileSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl ReadAt for FileSource {
    fn size(&self) -> u64 {
        self.file.metadata().map_or(0, |m| m.len())
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}
