//! `--record`: the raw records of one image in a file.

use anyhow::Context as _;
use output::{Summary, SymbolTable};
use probe::Plan;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use wire::file::{FILE_VERSION, FileHeader, FileWriter};

/// How the capture ended: the last piece of a file. With it a replay ends as the capture did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ending {
    /// The capture's summary.
    pub summary: Summary,
    /// When draining began, if it did, on the capture's clock, nanoseconds.
    pub drained_from_ns: Option<u64>,
    /// The end on the capture's clock, nanoseconds.
    pub end_ns: u64,
    /// Whether text shows pids: several processes were captured, or may have been.
    pub pids: bool,
}

/// A file being recorded.
pub struct Recording {
    writer: FileWriter<BufWriter<File>>,
    path: PathBuf,
    drained_from_ns: Option<u64>,
    end_ns: u64,
    pids: bool,
}

/// Opens the file of a recording. What it holds stays until the recording begins.
pub fn open(path: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    opened.with_context(|| format!("failed to write the recording {}", path.display()))
}

impl Recording {
    /// Starts the file, which [`open`] opened: its header and the plan.
    pub fn begin(
        path: &Path,
        file: File,
        plan: &Plan,
        unix_offset_ns: i64,
        backend: &str,
        pids: bool,
    ) -> anyhow::Result<Self> {
        let failed = || format!("failed to write the recording {}", path.display());
        // A pipe has no length to set.
        if file.metadata().with_context(failed)?.is_file() {
            file.set_len(0).with_context(failed)?;
        }
        let header = FileHeader {
            version: FILE_VERSION,
            unix_offset_ns,
            plan_id: plan.image.build_id.clone(),
            backend: backend.to_owned(),
        };
        let plan = serde_json::to_vec(plan)?;
        let mut writer =
            FileWriter::new(BufWriter::new(file), &header, &plan).with_context(failed)?;
        writer.flush().with_context(failed)?;
        Ok(Self { writer, path: path.to_owned(), drained_from_ns: None, end_ns: 0, pids })
    }

    /// Adds one record in wire form.
    pub fn record(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.writer.record(bytes).with_context(|| self.failed())
    }

    /// Notes from when on no new root opens.
    pub fn drain_from(&mut self, ts_ns: u64) {
        self.drained_from_ns.get_or_insert(ts_ns);
    }

    /// Notes the end of the capture.
    pub fn end(&mut self, now_ns: u64) {
        self.end_ns = now_ns;
    }

    /// Hands everything so far to the file, with names resolved meanwhile: what is there if
    /// gospect is killed.
    pub fn save(&mut self, names: Option<&SymbolTable>) -> anyhow::Result<()> {
        if let Some(names) = names {
            let names = serde_json::to_vec(names)?;
            self.writer.symbols(&names).with_context(|| self.failed())?;
        }
        self.writer.flush().with_context(|| self.failed())
    }

    /// Ends the file with the names that its records need.
    pub fn finish(self, names: &SymbolTable, summary: &Summary) -> anyhow::Result<()> {
        let failed = self.failed();
        let ending = Ending {
            summary: summary.clone(),
            drained_from_ns: self.drained_from_ns,
            end_ns: self.end_ns,
            pids: self.pids,
        };
        let (names, ending) = (serde_json::to_vec(names)?, serde_json::to_vec(&ending)?);
        self.writer.finish(&names, &ending).context(failed)?;
        Ok(())
    }

    fn failed(&self) -> String {
        format!("failed to write the recording {}", self.path.display())
    }
}
