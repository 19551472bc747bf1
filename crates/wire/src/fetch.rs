//! Fetch programs: the op encoding, and the fields they emit.
//!
//! A program runs at a hit over the registers, memory and one accumulator pair
//! (`acc`, `aux`). It emits fields. A load that fails faults the *current field*: the
//! field is emitted as [`FieldStatus::Fault`] when the program reaches its emit op, and the
//! next field starts clean. How many fields a program emits hangs on the fields before alone
//! ([`OpCode::Each`], the skips), until the payload is full ([`FieldStatus::NoRoom`] for a
//! field that did not fit, if its header does).
//!
//! The rules, all of them:
//! - At the start, after each emit and at [`OpCode::Reset`]: acc = aux = 0 and the field's
//!   status is `Ok`.
//! - The first failure of a field decides its status (`Fault` or `Nil`). Until the emit, loads
//!   are skipped and nil checks do nothing; what acc and aux hold is no longer observable.
//! - Arithmetic wraps at 64 bits. No address is treated specially: a low, kernel or
//!   non-canonical one faults because reading it fails. A read is whole or fails.
//! - A field on the wire is its 8-byte header and, padded with zeros to a multiple of 8, its
//!   data. A field that is not `Ok` has `len` = `original` = 0 and no data. `original` of
//!   an `Ok` field equals `len`, except for strings (see [`OpCode::EmitString`]).
//! - An emit op, in this order: (1) fewer than 8 bytes left of
//!   [`MAX_PAYLOAD`](crate::MAX_PAYLOAD): the program ends; (2) the status is not
//!   `Ok`: the header alone; (3) header and padded data do not fit: a `NoRoom`
//!   header, and the program ends; (4) the data is read; if that fails, a `Fault` header
//!   alone. An empty field reads nothing.
//! - A *block* is a field's data as it was captured, or one element of it: what lies behind
//!   pointers in it is read through [`OpCode::BlockWord`], so that what was captured and what was
//!   followed agree whatever the target does meanwhile. Blocks nest ([`MAX_BLOCKS`]); a body ends
//!   with its op, or with the body around it if that ends first. [`OpCode::Each`], the skips and
//!   the end of each pass of a body end the field in hand as [`OpCode::Reset`] does.
//! - [`OpCode::Reject`] ends the program: nothing of the hit is wanted, and there is no payload, whatever was
//!   emitted before. Where a hit is to be told of all the same, because it ends a call, its record has no payload.
//! - Only the first [`MAX_PROGRAM_OPS`] ops of a program are looked at, and at most [`MAX_STEPS`]
//!   steps are made: each op run is one, each end of a pass of a body another. An unknown op
//!   code ends the program.
//!
//! The semantics live in `probe::interpret` (the oracle); BPF interprets the same
//! program and the trampoline backend compiles it.

use serde::{Deserialize, Serialize};

/// Ops in one program at the most.
pub const MAX_PROGRAM_OPS: usize = 512;

/// Steps of one run at the most; the BPF loop bound.
pub const MAX_STEPS: usize = 4096;

/// Ops at the most that stand before a program to decide whether the hit is wanted; they are beside the
/// [`MAX_PROGRAM_OPS`] and [`MAX_STEPS`] of the program.
pub const MAX_CONDITION_OPS: usize = 128;

/// Blocks that are open at a time at the most.
pub const MAX_BLOCKS: usize = 8;

/// Bytes of data one field may carry at the most.
pub const MAX_FIELD_DATA: usize = 1024;

/// Bytes of a field before its data: `status u8, zero u8, len u16, original u32`.
pub const FIELD_HEADER: usize = 8;

