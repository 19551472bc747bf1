//! Values of the standard library as Go itself writes them.

use super::Value;
use crate::shape::Writing;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Set in `Time.wall` when `ext` is the monotonic clock (time/time.go, Go 1.19 to 1.27).
const HAS_MONOTONIC: u64 = 1 << 63;
/// Bits of `Time.wall` with the nanoseconds.
const NANOSECONDS: u64 = (1 << 30) - 1;
const DAY: i64 = 86_400;
/// From the year 1 to 1885, which `wall` counts from, and to 1970.
const TO_1885: i64 = (1884 * 365 + 1884 / 4 - 1884 / 100 + 1884 / 400) * DAY;
const TO_1970: i64 = (1969 * 365 + 1969 / 4 - 1969 / 100 + 1969 / 400) * DAY;

/// A `time.Time` by its first two words, RFC 3339 with nanoseconds, in UTC: where it is meant is
/// behind its third word.
pub(super) fn time_text(wall: u64, ext: i64) -> Value {
    let seconds = match wall & HAS_MONOTONIC {
        0 => ext,
        _ => TO_1885 + (wall << 1 >> 31) as i64,
    };
    let Some(unix) = seconds.checked_sub(TO_1970) else {
        return Value::Unavailable("a time too long ago".into());
    };
    let (year, month, day) = civil(unix.div_euclid(DAY));
    let of_day = unix.rem_euclid(DAY);
    let mut text = format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    );
    let nanoseconds = wall & NANOSECONDS;
    if nanoseconds > 0 {
        let digits = format!("{nanoseconds:09}");
        _ = write!(text, ".{}", digits.trim_end_matches('0'));
    }
    text.push('Z');
    Value::Written(text)
}

/// Year, month and day of a day counted from 1970 (proleptic Gregorian; after Howard Hinnant's
/// `civil_from_days`, whose years begin in March).
fn civil(days: i64) -> (i64, i64, i64) {
    const ERA: i64 = 146_097;
    let shifted = days.saturating_add(719_468);
    let (era, of_era) = (shifted.div_euclid(ERA), shifted.rem_euclid(ERA));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / (ERA - 1)) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// A `net.IP` of 4 or 16 bytes; others stay bytes.
pub(super) fn ip_text(bytes: Vec<u8>, len: u64) -> Value {
    let address = match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(four) if len == 4 => IpAddr::V4(Ipv4Addr::from(four)),
        _ => match <[u8; 16]>::try_from(&bytes[..]) {
            Ok(sixteen) if len == 16 => {
                let address = Ipv6Addr::from(sixteen);
                address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
            }
            _ => return Value::Bytes { bytes, len },
        },
    };
    Value::Written(address.to_string())
}

/// A struct as text; what cannot be written so stays a struct.
pub(super) fn written(writing: Writing, value: Value) -> Value {
    let Value::Struct { members, .. } = &value else { return value };
    let member =
        |name: &str| members.iter().find(|(known, _)| &**known == name).map(|(_, value)| value);
    let text = match writing {
        Writing::BigInt => big_int(member("neg"), member("abs")).map(Value::Decimal),
        Writing::Url => url(&|name| text(member(name)?)).map(Value::Written),
    };
    text.unwrap_or(value)
}

/// A whole text.
fn text(value: &Value) -> Option<&str> {
    match value {
        Value::String { bytes, len } if *len == bytes.len() as u64 => {
            std::str::from_utf8(bytes).ok()
        }
        _ => None,
    }
}

/// Sign and words, the lowest first (math/big/nat.go).
fn big_int(negative: Option<&Value>, words: Option<&Value>) -> Option<String> {
    let (Value::Bool(negative), Value::List { items, len, .. }) = (negative?, words?) else {
        return None;
    };
    if items.len() as u64 != *len {
        return None;
    }
    let mut halves = Vec::new();
    for item in items {
        let Value::Uint(word) = item else { return None };
        halves.extend([*word as u32, (*word >> 32) as u32]);
    }
    let mut groups: Vec<u32> = Vec::new();
    while halves.iter().any(|half| *half != 0) {
        const GROUP: u64 = 1_000_000_000;
        let mut rest = 0u64;
        for half in halves.iter_mut().rev() {
            let number = rest << 32 | u64::from(*half);
            *half = (number / GROUP) as u32;
            rest = number % GROUP;
        }
        groups.push(rest as u32);
    }
    let mut text = if *negative { "-".to_owned() } else { String::new() };
    match groups.split_last() {
        None => text.push('0'),
        Some((highest, lower)) => {
            _ = write!(text, "{highest}");
            for group in lower.iter().rev() {
                _ = write!(text, "{group:09}");
            }
        }
    }
    Some(text)
}

