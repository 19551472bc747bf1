//! From a path or pid to an executable and its debug information.

use crate::args::BinaryArgs;
use crate::failure::usage;
use address::{Bias, ReadAt};
use anyhow::Context as _;
use binary::{BuildIds, DebugInfo, Executable, Image};
use process::{FileIdentity, FileSource, FileStamp, Process};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// An executable that is open.
pub struct Target {
    /// A path that opens the very file that `executable` reads, though it was replaced or its
    /// process has ended.
    pub path: PathBuf,
    /// The path people know it by.
    pub shown: PathBuf,
    /// Which file it is.
    pub identity: FileIdentity,
    /// In which state it was when it was opened.
    pub stamp: FileStamp,
    /// Its facts.
    pub executable: Arc<Executable>,
    /// A separate file with debug information.
    debug_file: Option<PathBuf>,
}

impl Target {
    /// Opens what a command that looks at one executable is told to look at.
    pub fn of_args(args: &BinaryArgs) -> anyhow::Result<Self> {
        let debug_file = args.debug_file.as_deref();
        match (args.pid, &args.binary) {
            (Some(pid), _) => Self::of_process(&Process::open(pid)?, debug_file),
            (None, Some(path)) => Self::of_path(path, debug_file),
            (None, None) => Err(usage("no executable named: give BIN or --pid PID")),
        }
    }

    /// Opens the executable at `path`.
    pub fn of_path(path: &Path, debug_file: Option<&Path>) -> anyhow::Result<Self> {
        Self::open(FileSource::open(path)?, path, debug_file)
    }

    /// Opens the executable of a process; deleted ones and those of other mount namespaces too.
    pub fn of_process(process: &Process, debug_file: Option<&Path>) -> anyhow::Result<Self> {
        let shown = process.exe_path()?;
        Self::open(process.executable()?, &shown, debug_file)
    }

    /// The executables that `processes` run, each with the ids of those that run it.
    pub fn of_processes(
        processes: &[Process],
        debug_file: Option<&Path>,
    ) -> anyhow::Result<Vec<(Self, Vec<u32>)>> {
        let mut groups: Vec<(Self, Vec<u32>)> = Vec::new();
        for process in processes {
            let identity = process.exe_identity()?;
            match groups.iter_mut().find(|(target, _)| target.identity == identity) {
                Some((_, pids)) => pids.push(process.pid()),
                None => {
                    groups.push((Self::of_process(process, debug_file)?, vec![process.pid()]));
                }
            }
        }
        Ok(groups)
    }

    fn open(source: FileSource, shown: &Path, debug_file: Option<&Path>) -> anyhow::Result<Self> {
        let (identity, path) = (source.identity(), source.own_path());
        // Before it is read: what is written meanwhile is another state.
        let stamp = source.stamp();
        let stamp = stamp.with_context(|| format!("failed to ask for {}", shown.display()))?;
        let source: Arc<dyn ReadAt> = Arc::new(source);
        let executable = Executable::open(source).with_context(|| shown.display().to_string())?;
        Ok(Self {
            path,
            shown: shown.to_owned(),
            identity,
            stamp,
            executable: Arc::new(executable),
            debug_file: debug_file.map(Path::to_owned),
        })
    }

    /// Its debug information: from the separate file when one is named, else its own.
    /// `None` when it has none.
    pub fn debug_info(&self) -> anyhow::Result<Option<DebugInfo>> {
        let Some(path) = &self.debug_file else {
            return DebugInfo::open(self.executable.image())
                .with_context(|| self.shown.display().to_string());
        };
        let context = || format!("failed to use the debug file {}", path.display());
        let source: Arc<dyn ReadAt> = Arc::new(FileSource::open(path)?);
        // Only its sections of debug information need be there (objcopy --only-keep-debug).
        let separate = Image::open(source).with_context(context)?;
        let (ids, own) = (BuildIds::read(&separate), BuildIds::read(self.executable.image()));
        anyhow::ensure!(
            ids == own,
            "the debug file {} is of another build than {}",
            path.display(),
            self.shown.display()
        );
        let info = DebugInfo::open(&separate).with_context(context)?;
        anyhow::ensure!(info.is_some(), "the debug file {} has no DWARF", path.display());
        Ok(info)
    }

    /// Finds the bias of a process that runs this executable.
    pub fn bias_finder(&self) -> crate::symbols::FindBias {
        let base = self.executable.image().base();
        Box::new(move |pid| -> Option<Bias> { Process::open(pid).ok()?.bias(base).ok() })
    }
}

/// Whether the file changed within the last second: it may be half written.
pub fn is_young(path: &Path) -> bool {
    let modified = std::fs::metadata(path).and_then(|meta| meta.modified());
    let age = modified.ok().and_then(|time| time.elapsed().ok());
    age.is_none_or(|age| age < Duration::from_secs(1))
}