/// What an op does. `imm` and `a` are its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum OpCode {
    /// acc = register `a`: 0-15 in hardware order (rax rcx rdx rbx rsp rbp rsi rdi r8..r15);
    /// rsp is SP at the site. Only the low 4 bits of `a` count.
    Reg = 1,
    /// acc = SP at the function's first instruction + imm (stack arguments: imm >= 8).
    StackSlot = 2,
    /// acc = address of the current g.
    CurrentG = 3,
    /// acc = acc + imm (imm is signed, wraps).
    Add = 4,
    /// acc = the 8-byte word at acc; faults the field when it cannot be read. With `a` =
    /// [`DEREF_MAPPED`] who made the program knows that the word is there as long as the
    /// process is: a backend that reads no other memory at the site reads this.
    Deref = 5,
    /// aux = acc.
    SetAux = 6,
    /// acc = aux.
    GetAux = 7,
    /// Starts the next field: fault cleared, acc = aux = 0. Implied at the program's
    /// start and after each emit.
    Reset = 8,
    /// Emits the low `a` bytes (1, 2, 4 or 8; any other `a` is 8) of acc.
    EmitAcc = 9,
    /// Emits `imm` bytes (clamped to 0..=MAX_FIELD_DATA) read from address acc.
    EmitBytes = 10,
    /// Emits min(aux, imm) bytes read from address acc, imm clamped to 0..=MAX_FIELD_DATA;
    /// `original` = aux saturated to u32. aux == 0 emits an empty field without reading; aux
    /// negative as i64 faults.
    EmitString = 11,
    /// Sets the field's status to [`FieldStatus::Nil`] when acc is 0 and the status is `Ok`.
    NilCheck = 12,
    /// acc = the low 8 bytes of vector register `a` (X0-X15); only the low 4 bits of `a`
    /// count. Where a backend cannot see these the field becomes [`FieldStatus::NoRegister`].
    FloatReg = 13,
    /// Emits elements read from address acc, [`Elements`] packed into imm: min(aux, most) of them, fewer if
    /// their bytes exceed [`MAX_FIELD_DATA`]; `original` = aux saturated to u32. No bytes: an
    /// empty field without reading; aux negative as i64 faults.
    EmitElements = 14,
    /// Emits what an interface holds: acc is its data word, aux its dynamic type's descriptor. Of
    /// a pointer type it is what the pointer leads to. As many bytes from acc as the type has,
    /// at most imm, clamped to 0..=MAX_FIELD_DATA; `original` = the type's size saturated to u32.
    EmitDynamic = 15,
    /// The field emitted last as a block: runs the ops of the body ([`Body`] packed into imm) for each
    /// whole element of `stride` bytes, or once for all of it with stride 0. Skips the body when
    /// that field is not `Ok` or no field was emitted yet, and when [`MAX_BLOCKS`] blocks are open.
    Each = 16,
    /// acc = the 8-byte word at imm of block `a` (the outermost is 0); faults the field when
    /// there is no such block or it is too short.
    BlockWord = 17,
    /// Skips imm ops when acc is not 0 or the field has failed.
    SkipNonZero = 18,
    /// Skips imm ops when acc is 0 or the field has failed.
    SkipZero = 19,
    /// acc = where imm, an address in the image, lies in the process; with `a` = [`IMAGE_PLACE`]
    /// acc becomes the address in the image of what it is the address of, and imm is added.
    Image = 20,
    /// acc = the [`Word`] that `a` says, at acc; faults the field when it cannot be read.
    Load = 21,
    /// acc = its low bytes as the [`Word`] that `a` says.
    Narrow = 22,
    /// acc = 1 when acc and imm, or aux and acc, relate as [`Relation`] `a` says, else 0.
    Compare = 23,
    /// Faults the field when min(aux, imm) bytes from address acc on can not be read, imm clamped to
    /// 0..=MAX_FIELD_DATA, or aux is negative as i64: as [`OpCode::EmitString`] would. Only the first and
    /// the last of them are read: no more than one page lies between.
    Touch = 24,
    /// aux = aux + imm (wraps).
    AddAux = 25,
    /// Nothing when aux is not 0. Else aux = imm, exclusive or the unsigned [`Word`] that `a` says, at acc (faults the
    /// field when it cannot be read); then acc = acc + its bytes.
    Match = 26,
    /// Ends the program: the hit is not wanted.
    Reject = 27,
    /// acc = address of what the Go map whose header is at acc has for a string, 0 if nothing; see [`MapKey`].
    MapElem = 28,
}

