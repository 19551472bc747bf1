//! `--record`: the raw records of one image in a file.

use anyhow::Context as _;
use output::{Summary, SymbolTable};
use probe::Plan;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use wire::file::{FILE_VERSION, FileHeader, FileWriter};

/// How the capture ended: the last piece of a file. With it a replay ends as the capture did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ending {
    /// The capture's summary.
    pub summary: Summary,
    /// How many records had been written when draining began, if it did.
    pub drained_after: Option<u64>,
    /// The end on the capture's clock, nanoseconds.
    pub end_ns: u64,
    /// Whether text shows pids: several processes were captured, or may have been.
    pub pids: bool,
}

/// A file being recorded.
pub struct Recording {
    writer: FileWriter<BufWriter<File>>,
    path: PathBuf,
    records: u64,
    drained_after: Option<u64>,
    end_ns: u64,
    pids: bool,
}

impl Recording {
    /// Starts the file: its header and the plan.
    pub fn create(
        path: &Path,
        plan: &Plan,
        unix_offset_ns: i64,
        backend: &str,
        pids: bool,
    ) -> anyhow::Result<Self> {
        let failed = || format!("failed to write the recording {}", path.display());
        let file = File::create(path).with_context(failed)?;
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
        Ok(Self { writer, path: path.to_owned(), records: 0, drained_after: None, end_ns: 0, pids })
    }

    /// Adds one record in wire form.
    pub fn record(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.records += 1;
        self.writer.record(bytes).with_context(|| self.failed())
    }

    /// Notes that from here on no new root opens.
    pub fn drain(&mut self) {
        self.drained_after.get_or_insert(self.records);
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
            drained_after: self.drained_after,
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
