//! Patterns that name functions: globs over the whole symbol name, or `/regex/`.

use crate::package::{unescape, without_type_arguments};
use regex::Regex;
use std::fmt;
use thiserror::Error;

/// A text that is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatternError {
    /// Nothing but white space.
    #[error("column 1: empty pattern; name a function, as in 'main.*'")]
    Empty,
    /// A leading `/` without its partner.
    #[error("column {column}: regular expression without a closing '/'")]
    Unclosed {
        /// Where the `/` was expected, 1-based, in characters.
        column: usize,
    },
    /// The text between the slashes does not compile.
    #[error("column {column}: invalid regular expression: {message}")]
    Regex {
        /// Where, 1-based, in characters of the pattern, its `/` included.
        column: usize,
        /// What the expression's compiler says, one line.
        message: String,
    },
}

/// Which symbol names are meant.
///
/// A glob covers the whole name: `*` is any run of characters, dots and slashes included, `?`
/// is one character, and everything else, brackets and parentheses too, is itself. So is the
/// `*` of a pointer receiver, `(*` before a letter: `main.(*T).M` is that method alone
/// and never `main.(*OtherT).M`, which `main.(**T).M` reaches. A glob without `[` also matches instantiations of a generic function or of a method of a
/// generic type, by their name without type arguments: `main.Map` matches
/// `main.Map[go.shape.int]` and the `main.Map[...]` of stripped Go 1.19 binaries. Package paths
/// may be written as in the source: `gopkg.in/yaml.v3.*` matches `gopkg.in/yaml%2ev3.Marshal`.
///
/// `/regex/` is searched (unanchored) in the name as the binary has it.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    matcher: Matcher,
}

#[derive(Clone, Debug)]
enum Matcher {
    Glob(Vec<Token>),
    Regex(Regex),
}

/// One element of a glob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Run,
    One,
    Char(char),
}

