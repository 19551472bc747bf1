//! Goroutines that libraries make for work of their own.

use probe::package::package_of;

/// Packages whose goroutines read and write connections, and hand what comes to whoever asked for it.
const PACKAGES: [&str; 10] = [
    "net/http",
    "net/http/internal/http2",
    "net",
    "context",
    "crypto/tls",
    "database/sql",
    "io",
    "os/exec",
    "golang.org/x/net/http2",
    "google.golang.org/grpc",
];

/// gRPC's own packages below the one above.
const GRPC: &str = "google.golang.org/grpc/internal/";

/// What runs handlers: `net/http/server.go`, `net/http/h2_bundle.go` and since Go 1.27
/// `net/http/internal/http2/server.go`, golang.org/x/net, gRPC's `server.go`. A connection's own goroutine runs those of HTTP/1 within spans,
/// and brings what comes over HTTP/2.
const HANDLING: [&str; 6] = [
    "net/http.(*timeoutHandler)",
    "net/http.(*http2serverConn).runHandler",
    "net/http/internal/http2.(*serverConn).runHandler",
    "golang.org/x/net/http2.(*serverConn).runHandler",
    "google.golang.org/grpc.(*Server).serveStreams",
    "google.golang.org/grpc.(*Server).serverWorker",
];

/// Whether a goroutine that began with `function` does a library's own work: what it hands on is an answer to
/// who asked, and gives nobody else something to do.
pub fn is_of_library(function: &str) -> bool {
    let package = package_of(function);
    let is_handling = HANDLING.iter().any(|prefix| function.starts_with(prefix));
    (PACKAGES.contains(&&*package) || package.starts_with(GRPC)) && !is_handling
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_the_programs_own_code_is_none() {
        for own in [
            "net/http.(*persistConn).readLoop",
            "net/http/internal/http2.(*clientConnReadLoop).run",
            "google.golang.org/grpc/internal/transport.newHTTP2Client.func4",
            "google.golang.org/grpc.(*Server).handleRawConn.func1",
            "database/sql.(*DB).connectionOpener",
            "net.(*Resolver).lookupIPAddr.func2",
        ] {
            assert!(is_of_library(own), "{own}");
        }
        for other in [
            "main.work",
            "net/http.(*timeoutHandler).ServeHTTP.func1",
            "net/http.(*http2serverConn).runHandler",
            "golang.org/x/net/http2.(*serverConn).runHandler",
            "google.golang.org/grpc.(*Server).serveStreams.func2.1",
            "net/rpc.(*service).call",
            "golang.org/x/sync/errgroup.(*Group).Go.func1",
            "google.golang.org/grpclike.work",
            "",
        ] {
            assert!(!is_of_library(other), "{other}");
        }
    }
}
