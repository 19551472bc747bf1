//! Every instruction of a function, in address order.
//!
//! A linear sweep is right for Go: jump tables lie in read-only data, and the linker pads
//! with `int3` (CC) only after the last instruction.

use address::Svma;
use iced_x86::{Decoder, DecoderOptions, Instruction};

/// The decoded code of a function.
pub(super) struct Sweep {
    pub(super) instructions: Vec<Instruction>,
    /// End of the last instruction before the padding.
    pub(super) end: Svma,
    /// Addresses that did not decode.
    pub(super) errors: Vec<Svma>,
}

impl Sweep {
    /// Decodes `code`, which begins at `entry`. The padding is found going forward, at an
    /// instruction boundary: trimming CC from the end would cut a last instruction whose
    /// immediate ends in CC.
    pub(super) fn of(code: &[u8], entry: Svma) -> Self {
        let padding = code.len() - code.iter().rev().take_while(|&&byte| byte == 0xcc).count();
        let mut decoder = Decoder::with_ip(64, code, entry.0, DecoderOptions::NONE);
        let mut sweep = Self { instructions: Vec::new(), end: entry, errors: Vec::new() };
        while decoder.can_decode() && decoder.position() < padding {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                sweep.errors.push(Svma(instruction.ip()));
            } else {
                sweep.instructions.push(instruction);
            }
            sweep.end = entry.add(decoder.position() as u64);
        }
        sweep
    }

    /// Place in the list of the instruction that begins at `address`.
    pub(super) fn index_of(&self, address: u64) -> Option<usize> {
        self.instructions.binary_search_by_key(&address, Instruction::ip).ok()
    }
}
