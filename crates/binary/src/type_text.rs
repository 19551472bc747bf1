//! Types as people write them in a signature: `map[string][]*net/http.Request`.

use crate::types::{Kind, TypeId, TypeInfo};
use crate::{Error, TypeSource};
use thiserror::Error as ThisError;

/// How deep types are nested in one another.
const MAX_DEPTH: usize = 24;

/// Characters of one type.
const MAX_LENGTH: usize = 4096;

/// Why a text is no type of the program.
#[derive(Debug, ThisError)]
pub enum TypeTextError {
    /// It breaks the grammar.
    #[error("expected {expected}")]
    Syntax {
        /// Where, 0-based, in characters.
        at: usize,
        /// What may stand there.
        expected: &'static str,
    },
    /// There is no such type.
    #[error("no type {name}")]
    Unknown {
        /// Where it stands, 0-based, in characters.
        at: usize,
        /// The part that is not known.
        name: String,
    },
    /// What describes the types is damaged.
    #[error(transparent)]
    Binary(#[from] Error),
}

/// A type, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    at: usize,
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Named(String),
    Pointer(Box<Written>),
    Slice(Box<Written>),
    Array(u64, Box<Written>),
    Map(Box<Written>, Box<Written>),
    Chan(&'static str, Box<Written>),
    /// `func(…)`, `struct {…}`, `interface {…}`: nothing inside is looked at.
    Literal(&'static str, String),
}

impl TypeSource<'_> {
    /// The type that a text names; bare names are the universe's, or of `package`. Made types (`[]T`,
    /// `*T`) need not occur in the program, as long as their parts do.
    pub fn parse_type(&self, text: &str, package: &str) -> Result<TypeId, TypeTextError> {
        let written = parse(text)?;
        Resolver { types: *self, package, is_lenient: false }.resolve(&written)
    }

    /// As [`Self::parse_type`], but what pointers, slices and maps lead to need not be there.
    pub(crate) fn parse_type_leniently(&self, text: &str) -> Result<TypeId, TypeTextError> {
        Resolver { types: *self, package: "", is_lenient: true }.resolve(&parse(text)?)
    }
}

fn parse(text: &str) -> Result<Written, TypeTextError> {
    let chars: Vec<char> = text.chars().collect();
    let mut parser = Parser { chars: &chars, at: 0 };
    if chars.len() > MAX_LENGTH {
        return Err(parser.expected("a shorter type"));
    }
    let is_variadic = parser.take("...");
    let written = parser.ty(0)?;
    parser.space();
    if parser.at < chars.len() {
        return Err(parser.expected("the end of the type"));
    }
    let form = if is_variadic { Form::Slice(Box::new(written.clone())) } else { written.form };
    Ok(Written { at: 0, form })
}

struct Parser<'a> {
    chars: &'a [char],
    at: usize,
}

