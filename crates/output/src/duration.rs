//! Durations as people read them.

/// At most three decimals of the largest unit that fits: `812ns`, `1.500µs`, `100.161ms`, `2.000s`.
pub fn short_duration(ns: u64) -> String {
    let (unit, name) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    // Cut, not rounded: 999.9996ms must not become 1000.000ms.
    format!("{}.{:03}{name}", ns / unit, ns % unit * 1000 / unit)
}

/// As Go's `time.Duration.String` prints it: `1h2m3.5s`, `1.5ms`, `0s`.
pub fn go_duration(ns: i64) -> String {
    let magnitude = ns.unsigned_abs();
    let sign = if ns < 0 { "-" } else { "" };
    let (unit, digits, name) = match magnitude {
        0 => return "0s".to_owned(),
        1..1_000 => return format!("{sign}{magnitude}ns"),
        1_000..1_000_000 => (1_000, 3, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, 6, "ms"),
        _ => (1_000_000_000, 9, "s"),
    };
    let mut fraction = format!("{:0digits$}", magnitude % unit);
    fraction.truncate(fraction.trim_end_matches('0').len());
    let point = if fraction.is_empty() { "" } else { "." };
    let whole = magnitude / unit;
    if name != "s" || whole < 60 {
        return format!("{sign}{whole}{point}{fraction}{name}");
    }
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    let hours = if hours > 0 { format!("{hours}h") } else { String::new() };
    format!("{sign}{hours}{minutes}m{seconds}{point}{fraction}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_cut_to_three_decimals() {
        let all = [0, 999, 1_500, 999_999, 100_161_999, 999_999_999, 90_000_000_000];
        let text: Vec<String> = all.into_iter().map(short_duration).collect();
        let expected =
            ["0ns", "999ns", "1.500µs", "999.999µs", "100.161ms", "999.999ms", "90.000s"];
        assert_eq!(text, expected);
    }

    #[test]
    fn go_durations_are_those_of_the_time_package() {
        let cases = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (-2_200_000, "-2.2ms"),
            (3_300_000_000, "3.3s"),
            (245_000_000_000, "4m5s"),
            (245_001_000_000, "4m5.001s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (3_600_000_000_000, "1h0m0s"),
            (480_000_000_001, "8m0.000000001s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ];
        for (ns, text) in cases {
            assert_eq!(go_duration(ns), text, "{ns}");
        }
    }
}
