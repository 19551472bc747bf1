//! A core dump: the memory and threads of a process that is no more.

mod threads;

use address::{Avma, Bias, MemoryError, ReadAt, ReadMemory, Svma};
use anyhow::Context as _;
use binary::{Executable, Image};
use process::FileSource;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `PT_NOTE` and `PT_LOAD` of the ELF specification.
const PT_NOTE: u32 = 4;
const PT_LOAD: u32 = 1;

/// Note types (`linux/elf.h`).
const NT_PRSTATUS: u32 = 1;
const NT_FILE: u32 = 0x4649_4c45;

/// Bytes of an executable that tell it from others: headers and build ids lie there, and kernels put
/// that page into every dump.
const HEADERS: usize = 4096;

/// Notes larger than this are not a dump's, bytes.
const MAX_NOTES: u64 = 64 << 20;

/// A dump that is open.
pub struct CoreDump {
    image: Image,
    path: PathBuf,
    files: Vec<MappedFile>,
    threads: Vec<threads::Stopped>,
}

/// One entry of the note that lists mapped files.
struct MappedFile {
    start: u64,
    end: u64,
    /// Bytes from the file's start.
    offset: u64,
    path: PathBuf,
}

impl CoreDump {
    /// Reads the dump's headers and notes.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let context = || format!("failed to use the core dump {}", path.display());
        let source: Arc<dyn ReadAt> = Arc::new(FileSource::open(path)?);
        let image = Image::open(source).with_context(context)?;
        anyhow::ensure!(image.elf_type() == 4, "{} is no core dump", path.display());
        let mut dump =
            Self { image, path: path.to_owned(), files: Vec::new(), threads: Vec::new() };
        for segment in dump.image.segments().to_vec() {
            if segment.kind == PT_NOTE && segment.file_size <= MAX_NOTES {
                let mut bytes = vec![0; usize::try_from(segment.file_size)?];
                let source = dump.image.source();
                source.read_exact_at(segment.offset.0, &mut bytes).with_context(context)?;
                dump.read_notes(&bytes);
            }
        }
        Ok(dump)
    }

    fn read_notes(&mut self, mut bytes: &[u8]) {
        while let Some((kind, desc, rest)) = next_note(bytes) {
            match kind {
                NT_PRSTATUS => self.threads.extend(threads::Stopped::parse(desc)),
                NT_FILE => self.files = parse_files(desc).unwrap_or_default(),
                _ => {}
            }
            bytes = rest;
        }
    }

    /// The executable: the file that the lowest mapping of a program shows from its start.
    /// Go programs map no other file before it.
    pub fn executable_path(&self) -> Option<PathBuf> {
        let entry = self.files.iter().filter(|file| file.offset == 0);
        let is_go = |path: &Path| {
            let source = FileSource::open(path).ok()?;
            Executable::open(Arc::new(source)).ok()
        };
        entry.map(|file| file.path.clone()).find(|path| is_go(path).is_some())
    }

    /// What to add to the executable's stated addresses.
    pub fn bias(&self, executable: &Executable) -> anyhow::Result<Bias> {
        let base = executable.image().base();
        if !executable.image().is_pie() {
            return Ok(Bias(0));
        }
        let named = executable_mapping(&self.files, executable);
        let start = named.with_context(|| {
            format!("{} does not say where the executable was mapped", self.path.display())
        })?;
        Ok(Bias(start.wrapping_sub(base.0 & !0xfff)))
    }

    /// Whether the executable is the one that the dump is of, as far as the dump has its first page.
    ///
    /// Errors: when that page is another one's.
    pub fn check(&self, executable: &Executable, path: &Path, bias: Bias) -> anyhow::Result<()> {
        let image = executable.image();
        let mut own = vec![0; HEADERS];
        let mut dumped = own.clone();
        let first = image.segments().iter().find(|segment| segment.backs(image.base()));
        let Some(first) = first else { return Ok(()) };
        let len = usize::try_from(first.file_size).map_or(HEADERS, |size| size.min(HEADERS));
        let (own, dumped) = (&mut own[..len], &mut dumped[..len]);
        image.read(image.base(), own).context("failed to read the executable's headers")?;
        let place = Svma(bias.to_avma(image.base()).0);
        if self.image.read(place, dumped).is_err() {
            // It was left out of the dump.
            return Ok(());
        }
        anyhow::ensure!(
            own == dumped,
            "{} is not the executable that {} is of: it may have been built anew since; give the \
             one that ran",
            path.display(),
            self.path.display()
        );
        Ok(())
    }

    /// Bytes that the dump ought to have and lacks: it was cut, by a limit or a full disk.
    pub fn missing(&self) -> u64 {
        let ends = self.image.segments().iter().map(|segment| {
            let begin = segment.offset.0;
            begin.saturating_add(segment.file_size)
        });
        ends.max().unwrap_or(0).saturating_sub(self.image.source().size())
    }

    /// The memory: what was dumped, and the executable's own bytes where they were not.
    pub fn memory<'a>(&'a self, executable: &'a Executable, bias: Bias) -> DumpedMemory<'a> {
        DumpedMemory { dump: &self.image, executable: executable.image(), bias }
    }
}

