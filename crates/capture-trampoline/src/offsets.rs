//! Where the runtime keeps what code and stops ask for.

use binary::layout::RuntimeLayouts;
use binary::{DebugInfo, Executable};

/// Offsets of the runtime's fields in one executable: by its version, and where that is not known (a
/// vendor's build, a newer release) by its debug info.
pub(crate) struct Offsets<'a> {
    executable: &'a Executable,
    debug: Option<DebugInfo>,
}

impl<'a> Offsets<'a> {
    /// Looks at the debug info only where the version is not known: it costs time.
    pub(crate) fn of(executable: &'a Executable) -> Self {
        let mut offsets = Self { executable, debug: None };
        if offsets.field("runtime.m", "gsignal").is_none() {
            // Without it the fields stay unknown, and what needs them is left out.
            offsets.debug = DebugInfo::open(executable.image()).ok().flatten();
        }
        offsets
    }

    /// Offset of a field in bytes, by struct and dotted path.
    pub(crate) fn field(&self, structure: &str, field: &str) -> Option<u64> {
        let layouts = RuntimeLayouts::new(self.executable.go_version(), self.debug.as_ref());
        Some(layouts.field(structure, field).ok()?.offset)
    }
}
