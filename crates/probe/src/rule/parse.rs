//! The parser of rules.

use super::cursor::{Cursor, error};
use super::{Expr, MAX_STEPS, Register, Rule, RuleError, RuleParam, RuleType, Step};
use crate::pattern::Pattern;

const TYPES: &str = "a type (s8 s16 s32 s64 u8 u16 u32 u64 f32 f64 c8…c4096)";
const REGISTERS: &str = "a register (ax bx cx dx si di bp sp r8…r15 x0…x14)";
const GENERAL: &str = "a general register: vector registers hold no addresses";

pub(super) fn rule(text: &str) -> Result<Rule, RuleError> {
    let chars: Vec<char> = text.chars().collect();
    let list = list_start(&chars)?;
    let pattern: String = chars[..list.unwrap_or(chars.len())].iter().collect();
    let pattern = Pattern::parse(&pattern)?;
    let params = list.map(|at| params(&mut Cursor::new(&chars, at))).transpose()?;
    Ok(Rule { pattern, params, text: text.to_owned() })
}

/// Where the argument list opens; `None` for a plain pattern.
fn list_start(chars: &[char]) -> Result<Option<usize>, RuleError> {
    let from = regex_end(chars);
    let mut open = Vec::new();
    let mut brackets = 0usize;
    // Of a glob, the last wildcard: what stands before it may be the beginning of any name.
    let mut wild = None;
    // The last group that nothing follows. No function's name ends in one, so it is an
    // argument list, empty or malformed; but `(*…)` is a receiver being typed.
    let mut last = None;
    for (at, &c) in chars.iter().enumerate().skip(from) {
        match c {
            // Type arguments: a struct tag in them may hold anything.
            '[' => brackets += 1,
            ']' => brackets = brackets.saturating_sub(1),
            _ if brackets > 0 => {}
            '=' => {
                return match open.first() {
                    Some(start) => Ok(Some(*start)),
                    None => Err(error(at, "'(' before the arguments", "'='".to_owned())),
                };
            }
            '(' => open.push(at),
            '?' => wild = Some(at),
            '*' if !is_receiver(chars, at) => wild = Some(at),
            ')' => {
                let start = open.pop().filter(|start| chars.get(start + 1) != Some(&'*'));
                last = start.filter(|_| open.is_empty() && all_space(&chars[at + 1..]));
            }
            _ => {}
        }
    }
    if last.is_none() && from > 0 {
        // Nothing but a list may follow a regex.
        let mut rest = Cursor::new(chars, from);
        rest.skip_space();
        return match rest.peek() {
            None => Ok(None),
            Some('(') => Ok(Some(rest.at())),
            Some(_) => Err(rest.unexpected("'(' or the end after the regular expression")),
        };
    }
    if open.last().is_some_and(|at| wild.is_none_or(|wild| wild < *at)) {
        return Err(error(chars.len(), "')'", "the end".to_owned()));
    }
    Ok(last)
}

/// Whether the `*` there is itself, as in `(*T)`.
fn is_receiver(chars: &[char], at: usize) -> bool {
    let is_name = |c: &char| c.is_alphabetic() || *c == '_';
    at > 0 && chars.get(at - 1) == Some(&'(') && chars.get(at + 1).is_some_and(is_name)
}

fn all_space(chars: &[char]) -> bool {
    chars.iter().all(|c| c.is_whitespace())
}

/// Characters of a leading `/regex/`, 0 when there is none. Argument lists hold no slash
/// outside of names, so the last slash closes it.
fn regex_end(chars: &[char]) -> usize {
    let start = chars.iter().position(|c| !c.is_whitespace()).unwrap_or(0);
    if chars.get(start) != Some(&'/') {
        return 0;
    }
    chars.iter().rposition(|c| *c == '/').filter(|end| *end > start).map_or(0, |end| end + 1)
}

/// From the opening parenthesis to the end of the rule.
fn params(cursor: &mut Cursor<'_>) -> Result<Vec<RuleParam>, RuleError> {
    cursor.expect('(')?;
    let mut params = Vec::new();
    if !cursor.take(')') {
        loop {
            params.push(param(cursor)?);
            if cursor.take(')') {
                break;
            }
            if !cursor.take(',') {
                return Err(cursor.unexpected("',' or ')' after the argument"));
            }
        }
    }
    cursor.skip_space();
    if cursor.peek().is_some() {
        return Err(cursor.unexpected("the end after the argument list"));
    }
    Ok(params)
}

fn param(cursor: &mut Cursor<'_>) -> Result<RuleParam, RuleError> {
    let name = cursor.word(|c| !c.is_whitespace() && !"=,:()%".contains(c));
    if name.is_empty() {
        return Err(cursor.unexpected("an argument's name"));
    }
    cursor.expect('=')?;
    let expr = expr(cursor)?;
    cursor.expect(':')?;
    let ty = keyword(cursor, TYPES, RuleType::by_name)?;
    Ok(RuleParam { name, expr, ty })
}

/// Not recursive: wraps are counted on the way in and closed on the way out.
fn expr(cursor: &mut Cursor<'_>) -> Result<Expr, RuleError> {
    // Outermost first; `None` is a pair of parentheses alone.
    let mut wraps = Vec::new();
    while !cursor.take('%') {
        if wraps.len() == MAX_STEPS {
            return Err(cursor.unexpected(&format!("at most {MAX_STEPS} nested parentheses")));
        }
        wraps.push(wrap(cursor)?);
    }
    let start = cursor.at();
    let register = keyword(cursor, REGISTERS, Register::by_name)?;
    if register.vector().is_some() && wraps.iter().any(Option::is_some) {
        return Err(error(start, GENERAL, format!("'{}'", register.name())));
    }
    for _ in &wraps {
        cursor.expect(')')?;
    }
    Ok(Expr { register, steps: wraps.into_iter().rev().flatten().collect() })
}

/// `[*][±N](`.
fn wrap(cursor: &mut Cursor<'_>) -> Result<Option<Step>, RuleError> {
    let load = cursor.take('*');
    let offset = offset(cursor)?;
    if !cursor.take('(') {
        return Err(cursor.unexpected(match (load, offset) {
            (false, None) => "'%register', '*', '+', '-' or '('",
            (true, None) => "'+', '-' or '(' after '*'",
            (_, Some(_)) => "'(' after the offset",
        }));
    }
    Ok(match (load, offset) {
        (true, offset) => Some(Step::Load(offset.unwrap_or(0))),
        (false, offset) => offset.map(Step::Offset),
    })
}

/// `±N`, if there is one.
fn offset(cursor: &mut Cursor<'_>) -> Result<Option<i64>, RuleError> {
    let negative = cursor.take('-');
    if !negative && !cursor.take('+') {
        return Ok(None);
    }
    keyword(cursor, "an offset (decimal or 0x hex, at most 63 bits)", |digits| {
        let (digits, radix) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
            Some(hex) => (hex, 16),
            None => (digits, 10),
        };
        let unsigned = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let value = i64::from_str_radix(digits, radix).ok().filter(|_| unsigned)?;
        Some(if negative { -value } else { value })
    })
    .map(Some)
}

/// The next word, if `by_name` knows it.
fn keyword<T>(
    cursor: &mut Cursor<'_>,
    expected: &str,
    by_name: impl Fn(&str) -> Option<T>,
) -> Result<T, RuleError> {
    cursor.skip_space();
    let start = cursor.at();
    let word = cursor.word(|c| c.is_alphanumeric() || c == '_');
    if word.is_empty() {
        return Err(cursor.unexpected(expected));
    }
    by_name(&word).ok_or_else(|| error(start, expected, format!("'{word}'")))
}
