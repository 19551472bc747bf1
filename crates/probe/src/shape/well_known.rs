//! Types of the standard library that are shown otherwise than by their fields.

use super::Writing;
use binary::Kind;

/// How one is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// A point in time.
    Time,
    /// Nanoseconds.
    Duration,
    /// An address of the internet.
    Ip,
    /// By one of its members.
    Only(&'static str),
    /// By some of its members.
    Short(&'static [&'static str]),
    /// By its fields, of which the errors in a slice count as fields of its own.
    Joined,
    /// By a text made from some of its members.
    Written(Writing, &'static [&'static str]),
}

/// Fields of `net/http.Request` that tell what is asked for and by whom.
const REQUEST: &[&str] =
    &["Method", "URL", "Proto", "Header", "ContentLength", "Host", "RemoteAddr", "RequestURI"];

/// Fields of `net/url.URL` that its text is made from.
const URL: &[&str] = &["Scheme", "Opaque", "Host", "Path", "RawQuery", "Fragment"];

/// What is known of a type by its name. The kind is that which the type has since it is there,
/// so that another one of the name (in a program's own copy) stays what it is.
pub(super) fn find(name: &str, kind: &Kind) -> Option<Known> {
    let is_struct = matches!(kind, Kind::Struct { .. });
    Some(match name {
        "time.Duration" if matches!(kind, Kind::Int { signed: true }) => Known::Duration,
        "net.IP" if matches!(kind, Kind::Slice { .. }) => Known::Ip,
        _ if !is_struct => return None,
        "time.Time" => Known::Time,
        "math/big.Int" => Known::Written(Writing::BigInt, &["neg", "abs"]),
        "net/url.URL" => Known::Written(Writing::Url, URL),
        "net/http.Request" => Known::Short(REQUEST),
        // errors/join.go, fmt/errors.go.
        "errors.joinError" | "fmt.wrapErrors" => Known::Joined,
        // sync/atomic/type.go: `_ noCopy`, perhaps `_ align64`, `v`.
        _ if name.strip_prefix("sync/atomic.").is_some_and(|rest| !rest.contains('/')) => {
            Known::Only("v")
        }
        _ => return None,
    })
}
