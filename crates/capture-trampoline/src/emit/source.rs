//! The code of an executable's functions.

use super::{CodeSource, FunctionCode, Refused};
use address::Svma;
use binary::code::analyze_function;
use binary::{Executable, flag};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

/// Entries of one jump table at the most.
const MAX_TABLE: u64 = 1 << 12;
/// How many instructions before a table jump the table's address is loaded.
const MAX_LOOKBACK: usize = 32;

/// An executable as a source of code.
pub struct ExecutableCode<'a> {
    executable: &'a Executable,
}

impl<'a> ExecutableCode<'a> {
    /// Reads from `executable`.
    pub fn new(executable: &'a Executable) -> Self {
        Self { executable }
    }

    /// Where the table jumps of a function lead.
    fn table_targets(
        &self,
        bytes: &[u8],
        entry: Svma,
        end: Svma,
        jumps: &[Svma],
    ) -> Result<Vec<Svma>, Refused> {
        let mut targets = Vec::new();
        for &jump in jumps {
            let table = table_of(bytes, entry, jump).ok_or(Refused::JumpTable(jump))?;
            let before = targets.len();
            for index in 0..MAX_TABLE {
                let word = self.executable.read_word(table.add(index * 8)).map(Svma);
                match word {
                    Ok(target) if (entry..end).contains(&target) => targets.push(target),
                    _ => break,
                }
            }
            if targets.len() == before {
                return Err(Refused::JumpTable(jump));
            }
        }
        targets.sort_unstable();
        targets.dedup();
        Ok(targets)
    }
}

impl CodeSource for ExecutableCode<'_> {
    fn function(&self, entry: Svma) -> Result<FunctionCode, Refused> {
        let unreadable = |error: binary::Error| Refused::Unreadable(error.to_string());
        let table = self.executable.functions().map_err(unreadable)?;
        let function = table
            .find(entry)
            .filter(|function| function.entry == entry)
            .ok_or_else(|| Refused::Unreadable("no function begins there".to_owned()))?;
        let analysis = analyze_function(self.executable, &function, None).map_err(unreadable)?;
        let size = function.end.since(entry).unwrap_or_default();
        let bytes = self.executable.image().read_vec(entry, size).map_err(unreadable)?;
        let table_targets =
            self.table_targets(&bytes, entry, analysis.end, &analysis.table_jumps)?;
        let is_assembly = function.flags & flag::ASM != 0;
        Ok(FunctionCode { bytes, analysis, is_assembly, table_targets })
    }

    fn is_ordinary(&self, entry: Svma) -> bool {
        let function = self.executable.functions().ok().and_then(|table| table.find(entry));
        function.is_some_and(|function| {
            // Only Go's names have a dot: C follows another convention.
            let is_go = function.flags & flag::ASM == 0 && function.name.contains('.');
            function.entry == entry && is_go
        })
    }
}

/// The table that the jump at `jump` uses: `jmp [table + i*8]`, or in position-independent
/// code `lea r, [table]` … `jmp [r + i*8]`.
fn table_of(bytes: &[u8], entry: Svma, jump: Svma) -> Option<Svma> {
    let mut decoder = Decoder::with_ip(64, bytes, entry.0, DecoderOptions::NONE);
    let mut before: Vec<Instruction> = Vec::new();
    while decoder.can_decode() && decoder.ip() <= jump.0 {
        before.push(decoder.decode());
    }
    let jump = before.pop().filter(|instruction| instruction.ip() == jump.0)?;
    // Go swaps base and index at scale 1 only; the scale is 8 here.
    let base = jump.memory_base();
    if base == Register::None {
        return Some(Svma(jump.memory_displacement64()));
    }
    let loads = |instruction: &&Instruction| {
        instruction.op0_kind() == OpKind::Register && instruction.op0_register() == base
    };
    let load = before.iter().rev().take(MAX_LOOKBACK).find(loads)?;
    (load.mnemonic() == Mnemonic::Lea && load.is_ip_rel_memory_operand())
        .then(|| Svma(load.ip_rel_memory_address().wrapping_add(jump.memory_displacement64())))
}
