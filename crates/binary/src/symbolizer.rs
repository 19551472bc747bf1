//! From an address to source positions.

use crate::function::FunctionTable;
use address::Svma;

/// More calls inlined into one another are a loop in a damaged table.
const MAX_INLINE_DEPTH: usize = 256;

/// One frame of a symbolized address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Function name.
    pub func: String,
    /// Source file.
    pub file: String,
    /// Source line.
    pub line: u32,
    /// Entry of the function whose code holds the address.
    pub entry: Svma,
    /// Whether this function is inlined into the next frame's.
    pub inlined: bool,
    /// Whether the compiler made it (method or ABI wrapper): tracebacks hide it.
    pub is_wrapper: bool,
}

impl FunctionTable {
    /// Function, file and line at an address, innermost inlined frame first; empty
    /// outside Go code and in padding. For a return address pass the byte before it.
    pub fn symbolize(&self, address: Svma) -> Vec<Frame> {
        let mut frames = Vec::new();
        let Some(function) = self.find(address) else { return frames };
        let Some(record) = self.table.record(function.index) else { return frames };
        let wrapper_id = self.table.format().wrapper_id;
        let tree = self.calls(&record);
        let mut offset = address.since(function.entry).unwrap_or_default();
        for _ in 0..MAX_INLINE_DEPTH {
            let Some((file, line)) = self.position(&record, offset) else { return frames };
            let index = self.table.inline_indexes(&record).value_at(offset);
            let call = index.and_then(|index| tree.get(usize::try_from(index).ok()?));
            frames.push(Frame {
                func: call.map_or_else(
                    || function.name.clone(),
                    |call| self.table.name(call.name).into_owned(),
                ),
                file,
                line,
                entry: function.entry,
                inlined: call.is_some(),
                is_wrapper: call.map_or(function.func_id, |call| call.func_id) == wrapper_id,
            });
            let Some(call) = call else { break };
            offset = call.parent_pc.into();
        }
        frames
    }
}
