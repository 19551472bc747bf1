//! Signatures of watched functions that no table of types describes, for executables without debug information.
//!
//! Only what is read needs its type: an interface with methods is an `error` here, and a pointer or a
//! slice that is not followed any one, since they take the same registers.

use probe::expression::{Declarations, Request};

/// By function, as rules state them; where versions differ, one behind the other. golang.org/x/net 0.21 to 0.62
/// (`http2/server.go`, `transport.go`), google.golang.org/grpc 1.63 to 1.85
/// (`call.go`, `stream.go`, `server.go`, `internal/transport/http2_server.go`, `handler_server.go`).
const SIGNATURES: &[(&str, &[&str])] = &[
    (
        "golang.org/x/net/http2.(*serverConn).runHandler",
        &["(sc unsafe.Pointer, rw *golang.org/x/net/http2.responseWriter, req *net/http.Request, \
           handler unsafe.Pointer)"],
    ),
    (
        "golang.org/x/net/http2.(*responseWriter).handlerDone",
        &["(w *golang.org/x/net/http2.responseWriter)"],
    ),
    (
        "golang.org/x/net/http2.(*serverConn).writeHeaders",
        &["(sc unsafe.Pointer, st *golang.org/x/net/http2.stream, \
           headerData *golang.org/x/net/http2.writeResHeaders) -> (~r0 error)"],
    ),
    (
        "golang.org/x/net/http2.(*Transport).RoundTrip",
        &["(t *golang.org/x/net/http2.Transport, req *net/http.Request) \
           -> (~r0 *net/http.Response, ~r1 error)"],
    ),
    (
        "google.golang.org/grpc.invoke",
        &["(ctx error, method string, req any, reply any, cc *google.golang.org/grpc.ClientConn, \
           opts []string) -> (~r0 error)"],
    ),
    (
        "google.golang.org/grpc.newClientStream",
        &[
            "(ctx error, desc unsafe.Pointer, cc *google.golang.org/grpc.ClientConn, method string, \
           opts []string) -> (~r0 error, err error)",
        ],
    ),
    (
        "google.golang.org/grpc.newClientStreamWithParams",
        &[
            "(ctx error, desc unsafe.Pointer, cc unsafe.Pointer, method string, mc unsafe.Pointer, \
             onCommit unsafe.Pointer, delayed bool, opts []string) -> (~r0 error, err error)",
            "(ctx error, desc unsafe.Pointer, cc unsafe.Pointer, method string, \
             mc google.golang.org/grpc/internal/serviceconfig.MethodConfig, onCommit unsafe.Pointer, \
             doneFunc unsafe.Pointer, opts []string) -> (~r0 error, err error)",
            " -> (~r0 error, err error)",
        ],
    ),
    (
        "google.golang.org/grpc.(*clientStream).finish",
        &["(cs *google.golang.org/grpc.clientStream, err error)"],
    ),
    (
        "google.golang.org/grpc.(*Server).handleStream",
        &[
            "(s unsafe.Pointer, t error, \
             stream *google.golang.org/grpc/internal/transport.ServerStream)",
            "(s unsafe.Pointer, t error, stream *google.golang.org/grpc/internal/transport.Stream)",
        ],
    ),
    (
        "google.golang.org/grpc/internal/transport.(*http2Server).WriteStatus",
        &["(t *google.golang.org/grpc/internal/transport.http2Server, \
           s *google.golang.org/grpc/internal/transport.Stream, \
           st *google.golang.org/grpc/internal/status.Status)"],
    ),
    (
        "google.golang.org/grpc/internal/transport.(*http2Server).writeStatus",
        &["(t *google.golang.org/grpc/internal/transport.http2Server, \
           s *google.golang.org/grpc/internal/transport.ServerStream, \
           st *google.golang.org/grpc/internal/status.Status)"],
    ),
    (
        "google.golang.org/grpc/internal/transport.(*serverHandlerTransport).WriteStatus",
        &["(t *google.golang.org/grpc/internal/transport.serverHandlerTransport, \
           s *google.golang.org/grpc/internal/transport.Stream, \
           st *google.golang.org/grpc/internal/status.Status)"],
    ),
    (
        "google.golang.org/grpc/internal/transport.(*serverHandlerTransport).writeStatus",
        &["(t *google.golang.org/grpc/internal/transport.serverHandlerTransport, \
           s *google.golang.org/grpc/internal/transport.ServerStream, \
           st *google.golang.org/grpc/internal/status.Status)"],
    ),
];

/// What is stated of a function, to be tried one after the other.
pub(crate) fn stated(function: &str) -> impl Iterator<Item = Declarations> {
    let known = SIGNATURES.iter().find(|(name, _)| *name == function);
    let texts = known.map_or(&[][..], |(_, texts)| texts).iter();
    let parse = |text: &&str| Request::parse(&format!("{}{text}", known?.0)).ok();
    texts.filter_map(parse).map(|request| request.declared).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SENSORS;

    #[test]
    fn every_signature_is_one_and_of_a_watched_function() {
        for (function, texts) in SIGNATURES {
            assert!(SENSORS.iter().any(|sensor| sensor.function == *function), "{function}");
            let stated: Vec<Declarations> = stated(function).collect();
            assert_eq!(stated.len(), texts.len(), "{function}");
            assert!(stated.iter().all(|one| !one.is_empty()), "{function}");
        }
    }
}
