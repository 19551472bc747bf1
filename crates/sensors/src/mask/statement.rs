//! SQL without its literals.

/// A statement, each literal replaced by `?` and comments left out.
///
/// Dialects read some texts in different ways: a double-quoted one is a name here where it stands beside a dot or
/// behind a word that a table's name follows, else a literal; a quote behind a backslash may end a literal or belong
/// to it, so that nothing behind it is shown.
pub(crate) fn statement(text: &str) -> String {
    let mut masked = Masked { out: String::with_capacity(text.len()), rest: text };
    while masked.step() {}
    let kept = masked.out.trim_end().len();
    masked.out.truncate(kept);
    masked.out
}

/// What stands in place of a literal.
const LITERAL: char = '?';

/// What is behind the end of what is shown, and of what was captured.
const MORE: char = '…';

/// Words that the name of a table stands behind.
const NAMING: [&str; 8] = ["FROM", "INTO", "UPDATE", "JOIN", "TABLE", "ONLY", "EXISTS", "ON"];

struct Masked<'a> {
    out: String,
    rest: &'a str,
}

impl<'a> Masked<'a> {
    /// Takes so many bytes.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    /// Goes behind the next `end`, or to the end of all.
    fn skip_behind(&mut self, end: &str) -> bool {
        match self.rest.find(end) {
            Some(at) => {
                self.take(at + end.len());
                true
            }
            None => {
                self.rest = "";
                false
            }
        }
    }

    /// Takes one piece; `false` when there is none.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        match first {
            '-' if self.rest.starts_with("--") => self.comment("\n"),
            '#' => self.line_or_operator(),
            '/' if self.rest.starts_with("/*") => self.comment("*/"),
            '\'' => self.literal('\''),
            '"' => self.double_quoted(),
            '`' => self.name('`'),
            '[' => self.name(']'),
            '$' => self.dollar(),
            '?' => self.numbered(),
            '0'..='9' => self.number(),
            '.' if self.rest[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number(),
            c if is_word(c) => self.word(),
            c if c.is_whitespace() => self.space(c.len_utf8()),
            c => {
                let piece = self.take(c.len_utf8());
                self.out.push_str(piece);
            }
        }
        true
    }

    /// White space is one blank.
    fn space(&mut self, bytes: usize) {
        self.take(bytes);
        if !self.out.is_empty() && !self.out.ends_with(' ') {
            self.out.push(' ');
        }
    }

    fn comment(&mut self, end: &str) {
        self.take(2);
        self.skip_behind(end);
        self.space(0);
    }

    /// A comment of MySQL's, or one of PostgreSQL's operators (`#>`, `#-`), which may stand before a literal only.
    fn line_or_operator(&mut self) {
        let is_operator = self.rest[1..].starts_with(['>', '-', '#', '=']);
        if is_operator {
            let piece = self.take(1);
            self.out.push_str(piece);
        } else {
            self.skip_behind("\n");
            self.space(0);
        }
    }

    /// A literal between quotes, of which two in a row stand for one.
    fn literal(&mut self, quote: char) {
        self.out.push(LITERAL);
        self.take(1);
        loop {
            let Some(at) = self.rest.find(quote) else { return self.cut() };
            let inside = self.take(at + 1);
            if inside[..at].ends_with('\\') {
                return self.cut();
            }
            if !self.rest.starts_with(quote) {
                return;
            }
            self.take(1);
        }
    }

    /// Shows nothing more.
    fn cut(&mut self) {
        self.rest = "";
        self.out.push(MORE);
    }

    fn double_quoted(&mut self) {
        let behind = self.rest[1..].find('"').map(|at| &self.rest[at + 2..]);
        let last_word = self.out.trim_end().rsplit(|c: char| !is_word(c)).next().unwrap_or("");
        let inside = self.rest[1..].split('"').next().unwrap_or("");
        let is_named = NAMING.iter().any(|word| last_word.eq_ignore_ascii_case(word))
            && inside.chars().all(is_word);
        let is_beside_dot =
            self.out.ends_with('.') || behind.is_some_and(|behind| behind.starts_with('.'));
        if is_named || is_beside_dot { self.name('"') } else { self.literal('"') }
    }

    /// A name between quotes.
    fn name(&mut self, end: char) {
        // Elements of PostgreSQL's arrays are in such brackets too, and may be literals.
        let is_name = |inside: &str| {
            !inside.starts_with(|c: char| c.is_ascii_digit())
                && inside.chars().all(|c| is_word(c) || c == ' ')
        };
        match self.rest[1..].find(end) {
            Some(at) if end != ']' || is_name(&self.rest[1..=at]) => {
                let piece = self.take(at + 2);
                self.out.push_str(piece);
            }
            None if end != ']' => {
                self.out.push(LITERAL);
                self.cut();
            }
            _ => {
                let piece = self.take(1);
                self.out.push_str(piece);
            }
        }
    }

    /// `$1` is a parameter; `$tag$ … $tag$` a literal.
    fn dollar(&mut self) {
        let tag = self.rest[1..].find(|c: char| !is_word(c)).map(|at| at + 1);
        let is_quote = |end: &usize| {
            self.rest[*end..].starts_with('$')
                && !self.rest[1..].starts_with(|c: char| c.is_ascii_digit())
        };
        match tag.filter(is_quote) {
            Some(end) => {
                let tag = self.take(end + 1);
                self.out.push(LITERAL);
                if !self.skip_behind(tag) {
                    self.cut();
                }
            }
            None => {
                let parameter = self.take(tag.unwrap_or(self.rest.len()));
                self.out.push_str(parameter);
            }
        }
    }

    /// A parameter, as SQLite numbers them.
    fn numbered(&mut self) {
        let end = self.rest[1..].find(|c: char| !c.is_ascii_digit()).map(|at| at + 1);
        let parameter = self.take(end.unwrap_or(self.rest.len()));
        self.out.push_str(parameter);
    }

    fn number(&mut self) {
        let mut before = ' ';
        let end = self.rest.find(|c: char| {
            let is_sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E');
            before = c;
            !(is_word(c) || c == '.' || is_sign)
        });
        self.take(end.unwrap_or(self.rest.len()));
        self.out.push(LITERAL);
    }

    /// A word, or a parameter's name; with a quote behind it (`E'…'`, `X'…'`, `N'…'`) it belongs to a literal.
    fn word(&mut self) {
        let end = self.rest.find(|c: char| !is_word(c) && c != '$').unwrap_or(self.rest.len());
        let piece = self.take(end);
        self.out.push_str(piece);
    }
}