impl OpCode {
    /// Whether it emits a field.
    pub const fn is_emit(self) -> bool {
        matches!(
            self,
            Self::EmitAcc
                | Self::EmitBytes
                | Self::EmitString
                | Self::EmitElements
                | Self::EmitDynamic
        )
    }

    /// Whether the next field starts behind it, without one being emitted.
    pub const fn opens_field(self) -> bool {
        matches!(self, Self::Reset | Self::Each | Self::SkipNonZero | Self::SkipZero)
    }
}

/// An integer of 1, 2, 4 or 8 bytes as an operand: the low 4 bits are its size (any other is 8), bit 4 is
/// set when it is extended by its sign instead of with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Bytes.
    pub size: u8,
    /// Two's complement.
    pub signed: bool,
}

impl Word {
    /// As `a`.
    pub const fn to_operand(self) -> u8 {
        self.size | (self.signed as u8) << 4
    }

    /// From `a`.
    pub const fn of_operand(a: u8) -> Self {
        let size = match a & 15 {
            size @ (1 | 2 | 4) => size,
            _ => 8,
        };
        Self { size, signed: a & 16 != 0 }
    }

    /// The low bytes of `word` as such an integer.
    pub const fn of(self, word: u64) -> u64 {
        let unused = 64 - 8 * self.size as u32;
        match self.signed {
            true => ((word << unused) as i64 >> unused) as u64,
            false => word << unused >> unused,
        }
    }
}

/// What a comparison asks, as an operand: bits 0 and 1 which of these, bit 2 its opposite, bit 3 of
/// unsigned numbers, bit 4 with acc and aux (acc on the right) instead of acc and imm (acc on the left).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relation {
    /// The question.
    pub order: Order,
    /// Whether the answer is turned round.
    pub negated: bool,
    /// Unsigned numbers.
    pub unsigned: bool,
    /// aux on the left and acc on the right.
    pub with_aux: bool,
}

/// How the left side has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Order {
    Equal = 0,
    Less = 1,
    Greater = 2,
}

impl Relation {
    /// As `a`.
    pub const fn to_operand(self) -> u8 {
        self.order as u8
            | (self.negated as u8) << 2
            | (self.unsigned as u8) << 3
            | (self.with_aux as u8) << 4
    }

    /// From `a`; both bits of the order together are equality.
    pub const fn of_operand(a: u8) -> Self {
        let order = match a & 3 {
            1 => Order::Less,
            2 => Order::Greater,
            _ => Order::Equal,
        };
        let (negated, unsigned) = (a & 4 != 0, a & 8 != 0);
        Self { order, negated, unsigned, with_aux: a & 16 != 0 }
    }

    /// Whether it holds.
    pub const fn holds(self, left: u64, right: u64) -> bool {
        let holds = match (self.order, self.unsigned) {
            (Order::Equal, _) => left == right,
            (Order::Less, true) => left < right,
            (Order::Less, false) => (left as i64) < right as i64,
            (Order::Greater, true) => left > right,
            (Order::Greater, false) => left as i64 > right as i64,
        };
        holds != self.negated
    }
}

/// Groups of a map that one [`OpCode::MapElem`] looks at: buckets, those that one overflows into, and those that the map
/// grows out of. Of a larger map nothing is found: the field faults.
pub const MAX_MAP_GROUPS: usize = 64;

