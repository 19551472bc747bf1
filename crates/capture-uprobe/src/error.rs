//! From libbpf's errors to the ones the boundary speaks.

use capture::Error;

/// What a person without the rights can do.
pub(crate) const PERMISSION_HINT: &str = "run as root, or give the binary CAP_BPF, CAP_PERFMON and \
CAP_SYS_PTRACE (setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep)";

/// Why libbpf failed, with the kernel's log where it gave one.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct BpfFailure {
    message: String,
}

/// The errno an error of libbpf came from. It has kinds only, and its kind for EPERM is also
/// that for EACCES, with which the verifier refuses a program.
pub(crate) fn os_error(error: &libbpf_rs::Error) -> Option<i32> {
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        let number = text.rsplit_once("(os error ").and_then(|(_, n)| n.strip_suffix(')'));
        if let Some(number) = number.and_then(|n| n.parse().ok()) {
            return Some(number);
        }
        next = error.source();
    }
    None
}

/// Turns `error`, met while trying to `what`, into a typed one.
pub(crate) fn from_libbpf(what: &str, error: &libbpf_rs::Error) -> Error {
    if os_error(error) == Some(libc::EPERM) {
        return Error::Permission { what: what.to_owned(), hint: PERMISSION_HINT.to_owned() };
    }
    let log = crate::object::take_log();
    let message =
        if log.is_empty() { format!("{error:#}") } else { format!("{error:#}; libbpf: {log}") };
    Error::Failed { what: what.to_owned(), source: Box::new(BpfFailure { message }) }
}

/// Turns an error of a system call, met while trying to `what`, into a typed one.
pub(crate) fn from_io(what: &str, error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::PermissionDenied {
        return Error::Permission { what: what.to_owned(), hint: PERMISSION_HINT.to_owned() };
    }
    Error::Failed { what: what.to_owned(), source: Box::new(error) }
}
