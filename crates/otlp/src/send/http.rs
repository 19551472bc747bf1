//! Over HTTP, as protobuf or JSON.

use super::{Message, Sent};
use crate::connector::Connector;
use crate::error::Error;
use crate::settings::{Protocol, Settings};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, RETRY_AFTER};
use hyper::{Request, StatusCode, Uri};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use serde_json::Value;
use std::io::Write as _;
use std::time::Duration;

/// Who sends.
pub(super) const USER_AGENT: &str = concat!("gospect/", env!("CARGO_PKG_VERSION"));

/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;

/// Sends over a connection that is kept as long as it holds.
pub(crate) struct Http {
    connector: Connector,
    target: Uri,
    connection: Option<SendRequest<Full<Bytes>>>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Http {
    pub(super) fn new(settings: &Settings, connector: Connector) -> Result<Self, Error> {
        let target = settings.path.parse::<Uri>();
        let target = target.map_err(|error| Error::Start(error.to_string()))?;
        Ok(Self { connector, target, connection: None })
    }

    pub(super) async fn send(&mut self, settings: &Settings, request: &Message) -> Sent {
        match self.exchange(settings, request).await {
            Ok((status, headers, body)) => {
                judged(status, &headers, &|| read(request, settings.protocol, &body))
            }
            Err(error) => {
                let mut told = error.to_string();
                let mut cause = error.source();
                while let Some(deeper) = cause {
                    told = format!("{told}: {deeper}");
                    cause = deeper.source();
                }
                Sent::again(told)
            }
        }
    }

    async fn exchange(
        &mut self,
        settings: &Settings,
        request: &Message,
    ) -> Result<(StatusCode, HeaderMap, Bytes), Failure> {
        let (kind, mut body) = match settings.protocol {
            Protocol::HttpJson => ("application/json", request.to_json()?),
            _ => ("application/x-protobuf", request.to_protobuf()),
        };
        let mut head = Request::post(self.target.clone())
            .header(HOST, settings.authority())
            .header(hyper::header::USER_AGENT, USER_AGENT)
            .header(CONTENT_TYPE, kind);
        if settings.gzip {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(&body)?;
            body = encoder.finish()?;
            head = head.header(CONTENT_ENCODING, "gzip");
        }
        for (name, value) in &settings.headers {
            head = head.header(name, value);
        }
        let request = head.body(Full::new(Bytes::from(body)))?;
        // Taken out: what fails, or is given up on the way, is not used again.
        let mut kept = self.connection.take();
        if let Some(connection) = &mut kept
            && connection.ready().await.is_err()
        {
            kept = None;
        }
        let mut connection = match kept {
            Some(connection) => connection,
            None => {
                let (connection, driving) = handshake(self.connector.connect().await?).await?;
                // How it ends is what whoever waits for the answer is told too.
                tokio::spawn(driving);
                connection
            }
        };
        let answer = connection.send_request(request).await?;
        let (head, body) = answer.into_parts();
        // An answer that is left unread may look like a broken connection to who sends it.
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        self.connection = Some(connection);
        Ok((head.status, head.headers, body))
    }
}

/// Which answers may be tried again ("OTLP/HTTP Response" of the protocol). `read` reads the body.
fn judged(status: StatusCode, headers: &HeaderMap, read: &dyn Fn() -> Sent) -> Sent {
    if status.is_success() {
        return read();
    }
    let error = status.to_string();
    if ![429, 502, 503, 504].contains(&status.as_u16()) {
        return Sent::Refused(error);
    }
    // A date is left aside: then the pause is one's own.
    let after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Sent::Again { error, after: after.map(Duration::from_secs) }
}

/// What a collector says to what it takes; nothing where it is not understood.
fn read(request: &Message, protocol: Protocol, body: &[u8]) -> Sent {
    match (request, protocol) {
        (Message::Spans(_), Protocol::HttpJson) => from_json(body, "rejectedSpans"),
        (Message::Metrics(_), Protocol::HttpJson) => from_json(body, "rejectedDataPoints"),
        (Message::Spans(_), _) => {
            Sent::spans(ExportTraceServiceResponse::decode(body).unwrap_or_default())
        }
        (Message::Metrics(_), _) => {
            Sent::metrics(ExportMetricsServiceResponse::decode(body).unwrap_or_default())
        }
    }
}

/// A 64-bit number may stand as a text in JSON (protobuf's JSON mapping).
fn from_json(body: &[u8], rejected: &str) -> Sent {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let partial = &answer["partialSuccess"];
    let number = &partial[rejected];
    let number = number.as_i64().or_else(|| number.as_str()?.parse().ok());
    let told = partial["errorMessage"].as_str().unwrap_or_default().to_owned();
    Sent::taken(number.unwrap_or(0), told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_say_whether_to_try_again() {
        let told = |code: u16, after: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(after) = after {
                headers.insert(RETRY_AFTER, after.parse().unwrap());
            }
            let status = StatusCode::from_u16(code).unwrap();
            judged(status, &headers, &|| Sent::taken(0, String::new()))
        };
        assert_eq!(told(200, None), Sent::Taken { rejected: 0, told: None });
        let later = |after| Sent::Again { error: "503 Service Unavailable".to_owned(), after };
        assert_eq!(told(503, None), later(None));
        assert_eq!(told(503, Some("7")), later(Some(Duration::from_secs(7))));
        assert_eq!(told(503, Some("Fri, 31 Dec 1999 23:59:59 GMT")), later(None));
        assert_eq!(told(400, None), Sent::Refused("400 Bad Request".to_owned()));
        assert_eq!(told(500, Some("1")), Sent::Refused("500 Internal Server Error".to_owned()));
    }

    #[test]
    fn what_a_collector_rejects_is_counted() {
        use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess;
        use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;
        let error_message = "old".to_owned();
        let partial =
            ExportTracePartialSuccess { rejected_spans: 3, error_message: error_message.clone() };
        let spans = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        let partial = ExportMetricsPartialSuccess { rejected_data_points: 3, error_message };
        let metrics =
            ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        let expected = || Sent::Taken { rejected: 3, told: Some("old".to_owned()) };
        let requests = [Message::Spans(Default::default()), Message::Metrics(Default::default())];
        let names = ["rejectedSpans", "rejectedDataPoints"];
        for ((request, name), body) in requests.iter().zip(names).zip([spans, metrics]) {
            assert_eq!(read(request, Protocol::HttpProtobuf, &body), expected());
            for number in ["3", "\"3\""] {
                let json =
                    format!(r#"{{"partialSuccess":{{"{name}":{number},"errorMessage":"old"}}}}"#);
                assert_eq!(
                    read(request, Protocol::HttpJson, json.as_bytes()),
                    expected(),
                    "{json}"
                );
            }
            let nothing = Sent::Taken { rejected: 0, told: None };
            assert_eq!(read(request, Protocol::HttpJson, b"ok"), nothing);
        }
    }
}