/// `a` of an [`OpCode::MapElem`]: bits 0 to 2 the length, bits 4 to 6 the element, bit 7 the form; bit 3 means nothing. imm
/// is the first 8 bytes of the key, and aux the last 8, which may overlap.
///
/// Each step looks at one group, so that the op may be run for many steps: it is as many. A group that fails to be
/// read, and a string of that length that does, fault the field. The hash plays no part: whatever is in a group is a
/// key or empty, as the runtime clears what it deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapKey {
    /// Bytes of the key: 8 to 15.
    pub len: u8,
    /// Words of an element: 0 to 7.
    pub elem_words: u8,
    /// Whether the map is one of `internal/runtime/maps` (from Go 1.24 on), else one of `runtime/map.go`.
    pub is_swiss: bool,
}

impl MapKey {
    /// As `a`.
    pub const fn to_operand(self) -> u8 {
        self.len.wrapping_sub(8) & 7 | (self.elem_words & 7) << 4 | (self.is_swiss as u8) << 7
    }

    /// From `a`.
    pub const fn of_operand(a: u8) -> Self {
        Self { len: 8 + (a & 7), elem_words: a >> 4 & 7, is_swiss: a & 0x80 != 0 }
    }

    /// Bytes from one key to the next; the first one is 8 bytes from the begin of a group.
    pub const fn stride(self) -> u64 {
        if self.is_swiss { 16 + self.elem_bytes() } else { 16 }
    }

    const fn elem_bytes(self) -> u64 {
        8 * self.elem_words as u64
    }

    /// Bytes from the begin of a group to the element of key `index`.
    pub const fn elem(self, index: u64) -> u64 {
        match self.is_swiss {
            true => 8 + index * self.stride() + 16,
            false => 8 + 8 * 16 + index * self.elem_bytes(),
        }
    }

    /// Bytes of a group; of a bucket the last word leads to the one that it overflows into.
    pub const fn group(self) -> u64 {
        let entries = 8 + 8 * (16 + self.elem_bytes());
        if self.is_swiss { entries } else { entries + 8 }
    }
}

/// Where `runtime.hmap` (`runtime/map.go`, Go 1.19 to 1.23) has its flags, the logarithm of its buckets, the buckets,
/// and those that it grows out of. With this flag there are as many of these, else half as many.
pub const HMAP_FLAGS: u64 = 8;
/// See [`HMAP_FLAGS`].
pub const HMAP_LOG: u64 = 9;
/// See [`HMAP_FLAGS`].
pub const HMAP_BUCKETS: u64 = 16;
/// See [`HMAP_FLAGS`].
pub const HMAP_OLD: u64 = 24;
/// See [`HMAP_FLAGS`].
pub const HMAP_SAME_SIZE: u8 = 8;

/// Where `maps.Map` (`internal/runtime/maps`, from Go 1.24 on) has its one group or its tables, and how many tables; and where
/// a table has its groups, and how many less one.
pub const SWISS_DIR: u64 = 16;
/// See [`SWISS_DIR`].
pub const SWISS_DIR_LEN: u64 = 24;
/// See [`SWISS_DIR`].
pub const SWISS_GROUPS: u64 = 16;
/// See [`SWISS_DIR`].
pub const SWISS_MASK: u64 = 24;

/// Operand of [`OpCode::EmitElements`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    /// Bytes from one to the next.
    pub stride: u16,
    /// How many at the most.
    pub most: u16,
}

impl Elements {
    /// As `imm`.
    pub const fn to_imm(self) -> i64 {
        (self.stride as i64) << 16 | self.most as i64
    }

    /// From `imm`, of which only the low 32 bits count; `most` is so small that the field is
    /// not too long.
    pub fn of_imm(imm: i64) -> Self {
        let stride = (imm >> 16) as u16;
        let room = (MAX_FIELD_DATA as u16).checked_div(stride).unwrap_or(0);
        Self { stride, most: (imm as u16).min(room) }
    }

    /// Bytes at the most.
    pub const fn bytes(self) -> usize {
        self.stride as usize * self.most as usize
    }
}

/// Operand of [`OpCode::Each`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// Ops.
    pub ops: u16,
    /// Bytes of an element; 0: the whole field is one.
    pub stride: u16,
}

