//! What tracebacks know of a function's arguments (`FUNCDATA_ArgInfo`), which a stripped executable
//! has too: the size of every part. A signature from elsewhere is held against it.

use crate::abi::{AbiType, Convention, Place, assign};
use crate::function::{Function, FunctionTable};
use crate::types::{Kind, TypeInfo};
use crate::{Error, PlacedVariable, TypeSource};
use std::fmt;

/// `TraceArgs…` (internal/abi/type.go; the same in `emitArgInfo`, cmd/compile/internal/ssagen/ssa.go,
/// from Go 1.19 on).
const LIMIT: usize = 10;
const MAX_DEPTH: usize = 5;
const MAX_LEN: u64 = (MAX_DEPTH as u64 * 3 + 2) * LIMIT as u64 + 1;
const END: u8 = 0xff;
const START_AGGREGATE: u8 = 0xfe;
const END_AGGREGATE: u8 = 0xfd;
const MORE: u8 = 0xfc;
const FAR: u8 = 0xfb;
const SPECIAL: u64 = 0xf0;

/// The arguments of a function in the order of the source: the first ten parts, five levels deep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArgumentInfo(Vec<Token>);

/// One piece of an [`ArgumentInfo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    /// A part: its place from the first stack argument on where it would be spilled, and its size, bytes.
    Part(u8, u8),
    /// A part that lies further away.
    Far,
    Start,
    End,
    More,
}

impl fmt::Display for ArgumentInfo {
    /// Sizes in bytes, what belongs together in braces: `8, {8, 8}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for token in &self.0 {
            if !first && *token != Token::End {
                f.write_str(", ")?;
            }
            first = *token == Token::Start;
            match token {
                Token::Part(_, size) => write!(f, "{size}")?,
                Token::Far => f.write_str("_")?,
                Token::Start => f.write_str("{")?,
                Token::End => f.write_str("}")?,
                Token::More => f.write_str("...")?,
            }
        }
        Ok(())
    }
}

impl ArgumentInfo {
    /// Reads the bytes up to the end of the sequence.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (mut tokens, mut rest) = (Vec::new(), bytes.iter().copied());
        loop {
            tokens.push(match rest.next()? {
                END => return Some(Self(tokens)),
                START_AGGREGATE => Token::Start,
                END_AGGREGATE => Token::End,
                MORE => Token::More,
                FAR => Token::Far,
                offset if u64::from(offset) < SPECIAL => Token::Part(offset, rest.next()?),
                _ => return None,
            });
        }
    }

    /// Whether there is no argument.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether both have the same parts, and (unless the `offsets` are not known) at the same places.
    pub fn agrees_with(&self, other: &Self, offsets: bool) -> bool {
        let sizes = |token: &Token| match token {
            Token::Part(_, size) if !offsets => Token::Part(0, *size),
            Token::Far if !offsets => Token::Part(0, 0),
            token => *token,
        };
        // How large a part is that lies far away is not said.
        let is_far = |token: &Token| *token == Token::Far && !offsets;
        self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|(one, other)| {
                let parts = |token: &Token| matches!(token, Token::Part(..) | Token::Far);
                (is_far(one) || is_far(other)) && parts(one) && parts(other)
                    || sizes(one) == sizes(other)
            })
    }
}

impl FunctionTable {
    /// What tracebacks print of the function's arguments; `None` when the compiler wrote nothing, as
    /// for a function without parameters.
    pub fn argument_info(&self, function: &Function) -> Option<ArgumentInfo> {
        let record = self.table.record(function.index)?;
        let at = self.gofunc.add(self.table.argument_info(&record)?.into());
        let read = |len| self.image.read_vec(at, len).ok();
        // At the end of the data there may be less.
        let bytes = read(MAX_LEN).or_else(|| (1..MAX_LEN).rev().find_map(read))?;
        ArgumentInfo::parse(&bytes)
    }
}

