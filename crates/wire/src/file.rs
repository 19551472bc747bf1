//! The recorded file: what one capture produced, readable later without the process.
//!
//! ```text
//! "GOSPECT\0"                          magic
//! chunks: kind u32, length u32, payload of that length; little-endian
//!   1 HEADER   JSON, FileHeader; first
//!   2 PLAN     JSON
//!   3 RECORDS  records, each prefixed by its length as u32
//!   4 SYMBOLS  JSON: names the records need; anywhere, and as many as the writer likes
//!   5 SUMMARY  JSON; last
//! ```
//! A chunk of another kind is skipped. A file without its end (the writer was killed) is
//! read as far as it goes and [`FileReader::truncated`] says so.

use crate::record::{HEADER_SIZE, MAX_PAYLOAD, Record, RecordError};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use thiserror::Error;

/// The first bytes of a recorded file.
pub const MAGIC: [u8; 8] = *b"GOSPECT\0";

/// Version of the layout above and of [`Record`].
pub const FILE_VERSION: u32 = 1;

/// The longest chunk a reader accepts, bytes.
pub const MAX_CHUNK: u32 = 256 << 20;

/// A batch of records is written out at this size, bytes.
const BATCH: usize = 256 << 10;

const HEADER: u32 = 1;
const PLAN: u32 = 2;
const RECORDS: u32 = 3;
const SYMBOLS: u32 = 4;
const SUMMARY: u32 = 5;

/// What a reader must know before the records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHeader {
    /// [`FILE_VERSION`] of the writer.
    pub version: u32,
    /// Unix time minus the records' clock, nanoseconds.
    pub unix_offset_ns: i64,
    /// Identity of the plan: the image's build id, or whatever the writer has.
    #[serde(default)]
    pub plan_id: String,
    /// The backend that produced the records.
    #[serde(default)]
    pub backend: String,
}

