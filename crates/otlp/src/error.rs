//! What can be wrong with what is given.

use std::path::PathBuf;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No URL of a collector.
    #[error("malformed endpoint `{url}`: {reason}")]
    Endpoint {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No such protocol.
    #[error("unknown protocol `{0}` of OTLP: write grpc, http/protobuf or http/json")]
    Protocol(String),
    /// Something that cannot be a header.
    #[error("the header `{0}` cannot be sent")]
    Header(String),
    /// A file of certificates or keys that cannot be used.
    #[error("failed to read certificates or a key of `{}`: {reason}", path.display())]
    Certificate {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("failed to set up TLS: {0}")]
    Tls(String),
    /// No thread or no runtime to send by.
    #[error("failed to start sending: {0}")]
    Start(String),
}
