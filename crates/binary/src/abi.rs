//! Where Go's calling convention puts values (ABIInternal of amd64, and ABI0).
//!
//! Go 1.19 to 1.27 agree, except for the place of a method's generic dictionary. The
//! algorithm is that of `cmd/compile/internal/abi/abiutils.go` and the document
//! `cmd/compile/abi-internal.md`. It is preferred over DWARF, which does not describe
//! result registers and errs for some parameters.

use std::fmt;

/// Integer registers in the order of assignment, by hardware number:
/// rax rbx rcx rdi rsi r8 r9 r10 r11.
const INT_ORDER: [u8; 9] = [0, 3, 1, 7, 6, 8, 9, 10, 11];

/// Floating-point registers used: X0 to X14.
const FLOAT_COUNT: u8 = 15;

/// Size and alignment of a pointer in bytes.
const WORD: u64 = 8;

/// A machine register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reg {
    /// General register by hardware number: rax 0, rcx 1, rdx 2, rbx 3, rsp 4, rbp 5,
    /// rsi 6, rdi 7, r8 to r15.
    Int(u8),
    /// SSE register: X0 to X15.
    Float(u8),
}

impl Reg {
    /// Whether arguments are passed in it.
    pub fn is_argument(self) -> bool {
        match self {
            Self::Int(number) => INT_ORDER.contains(&number),
            Self::Float(number) => number < FLOAT_COUNT,
        }
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LEGACY: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
        match self {
            Self::Int(number) => match LEGACY.get(usize::from(*number)) {
                Some(name) => f.write_str(name),
                None => write!(f, "r{number}"),
            },
            Self::Float(number) => write!(f, "x{number}"),
        }
    }
}

/// A part of a value that one register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The register; bits above `size` are unspecified.
    pub reg: Reg,
    /// Place in the value, bytes.
    pub offset: u32,
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
}

/// Where a value is at a function's entry (parameters) or return (results).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In registers, in field order. A blank field has its piece too.
    Registers(Vec<Piece>),
    /// On the stack, whole.
    Stack {
        /// Bytes from the CFA, which is SP at the first instruction plus 8: the first
        /// stack argument is at 0.
        offset: u32,
    },
    /// The value has no bytes.
    Empty,
}

impl fmt::Display for Place {
    /// `ax`, `bx+cx`, `stack+8` (from SP at the first instruction), `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registers(pieces) => {
                for (index, piece) in pieces.iter().enumerate() {
                    let plus = if index == 0 { "" } else { "+" };
                    write!(f, "{plus}{}", piece.reg)?;
                }
                Ok(())
            }
            Self::Stack { offset } => write!(f, "stack+{}", u64::from(*offset) + WORD),
            Self::Empty => f.write_str("none"),
        }
    }
}

/// What the assignment needs to know about a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbiType {
    /// Bytes.
    pub size: u64,
    /// Alignment in bytes, at least 1.
    pub align: u64,
    /// How it splits into registers.
    pub shape: Shape,
}

/// How a type splits into registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One integer register: booleans, integers, pointers, maps, channels, funcs.
    Int,
    /// One floating-point register.
    Float,
    /// Two floating-point registers: real part, imaginary part.
    Complex,
    /// Two words: string (data, length) or interface (type or itab, data).
    TwoWords,
    /// Three words: slice (data, length, capacity).
    ThreeWords,
    /// Fields with their offsets in bytes.
    Struct(Vec<(u64, AbiType)>),
    /// An array.
    Array {
        /// Type of an element.
        element: Box<AbiType>,
        /// Number of elements.
        len: u64,
    },
}

impl AbiType {
    /// A pointer-sized integer.
    pub const WORD: Self = Self { size: WORD, align: WORD, shape: Shape::Int };

    /// An integer, boolean or pointer of `size` bytes.
    pub const fn int(size: u64) -> Self {
        Self { size, align: size, shape: Shape::Int }
    }
}

/// How a function takes its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// ABIInternal: registers as far as they go.
    Internal,
    /// ABI0: all on the stack (assembly, and Go functions that assembly calls).
    Abi0,
}

/// The places of a function's parameters and results, in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placements {
    /// Parameters, valid at the first instruction.
    pub params: Vec<Place>,
    /// Results, valid at a return instruction.
    pub results: Vec<Place>,
}

/// Assigns places to parameters (receiver first; a generic dictionary is a
/// [`AbiType::WORD`] among them, see [`crate::dictionary_position`]) and results.
pub fn assign(params: &[AbiType], results: &[AbiType], convention: Convention) -> Placements {
    let mut allocator = Allocator::new(convention);
    let params = params.iter().map(|ty| allocator.place(ty)).collect();
    allocator.restart_registers();
    allocator.align_stack(WORD);
    let results = results.iter().map(|ty| allocator.place(ty)).collect();
    Placements { params, results }
}

