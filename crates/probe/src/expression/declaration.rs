//! Signatures that a person states: `w net/http.ResponseWriter, req *net/http.Request`. A name with a
//! type behind it is no expression, so one of them tells what a list is.

use super::ExpressionError;
use super::lexer::{Lexer, error};

/// Declarations of one list.
const MAX_DECLARATIONS: usize = 256;

/// A parameter or result as stated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Its name.
    pub name: String,
    /// Its type, as written.
    pub ty: String,
    /// Where the type begins, 1-based, in characters.
    pub column: usize,
}

/// What a person states of a function's signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declarations {
    /// The receiver and the parameters.
    pub params: Option<Vec<Declaration>>,
    /// The results.
    pub results: Option<Vec<Declaration>>,
}

impl Declarations {
    /// Whether nothing is stated.
    pub fn is_empty(&self) -> bool {
        self.params.is_none() && self.results.is_none()
    }
}

/// A part of a list: from where to where, without white space around it.
#[derive(Clone, Copy)]
struct Item {
    start: usize,
    end: usize,
}

/// The declarations of the list whose first item may stand at `at`, and the place of the `;` or `)`
/// behind them; `None` when it is no list of declarations.
pub(super) fn declarations(
    chars: &[char],
    at: usize,
) -> Result<Option<(Vec<Declaration>, usize)>, ExpressionError> {
    let (items, behind) = split(chars, at);
    if !items.iter().any(|item| type_of(chars, *item).is_some()) {
        return Ok(None);
    }
    if behind >= chars.len() {
        return Err(Lexer::new(chars).unexpected(behind, "')' after the parameters"));
    }
    let mut all: Vec<Declaration> = Vec::new();
    let mut untyped = 0;
    for item in items {
        if all.len() >= MAX_DECLARATIONS {
            return Err(error(item.start, "fewer parameters", "more".to_owned()));
        }
        let name_end = name_end(chars, item);
        let name: String = chars[item.start..name_end].iter().collect();
        let Some(ty) = type_of(chars, item) else {
            if name.is_empty() || name_end < item.end {
                let expected = "a name and a type, as in n int (expressions stand behind ';')";
                let at = if name.is_empty() { item.start } else { name_end };
                return Err(Lexer::new(chars).unexpected(at, expected));
            }
            // `a, b int`: as in Go, the next type is its too.
            untyped += 1;
            all.push(Declaration { name, ty: String::new(), column: item.end + 1 });
            continue;
        };
        let text: String = chars[ty..item.end].iter().collect();
        for earlier in all.iter_mut().rev().take(untyped) {
            earlier.ty.clone_from(&text);
            earlier.column = ty + 1;
        }
        untyped = 0;
        all.push(Declaration { name, ty: text, column: ty + 1 });
    }
    match all.last() {
        Some(last) if untyped > 0 => {
            let name = &last.name;
            Err(Lexer::new(chars).unexpected(last.column - 1, &format!("a type after '{name}'")))
        }
        _ => Ok(Some((all, behind))),
    }
}

/// The declaration that stands at `at`, without parentheses, up to the end.
pub(super) fn single(chars: &[char], at: usize) -> Result<Option<Declaration>, ExpressionError> {
    let end =
        (at..chars.len()).rev().find(|at| !chars[*at].is_whitespace()).map_or(at, |at| at + 1);
    let item = Item { start: at, end };
    let Some(ty) = type_of(chars, item) else { return Ok(None) };
    if let Some(comma) = split(chars, at).0.get(1) {
        return Err(
            Lexer::new(chars).unexpected(comma.start, "one result: several stand in parentheses")
        );
    }
    let name: String = chars[at..name_end(chars, item)].iter().collect();
    Ok(Some(Declaration { name, ty: chars[ty..end].iter().collect(), column: ty + 1 }))
}

/// The items up to the `;` or `)` outside of brackets, and its place; a text of a condition ends
/// the search too.
fn split(chars: &[char], at: usize) -> (Vec<Item>, usize) {
    let (mut items, mut start, mut open) = (Vec::new(), at, 0usize);
    let item = |start: usize, end: usize| {
        let is_space = |at: &usize| chars[*at].is_whitespace();
        let start = (start..end).find(|at| !is_space(at)).unwrap_or(end);
        let end = (start..end).rev().find(|at| !is_space(at)).map_or(start, |at| at + 1);
        Item { start, end }
    };
    for (here, c) in chars.iter().enumerate().skip(at) {
        match c {
            '(' | '[' | '{' => open += 1,
            ')' | ';' if open == 0 => {
                items.push(item(start, here));
                return (items, here);
            }
            ')' | ']' | '}' => open = open.saturating_sub(1),
            ',' if open == 0 => {
                items.push(item(start, here));
                start = here + 1;
            }
            _ => {}
        }
    }
    items.push(item(start.min(chars.len()), chars.len()));
    (items, chars.len())
}

fn name_end(chars: &[char], item: Item) -> usize {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '~');
    (item.start..item.end).find(|at| !is_name(chars[*at])).unwrap_or(item.end)
}

/// Where the type of an item begins, when it is a name with a type.
fn type_of(chars: &[char], item: Item) -> Option<usize> {
    let name_end = name_end(chars, item);
    let ty = (name_end..item.end).find(|at| !chars[*at].is_whitespace())?;
    let named = name_end > item.start && !chars[item.start].is_ascii_digit();
    (named && ty > name_end && starts_type(chars, ty, item.end)).then_some(ty)
}

/// `a [0]` is an element of a; `a [4]byte` is not.
fn starts_type(chars: &[char], mut at: usize, end: usize) -> bool {
    let within = |at: usize| chars.get(at).filter(|_| at < end).copied();
    while within(at) == Some('[') {
        let closes = (at..end).find(|at| chars[*at] == ']');
        let Some(closes) = closes else { return false };
        at = closes + 1;
    }
    match within(at) {
        Some('.') => chars.get(at..end).is_some_and(|rest| rest.starts_with(&['.', '.', '.'])),
        Some('<') => within(at + 1) == Some('-'),
        Some(c) => c.is_alphabetic() || matches!(c, '_' | '*'),
        None => false,
    }
}
