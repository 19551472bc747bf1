//! Over gRPC.

use super::{Message, Sent};
use crate::connector::Connector;
use crate::error::Error;
use crate::settings::Settings;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use prost::Message as _;
use std::time::Duration;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

/// Sends over a connection that is kept, and made again when it breaks.
pub(crate) struct Grpc {
    spans: TraceServiceClient<Channel>,
    metrics: MetricsServiceClient<Channel>,
    headers: Vec<(AsciiMetadataKey, AsciiMetadataValue)>,
}

impl Grpc {
    pub(super) fn new(settings: &Settings, connector: Connector) -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Start(error.to_string());
        let uri = settings.uri("").map_err(|error| failed(&error))?;
        let endpoint = Endpoint::from(uri)
            .user_agent(super::http::USER_AGENT)
            .map_err(|error| failed(&error))?
            .connect_timeout(settings.timeout);
        let channel = endpoint.connect_with_connector_lazy(connector);
        let mut spans = TraceServiceClient::new(channel.clone());
        let mut metrics = MetricsServiceClient::new(channel);
        if settings.gzip {
            // Servers answer in kind.
            let gzip = CompressionEncoding::Gzip;
            spans = spans.send_compressed(gzip).accept_compressed(gzip);
            metrics = metrics.send_compressed(gzip).accept_compressed(gzip);
        }
        let header = |(name, value): &(String, String)| {
            let unfit = || Error::Header(name.clone());
            let key = name.to_ascii_lowercase().parse().map_err(|_| unfit())?;
            Ok((key, value.parse().map_err(|_| unfit())?))
        };
        let headers = settings.headers.iter().map(header).collect::<Result<_, Error>>()?;
        Ok(Self { spans, metrics, headers })
    }

    pub(super) async fn send(&mut self, settings: &Settings, message: Message) -> Sent {
        let sent = match message {
            Message::Spans(spans) => {
                let request = self.request(settings, spans);
                self.spans.export(request).await.map(|answer| Sent::spans(answer.into_inner()))
            }
            Message::Metrics(metrics) => {
                let request = self.request(settings, metrics);
                self.metrics.export(request).await.map(|answer| Sent::metrics(answer.into_inner()))
            }
        };
        sent.unwrap_or_else(|status| refused(&status))
    }

    fn request<T>(&self, settings: &Settings, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(settings.timeout);
        for (key, value) in &self.headers {
            request.metadata_mut().insert(key.clone(), value.clone());
        }
        request
    }
}

/// Which failures may be tried again ("OTLP/gRPC Response" of the protocol).
fn refused(status: &Status) -> Sent {
    let mut error = format!("{:?}", status.code());
    if !status.message().is_empty() {
        error = format!("{error}: {}", status.message());
    }
    if let Some(cause) = innermost(status) {
        error = format!("{error}: {cause}");
    }
    let after = retry_delay(status.details());
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => Sent::Again { error, after },
        // Only when the server says that it recovers.
        Code::ResourceExhausted if after.is_some() => Sent::Again { error, after },
        // What goes wrong on the way has no code: the connection is made again.
        Code::Unknown if std::error::Error::source(status).is_some() => {
            Sent::Again { error, after }
        }
        _ => Sent::Refused(error),
    }
}

/// What is behind an error that says little itself.
fn innermost(status: &Status) -> Option<String> {
    let mut cause = std::error::Error::source(status)?;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Some(cause.to_string())
}

/// `google.rpc.Status` and what of it is needed (googleapis, `google/rpc/status.proto`, `error_details.proto`).
#[derive(Clone, PartialEq, prost::Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// How long a server wants to be left alone.
fn retry_delay(details: &[u8]) -> Option<Duration> {
    let details = Details::decode(details).ok()?.details;
    let info = details.iter().find(|any| any.type_url.ends_with("google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.retry_delay.unwrap_or_default();
    let (seconds, nanos) = (u64::try_from(delay.seconds).ok()?, u32::try_from(delay.nanos).ok()?);
    Some(Duration::new(seconds, nanos.min(999_999_999)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn details(seconds: i64) -> Bytes {
        let info = RetryInfo { retry_delay: Some(Delay { seconds, nanos: 5 }) }.encode_to_vec();
        let type_url = "type.googleapis.com/google.rpc.RetryInfo".to_owned();
        Details { details: vec![Any { type_url, value: info }] }.encode_to_vec().into()
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let told = |status: Status| match refused(&status) {
            Sent::Again { after, .. } => format!("again {after:?}"),
            Sent::Refused(error) => format!("never: {error}"),
            Sent::Taken { .. } => "taken".to_owned(),
        };
        assert_eq!(told(Status::unavailable("down")), "again None");
        assert_eq!(told(Status::permission_denied("no")), "never: PermissionDenied: no");
        assert_eq!(told(Status::unknown("odd")), "never: Unknown: odd");
        assert_eq!(told(Status::resource_exhausted("")), "never: ResourceExhausted");
        let patient = |seconds| Status::with_details(Code::ResourceExhausted, "", details(seconds));
        assert_eq!(told(patient(2)), "again Some(2.000000005s)");
        assert_eq!(told(patient(-2)), "never: ResourceExhausted");
    }
}
