//! What is read of a traced function: what was asked for, what conditions need, or all there is.

use super::Planner;
use crate::compile::{Builder, Later, compile_rule_param};
use crate::expression::{
    Condition, ExpressionError, Failure, HitValues, Moment, Operand, Params, Scope, Wants,
    rejection, resolve,
};
use crate::plan::ConcreteTypes;
use crate::screen::{By, Screen, Screening};
use crate::selection::{Conditions, Selected, Stated};
use crate::value::{ValueKind, ValueSpec};
use binary::code::Kept;
use binary::{Function, PlacedSignature};
use std::collections::BTreeMap;
use wire::Op;

/// What is read of one function.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) args: Vec<ValueSpec>,
    pub(super) results: Vec<ValueSpec>,
    pub(super) at_entry: Vec<Op>,
    pub(super) at_return: Vec<Op>,
    /// What rejects hits at the entry.
    pub(super) unless: Vec<Op>,
    /// How many of the last arguments are variables that a closure captured.
    pub(super) captured: u16,
    /// Types that a dictionary tells.
    pub(super) concrete: ConcreteTypes,
    pub(super) screen: Screen,
}

/// An expression that means nothing in any of the functions it was asked of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The rule, condition or expression as written.
    pub text: String,
    /// The one of [`crate::selection::Selection::wanted`] that it stands in, if it stands in one.
    pub rule: Option<usize>,
    /// What is wrong with it.
    pub error: ExpressionError,
}

/// A condition, or a stated signature, that means nothing in some of the functions: their calls are all
/// shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    /// As written.
    pub text: String,
    /// Whether it is a signature.
    pub is_signature: bool,
    /// In so many functions.
    pub functions: usize,
    /// What is wrong with it in the first of them.
    pub error: ExpressionError,
}

/// Which expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Declared { rule: usize },
    Param { rule: usize, index: usize },
    Result { rule: usize, index: usize },
    Condition(Kind),
}

