//! From characters to tokens.

use super::ExpressionError;

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// An identifier, or the path of a package up to its last element (`net/http`).
    Name(String),
    /// `$name`, without the `$`.
    Special(String),
    Int(i128),
    Float(f64),
    /// Nanoseconds.
    Duration(i64),
    Text(Vec<u8>),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

/// Longest first.
const SIGNS: [&str; 19] = [
    "->", "&&", "||", "==", "!=", "<=", ">=", "(", ")", "[", "]", ".", ",", "&", "*", "!", "-",
    "<", ">",
];

/// Characters looked through for the slashes of a package's path: a bound on the time that a chain of
/// fields takes.
const MAX_PATH: usize = 256;

const NUMBER: &str = "a number, or a duration as in 10ms";

/// Characters with a range of them to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lexer<'a> {
    chars: &'a [char],
}

impl<'a> Lexer<'a> {
    pub(super) fn new(chars: &'a [char]) -> Self {
        Self { chars }
    }

    pub(super) fn char(&self, at: usize) -> Option<char> {
        self.chars.get(at).copied()
    }

    /// The first place from `at` on that is no white space.
    pub(super) fn skip_space(&self, mut at: usize) -> usize {
        while self.char(at).is_some_and(char::is_whitespace) {
            at += 1;
        }
        at
    }

    /// The token at `at`, where no white space is, and the place behind it.
    pub(super) fn token(&self, at: usize) -> Result<(Token, usize), ExpressionError> {
        match self.char(at) {
            None => Ok((Token::End, at)),
            Some('$') => {
                let end = self.while_in(at + 1, is_name);
                Ok((Token::Special(self.text(at + 1, end)), end))
            }
            Some('"') => self.quoted(at),
            Some('`') => self.raw(at),
            Some(c) if c.is_ascii_digit() => self.number(at),
            Some(c) if starts_name(c) => {
                let end = self.name_end(at);
                Ok((Token::Name(self.text(at, end)), end))
            }
            Some(_) => self.sign(at),
        }
    }

    fn sign(&self, at: usize) -> Result<(Token, usize), ExpressionError> {
        let stands =
            |sign: &&'static str| sign.chars().zip(at..).all(|(c, i)| self.char(i) == Some(c));
        match SIGNS.into_iter().find(stands) {
            Some(sign) => Ok((Token::Sign(sign), at + sign.len())),
            None => Err(self.unexpected(at, "a name, a number, a string or an operator")),
        }
    }

    fn while_in(&self, mut at: usize, inside: impl Fn(char) -> bool) -> usize {
        while self.char(at).is_some_and(&inside) {
            at += 1;
        }
        at
    }

    fn text(&self, start: usize, end: usize) -> String {
        self.chars.get(start..end).unwrap_or_default().iter().collect()
    }

    /// The end of a name. The path of a package reaches to its last slash and on to the next dot.
    fn name_end(&self, at: usize) -> usize {
        let mut end = at;
        let mut slash = None;
        while let Some(c) = self.char(end) {
            let arrow = c == '-' && self.char(end + 1) == Some('>');
            if arrow || end - at >= MAX_PATH || !(is_name(c) || matches!(c, '.' | '-' | '/' | '%'))
            {
                break;
            }
            if c == '/' {
                slash = Some(end);
            }
            end += 1;
        }
        match slash {
            None => self.while_in(at, is_name),
            Some(slash) => self.while_in(slash + 1, |c| is_name(c) || c == '%').min(end),
        }
    }

    fn number(&self, at: usize) -> Result<(Token, usize), ExpressionError> {
        let mut end = at;
        while let Some(c) = self.char(end) {
            let fraction = c == '.' && self.char(end + 1).is_some_and(|c| c.is_ascii_digit());
            let exponent = matches!(c, '+' | '-')
                && matches!(self.char(end - 1), Some('e' | 'E'))
                && self.char(at + 1) != Some('x')
                && self.char(end + 1).is_some_and(|c| c.is_ascii_digit());
            if !(is_name(c) || fraction || (exponent && end > at)) {
                break;
            }
            end += 1;
        }
        let text = self.text(at, end);
        match number(&text.replace('_', "")) {
            Some(token) => Ok((token, end)),
            None => Err(error(at, NUMBER, format!("'{text}'"))),
        }
    }

