//! One request, and what becomes of it.

mod grpc;
mod http;

use crate::connector::Connector;
use crate::error::Error;
use crate::settings::{Protocol, Settings};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message as _;
use std::time::Duration;

/// A request, by what it carries.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Spans(ExportTraceServiceRequest),
    Metrics(ExportMetricsServiceRequest),
}

impl Message {
    fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        match self {
            Self::Spans(spans) => serde_json::to_vec(spans),
            Self::Metrics(metrics) => serde_json::to_vec(metrics),
        }
    }

    fn to_protobuf(&self) -> Vec<u8> {
        match self {
            Self::Spans(spans) => spans.encode_to_vec(),
            Self::Metrics(metrics) => metrics.encode_to_vec(),
        }
    }
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Taken, but for so many spans or points, with what was said of it.
    Taken { rejected: u64, told: Option<String> },
    /// Not now: again later, and not before so long.
    Again { error: String, after: Option<Duration> },
    /// Never.
    Refused(String),
}

impl Sent {
    /// By what the collector answered.
    fn spans(answer: ExportTraceServiceResponse) -> Self {
        let partial = answer.partial_success.unwrap_or_default();
        Self::taken(partial.rejected_spans, partial.error_message)
    }

    /// Likewise of metrics.
    fn metrics(answer: ExportMetricsServiceResponse) -> Self {
        let partial = answer.partial_success.unwrap_or_default();
        Self::taken(partial.rejected_data_points, partial.error_message)
    }

    fn taken(rejected: i64, told: String) -> Self {
        let told = Some(told).filter(|told| !told.is_empty());
        Self::Taken { rejected: u64::try_from(rejected).unwrap_or(0), told }
    }

    fn again(error: String) -> Self {
        Self::Again { error, after: None }
    }
}

/// Sends requests by one of the protocols.
pub(crate) enum Sender {
    Grpc(Box<grpc::Grpc>),
    Http(Box<http::Http>),
}

impl Sender {
    /// Within a runtime, which keeps its connection.
    pub(crate) fn new(settings: &Settings, connector: Connector) -> Result<Self, Error> {
        Ok(match settings.protocol {
            Protocol::Grpc => Self::Grpc(Box::new(grpc::Grpc::new(settings, connector)?)),
            Protocol::HttpProtobuf | Protocol::HttpJson => {
                Self::Http(Box::new(http::Http::new(settings, connector)?))
            }
        })
    }

    /// Sends, for as long as the settings allow.
    pub(crate) async fn send(&mut self, settings: &Settings, request: &Message) -> Sent {
        let sent = async {
            match self {
                Self::Grpc(grpc) => grpc.send(settings, request.clone()).await,
                Self::Http(http) => http.send(settings, request).await,
            }
        };
        let sent = tokio::time::timeout(settings.timeout, sent).await;
        sent.unwrap_or_else(|_| Sent::again(format!("no answer in {:?}", settings.timeout)))
    }
}
