//! The reference interpreter of fetch programs: the oracle that the BPF interpreter and
//! the trampoline compiler are tested against. `wire`'s module on fetch programs states the rules.

use address::{Avma, MemoryError, ReadMemory};
use wire::{
    Body, Elements, FIELD_HEADER, FieldStatus, IMAGE_PLACE, KIND_POINTER, MAX_BLOCKS,
    MAX_CONDITION_OPS, MAX_FIELD_DATA, MAX_PAYLOAD, MAX_PROGRAM_OPS, MAX_STEPS, Op, OpCode,
    Relation, TYPE_ELEM, TYPE_KIND, Word,
};

/// The machine state a program starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// General registers at the site, in hardware order: rax rcx rdx rbx rsp rbp rsi rdi r8..r15.
    pub gpr: [u64; 16],
    /// SP as at the function's first instruction (avma): SP at the site + the site's `sp_delta`.
    pub sp_first: u64,
    /// Low halves of the vector registers X0 to X15, where they are seen.
    pub xmm: Option<[u64; 16]>,
    /// Where the image lies: address in the process minus address in the image.
    pub bias: u64,
}

/// Runs `ops` and gives the payload: the fields it emitted, at most
/// [`MAX_PAYLOAD`] bytes and always a multiple of 8; nothing when the hit is not wanted.
///
/// `g` is the address (avma) of the current g, as the hit found it.
pub fn interpret(ops: &[Op], registers: &Registers, g: u64, memory: &dyn ReadMemory) -> Vec<u8> {
    let ops = &ops[..ops.len().min(MAX_PROGRAM_OPS)];
    run(ops, MAX_STEPS, registers, g, memory).unwrap_or_default()
}

/// Runs a program behind the condition of its site; `None` when the hit is not wanted.
pub fn interpret_hit(
    condition: &[Op],
    program: &[Op],
    registers: &Registers,
    g: u64,
    memory: &dyn ReadMemory,
) -> Option<Vec<u8>> {
    let condition = &condition[..condition.len().min(MAX_CONDITION_OPS)];
    let program = &program[..program.len().min(MAX_PROGRAM_OPS)];
    let ops = [condition, program].concat();
    run(&ops, MAX_STEPS + MAX_CONDITION_OPS, registers, g, memory)
}

fn run(
    ops: &[Op],
    steps: usize,
    registers: &Registers,
    g: u64,
    memory: &dyn ReadMemory,
) -> Option<Vec<u8>> {
    let mut machine = Machine {
        registers,
        g,
        memory,
        field: FieldState::default(),
        payload: Vec::new(),
        last: None,
        blocks: Vec::new(),
        search: None,
        next: 0,
        end: ops.len(),
    };
    for _ in 0..steps {
        match machine.run_one(ops) {
            Ok(()) => {}
            Err(End::Over) => break,
            Err(End::Rejected) => return None,
        }
    }
    Some(machine.payload)
}

mod map;

/// Why the program ends.
enum End {
    /// It is over or the payload is full.
    Over,
    /// The hit is not wanted.
    Rejected,
}

/// A body that is being run, and the element it is run for.
struct Block {
    /// Where the element lies in the payload.
    at: usize,
    /// Its bytes.
    len: usize,
    /// Bytes of the field from the element on.
    left: usize,
    /// Whether there are elements behind it.
    is_list: bool,
    /// First op of the body, and the one behind it.
    start: usize,
    end: usize,
}

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
    /// Place and length of the data of the field emitted last, if that was `Ok`.
    last: Option<(usize, usize)>,
    blocks: Vec<Block>,
    /// Of a map, which the op in hand goes on with.
    search: Option<map::Search>,
    next: usize,
    end: usize,
}

