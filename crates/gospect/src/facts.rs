//! What the planner needs to know of the runtime, from debug information.

use binary::{DebugInfo, Executable, Kind};
use probe::RuntimeLayout;
use probe::compile::{RecoverySp, WitnessOffsets};
use probe::planner::RuntimeFacts;
use address::Svma;
use std::ops::Range;

/// Offsets of the runtime's fields in this executable.
pub fn runtime_facts(
    executable: &Executable,
    debug: Option<&DebugInfo>,
) -> anyhow::Result<RuntimeFacts> {
    let debug = debug.ok_or_else(|| anyhow::anyhow!("no debug information"))?;
    let field = |ty: &str, path: &str| -> anyhow::Result<u32> {
        let mut id = debug.find_type(ty)?.ok_or_else(|| anyhow::anyhow!("no type {ty}"))?;
        let mut offset = 0;
        for name in path.split('.') {
            let info = debug.type_info(id)?;
            let Kind::Struct { fields } = &info.kind else { anyhow::bail!("{ty} no struct") };
            let field = fields
                .iter()
                .find(|field| &*field.name == name)
                .ok_or_else(|| anyhow::anyhow!("no field {ty}.{path}"))?;
            offset += field.offset;
            id = field.ty;
        }
        Ok(offset as u32)
    };
    let minor = executable.go_version().minor;
    let layout = RuntimeLayout {
        g_goid: field("runtime.g", "goid")?,
        g_stack_hi: field("runtime.g", "stack.hi")?,
        g_m: field("runtime.g", "m")?,
        m_g0: field("runtime.m", "g0")?,
        m_curg: field("runtime.m", "curg")?,
        tls_g: -8,
    };
    let recovery = if minor <= 21 {
        RecoverySp::ViaG { sigcode0: field("runtime.g", "sigcode0")? }
    } else {
        RecoverySp::ViaPanic {
            g_panic: field("runtime.g", "_panic")?,
            panic_sp: field("runtime._panic", "sp")?,
        }
    };
    let witness =
        WitnessOffsets { g_goid: layout.g_goid, g_stack_hi: layout.g_stack_hi, recovery };
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
