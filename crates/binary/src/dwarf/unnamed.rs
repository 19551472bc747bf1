//! Parameters of Go up to 1.21, whose debug info leaves out the unnamed and blank ones: how many there
//! are, of which types, is nowhere. The size of the area that a caller has for arguments is in the
//! function table, though, and tells whether some are missing.

use super::{Described, DescribedAt};
use crate::abi::{AbiType, Allocator, ArgumentArea, Convention, Place, Reg, Shape};

/// Why a parameter has no place.
pub(super) const UNNAMED: &str = "debug info of Go up to 1.21 leaves out unnamed parameters, and no \
     description confirms where this one is";

/// The parameters that debug info has, in order.
pub(super) struct Named<'a> {
    pub params: &'a [AbiType],
    /// Where it says that each is at the first instruction.
    pub described: &'a [Option<Described>],
    pub convention: Convention,
}

/// Where they are.
pub(super) struct Found {
    pub params: Vec<Result<Place, String>>,
    /// Whether there may be other arguments on the stack.
    pub moves_stack: bool,
}

impl Named<'_> {
    /// Places them; `args_size` are the bytes of arguments and results that the function
    /// table states.
    pub fn place(&self, results: &[AbiType], args_size: Option<u32>) -> Found {
        let mut allocator = Allocator::new(self.convention);
        let counted: Vec<Place> = self.params.iter().map(|ty| allocator.place(ty)).collect();
        let area = ArgumentArea::of(self.params, results, self.convention);
        let agree = |(place, described): (&Place, &Option<Described>)| {
            described.as_ref().is_none_or(|described| described.agrees_with(place))
        };
        let all_agree = || counted.iter().zip(self.described).all(agree);
        if args_size.map(u64::from) != Some(area.size) {
            return Found { params: self.by_description(), moves_stack: true };
        }
        // Descriptions err, sizes do not.
        if area.padding == 0 {
            return Found { params: counted.into_iter().map(Ok).collect(), moves_stack: false };
        }
        if !all_agree() {
            return Found { params: self.by_description(), moves_stack: true };
        }
        let params = (0..counted.len()).map(|at| self.beside_padding(&counted, at)).collect();
        Found { params, moves_stack: false }
    }

    /// A place that was counted, where only an argument so small that it lies in the padding can be
    /// missing. It takes a register from all behind it, so a description of one of these would differ.
    fn beside_padding(&self, counted: &[Place], at: usize) -> Result<Place, String> {
        let place = counted[at].clone();
        let is_described = |at: usize| self.described.get(at).is_some_and(Option::is_some);
        let is_sure = is_described(at)
            || match &place {
                Place::Empty => true,
                Place::Stack { .. } => self.params[at].align >= 8,
                Place::Registers(pieces) => pieces.iter().all(|piece| {
                    let same_file = |other: &Place| match other {
                        Place::Registers(others) => {
                            others.iter().any(|other| is_float(other.reg) == is_float(piece.reg))
                        }
                        _ => false,
                    };
                    let behind = counted.iter().enumerate().skip(at + 1);
                    behind.into_iter().any(|(at, place)| is_described(at) && same_file(place))
                }),
            };
        if is_sure { Ok(place) } else { Err(UNNAMED.into()) }
    }

    /// Only what a description tells alone: others are missing before or between these.
    fn by_description(&self) -> Vec<Result<Place, String>> {
        let pairs = self.params.iter().zip(self.described);
        let each = pairs.map(|(ty, described)| match described {
            _ if ty.size == 0 => Some(Place::Empty),
            Some(described) => alone(ty, described, self.convention),
            None => None,
        });
        let mut places: Vec<Option<Place>> = each.collect();
        // One that is overwritten by another one is described as being where that one is.
        let named: Vec<Vec<Reg>> = places.iter().map(registers).collect();
        for (at, own) in named.iter().enumerate() {
            let others = named.iter().enumerate().filter(|(other, _)| *other != at);
            if others.flat_map(|(_, registers)| registers).any(|reg| own.contains(reg)) {
                places[at] = None;
            }
        }
        places.into_iter().map(|place| place.ok_or_else(|| UNNAMED.into())).collect()
    }
}

