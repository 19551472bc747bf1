//! Where a function's parameters and results are: the signature from debug info, the
//! places from the calling convention.

use super::{DebugInfo, Described, DescribedAt, Signature, Variable};
use crate::abi::{AbiType, Allocator, Convention, Place, assign};
use crate::types::TypeInfo;
use crate::{Error, GoVersion, SymbolTable};
use address::Svma;
use std::sync::Arc;

/// Why a parameter of an old binary has no place.
const UNNAMED: &str = "debug info of Go up to 1.21 leaves out unnamed parameters, and no \
     description confirms where this one is";

/// Which function, and what decides where its values are.
#[derive(Clone, Copy, Debug)]
pub struct FunctionKey<'a> {
    /// First instruction.
    pub entry: Svma,
    /// See [`convention_of`]. The symbols of a separate debug file are asked besides.
    pub convention: Convention,
    /// What built it.
    pub go_version: &'a GoVersion,
}

/// A function's values with their places.
#[derive(Clone, Debug)]
pub struct PlacedSignature {
    /// As in [`Signature::name`].
    pub name: String,
    /// Receiver, then parameters.
    pub params: Vec<PlacedVariable>,
    /// Results.
    pub results: Vec<PlacedVariable>,
    /// Where a generic's dictionary is, if one is passed among the parameters.
    pub dictionary: Option<Place>,
}

/// A parameter or result with its place.
#[derive(Clone, Debug)]
pub struct PlacedVariable {
    /// Name as in the source; `~p0`, `~r0` for unnamed ones.
    pub name: String,
    /// Its type.
    pub ty: Arc<TypeInfo>,
    /// Where it is at the first instruction (parameters) or at a return (results), or why
    /// that cannot be told.
    pub place: Result<Place, String>,
}

/// The convention of the function at `entry`. Go functions that assembly calls are
/// compiled as ABI0; only their symbol tells, by its suffix.
pub fn convention_of(symbols: &SymbolTable, entry: Svma) -> Convention {
    if symbols.at(entry).iter().any(|symbol| symbol.name.ends_with(".abi0")) {
        Convention::Abi0
    } else {
        Convention::Internal
    }
}

impl DebugInfo {
    /// Places the parameters and results of a function; `None` when debug info does not
    /// know the function.
    pub fn placed_signature(&self, key: FunctionKey<'_>) -> Result<Option<PlacedSignature>, Error> {
        let incomplete = leaves_out_unnamed(key.go_version);
        let signature = if incomplete {
            self.signature_with_locations(key.entry)?
        } else {
            self.signature(key.entry)?
        };
        let Some(signature) = signature else { return Ok(None) };
        let dictionary =
            dictionary_position(&signature.name, key.go_version).or(signature.dictionary);
        let mut params = self.abi_types(&signature.params)?;
        let results = self.abi_types(&signature.results)?;
        if let Some(position) = dictionary {
            params.insert(position.min(params.len()), AbiType::WORD);
        }
        let convention = match key.convention {
            Convention::Internal => convention_of(self.symbols(), key.entry),
            Convention::Abi0 => Convention::Abi0,
        };
        let mut places = assign(&params, &results, convention);
        let mut param_places: Vec<_> = places.params.drain(..).map(Ok).collect();
        let mut result_places: Vec<_> = places.results.drain(..).map(Ok).collect();
        if incomplete {
            let described = described_with(&signature, dictionary);
            let found = place_with_gaps(&params, &described, convention);
            if found.iter().zip(&param_places).any(|(a, b)| a != b) {
                refuse_stack(&mut result_places);
            }
            param_places = found;
        }
        let position = dictionary.filter(|position| *position < param_places.len());
        let dictionary = position.and_then(|position| param_places.remove(position).ok());
        Ok(Some(PlacedSignature {
            params: self.zip(&signature.params, param_places)?,
            results: self.zip(&signature.results, result_places)?,
            name: signature.name,
            dictionary,
        }))
    }

    fn abi_types(&self, variables: &[Variable]) -> Result<Vec<AbiType>, Error> {
        variables.iter().map(|variable| self.abi_type(variable.ty)).collect()
    }

    fn zip(
        &self,
        variables: &[Variable],
        places: Vec<Result<Place, String>>,
    ) -> Result<Vec<PlacedVariable>, Error> {
        let pairs = variables.iter().zip(places);
        pairs
            .map(|(variable, place)| {
                let ty = self.type_info(variable.ty)?;
                Ok(PlacedVariable { name: variable.name.clone(), ty, place })
            })
            .collect()
    }
}

/// Whether debug info lacks unnamed and blank parameters (up to Go 1.21).
fn leaves_out_unnamed(version: &GoVersion) -> bool {
    version.major == 1 && (1..=21).contains(&version.minor)
}

/// Descriptions of the parameters, with none for the dictionary.
fn described_with(signature: &Signature, dictionary: Option<usize>) -> Vec<Option<Described>> {
    let mut described: Vec<_> = signature.params.iter().map(|p| p.described.clone()).collect();
    if let Some(position) = dictionary {
        described.insert(position.min(described.len()), None);
    }
    described
}

/// Assigns places when parameters may be missing: where a description lies further on
/// than counting says, unnamed parameters may have taken what is between, or the
/// description may be wrong; what needs the fewest of both is taken for true. A parameter
/// that no description confirms, at or after itself, has no place.
fn place_with_gaps(
    params: &[AbiType],
    described: &[Option<Described>],
    convention: Convention,
) -> Vec<Result<Place, String>> {
    let pairs: Vec<_> = params.iter().zip(described).collect();
    let readings = Reading::continue_all(Allocator::new(convention), &pairs, MAX_DOUBTS);
    let mut places = readings.places;
    places.reverse();
    let mut confirmed = 0;
    for (index, (_, described)) in pairs.iter().enumerate() {
        let gap = readings.gaps.contains(&(pairs.len() - index));
        if gap {
            refuse(places.get_mut(..index).unwrap_or_default(), confirmed);
        }
        if described.is_some() {
            confirmed = index + 1;
        }
    }
    refuse(&mut places, confirmed);
    places
}

