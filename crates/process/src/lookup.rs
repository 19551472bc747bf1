//! Finding a program as execvp does.

use crate::error::Error;
use rustix::fs::{Access, access};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// What execvp searches when PATH is not set (POSIX `confstr(_CS_PATH)` on Linux).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The file that running `program` would execute: itself when it has a slash, else the first
/// executable of that name in `search_path` (the value of PATH).
///
/// Errors: [`Error::Program`] with the reason.
pub fn find_program(program: &OsStr, search_path: Option<&OsStr>) -> Result<PathBuf, Error> {
    let error =
        |reason: String| Error::Program { program: program.to_string_lossy().into_owned(), reason };
    if program.is_empty() {
        return Err(error("the name is empty".to_owned()));
    }
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return check(&path).map(|()| path).map_err(error);
    }
    let mut refused = None;
    for dir in std::env::split_paths(search_path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { &dir };
        let path = dir.join(program);
        match check(&path) {
            Ok(()) => return Ok(path),
            Err(reason) if path.exists() => {
                refused.get_or_insert_with(|| format!("{}: {reason}", path.display()));
            }
            Err(_) => {}
        }
    }
    Err(error(refused.unwrap_or_else(|| match Path::new(".").join(program) {
        here if here.is_file() => format!("not found in PATH; write `{}`", here.display()),
        _ => "not found in PATH".to_owned(),
    })))
}

fn check(path: &Path) -> Result<(), String> {
    let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => e.to_string(),
    })?;
    if meta.is_dir() {
        return Err("is a directory".to_owned());
    }
    if !meta.is_file() {
        return Err("not a regular file".to_owned());
    }
    access(path, Access::EXEC_OK).map_err(|_| "not executable".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(program: &str, path: &str) -> Result<PathBuf, String> {
        find_program(OsStr::new(program), Some(OsStr::new(path))).map_err(|e| e.to_string())
    }

    #[test]
    fn programs_are_found_as_execvp_finds_them() {
        assert_eq!(find("sh", "/nowhere:/bin"), Ok(PathBuf::from("/bin/sh")));
        assert_eq!(find("/bin/sh", ""), Ok(PathBuf::from("/bin/sh")));
        let error =
            |program: &str, reason: &str| Err(format!("failed to start `{program}`: {reason}"));
        assert_eq!(find("no-such", "/bin"), error("no-such", "not found in PATH"));
        // Tests run where the package's manifest is.
        let hint = "not found in PATH; write `./Cargo.toml`";
        assert_eq!(find("Cargo.toml", "/bin"), error("Cargo.toml", hint));
        assert_eq!(find("./no-such", "/bin"), error("./no-such", "no such file"));
        assert_eq!(find("/etc", "/bin"), error("/etc", "is a directory"));
        assert_eq!(find("/etc/passwd", "/bin"), error("/etc/passwd", "not executable"));
        assert_eq!(find("passwd", "/etc"), error("passwd", "/etc/passwd: not executable"));
        assert_eq!(find("", "/bin"), error("", "the name is empty"));
    }
}
