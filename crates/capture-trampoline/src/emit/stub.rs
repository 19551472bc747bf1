//! The code of one region: what it records, its moved instructions, the jump back.

use super::body::{Body, is_last};
use super::region::Region;
use super::{EmitOptions, PATCH_LEN, Patch, Refused, TrampolinePc};
use address::{Avma, Svma};
use iced_x86::{Encoder, FlowControl, Instruction};
use std::ops::Range;

/// `lea r13, [rip + …]`, without the distance.
const LEA_R13: [u8; 3] = [0x4c, 0x8d, 0x2d];
/// `jmp rel32`.
const JMP: u8 = 0xe9;

/// Where to record an event and with which tag.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) recorder: Avma,
    pub(super) tag: u32,
    /// How far SP has moved, for recorders that ask; at a swap, how far behind the place that the
    /// recorder comes back to it goes on without a record.
    pub(super) delta: Option<u16>,
}

/// Stubs as they grow.
pub(super) struct Stubs<'a> {
    pub(super) options: &'a EmitOptions,
    /// Address of the first byte of `code`.
    base: Avma,
    pub(super) code: Vec<u8>,
    pub(super) pieces: Vec<TrampolinePc>,
    pub(super) moved: Vec<(Svma, Avma)>,
    pub(super) patches: Vec<Patch>,
    /// Copies of last blocks that detours lead to.
    copies: Vec<(Svma, Avma)>,
}

/// How far everything had grown.
pub(super) struct Mark {
    code: usize,
    pieces: usize,
    moved: usize,
    patches: usize,
    copies: usize,
}

