//! The search in a Go map as code.
//! ```text
//! RAX = header, then the address of the element, 0 without one    RDX = aux: the last bytes of the key
//! RSI = group    RCX = at hand    in the block behind all others: the header, then counters
//! ```
//! The counters are 4 bytes of groups that are left of the array, and 4 of those that were looked at and, in the highest bit,
//! whether the array is the one that the map grows out of. The next group of the array is in RAX once the header is saved.

use super::fetch::{BLOCK_SPILL, Exits, LOWEST, SPILL_SIZE};
use super::program::{Values, levels};
use super::recorder::Recorder;
use crate::layout::UNIT;
use iced_x86::IcedError;
use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::{AsmMemoryOperand, CodeLabel, byte_ptr, dword_ptr, qword_ptr};
use wire::{
    HMAP_BUCKETS, HMAP_FLAGS, HMAP_LOG, HMAP_OLD, HMAP_SAME_SIZE, MAX_MAP_GROUPS, MapKey, Op,
    SWISS_DIR, SWISS_DIR_LEN, SWISS_GROUPS, SWISS_MASK,
};

/// The bit that tells which array it is.
const OLD: i32 = 1 << 30;

impl Recorder<'_> {
    pub(super) fn map_elem(&mut self, op: Op, exits: Exits) -> Result<(), IcedError> {
        let key = MapKey::of_operand(op.a);
        let (mut look, mut found) = (self.asm.create_label(), self.asm.create_label());
        let mut none = self.asm.create_label();
        let mut done = self.asm.create_label();
        self.check_low(exits)?;
        let [header, counters] = self.search_spill();
        self.asm.mov(header, rax)?;
        self.asm.mov(counters, 0)?;
        match key.is_swiss {
            true => self.swiss_groups(none, exits)?,
            false => self.buckets(HMAP_BUCKETS, none, exits)?,
        }
        // ECX groups from RSI on.
        let mut array = self.asm.create_label();
        self.asm.set_label(&mut array)?;
        self.asm.sub(ecx, 1)?;
        self.asm.mov(self.groups_left(), ecx)?;
        self.asm.lea(rax, qword_ptr(rsi + key.group() as i32))?;
        self.asm.set_label(&mut look)?;
        self.asm.cmp(rsi, LOWEST)?;
        self.asm.jb(exits.fault)?;
        self.keys(op, key, found, exits)?;
        self.next_group(key, (look, array, none), exits)?;
        // RCX is the element's place.
        self.asm.set_label(&mut found)?;
        self.asm.lea(rax, qword_ptr(rsi + rcx))?;
        self.asm.jmp(done)?;
        self.asm.set_label(&mut none)?;
        self.asm.xor(eax, eax)?;
        self.asm.set_label(&mut done)?;
        self.asm.zero_bytes()
    }

    /// Compares the keys of the group at RSI.
    fn keys(
        &mut self,
        op: Op,
        key: MapKey,
        found: CodeLabel,
        exits: Exits,
    ) -> Result<(), IcedError> {
        // All of it can be read, or nothing is found in it.
        for place in [0, key.group() as i32 - 8] {
            self.load(exits, |this| this.asm.mov(rcx, qword_ptr(rsi + place)))?;
        }
        for index in 0..8 {
            let mut next = self.asm.create_label();
            let place = (8 + index * key.stride()) as i32;
            let len = i32::from(key.len);
            self.load(exits, |this| this.asm.cmp(qword_ptr(rsi + place + 8), len))?;
            self.asm.jne(next)?;
            self.load(exits, |this| this.asm.mov(rcx, qword_ptr(rsi + place)))?;
            self.asm.cmp(rcx, LOWEST)?;
            self.asm.jb(exits.fault)?;
            let halves = [op.imm as i32, (op.imm >> 32) as i32];
            for (half, at) in halves.into_iter().zip([0, 4]) {
                self.load(exits, |this| this.asm.cmp(dword_ptr(rcx + at), half))?;
                self.asm.jne(next)?;
            }
            self.load(exits, |this| this.asm.cmp(qword_ptr(rcx + (len - 8)), rdx))?;
            self.asm.jne(next)?;
            self.asm.mov(ecx, key.elem(index) as u32)?;
            self.asm.jmp(found)?;
            self.asm.set_label(&mut next)?;
            self.asm.zero_bytes()?;
        }
        Ok(())
    }

    /// Goes on to the group behind the one at RSI, if there is one.
    fn next_group(
        &mut self,
        key: MapKey,
        (look, array, none): (CodeLabel, CodeLabel, CodeLabel),
        exits: Exits,
    ) -> Result<(), IcedError> {
        let (mut go_on, mut end) = (self.asm.create_label(), self.asm.create_label());
        let mut in_array = self.asm.create_label();
        let (left, seen) = (self.groups_left(), self.groups_seen());
        if !key.is_swiss {
            let last = key.group() as i32 - 8;
            self.load(exits, |this| this.asm.mov(rcx, qword_ptr(rsi + last)))?;
            self.asm.test(rcx, rcx)?;
            self.asm.je(in_array)?;
            self.asm.mov(rsi, rcx)?;
            self.asm.jmp(go_on)?;
        }
        self.asm.set_label(&mut in_array)?;
        self.asm.cmp(left, 0)?;
        self.asm.je(end)?;
        self.asm.sub(left, 1)?;
        self.asm.mov(rsi, rax)?;
        self.asm.add(rax, key.group() as i32)?;
        self.asm.set_label(&mut go_on)?;
        self.count(seen, exits)?;
        self.asm.jmp(look)?;
        self.asm.set_label(&mut end)?;
        if key.is_swiss {
            return self.asm.jmp(none);
        }
        // The array that the map grows out of, once.
        self.asm.test(seen, OLD)?;
        self.asm.jne(none)?;
        self.asm.or(seen, OLD)?;
        let [header, _] = self.search_spill();
        self.asm.mov(rax, header)?;
        self.buckets(HMAP_OLD, none, exits)?;
        self.count(seen, exits)?;
        self.asm.jmp(array)
    }

    /// One more group was looked at.
    fn count(&mut self, seen: AsmMemoryOperand, exits: Exits) -> Result<(), IcedError> {
        self.asm.add(seen, 1)?;
        self.asm.test(seen, MAX_MAP_GROUPS as i32)?;
        self.asm.jne(exits.fault)
    }

    /// RSI = the buckets of the header at RAX, ECX = how many; `none` without any.
    fn buckets(&mut self, at: u64, none: CodeLabel, exits: Exits) -> Result<(), IcedError> {
        let is_old = at == HMAP_OLD;
        let (at, log, flags) = (at as i32, HMAP_LOG as i32, HMAP_FLAGS as i32);
        let mut same = self.asm.create_label();
        self.load(exits, |this| this.asm.movzx(ecx, byte_ptr(rax + log)))?;
        self.asm.cmp(ecx, 6)?;
        self.asm.ja(exits.fault)?;
        // Both are read before either counts, as by others.
        let other = if is_old { HMAP_BUCKETS } else { HMAP_OLD } as i32;
        self.load(exits, |this| this.asm.mov(rsi, qword_ptr(rax + other)))?;
        self.load(exits, |this| this.asm.mov(rsi, qword_ptr(rax + at)))?;
        if is_old {
            self.load(exits, |this| {
                this.asm.test(byte_ptr(rax + flags), i32::from(HMAP_SAME_SIZE))
            })?;
            self.asm.jne(same)?;
            self.asm.sub(ecx, 1)?;
            self.asm.jns(same)?;
            self.asm.xor(ecx, ecx)?;
            self.asm.set_label(&mut same)?;
        }
        self.asm.mov(eax, 1)?;
        self.asm.shl(eax, cl)?;
        self.asm.mov(ecx, eax)?;
        self.asm.test(rsi, rsi)?;
        self.asm.je(none)
    }

    /// RSI = the groups of the header at RAX, ECX = how many; `none` without any.
    fn swiss_groups(&mut self, none: CodeLabel, exits: Exits) -> Result<(), IcedError> {
        let (mut one, mut begin) = (self.asm.create_label(), self.asm.create_label());
        let (dir, len) = (SWISS_DIR as i32, SWISS_DIR_LEN as i32);
        let (groups, mask) = (SWISS_GROUPS as i32, SWISS_MASK as i32);
        self.load(exits, |this| this.asm.mov(rcx, qword_ptr(rax + len)))?;
        self.load(exits, |this| this.asm.mov(rsi, qword_ptr(rax + dir)))?;
        self.asm.cmp(rcx, 1)?;
        self.asm.ja(exits.fault)?;
        self.asm.jb(one)?;
        self.asm.cmp(rsi, LOWEST)?;
        self.asm.jb(exits.fault)?;
        self.load(exits, |this| this.asm.mov(rax, qword_ptr(rsi)))?;
        self.check_low(exits)?;
        self.load(exits, |this| this.asm.mov(rcx, qword_ptr(rax + mask)))?;
        self.load(exits, |this| this.asm.mov(rsi, qword_ptr(rax + groups)))?;
        self.asm.add(rcx, 1)?;
        self.asm.jmp(begin)?;
        self.asm.set_label(&mut one)?;
        self.asm.mov(ecx, 1)?;
        self.asm.set_label(&mut begin)?;
        self.asm.test(rsi, rsi)?;
        self.asm.je(none)?;
        // Of none 0 less one is the most.
        self.asm.lea(rax, qword_ptr(rcx - 1))?;
        self.asm.cmp(rax, MAX_MAP_GROUPS as i32)?;
        self.asm.jae(exits.fault)
    }

    /// Header and counters.
    fn search_spill(&self) -> [AsmMemoryOperand; 2] {
        let at = self.counters_at();
        [qword_ptr(r12 + (at - 8)), qword_ptr(r12 + at)]
    }

    /// Bytes from R12 on.
    fn counters_at(&self) -> i32 {
        let levels = match &self.key.values {
            Values::Reading(nodes) => levels(nodes),
            Values::Fixed(_) => 0,
        };
        (UNIT + SPILL_SIZE + levels * BLOCK_SPILL + 8) as i32
    }

    fn groups_left(&self) -> AsmMemoryOperand {
        dword_ptr(r12 + self.counters_at())
    }

    fn groups_seen(&self) -> AsmMemoryOperand {
        dword_ptr(r12 + (self.counters_at() + 4))
    }
}