impl Parser<'_> {
    fn expected(&self, expected: &'static str) -> TypeTextError {
        TypeTextError::Syntax { at: self.at, expected }
    }

    fn space(&mut self) {
        while self.chars.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().zip(self.at..).all(|(c, at)| self.chars.get(at) == Some(&c))
    }

    fn take(&mut self, text: &str) -> bool {
        self.space();
        let found = self.starts_with(text);
        if found {
            self.at += text.chars().count();
        }
        found
    }

    fn ty(&mut self, depth: usize) -> Result<Written, TypeTextError> {
        self.space();
        if depth > MAX_DEPTH {
            return Err(self.expected("a type that is nested less"));
        }
        let at = self.at;
        let inner = |parser: &mut Self| parser.ty(depth + 1).map(Box::new);
        let form = if self.take("*") {
            Form::Pointer(inner(self)?)
        } else if self.take("<-chan") {
            Form::Chan("<-chan ", inner(self)?)
        } else if self.take("[") {
            self.sequence(depth)?
        } else if self.take("(") {
            let inside = self.ty(depth + 1)?;
            if !self.take(")") {
                return Err(self.expected("')'"));
            }
            inside.form
        } else {
            self.named(depth)?
        };
        Ok(Written { at, form })
    }

    /// Behind the bracket that opens.
    fn sequence(&mut self, depth: usize) -> Result<Form, TypeTextError> {
        self.space();
        let start = self.at;
        while self.chars.get(self.at).is_some_and(char::is_ascii_digit) {
            self.at += 1;
        }
        let digits: String = self.chars[start..self.at].iter().collect();
        if !self.take("]") {
            return Err(self.expected("']' or a number of elements"));
        }
        let elem = Box::new(self.ty(depth + 1)?);
        if digits.is_empty() {
            return Ok(Form::Slice(elem));
        }
        let len = digits.parse().map_err(|_| self.expected("a smaller number of elements"))?;
        Ok(Form::Array(len, elem))
    }

    fn named(&mut self, depth: usize) -> Result<Form, TypeTextError> {
        let start = self.at;
        let is_name = |c: char| c.is_alphanumeric() || "_./%~-·$@".contains(c);
        while self.chars.get(self.at).is_some_and(|c| is_name(*c)) {
            self.at += 1;
        }
        let name: String = self.chars[start..self.at].iter().collect();
        match &*name {
            "" => Err(self.expected("a type")),
            "map" => {
                if !self.take("[") {
                    return Err(self.expected("'[' after map"));
                }
                let key = Box::new(self.ty(depth + 1)?);
                if !self.take("]") {
                    return Err(self.expected("']' after the key's type"));
                }
                Ok(Form::Map(key, Box::new(self.ty(depth + 1)?)))
            }
            "chan" => {
                let direction = if self.take("<-") { "chan<- " } else { "chan " };
                Ok(Form::Chan(direction, Box::new(self.ty(depth + 1)?)))
            }
            "func" => {
                self.space();
                self.bracketed()?;
                self.results()?;
                Ok(Form::Literal("func", self.chars[start..self.at].iter().collect()))
            }
            "struct" | "interface" => {
                self.space();
                let open = self.at;
                self.bracketed()?;
                let inside: String = self.chars[open + 1..self.at - 1].iter().collect();
                let word = if name == "struct" { "struct" } else { "interface" };
                Ok(Form::Literal(word, inside.trim().to_owned()))
            }
            _ => {
                if self.starts_with("[") {
                    self.bracketed()?;
                }
                Ok(Form::Named(self.chars[start..self.at].iter().collect()))
            }
        }
    }

    /// What follows the parameters of a func type: nothing, a type, or types in parentheses.
    fn results(&mut self) -> Result<(), TypeTextError> {
        let before = self.at;
        self.space();
        match self.chars.get(self.at) {
            None => self.at = before,
            Some('(') => self.bracketed()?,
            Some(_) => {
                self.ty(1)?;
            }
        }
        Ok(())
    }

    /// From one bracket to the one that closes it.
    fn bracketed(&mut self) -> Result<(), TypeTextError> {
        let mut open = 0usize;
        let start = self.at;
        loop {
            match self.chars.get(self.at) {
                Some('(' | '[' | '{') => open += 1,
                Some(')' | ']' | '}') => open = open.saturating_sub(1),
                Some(_) if self.at > start => {}
                _ => return Err(self.expected("a bracket")),
            }
            self.at += 1;
            if open == 0 {
                return Ok(());
            }
        }
    }
}

impl Written {
    /// As debug information and descriptors spell it.
    fn spelled(&self) -> String {
        match &self.form {
            Form::Named(name) => match &**name {
                "byte" => "uint8".to_owned(),
                "rune" => "int32".to_owned(),
                "any" => "interface {}".to_owned(),
                name => name.to_owned(),
            },
            Form::Pointer(elem) => format!("*{}", elem.spelled()),
            Form::Slice(elem) => format!("[]{}", elem.spelled()),
            Form::Array(len, elem) => format!("[{len}]{}", elem.spelled()),
            Form::Map(key, elem) => format!("map[{}]{}", key.spelled(), elem.spelled()),
            Form::Chan(direction, elem) => format!("{direction}{}", elem.spelled()),
            Form::Literal("func", text) => text.clone(),
            Form::Literal(word, inside) if inside.is_empty() => format!("{word} {{}}"),
            Form::Literal(word, inside) => format!("{word} {{ {inside} }}"),
        }
    }
}

struct Resolver<'a> {
    types: TypeSource<'a>,
    package: &'a str,
    is_lenient: bool,
}

