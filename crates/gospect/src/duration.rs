//! Durations as people write them: `500ms`, `10s`, `1m30s`, a bare number of seconds.

use std::str::FromStr;
use std::time::Duration;

/// A length of time given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("'{text}' is not a duration; write 500ms, 10s, 1m30s");
        if text.is_empty() {
            return Err(invalid());
        }
        let mut rest = text;
        let mut total_ns = 0f64;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
            rest = &rest[digits..];
            let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            total_ns += number
                * match &rest[..letters] {
                    "ns" => 1.0,
                    "us" | "µs" => 1e3,
                    "ms" => 1e6,
                    "s" => 1e9,
                    "m" => 60e9,
                    "h" => 3600e9,
                    "" if digits == text.len() => 1e9,
                    _ => return Err(invalid()),
                };
            rest = &rest[letters..];
        }
        // A century is more than anyone waits, and well inside what a Duration holds.
        if !(0.0..=3.2e18).contains(&total_ns) {
            return Err(invalid());
        }
        Ok(Self(Duration::from_nanos(total_ns as u64)))
    }
}

/// To three decimals: more is noise, and a recorded file gives such a number back unchanged.
pub fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// Milliseconds, to three decimals.
pub fn milliseconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_as_people_write_them() {
        let ns = |text: &str| Span::from_str(text).map(|span| span.0.as_nanos());
        assert_eq!(ns("500ms"), Ok(500_000_000));
        assert_eq!(ns("1.5s"), Ok(1_500_000_000));
        assert_eq!(ns("1m30s"), Ok(90_000_000_000));
        assert_eq!(ns("100us"), Ok(100_000));
        assert_eq!(ns("2"), Ok(2_000_000_000));
        for bad in ["", "s", "1x", "1m30", "-1s", "1e99h", "..s"] {
            assert!(ns(bad).is_err(), "{bad}");
        }
    }
}
