//! The parser of operands and conditions.

use super::lexer::{Lexer, Token, error};
use super::{
    Comparison, Condition, ExpressionError, Literal, MAX_LENGTH, MAX_NESTING, Operand, Side, Start,
    Step, StepKind,
};

const VALUE: &str = "a name, '$goid', '$duration', 'len(', 'cap(', '*', '&' or '('";
const SIDE: &str = "a value or a constant";

/// Parses all of `text`.
pub(super) fn condition(text: &str, of_duration: bool) -> Result<Condition, ExpressionError> {
    let chars: Vec<char> = text.chars().collect();
    let mut parser = Parser::new(&chars, 0)?;
    parser.of_duration = of_duration;
    let condition = parser.any(0)?;
    parser.end("'&&', '||', a comparison or the end")?;
    Ok(condition)
}

/// Parses all of `text`.
pub(super) fn operand(text: &str) -> Result<Operand, ExpressionError> {
    let chars: Vec<char> = text.chars().collect();
    let mut parser = Parser::new(&chars, 0)?;
    let operand = parser.operand(0)?;
    parser.end("'.', '[' or the end")?;
    Ok(operand)
}

/// A place in the characters.
pub(super) struct Parser<'a> {
    lexer: Lexer<'a>,
    /// Never on white space.
    at: usize,
    /// Whether a comparison without a left side is one of the duration.
    of_duration: bool,
}

/// What stands on one side of a comparison, or in parentheses.
enum Unit {
    Side(Side),
    Condition(Condition),
}

impl<'a> Parser<'a> {
    pub(super) fn new(chars: &'a [char], at: usize) -> Result<Self, ExpressionError> {
        if chars.len() > MAX_LENGTH {
            let expected = format!("at most {MAX_LENGTH} characters");
            return Err(error(MAX_LENGTH, &expected, "more".to_owned()));
        }
        let lexer = Lexer::new(chars);
        Ok(Self { lexer, at: lexer.skip_space(at), of_duration: false })
    }

    /// Where it is, 0-based, in characters.
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// Goes on from elsewhere.
    pub(super) fn go_to(&mut self, at: usize) {
        self.at = self.lexer.skip_space(at);
    }

    fn column(&self) -> usize {
        self.at + 1
    }

    fn peek(&self) -> Result<Token, ExpressionError> {
        Ok(self.lexer.token(self.at)?.0)
    }

    fn next(&mut self) -> Result<Token, ExpressionError> {
        let (token, behind) = self.lexer.token(self.at)?;
        self.at = self.lexer.skip_space(behind);
        Ok(token)
    }

    /// Takes a sign if it is next.
    pub(super) fn take(&mut self, sign: &str) -> Result<bool, ExpressionError> {
        let found = matches!(self.peek()?, Token::Sign(next) if next == sign);
        if found {
            self.next()?;
        }
        Ok(found)
    }

