//! What the names in an expression mean in one function.

use super::access::{Access, Location, word_type};
use super::resolve::Failure;
use super::{ExpressionError, Operand, Start, StepKind};
use crate::compile::op;
use crate::nearest::nearest;
use crate::package::package_of;
use crate::planner::Values;
use address::Svma;
use binary::code::Kept;
use binary::{
    DebugInfo, Executable, Kind, PackageVariable, Place, PlacedSignature, PlacedVariable, Reg,
    TypeInfo, TypeSource,
};
use std::sync::Arc;
use wire::{DEREF_MAPPED, OpCode};

/// Names listed in a message.
const SHOWN: usize = 12;

/// When the values are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moment {
    /// At the entry: parameters and captured variables.
    Entry,
    /// At the return: results.
    Return,
}

/// One function, for those who resolve names in it.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// Symbol name of the function.
    pub function: &'a str,
    /// Its first instruction.
    pub entry: Svma,
    /// The executable.
    pub executable: &'a Executable,
    /// Its debug information.
    pub debug: Option<&'a DebugInfo>,
    /// Parameters and results, when debug information describes them.
    pub signature: Option<&'a PlacedSignature>,
    /// What of the parameters the entry site still has.
    pub kept: &'a Kept,
    /// Offset of `goid` in a g, bytes.
    pub g_goid: u32,
    /// How values that are made of others are read.
    pub values: Values<'a>,
}

/// A name that was found, and how many of the operand's steps it took.
pub(super) type Found<'a> = (Access<'a>, usize);

impl<'a> Scope<'a> {
    /// Whether a name is that of a result.
    pub fn is_result(&self, operand: &Operand) -> bool {
        let Start::Name(name) = &operand.start else { return false };
        self.results().iter().any(|variable| variable.name == *name)
    }

    /// Whether a name is one that only the entry knows.
    pub fn is_of_entry(&self, operand: &Operand) -> bool {
        let Start::Name(name) = &operand.start else { return false };
        self.params().iter().any(|variable| variable.name == *name)
            || matches!(self.captured(name), Ok(Some(_)))
    }

