//! Programs of the runtime functions that tell how calls ended.

use super::{op, push_add};
use crate::plan::Witness;
use wire::{Op, OpCode};

/// Bytes of a panic's string that are captured.
pub const PANIC_TEXT_BYTES: u16 = 128;

/// rax and rbx: the first two words of arguments (ABIInternal, Go 1.17 on amd64).
const FIRST: u8 = 0;
const SECOND: u8 = 3;

/// Where `runtime.recovery(gp *g)` finds the SP it goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoverySp {
    /// In `gp.sigcode0`: Go up to 1.21 (src/runtime/panic.go).
    ViaG {
        /// Offset of `g.sigcode0`.
        sigcode0: u32,
    },
    /// In `gp._panic.sp`: later ones.
    ViaPanic {
        /// Offset of `g._panic`.
        g_panic: u32,
        /// Offset of `_panic.sp`.
        panic_sp: u32,
    },
}

/// Offsets, in bytes, that witness programs need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WitnessOffsets {
    /// `g.goid`.
    pub g_goid: u32,
    /// `g.stack.hi`.
    pub g_stack_hi: u32,
    /// How the recovering frame is found.
    pub recovery: RecoverySp,
}

/// The program of a witness at its entry; [`Witness`] names its fields.
pub fn witness_ops(witness: Witness, offsets: &WitnessOffsets) -> Vec<Op> {
    match witness {
        Witness::Panic => panic_ops(),
        Witness::Recovery => {
            let mut ops = g_word(offsets.g_goid);
            ops.extend(g_word(offsets.g_stack_hi));
            match offsets.recovery {
                RecoverySp::ViaG { sigcode0 } => ops.extend(g_word(sigcode0)),
                RecoverySp::ViaPanic { g_panic, panic_sp } => {
                    ops.extend(word_at(&[g_panic, panic_sp]));
                }
            }
            ops
        }
        Witness::GoroutineDeath => g_word(offsets.g_goid),
        Witness::Goexit | Witness::FatalPanic => Vec::new(),
    }
}

/// `gopanic(e any)`: what is at the data word may be a number, a string header or anything
/// else; the reader picks by the type word.
fn panic_ops() -> Vec<Op> {
    let data = [op(OpCode::Reg, SECOND, 0), op(OpCode::NilCheck, 0, 0)];
    let mut ops = vec![
        op(OpCode::Reg, FIRST, 0),
        op(OpCode::EmitAcc, 8, 0),
        op(OpCode::Reg, SECOND, 0),
        op(OpCode::EmitAcc, 8, 0),
    ];
    ops.extend(data);
    ops.push(op(OpCode::EmitBytes, 0, 16));
    ops.extend(data);
    push_add(&mut ops, 8);
    ops.extend([
        op(OpCode::Deref, 0, 0),
        op(OpCode::SetAux, 0, 0),
        op(OpCode::Reg, SECOND, 0),
        op(OpCode::Deref, 0, 0),
        op(OpCode::EmitString, 0, i64::from(PANIC_TEXT_BYTES)),
    ]);
    ops
}

/// The word at `offset` of the g that is the first argument.
fn g_word(offset: u32) -> Vec<Op> {
    word_at(&[offset])
}

/// The word reached from the first argument through a chain of pointers.
fn word_at(offsets: &[u32]) -> Vec<Op> {
    let mut ops = vec![op(OpCode::Reg, FIRST, 0)];
    for offset in offsets {
        push_add(&mut ops, i64::from(*offset));
        ops.push(op(OpCode::Deref, 0, 0));
    }
    ops.push(op(OpCode::EmitAcc, 8, 0));
    ops
}
