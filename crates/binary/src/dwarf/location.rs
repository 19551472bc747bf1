//! Where debug info says a parameter is at the first instruction.
//!
//! Only for parameters that the calling convention cannot place (Go up to 1.21 leaves
//! out unnamed ones) and for checks: the descriptions err for some parameters.

use super::sections::Slice;
use super::unit::Unit;
use crate::abi::{Piece, Place, Reg};
use gimli::{AttributeValue, Operation};

/// List entries and operations looked at; Go's first entry starts at the function's.
const MAX_STEPS: usize = 64;

/// DWARF numbers of the general registers, by index, as hardware numbers.
const GENERAL: [u8; 8] = [0, 2, 1, 3, 6, 7, 5, 4];

/// What debug info says about a parameter's place at the first instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Where it says the value is.
    pub at: DescribedAt,
    /// Whether that comes from a location list. A plain expression may name a spill slot
    /// that nothing has been written to (Go 1.27).
    pub from_list: bool,
}

/// The place itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescribedAt {
    /// In registers, in field order. `None` for a part that is said to be nowhere: a dead
    /// one, or in unoptimized code padding; parts at the end may be left out.
    Registers(Vec<Option<Reg>>),
    /// On the stack, bytes from the CFA.
    Stack(u32),
}

impl Described {
    /// Whether the place that was assigned is the one described.
    pub fn agrees_with(&self, place: &Place) -> bool {
        match (&self.at, place) {
            (DescribedAt::Registers(parts), Place::Registers(pieces)) => {
                without_padding(parts, pieces) || with_padding(parts, pieces)
            }
            (DescribedAt::Stack(at), Place::Stack { offset }) => at == offset,
            (DescribedAt::Stack(_), Place::Empty) => true,
            _ => false,
        }
    }
}

/// Every part has its piece.
fn without_padding(parts: &[Option<Reg>], pieces: &[Piece]) -> bool {
    let agrees = |(part, piece): (&Option<Reg>, &Piece)| part.is_none_or(|reg| reg == piece.reg);
    parts.len() <= pieces.len() && parts.iter().zip(pieces).all(agrees)
}

/// Every piece has its part; sizes are no help, since those of padding are wrong.
fn with_padding(parts: &[Option<Reg>], pieces: &[Piece]) -> bool {
    parts.iter().flatten().eq(pieces.iter().map(|piece| &piece.reg))
}

/// A part of a description.
#[derive(Clone, Copy)]
enum Part {
    Nowhere,
    Register(Reg),
    /// Bytes from the CFA.
    Frame(i64),
}

/// The place of a value at `entry`; `None` when it is not described, or in a way that Go
/// does not use.
pub(super) fn at_entry<'a>(
    dwarf: &gimli::Dwarf<Slice<'a>>,
    unit: &Unit<'a>,
    location: AttributeValue<Slice<'a>>,
    entry: u64,
) -> Option<Described> {
    if let AttributeValue::Exprloc(expression) = location {
        return Some(Described { at: place(expression, unit)?, from_list: false });
    }
    let mut list = dwarf.attr_locations(unit, location).ok()??;
    for _ in 0..MAX_STEPS {
        let item = list.next().ok()??;
        if item.range.begin <= entry && entry < item.range.end {
            return Some(Described { at: place(item.data, unit)?, from_list: true });
        }
    }
    None
}

fn place(expression: gimli::Expression<Slice<'_>>, unit: &Unit<'_>) -> Option<DescribedAt> {
    let mut operations = expression.operations(unit.encoding());
    let mut parts = Vec::new();
    let mut current = None;
    for _ in 0..MAX_STEPS {
        let Some(operation) = operations.next().ok()? else { break };
        current = match operation {
            Operation::Register { register } => Some(Part::Register(reg(register.0)?)),
            Operation::FrameOffset { offset } => Some(Part::Frame(offset)),
            Operation::CallFrameCFA => Some(Part::Frame(0)),
            Operation::Piece { .. } => {
                parts.push(current.take().unwrap_or(Part::Nowhere));
                None
            }
            _ => return None,
        };
    }
    parts.extend(current);
    if let Part::Frame(offset) = parts.first()? {
        return u32::try_from(*offset).ok().map(DescribedAt::Stack);
    }
    let mut regs: Vec<Option<Reg>> = Vec::with_capacity(parts.len());
    for part in parts {
        let reg = match part {
            Part::Register(reg) => Some(reg),
            Part::Nowhere => None,
            Part::Frame(_) => return None,
        };
        // Go up to 1.21 may describe a word of an interface or slice several times.
        if reg.is_none() || regs.last() != Some(&reg) {
            regs.push(reg);
        }
    }
    Some(DescribedAt::Registers(regs))
}

/// DWARF register numbers of the x86-64 psABI, figure 3.36.
fn reg(number: u16) -> Option<Reg> {
    match number {
        0..=7 => GENERAL.get(usize::from(number)).map(|hardware| Reg::Int(*hardware)),
        8..=15 => u8::try_from(number).ok().map(Reg::Int),
        17..=32 => u8::try_from(number - 17).ok().map(Reg::Float),
        _ => None,
    }
}
