//! Where a function's parameters and results come from: what the person states, debug information, the
//! table of the standard library, the method tables of types.

use super::Planner;
use super::asked::Key;
use crate::expression::{Declaration, ExpressionError};
use crate::package::package_of;
use crate::selection::Selected;
use crate::type_path::near;
use address::Svma;
use binary::{
    Convention, DebugInfo, Declarations, Declared, Executable, Function, FunctionKey,
    PlacedSignature, PlacedVariable, TypeSource, TypeTextError, convention_of, standard_signature,
};
use wire::GSource;

/// Where a signature is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureSource {
    /// Debug information.
    Debug,
    /// The table of the standard library, by the version of Go.
    Table,
    /// The method table of a type: the types alone.
    Methods,
}

impl SignatureSource {
    /// A word for it; none for debug information, which is the rule.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Debug => None,
            Self::Table => Some("table"),
            Self::Methods => Some("methods"),
        }
    }
}

/// What the executable, its debug information or its version tells of a function's signature. `convention` is what
/// the function's code shows.
pub fn known_signature(
    executable: &Executable,
    debug: Option<&DebugInfo>,
    function: &Function,
    convention: Convention,
) -> Option<(PlacedSignature, SignatureSource)> {
    // Assembly has no debug information of its own; its Go declaration is its wrapper's.
    if function.flags & binary::flag::ASM != 0 {
        return None;
    }
    if let Some(debug) = debug {
        let go_version = executable.go_version();
        let (entry, args_size) = (function.entry, function.args_size);
        let key = FunctionKey { entry, convention, go_version, args_size };
        let described = debug.placed_signature(key).ok().flatten();
        if described.is_some() {
            return described.map(|signature| (signature, SignatureSource::Debug));
        }
    }
    let types = TypeSource::new(executable, debug);
    let place = |declared: Declared| {
        declared.place(executable, function, types, convention).ok().and_then(Result::ok)
    };
    if let Some(known) = standard_signature(executable, function, types).and_then(place) {
        return Some((known, SignatureSource::Table));
    }
    let listed = by_methods(executable, function.entry).and_then(place)?;
    Some((listed, SignatureSource::Methods))
}

/// By the method table of the receiver's type; the names are those of unnamed variables.
fn by_methods(executable: &Executable, entry: Svma) -> Option<Declared> {
    let signature = executable.method_signature(entry)?;
    let named = |types: Vec<binary::TypeId>, letter: &str| -> Declarations {
        let all = types.into_iter().enumerate();
        all.map(|(index, ty)| (format!("~{letter}{index}"), ty)).collect()
    };
    Some(Declared {
        params: Some(named(signature.params, "p")),
        results: Some(named(signature.results, "r")),
    })
}

/// What is wrong with a stated signature.
enum Wrong {
    /// Something the person can change.
    Text(ExpressionError),
    Binary(binary::Error),
}

impl From<binary::Error> for Wrong {
    fn from(error: binary::Error) -> Self {
        Self::Binary(error)
    }
}