fn is_float(reg: Reg) -> bool {
    matches!(reg, Reg::Float(_))
}

fn registers(place: &Option<Place>) -> Vec<Reg> {
    match place {
        Some(Place::Registers(pieces)) => pieces.iter().map(|piece| piece.reg).collect(),
        _ => Vec::new(),
    }
}

/// The place that a description names in full.
fn alone(ty: &AbiType, described: &Described, convention: Convention) -> Option<Place> {
    match &described.at {
        // Of composites, parts of which nobody uses, the first part may be another one.
        DescribedAt::Stack(offset) if described.from_list => {
            matches!(ty.shape, Shape::Int | Shape::Float)
                .then_some(Place::Stack { offset: *offset })
        }
        DescribedAt::Stack(_) => None,
        DescribedAt::Registers(parts) => {
            (0..=9).flat_map(|ints| (0..=15).map(move |f| (ints, f))).find_map(|(ints, floats)| {
                let mut allocator = Allocator::new(convention);
                allocator.skip(ints, floats);
                let place = allocator.place(ty);
                let Place::Registers(pieces) = &place else { return None };
                let all = parts.iter().flatten().count() == pieces.len();
                (all && described.agrees_with(&place)).then_some(place)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRING: AbiType = AbiType { size: 16, align: 8, shape: Shape::TwoWords };
    const WORD: AbiType = AbiType::WORD;
    const SMALL: AbiType = AbiType::int(1);

    fn list(at: DescribedAt) -> Option<Described> {
        Some(Described { at, from_list: true })
    }

    fn registers(numbers: &[u8]) -> Option<Described> {
        list(DescribedAt::Registers(numbers.iter().map(|number| Some(Reg::Int(*number))).collect()))
    }

    /// The places in the notation of `gospect funcs`, `?` for what is not known.
    fn places(params: &[AbiType], described: &[Option<Described>], args_size: u32) -> String {
        let named = Named { params, described, convention: Convention::Internal };
        let found = named.place(&[], Some(args_size));
        let text = |place: Result<Place, String>| place.map_or("?".into(), |it| it.to_string());
        found.params.into_iter().map(text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn where_the_size_says_that_none_is_missing_all_are_counted() {
        let nothing = [const { None }; 3];
        assert_eq!(places(&[WORD, STRING, WORD], &nothing, 32), "ax bx+cx di");
        // A description that errs.
        let wrong = [registers(&[3]), None, None];
        assert_eq!(places(&[WORD, STRING, WORD], &wrong, 32), "ax bx+cx di");
    }

    #[test]
    fn where_one_is_missing_only_descriptions_count() {
        let described = [registers(&[3]), None, registers(&[7, 6]), list(DescribedAt::Stack(16))];
        assert_eq!(places(&[WORD, WORD, STRING, WORD], &described, 56), "bx ? di+si stack+24");
        // Half of the string is not described, and that of another's register is not sure.
        let half = list(DescribedAt::Registers(vec![Some(Reg::Int(7)), None]));
        let described = [registers(&[3]), registers(&[3]), half, list(DescribedAt::Stack(16))];
        assert_eq!(places(&[WORD, WORD, STRING, STRING], &described, 72), "? ? ? ?");
    }

    #[test]
    fn a_small_one_may_be_missing_where_there_is_padding() {
        let nothing = [None, None];
        assert_eq!(places(&[SMALL, WORD], &nothing, 16), "? ?");
        assert_eq!(places(&[SMALL, WORD], &[None, registers(&[3])], 16), "ax bx");
        assert_eq!(places(&[SMALL, WORD], &[None, registers(&[1])], 16), "? cx");
    }
}
