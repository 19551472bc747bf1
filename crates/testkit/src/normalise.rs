//! Masks for what differs from run to run, so that a test can compare whole outputs.

use serde_json::Value;

/// What to replace before a comparison.
#[derive(Clone, Debug, Default)]
pub struct Mask {
    keys: Vec<String>,
    texts: Vec<(String, String)>,
}

impl Mask {
    /// Masks nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The fields of a capture that no two runs share: times, ids of the machine, costs.
    #[must_use]
    pub fn capture() -> Self {
        let keys = [
            "pid",
            "tid",
            "goid",
            "start_ns",
            "duration_ns",
            "ts_ns",
            "addr",
            "attach_ms",
            "detach_ms",
            "overhead_pct",
            "from_ns",
            "to_ns",
        ];
        keys.iter().fold(Self::new(), |mask, key| mask.key(key))
    }

    /// Masks the value of a JSON key, wherever it stands; its kind stays visible.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.keys.push(key.to_owned());
        self
    }

    /// Replaces a text (a path, say) by `<name>`.
    #[must_use]
    pub fn text(mut self, text: &str, name: &str) -> Self {
        self.texts.push((text.to_owned(), format!("<{name}>")));
        self
    }

    /// Applies the mask to a JSON value.
    #[must_use]
    pub fn json(&self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(key, value)| {
                        let masked =
                            if self.keys.contains(key) { kind_of(value) } else { self.json(value) };
                        (key.clone(), masked)
                    })
                    .collect(),
            ),
            Value::Array(items) => items.iter().map(|item| self.json(item)).collect(),
            Value::String(text) => Value::String(self.replaced(text)),
            other => other.clone(),
        }
    }

    /// Applies the mask to text: the replacements, then addresses (`0x…`), clock times
    /// (`hh:mm:ss.µs`), durations and goroutine ids.
    #[must_use]
    pub fn lines(&self, text: &str) -> String {
        let mut out = String::new();
        for line in self.replaced(text).lines() {
            out.push_str(&mask_tokens(line));
            out.push('\n');
        }
        out
    }

    fn replaced(&self, text: &str) -> String {
        self.texts.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }
}

fn kind_of(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Bool(_) => "<bool>".into(),
        Value::Number(_) => "<number>".into(),
        Value::String(_) => "<string>".into(),
        Value::Array(_) => "<array>".into(),
        Value::Object(_) => "<object>".into(),
    }
}

/// Masks the words of one line; runs of blanks become one, since columns move with widths.
fn mask_tokens(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let words: Vec<String> = line.split_whitespace().map(mask_word).collect();
    format!("{}{}", " ".repeat(indent), words.join(" "))
}

fn mask_word(word: &str) -> String {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(at) = word.find("0x") {
        let rest = &word[at + 2..];
        let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        if end > 3 {
            return format!("{}<addr>{}", &word[..at], &rest[end..]);
        }
    }
    if word.len() == 15 && word.bytes().enumerate().all(|(at, byte)| clock_byte(at, byte)) {
        return "<time>".to_owned();
    }
    if word.strip_prefix('g').is_some_and(digits) {
        return "<g>".to_owned();
    }
    for unit in ["ns", "us", "µs", "ms", "s"] {
        if let Some(number) = word.strip_suffix(unit)
            && number.split_once('.').map_or(digits(number), |(a, b)| digits(a) && digits(b))
        {
            return "<duration>".to_owned();
        }
    }
    word.to_owned()
}

/// Whether `byte` may stand at `at` in `21:06:01.001123`.
fn clock_byte(at: usize, byte: u8) -> bool {
    match at {
        2 | 5 => byte == b':',
        8 => byte == b'.',
        _ => byte.is_ascii_digit(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_text_lines() {
        let line = "21:06:01.101301 g18  100.161ms } = 3     main.go:21 at 0x4a5b6c";
        let masked = Mask::new().lines(line);
        assert_eq!(masked, "<time> <g> <duration> } = 3 main.go:21 at <addr>\n");
    }

    #[test]
    fn keeps_offsets_and_plain_words() {
        assert_eq!(Mask::new().lines("main.main+0x2f gopher 3"), "main.main+0x2f gopher 3\n");
    }

    #[test]
    fn masks_keys_and_keeps_kinds() {
        let value = serde_json::json!({"type":"call","pid":7,"args":[{"addr":null,"name":"a"}]});
        let masked = Mask::capture().json(&value);
        assert_eq!(
            masked,
            serde_json::json!({"type":"call","pid":"<number>","args":[{"addr":null,"name":"a"}]})
        );
    }
}