impl Key {
    fn rule(self) -> Option<usize> {
        match self {
            Self::Declared { rule } | Self::Param { rule, .. } | Self::Result { rule, .. } => {
                Some(rule)
            }
            Self::Condition(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Entry,
    Result,
    Duration,
    By,
}

/// In which functions expressions have a meaning.
#[derive(Debug, Default)]
pub(super) struct Sense(BTreeMap<Key, Found>);

#[derive(Debug)]
struct Found {
    text: String,
    meant: usize,
    failed: usize,
    error: Option<ExpressionError>,
}

impl Sense {
    pub(super) fn note(&mut self, key: Key, text: &str, error: Option<ExpressionError>) {
        let found = self.0.entry(key).or_insert_with(|| Found {
            text: text.to_owned(),
            meant: 0,
            failed: 0,
            error: None,
        });
        match error {
            None => found.meant += 1,
            Some(error) => {
                found.failed += 1;
                // Whoever got furthest into the text says most.
                let further = |known: &ExpressionError| error.column() > known.column();
                if found.error.as_ref().is_none_or(further) {
                    found.error = Some(error);
                }
            }
        }
    }

    /// What means nothing anywhere, and what does not everywhere.
    pub(super) fn finish(self) -> (Vec<Mistake>, Vec<Partial>) {
        let (mut mistakes, mut partial) = (Vec::new(), Vec::new());
        for (key, found) in self.0 {
            let Found { text, meant, failed: functions, error } = found;
            let Some(error) = error else { continue };
            if meant == 0 {
                mistakes.push(Mistake { text, rule: key.rule(), error });
            } else if matches!(key, Key::Declared { .. })
                || matches!(key, Key::Condition(kind) if kind != Kind::By)
            {
                let is_signature = matches!(key, Key::Declared { .. });
                partial.push(Partial { text, is_signature, functions, error });
            }
        }
        (mistakes, partial)
    }
}

impl<'a> Planner<'a> {
    /// Chooses what is read of a function, and compiles it.
    pub(super) fn choose(
        &mut self,
        selected: &Selected,
        signature: Option<&PlacedSignature>,
        kept: &Kept,
    ) -> Result<Chosen, binary::Error> {
        let question = self.question;
        let scope = self.scope(&selected.function, signature, kept);
        let wanted = &question.selection.wanted;
        let (mut wants, mut screen) = (Wants::default(), Screen::default());
        self.screen(&question.selection.conditions, &scope, &mut wants, &mut screen)?;
        let limits = question.values.limits;

        let mut builder = Builder::new(limits.string_bytes);
        let (mut captured, mut concrete) = (0, ConcreteTypes::default());
        let specs = wants.build(Moment::Entry, &mut builder);
        screen.hidden_args = specs.len() as u16;
        let unless = screen.entry.as_ref().map_or_else(Vec::new, |screening| {
            let values = HitValues { specs: &specs, at_return: false, g_goid: scope.g_goid };
            rejection(&screening.predicate, &values)
        });
        let mut args: Vec<ValueSpec> = specs.into_iter().map(|(spec, _)| spec).collect();
        let rule = selected.params.and_then(|rule| Some((rule, wanted.get(rule)?)));
        match (rule, signature) {
            (Some((rule, wanted)), _) => match &wanted.params {
                Some(Params::Raw(params)) => {
                    let read =
                        params.iter().map(|param| compile_rule_param(param, kept, &mut builder));
                    args.extend(read);
                }
                Some(Params::Values(operands)) => {
                    let key = |index| Key::Param { rule, index };
                    let list = List { operands, text: &wanted.text, at: Moment::Entry };
                    args.extend(self.listed(&list, key, &scope, &mut builder)?);
                }
                None => {}
            },
            (None, Some(signature)) if question.values.arguments => {
                let types = self.dictionary_types(signature, kept, &mut builder)?;
                concrete = self.concrete_types(signature, &types, args.len())?;
                screen.hidden_args += types.len() as u16;
                let words = self.type_words(signature, &types)?;
                args.extend(types.into_iter().map(|(_, spec)| spec));
                let params = &signature.params;
                args.extend(self.values().compile_typed(params, &words, kept, &mut builder));
                let own = self.captured(selected.function.entry, kept, &mut builder)?;
                captured = own.len() as u16;
                args.extend(own);
            }
            _ => {}
        }
        let at_entry = builder.finish();

        let mut builder = Builder::new(limits.string_bytes);
        let specs = wants.build(Moment::Return, &mut builder).into_iter();
        let mut results: Vec<ValueSpec> = specs.map(|(spec, _)| spec).collect();
        screen.hidden_results = results.len() as u16;
        let rule = selected.results.and_then(|rule| Some((rule, wanted.get(rule)?)));
        match (rule, signature) {
            (Some((rule, wanted)), _) => {
                let operands = wanted.results.as_deref().unwrap_or_default();
                let key = |index| Key::Result { rule, index };
                let list = List { operands, text: &wanted.text, at: Moment::Return };
                results.extend(self.listed(&list, key, &scope, &mut builder)?);
            }
            (None, Some(signature)) if question.values.results => {
                results.extend(self.values().compile(
                    &signature.results,
                    &Kept::all(),
                    &mut builder,
                ));
            }
            _ => {}
        }
        Ok(Chosen {
            args,
            results,
            at_entry,
            at_return: builder.finish(),
            unless,
            captured,
            concrete,
            screen,
        })
    }

    fn scope<'s>(
        &self,
        function: &'s Function,
        signature: Option<&'s PlacedSignature>,
        kept: &'s Kept,
    ) -> Scope<'s>
    where
        'a: 's,
    {
        Scope {
            function: &function.name,
            entry: function.entry,
            executable: self.question.executable,
            debug: self.question.debug,
            signature,
            kept,
            g_goid: self.question.runtime.layout.g_goid,
            values: self.values(),
        }
    }

    /// The values of a list of expressions.
    fn listed(
        &mut self,
        list: &List<'_>,
        key: impl Fn(usize) -> Key,
        scope: &Scope<'_>,
        builder: &mut Builder,
    ) -> Result<Vec<ValueSpec>, binary::Error> {
        let mut specs = Vec::with_capacity(list.operands.len());
        let mut later = list.needs(scope, builder.string_bytes()).into_iter();
        for (index, operand) in list.operands.iter().enumerate() {
            builder.leave(later.next().unwrap_or_default());
            let (spec, error) = match resolve(operand, scope, list.at, builder) {
                Ok(spec) => (spec, None),
                Err(Failure::Mistake(error)) => (nothing(operand, &error), Some(error)),
                Err(Failure::Unavailable(reason)) => {
                    let kind = ValueKind::Unavailable(reason);
                    let name = operand.to_string().into();
                    (ValueSpec { name, type_name: "".into(), kind }, None)
                }
                Err(Failure::Binary(error)) => return Err(error),
            };
            self.sense.note(key(index), list.text, error);
            specs.push(spec);
        }
        Ok(specs)
    }

    /// What decides which calls of the function are shown.
    fn screen(
        &mut self,
        conditions: &Conditions,
        scope: &Scope<'_>,
        wants: &mut Wants,
        screen: &mut Screen,
    ) -> Result<(), binary::Error> {
        let Conditions { entry, result, duration, by } = conditions;
        screen.entry = self.condition(Kind::Entry, entry.as_ref(), scope, wants)?;
        let result = self.condition(Kind::Result, result.as_ref(), scope, wants)?;
        let duration = self.condition(Kind::Duration, duration.as_ref(), scope, wants)?;
        screen.end = result.into_iter().chain(duration).collect();
        let Some(Stated { text, parsed }) = by else { return Ok(()) };
        let string_bytes = self.question.values.limits.string_bytes;
        let (term, error) = match wants.shown(parsed, scope, string_bytes) {
            Ok(term) => (Ok(term), None),
            Err(Failure::Mistake(error)) => (Err(message(&error)), Some(error)),
            Err(Failure::Unavailable(reason)) => (Err(reason), None),
            Err(Failure::Binary(error)) => return Err(error),
        };
        self.sense.note(Key::Condition(Kind::By), text, error);
        screen.by = Some(By { text: text.clone(), term });
        Ok(())
    }

    fn condition(
        &mut self,
        kind: Kind,
        condition: Option<&Stated<Condition>>,
        scope: &Scope<'_>,
        wants: &mut Wants,
    ) -> Result<Option<Screening>, binary::Error> {
        let Some(Stated { text, parsed }) = condition else { return Ok(None) };
        let at = if kind == Kind::Entry { Moment::Entry } else { Moment::Return };
        let (screening, error) = match wants.condition(parsed, scope, at) {
            Ok(predicate) => (Some(Screening { text: text.clone(), predicate }), None),
            Err(Failure::Mistake(error)) => (None, Some(error)),
            Err(Failure::Unavailable(_)) => (None, None),
            Err(Failure::Binary(error)) => return Err(error),
        };
        self.sense.note(Key::Condition(kind), text, error);
        Ok(screening)
    }
}

/// Expressions of a rule.
struct List<'a> {
    operands: &'a [Operand],
    /// The rule.
    text: &'a str,
    at: Moment,
}

impl List<'_> {
    /// What those behind each expression need at the least.
    fn needs(&self, scope: &Scope<'_>, string_bytes: u16) -> Vec<Later> {
        let values = scope.values.least();
        let least = Scope { values, ..*scope };
        let mut sums = vec![Later::default()];
        for operand in self.operands.iter().skip(1).rev() {
            let mut alone = Builder::new(string_bytes);
            // What fails here fails again.
            _ = resolve(operand, &least, self.at, &mut alone);
            sums.push(sums.last().copied().unwrap_or_default().and(alone.needs()));
        }
        sums.reverse();
        sums
    }
}

/// An expression that means nothing in a function, though it does in others.
fn nothing(operand: &Operand, error: &ExpressionError) -> ValueSpec {
    let kind = ValueKind::Unavailable(message(error));
    ValueSpec { name: operand.to_string().into(), type_name: "".into(), kind }
}

/// What is wrong, without the place in a text that is not at hand.
fn message(error: &ExpressionError) -> String {
    match error {
        ExpressionError::Meaning { message, .. } => message.clone(),
        syntax @ ExpressionError::Syntax { .. } => syntax.to_string(),
    }
}
