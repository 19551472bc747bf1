//! Bytes of the target made safe for a terminal.

use std::fmt::Write;
use unicode_width::UnicodeWidthStr;

/// Whether a terminal would act on the character instead of showing it, or show the rest
/// of the line in another order.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// `text` with unsafe characters escaped as in Go source: it stays one line, and a terminal shows it as it is.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push_printable(&mut out, text);
    out
}

/// Appends `text` with unsafe characters escaped as in Go source.
pub(crate) fn push_printable(out: &mut String, text: &str) {
    for c in text.chars() {
        push_char(out, c);
    }
}

fn push_char(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        c if !is_unsafe(c) => out.push(c),
        c if c.is_ascii() => _ = write!(out, "\\x{:02x}", c as u32),
        c => _ = write!(out, "\\u{:04x}", c as u32),
    }
}

/// Appends `bytes` quoted as Go's `%q` does.
pub(crate) fn push_quoted(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if matches!(c, '"' | '\\') {
                out.push('\\');
            }
            push_char(out, c);
        }
        for byte in chunk.invalid() {
            _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
}

/// Columns `text` takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Whether the bytes are UTF-8, but for a character cut in half at the end.
pub(crate) fn is_nearly_utf8(bytes: &[u8]) -> bool {
    std::str::from_utf8(without_half_char(bytes)).is_ok()
}

/// Without a character cut in half at its end, if that is all that is wrong with it.
pub(crate) fn without_half_char(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_that_it_would_act_on() {
        let mut out = String::new();
        push_quoted(&mut out, b"a\"\\\n\x1b[31m\x7f\xff\xc3\xa4\xe2\x80\xae");
        assert_eq!(out, r#""a\"\\\n\x1b[31m\x7f\xffä\u202e""#);
    }
}
