//! What a func type takes and gives.

use super::signature::reference;
use super::{DebugInfo, malformed};
use crate::Error;
use crate::types::TypeId;
use gimli::{UnitOffset, constants};

/// Typedefs followed; Go needs two or three.
const MAX_CHAIN: usize = 16;

/// Parameters and results of one func type.
const MAX_PARTS: usize = 256;

impl DebugInfo {
    /// Types of the parameters of a func type, behind them those of its results or (`cmd/link/internal/ld/dwarf.go`,
    /// newtype, up to some version between Go 1.23 and 1.26) pointers to them. `None` for other types.
    pub fn func_parts(&self, id: TypeId) -> Result<Option<Vec<TypeId>>, Error> {
        let dwarf = self.dwarf(false)?;
        let mut at = id.0;
        for _ in 0..MAX_CHAIN {
            let unit = self.unit_of_offset(&dwarf, at)?;
            let start = unit.header.offset().as_debug_info_offset().map_or(0, |offset| offset.0);
            let within = usize::try_from(at).ok().and_then(|at| at.checked_sub(start));
            let Some(within) = within.map(UnitOffset) else { return Ok(None) };
            let mut tree = unit.entries_tree(Some(within)).map_err(malformed)?;
            let root = tree.root().map_err(malformed)?;
            let entry = root.entry();
            if entry.tag() == constants::DW_TAG_typedef {
                let target = entry.attr_value(constants::DW_AT_type).map_err(malformed)?;
                match target.and_then(|value| reference(&unit, &value)) {
                    Some(target) => at = target,
                    None => return Ok(None),
                }
                continue;
            }
            if entry.tag() != constants::DW_TAG_subroutine_type {
                return Ok(None);
            }
            let mut parts = Vec::new();
            let mut children = root.children();
            while let Some(child) = children.next().map_err(malformed)? {
                let part = child.entry().attr_value(constants::DW_AT_type).map_err(malformed)?;
                if parts.len() >= MAX_PARTS {
                    return Ok(None);
                }
                parts.extend(part.and_then(|value| reference(&unit, &value)).map(TypeId));
            }
            return Ok(Some(parts));
        }
        Ok(None)
    }
}