impl Pattern {
    /// Parses a pattern; white space around it does not count. Commas are ordinary.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let trimmed = text.trim();
        let indent = text.chars().take_while(|c| c.is_whitespace()).count();
        if trimmed.is_empty() {
            return Err(PatternError::Empty);
        }
        let matcher = match trimmed.strip_prefix('/') {
            None => Matcher::Glob(tokens(trimmed)),
            Some(rest) => {
                let source = rest.strip_suffix('/').ok_or_else(|| PatternError::Unclosed {
                    column: indent + trimmed.chars().count() + 1,
                })?;
                Matcher::Regex(compile_regex(source, indent + 2)?)
            }
        };
        Ok(Self { text: trimmed.to_owned(), matcher })
    }

    /// Whether the symbol name is meant.
    pub fn matches(&self, name: &str) -> bool {
        match &self.matcher {
            Matcher::Glob(tokens) => self.glob_matches(tokens, name),
            Matcher::Regex(regex) => regex.is_match(name),
        }
    }

    fn glob_matches(&self, tokens: &[Token], name: &str) -> bool {
        if glob(tokens, name) {
            return true;
        }
        if name.contains('%') && !self.text.contains('%') {
            let plain = unescape(name);
            if !plain.contains('%') && self.glob_matches(tokens, &plain) {
                return true;
            }
        }
        name.contains('[')
            && !self.text.contains('[')
            && glob(tokens, &without_type_arguments(name))
    }

    /// The pattern as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The one name it stands for: a glob without wildcards.
    pub fn literal(&self) -> Option<&str> {
        let Matcher::Glob(tokens) = &self.matcher else { return None };
        tokens.iter().all(|token| matches!(token, Token::Char(_))).then_some(self.text.as_str())
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `column` is that of the first character of `source`.
fn compile_regex(source: &str, column: usize) -> Result<Regex, PatternError> {
    if source.is_empty() {
        return Err(PatternError::Regex { column, message: "it is empty".to_owned() });
    }
    Regex::new(source).map_err(|error| {
        let rendered = error.to_string();
        PatternError::Regex {
            column: column + error_offset(&rendered),
            message: rendered
                .lines()
                .last()
                .map(|line| line.trim_start_matches("error: "))
                .unwrap_or("unknown error")
                .to_owned(),
        }
    })
}

/// Characters before the fault. The regex crate tells the place only in its rendered message: the
/// expression indented by 4, and below it a line of `^`. 0 when it is not rendered so
/// (a compiled size over the limit).
fn error_offset(rendered: &str) -> usize {
    rendered
        .lines()
        .find(|line| line.contains('^') && line.trim_matches([' ', '^']).is_empty())
        .and_then(|line| line.find('^'))
        .map_or(0, |at| at.saturating_sub(4))
}

fn tokens(pattern: &str) -> Vec<Token> {
    let mut chars = pattern.chars().peekable();
    let mut before = None;
    let mut tokens = Vec::with_capacity(pattern.len());
    while let Some(c) = chars.next() {
        let receiver =
            before == Some('(') && chars.peek().is_some_and(|&c| c.is_alphabetic() || c == '_');
        tokens.push(match c {
            '*' if !receiver => Token::Run,
            '?' => Token::One,
            _ => Token::Char(c),
        });
        before = Some(c);
    }
    tokens
}

/// Whole-text glob match; a run crosses everything. Time is at most the product of the lengths.
fn glob(pattern: &[Token], text: &str) -> bool {
    let mut pattern_rest = pattern;
    let mut text_rest = text.chars();
    // Where to go on when the match after the last run fails: the pattern after that
    // run, and the text it has not swallowed yet.
    let mut retry = None;
    loop {
        if let [Token::Run, after @ ..] = pattern_rest {
            retry = Some((after, text_rest.clone()));
            pattern_rest = after;
            continue;
        }
        let mut text_next = text_rest.clone();
        match (pattern_rest, text_next.next()) {
            ([], None) => return true,
            ([token, after @ ..], Some(have)) if token.takes(have) => {
                pattern_rest = after;
                text_rest = text_next;
            }
            _ => {
                let Some((after_run, unswallowed)) = &mut retry else { return false };
                if unswallowed.next().is_none() {
                    return false;
                }
                pattern_rest = after_run;
                text_rest = unswallowed.clone();
            }
        }
    }
}

impl Token {
    fn takes(self, c: char) -> bool {
        match self {
            Self::Run | Self::One => true,
            Self::Char(want) => want == c,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(name)
    }

    #[test]
    fn a_glob_covers_the_whole_name_and_is_literal_otherwise() {
        for (pattern, name, expected) in [
            ("main.*", "main.add", true),
            ("main.*", "main.(*T).M", true),
            ("main.*", "main.Map[go.shape.struct { A int }].func1", true),
            ("main.*", "domain.add", false),
            ("main.?dd", "main.add", true),
            ("main.?dd", "main.dd", false),
            ("main.?", "main.é", true),
            ("main.add", "main.add1", false),
            ("main.(*T).M", "main.(*T).M", true),
            ("main.(*T).M", "main.(*GreatT).M", false),
            ("main.(**T).M", "main.(*GreatT).M", true),
            ("main.(*T*).M", "main.(*Tree).M", true),
            ("main.(*).M", "main.(*Tree).M", true),
            ("*.ServeHTTP", "net/http.(*ServeMux).ServeHTTP", true),
            ("net/*.Serve*", "net/http.(*Server).Serve", true),
            ("a,b", "a,b", true),
            ("a,b", "a", false),
            ("main.Map[go.shape.int,*]", "main.Map[go.shape.int,go.shape.string]", true),
            ("main.Map[go.shape.int]", "main.Map[go.shape.string]", false),
            ("main.add-fm", "main.addxfm", false),
            ("main.a.d", "main.add", false),
            (" main.add\t", "main.add", true),
            ("**", "x", true),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbxbx", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} on {name}");
        }
    }

    #[test]
    fn a_glob_without_brackets_means_all_instantiations() {
        assert!(matches("main.Map", "main.Map[go.shape.int,go.shape.string]"));
        assert!(matches("main.Map", "main.Map[...]"));
        assert!(matches("main.(*List).Push", "main.(*List[go.shape.[]uint8]).Push"));
        assert!(matches("main.Map.func1", "main.Map[...].func1"));
        assert!(!matches("main.Map", "main.Map[...].func1"));
        assert!(!matches("main.Map[", "main.Map[...]"));
    }

    #[test]
    fn dots_in_paths_may_be_written_plainly() {
        assert!(matches("gopkg.in/yaml.v3.Marshal", "gopkg.in/yaml%2ev3.Marshal"));
        assert!(matches("gopkg.in/yaml%2ev3.M*", "gopkg.in/yaml%2ev3.Marshal"));
        assert!(matches("gopkg.in/a.v1.Map", "gopkg.in/a%2ev1.Map[...]"));
    }

    #[test]
    fn a_regex_is_searched_anywhere() {
        assert!(matches("/add/", "main.add1"));
        assert!(matches(r"/^main\.(add|sub)$/", "main.sub"));
        assert!(!matches(r"/^add/", "main.add"));
        assert!(matches(r"/a{1,2}/", "baab"));
        assert!(matches("/net/http/", "net/http.Get"));
    }

    #[test]
    fn errors_say_where() {
        let error = |text: &str| Pattern::parse(text).unwrap_err().to_string();
        assert_eq!(error(" "), "column 1: empty pattern; name a function, as in 'main.*'");
        assert_eq!(error("/abc"), "column 5: regular expression without a closing '/'");
        assert_eq!(error("/"), "column 2: regular expression without a closing '/'");
        assert_eq!(error("//"), "column 2: invalid regular expression: it is empty");
        assert_eq!(error("/ab(c/"), "column 4: invalid regular expression: unclosed group");
        assert_eq!(
            error(" /é*é**[z-a]/"),
            "column 9: invalid regular expression: invalid character class range, the start must \
             be <= the end"
        );
        assert!(error(r"/\w{1000}{1000}/").starts_with("column 2: invalid regular expression: "));
    }

    #[test]
    fn a_name_without_wildcards_is_literal() {
        let literal = |text: &str| Pattern::parse(text).unwrap().literal().map(str::to_owned);
        assert_eq!(literal("main.add"), Some("main.add".to_owned()));
        assert_eq!(literal("main.(*T).M"), Some("main.(*T).M".to_owned()));
        assert_eq!(literal("main.*"), None);
        assert_eq!(literal("/main/"), None);
    }

    proptest! {
        /// The glob agrees with the same pattern written as a regular expression.
        #[test]
        fn globs_agree_with_regexes(pattern in "[ab.é*?]{0,12}", text in "[ab.é]{0,16}") {
            let mut source = String::from("(?s)^");
            for c in pattern.chars() {
                match c {
                    '*' => source.push_str(".*"),
                    '?' => source.push('.'),
                    _ => source.push_str(&regex::escape(&c.to_string())),
                }
            }
            source.push('$');
            prop_assert_eq!(glob(&tokens(&pattern), &text), Regex::new(&source).unwrap().is_match(&text));
        }
    }
}
