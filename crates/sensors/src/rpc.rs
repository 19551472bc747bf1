//! gRPC by OpenTelemetry's semantic conventions (RPC, version 1.27 and later).

use crate::catalog::Field;
use crate::fields::Values;
use crate::http::{Attributes, endpoint};
use crate::span::SpanKind;
use crate::trace_context::{self, TraceParent};

pub(crate) const STATUS: &str = "rpc.grpc.status_code";

/// Name of the header in metadata, which has names in lower case.
const TRACEPARENT: &[u8] = b"traceparent";

/// Codes by number (google.golang.org/grpc/codes, `codes.go`).
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// A code's name, where it is a failure of that side: a client's is everything but OK, a server's is what
/// speaks of the server, and not of the request.
pub(crate) fn failure(kind: SpanKind, code: i64) -> Option<String> {
    let is_failure = match kind {
        SpanKind::Client => code != 0,
        SpanKind::Server => matches!(code, 2 | 4 | 12 | 13 | 14 | 15),
    };
    let name = usize::try_from(code).ok().and_then(|code| CODES.get(code));
    is_failure.then(|| name.map_or_else(|| code.to_string(), |name| (*name).to_owned()))
}

/// What a call says at its begin, and the name of its span: `/package.Service/Method` without the first
/// stroke.
pub(crate) fn call(values: &Values<'_>) -> (String, Attributes) {
    let mut attributes = Attributes::default();
    attributes.text("rpc.system", "grpc");
    let name = match attributes.take("rpc.method", values.text(Field::FullMethod)) {
        None => "grpc".to_owned(),
        Some(full) => {
            let full = full.strip_prefix('/').unwrap_or(&full).to_owned();
            if let Some((service, method)) = full.rsplit_once('/') {
                attributes.text("rpc.service", service.to_owned());
                attributes.text("rpc.method", method.to_owned());
            }
            full
        }
    };
    // A server has none.
    if let Ok(target) = values.text(Field::Target) {
        // `HOST:PORT` or `SCHEME://AUTHORITY/HOST:PORT`; of a socket's path nothing is told.
        let is_path = target.starts_with("unix");
        let address = target.rsplit('/').next().filter(|_| !is_path).unwrap_or_default();
        endpoint(address, ["server.address", "server.port"], None, &mut attributes);
    }
    (name, attributes)
}

/// The trace that a call's metadata names; `Err` when not all of it was read.
pub(crate) fn traceparent(values: &Values<'_>) -> Result<Option<TraceParent>, String> {
    if let Some(header) = values.added(TRACEPARENT) {
        return Ok(trace_context::parse(header));
    }
    // A call may have no metadata of its own.
    let is_there = values.get(Field::TraceParent).is_ok();
    let header = if is_there { values.traceparent()? } else { None };
    Ok(header.and_then(trace_context::parse))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_failures_are_its_own() {
        assert_eq!(failure(SpanKind::Client, 0), None);
        assert_eq!(failure(SpanKind::Client, 5).as_deref(), Some("NOT_FOUND"));
        assert_eq!(failure(SpanKind::Server, 5), None);
        assert_eq!(failure(SpanKind::Server, 13).as_deref(), Some("INTERNAL"));
        assert_eq!(failure(SpanKind::Client, 99).as_deref(), Some("99"));
        assert_eq!(failure(SpanKind::Client, -1).as_deref(), Some("-1"));
    }
}
