//! Which arguments the runtime follows while a function is at its stack-bound check.

use crate::bytes::u32_at;
use crate::function::{Function, FunctionTable};

/// Larger areas of arguments do not occur; a damaged file may claim any.
const MAX_WORDS: u32 = 1 << 16;

/// The words of a function's arguments that hold a pointer which the runtime keeps: it moves
/// with the stack, and what it points to stays alive. Register arguments are where the
/// function would spill them. Arguments that the function does not use are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArgumentMap {
    bits: Vec<u8>,
}

impl ArgumentMap {
    /// From one bit a word, the lowest of a byte first.
    pub fn new(bits: Vec<u8>) -> Self {
        Self { bits }
    }

    /// Whether the word at `offset` (in bytes from the first stack argument) is one.
    pub fn has_pointer(&self, offset: u32) -> bool {
        let word = offset / 8;
        let byte = self.bits.get((word / 8) as usize).copied().unwrap_or_default();
        offset.is_multiple_of(8) && byte >> (word % 8) & 1 == 1
    }
}

impl FunctionTable {
    /// The map at a function's entry: the first one of `FUNCDATA_ArgsPointerMaps`, a
    /// `runtime.stackmap` (`getStackMap` in runtime/stkframe.go, up to Go 1.20 in
    /// runtime/stack.go). Empty when there is none.
    pub fn entry_arguments(&self, function: &Function) -> ArgumentMap {
        let read = || {
            let record = self.table.record(function.index)?;
            let at = self.gofunc.add(self.table.argument_maps(&record)?.into());
            let head = self.image.read_vec(at, 8).ok()?;
            let (count, words) = (u32_at(&head, 0)?, u32_at(&head, 4)?);
            if count == 0 || words > MAX_WORDS {
                return None;
            }
            let bits = self.image.read_vec(at.add(8), u64::from(words.div_ceil(8))).ok()?;
            Some(ArgumentMap::new(bits))
        };
        read().unwrap_or_default()
    }
}
