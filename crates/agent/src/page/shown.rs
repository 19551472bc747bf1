//! Numbers as a person reads them.

/// `12,345`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Bytes, by powers of 1024.
pub(super) fn bytes(number: u64) -> String {
    scaled(number as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// A number that may be large, by powers of 1000.
pub(super) fn short(number: f64) -> String {
    scaled(number, 1000.0, &["", "k", "M", "G", "T", "P"])
}

fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    // Of -0.0, the sum of nothing, 0.0.
    let mut number = number + 0.0;
    let mut unit = 0;
    while number.abs() >= step && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or_default();
    let space = if name.is_empty() { "" } else { " " };
    match number {
        number if number.fract() == 0.0 || number.abs() >= 100.0 => {
            format!("{number:.0}{space}{name}")
        }
        number => format!("{number:.1}{space}{name}"),
    }
}

/// A duration of so many nanoseconds, in two units at the most.
pub(super) fn duration(ns: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let seconds = ns / SECOND;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..SECOND => format!("{:.1} ms", ns as f64 / 1e6),
        _ if seconds < 60 => format!("{:.1} s", ns as f64 / 1e9),
        _ if seconds < 3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ if seconds < 86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// How long ago.
pub(super) fn since(then_ns: u64, now_ns: u64) -> String {
    match now_ns.saturating_sub(then_ns) {
        0..1_000_000_000 => "just now".to_owned(),
        ns => {
            let whole = ns / 1_000_000_000 * 1_000_000_000;
            format!("{} ago", duration(whole).replace(".0 s", " s"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_groups_and_units() {
        let shown = [0, 999, 1000, 12_345, 1_234_567].map(count);
        assert_eq!(shown, ["0", "999", "1,000", "12,345", "1,234,567"]);
        let shown = [0, 1023, 1024, 1536, 40 << 20, u64::MAX].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "40 MiB", "16384 PiB"]);
        let shown = [0.0, -0.0, 0.25, 12.0, 1500.0, 123_456.0, f64::INFINITY].map(short);
        assert_eq!(shown, ["0", "0", "0.2", "12", "1.5 k", "123 k", "inf P"]);
    }

    #[test]
    fn durations_have_a_fitting_unit() {
        let shown = [7, 1_500, 12_345_678, 2_000_000_000, 61_000_000_000, 7_260_000_000_000];
        let shown = shown.map(duration);
        assert_eq!(shown, ["7 ns", "1.5 µs", "12.3 ms", "2.0 s", "1 min 1 s", "2 h 1 min"]);
        assert_eq!(duration(90_000_000_000_000), "1 d 1 h");
        assert_eq!(since(5, 9), "just now");
        assert_eq!(since(0, 3_900_000_000), "3 s ago");
        assert_eq!(since(9, 5), "just now");
    }
}