/// The mapping that is large enough for the executable's first segment and holds its bytes.
fn executable_mapping(files: &[MappedFile], executable: &Executable) -> Option<u64> {
    let size = executable.image().source().size();
    let at_start = files.iter().filter(|file| file.offset == 0 && file.end > file.start);
    at_start
        .filter(|file| FileSource::open(&file.path).is_ok_and(|source| source.size() == size))
        .map(|file| file.start)
        .next()
}

/// Memory of a dump.
pub struct DumpedMemory<'a> {
    dump: &'a Image,
    executable: &'a Image,
    bias: Bias,
}

impl ReadMemory for DumpedMemory<'_> {
    fn read_memory(&self, address: Avma, buf: &mut [u8]) -> Result<(), MemoryError> {
        // Piece by piece: neighbouring segments of a dump are apart in the file.
        let mut done = 0;
        while done < buf.len() {
            let at = Svma(address.0.wrapping_add(done as u64));
            let rest = buf.get_mut(done..).unwrap_or_default();
            let read = self.read_piece(at, rest).ok_or(MemoryError(address))?;
            done += read.max(1);
        }
        Ok(())
    }
}

impl DumpedMemory<'_> {
    /// Bytes read from the beginning of `buf`.
    fn read_piece(&self, at: Svma, buf: &mut [u8]) -> Option<usize> {
        for (image, at) in [(self.dump, at), (self.executable, self.bias.to_svma(Avma(at.0)))] {
            let segment = image.segments().iter().find(|segment| segment.backs(at));
            let Some(segment) = segment else { continue };
            let room = segment.file_size.checked_sub(at.since(segment.address)?)?;
            let len = buf.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            // What a dump that was cut lacks is not what the executable began with, nor zero.
            return image.read(at, buf.get_mut(..len)?).is_ok().then_some(len);
        }
        // Pages that were never written are not in the file: zero.
        let all = self.dump.segments().iter();
        let zero = all.filter(|segment| segment.kind == PT_LOAD).find(|segment| {
            at.since(segment.address).is_some_and(|delta| delta < segment.memory_size)
        })?;
        let room = zero.memory_size.checked_sub(at.since(zero.address)?)?;
        let len = buf.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        buf.get_mut(..len)?.fill(0);
        Some(len)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Type and content of the first note, and what follows it.
fn next_note(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let padded = |size: u32| (size as usize).checked_next_multiple_of(4);
    let (name, desc, kind) = (u32_at(bytes, 0)?, u32_at(bytes, 4)?, u32_at(bytes, 8)?);
    let start = 12usize.checked_add(padded(name)?)?;
    let content = bytes.get(start..start.checked_add(desc as usize)?)?;
    let rest = bytes.get(start.checked_add(padded(desc)?)?..).unwrap_or_default();
    Some((kind, content, rest))
}

/// `NT_FILE`: a count, the page size, then start, end and page of each, then the names.
fn parse_files(desc: &[u8]) -> Option<Vec<MappedFile>> {
    let count = usize::try_from(u64_at(desc, 0)?).ok()?;
    let page = u64_at(desc, 8)?;
    let names = desc.get(count.checked_mul(24)?.checked_add(16)?..)?;
    let mut names = names.split(|&byte| byte == 0);
    let mut files = Vec::new();
    for index in 0..count {
        let at = 16 + index * 24;
        let name = String::from_utf8_lossy(names.next()?).into_owned();
        files.push(MappedFile {
            start: u64_at(desc, at)?,
            end: u64_at(desc, at + 8)?,
            offset: u64_at(desc, at + 16)?.checked_mul(page)?,
            path: PathBuf::from(name),
        });
    }
    Some(files)
}