impl Planner<'_> {
    /// The signature of a function that is traced.
    pub(super) fn signature(
        &mut self,
        selected: &Selected,
        g_source: GSource,
    ) -> Result<Option<PlacedSignature>, binary::Error> {
        let function = &selected.function;
        let executable = self.question.executable;
        // Of the two conventions only that of assembly finds g elsewhere than in its register.
        let convention = match (convention_of(executable.symbols(), function.entry), g_source) {
            (Convention::Internal, GSource::R14) => Convention::Internal,
            _ => Convention::Abi0,
        };
        let known = known_signature(executable, self.question.debug, function, convention);
        let known = known.map(|(signature, _)| signature);
        let selection = self.question.selection;
        for &rule in &selected.declared {
            let is_one_of_several = rule < selection.always;
            // What is stated of all versions is for where nothing is described.
            if is_one_of_several && self.question.debug.is_some() {
                continue;
            }
            let Some(wanted) = selection.wanted.get(rule) else { continue };
            match self.stated(selected, rule, known.clone(), convention) {
                Ok(stated) => {
                    self.sense.note(Key::Declared { rule }, &wanted.text, None);
                    return Ok(Some(stated));
                }
                Err(Wrong::Text(error)) => {
                    self.sense.note(Key::Declared { rule }, &wanted.text, Some(error));
                }
                Err(Wrong::Binary(error)) => return Err(error),
            }
            if !is_one_of_several {
                break;
            }
        }
        Ok(known)
    }

    fn stated(
        &self,
        selected: &Selected,
        rule: usize,
        known: Option<PlacedSignature>,
        convention: Convention,
    ) -> Result<PlacedSignature, Wrong> {
        let function = &selected.function;
        let stated = &self.question.selection.wanted[rule].declared;
        let column = stated.params.iter().chain(&stated.results).flatten().next();
        let column = column.map_or(1, |first| first.column);
        let wrong = |message: String| Wrong::Text(ExpressionError::meaning(column, message));
        if function.flags & binary::flag::ASM != 0 {
            return Err(wrong(format!("{} is written in assembly", function.name)));
        }
        let types = TypeSource::new(self.question.executable, self.question.debug);
        let package = package_of(&function.name);
        let declared = Declared {
            params: self.declarations(stated.params.as_deref(), types, &package)?,
            results: self.declarations(stated.results.as_deref(), types, &package)?,
        };
        let placed = declared.place(self.question.executable, function, types, convention)?;
        let mut placed = placed.map_err(wrong)?;
        let Some(known) = known else { return Ok(placed) };
        let pairs = [
            (&declared.params, &mut placed.params, known.params, "parameters"),
            (&declared.results, &mut placed.results, known.results, "results"),
        ];
        for (declared, placed, known, what) in pairs {
            // What is not stated stays as it is known.
            if declared.is_none() {
                *placed = known;
            } else if placed.len() == known.len() && !same_types(placed, &known) {
                let known = listed(&known);
                return Err(wrong(format!("the {what} of {} are ({known})", function.name)));
            }
        }
        Ok(placed)
    }

    fn declarations(
        &self,
        stated: Option<&[Declaration]>,
        types: TypeSource<'_>,
        package: &str,
    ) -> Result<Option<Declarations>, Wrong> {
        let Some(stated) = stated else { return Ok(None) };
        let mut all = Vec::with_capacity(stated.len());
        for Declaration { name, ty, column } in stated {
            let id = types.parse_type(ty, package).map_err(|error| {
                let (at, message) = match error {
                    TypeTextError::Binary(error) => return Wrong::Binary(error),
                    TypeTextError::Syntax { at, expected } => (at, format!("expected {expected}")),
                    TypeTextError::Unknown { at, name } => (at, unknown(types, &name)),
                };
                Wrong::Text(ExpressionError::meaning(column + at, message))
            })?;
            all.push((name.clone(), id));
        }
        Ok(Some(all))
    }
}

/// That there is no such type, and what to do.
fn unknown(types: TypeSource<'_>, name: &str) -> String {
    let near = near(types, name).unwrap_or_default();
    let near =
        if near.is_empty() { String::new() } else { format!("; nearest: {}", near.join(", ")) };
    let what = match types.debug() {
        Some(_) => "",
        None => {
            ". A type that the program does not need when it runs has none: name a file with debug \
             information with --debug-file, or state unsafe.Pointer for a pointer to it"
        }
    };
    format!("no type {name} in the {}{near}{what}", types.described_by())
}

fn same_types(one: &[PlacedVariable], other: &[PlacedVariable]) -> bool {
    one.iter().zip(other).all(|(one, other)| one.ty.name == other.ty.name)
}

fn listed(variables: &[PlacedVariable]) -> String {
    let all = variables.iter().map(|variable| format!("{} {}", variable.name, variable.ty.name));
    all.collect::<Vec<_>>().join(", ")
}