/// What words are made of.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::statement;

    #[test]
    fn literals_are_hidden_and_the_rest_is_not() {
        let cases = [
            ("", ""),
            ("SELECT 1", "SELECT ?"),
            (
                "select *\n  from t2 where a_1=-1.5e-3 and b<>0x1F",
                "select * from t2 where a_1=-? and b<>?",
            ),
            ("a = 'it''s', b = ''", "a = ?, b = ?"),
            ("a = E'x' or a = N'y'", "a = E? or a = N?"),
            (
                "a = $1 and b = :name and c = @p1 and d = ?2 and e = ?",
                "a = $1 and b = :name and c = @p1 and d = ?2 and e = ?",
            ),
            ("a = $$it's$$, b = $x$a $$ b$x$ + 1", "a = ?, b = ? + ?"),
            ("-- all\nselect /* of 'them' */ 1 -- and 'more", "select ?"),
            ("select a # 'b\nfrom t", "select a from t"),
            ("select a #>'{b}', a->>'c'", "select a #>?, a->>?"),
            (
                "select a[1], array['x', 2], [order id] from [t]",
                "select a[?], array[?, ?], [order id] from [t]",
            ),
            ("select `it's` from `t`.`u`", "select `it's` from `t`.`u`"),
            (
                "select \"u\".\"id\" from \"u\" where \"n\" = \"x\"",
                "select \"u\".\"id\" from \"u\" where ? = ?",
            ),
            (
                "insert into t values ('ä', .5, NULL, true)",
                "insert into t values (?, ?, NULL, true)",
            ),
            ("größe = 5", "größe = ?"),
        ];
        for (given, expected) in cases {
            assert_eq!(statement(given), expected, "{given}");
        }
    }

    /// What was captured may end anywhere, and a backslash is read in two ways.
    #[test]
    fn in_doubt_nothing_is_shown() {
        let cases = [
            ("a = 'sec…", "a = ?…"),
            ("a = 'it\\'s secret' and b = 'c'", "a = ?…"),
            ("a = \"sec…", "a = ?…"),
            ("a = $$sec…", "a = ?…"),
            ("a = `sec…", "a = ?…"),
            ("a = $", "a = $"),
            ("a /* sec…", "a"),
            ("from \"a secret\"", "from ?"),
            ("where a = 12…", "where a = ?…"),
        ];
        for (given, expected) in cases {
            assert_eq!(statement(given), expected, "{given}");
        }
    }

    #[test]
    fn every_beginning_of_a_statement_is_read() {
        let all = "select 'a''b\\', \"c\".d, $x$e$x$, [1], `f`, 0x1.5e-3 -- g\n/* h */ # i\n ?1 :ä . .5 $2 \\";
        for (end, _) in all.char_indices() {
            statement(&all[..end]);
            statement(&all[end..]);
        }
    }
}
