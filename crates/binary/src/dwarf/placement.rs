//! Where a function's parameters and results are: the signature from debug info, the
//! places from the calling convention.

use super::unnamed::Named;
use super::{DebugInfo, Described, Signature, Variable};
use crate::abi::{AbiType, Convention, Place, assign};
use crate::types::TypeInfo;
use crate::{Error, GoVersion, SymbolTable};
use address::Svma;
use std::sync::Arc;

/// Which function, and what decides where its values are.
#[derive(Clone, Copy, Debug)]
pub struct FunctionKey<'a> {
    /// First instruction.
    pub entry: Svma,
    /// See [`convention_of`]. The symbols of a separate debug file are asked besides.
    pub convention: Convention,
    /// What built it.
    pub go_version: &'a GoVersion,
    /// [`crate::Function::args_size`], which tells whether debug info of Go up to 1.21 has all
    /// parameters.
    pub args_size: Option<u32>,
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
            let named = Named { params: &params, described: &described, convention };
            let found = named.place(&results, key.args_size);
            param_places = found.params;
            if found.moves_stack {
                result_places = result_places.into_iter().map(refuse_stack).collect();
            }
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

/// A result behind stack arguments of unknown size.
fn refuse_stack(place: Result<Place, String>) -> Result<Place, String> {
    match place {
        Ok(Place::Stack { .. }) => Err(super::unnamed::UNNAMED.into()),
        other => other,
    }
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
