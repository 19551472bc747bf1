//! Where a thread keeps its g: a word at a fixed distance from the thread pointer.
//!
//! The distance is -8 for all programs without cgo, and for most with it; C code with
//! thread-local variables of its own moves it. It is the same in all threads and
//! processes of one executable.

use crate::layout::Provenance;
use crate::{Error, Executable, Image};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use object::elf;

/// Distance that the linker chooses when the program has no thread-local data besides g
/// (`cmd/link/internal/ld/sym.go`, `computeTLSOffset`).
const DEFAULT: i64 = -8;

/// Bytes of `gogo` decoded; it stores g within its first few instructions.
const GOGO_BYTES: u64 = 128;

/// Section symbol of the word (TLS symbols only exist in externally linked programs).
const TLS_SYMBOL: &str = "runtime.tlsg";

/// Offset of g from the thread pointer (fs base), bytes; negative. From the symbol
/// `runtime.tlsg` and the PT_TLS header, else from the store in `runtime.gogo`, else the
/// convention for a program without thread-local storage of its own.
///
/// Fails when `gogo` reads the distance from memory, as shared objects do.
pub fn g_offset(executable: &Executable) -> Result<(i64, Provenance), Error> {
    if let Some(offset) = from_symbol(executable) {
        return Ok((offset, Provenance::Symbol));
    }
    match from_gogo(executable)? {
        Some(offset) => Ok((offset, Provenance::Code)),
        None => from_segments(executable.image()),
    }
}

/// The variable lies at `st_value` of the TLS block, which ends at the thread pointer
/// (x86-64 psABI, TLS variant II).
fn from_symbol(executable: &Executable) -> Option<i64> {
    let symbol = executable.symbols().by_name(TLS_SYMBOL)?;
    if symbol.kind != elf::STT_TLS {
        return None;
    }
    let segment = tls_segment(executable.image())?;
    let block = segment.memory_size.checked_next_multiple_of(segment.align.max(1))?;
    i64::try_from(symbol.value).ok()?.checked_sub(i64::try_from(block).ok()?)
}

fn tls_segment(image: &Image) -> Option<&crate::Segment> {
    image.segments().iter().find(|segment| segment.kind == elf::PT_TLS)
}

/// The first access to `fs:` in `gogo`, which stores the g it switches to.
fn from_gogo(executable: &Executable) -> Result<Option<i64>, Error> {
    let functions = executable.functions()?.by_name("runtime.gogo");
    // Up to Go 1.21 all of it; later a stub that jumps to `gogo<>`.
    let bodies = functions.into_iter().chain(executable.functions()?.by_name("gogo"));
    for function in bodies {
        let size = function.end.since(function.entry).unwrap_or(0).min(GOGO_BYTES);
        let Ok(bytes) = executable.image().read_vec(function.entry, size) else { continue };
        match find_store(&bytes, function.entry.0) {
            Store::At(offset) => return Ok(Some(offset)),
            Store::Computed => {
                let detail = "the place of g is computed at run time (a shared object?)";
                return Err(Error::UnsupportedKind(detail.into()));
            }
            Store::None => {}
        }
    }
    Ok(None)
}

/// What the first access to `fs:` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    /// The distance.
    At(i64),
    /// A register whose value is not a constant.
    Computed,
    /// There is no such access.
    None,
}

/// `mov fs:[disp32],rdx`, or in a PIE `mov rcx,imm32; mov fs:[rcx],rdx`.
fn find_store(bytes: &[u8], address: u64) -> Store {
    let mut constants = [None; 16];
    for instruction in Decoder::with_ip(64, bytes, address, DecoderOptions::NONE) {
        if instruction.is_invalid() {
            break;
        }
        if instruction.memory_segment() == Register::FS && uses_memory(&instruction) {
            return distance(&instruction, &constants);
        }
        let written = instruction.op0_register().full_register();
        if instruction.op0_kind() == OpKind::Register
            && written.is_gpr()
            && let Some(slot) = constants.get_mut(written.number())
        {
            *slot = immediate(&instruction);
        }
    }
    Store::None
}

fn uses_memory(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|index| instruction.op_kind(index) == OpKind::Memory)
}

/// The constant that an instruction puts into its register.
fn immediate(instruction: &Instruction) -> Option<i64> {
    if instruction.mnemonic() != Mnemonic::Mov {
        return None;
    }
    match instruction.op1_kind() {
        OpKind::Immediate32to64 => Some(instruction.immediate32to64()),
        OpKind::Immediate64 => Some(instruction.immediate64() as i64),
        _ => None,
    }
}

fn distance(instruction: &Instruction, constants: &[Option<i64>; 16]) -> Store {
    let displacement = instruction.memory_displacement64() as i64;
    if instruction.memory_index() != Register::None {
        return Store::Computed;
    }
    let base = match instruction.memory_base() {
        Register::None => Some(0),
        base => constants.get(base.full_register().number()).copied().flatten(),
    };
    match base.and_then(|base| base.checked_add(displacement)) {
        Some(offset) => Store::At(offset),
        None => Store::Computed,
    }
}

/// With no symbol and no `gogo` to read: a program whose thread-local storage is g alone.
fn from_segments(image: &Image) -> Result<(i64, Provenance), Error> {
    match tls_segment(image) {
        Some(segment) if segment.memory_size > 8 => {
            Err(Error::Missing("sign of where g is in its thread-local storage".into()))
        }
        _ => Ok((DEFAULT, Provenance::Convention)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_store_are_read() {
        // mov rbx,[rdx]; mov fs:[-8],rdx
        let fixed = [0x48, 0x8b, 0x1a, 0x64, 0x48, 0x89, 0x14, 0x25, 0xf8, 0xff, 0xff, 0xff];
        assert_eq!(find_store(&fixed, 0x1000), Store::At(-8));
        // mov rcx,-416; mov fs:[rcx],rdx
        let register = [0x48, 0xc7, 0xc1, 0x60, 0xfe, 0xff, 0xff, 0x64, 0x48, 0x89, 0x11];
        assert_eq!(find_store(&register, 0x1000), Store::At(-416));
        // mov rcx,[rip+16]; mov fs:[rcx],rdx
        let shared = [0x48, 0x8b, 0x0d, 0x10, 0, 0, 0, 0x64, 0x48, 0x89, 0x11];
        assert_eq!(find_store(&shared, 0x1000), Store::Computed);
        assert_eq!(find_store(&[0xc3], 0x1000), Store::None);
    }
}
