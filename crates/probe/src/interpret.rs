//! The reference interpreter of fetch programs: the oracle that the BPF interpreter and
//! the trampoline compiler are tested against. `wire`'s module on fetch programs states the rules.

use address::{Avma, ReadMemory};
use wire::{FIELD_HEADER, FieldStatus, MAX_FIELD_DATA, MAX_PAYLOAD, MAX_PROGRAM_OPS, Op, OpCode};

/// The machine state a program starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// General registers at the site, in hardware order: rax rcx rdx rbx rsp rbp rsi rdi r8..r15.
    pub gpr: [u64; 16],
    /// SP as at the function's first instruction (avma): SP at the site + the site's `sp_delta`.
    pub sp_first: u64,
    /// Low halves of the vector registers X0 to X15, where they are seen.
    pub xmm: Option<[u64; 16]>,
}

/// Runs `ops` and gives the payload: the fields it emitted, at most
/// [`MAX_PAYLOAD`] bytes and always a multiple of 8.
///
/// `g` is the address (avma) of the current g, as the hit found it.
pub fn interpret(ops: &[Op], registers: &Registers, g: u64, memory: &dyn ReadMemory) -> Vec<u8> {
    let mut machine =
        Machine { registers, g, memory, field: FieldState::default(), payload: Vec::new() };
    for &op in ops.iter().take(MAX_PROGRAM_OPS) {
        if machine.step(op).is_err() {
            break;
        }
    }
    machine.payload
}

/// The payload is full; the program ends.
struct Full;

/// What a field starts with.
#[derive(Default)]
struct FieldState {
    acc: u64,
    aux: u64,
    /// `None` while nothing failed.
    failure: Option<FieldStatus>,
}

struct Machine<'a> {
    registers: &'a Registers,
    g: u64,
    memory: &'a dyn ReadMemory,
    field: FieldState,
    payload: Vec<u8>,
}

impl Machine<'_> {
    fn step(&mut self, op: Op) -> Result<(), Full> {
        let field = &mut self.field;
        match op.code {
            OpCode::Reg => field.acc = self.registers.gpr[usize::from(op.a & 15)],
            OpCode::FloatReg => match self.registers.xmm {
                Some(xmm) => field.acc = xmm[usize::from(op.a & 15)],
                None => _ = field.failure.get_or_insert(FieldStatus::NoRegister),
            },
            OpCode::StackSlot => field.acc = self.registers.sp_first.wrapping_add_signed(op.imm),
            OpCode::CurrentG => field.acc = self.g,
            OpCode::Add => field.acc = field.acc.wrapping_add_signed(op.imm),
            OpCode::Deref => self.deref(),
            OpCode::SetAux => field.aux = field.acc,
            OpCode::GetAux => field.acc = field.aux,
            OpCode::Reset => *field = FieldState::default(),
            OpCode::EmitAcc => return self.emit_acc(op.a),
            OpCode::EmitBytes => {
                let len = clamp_len(op.imm);
                return self.emit_memory(len, len as u32);
            }
            OpCode::EmitString => return self.emit_string(op.imm),
            OpCode::NilCheck => {
                if field.acc == 0 {
                    field.failure.get_or_insert(FieldStatus::Nil);
                }
            }
        }
        Ok(())
    }

    fn deref(&mut self) {
        if self.field.failure.is_some() {
            return;
        }
        match self.memory.read_word(Avma(self.field.acc)) {
            Ok(word) => self.field.acc = word,
            Err(_) => self.field.failure = Some(FieldStatus::Fault),
        }
    }

    fn emit_acc(&mut self, width: u8) -> Result<(), Full> {
        let len = if matches!(width, 1 | 2 | 4) { usize::from(width) } else { 8 };
        let word = self.field.acc.to_le_bytes();
        self.emit(len, len as u32, |_, data| {
            data.copy_from_slice(&word[..len]);
            Ok(())
        })
    }

    fn emit_string(&mut self, max: i64) -> Result<(), Full> {
        let aux = self.field.aux;
        if (aux as i64) < 0 {
            self.field.failure.get_or_insert(FieldStatus::Fault);
        }
        let len = clamp_len(max).min(usize::try_from(aux).unwrap_or(usize::MAX));
        self.emit_memory(len, u32::try_from(aux).unwrap_or(u32::MAX))
    }

    fn emit_memory(&mut self, len: usize, original: u32) -> Result<(), Full> {
        let address = Avma(self.field.acc);
        self.emit(len, original, |memory, data| {
            memory.read_memory(address, data).map_err(|_| FieldStatus::Fault)
        })
    }

    /// Appends one field whose data `fill` writes, and starts the next field.
    fn emit(
        &mut self,
        len: usize,
        original: u32,
        fill: impl FnOnce(&dyn ReadMemory, &mut [u8]) -> Result<(), FieldStatus>,
    ) -> Result<(), Full> {
        let field = std::mem::take(&mut self.field);
        let room = (MAX_PAYLOAD - self.payload.len()).checked_sub(FIELD_HEADER).ok_or(Full)?;
        if let Some(status) = field.failure {
            self.header(status, 0, 0);
            return Ok(());
        }
        let padded = len.next_multiple_of(8);
        if padded > room {
            self.header(FieldStatus::NoRoom, 0, 0);
            return Err(Full);
        }
        let mut data = vec![0; padded];
        let filled = if len == 0 { Ok(()) } else { fill(self.memory, &mut data[..len]) };
        match filled {
            Ok(()) => {
                self.header(FieldStatus::Ok, len as u16, original);
                self.payload.extend_from_slice(&data);
            }
            Err(status) => self.header(status, 0, 0),
        }
        Ok(())
    }

    fn header(&mut self, status: FieldStatus, len: u16, original: u32) {
        self.payload.extend_from_slice(&[status as u8, 0]);
        self.payload.extend_from_slice(&len.to_le_bytes());
        self.payload.extend_from_slice(&original.to_le_bytes());
    }
}

fn clamp_len(imm: i64) -> usize {
    imm.clamp(0, MAX_FIELD_DATA as i64) as usize
}

#[cfg(test)]
mod tests;
