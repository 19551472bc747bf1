//! Walks a rule's characters and words its errors.

use super::RuleError;

/// A place in a rule's characters.
pub(super) struct Cursor<'a> {
    chars: &'a [char],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(chars: &'a [char], at: usize) -> Self {
        Self { chars, at }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn skip_space(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    /// The next character, white space included.
    pub(super) fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    /// Takes `wanted`, after white space, if it is next.
    pub(super) fn take(&mut self, wanted: char) -> bool {
        self.skip_space();
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, wanted: char) -> Result<(), RuleError> {
        if self.take(wanted) { Ok(()) } else { Err(self.unexpected(&format!("'{wanted}'"))) }
    }

    /// The longest run, after white space, of characters that `inside` takes.
    pub(super) fn word(&mut self, inside: impl Fn(char) -> bool) -> String {
        self.skip_space();
        let word: String =
            self.chars[self.at..].iter().copied().take_while(|c| inside(*c)).collect();
        self.at += word.chars().count();
        word
    }

    /// An error at the next token.
    pub(super) fn unexpected(&mut self, expected: &str) -> RuleError {
        self.skip_space();
        let found = self.peek().map_or("the end".to_owned(), |c| format!("'{c}'"));
        error(self.at, expected, found)
    }
}

/// An error at the 0-based character `at`.
pub(super) fn error(at: usize, expected: &str, found: String) -> RuleError {
    RuleError::Syntax { column: at + 1, expected: expected.to_owned(), found }
}