/// What a function's caller has on the stack for it: stack arguments, stack results, and room for register
/// arguments. `cmd/compile/internal/abi/abiutils.go`, `ArgWidth`, Go 1.17 to 1.27.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArgumentArea {
    /// Bytes, a multiple of 8; what the function table has as `args`.
    pub size: u64,
    /// Bytes of arguments' padding: what small arguments could be in without a larger area.
    pub padding: u64,
}

impl ArgumentArea {
    /// The area of a function with these, and no other, parameters and results.
    pub(crate) fn of(params: &[AbiType], results: &[AbiType], convention: Convention) -> Self {
        let mut allocator = Allocator::new(convention);
        let (mut spilled, mut padding) = (0u64, 0);
        for ty in params {
            let stack = allocator.stack;
            match allocator.place(ty) {
                Place::Registers(_) => {
                    let start = round_up(spilled, ty.align);
                    padding += start - spilled;
                    spilled = start.saturating_add(ty.size);
                }
                _ => padding += allocator.stack.saturating_sub(stack.saturating_add(ty.size)),
            }
        }
        padding += round_up(spilled, WORD) - spilled;
        padding += round_up(allocator.stack, WORD) - allocator.stack;
        allocator.restart_registers();
        allocator.align_stack(WORD);
        for ty in results {
            allocator.place(ty);
        }
        allocator.align_stack(WORD);
        Self { size: allocator.stack.saturating_add(round_up(spilled, WORD)), padding }
    }
}

fn round_up(bytes: u64, align: u64) -> u64 {
    bytes.checked_next_multiple_of(align.max(1)).unwrap_or(bytes)
}

/// The state of an assignment.
#[derive(Clone, Debug)]
pub(crate) struct Allocator {
    convention: Convention,
    ints: usize,
    floats: u8,
    stack: u64,
}

/// A value does not fit into the registers that are left.
struct DoesNotFit;

impl Allocator {
    pub(crate) fn new(convention: Convention) -> Self {
        Self { convention, ints: 0, floats: 0, stack: 0 }
    }

    /// Results use the same registers again.
    fn restart_registers(&mut self) {
        self.ints = 0;
        self.floats = 0;
    }

    fn align_stack(&mut self, align: u64) {
        self.stack = round_up(self.stack, align);
    }

    /// Passes over registers, for parameters that DWARF does not mention.
    pub(crate) fn skip(&mut self, ints: usize, floats: u8) {
        self.ints = (self.ints + ints).min(INT_ORDER.len());
        self.floats = (self.floats.saturating_add(floats)).min(FLOAT_COUNT);
    }

    /// The place of the next value. One that does not fit whole goes to the stack whole
    /// and leaves the registers to those after it.
    pub(crate) fn place(&mut self, ty: &AbiType) -> Place {
        let saved = (self.ints, self.floats);
        if self.convention == Convention::Internal && ty.size > 0 {
            let mut pieces = Vec::new();
            if self.registers(ty, 0, &mut pieces).is_ok() {
                return Place::Registers(pieces);
            }
            (self.ints, self.floats) = saved;
        }
        self.align_stack(ty.align);
        let offset = self.stack;
        self.stack = self.stack.saturating_add(ty.size);
        match u32::try_from(offset) {
            Ok(offset) if ty.size > 0 => Place::Stack { offset },
            _ => Place::Empty,
        }
    }

    fn registers(
        &mut self,
        ty: &AbiType,
        at: u64,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), DoesNotFit> {
        match &ty.shape {
            Shape::Int => self.int(at, ty.size, pieces),
            Shape::Float => self.float(at, ty.size, pieces),
            Shape::Complex => {
                self.float(at, ty.size / 2, pieces)?;
                self.float(at + ty.size / 2, ty.size / 2, pieces)
            }
            Shape::TwoWords => (0..2).try_for_each(|i| self.int(at + i * WORD, WORD, pieces)),
            Shape::ThreeWords => (0..3).try_for_each(|i| self.int(at + i * WORD, WORD, pieces)),
            Shape::Struct(fields) => {
                for (offset, field) in fields {
                    self.registers(field, at.saturating_add(*offset), pieces)?;
                }
                Ok(())
            }
            Shape::Array { len: 0, .. } => Ok(()),
            Shape::Array { len: 1, element } => self.registers(element, at, pieces),
            Shape::Array { .. } => Err(DoesNotFit),
        }
    }

    fn int(&mut self, at: u64, size: u64, pieces: &mut Vec<Piece>) -> Result<(), DoesNotFit> {
        let number = *INT_ORDER.get(self.ints).ok_or(DoesNotFit)?;
        self.ints += 1;
        pieces.push(piece(Reg::Int(number), at, size)?);
        Ok(())
    }

