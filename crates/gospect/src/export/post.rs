//! One request.

use super::Endpoint;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;

/// What became of a request.
pub enum Sent {
    /// Taken.
    Taken,
    /// Not now: again later.
    Again(String),
    /// Never.
    Refused(String),
}

/// Posts a body and waits for the answer.
pub fn post(endpoint: &Endpoint, body: String) -> Sent {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return Sent::Again(error.to_string()),
    };
    let shown = endpoint;
    runtime.block_on(async {
        match tokio::time::timeout(endpoint.timeout, exchange(endpoint, body)).await {
            Err(_) => Sent::Again(format!("{shown}: no answer in {:?}", endpoint.timeout)),
            Ok(Err(error)) => Sent::Again(format!("{shown}: {error:#}")),
            Ok(Ok(status)) if status.is_success() => Sent::Taken,
            // Those that the protocol lets try again.
            Ok(Ok(status)) if [429, 502, 503, 504].contains(&status.as_u16()) => {
                Sent::Again(format!("{shown}: {status}"))
            }
            Ok(Ok(status)) => Sent::Refused(format!("{shown}: {status}")),
        }
    })
}

async fn exchange(endpoint: &Endpoint, body: String) -> anyhow::Result<StatusCode> {
    let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::post(&endpoint.path)
        .header(HOST, endpoint.authority())
        .header(CONTENT_TYPE, "application/json");
    for (name, value) in &endpoint.headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(Bytes::from(body)))?;
    // How it ends is what whoever waits for the answer is told too.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    // An answer that is left unread may look like a broken connection to who sends it.
    _ = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    Ok(status)
}
