//! go-ftrace rules: a function pattern with the values to fetch at its entry,
//! `main.(*Student).String(s.name=(*+0(%ax)):c64, s.age=(+16(%ax)):s64)`.
//!
//! ```text
//! rule  = PATTERN [ '(' [ param { ',' param } ] ')' ]
//! param = NAME '=' expr ':' type
//! expr  = '%' REG | '%' 'x' N | [ '*' ] [ ( '+' | '-' ) N ] '(' expr ')'
//! type  = s8 s16 s32 s64 | u8 u16 u32 u64 | f32 f64 | c8 c16 … c4096
//! ```
//! `+N(x)` is the address x+N, `*+N(x)` the 8-byte pointer loaded from x+N, `(x)` is x. N is
//! decimal or 0x hex. `%x0` to `%x14` are the low halves of the vector registers. White space is free between tokens.

mod cursor;
mod parse;

use crate::pattern::{Pattern, PatternError};
use std::fmt;
use thiserror::Error;

/// Wraps around one register at the most.
pub const MAX_STEPS: usize = 32;

/// A text that is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// The argument list breaks the grammar.
    #[error("column {column}: expected {expected}, found {found}")]
    Syntax {
        /// Where, 1-based, in characters of the rule as given.
        column: usize,
        /// What may stand there.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// The function part is no pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

/// A pattern, and what to fetch where it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Which functions.
    pub pattern: Pattern,
    /// What to fetch at their entry; `None` when the text has no argument list (a plain
    /// pattern), as opposed to `()`, which fetches nothing.
    pub params: Option<Vec<RuleParam>>,
    /// The rule as given.
    pub text: String,
}

/// One `name=expr:type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleParam {
    /// Shown beside the value.
    pub name: String,
    /// Where the value is.
    pub expr: Expr,
    /// How it is read.
    pub ty: RuleType,
}

/// A register and the steps from it, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expr {
    /// Where it starts.
    pub register: Register,
    /// Empty: the register is itself the value. Otherwise they lead to the value's address.
    pub steps: Vec<Step>,
}

/// One step of an expression, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `+N(x)`: the address x+N.
    Offset(i64),
    /// `*+N(x)`: the pointer at x+N.
    Load(i64),
}

/// A general register by its hardware number (rax rcx rdx rbx rsp rbp rsi rdi r8..r15).
/// rsp is SP as at the function's first instruction, so that `+8(%sp)` is the first
/// stack argument wherever in the prologue the site lies. From 16 on follow the vector registers X0 to
/// X14, whose low halves hold floating-point arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(pub u8);

impl Register {
    /// The stack pointer.
    pub const SP: Self = Self(4);

    /// What to take from the number of a vector register.
    const VECTOR: u8 = 16;

    /// By the names of go-ftrace (`ax`), of 64 bits (`rax`) and of 32 bits (`eax`, `r8d`),
    /// all of which mean the whole register; vector registers as `x0` to `x14`.
    pub fn by_name(name: &str) -> Option<Self> {
        if let Some(digits) = name.strip_prefix('x') {
            let number = (0..15u8).find(|number| number.to_string() == digits)?;
            return Some(Self(Self::VECTOR + number));
        }
        const LEGACY: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
        let bare = name.strip_prefix(['r', 'e']).unwrap_or(name);
        if let Some(number) = LEGACY.iter().position(|legacy| *legacy == bare) {
            return Some(Self(number as u8));
        }
        let digits = name.strip_prefix('r')?;
        let digits = digits.strip_suffix('d').unwrap_or(digits);
        (8..16u8).find(|number| number.to_string() == digits).map(Self)
    }

    /// Its number, if it is a vector register.
    pub fn vector(self) -> Option<u8> {
        self.0.checked_sub(Self::VECTOR)
    }

    /// Its name in rules, without `%`.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 32] = [
            "ax", "cx", "dx", "bx", "sp", "bp", "si", "di", "r8", "r9", "r10", "r11", "r12", "r13",
            "r14", "r15", "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11",
            "x12", "x13", "x14", "x15",
        ];
        NAMES[usize::from(self.0 & 31)]
    }
}

/// How a value of a rule is read; sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleType {
    /// `s8`…`s64`.
    Signed(u8),
    /// `u8`…`u64`.
    Unsigned(u8),
    /// `f32`, `f64`.
    Float(u8),
    /// `c8`…`c4096`: text of that many *bits*, shown up to its first NUL.
    Text(u16),
}

impl RuleType {
    /// By its name in rules.
    pub fn by_name(name: &str) -> Option<Self> {
        let (kind, digits) = name.split_at_checked(1)?;
        if digits.starts_with('0') || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let bits: u16 = digits.parse().ok()?;
        let bytes = bits / 8;
        match (kind, bits) {
            ("s", 8 | 16 | 32 | 64) => Some(Self::Signed(bytes as u8)),
            ("u", 8 | 16 | 32 | 64) => Some(Self::Unsigned(bytes as u8)),
            ("f", 32 | 64) => Some(Self::Float(bytes as u8)),
            ("c", 8..=4096) if bits.is_multiple_of(8) => Some(Self::Text(bytes)),
            _ => None,
        }
    }
}

impl RuleType {
    /// Bytes that are read.
    pub fn bytes(self) -> u16 {
        match self {
            Self::Signed(bytes) | Self::Unsigned(bytes) | Self::Float(bytes) => bytes.into(),
            Self::Text(bytes) => bytes,
        }
    }
}

impl fmt::Display for RuleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match *self {
            Self::Signed(_) => 's',
            Self::Unsigned(_) => 'u',
            Self::Float(_) => 'f',
            Self::Text(_) => 'c',
        };
        write!(f, "{kind}{}", self.bytes() * 8)
    }
}

impl fmt::Display for Expr {
    /// The shortest form that parses to the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in self.steps.iter().rev() {
            match step {
                Step::Offset(n) => write!(f, "{n:+}(")?,
                Step::Load(n) => write!(f, "*{n:+}(")?,
            }
        }
        write!(f, "%{}", self.register.name())?;
        f.write_str(&")".repeat(self.steps.len()))
    }
}

impl Rule {
    /// Parses a rule or a plain pattern.
    ///
    /// The argument list is the last group in parentheses that holds a `=` or nothing at all;
    /// parentheses before it, as in `main.(*T).M`, belong to the pattern, and so do those
    /// between the slashes of a `/regex/`.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        parse::rule(text)
    }
}

#[cfg(test)]
mod tests;
