//! Figures in few columns.

/// At most five columns: `812B`, `1.5K`, `10.2M`, `999G`.
pub(crate) fn bytes(value: u64) -> String {
    scaled(value as f64, 1024.0, "B")
}

/// A number of things, at most five columns: `999`, `1.2k`, `34.5k`, `1.0M`.
pub(crate) fn count(value: u64) -> String {
    if value < 10_000 { value.to_string() } else { scaled(value as f64, 1000.0, "") }
}

fn scaled(value: f64, base: f64, unit: &str) -> String {
    let prefixes: [&str; 7] = if base == 1000.0 {
        ["", "k", "M", "G", "T", "P", "E"]
    } else {
        ["", "K", "M", "G", "T", "P", "E"]
    };
    let mut value = value;
    let mut prefix = 0;
    while value >= 999.5 && prefix + 1 < prefixes.len() {
        value /= base;
        prefix += 1;
    }
    match prefix {
        0 => format!("{value:.0}{unit}"),
        _ if value < 99.95 => format!("{value:.1}{}", prefixes[prefix]),
        _ => format!("{value:.0}{}", prefixes[prefix]),
    }
}

/// A time, at most five columns: `93ns`, `812µs`, `1.5ms`, `12.0s`, `3.4h`.
pub(crate) fn time(ns: u64) -> String {
    let value = ns as f64;
    let (value, unit) = match value {
        ..1e3 => return format!("{ns}ns"),
        ..999.5e3 => (value / 1e3, "µs"),
        ..999.5e6 => (value / 1e6, "ms"),
        ..60e9 => (value / 1e9, "s"),
        ..3600e9 => (value / 60e9, "m"),
        ..172_800e9 => (value / 3600e9, "h"),
        _ => (value / 86_400e9, "d"),
    };
    if value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

/// Things per second: `0.05`, `1.5`, `12`, `1.2k`.
pub(crate) fn rate(value: f64) -> String {
    match value {
        ..0.005 => "0".to_owned(),
        ..0.95 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => count(value.round() as u64),
    }
}

/// A percentage: `0.0`, `12.3`, `250`.
pub(crate) fn percent(value: f64) -> String {
    if value < 99.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_fit_their_columns() {
        let all = [0, 999, 1000, 1536, 102_400, 10 << 20, 2047 << 20, u64::MAX];
        let text: Vec<String> = all.into_iter().map(bytes).collect();
        assert_eq!(text, ["0B", "999B", "1.0K", "1.5K", "100K", "10.0M", "2.0G", "16.0E"]);
        let all = [0, 9_999, 10_000, 999_499, 999_999, 1_234_567];
        let text: Vec<String> = all.into_iter().map(count).collect();
        assert_eq!(text, ["0", "9999", "10.0k", "999k", "1.0M", "1.2M"]);
        let all = [0, 999, 93_500, 999_600, 1_500_000, 59_900_000_000, 7_200_000_000_000];
        let text: Vec<String> = all.into_iter().map(time).collect();
        assert_eq!(text, ["0ns", "999ns", "94µs", "1.0ms", "1.5ms", "60s", "2.0h"]);
        let text: Vec<String> = [0.0, 0.05, 1.0, 12.34, 250.4].into_iter().map(rate).collect();
        assert_eq!(text, ["0", "0.05", "1.0", "12.3", "250"]);
        assert_eq!((percent(3.21), percent(250.4)), ("3.2".to_owned(), "250".to_owned()));
    }
}