    fn float(&mut self, at: u64, size: u64, pieces: &mut Vec<Piece>) -> Result<(), DoesNotFit> {
        if self.floats >= FLOAT_COUNT {
            return Err(DoesNotFit);
        }
        pieces.push(piece(Reg::Float(self.floats), at, size)?);
        self.floats += 1;
        Ok(())
    }
}

/// Fails for sizes no register holds, which only a hostile file states.
fn piece(reg: Reg, at: u64, size: u64) -> Result<Piece, DoesNotFit> {
    let offset = u32::try_from(at).map_err(|_| DoesNotFit)?;
    let size = u8::try_from(size).ok().filter(|size| *size <= 8).ok_or(DoesNotFit)?;
    Ok(Piece { reg, offset, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRING: AbiType = AbiType { size: 16, align: 8, shape: Shape::TwoWords };
    const SLICE: AbiType = AbiType { size: 24, align: 8, shape: Shape::ThreeWords };
    const INT: AbiType = AbiType::WORD;
    const F64: AbiType = AbiType { size: 8, align: 8, shape: Shape::Float };

    fn array(element: AbiType, len: u64) -> AbiType {
        AbiType {
            size: element.size * len,
            align: element.align,
            shape: Shape::Array { element: Box::new(element), len },
        }
    }

    fn structure(size: u64, fields: Vec<(u64, AbiType)>) -> AbiType {
        AbiType { size, align: 8, shape: Shape::Struct(fields) }
    }

    /// `params -> results` in the notation of `gospect funcs`.
    fn check(params: &[AbiType], results: &[AbiType], convention: Convention, expected: &str) {
        let places = assign(params, results, convention);
        let text =
            |places: &[Place]| places.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(format!("{} -> {}", text(&places.params), text(&places.results)), expected);
    }

    #[test]
    fn a_value_that_overflows_leaves_its_registers_to_the_next() {
        // func Overflow(a, b, c, d, e, f, g, h int, s string, i, j int) int
        let mut params = vec![INT; 8];
        params.extend([STRING, INT, INT]);
        let expected = "ax bx cx di si r8 r9 r10 stack+8 r11 stack+24 -> ax";
        check(&params, &[INT], Convention::Internal, expected);
    }

    #[test]
    fn results_start_again_and_mix_both_register_files() {
        // func Res(n int) (int, error, string, float64, []byte, bool)
        let results = [INT, STRING, STRING, F64, SLICE, AbiType::int(1)];
        check(&[INT], &results, Convention::Internal, "ax -> ax bx+cx di+si x0 r8+r9+r10 r11");
    }

    #[test]
    fn arrays_longer_than_one_go_to_the_stack_after_the_arguments() {
        // func ResBig(n int) (int, [2]int, string)
        let results = [INT, array(INT, 2), STRING];
        check(&[INT], &results, Convention::Internal, "ax -> ax stack+8 bx+cx");
        let params = [array(AbiType::int(1), 3), array(INT, 1)];
        check(&params, &results, Convention::Internal, "stack+8 ax -> ax stack+16 bx+cx");
    }

    #[test]
    fn a_blank_field_takes_its_register_and_empty_ones_take_none() {
        let empty = structure(0, vec![]);
        let blank =
            structure(32, vec![(0, INT), (8, AbiType::int(4)), (16, STRING), (32, empty.clone())]);
        check(&[blank, empty, INT], &[], Convention::Internal, "ax+bx+cx+di none si -> ");
    }

    #[test]
    fn pieces_say_which_bytes_of_the_value_they_hold() {
        let pair = structure(24, vec![(0, AbiType::int(2)), (8, STRING)]);
        let places = assign(&[INT, pair], &[], Convention::Internal);
        let piece = |number, offset, size| Piece { reg: Reg::Int(number), offset, size };
        let expected = vec![piece(3, 0, 2), piece(1, 8, 8), piece(7, 16, 8)];
        assert_eq!(places.params[1], Place::Registers(expected));
    }

    #[test]
    fn the_sixteenth_float_goes_to_the_stack_and_integers_go_on() {
        let complex = AbiType { size: 16, align: 8, shape: Shape::Complex };
        let mut params = vec![F64; 14];
        params.extend([complex, F64, F64, INT]);
        let floats: Vec<String> = (0..14).map(|i| format!("x{i}")).collect();
        let expected = format!("{} stack+8 x14 stack+24 ax -> x0+x1", floats.join(" "));
        let complex = params[14].clone();
        check(&params, &[complex], Convention::Internal, &expected);
    }

    #[test]
    fn abi0_takes_all_on_the_stack() {
        let params = [AbiType::int(1), AbiType::int(4), STRING];
        let expected = "stack+8 stack+12 stack+16 -> stack+32 stack+40";
        check(&params, &[AbiType::int(1), INT], Convention::Abi0, expected);
    }
}