impl Resolver<'_> {
    fn resolve(&self, written: &Written) -> Result<TypeId, TypeTextError> {
        let name = written.spelled();
        if let Some(id) = self.types.find_type(&name)? {
            return Ok(id);
        }
        let word = |kind| (8, 8, kind);
        let (size, align, kind) = match &written.form {
            Form::Named(bare) => return self.named(written, bare, &name),
            Form::Pointer(elem) => word(Kind::Pointer { elem: self.behind(elem)? }),
            Form::Slice(elem) => {
                let elem = match self.behind(elem)? {
                    Some(elem) => elem,
                    None => self.opaque(elem),
                };
                (24, 8, Kind::Slice { elem })
            }
            Form::Array(len, elem) => {
                let elem = self.resolve(elem)?;
                let ty = self.types.type_info(elem)?;
                (ty.size.saturating_mul(*len), ty.align, Kind::Array { elem, len: *len })
            }
            Form::Map(key, elem) => {
                word(Kind::Map { key: self.behind(key)?, elem: self.behind(elem)? })
            }
            Form::Chan(_, elem) => {
                self.behind(elem)?;
                word(Kind::Chan)
            }
            Form::Literal("func", _) => word(Kind::Func),
            Form::Literal("interface", inside) => {
                (16, 8, Kind::Interface { empty: inside.is_empty() })
            }
            Form::Literal(_, inside) if inside.is_empty() => {
                (0, 1, Kind::Struct { fields: Vec::new() })
            }
            Form::Literal(..) => return Err(TypeTextError::Unknown { at: written.at, name }),
        };
        Ok(self.types.make(&name, size, align, kind))
    }

    /// What a pointer, slice or map leads to: it need not be known when its name is not a person's.
    fn behind(&self, written: &Written) -> Result<Option<TypeId>, TypeTextError> {
        match self.resolve(written) {
            Ok(id) => Ok(Some(id)),
            Err(TypeTextError::Unknown { .. }) if self.is_lenient => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A type of which only the name is known.
    fn opaque(&self, written: &Written) -> TypeId {
        self.types.make(&written.spelled(), 0, 1, Kind::Other)
    }

    fn named(&self, written: &Written, bare: &str, name: &str) -> Result<TypeId, TypeTextError> {
        if !bare.contains('.')
            && !self.package.is_empty()
            && let Some(id) = self.types.find_type(&format!("{}.{bare}", self.package))?
        {
            return Ok(id);
        }
        match universe(name) {
            Some((size, kind)) => {
                let align = if kind == Kind::Complex { size / 2 } else { size.min(8) };
                Ok(self.types.make(name, size, align, kind))
            }
            None => Err(TypeTextError::Unknown { at: written.at, name: bare.to_owned() }),
        }
    }
}

/// Size and kind of a type that needs no declaration, and which the linker may have left out.
fn universe(name: &str) -> Option<(u64, Kind)> {
    let (signed, unsigned) = (Kind::Int { signed: true }, Kind::Int { signed: false });
    Some(match name {
        "bool" => (1, Kind::Bool),
        "int" | "int64" => (8, signed),
        "int32" => (4, signed),
        "int16" => (2, signed),
        "int8" => (1, signed),
        "uint" | "uint64" | "uintptr" => (8, unsigned),
        "uint32" => (4, unsigned),
        "uint16" => (2, unsigned),
        "uint8" => (1, unsigned),
        "float32" => (4, Kind::Float),
        "float64" => (8, Kind::Float),
        "complex64" => (8, Kind::Complex),
        "complex128" => (16, Kind::Complex),
        "string" => (16, Kind::String),
        "error" => (16, Kind::Interface { empty: false }),
        "interface {}" => (16, Kind::Interface { empty: true }),
        "unsafe.Pointer" => (8, Kind::UnsafePointer),
        _ => return None,
    })
}

impl TypeSource<'_> {
    fn make(&self, name: &str, size: u64, align: u64, kind: Kind) -> TypeId {
        self.executable().made_types().make(|id| TypeInfo {
            id,
            name: name.into(),
            size,
            align: align.max(1),
            kind: kind.clone(),
        })
    }
}