/// As `URL.String` does, without user information (net/url/url.go).
fn url<'a>(part: &impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let (scheme, opaque, host) = (part("Scheme")?, part("Opaque")?, part("Host")?);
    let (path, query, fragment) = (part("Path")?, part("RawQuery")?, part("Fragment")?);
    let mut text = String::new();
    if !scheme.is_empty() {
        _ = write!(text, "{scheme}:");
    }
    if !opaque.is_empty() {
        text.push_str(opaque);
    } else {
        if !host.is_empty() {
            _ = write!(text, "//{host}");
            if !path.is_empty() && !path.starts_with('/') {
                text.push('/');
            }
        }
        push_escaped(&mut text, path);
    }
    if !query.is_empty() {
        _ = write!(text, "?{query}");
    }
    if !fragment.is_empty() {
        text.push('#');
        push_escaped(&mut text, fragment);
    }
    Some(text)
}

/// Bytes that need it in percent form.
fn push_escaped(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(byte.into()),
            b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'='
            | b'@' => out.push(byte.into()),
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written_text(value: Value) -> String {
        match value {
            Value::Written(text) | Value::Decimal(text) => text,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let of = |wall, ext| written_text(time_text(wall, ext));
        assert_eq!(of(0, 0), "0001-01-01T00:00:00Z");
        assert_eq!(of(0, 62_135_596_800), "1970-01-01T00:00:00Z");
        assert_eq!(of(120_000_000, 63_844_761_600 + 59), "2024-02-29T00:00:59.12Z");
        // 2026-11-30T05:24:03.000000001 with a monotonic reading.
        let since_1885 = 1_796_016_243 + TO_1970 - TO_1885;
        let wall = HAS_MONOTONIC | (since_1885 as u64) << 30 | 1;
        assert_eq!(of(wall, 77), "2026-11-30T05:24:03.000000001Z");
        assert_eq!(of(0, -DAY), "0000-12-31T00:00:00Z");
    }

    #[test]
    fn addresses_have_the_form_of_their_family() {
        let of = |bytes: &[u8]| written_text(ip_text(bytes.to_vec(), bytes.len() as u64));
        assert_eq!(of(&[127, 0, 0, 1]), "127.0.0.1");
        let mut mapped = [0; 16];
        mapped[10..].copy_from_slice(&[0xff, 0xff, 10, 1, 2, 3]);
        assert_eq!(of(&mapped), "10.1.2.3");
        let mut six = [0; 16];
        (six[0], six[1], six[15]) = (0x20, 0x01, 1);
        assert_eq!(of(&six), "2001::1");
        assert_eq!(of(&[1, 2, 3]), "Bytes { bytes: [1, 2, 3], len: 3 }");
    }

    #[test]
    fn large_numbers_are_decimal() {
        let of = |negative, words: &[u64]| {
            let items = words.iter().map(|word| Value::Uint(*word)).collect();
            let abs = Value::List { items, len: words.len() as u64, cap: Some(9) };
            big_int(Some(&Value::Bool(negative)), Some(&abs)).unwrap()
        };
        assert_eq!(of(false, &[]), "0");
        assert_eq!(of(true, &[42]), "-42");
        assert_eq!(of(false, &[0, 1]), "18446744073709551616");
        assert_eq!(of(true, &[1_000_000_000]), "-1000000000");
        assert_eq!(of(false, &[0, 0, 1]), "340282366920938463463374607431768211456");
    }

    #[test]
    fn urls_are_put_together_as_go_does() {
        let of = |parts: [&'static str; 6]| {
            let names = ["Scheme", "Opaque", "Host", "Path", "RawQuery", "Fragment"];
            url(&|name| names.iter().position(|known| *known == name).map(|at| parts[at])).unwrap()
        };
        let whole = of(["http", "", "host:80", "/a b", "q=1&r", "top"]);
        assert_eq!(whole, "http://host:80/a%20b?q=1&r#top");
        assert_eq!(of(["", "", "", "/items/7", "", ""]), "/items/7");
        assert_eq!(of(["mailto", "x@y", "", "", "", ""]), "mailto:x@y");
        assert_eq!(of(["", "", "h", "p", "", ""]), "//h/p");
    }
}
