//! Golden files: the expected output, whole, beside the test.

use std::fs;
use std::path::Path;

/// Compares `actual` with the file at `path`. With `GOSPECT_BLESS=1` writes it instead.
///
/// # Panics
/// When they differ, or the file is not there; the message names the first line that does.
pub fn assert_golden(path: impl AsRef<Path>, actual: &str) {
    let path = path.as_ref();
    if std::env::var_os("GOSPECT_BLESS").is_some_and(|value| value == "1") {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        }
        fs::write(path, actual).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let expected = fs::read_to_string(path).unwrap_or_else(|error| {
        panic!("{}: {error}: run the test with GOSPECT_BLESS=1 and read the result", path.display())
    });
    if expected == actual {
        return;
    }
    let mut pairs = (1..).zip(expected.lines().zip(actual.lines()));
    let place = pairs.find(|(_, (want, got))| want != got).map_or_else(
        || "one is longer than the other".to_owned(),
        |(number, (want, got))| format!("line {number}\n  want {want}\n  got  {got}"),
    );
    panic!(
        "{} differs at {place}\n--- whole output\n{actual}\n--- bless with GOSPECT_BLESS=1",
        path.display()
    );
}