/// The arguments of a signature as the compiler would describe them, and the bytes that they and the
/// results take on the stack with the places where registers are spilled. `None` for C types.
pub(crate) fn expected(
    params: &[PlacedVariable],
    results: &[PlacedVariable],
    types: TypeSource<'_>,
    convention: Convention,
    hidden: Hidden,
) -> Result<Option<(ArgumentInfo, u64)>, Error> {
    let abi = |variables: &[PlacedVariable]| -> Result<Vec<_>, Error> {
        variables.iter().map(|variable| types.abi_type(variable.ty.id)).collect()
    };
    let (mut param_types, result_types) = (abi(params)?, abi(results)?);
    let mut params: Vec<Option<&PlacedVariable>> = params.iter().map(Some).collect();
    if let Some(position) = hidden.dictionary {
        let position = position.min(params.len());
        param_types.insert(position, AbiType::WORD);
        params.insert(position, None);
    }
    let places = assign(&param_types, &result_types, convention);
    let all = places.params.iter().zip(&param_types);
    let all = all.chain(places.results.iter().zip(&result_types));
    let on_stack = all.filter_map(|(place, ty)| match place {
        Place::Stack { offset } => Some(u64::from(*offset).saturating_add(ty.size)),
        _ => None,
    });
    let mut spill = on_stack.max().unwrap_or(0).next_multiple_of(8);
    let mut writer = Writer { types, tokens: Vec::new(), count: 0, is_c: false };
    let mut goes_on = true;
    for (index, ((param, place), ty)) in
        params.iter().zip(&places.params).zip(&param_types).enumerate()
    {
        let offset = match place {
            Place::Stack { offset } => u64::from(*offset),
            Place::Empty => 0,
            Place::Registers(_) => {
                let at = spill.checked_next_multiple_of(ty.align.max(1)).unwrap_or(spill);
                spill = at.saturating_add(ty.size);
                at
            }
        };
        if goes_on && index >= hidden.skipped {
            goes_on = match param {
                Some(param) => writer.visit(offset, &param.ty, 0)?,
                None => writer.word(offset),
            };
        }
    }
    let Writer { tokens, is_c, .. } = writer;
    Ok((!is_c).then(|| (ArgumentInfo(tokens), spill.next_multiple_of(8))))
}

/// What the source does not have or the description leaves out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hidden {
    /// Where a generic's dictionary is among the parameters.
    pub dictionary: Option<usize>,
    /// Parameters left out at the beginning: one of functions with a bracket in their name, which
    /// `EmitArgInfo` takes for the dictionary. Of methods it is the receiver, from Go 1.20 on.
    pub skipped: usize,
}

/// `visitType` of `EmitArgInfo`.
struct Writer<'a> {
    types: TypeSource<'a>,
    tokens: Vec<Token>,
    count: usize,
    is_c: bool,
}

impl Writer<'_> {
    fn part(&mut self, offset: u64, size: u64) {
        self.count += 1;
        self.tokens.push(match u8::try_from(offset) {
            Ok(near) if offset < SPECIAL => Token::Part(near, size as u8),
            _ => Token::Far,
        });
    }

    /// A word that has no type; whether there is room for more.
    fn word(&mut self, offset: u64) -> bool {
        let is_full = self.is_full();
        if !is_full {
            self.part(offset, 8);
        }
        !is_full
    }

    /// Parts of one size, one behind the other.
    fn parts(&mut self, offset: u64, size: u64, count: u64) {
        for index in 0..count {
            if self.is_full() {
                return;
            }
            self.part(offset + index * size, size);
        }
    }

    fn is_full(&mut self) -> bool {
        let is_full = self.count >= LIMIT;
        if is_full {
            self.tokens.push(Token::More);
        }
        is_full
    }

    /// Whether there is room for more.
    fn visit(&mut self, offset: u64, ty: &TypeInfo, depth: usize) -> Result<bool, Error> {
        if self.is_full() {
            return Ok(false);
        }
        match &ty.kind {
            Kind::String
            | Kind::Interface { .. }
            | Kind::Slice { .. }
            | Kind::Complex
            | Kind::Array { .. }
            | Kind::Struct { .. } => {}
            Kind::Other => {
                self.is_c = true;
                return Ok(false);
            }
            _ => {
                self.part(offset, ty.size);
                return Ok(true);
            }
        }
        self.tokens.push(Token::Start);
        if depth + 1 >= MAX_DEPTH {
            self.tokens.extend([Token::More, Token::End]);
            self.count += 1;
            return Ok(true);
        }
        match &ty.kind {
            Kind::Slice { .. } => self.parts(offset, 8, 3),
            Kind::Complex => self.parts(offset, ty.size / 2, 2),
            Kind::Array { elem, len } => {
                self.array(offset, &*self.types.type_info(*elem)?, *len, depth)?
            }
            Kind::Struct { fields } => {
                self.count += usize::from(fields.is_empty());
                for field in fields {
                    let inner = self.types.type_info(field.ty)?;
                    if !self.visit(offset.saturating_add(field.offset), &inner, depth + 1)? {
                        break;
                    }
                }
            }
            _ => self.parts(offset, 8, 2),
        }
        self.tokens.push(Token::End);
        Ok(true)
    }

    fn array(&mut self, offset: u64, elem: &TypeInfo, len: u64, depth: usize) -> Result<(), Error> {
        self.count += usize::from(len == 0);
        for index in 0..len {
            let at = offset.saturating_add(index.saturating_mul(elem.size));
            // Elements without parts count as one each, so this ends.
            if !self.visit(at, elem, depth + 1)? {
                break;
            }
        }
        Ok(())
    }
}
