//! `--record`: the raw records of one image in a file.

use anyhow::Context as _;
use output::{Summary, SymbolTable};
use probe::Plan;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use wire::file::{FILE_VERSION, FileHeader, FileWriter};

/// A file being recorded.
pub struct Recording {
    writer: FileWriter<BufWriter<File>>,
    path: PathBuf,
}

impl Recording {
    /// Starts the file: its header and the plan.
    pub fn create(
        path: &Path,
        plan: &Plan,
        unix_offset_ns: i64,
        backend: &str,
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
        let writer = FileWriter::new(BufWriter::new(file), &header, &plan).with_context(failed)?;
        Ok(Self { writer, path: path.to_owned() })
    }

    /// Adds one record in wire form.
    pub fn record(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.writer.record(bytes).with_context(|| self.failed())
    }

    /// Ends the file with the names that its records need.
    pub fn finish(self, names: &SymbolTable, summary: &Summary) -> anyhow::Result<()> {
        let failed = self.failed();
        let (names, summary) = (serde_json::to_vec(names)?, serde_json::to_vec(summary)?);
        self.writer.finish(&names, &summary).context(failed)?;
        Ok(())
    }

    fn failed(&self) -> String {
        format!("failed to write the recording {}", self.path.display())
    }
}
