//! Connections to a collector: names are looked up, TCP, TLS.

use crate::error::Error;
use crate::settings::{Protocol, Settings};
use hickory_resolver::TokioResolver;
use hyper::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

/// What is spoken over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Makes connections. A `Service` too, as `tonic` wants one.
#[derive(Clone)]
pub(crate) struct Connector {
    host: Arc<str>,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Connector {
    /// # Errors
    /// What cannot be set up for TLS.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Error> {
        let tls = match settings.secure {
            true => {
                let name = ServerName::try_from(settings.host.clone());
                let name = name.map_err(|error| Error::Tls(error.to_string()))?;
                Some((TlsConnector::from(Arc::new(tls(settings)?)), name))
            }
            false => None,
        };
        Ok(Self { host: settings.host.as_str().into(), port: settings.port, tls })
    }

    pub(crate) async fn connect(&self) -> io::Result<TokioIo<Box<dyn Stream>>> {
        let mut last = io::Error::other(format!("`{}` has no address", self.host));
        for address in self.addresses().await? {
            match TcpStream::connect(SocketAddr::new(address, self.port)).await {
                Ok(stream) => {
                    _ = stream.set_nodelay(true);
                    let stream: Box<dyn Stream> = match &self.tls {
                        Some((tls, name)) => Box::new(tls.connect(name.clone(), stream).await?),
                        None => Box::new(stream),
                    };
                    return Ok(TokioIo::new(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn addresses(&self) -> io::Result<Vec<IpAddr>> {
        if let Ok(address) = self.host.parse() {
            return Ok(vec![address]);
        }
        let unknown = |error: &dyn std::fmt::Display| {
            io::Error::other(format!("failed to look up `{}`: {error}", self.host))
        };
        let resolver = TokioResolver::builder_tokio().and_then(|builder| builder.build());
        let resolver = resolver.map_err(|error| unknown(&error))?;
        let found = resolver.lookup_ip(&*self.host).await.map_err(|error| unknown(&error))?;
        Ok(found.iter().collect())
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect().await })
    }
}

fn tls(settings: &Settings) -> Result<ClientConfig, Error> {
    let failed = |error: rustls::Error| Error::Tls(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_root_certificates(trusted(settings)?);
    let mut config = match &settings.identity {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let key = PrivateKeyDer::from_pem_file(&own.key)
                .map_err(|error| unreadable(&own.key, &error))?;
            builder.with_client_auth_cert(certificates(&own.certificate)?, key).map_err(failed)?
        }
    };
    let protocol: &[u8] = match settings.protocol {
        Protocol::Grpc => b"h2",
        Protocol::HttpProtobuf | Protocol::HttpJson => b"http/1.1",
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(config)
}

/// Those that the file of the settings names, else those of the system.
fn trusted(settings: &Settings) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &settings.certificate {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| unreadable(path, &error))?;
        }
        return Ok(roots);
    }
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reason = "no certificates of authorities are installed here: name a file by OTEL_EXPORTER_OTLP_CERTIFICATE";
        return Err(Error::Tls(reason.to_owned()));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let each = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(path, &error))?;
    let all: Result<Vec<_>, _> = each.collect();
    let all = all.map_err(|error| unreadable(path, &error))?;
    if all.is_empty() {
        return Err(unreadable(path, &"it has none in PEM"));
    }
    Ok(all)
}

fn unreadable(path: &Path, reason: &dyn std::fmt::Display) -> Error {
    Error::Certificate { path: path.to_owned(), reason: reason.to_string() }
}
