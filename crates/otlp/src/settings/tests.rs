use super::*;
use crate::sampler::RootSampler;

fn settings(given: Option<&str>, set: &[(&str, &str)]) -> Result<Settings, Error> {
    let find = |name: &str| {
        let found = set.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Settings::new(given, None, "shop", &find)
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn without_variables_a_base_is_all() {
    let plain = Settings {
        host: "collector".to_owned(),
        port: 4318,
        path: "/v1/traces".to_owned(),
        timeout: TIMEOUT,
        resource: vec![pair("service.name", "shop")],
        ..Settings::default()
    };
    assert_eq!(settings(Some("http://collector"), &[]).unwrap(), plain);
    let local = Settings { host: "localhost".to_owned(), ..plain };
    assert_eq!(settings(None, &[]).unwrap(), local);
}

#[test]
fn what_is_said_of_traces_comes_before_what_is_said_of_all() {
    let set = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "9000"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "own.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "key.pem"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,region=eu"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
    ];
    let expected = Settings {
        protocol: Protocol::HttpJson,
        secure: true,
        host: "::1".to_owned(),
        port: 99,
        path: "/base/v1/traces".to_owned(),
        headers: vec![pair("api-key", "a b")],
        timeout: Duration::from_millis(250),
        gzip: true,
        certificate: Some("ca.pem".into()),
        identity: Some(Identity { certificate: "own.pem".into(), key: "key.pem".into() }),
        resource: vec![pair("service.name", "other"), pair("region", "eu")],
        sampler: Sampler { parent_based: false, root: RootSampler::Never },
        batching: Batching::default(),
        warnings: Vec::new(),
    };
    assert_eq!(settings(Some("https://[::1]:99/base/"), &set).unwrap(), expected);
    let named = [set[9], ("OTEL_SERVICE_NAME", "mine")];
    let named = settings(Some("http://c"), &named).unwrap();
    assert_eq!(named.resource, [pair("service.name", "mine"), pair("region", "eu")]);
}

/// What is told where spans go.
fn aim(given: Option<&str>, set: &[(&str, &str)]) -> String {
    settings(given, set).map_or_else(|error| error.to_string(), |settings| settings.to_string())
}

#[test]
fn endpoints_of_every_kind() {
    let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:1/base");
    let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces/as/it/is");
    let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    assert_eq!(aim(None, &[]), "http://localhost:4318/v1/traces");
    assert_eq!(aim(None, &[all]), "http://all:1/base/v1/traces");
    assert_eq!(aim(None, &[all, traces]), "https://traces:4318/as/it/is");
    assert_eq!(aim(Some("http://given"), &[all, traces]), "http://given:4318/v1/traces");
    assert_eq!(aim(None, &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:7")]), "http://t:7/");
    assert_eq!(aim(None, &[grpc]), "grpc://localhost:4317");
    assert_eq!(aim(None, &[grpc, all]), "grpc://all:1");
    assert_eq!(aim(Some("https://given"), &[grpc]), "grpcs://given:4317");
    assert_eq!(aim(Some("given:5"), &[grpc]), "grpcs://given:5");
    let insecure = ("OTEL_EXPORTER_OTLP_INSECURE", "true");
    assert_eq!(aim(Some("given:5"), &[grpc, insecure]), "grpc://given:5");
}

#[test]
fn what_cannot_be_is_an_error() {
    for url in ["collector:4318", "ftp://c", "http://", "http://c:x", "http://:1", "http://a b"] {
        assert!(aim(Some(url), &[]).starts_with("malformed endpoint"), "{url}");
    }
    let unknown = aim(Some("http://c"), &[("OTEL_EXPORTER_OTLP_PROTOCOL", "thrift")]);
    assert!(unknown.starts_with("unknown protocol `thrift`"), "{unknown}");
    let bad = aim(Some("http://c"), &[("OTEL_EXPORTER_OTLP_HEADERS", "a%20b=c")]);
    assert_eq!(bad, "the header `a b` cannot be sent");
}

#[test]
fn what_is_not_understood_is_told_and_left_aside() {
    let set = [
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "key.pem"),
        ("OTEL_TRACES_SAMPLER", "xray"),
        // Empty is as if it were not set.
        ("OTEL_EXPORTER_OTLP_PROTOCOL", ""),
    ];
    let settings = settings(Some("http://c"), &set).unwrap();
    assert_eq!(settings.warnings.len(), 4, "{:?}", settings.warnings);
    assert_eq!((settings.timeout, settings.gzip, settings.identity), (TIMEOUT, false, None));
}

#[test]
fn batches_are_as_variables_say() {
    let set = [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "512"),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "700"),
    ];
    let [delay, patience] = [20, 700].map(Duration::from_millis);
    let batching = Batching { queue: 100, batch: 100, delay, patience };
    let found = settings(None, &set).unwrap();
    assert_eq!((found.batching, found.warnings.len()), (batching, 0));
    let wrong = [("OTEL_BSP_MAX_QUEUE_SIZE", "0"), ("OTEL_BSP_SCHEDULE_DELAY", "soon")];
    let found = settings(None, &wrong).unwrap();
    assert_eq!(found.batching, Batching::default());
    let expected = [
        "OTEL_BSP_MAX_QUEUE_SIZE is `0`, no number from 1 to 1048576: it is left out",
        "OTEL_BSP_SCHEDULE_DELAY is `soon`, no number from 0 to 86400000: it is left out",
    ];
    assert_eq!(found.warnings, expected);
}