/// Mismatches of one function for which both explanations are tried.
const MAX_DOUBTS: usize = 5;

/// What an unnamed parameter in between counts, against [`WRONG_COST`].
const GAP_COST: usize = 2;

/// What a wrong description counts: of 7,000 in a program 4 are wrong, and 270 parameters
/// come after unnamed ones (Go 1.21, net/http).
const WRONG_COST: usize = 3;

/// One way to read the descriptions from some parameter on.
#[derive(Default)]
struct Reading {
    cost: usize,
    /// Last parameter first.
    places: Vec<Result<Place, String>>,
    /// Gaps, each by how many parameters are left from it on.
    gaps: Vec<usize>,
}

impl Reading {
    /// The cheapest reading of the parameters that are left.
    fn continue_all(
        mut allocator: Allocator,
        left: &[(&AbiType, &Option<Described>)],
        doubts: usize,
    ) -> Self {
        let Some(((ty, described), rest)) = left.split_first() else { return Self::default() };
        let before = allocator.clone();
        let counted = allocator.place(ty);
        let Some(described) = described else {
            return Self::continue_all(allocator, rest, doubts).with(counted, 0);
        };
        if described.agrees_with(&counted) {
            return Self::continue_all(allocator, rest, doubts).with(counted, 0);
        }
        let doubts_left = doubts.saturating_sub(1);
        // A stack slot after a gap, else one of the few wrong descriptions.
        let believed = match described.at {
            DescribedAt::Stack(offset) => Place::Stack { offset },
            DescribedAt::Registers(_) => counted,
        };
        let wrong = Self::continue_all(allocator, rest, doubts_left).with(believed, WRONG_COST);
        match skip_to(&before, ty, described).filter(|_| doubts > 0) {
            Some((after, place)) => {
                let mut gap = Self::continue_all(after, rest, doubts_left).with(place, GAP_COST);
                gap.gaps.push(left.len());
                if gap.cost < wrong.cost { gap } else { wrong }
            }
            None => wrong,
        }
    }

    fn with(mut self, place: Place, cost: usize) -> Self {
        self.cost += cost;
        self.places.push(Ok(place));
        self
    }
}

/// Marks what no description confirms.
fn refuse(places: &mut [Result<Place, String>], from: usize) {
    for place in places.iter_mut().skip(from).filter(|place| **place != Ok(Place::Empty)) {
        *place = Err(UNNAMED.into());
    }
}

/// Results after stack arguments of unknown size.
fn refuse_stack(places: &mut [Result<Place, String>]) {
    for place in places {
        if matches!(place, Ok(Place::Stack { .. })) {
            *place = Err(UNNAMED.into());
        }
    }
}

/// The state after placing `ty` exactly where it is described, passing over as few
/// registers as possible.
fn skip_to(before: &Allocator, ty: &AbiType, described: &Described) -> Option<(Allocator, Place)> {
    for total in 1..=9 {
        for floats in 0..=total.min(4) {
            let mut after = before.clone();
            after.skip(total - floats, floats as u8);
            let place = after.place(ty);
            if described.agrees_with(&place) {
                return Some((after, place));
            }
        }
    }
    None
}

/// Where among receiver and parameters the hidden dictionary of a generic is; `None` for
/// functions that take none. Functions: first. Methods: after the receiver, in Go 1.19
/// before it (unified IR came with 1.20: `cmd/compile/internal/noder/reader.go`, shapedSig).
/// Closures find it in their context.
pub fn dictionary_position(name: &str, version: &GoVersion) -> Option<usize> {
    // Hash and equality functions of types (`type..eq.` in Go 1.19) are not generic.
    if !name.contains("go.shape.") || name.starts_with("type:") || name.starts_with("type..") {
        return None;
    }
    let before_arguments = name.split('[').next().unwrap_or(name);
    let slash = before_arguments.rfind('/').map_or(0, |at| at + 1);
    let local = name.get(slash..)?;
    let dot = local.find('.')?;
    let parts = split_outside_brackets(local.get(dot + 1..)?);
    match parts[..] {
        [function] if !has_suffix(function) => Some(0),
        [receiver, method] if is_method(receiver, method) => {
            let dictionary_first = version.major == 1 && (1..=19).contains(&version.minor);
            Some(usize::from(!dictionary_first))
        }
        _ => None,
    }
}

/// Parts between the dots that stand outside brackets and parentheses.
fn split_outside_brackets(name: &str) -> Vec<&str> {
    let mut depth = 0i32;
    name.split(|c: char| {
        depth += match c {
            '[' | '(' | '{' => 1,
            ']' | ')' | '}' => -1,
            _ => 0,
        };
        c == '.' && depth == 0
    })
    .collect()
}

/// `-fm` of method values and `-range1` of loop bodies, which are closures.
fn has_suffix(part: &str) -> bool {
    let after = part.rfind(']').map_or(part, |at| part.get(at..).unwrap_or_default());
    after.contains('-')
}

fn is_method(receiver: &str, method: &str) -> bool {
    if has_suffix(method) {
        return false;
    }
    // `F[...].func1` is a closure, `T[...].Name` a method.
    let closure = ["func", "gowrap", "deferwrap"].iter().any(|prefix| {
        method
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.bytes().next().is_some_and(|digit| digit.is_ascii_digit()))
    });
    receiver.starts_with("(*") || !closure
}
