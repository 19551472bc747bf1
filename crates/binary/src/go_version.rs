//! Go version strings.

use std::fmt;

/// A Go release: `go1.27.3`, `go1.25.5 X:greenteagc`, `go1.24.5-microsoft`,
/// `devel go1.28-abc`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoVersion {
    /// 1; 0 when the version is unknown.
    pub major: u32,
    /// 27 in `go1.27.3`.
    pub minor: u32,
    /// 3 in `go1.27.3`; 0 when absent.
    pub patch: u32,
    /// What follows the number (`rc1`, `X:greenteagc`, `-microsoft`), trimmed; empty for a
    /// plain release.
    pub rest: String,
    /// Whether it is a development build (`devel ...`).
    pub devel: bool,
    /// As it stands in the file.
    pub text: String,
}

impl GoVersion {
    /// Takes a version string apart; what is no version gives `major` 0.
    pub fn parse(text: &str) -> Self {
        let mut version = Self { text: text.to_owned(), ..Self::default() };
        let mut rest = text.trim();
        if let Some(after) = rest.strip_prefix("devel") {
            version.devel = true;
            rest = after.trim_start();
        }
        let Some(number) = rest.strip_prefix("go") else {
            version.rest = rest.to_owned();
            return version;
        };
        let (major, after) = leading_number(number);
        version.major = major.unwrap_or_default();
        rest = after;
        for part in [&mut version.minor, &mut version.patch] {
            let Some((number, after)) =
                rest.strip_prefix('.').map(leading_number).and_then(|(n, a)| Some((n?, a)))
            else {
                break;
            };
            *part = number;
            rest = after;
        }
        version.rest = rest.trim().to_owned();
        version
    }

    /// Whether the version is known at all.
    pub fn is_known(&self) -> bool {
        self.major != 0
    }

    /// Whether the build is a plain release, so that facts measured on that release hold:
    /// no development build, no vendor's patches, no GOEXPERIMENT.
    pub fn is_plain(&self) -> bool {
        self.is_known() && !self.devel && self.rest.is_empty()
    }
}

impl fmt::Display for GoVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.text.is_empty() { "unknown" } else { &self.text })
    }
}

fn leading_number(text: &str) -> (Option<u32>, &str) {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    (digits.parse().ok(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_taken_apart() {
        let parts = |text| {
            let v = GoVersion::parse(text);
            (v.major, v.minor, v.patch, v.rest.clone(), v.devel, v.is_plain())
        };
        let s = str::to_owned;
        assert_eq!(parts("go1.27.3"), (1, 27, 3, s(""), false, true));
        assert_eq!(parts("go1.21"), (1, 21, 0, s(""), false, true));
        assert_eq!(parts("go1.25.5 X:greenteagc"), (1, 25, 5, s("X:greenteagc"), false, false));
        assert_eq!(parts("go1.26.6-X:nodwarf5"), (1, 26, 6, s("-X:nodwarf5"), false, false));
        assert_eq!(parts("go1.24.5-microsoft"), (1, 24, 5, s("-microsoft"), false, false));
        assert_eq!(parts("go1.27rc1"), (1, 27, 0, s("rc1"), false, false));
        assert_eq!(parts("devel go1.28-abc Mon"), (1, 28, 0, s("-abc Mon"), true, false));
        assert_eq!(parts("devel +abc"), (0, 0, 0, s("+abc"), true, false));
        assert_eq!(parts("unknown"), (0, 0, 0, s("unknown"), false, false));
        assert_eq!(parts("go99999999999.1"), (0, 1, 0, s(""), false, false));
        assert_eq!(GoVersion::default().to_string(), "unknown");
    }
}
