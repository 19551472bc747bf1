//! The URL that a client asks, as net/url writes it (`url.go`, `(*URL).String`), without a user or a fragment.

use crate::catalog::Field;
use crate::fields::Values;
use crate::mask;

/// Stands where more was not captured.
const MORE: char = '…';

/// The URL, or why not all of it is known. It has a query only when that is read.
pub(crate) fn full<'a>(values: &Values<'a>) -> Result<String, &'a str> {
    let scheme = values.text(Field::Scheme)?;
    let opaque = values.text(Field::Opaque).ok().filter(|opaque| !opaque.is_empty());
    let mut url = match opaque {
        Some(opaque) => format!("{scheme}:{}", without_secrets(&opaque)),
        None => {
            let host = values.text(Field::Host)?;
            let mut path = captured_path(values)?;
            if !host.is_empty() && !path.is_empty() && !path.starts_with('/') {
                path.insert(0, '/');
            }
            format!("{scheme}://{host}{path}")
        }
    };
    if let Ok(query) = values.text(Field::Query)
        && !query.is_empty()
    {
        url.push('?');
        url.push_str(&mask::query(&query));
    }
    Ok(url)
}

/// What stands in a URL instead of host and path, without the user and the query that it may have inside.
fn without_secrets(opaque: &str) -> String {
    let shown = opaque.split(['?', '#']).next().unwrap_or_default();
    let Some(rest) = shown.strip_prefix("//") else { return shown.to_owned() };
    let is_whole = !rest.ends_with(MORE);
    let Some(host_len) = rest.find('/').or(is_whole.then_some(rest.len())) else {
        return format!("//{MORE}");
    };
    let user_len = rest[..host_len].rfind('@').map_or(0, |at| at + 1);
    format!("//{}", &rest[user_len..])
}

fn captured_path<'a>(values: &Values<'a>) -> Result<String, &'a str> {
    let (path, len) = values.bytes(Field::Path)?;
    let raw = values.bytes(Field::RawPath).unwrap_or_default();
    Ok(escaped_path((path, len), raw))
}

/// The path as it goes out: in the form that the program gave it where that is one of this path, else in the one that
/// every path has. Of both what was captured, and how long they are.
fn escaped_path((path, len): (&[u8], u64), (raw, raw_len): (&[u8], u64)) -> String {
    let is_cut = |captured: &[u8], len| len > captured.len() as u64;
    let (mut shown, is_cut) = match unescaped(raw, is_cut(raw, raw_len)) {
        Some(bytes) if !raw.is_empty() && is_of(&bytes, is_cut(raw, raw_len), path, len) => {
            (String::from_utf8_lossy(raw).into_owned(), is_cut(raw, raw_len))
        }
        _ => (escaped(path), is_cut(path, len)),
    };
    if is_cut {
        shown.push(MORE);
    }
    shown
}

/// Whether bytes, of which there may be more, are those of a path, as far as both are known.
fn is_of(bytes: &[u8], may_be_more: bool, path: &[u8], len: u64) -> bool {
    let common = bytes.len().min(path.len());
    let is_as_long = may_be_more || bytes.len() as u64 == len;
    is_as_long && bytes[..common] == path[..common]
}

/// Bytes of an escaped path, which may be cut through an escape; `None` when it is none.
fn unescaped(raw: &[u8], is_cut: bool) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [first, after @ ..] = rest {
        let (byte, left) = match (first, after) {
            (b'%', [high, low, left @ ..]) => {
                let digit = |byte: &u8| (*byte as char).to_digit(16);
                (u8::try_from(digit(high)? << 4 | digit(low)?).ok()?, left)
            }
            (b'%', _) if is_cut => break,
            (byte, _) if is_plain(*byte) || b"!'()*[]".contains(byte) => (*byte, after),
            _ => return None,
        };
        bytes.push(byte);
        rest = left;
    }
    Some(bytes)
}

/// A path as net/url escapes it (`shouldEscape`).
fn escaped(path: &[u8]) -> String {
    if path == b"*" {
        return "*".to_owned();
    }
    let mut url = String::with_capacity(path.len());
    for byte in path {
        if is_plain(*byte) {
            url.push(*byte as char);
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(path: &[u8], raw: &[u8]) -> String {
        escaped_path((path, path.len() as u64), (raw, raw.len() as u64))
    }

    #[test]
    fn paths_are_escaped_where_a_url_needs_it() {
        assert_eq!(told("/a b/%?#/ä/c:d@e!".as_bytes(), b""), "/a%20b/%25%3F%23/%C3%A4/c:d@e%21");
        assert_eq!(told(b"/\xff\xef\xbf\xbd", b""), "/%FF%EF%BF%BD");
        assert_eq!(told(b"*", b""), "*");
        assert_eq!(told(b"", b""), "");
    }

    #[test]
    fn the_programs_own_form_counts_where_it_is_of_that_path() {
        assert_eq!(told(b"/a/b!", b"/a%2fb!"), "/a%2fb!");
        // Of another path, with what has to be escaped, and no escape at all.
        assert_eq!(told(b"/a/c", b"/a%2fb"), "/a/c");
        assert_eq!(told(b"/a/b c", b"/a%2fb"), "/a/b%20c");
        assert_eq!(told(b"/a b", b"/a b"), "/a%20b");
        assert_eq!(told(b"/a%zz", b"/a%zz"), "/a%25zz");
        assert_eq!(told(b"/a", b"/a%2"), "/a");
    }

    #[test]
    fn what_was_cut_ends_with_an_ellipsis() {
        assert_eq!(escaped_path((b"/ab\xc3", 9), (b"", 0)), "/ab%C3…");
        assert_eq!(escaped_path((b"/a/b", 9), (b"/a%2Fb", 11)), "/a%2Fb…");
        assert_eq!(escaped_path((b"/a/b", 9), (b"/a%2Fb%", 11)), "/a%2Fb%…");
        assert_eq!(escaped_path((b"/a/b", 9), (b"/a%2Fx", 11)), "/a/b…");
    }

    #[test]
    fn what_stands_instead_of_a_path_keeps_no_secret() {
        assert_eq!(without_secrets("//user:pass@host/a%2Fb@c?token=1#x"), "//host/a%2Fb@c");
        assert_eq!(without_secrets("//host"), "//host");
        // The end of a user's password may stand behind what was captured.
        assert_eq!(without_secrets("//user:pass…"), "//…");
        assert_eq!(without_secrets("//host/a…"), "//host/a…");
        assert_eq!(without_secrets("a:b@c"), "a:b@c");
    }
}
