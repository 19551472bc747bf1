//! A pattern with what to read where it matches: expressions, or a rule of go-ftrace.
//!
//! ```text
//! request = PATTERN [ '(' [ list ] ')' ] [ '->' ( operand | declared | '(' [ list ] ')' ) ]
//! list    = values | declared { ',' declared } [ ';' [ values ] ] | param { ',' param }
//! values  = operand { ',' operand }
//! ```
//! A `param` begins with `name=`, which no operand does: the first one decides what the list is.
//! `declared` is a name and a type, with space between them: one of them makes a list a signature.
//! Behind `->` stand operands over the results, or their signature.

use super::declaration::{Declaration, Declarations, declarations, single};
use super::parse::Parser;
use super::{ExpressionError, Operand};
use crate::pattern::{Pattern, PatternError};
use crate::rule::{Rule, RuleError, RuleParam};
use thiserror::Error;

/// What to read at the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Params {
    /// A rule's `name=expr:type`.
    Raw(Vec<RuleParam>),
    /// Expressions.
    Values(Vec<Operand>),
}

/// A pattern and what to read where it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// As given.
    pub text: String,
    /// Which functions.
    pub pattern: Pattern,
    /// What to read at their entry; `None` without a list, or with an empty one.
    pub params: Option<Params>,
    /// What to read at their returns; likewise.
    pub results: Option<Vec<Operand>>,
    /// What is stated of their signature.
    pub declared: Declarations,
}

/// A text that is no request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// In the pattern, or in a rule's list.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// In an expression.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
}

impl From<PatternError> for RequestError {
    fn from(error: PatternError) -> Self {
        Self::Rule(error.into())
    }
}

impl RequestError {
    /// Where, 1-based, in characters, if it has a place.
    pub fn column(&self) -> Option<usize> {
        match self {
            Self::Expression(error) => Some(error.column()),
            Self::Rule(RuleError::Syntax { column, .. })
            | Self::Rule(RuleError::Pattern(
                PatternError::Unclosed { column } | PatternError::Regex { column, .. },
            )) => Some(*column),
            Self::Rule(RuleError::Pattern(PatternError::Empty)) => Some(1),
        }
    }
}

/// Where the parts of a request begin, 0-based, in characters.
struct Parts {
    /// The parenthesis of the list.
    list: Option<usize>,
    /// The arrow, when it comes without a list before it.
    arrow: Option<usize>,
}

impl Request {
    /// Parses a pattern, a rule or a pattern with expressions.
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let chars: Vec<char> = text.chars().collect();
        let parts = parts(&chars);
        let end = parts.list.or(parts.arrow);
        let pattern =
            |end: Option<usize>| -> String { chars[..end.unwrap_or(chars.len())].iter().collect() };
        let request = |pattern, params: Option<Params>, results: Returned| Self {
            text: text.to_owned(),
            pattern,
            params,
            results: results.values.filter(|results| !results.is_empty()),
            declared: Declarations { params: None, results: results.declared },
        };
        let Some(list) = parts.list else {
            let Some(arrow) = parts.arrow else { return raw(text, request) };
            let results = results(&chars, arrow)?;
            return Ok(request(Pattern::parse(&pattern(end))?, None, results));
        };
        if is_raw(&chars, list) {
            // An arrow is no part of a rule.
            let arrow = raw_end(&chars, list);
            let Some(arrow) = arrow else { return raw(text, request) };
            let head: String = chars[..arrow].iter().collect();
            let results = results(&chars, arrow)?;
            return raw(&head, |pattern, params, _| request(pattern, params, results));
        }
        let (declared, from) = declared(&chars, list + 1)?;
        let mut parser = Parser::new(&chars, from)?;
        let params = Some(parser.list()?).filter(|list| !list.is_empty()).map(Params::Values);
        let results = if parser.take("->")? {
            result_list(&chars, &mut parser)?
        } else {
            parser.end("'->' or the end after the list")?;
            Returned::default()
        };
        let mut request = request(Pattern::parse(&pattern(Some(list)))?, params, results);
        request.declared.params = declared;
        Ok(request)
    }
}

/// What stands behind the arrow.
#[derive(Default)]
struct Returned {
    values: Option<Vec<Operand>>,
    declared: Option<Vec<Declaration>>,
}