    fn params(&self) -> &'a [PlacedVariable] {
        self.signature.map_or(&[], |signature| &signature.params)
    }

    fn results(&self) -> &'a [PlacedVariable] {
        self.signature.map_or(&[], |signature| &signature.results)
    }

    /// The types of the program.
    pub(super) fn types(&self) -> TypeSource<'a> {
        TypeSource::new(self.executable, self.debug)
    }

    /// What the operand starts from.
    pub(super) fn start(&self, operand: &Operand, at: Moment) -> Result<Found<'a>, Failure> {
        let name = match &operand.start {
            Start::Name(name) => name,
            Start::Goid => return Ok((self.goid(at), 0)),
            Start::Duration => {
                let message = "$duration is known when the call has ended: it stands beside every \
                     call, and in --if-duration and --by";
                return Err(ExpressionError::meaning(operand.column, message).into());
            }
        };
        let variables = match at {
            Moment::Entry => self.params(),
            Moment::Return => self.results(),
        };
        if let Some(variable) = variables.iter().find(|variable| variable.name == *name) {
            return Ok((self.variable(variable, at)?, 0));
        }
        if at == Moment::Entry
            && let Some(access) = self.captured(name)?
        {
            return Ok((access, 0));
        }
        match self.package_variable(operand, name, at)? {
            Some(found) => Ok(found),
            None => Err(self.unknown(operand, name, at)?),
        }
    }

    fn access(&self, ty: Arc<TypeInfo>, place: Location, at: Moment) -> Access<'a> {
        let kept = match at {
            Moment::Entry => self.kept.clone(),
            Moment::Return => Kept::all(),
        };
        let executable = self.executable;
        Access { executable, ty, place, checks: Vec::new(), kept }
    }

    fn goid(&self, at: Moment) -> Access<'a> {
        let ops = vec![
            op(OpCode::CurrentG, 0, 0),
            op(OpCode::Add, 0, self.g_goid.into()),
            op(OpCode::Deref, DEREF_MAPPED, 0),
        ];
        self.access(word_type("uint64", Kind::Int { signed: false }), Location::Word(ops), at)
    }

    fn variable(&self, variable: &PlacedVariable, at: Moment) -> Result<Access<'a>, Failure> {
        let place = match &variable.place {
            Err(reason) => return Err(Failure::Unavailable(reason.clone())),
            Ok(Place::Empty) => return Err(Failure::Unavailable("has no bytes".to_owned())),
            // SP at the first instruction points to the return address, 8 bytes below the CFA.
            Ok(Place::Stack { offset }) => Location::Stack(i64::from(*offset) + 8),
            Ok(Place::Registers(pieces)) => Location::Registers(pieces.clone()),
        };
        Ok(self.access(Arc::clone(&variable.ty), place, at))
    }

    /// A variable that a closure captured. By reference it is known as `&x`, a pointer.
    fn captured(&self, name: &str) -> Result<Option<Access<'a>>, Failure> {
        let Some(debug) = self.debug else { return Ok(None) };
        let signature = debug.signature(self.entry)?;
        let all = signature.map(|signature| signature.captured).unwrap_or_default();
        let is = |known: &str| known == name || known.strip_prefix('&') == Some(name);
        let Some(captured) = all.iter().find(|captured| is(&captured.name)) else {
            return Ok(None);
        };
        const CONTEXT: Reg = Reg::Int(2);
        self.kept
            .behind_register(CONTEXT)
            .map_err(|lost| Failure::Unavailable(lost.to_string()))?;
        let mut ops = vec![op(OpCode::Reg, 2, 0)];
        crate::compile::push_add(&mut ops, captured.offset as i64);
        let ty = debug.type_info(captured.ty)?;
        let access = self.access(ty, Location::Memory(ops), Moment::Entry);
        let by_reference = captured.name.starts_with('&');
        Ok(Some(if by_reference { access.pointee(self.types(), 0)? } else { access }))
    }

    /// `pkg.name` of any package, or `name` of the function's own.
    fn package_variable(
        &self,
        operand: &Operand,
        name: &str,
        at: Moment,
    ) -> Result<Option<Found<'a>>, Failure> {
        let Some(debug) = self.debug else { return Ok(None) };
        let field = |index: usize| match operand.steps.get(index).map(|step| &step.kind) {
            Some(StepKind::Field(name)) => Some(name.as_str()),
            _ => None,
        };
        let mut candidates = vec![(format!("{}.{name}", package_of(self.function)), 0)];
        if let Some(first) = field(0) {
            candidates.push((format!("{name}.{first}"), 1));
            // Symbol names write the dots of a path's last element as %2e.
            if let Some(second) = field(1).filter(|_| name.contains('/')) {
                candidates.push((format!("{name}%2e{first}.{second}"), 2));
            }
        }
        for (symbol, steps) in candidates {
            if let Some(variable) = debug.package_variable(&symbol)? {
                return Ok(Some((self.of_package(debug, variable, at)?, steps)));
            }
        }
        Ok(None)
    }

    fn of_package(
        &self,
        debug: &DebugInfo,
        variable: PackageVariable,
        at: Moment,
    ) -> Result<Access<'a>, Failure> {
        let ops = vec![op(OpCode::Image, 0, variable.address.0 as i64)];
        Ok(self.access(debug.type_info(variable.ty)?, Location::Memory(ops), at))
    }

    /// That there is no such name, and what there is.
    fn unknown(&self, operand: &Operand, name: &str, at: Moment) -> Result<Failure, Failure> {
        let error = |message: String| Ok(ExpressionError::meaning(operand.column, message).into());
        if at == Moment::Entry && self.is_result(operand) {
            return error(format!("{name} is a result: write it behind '->'"));
        }
        if at == Moment::Return && self.is_of_entry(operand) {
            return error(format!("{name} is known at the entry: write it before '->'"));
        }
        if self.signature.is_none() && !name.contains('/') {
            let function = self.function;
            let Some(_) = self.debug else {
                return error(format!(
                    "no {name}: there is no debug information to find names in. Name it with --debug-file, \
                     state the parameters as in {function}({name} T), or use a rule, `name=expr:type`"
                ));
            };
            if operand.steps.is_empty() {
                return error(format!("no {name}: debug information does not describe {function}"));
            }
        }
        let variables = match at {
            Moment::Entry => self.params(),
            Moment::Return => self.results(),
        };
        let mut names: Vec<String> = variables.iter().map(|known| known.name.clone()).collect();
        if let (Moment::Entry, Some(debug)) = (at, self.debug) {
            let signature = debug.signature(self.entry)?;
            let captured = signature.map(|signature| signature.captured).unwrap_or_default();
            names
                .extend(captured.iter().map(|known| known.name.trim_start_matches('&').to_owned()));
        }
        let what = match at {
            Moment::Entry => "parameters",
            Moment::Return => "results",
        };
        names.retain(|name| name != "_");
        names.truncate(SHOWN);
        let mut message = match names.is_empty() {
            true => format!("no {name} in {}, which has no {what}", self.function),
            false => format!("no {name} in {}; its {what} are {}", self.function, names.join(", ")),
        };
        let package = match self.debug {
            Some(debug) => debug.package_variable_names(name)?,
            None => Vec::new(),
        };
        if let Some(StepKind::Field(field)) = operand.steps.first().map(|step| &step.kind)
            && !package.is_empty()
        {
            let wanted = format!("{name}.{field}");
            let near = nearest(&wanted, package.iter().map(String::as_str), SHOWN);
            message = match near.is_empty() {
                true => format!("package {name} has no variable {field}"),
                false => format!("no package variable {wanted}; nearest: {}", near.join(", ")),
            };
        }
        error(message)
    }
}
