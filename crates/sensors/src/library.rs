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

/// Runs a handler (`net/http/server.go`).
const HANDLING: &str = "net/http.(*timeoutHandler)";

/// Whether a goroutine that began with `function` does a library's own work: what it hands on is an answer to
/// who asked, and gives nobody else something to do.
pub fn is_of_library(function: &str) -> bool {
    let package = package_of(function);
    (PACKAGES.contains(&&*package) || package.starts_with(GRPC)) && !function.starts_with(HANDLING)
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
            "database/sql.(*DB).connectionOpener",
            "net.(*Resolver).lookupIPAddr.func2",
        ] {
            assert!(is_of_library(own), "{own}");
        }
        for other in [
            "main.work",
            "net/http.(*timeoutHandler).ServeHTTP.func1",
            "net/rpc.(*service).call",
            "golang.org/x/sync/errgroup.(*Group).Go.func1",
            "google.golang.org/grpclike.work",
            "",
        ] {
            assert!(!is_of_library(other), "{other}");
        }
    }
}
