//! Headers that are shown when somebody asks for them.

use crate::catalog::Sensor;
use crate::fields::Values;
use crate::http::Attributes;
use crate::mask;
use crate::span::Attribute;
use std::fmt;
use std::str::FromStr;

/// Bytes of a name that maps are looked into for (`probe::expression`).
const LEN: std::ops::RangeInclusive<usize> = 8..=15;

/// Where sensors of HTTP have their request's headers.
const HEADERS: &str = "req.Header";

/// Name of a header of requests, as net/http writes it: `X-Request-Id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderName(String);

/// Why a name is none that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderNameError {
    /// Other characters than such names have (RFC 9110, `token`).
    #[error("a header's name has letters, digits and `-`, `_` or `.`")]
    Characters,
    /// Too short or too long.
    #[error("only headers with names of 8 to 15 bytes can be read, as in `X-Request-Id`")]
    Length,
}

impl FromStr for HeaderName {
    type Err = HeaderNameError;

    /// Takes a name in any case.
    fn from_str(text: &str) -> Result<Self, HeaderNameError> {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !text.bytes().all(is_known) {
            return Err(HeaderNameError::Characters);
        }
        if !LEN.contains(&text.len()) {
            return Err(HeaderNameError::Length);
        }
        // `net/textproto.CanonicalMIMEHeaderKey`.
        let mut is_first = true;
        let mut canonical = |c: char| {
            let written = if is_first { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
            is_first = c == '-';
            written
        };
        Ok(Self(text.chars().map(&mut canonical).collect()))
    }
}

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HeaderName {
    /// What is read for it, all values, where a sensor has headers.
    pub(crate) fn expression(&self, sensor: &Sensor) -> Option<String> {
        let has_headers = |expression: &str| expression.starts_with(HEADERS);
        let mut reads = sensor.entry.iter();
        let expression = format!("{HEADERS}[\"{}\"]", self.0);
        reads.any(|read| has_headers(read.expression)).then_some(expression)
    }
}

/// The name of the header that an expression reads.
pub(crate) fn of_expression(expression: &str) -> Option<&str> {
    expression.strip_prefix(HEADERS)?.strip_prefix("[\"")?.strip_suffix("\"]")
}

/// Adds the headers that were asked for and are there.
pub(crate) fn add(values: &Values<'_>, attributes: &mut Attributes) {
    for (name, given) in values.headers() {
        let key = format!("http.request.header.{}", name.to_ascii_lowercase());
        match given {
            Ok(texts) if texts.is_empty() => {}
            Ok(texts) => {
                let texts = texts.into_iter().map(|text| mask::header(name, text)).collect();
                attributes.known.push((key.into(), Attribute::Texts(texts)));
            }
            Err(reason) => attributes.lack(key, reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_library() {
        let of = |text: &str| text.parse().map(|HeaderName(name)| name);
        assert_eq!(of("x-request-ID").as_deref(), Ok("X-Request-Id"));
        assert_eq!(of("user-agent").as_deref(), Ok("User-Agent"));
        assert_eq!(of("Cookie"), Err(HeaderNameError::Length));
        assert_eq!(of("Content-Security-Policy"), Err(HeaderNameError::Length));
        assert_eq!(of("X-\"]Request"), Err(HeaderNameError::Characters));
    }
}
