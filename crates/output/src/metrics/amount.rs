//! Figures as people read them.

use crate::duration::short_duration;
use metrics::{Number, Unit};

/// Prefixes of 1024.
const PREFIXES: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Three digits of the largest unit that fits: `812B`, `1.50KiB`, `10.2MiB`.
pub fn short_bytes(bytes: f64) -> String {
    let mut value = bytes;
    let mut prefix = 0;
    // What would be shown as 1000 or more is the next one's; 1023.9KiB is not 1024KiB.
    while value >= 999.5 && prefix + 1 < PREFIXES.len() {
        value /= 1024.0;
        prefix += 1;
    }
    let digits = match value {
        _ if prefix == 0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{}", PREFIXES[prefix])
}

/// A figure with its unit.
pub(super) fn amount(unit: Unit, number: Number) -> String {
    // What the runtime says instead of no limit.
    let none = matches!(number, Number::Integer(value) if value >= i64::MAX as u64);
    let value = number.as_f64();
    match unit {
        Unit::Percent if none => "off".to_owned(),
        _ if none => "none".to_owned(),
        Unit::Bytes => short_bytes(value),
        // A `u64` of nanoseconds is half a millennium; more is cut.
        Unit::Seconds => short_duration((value * 1e9).round() as u64),
        Unit::UnixSeconds => format!("{value:.3}"),
        Unit::Percent => format!("{number}%"),
        Unit::Ratio => format!("{:.2}%", value * 100.0),
        Unit::Count => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits() {
        let all = [0.0, 812.0, 999.0, 1000.0, 1024.0, 1536.0, 10_484.0, 1_047_000.0, 1_048_576.0];
        let text: Vec<String> = all.into_iter().map(short_bytes).collect();
        let wanted = [
            "0B", "812B", "999B", "0.98KiB", "1.00KiB", "1.50KiB", "10.2KiB", "1.00MiB", "1.00MiB",
        ];
        assert_eq!(text, wanted);
        assert_eq!(short_bytes(9.3e18), "8.07EiB");
    }

    #[test]
    fn amounts_have_the_unit_of_their_metric() {
        let of = |unit, number: Number| amount(unit, number);
        assert_eq!(of(Unit::Bytes, 2_097_152.into()), "2.00MiB");
        assert_eq!(of(Unit::Bytes, (i64::MAX as u64).into()), "none");
        assert_eq!(of(Unit::Percent, u64::MAX.into()), "off");
        assert_eq!(of(Unit::Percent, 100.into()), "100%");
        assert_eq!(of(Unit::Seconds, 0.001_5.into()), "1.500ms");
        assert_eq!(of(Unit::Ratio, 0.0123.into()), "1.23%");
        assert_eq!(of(Unit::Count, 7.into()), "7");
    }
}