    fn expect(&mut self, sign: &str, expected: &str) -> Result<(), ExpressionError> {
        if self.take(sign)? { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    pub(super) fn end(&mut self, expected: &str) -> Result<(), ExpressionError> {
        match self.peek()? {
            Token::End => Ok(()),
            _ => Err(self.unexpected(expected)),
        }
    }

    pub(super) fn unexpected(&self, expected: &str) -> ExpressionError {
        self.lexer.unexpected(self.at, expected)
    }

    fn nested(&self, depth: usize) -> Result<usize, ExpressionError> {
        if depth >= MAX_NESTING {
            return Err(self.unexpected(&format!("at most {MAX_NESTING} levels of nesting")));
        }
        Ok(depth + 1)
    }

    /// `a, b, c)`, behind the opening parenthesis.
    pub(super) fn list(&mut self) -> Result<Vec<Operand>, ExpressionError> {
        let mut all = Vec::new();
        if self.take(")")? {
            return Ok(all);
        }
        loop {
            all.push(self.operand(0)?);
            if self.take(")")? {
                return Ok(all);
            }
            self.expect(",", "',', ')', '.' or '['")?;
        }
    }

    fn any(&mut self, depth: usize) -> Result<Condition, ExpressionError> {
        let mut all = vec![self.all(depth)?];
        while self.take("||")? {
            all.push(self.all(depth)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Condition::Any(all) })
    }

    fn all(&mut self, depth: usize) -> Result<Condition, ExpressionError> {
        let mut all = vec![self.not(depth)?];
        while self.take("&&")? {
            all.push(self.not(depth)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Condition::All(all) })
    }

    fn not(&mut self, depth: usize) -> Result<Condition, ExpressionError> {
        if self.take("!")? {
            let depth = self.nested(depth)?;
            return Ok(Condition::Not(Box::new(self.not(depth)?)));
        }
        self.compare(depth)
    }

    fn comparison(&mut self) -> Result<Option<Comparison>, ExpressionError> {
        let Token::Sign(sign) = self.peek()? else { return Ok(None) };
        let comparison = Comparison::by_sign(sign);
        if comparison.is_some() {
            self.next()?;
        }
        Ok(comparison)
    }

    fn compare(&mut self, depth: usize) -> Result<Condition, ExpressionError> {
        let column = self.column();
        let starts =
            matches!(self.peek()?, Token::Sign(sign) if Comparison::by_sign(sign).is_some());
        let left = if self.of_duration && starts {
            let start = Start::Duration;
            Unit::Side(Side::Operand(Operand { column, start, steps: Vec::new() }))
        } else {
            self.unit(depth)?
        };
        let left = match left {
            Unit::Side(side) => side,
            Unit::Condition(condition) => return Ok(condition),
        };
        let column = self.column();
        let Some(comparison) = self.comparison()? else { return Ok(Condition::Is(left)) };
        let at = self.at;
        match self.unit(depth)? {
            Unit::Side(right) => Ok(Condition::Compare { column, comparison, left, right }),
            Unit::Condition(_) => Err(self.lexer.unexpected(at, SIDE)),
        }
    }

    fn unit(&mut self, depth: usize) -> Result<Unit, ExpressionError> {
        if let Some(literal) = self.literal()? {
            return Ok(Unit::Side(literal));
        }
        if !matches!(self.peek()?, Token::Sign("(")) {
            return Ok(Unit::Side(Side::Operand(self.operand(depth)?)));
        }
        let depth = self.nested(depth)?;
        self.next()?;
        let inside = self.any(depth)?;
        self.expect(")", "')', '&&' or '||'")?;
        match inside {
            // `(*p).f` begins as a condition in parentheses would.
            Condition::Is(Side::Operand(mut operand)) => {
                self.postfix(&mut operand)?;
                Ok(Unit::Side(Side::Operand(operand)))
            }
            Condition::Is(literal) => Ok(Unit::Side(literal)),
            condition => Ok(Unit::Condition(condition)),
        }
    }

    fn literal(&mut self) -> Result<Option<Side>, ExpressionError> {
        let column = self.column();
        let literal = match self.peek()? {
            Token::Int(n) => Literal::Int(n),
            Token::Float(n) => Literal::Float(n),
            Token::Duration(ns) => Literal::Duration(ns),
            Token::Text(bytes) => Literal::Text(bytes),
            Token::Name(name) => match &*name {
                "true" => Literal::Bool(true),
                "false" => Literal::Bool(false),
                "nil" => Literal::Nil,
                _ => return Ok(None),
            },
            Token::Sign("-") => {
                self.next()?;
                return self.negative(column).map(Some);
            }
            _ => return Ok(None),
        };
        self.next()?;
        Ok(Some(Side::Literal { column, literal }))
    }

    fn negative(&mut self, column: usize) -> Result<Side, ExpressionError> {
        let at = self.at;
        let literal = match self.next()? {
            Token::Int(n) if n <= -i128::from(i64::MIN) => Literal::Int(-n),
            Token::Float(n) => Literal::Float(-n),
            Token::Duration(ns) => Literal::Duration(-ns),
            _ => return Err(self.lexer.unexpected(at, "a number of at most 64 bits after '-'")),
        };
        Ok(Side::Literal { column, literal })
    }

    /// Prefixes, a start, and what follows it.
    pub(super) fn operand(&mut self, depth: usize) -> Result<Operand, ExpressionError> {
        let mut prefixes = Vec::new();
        loop {
            let column = self.column();
            let kind = match self.peek()? {
                Token::Sign("*") => StepKind::Deref,
                Token::Sign("&") => StepKind::Address,
                _ => break,
            };
            self.nested(depth + prefixes.len())?;
            self.next()?;
            prefixes.push(Step { column, kind });
        }
        let mut operand = self.primary(depth + prefixes.len())?;
        self.postfix(&mut operand)?;
        operand.column = prefixes.first().map_or(operand.column, |step| step.column);
        operand.steps.extend(prefixes.into_iter().rev());
        Ok(operand)
    }

    fn primary(&mut self, depth: usize) -> Result<Operand, ExpressionError> {
        let (column, at) = (self.column(), self.at);
        let start = match self.next()? {
            Token::Special(name) => match &*name {
                "goid" => Start::Goid,
                "duration" => Start::Duration,
                _ => return Err(error(at, "'$goid' or '$duration'", format!("'${name}'"))),
            },
            Token::Sign("(") => {
                let depth = self.nested(depth)?;
                let inside = self.operand(depth)?;
                self.expect(")", "')', '.' or '['")?;
                return Ok(inside);
            }
            Token::Name(name) => {
                let kind = match &*name {
                    "len" => Some(StepKind::Len),
                    "cap" => Some(StepKind::Cap),
                    _ => None,
                };
                if let Some(kind) = kind
                    && self.take("(")?
                {
                    let depth = self.nested(depth)?;
                    let mut inside = self.operand(depth)?;
                    self.expect(")", "')', '.' or '['")?;
                    inside.steps.push(Step { column, kind });
                    inside.column = column;
                    return Ok(inside);
                }
                Start::Name(name)
            }
            _ => return Err(self.lexer.unexpected(at, VALUE)),
        };
        Ok(Operand { column, start, steps: Vec::new() })
    }

    fn postfix(&mut self, operand: &mut Operand) -> Result<(), ExpressionError> {
        loop {
            if self.take("[")? {
                let column = self.column();
                let kind = match self.peek()? {
                    Token::Int(n) if n <= i64::MAX.into() => StepKind::Index(n as u64),
                    Token::Text(bytes) => match String::from_utf8(bytes) {
                        Ok(key) => StepKind::Key(key),
                        Err(_) => return Err(self.unexpected("a key in UTF-8")),
                    },
                    _ => return Err(self.unexpected("the number of an element, or a key")),
                };
                self.next()?;
                self.expect("]", "']' behind it")?;
                operand.steps.push(Step { column, kind });
            } else if self.take(".")? {
                let column = self.column();
                let kind = if self.take("(")? {
                    let (name, behind) = self.lexer.type_name(self.at)?;
                    self.at = self.lexer.skip_space(behind);
                    StepKind::Assert(name)
                } else {
                    let at = self.at;
                    match self.next()? {
                        Token::Name(name) if !name.contains('/') => StepKind::Field(name),
                        _ => {
                            let expected = "a field, or '(' and a type";
                            return Err(self.lexer.unexpected(at, expected));
                        }
                    }
                };
                operand.steps.push(Step { column, kind });
            } else {
                return Ok(());
            }
        }
    }
}