    /// A string as Go writes it.
    fn quoted(&self, start: usize) -> Result<(Token, usize), ExpressionError> {
        let mut bytes = Vec::new();
        let mut at = start + 1;
        loop {
            match self.char(at) {
                None | Some('\n') => {
                    return Err(self.unexpected(at, "'\"' at the end of the string"));
                }
                Some('"') => return Ok((Token::Text(bytes), at + 1)),
                Some('\\') => at = self.escape(at, &mut bytes)?,
                Some(c) => {
                    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                    at += 1;
                }
            }
        }
    }

    /// What a backslash says, and the place behind it.
    fn escape(&self, at: usize, bytes: &mut Vec<u8>) -> Result<usize, ExpressionError> {
        let byte = match self.char(at + 1) {
            Some('n') => b'\n',
            Some('t') => b'\t',
            Some('r') => b'\r',
            Some(c @ ('\\' | '"' | '\'')) => c as u8,
            Some('x') => {
                let digits = self.text(at + 2, at + 4);
                let hex = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
                let byte = u8::from_str_radix(&digits, 16).ok().filter(|_| hex);
                let byte = byte.ok_or_else(|| self.unexpected(at + 2, "two hexadecimal digits"))?;
                bytes.push(byte);
                return Ok(at + 4);
            }
            _ => return Err(self.unexpected(at + 1, "one of n t r x \\ \" '")),
        };
        bytes.push(byte);
        Ok(at + 2)
    }

    /// A string between backquotes.
    fn raw(&self, start: usize) -> Result<(Token, usize), ExpressionError> {
        let end = self.while_in(start + 1, |c| c != '`');
        match self.char(end) {
            Some(_) => Ok((Token::Text(self.text(start + 1, end).into_bytes()), end + 1)),
            None => Err(self.unexpected(end, "'`' at the end of the string")),
        }
    }

    /// The type's name up to the parenthesis that closes, and the place behind that.
    pub(super) fn type_name(&self, start: usize) -> Result<(String, usize), ExpressionError> {
        let mut open = 0usize;
        let mut at = start;
        loop {
            match self.char(at) {
                None => return Err(self.unexpected(at, "')' after the type")),
                Some('(' | '[' | '{') => open += 1,
                Some(')') if open == 0 => break,
                Some(')' | ']' | '}') => open = open.saturating_sub(1),
                Some(_) => {}
            }
            at += 1;
        }
        let name = self.text(start, at).trim().to_owned();
        if name.is_empty() {
            return Err(self.unexpected(start, "a type, as in (*net/http.response)"));
        }
        Ok((name, at + 1))
    }

    /// An error at what stands at `at`.
    pub(super) fn unexpected(&self, at: usize, expected: &str) -> ExpressionError {
        let at = self.skip_space(at);
        let word = self.text(at, self.while_in(at, is_name));
        let found = match self.char(at) {
            None => "the end".to_owned(),
            Some(_) if !word.is_empty() => format!("'{word}'"),
            Some(c) => format!("'{c}'"),
        };
        error(at, expected, found)
    }
}

/// An error at the 0-based character `at`.
pub(super) fn error(at: usize, expected: &str, found: String) -> ExpressionError {
    ExpressionError::Syntax { column: at + 1, expected: expected.to_owned(), found }
}

/// Names that the compiler made up begin with `~`.
fn starts_name(c: char) -> bool {
    c.is_alphabetic() || matches!(c, '_' | '~')
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '~')
}

fn number(text: &str) -> Option<Token> {
    let hex = text.strip_prefix("0x").or(text.strip_prefix("0X"));
    if let Some(digits) = hex {
        return u64::from_str_radix(digits, 16).ok().map(|n| Token::Int(n.into()));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse::<u64>().ok().map(|n| Token::Int(n.into()));
    }
    if let Some(ns) = duration(text) {
        return Some(Token::Duration(ns));
    }
    let float = text.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    text.parse().ok().filter(|n: &f64| float && n.is_finite()).map(Token::Float)
}

/// `1m30.5s`, as Go's `time.ParseDuration` reads it.
fn duration(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut all = 0f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, behind) = rest.split_at(digits);
        let unit = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit);
        let ns = match unit {
            "ns" => 1e0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        all += number.parse::<f64>().ok()? * ns;
        rest = behind;
    }
    (all <= i64::MAX as f64).then(|| all.round() as i64)
}
