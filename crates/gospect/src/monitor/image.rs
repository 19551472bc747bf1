//! What is known of an executable, once for all processes that run it.

use crate::target::Target;
use address::Svma;
use anyhow::Context as _;
use binary::layout::RuntimeLayouts;
use inspect::metrics::MetricsPlan;
use process::{FileIdentity, Process};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// What of an executable is needed to read metrics of its processes.
pub struct Image {
    /// Its version of Go.
    pub go_version: String,
    /// Address of its first part, as it states it.
    pub base: Svma,
    /// Where the figures are.
    pub plan: MetricsPlan,
}

/// The executables of the processes that are watched now. No file of theirs can be written
/// or its inode used again while one of them runs.
#[derive(Default)]
pub struct Images {
    known: HashMap<FileIdentity, Weak<Image>>,
}

impl Images {
    /// The executable of `process`; prepared when none of the others runs it.
    pub fn of(&mut self, process: &Process, file: FileIdentity) -> anyhow::Result<Arc<Image>> {
        if let Some(image) = self.known.get(&file).and_then(Weak::upgrade) {
            return Ok(image);
        }
        self.known.retain(|_, image| image.strong_count() > 0);
        let target = Target::of_process(process, None)?;
        let executable = &target.executable;
        let version = executable.go_version();
        // The layouts of plain releases are known; debug information takes memory to read.
        let unknown = RuntimeLayouts::new(version, None).field("runtime.g", "startpc").is_err();
        let debug = if unknown { target.debug_info()? } else { None };
        let layouts = RuntimeLayouts::new(version, debug.as_ref());
        let plan = MetricsPlan::prepare(executable, &layouts)
            .with_context(|| target.shown.display().to_string())?;
        let image =
            Image { go_version: version.to_string(), base: executable.image().base(), plan };
        let image = Arc::new(image);
        self.known.insert(target.identity, Arc::downgrade(&image));
        Ok(image)
    }
}