impl<'a> Stubs<'a> {
    pub(super) fn new(options: &'a EmitOptions, base: Avma) -> Self {
        Self {
            options,
            base,
            code: Vec::new(),
            pieces: Vec::new(),
            moved: Vec::new(),
            patches: Vec::new(),
            copies: Vec::new(),
        }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            code: self.code.len(),
            pieces: self.pieces.len(),
            moved: self.moved.len(),
            patches: self.patches.len(),
            copies: self.copies.len(),
        }
    }

    /// Forgets what was added since.
    pub(super) fn back_to(&mut self, mark: &Mark) {
        self.code.truncate(mark.code);
        self.pieces.truncate(mark.pieces);
        self.moved.truncate(mark.moved);
        self.patches.truncate(mark.patches);
        self.copies.truncate(mark.copies);
    }

    /// The next byte's address.
    pub(super) fn here(&self) -> Avma {
        self.base.add(self.code.len() as u64)
    }

    /// Adds a region; `calls` are its events', in the same order.
    pub(super) fn add(
        &mut self,
        function: u32,
        body: &Body<'_>,
        region: &Region,
        calls: &[Call],
    ) -> Result<(), Refused> {
        for (event, call) in region.events.iter().zip(calls) {
            if let Some((start, end)) = event.detour {
                self.copy(body, start, end, call)?;
            }
        }
        let stub = self.here();
        let mut calls = region.events.iter().zip(calls).peekable();
        for index in region.range.start..=region.range.end {
            let original = body.address(index);
            if index != region.range.start && index != region.range.end {
                self.moved.push((original, self.here()));
            }
            let mut to = None;
            while let Some((event, call)) = calls.next_if(|(event, _)| event.at == index) {
                if let Some((start, _)) = event.detour {
                    to = self.copy_of(body.address(start));
                    continue;
                }
                self.piece(original, false);
                self.call(call, original)?;
            }
            match body.instructions.get(index) {
                Some(instruction) if index < region.range.end => {
                    self.piece(original, true);
                    self.instruction(body, instruction, to)?;
                }
                _ => {}
            }
        }
        let last = region.range.end.checked_sub(1).and_then(|last| body.instructions.get(last));
        if !last.is_some_and(is_last) {
            self.piece(region.end, false);
            self.jump(self.options.bias.to_avma(region.end), region.end)?;
        }
        self.patch(function, body, region.start..region.end, stub)
    }

    fn copy_of(&self, start: Svma) -> Option<Avma> {
        self.copies.iter().rev().find(|copy| copy.0 == start).map(|copy| copy.1)
    }

    /// Copies a last block, once, and records its event before the last instruction.
    fn copy(
        &mut self,
        body: &Body<'_>,
        start: usize,
        end: usize,
        call: &Call,
    ) -> Result<(), Refused> {
        let first = body.address(start);
        if self.copy_of(first).is_some() {
            return Ok(());
        }
        self.copies.push((first, self.here()));
        for index in start..=end {
            let original = body.address(index);
            if index == end {
                self.piece(original, false);
                self.call(call, original)?;
            }
            self.piece(original, true);
            let instruction = body.instructions.get(index).ok_or(Refused::Reach(original))?;
            self.instruction(body, instruction, None)?;
        }
        Ok(())
    }

    pub(super) fn piece(&mut self, original: Svma, is_moved: bool) {
        self.pieces.push(TrampolinePc { start: self.here(), original, is_moved });
    }

    pub(super) fn call(&mut self, call: &Call, at: Svma) -> Result<(), Refused> {
        let delta = call.delta.map(u16::to_le_bytes);
        let delta = delta.as_ref().map_or(&[][..], |delta| delta);
        let back = PATCH_LEN + delta.len() + size_of_val(&call.tag);
        self.code.extend_from_slice(&LEA_R13);
        self.code.extend_from_slice(&(back as u32).to_le_bytes());
        self.jump(call.recorder, at)?;
        self.code.extend_from_slice(delta);
        self.code.extend_from_slice(&call.tag.to_le_bytes());
        Ok(())
    }

    pub(super) fn jump(&mut self, to: Avma, at: Svma) -> Result<(), Refused> {
        let bytes = jump(self.here(), to).ok_or(Refused::Reach(at))?;
        self.code.extend_from_slice(&bytes);
        Ok(())
    }

    /// The same bytes where they mean the same here, else another encoding.
    /// A branch leads to `to`, if that is given.
    pub(super) fn instruction(
        &mut self,
        body: &Body<'_>,
        instruction: &Instruction,
        to: Option<Avma>,
    ) -> Result<(), Refused> {
        let at = Svma(instruction.ip());
        let is_branch = matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
        );
        if !is_branch && !instruction.is_ip_rel_memory_operand() {
            let bytes = body.bytes(at..Svma(instruction.next_ip())).ok_or(Refused::Reach(at))?;
            self.code.extend_from_slice(bytes);
            return Ok(());
        }
        let mut copy = *instruction;
        let move_address = |address: u64| self.options.bias.to_avma(Svma(address)).0;
        if is_branch {
            copy.as_near_branch();
            copy.set_near_branch64(to.map_or(move_address(copy.near_branch64()), |to| to.0));
        } else {
            copy.set_memory_displacement64(move_address(copy.memory_displacement64()));
        }
        let mut encoder = Encoder::new(64);
        encoder.encode(&copy, self.here().0).map_err(|_| Refused::Reach(at))?;
        self.code.append(&mut encoder.take_buffer());
        Ok(())
    }

    pub(super) fn patch(
        &mut self,
        function: u32,
        body: &Body<'_>,
        moved: Range<Svma>,
        stub: Avma,
    ) -> Result<(), Refused> {
        let Range { start: address, end } = moved;
        let out_of_reach = Refused::Reach(address);
        let original = body
            .bytes(address..address.add(PATCH_LEN as u64))
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| out_of_reach.clone())?;
        let from = self.options.bias.to_avma(address);
        let replacement = jump(from, stub).ok_or(out_of_reach)?;
        self.patches.push(Patch { function, address, original, replacement, end });
        Ok(())
    }
}

/// `jmp to`, to stand at `at`.
fn jump(at: Avma, to: Avma) -> Option<[u8; PATCH_LEN]> {
    let distance = to.0.wrapping_sub(at.0.wrapping_add(PATCH_LEN as u64)) as i64;
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([JMP, a, b, c, d])
}
