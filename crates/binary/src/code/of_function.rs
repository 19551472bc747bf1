//! The analysis of a function of an executable.

use super::{Analysis, CodeFacts, analyze};
use crate::{Error, Executable, Function, flag};
use address::Svma;
use std::ops::Range;

/// Reads a function's code and analyzes it. `fips`: see [`CodeFacts::fips`].
///
/// Fails when the file does not hold the bytes.
pub fn analyze_function(
    executable: &Executable,
    function: &Function,
    fips: Option<&Range<Svma>>,
) -> Result<Analysis, Error> {
    let table = executable.functions()?;
    let size = function.end.since(function.entry).unwrap_or_default();
    let code = executable.image().read_vec(function.entry, size)?;
    let has = |bit| function.flags & bit != 0;
    let facts = CodeFacts {
        entry: function.entry,
        name: &function.name,
        is_assembly: has(flag::ASM),
        sp_write: has(flag::SP_WRITE),
        is_top_frame: has(flag::TOP_FRAME),
        deferreturn: function.deferreturn,
        fips,
        sp_delta: &|address| table.sp_delta(function, address),
    };
    Ok(analyze(&code, &facts))
}
