//! What the planner needs to know of the runtime, from the layouts.

use address::Svma;
use anyhow::Context as _;
use binary::layout::{LayoutError, RuntimeLayouts};
use binary::{DebugInfo, Executable, tls};
use probe::RuntimeLayout;
use probe::compile::{RecoverySp, WitnessOffsets};
use probe::planner::RuntimeFacts;
use std::ops::Range;

/// Offsets of the runtime's fields in this executable.
pub fn runtime_facts(
    executable: &Executable,
    debug: Option<&DebugInfo>,
) -> anyhow::Result<RuntimeFacts> {
    let layouts = RuntimeLayouts::new(executable.go_version(), debug);
    let field = |structure: &str, field: &str| -> Result<u32, LayoutError> {
        // Offsets in the runtime's structs are small; one that is not would be a corrupt file's.
        layouts.field(structure, field).map(|found| found.offset.min(u64::from(u32::MAX)) as u32)
    };
    let (tls_g, _) = tls::g_offset(executable).context("failed to find g's thread-local slot")?;
    let layout = RuntimeLayout {
        g_goid: field("runtime.g", "goid")?,
        g_stack_hi: field("runtime.g", "stack.hi")?,
        g_m: field("runtime.g", "m")?,
        m_g0: field("runtime.m", "g0")?,
        m_curg: field("runtime.m", "curg")?,
        tls_g,
    };
    // Where recovery finds the frame it goes on with: a panic that keeps its return address
    // (Go 1.22 and later) also keeps that frame's SP; before, gopanic leaves it in the g.
    let recovery = match field("runtime._panic", "retpc") {
        Ok(_) => RecoverySp::ViaPanic {
            g_panic: field("runtime.g", "_panic")?,
            panic_sp: field("runtime._panic", "sp")?,
        },
        Err(LayoutError::NoField { .. }) => {
            RecoverySp::ViaG { sigcode0: field("runtime.g", "sigcode0")? }
        }
        Err(error) => return Err(error.into()),
    };
    let witness = WitnessOffsets { g_goid: layout.g_goid, g_stack_hi: layout.g_stack_hi, recovery };
    Ok(RuntimeFacts { layout, witness })
}

/// The text that a FIPS build hashes when it starts (Go 1.24 and later): the packages below
/// crypto/internal/fips140, which the linker keeps together.
pub fn fips_range(executable: &Executable) -> Option<Range<Svma>> {
    let table = executable.functions().ok()?;
    let inside = |name: &str| {
        name.starts_with("crypto/internal/fips140/") || name.starts_with("go:textfips")
    };
    let mut range: Option<Range<Svma>> = None;
    for function in table.iter().filter(|function| inside(&function.name)) {
        let start = range.as_ref().map_or(function.entry, |range| range.start.min(function.entry));
        let end = range.as_ref().map_or(function.end, |range| range.end.max(function.end));
        range = Some(start..end);
    }
    range
}