/// A file that cannot be read or written.
#[derive(Debug, Error)]
pub enum FileError {
    /// Reading or writing failed.
    #[error("failed to access the recorded file")]
    Io(#[from] io::Error),
    /// The first bytes are not ours.
    #[error("not a recorded gospect file: it does not begin with the magic")]
    Magic,
    /// Written by a newer gospect.
    #[error("recorded file has version {0}, this gospect reads {FILE_VERSION}: use a newer one")]
    Version(u32),
    /// The header is missing or is not what it should be.
    #[error("recorded file has no usable header")]
    Header(#[source] Option<serde_json::Error>),
    /// A chunk is longer than any writer makes them.
    #[error("recorded file has a chunk of {0} bytes, over the limit")]
    ChunkSize(u64),
}

/// Writes a recorded file.
#[derive(Debug)]
pub struct FileWriter<W: Write> {
    out: W,
    batch: Vec<u8>,
}

impl<W: Write> FileWriter<W> {
    /// Begins a file; `plan` is the plan as JSON.
    pub fn new(out: W, header: &FileHeader, plan: &[u8]) -> Result<Self, FileError> {
        let mut writer = Self { out, batch: Vec::with_capacity(BATCH) };
        writer.out.write_all(&MAGIC)?;
        let header = serde_json::to_vec(header).map_err(|error| FileError::Header(Some(error)))?;
        writer.chunk(HEADER, &header)?;
        writer.chunk(PLAN, plan)?;
        Ok(writer)
    }

    /// Adds a record in its wire form.
    pub fn record(&mut self, record: &[u8]) -> Result<(), FileError> {
        let len = u32::try_from(record.len()).map_err(|_| FileError::ChunkSize(u64::MAX))?;
        if len > MAX_CHUNK {
            return Err(FileError::ChunkSize(len.into()));
        }
        self.batch.extend_from_slice(&len.to_le_bytes());
        self.batch.extend_from_slice(record);
        if self.batch.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    /// Adds names that records need; they may come before or after those records. `symbols`
    /// is JSON.
    pub fn symbols(&mut self, symbols: &[u8]) -> Result<(), FileError> {
        self.flush()?;
        self.chunk(SYMBOLS, symbols)
    }

    /// Hands everything so far to the file: what a reader finds if the writer is killed.
    pub fn flush(&mut self) -> Result<(), FileError> {
        if !self.batch.is_empty() {
            let batch = std::mem::take(&mut self.batch);
            self.chunk(RECORDS, &batch)?;
            self.batch = batch;
            self.batch.clear();
        }
        Ok(self.out.flush()?)
    }

    /// Ends the file; `symbols` (those not added before) and `summary` are JSON.
    pub fn finish(mut self, symbols: &[u8], summary: &[u8]) -> Result<W, FileError> {
        self.symbols(symbols)?;
        self.chunk(SUMMARY, summary)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn chunk(&mut self, kind: u32, payload: &[u8]) -> Result<(), FileError> {
        let len = u32::try_from(payload.len())
            .ok()
            .filter(|len| *len <= MAX_CHUNK)
            .ok_or(FileError::ChunkSize(payload.len() as u64))?;
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&len.to_le_bytes())?;
        Ok(self.out.write_all(payload)?)
    }
}

/// One chunk of a file, after the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// The plan, JSON.
    Plan(Vec<u8>),
    /// A batch for [`records`].
    Records(Vec<u8>),
    /// Names the records need, JSON; a file may hold several of these.
    Symbols(Vec<u8>),
    /// The summary, JSON.
    Summary(Vec<u8>),
}

/// Reads a recorded file chunk by chunk; the file is not trusted.
#[derive(Debug)]
pub struct FileReader<R: Read> {
    input: R,
    header: FileHeader,
    truncated: bool,
    complete: bool,
}

impl<R: Read> FileReader<R> {
    /// Reads magic and header.
    pub fn new(mut input: R) -> Result<Self, FileError> {
        let mut magic = [0; 8];
        match input.read_exact(&mut magic) {
            Ok(()) if magic == MAGIC => {}
            Ok(()) => return Err(FileError::Magic),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(FileError::Magic);
            }
            Err(error) => return Err(error.into()),
        }
        let header = FileHeader::default();
        let mut reader = Self { input, header, truncated: false, complete: false };
        let Some((HEADER, payload)) = reader.chunk()? else {
            return Err(FileError::Header(None));
        };
        reader.header =
            serde_json::from_slice(&payload).map_err(|error| FileError::Header(Some(error)))?;
        if reader.header.version > FILE_VERSION {
            return Err(FileError::Version(reader.header.version));
        }
        Ok(reader)
    }

    /// The header.
    pub fn header(&self) -> &FileHeader {
        &self.header
    }

    /// Whether the end of the file is missing; known once [`FileReader::next_chunk`] gave `None`.
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// The next chunk of a known kind; `None` at the end.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, FileError> {
        while let Some((kind, payload)) = self.chunk()? {
            let chunk = match kind {
                RECORDS => Chunk::Records(payload),
                // Half a JSON document is of no use.
                _ if self.truncated => return Ok(None),
                PLAN => Chunk::Plan(payload),
                SYMBOLS => Chunk::Symbols(payload),
                SUMMARY => {
                    self.complete = true;
                    Chunk::Summary(payload)
                }
                _ => continue,
            };
            return Ok(Some(chunk));
        }
        self.truncated |= !self.complete;
        Ok(None)
    }

    /// One chunk, as much of it as there is; sets `truncated` when that is not all.
    fn chunk(&mut self) -> Result<Option<(u32, Vec<u8>)>, FileError> {
        let mut head = Vec::new();
        self.input.by_ref().take(8).read_to_end(&mut head)?;
        let Some(head) = head.first_chunk::<8>() else {
            self.truncated |= !head.is_empty();
            return Ok(None);
        };
        let word = u64::from_le_bytes(*head);
        let (kind, len) = (word as u32, (word >> 32) as u32);
        if len > MAX_CHUNK {
            return Err(FileError::ChunkSize(len.into()));
        }
        // Grows with the bytes that come, not with the length that is claimed.
        let mut payload = Vec::new();
        self.input.by_ref().take(len.into()).read_to_end(&mut payload)?;
        self.truncated |= payload.len() < len as usize;
        Ok(Some((kind, payload)))
    }
}

