//! Where `runtime.m.alllink` is, by the code that sets it.

use crate::{Error, Executable};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

/// The function is shorter.
const MAX_CODE: u64 = 1 << 14;

/// Fields of `m` before `alllink` take more; what is stored nearer goes to the write barrier's
/// buffer.
const LEAST: u64 = 64;

/// Offset of `alllink` in `runtime.m`, from `runtime.mcommoninit` (`proc.go`): the last
/// global it loads is `allm`, and where it stores that next is `mp.alllink`. `None` when the
/// code is not of that form.
///
/// Patch releases moved this field (Go 1.24 and 1.25), so that the version alone does not
/// say where it is.
pub fn thread_link(executable: &Executable) -> Result<Option<u64>, Error> {
    let bodies = executable.functions()?.by_name("runtime.mcommoninit");
    let [body] = bodies.as_slice() else { return Ok(None) };
    let size = body.end.since(body.entry).unwrap_or_default().min(MAX_CODE);
    let code = executable.image().read_vec(body.entry, size)?;
    let instructions: Vec<Instruction> =
        Decoder::with_ip(64, &code, body.entry.0, DecoderOptions::NONE).into_iter().collect();
    Ok(stored_at(&instructions))
}

fn stored_at(instructions: &[Instruction]) -> Option<u64> {
    let is_load = |i: &Instruction| {
        i.mnemonic() == Mnemonic::Mov
            && i.op0_kind() == OpKind::Register
            && i.op0_register().is_gpr64()
            && i.is_ip_rel_memory_operand()
    };
    let last = instructions.iter().rposition(is_load)?;
    let (load, rest) = instructions.get(last..)?.split_first()?;
    let loaded = load.op0_register();
    let store = rest.iter().find(|i| {
        i.mnemonic() == Mnemonic::Mov
            && i.op0_kind() == OpKind::Memory
            && i.op1_kind() == OpKind::Register
            && i.op1_register() == loaded
            && i.memory_index() == Register::None
            && i.memory_base() != Register::RIP
            && i.memory_displacement64() >= LEAST
    })?;
    Some(store.memory_displacement64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: &[u8]) -> Option<u64> {
        let decoder = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE);
        stored_at(&decoder.into_iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_link_is_where_the_head_is_stored() {
        let load = [0x48, 0x8b, 0x0d, 0x00, 0x01, 0x00, 0x00]; // mov rcx,[rip+0x100]
        let buffer = [0x49, 0x89, 0x4b, 0x08]; // mov [r11+8],rcx
        let store = [0x48, 0x89, 0x88, 0x60, 0x01, 0x00, 0x00]; // mov [rax+0x160],rcx
        assert_eq!(of(&[&load[..], &buffer, &store].concat()), Some(0x160));
        assert_eq!(of(&[&load[..], &buffer].concat()), None);
        assert_eq!(of(&store), None);
    }
}
