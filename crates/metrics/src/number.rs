//! A figure, and how it is written.

use std::fmt;

/// A figure. Integers stay exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Integer(u64),
    /// Everything else.
    Real(f64),
}

impl Number {
    /// As a float, as Prometheus stores it.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Real(value) => value,
        }
    }

    /// Nanoseconds as seconds.
    pub(crate) fn seconds(ns: u64) -> Self {
        Self::Real(ns as f64 / 1e9)
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl fmt::Display for Number {
    /// As the exposition format wants it. Floats look as Go's `strconv` writes them (`'g'`, shortest):
    /// label values are compared as text, and `le` and `quantile` hold floats.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = match self {
            Self::Integer(value) => return write!(f, "{value}"),
            Self::Real(value) => *value,
        };
        if value.is_nan() {
            return f.write_str("NaN");
        }
        if value.is_infinite() {
            return f.write_str(if value > 0.0 { "+Inf" } else { "-Inf" });
        }
        // The shortest digits are the same; where exponents begin is not.
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or_default();
        if (-4..6).contains(&exponent) {
            return write!(f, "{value}");
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(f, "{digits}e{sign}{:02}", exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_look_as_go_writes_them() {
        let texts = [
            (0.0, "0"),
            (-1.0, "-1"),
            (0.5, "0.5"),
            (123_456.0, "123456"),
            (1_234_567.0, "1.234567e+06"),
            (1e6, "1e+06"),
            (12_345_678.5, "1.23456785e+07"),
            (27_264.999_999_999_996, "27264.999999999996"),
            (6.399_999_999_999_999e-8, "6.399999999999999e-08"),
            (1e-4, "0.0001"),
            (1.5e-5, "1.5e-05"),
            (9.223_372_036_854_776e18, "9.223372036854776e+18"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ];
        for (value, text) in texts {
            assert_eq!(Number::Real(value).to_string(), text);
        }
        assert_eq!(Number::Integer(u64::MAX).to_string(), "18446744073709551615");
    }
}
