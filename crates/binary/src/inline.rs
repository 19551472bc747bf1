//! Calls that the compiler inlined (`runtime/symtabinl.go`).

use crate::bytes::u32_at;
use crate::function::{Function, FunctionTable};
use crate::pclntab::Record;
use address::Svma;
use std::collections::HashMap;

/// One call that was inlined into a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedCall {
    /// Index in the function's inline tree.
    pub index: u32,
    /// The inlined function.
    pub name: String,
    /// Address in the outer function whose position is that of the call.
    pub parent_pc: Svma,
    /// The function that holds the call: the outer function, or another inlined one.
    pub caller: String,
    /// File of the call.
    pub file: String,
    /// Line of the call.
    pub line: u32,
    /// `internal/abi.FuncID` of the inlined function.
    pub func_id: u8,
    /// Line of the inlined function's `func` keyword; `None` in Go 1.19.
    pub start_line: Option<u32>,
}

/// A `runtime.inlinedCall`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub func_id: u8,
    /// Offset in the name table.
    pub name: u32,
    /// Offset from the outer function's entry.
    pub parent_pc: u32,
    pub start_line: Option<u32>,
}

impl FunctionTable {
    /// All calls inlined into a function, those whose code was optimised away excepted
    /// (no instruction refers to them).
    pub fn inline_tree(&self, function: &Function) -> Vec<InlinedCall> {
        let Some(record) = self.table.record(function.index) else { return Vec::new() };
        let tree = self.calls(&record);
        (0u32..)
            .zip(&tree)
            .filter_map(|(index, call)| self.inlined_call(function, &record, &tree, index, call))
            .collect()
    }

    /// All inlined copies of the functions whose name `wanted` accepts: each with the
    /// function that holds the copy. One pass over the table; `wanted` is asked once for
    /// each name.
    pub fn inlined_copies(&self, wanted: &dyn Fn(&str) -> bool) -> Vec<(Function, InlinedCall)> {
        let mut answers: HashMap<u32, bool> = HashMap::new();
        let mut copies = Vec::new();
        for record in (0..self.len()).filter_map(|index| self.table.record(index)) {
            let tree = self.calls(&record);
            let mut holder = None;
            for (index, call) in (0u32..).zip(&tree) {
                let name = call.name;
                if !*answers.entry(name).or_insert_with(|| wanted(&self.table.name(name))) {
                    continue;
                }
                let Some(function) = holder.take().or_else(|| self.get(record.index)) else {
                    break;
                };
                if let Some(copy) = self.inlined_call(&function, &record, &tree, index, call) {
                    copies.push((function.clone(), copy));
                }
                holder = Some(function);
            }
        }
        copies
    }

    /// File and line of the first instruction that an inlined call left in `function`:
    /// where the inlined function's own source is. `None` when all that is left of it is
    /// what was inlined into it in turn.
    pub fn inlined_body(&self, function: &Function, call: &InlinedCall) -> Option<(String, u32)> {
        let record = self.table.record(function.index)?;
        let index = i32::try_from(call.index).ok()?;
        let range = self.table.inline_indexes(&record).find(|range| range.value == index)?;
        self.position(&record, range.start)
    }

    /// The inline tree up to the highest index that an instruction refers to. Parents
    /// have lower indexes than their children.
    pub(crate) fn calls(&self, record: &Record) -> Vec<Call> {
        let highest = self.table.inline_indexes(record).map(|range| range.value).max();
        let Some(highest) = highest.and_then(|index| u64::try_from(index).ok()) else {
            return Vec::new();
        };
        let Some(offset) = self.table.inline_tree(record) else { return Vec::new() };
        let layout = self.table.format().inline;
        // The tree cannot have more calls than the function has bytes.
        let count = highest.saturating_add(1).min(record.size);
        let len = count.saturating_mul(layout.size as u64);
        let Ok(raw) = self.image.read_vec(self.gofunc.add(offset.into()), len) else {
            return Vec::new();
        };
        raw.chunks_exact(layout.size)
            .filter_map(|call| {
                Some(Call {
                    func_id: *call.get(layout.func_id)?,
                    name: u32_at(call, layout.name)?,
                    parent_pc: u32_at(call, layout.parent_pc)?,
                    start_line: layout.start_line.and_then(|at| u32_at(call, at)),
                })
            })
            .collect()
    }

    fn inlined_call(
        &self,
        function: &Function,
        record: &Record,
        tree: &[Call],
        index: u32,
        call: &Call,
    ) -> Option<InlinedCall> {
        let parent_pc = u64::from(call.parent_pc);
        let (file, line) = self.position(record, parent_pc)?;
        let parent = self.table.inline_indexes(record).value_at(parent_pc);
        let parent = parent.and_then(|parent| tree.get(usize::try_from(parent).ok()?));
        Some(InlinedCall {
            index,
            name: self.table.name(call.name).into_owned(),
            parent_pc: function.entry.add(parent_pc),
            caller: parent.map_or_else(
                || function.name.clone(),
                |parent| self.table.name(parent.name).into_owned(),
            ),
            file,
            line,
            func_id: call.func_id,
            start_line: call.start_line,
        })
    }
}
