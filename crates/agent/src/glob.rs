//! Patterns of paths and command lines.

use std::fmt;

/// `*` is any run of characters, slashes too; `?` is one; everything else is itself. It covers the whole text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Glob(String);

impl Glob {
    /// Every text is a pattern.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As written.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether it is one text and no other.
    pub fn is_literal(&self) -> bool {
        !self.0.contains(['*', '?'])
    }

    /// Whether the whole of `text` is meant. Takes time by the product of both lengths at the worst.
    pub fn matches(&self, text: &str) -> bool {
        let (pattern, text): (Vec<char>, Vec<char>) =
            (self.0.chars().collect(), text.chars().collect());
        let (mut at, mut read) = (0, 0);
        // Where to go on when the run of the last star has to be one longer.
        let mut star = None;
        while read < text.len() {
            match pattern.get(at) {
                Some('*') => {
                    star = Some((at, read));
                    at += 1;
                }
                Some(&one) if one == '?' || one == text[read] => {
                    at += 1;
                    read += 1;
                }
                _ => match star {
                    Some((place, from)) => {
                        star = Some((place, from + 1));
                        at = place + 1;
                        read = from + 1;
                    }
                    None => return false,
                },
            }
        }
        pattern[at..].iter().all(|&one| one == '*')
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        let is = |pattern: &str, text: &str| Glob::new(pattern).matches(text);
        assert!(is("/srv/*/shop", "/srv/a/b/shop") && is("*", "") && is("**", "x"));
        assert!(is("a?c", "abc") && !is("a?c", "ac") && is("a*b*c", "axxbyybzzc"));
        assert!(!is("/srv/shop", "/srv/shop2") && !is("", "x") && is("", ""));
        assert!(is("*[x]", "a[x]") && is("*é?", "caféé"));
        // No pattern takes exponential time.
        assert!(!is(&"*a".repeat(40), &"a".repeat(39)));
    }
}
