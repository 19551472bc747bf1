//! `--rules FILE`: a rule or expression a line.

use super::wanted;
use crate::failure::usage;
use anyhow::Context as _;
use probe::selection::Wanted;
use std::path::Path;

/// A larger file is not one of rules.
const MAX_BYTES: u64 = 16 << 20;

/// Reads the file. Errors name line and column.
pub fn read(path: &Path) -> anyhow::Result<Vec<Wanted>> {
    let context = || format!("failed to read the rules in {}", path.display());
    let size = std::fs::metadata(path).with_context(context)?.len();
    if size > MAX_BYTES {
        return Err(usage(format!("{} is no file of rules: {size} bytes", path.display())));
    }
    let text = std::fs::read(path).with_context(context)?;
    let text = String::from_utf8(text)
        .map_err(|_| usage(format!("{} is no file of rules: not UTF-8", path.display())))?;
    parse(&text, &path.display().to_string())
}

fn parse(text: &str, path: &str) -> anyhow::Result<Vec<Wanted>> {
    let mut all = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let rule = without_comment(line);
        if rule.trim().is_empty() {
            continue;
        }
        // Columns count from the beginning of the line.
        let parsed = wanted(rule.trim_end()).map_err(|error| {
            let place = match error.column() {
                Some(column) => format!("{path}:{}:{column}", index + 1),
                None => format!("{path}:{}", index + 1),
            };
            usage(format!("{place}: malformed rule `{}`: {error}", rule.trim()))
        })?;
        all.push(parsed);
    }
    Ok(all)
}

/// What stands before a `#` at the beginning of a line or behind white space. In brackets, where
/// type arguments may have struct tags, it is no comment.
fn without_comment(line: &str) -> &str {
    let mut brackets = 0usize;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match c {
            '#' if brackets == 0 && before.is_whitespace() => return &line[..at],
            '[' => brackets += 1,
            ']' => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        before = c;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_rules_and_comments_are_not() {
        let text = "# all of it\n\nmain.f(a) # first\n  main.g\r\n\tmain.h(x=%ax:s64)\nmain.#x\n\
             main.F[struct { A int \" #\" }]\n";
        let parsed = parse(text, "rules").unwrap();
        let texts: Vec<&str> = parsed.iter().map(|wanted| wanted.text.trim()).collect();
        let expected = [
            "main.f(a)",
            "main.g",
            "main.h(x=%ax:s64)",
            "main.#x",
            "main.F[struct { A int \" #\" }]",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn errors_name_line_and_column() {
        let error = |text| parse(text, "r.txt").unwrap_err().to_string();
        assert_eq!(
            error("main.f\n  main.g(a,)\n"),
            "r.txt:2:12: malformed rule `main.g(a,)`: column 12: expected a name, '$goid', \
             '$duration', 'len(', 'cap(', '*', '&' or '(', found ')'"
        );
        assert_eq!(
            error("(a)"),
            "r.txt:1:1: malformed rule `(a)`: column 1: empty pattern; name a function, as in 'main.*'"
        );
    }
}