impl Machine<'_> {
    fn run_one(&mut self, ops: &[Op]) -> Result<(), End> {
        if self.blocks.last().is_some_and(|block| block.end == self.next) {
            self.pass();
            return Ok(());
        }
        let op = ops[..self.end].get(self.next).ok_or(End::Over)?;
        self.next += 1;
        self.step(*op)
    }

    /// Ends a pass of the innermost body.
    fn pass(&mut self) {
        self.field = FieldState::default();
        let Some(block) = self.blocks.last_mut() else { return };
        let left = block.left - block.len;
        if block.is_list && left >= block.len {
            block.left = left;
            block.at += block.len;
            self.next = block.start;
        } else {
            self.blocks.pop();
        }
    }

    /// Begins the body behind an [`OpCode::Each`], or passes over it.
    fn each(&mut self, body: Body) {
        self.field = FieldState::default();
        let start = self.next;
        let end = start.saturating_add(body.ops.into()).min(self.body_end());
        let is_list = body.stride != 0;
        let Some((at, left)) = self.last.filter(|(_, left)| *left >= usize::from(body.stride))
        else {
            self.next = end;
            return;
        };
        if self.blocks.len() == MAX_BLOCKS {
            self.next = end;
            return;
        }
        let len = if is_list { body.stride.into() } else { left };
        self.blocks.push(Block { at, len, left, is_list, start, end });
    }

    fn body_end(&self) -> usize {
        self.blocks.last().map_or(self.end, |block| block.end)
    }

    fn skip(&mut self, ops: i64, is_met: bool) {
        let field = std::mem::take(&mut self.field);
        if is_met || field.failure.is_some() {
            let ops = usize::try_from(ops).unwrap_or(0);
            self.next = self.next.saturating_add(ops).min(self.body_end());
        }
    }

    fn block_word(&mut self, block: u8, offset: i64) {
        let word = || {
            let block = self.blocks.get(usize::from(block))?;
            let offset = usize::try_from(offset).ok()?;
            let end = offset.checked_add(8).filter(|end| *end <= block.len)?;
            let bytes = self.payload.get(block.at + offset..block.at + end)?;
            bytes.try_into().ok().map(u64::from_le_bytes)
        };
        match word() {
            Some(word) => self.field.acc = word,
            None => _ = self.field.failure.get_or_insert(FieldStatus::Fault),
        }
    }

    fn step(&mut self, op: Op) -> Result<(), End> {
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
            OpCode::EmitElements => return self.emit_elements(Elements::of_imm(op.imm)),
            OpCode::EmitDynamic => return self.emit_dynamic(clamp_len(op.imm)),
            OpCode::Each => self.each(Body::of_imm(op.imm)),
            OpCode::BlockWord => self.block_word(op.a, op.imm),
            OpCode::Image => {
                let bias = self.registers.bias;
                let from = if op.a == IMAGE_PLACE { field.acc.wrapping_sub(bias) } else { bias };
                field.acc = from.wrapping_add_signed(op.imm);
            }
            OpCode::SkipNonZero => {
                let is_met = field.acc != 0;
                self.skip(op.imm, is_met);
            }
            OpCode::SkipZero => {
                let is_met = field.acc == 0;
                self.skip(op.imm, is_met);
            }
            OpCode::Load => {
                let word = Word::of_operand(op.a);
                if let Some(loaded) = self.load(word) {
                    self.field.acc = loaded;
                }
            }
            OpCode::Narrow => field.acc = Word::of_operand(op.a).of(field.acc),
            OpCode::Compare => {
                let relation = Relation::of_operand(op.a);
                let (left, right) = match relation.with_aux {
                    true => (field.aux, field.acc),
                    false => (field.acc, op.imm as u64),
                };
                field.acc = relation.holds(left, right).into();
            }
            OpCode::Touch => self.touch(clamp_len(op.imm)),
            OpCode::AddAux => field.aux = field.aux.wrapping_add_signed(op.imm),
            OpCode::Match if field.aux == 0 => {
                let word = Word { signed: false, ..Word::of_operand(op.a) };
                if let Some(loaded) = self.load(word) {
                    self.field.aux = loaded ^ op.imm as u64;
                    self.field.acc = self.field.acc.wrapping_add(word.size.into());
                }
            }
            OpCode::Match => {}
            OpCode::Reject => return Err(End::Rejected),
            OpCode::MapElem => self.map_elem(op),
        }
        Ok(())
    }

    /// The word at acc; the field fails when it can not be read, and nothing is read when it has.
    fn load(&mut self, word: Word) -> Option<u64> {
        if self.field.failure.is_some() {
            return None;
        }
        let mut bytes = [0; 8];
        let len = usize::from(word.size);
        match self.memory.read_memory(Avma(self.field.acc), &mut bytes[..len]) {
            Ok(()) => Some(word.of(u64::from_le_bytes(bytes))),
            Err(_) => {
                self.field.failure = Some(FieldStatus::Fault);
                None
            }
        }
    }

    fn touch(&mut self, most: usize) {
        let field = &mut self.field;
        if (field.aux as i64) < 0 {
            field.failure.get_or_insert(FieldStatus::Fault);
        }
        let len = most.min(usize::try_from(field.aux).unwrap_or(usize::MAX));
        if field.failure.is_some() || len == 0 {
            return;
        }
        let last = field.acc.wrapping_add(len as u64 - 1);
        for address in [field.acc, last] {
            if self.memory.read_memory(Avma(address), &mut [0]).is_err() {
                self.field.failure = Some(FieldStatus::Fault);
                return;
            }
        }
    }

    fn emit_elements(&mut self, elements: Elements) -> Result<(), End> {
        let aux = self.field.aux;
        if (aux as i64) < 0 {
            self.field.failure.get_or_insert(FieldStatus::Fault);
        }
        let count = usize::try_from(aux).unwrap_or(usize::MAX).min(elements.most.into());
        let len = count * usize::from(elements.stride);
        self.emit_memory(len, u32::try_from(aux).unwrap_or(u32::MAX))
    }

    fn emit_dynamic(&mut self, most: usize) -> Result<(), End> {
        let mut size = 0;
        if self.field.failure.is_none() {
            match self.dynamic_size(self.field.aux) {
                Ok(found) => size = found,
                Err(_) => self.field.failure = Some(FieldStatus::Fault),
            }
        }
        let len = usize::try_from(size).unwrap_or(usize::MAX).min(most);
        self.emit_memory(len, u32::try_from(size).unwrap_or(u32::MAX))
    }

    /// Bytes of a value of a type, or of what a pointer type leads to.
    fn dynamic_size(&self, descriptor: u64) -> Result<u64, MemoryError> {
        let mut kind = [0];
        self.memory.read_memory(Avma(descriptor.wrapping_add(TYPE_KIND)), &mut kind)?;
        let descriptor = match kind[0] & 31 {
            KIND_POINTER => self.memory.read_word(Avma(descriptor.wrapping_add(TYPE_ELEM)))?,
            _ => descriptor,
        };
        self.memory.read_word(Avma(descriptor))
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

    fn emit_acc(&mut self, width: u8) -> Result<(), End> {
        let len = if matches!(width, 1 | 2 | 4) { usize::from(width) } else { 8 };
        let word = self.field.acc.to_le_bytes();
        self.emit(len, len as u32, |_, data| {
            data.copy_from_slice(&word[..len]);
            Ok(())
        })
    }

    fn emit_string(&mut self, max: i64) -> Result<(), End> {
        let aux = self.field.aux;
        if (aux as i64) < 0 {
            self.field.failure.get_or_insert(FieldStatus::Fault);
        }
        let len = clamp_len(max).min(usize::try_from(aux).unwrap_or(usize::MAX));
        self.emit_memory(len, u32::try_from(aux).unwrap_or(u32::MAX))
    }

    fn emit_memory(&mut self, len: usize, original: u32) -> Result<(), End> {
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
    ) -> Result<(), End> {
        let field = std::mem::take(&mut self.field);
        self.last = None;
        let room = (MAX_PAYLOAD - self.payload.len()).checked_sub(FIELD_HEADER).ok_or(End::Over)?;
        if let Some(status) = field.failure {
            self.header(status, 0, 0);
            return Ok(());
        }
        let padded = len.next_multiple_of(8);
        if padded > room {
            self.header(FieldStatus::NoRoom, 0, 0);
            return Err(End::Over);
        }
        let mut data = vec![0; padded];
        let filled = if len == 0 { Ok(()) } else { fill(self.memory, &mut data[..len]) };
        match filled {
            Ok(()) => {
                self.header(FieldStatus::Ok, len as u16, original);
                self.last = Some((self.payload.len(), len));
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