/// The signature at the beginning of a list, if it is one, and where the values begin.
fn declared(
    chars: &[char],
    from: usize,
) -> Result<(Option<Vec<Declaration>>, usize), ExpressionError> {
    Ok(match declarations(chars, from)? {
        None => (None, from),
        // The `)` belongs to the values, of which there are none then.
        Some((declared, behind)) if chars[behind] == ')' => (Some(declared), behind),
        Some((declared, behind)) => (Some(declared), behind + 1),
    })
}

/// A plain pattern or a rule.
fn raw(
    text: &str,
    request: impl FnOnce(Pattern, Option<Params>, Returned) -> Request,
) -> Result<Request, RequestError> {
    let rule = Rule::parse(text)?;
    // `f()` names a function and asks for nothing: it gets what every function gets.
    let params = rule.params.filter(|params| !params.is_empty()).map(Params::Raw);
    Ok(request(rule.pattern, params, Returned::default()))
}

/// From the arrow to the end.
fn results(chars: &[char], arrow: usize) -> Result<Returned, ExpressionError> {
    result_list(chars, &mut Parser::new(chars, arrow + 2)?)
}

fn result_list(chars: &[char], parser: &mut Parser<'_>) -> Result<Returned, ExpressionError> {
    let mut all = Returned::default();
    if let Some(declared) = single(chars, parser.place())? {
        all.declared = Some(vec![declared]);
        return Ok(all);
    }
    if parser.take("(")? {
        let (found, from) = declared(chars, parser.place())?;
        all.declared = found;
        parser.go_to(from);
        all.values = Some(parser.list()?);
    } else {
        all.values = Some(vec![parser.operand(0)?]);
    }
    parser.end("the end after the results")?;
    Ok(all)
}

/// Whether the list that opens at `list` is a rule's: `name=`, or a register.
fn is_raw(chars: &[char], list: usize) -> bool {
    let rest = chars.get(list + 1..).unwrap_or_default();
    let mut rest = rest.iter().copied().skip_while(|c| c.is_whitespace()).peekable();
    if rest.peek() == Some(&'%') {
        return true;
    }
    while rest.peek().is_some_and(|c| !c.is_whitespace() && !"=,:()%".contains(*c)) {
        rest.next();
    }
    let mut rest = rest.skip_while(|c| c.is_whitespace());
    rest.next() == Some('=') && rest.next() != Some('=')
}

/// The arrow behind a rule's list.
fn raw_end(chars: &[char], list: usize) -> Option<usize> {
    (list..chars.len()).find(|&at| is_arrow(chars, at))
}

fn is_arrow(chars: &[char], at: usize) -> bool {
    chars.get(at) == Some(&'-') && chars.get(at + 1) == Some(&'>')
}

/// Finds the list and the arrow. Parentheses behind a dot are a receiver's, those in brackets belong to
/// type arguments, `(*` behind a wildcard is the beginning of a receiver.
fn parts(chars: &[char]) -> Parts {
    let from = regex_end(chars);
    let mut brackets = 0usize;
    let mut before = None;
    for (at, &c) in chars.iter().enumerate().skip(from) {
        match c {
            '[' => brackets += 1,
            ']' => brackets = brackets.saturating_sub(1),
            _ if brackets > 0 => {}
            '(' => {
                let receiver = match before {
                    None => from == 0,
                    Some('.' | '(') => true,
                    Some('*' | '?') => chars.get(at + 1) == Some(&'*'),
                    Some(_) => false,
                };
                if !receiver {
                    return Parts { list: Some(at), arrow: None };
                }
            }
            '-' if is_arrow(chars, at) => return Parts { list: None, arrow: Some(at) },
            _ => {}
        }
        if !c.is_whitespace() {
            before = Some(c);
        }
    }
    Parts { list: None, arrow: None }
}

/// Characters of a leading `/regex/`, 0 when there is none. Of the slashes the last one counts behind
/// which nothing, a list or an arrow stands.
fn regex_end(chars: &[char]) -> usize {
    let start = chars.iter().position(|c| !c.is_whitespace()).unwrap_or(0);
    if chars.get(start) != Some(&'/') {
        return 0;
    }
    let closes = |&at: &usize| {
        let rest = chars.get(at + 1..).unwrap_or_default();
        let next = at + 1 + rest.iter().take_while(|c| c.is_whitespace()).count();
        chars.get(at) == Some(&'/')
            && (next >= chars.len() || chars.get(next) == Some(&'(') || is_arrow(chars, next))
    };
    (start + 1..chars.len()).rev().find(closes).map_or(0, |end| end + 1)
}