/// The records of a batch, in order. Ends at the first length that does not fit the rest.
pub fn records(batch: &[u8]) -> impl Iterator<Item = Result<Record<'_>, RecordError>> {
    let mut rest = batch;
    std::iter::from_fn(move || {
        let (len, after) = rest.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes(*len) as usize;
        let bytes = after.get(..len).filter(|_| len <= HEADER_SIZE + MAX_PAYLOAD)?;
        rest = &after[len..];
        Some(Record::parse(bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RecordFlags, RecordKind};
    use proptest::prelude::*;

    fn record(ts_ns: u64) -> Vec<u8> {
        let record = Record {
            ts_ns,
            goid: 1,
            stack: 0,
            depth: 64,
            caller: 0,
            site: 0,
            pid: 1,
            tid: 1,
            lost: 0,
            cpu: 0,
            flags: RecordFlags(0),
            kind: RecordKind::Hit,
            payload: b"12345678",
        };
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        bytes
    }

    fn header() -> FileHeader {
        let (plan_id, backend) = ("id".to_owned(), "uprobe".to_owned());
        FileHeader { version: FILE_VERSION, unix_offset_ns: -5, plan_id, backend }
    }

    fn sample() -> Vec<u8> {
        let mut writer = FileWriter::new(Vec::new(), &header(), b"{plan}").unwrap();
        for ts_ns in 0..3 {
            writer.record(&record(ts_ns)).unwrap();
        }
        writer.flush().unwrap();
        writer.record(&record(3)).unwrap();
        writer.finish(b"{symbols}", b"{summary}").unwrap()
    }

    /// Times of all records, the other chunks, and whether the end is missing.
    fn read(bytes: &[u8]) -> Result<(Vec<u64>, Vec<Chunk>, bool), FileError> {
        let mut reader = FileReader::new(bytes)?;
        let (mut times, mut others) = (Vec::new(), Vec::new());
        while let Some(chunk) = reader.next_chunk()? {
            match chunk {
                Chunk::Records(batch) => {
                    times.extend(records(&batch).filter_map(|r| r.ok()).map(|r| r.ts_ns));
                }
                other => others.push(other),
            }
        }
        Ok((times, others, reader.truncated()))
    }

    #[test]
    fn a_file_gives_back_what_was_written() {
        let bytes = sample();
        assert_eq!(FileReader::new(&bytes[..]).unwrap().header(), &header());
        let (times, others, truncated) = read(&bytes).unwrap();
        assert_eq!(times, [0, 1, 2, 3]);
        let expected = [
            Chunk::Plan(b"{plan}".to_vec()),
            Chunk::Symbols(b"{symbols}".to_vec()),
            Chunk::Summary(b"{summary}".to_vec()),
        ];
        assert_eq!(others, expected);
        assert!(!truncated);
    }

    #[test]
    fn every_truncation_yields_what_is_there_and_says_so() {
        let bytes = sample();
        let mut most = 0;
        for len in 0..bytes.len() {
            match read(&bytes[..len]) {
                Ok((times, _, truncated)) => {
                    assert!(truncated, "length {len}");
                    assert!(times.len() >= most, "length {len}");
                    most = times.len();
                    assert!(times.iter().enumerate().all(|(i, ts)| *ts == i as u64));
                }
                Err(error) => assert_eq!(most, 0, "length {len}: {error}"),
            }
        }
        assert_eq!(most, 4);
    }

    #[test]
    fn foreign_newer_and_oversized_files_are_refused() {
        assert!(matches!(FileReader::new(&b"ELF"[..]), Err(FileError::Magic)));
        let newer = FileHeader { version: FILE_VERSION + 1, ..header() };
        let bytes = FileWriter::new(Vec::new(), &newer, b"").unwrap().finish(b"", b"").unwrap();
        assert!(matches!(FileReader::new(&bytes[..]), Err(FileError::Version(_))));
        let mut huge = MAGIC.to_vec();
        huge.extend_from_slice(&[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        assert!(matches!(FileReader::new(&huge[..]), Err(FileError::ChunkSize(_))));
    }

    proptest! {
        #[test]
        fn changed_files_never_panic(at in 0usize..400, byte: u8, tail: Vec<u8>) {
            let mut bytes = sample();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            bytes.extend_from_slice(&tail);
            let _ = read(&bytes);
        }
    }
}