impl Body {
    /// As `imm`.
    pub const fn to_imm(self) -> i64 {
        (self.stride as i64) << 16 | self.ops as i64
    }

    /// From `imm`, of which only the low 32 bits count.
    pub const fn of_imm(imm: i64) -> Self {
        Self { ops: imm as u16, stride: (imm >> 16) as u16 }
    }
}

/// Place of the kind in a type's descriptor, its low 5 bits; the kind of pointers, and where their descriptors have what
/// they point to. A descriptor begins with the type's size. `internal/abi.Type`, Go 1.19 to 1.27.
pub const TYPE_KIND: u64 = 23;
/// See [`TYPE_KIND`].
pub const KIND_POINTER: u8 = 22;
/// See [`TYPE_KIND`].
pub const TYPE_ELEM: u64 = 48;

/// `a` of an [`OpCode::Deref`] whose address lies in a g or an m of the Go runtime, memory that is
/// never unmapped (`runtime/mheap.go`, Go 1.19 to 1.27: unused spans keep their addresses).
pub const DEREF_MAPPED: u8 = 1;

/// `a` of an [`OpCode::Image`] that goes from the process to the image.
pub const IMAGE_PLACE: u8 = 1;

/// One op, 16 bytes: `code u8, a u8, zero u16, zero u32, imm i64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Op {
    /// What it does.
    pub code: OpCode,
    /// Register number or width.
    pub a: u8,
    /// Immediate operand.
    pub imm: i64,
}

impl Op {
    /// Size on the wire, bytes.
    pub const SIZE: usize = 16;

    /// An op with both operands.
    pub const fn new(code: OpCode, a: u8, imm: i64) -> Self {
        Self { code, a, imm }
    }

    /// The wire form.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = self.code as u8;
        bytes[1] = self.a;
        bytes[8..16].copy_from_slice(&self.imm.to_le_bytes());
        bytes
    }
}

/// How the capture of one field went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FieldStatus {
    /// The data is what the target held.
    Ok = 0,
    /// A load failed: the address is not readable (or the length was negative).
    Fault = 1,
    /// A pointer on the way was nil.
    Nil = 2,
    /// The record was full.
    NoRoom = 3,
    /// The backend reads no memory at this site: a fault there could not be handled.
    Unread = 4,
    /// The backend does not see the register.
    NoRegister = 5,
}

/// One field of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// How the capture went; data means nothing unless `Ok`.
    pub status: FieldStatus,
    /// Length the value has in the target (strings); equals `data.len()` otherwise.
    pub original: u32,
    /// The captured bytes.
    pub data: &'a [u8],
}

impl Field<'_> {
    /// The data as a little-endian number of at most 8 bytes.
    pub fn as_u64(&self) -> Option<u64> {
        if self.status != FieldStatus::Ok || self.data.is_empty() || self.data.len() > 8 {
            return None;
        }
        let mut word = [0; 8];
        word[..self.data.len()].copy_from_slice(self.data);
        Some(u64::from_le_bytes(word))
    }
}

/// Iterates the fields of a payload; stops at the first malformed one.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Fields of `payload`.
    pub fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let header: &[u8; FIELD_HEADER] = self.rest.first_chunk()?;
        let status = match header[0] {
            0 => FieldStatus::Ok,
            1 => FieldStatus::Fault,
            2 => FieldStatus::Nil,
            3 => FieldStatus::NoRoom,
            4 => FieldStatus::Unread,
            5 => FieldStatus::NoRegister,
            _ => return None,
        };
        let len = usize::from(u16::from_le_bytes([header[2], header[3]]));
        let original = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let data = self.rest.get(FIELD_HEADER..FIELD_HEADER + len)?;
        let next = (FIELD_HEADER + len.next_multiple_of(8)).min(self.rest.len());
        self.rest = &self.rest[next..];
        Some(Field { status, original, data })
    }
}
