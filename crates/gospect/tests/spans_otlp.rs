//! `gospect spans --otlp`: what a collector gets, compared with what is shown.

#[path = "common/trees.rs"]
mod trees;

use serde_json::{Map, Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, Output, Recipe, Running, newest, toolchain};
use trees::{as_text, expected, text, trees};

const LIMIT: Duration = Duration::from_secs(240);

/// What the collector's modules are written for.
const GO: &str = "1.26.6";

/// gospect without what the environment of the tests says.
fn gospect(line: &[&str], variables: &[(&str, &str)]) -> Output {
    let gospect = Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT);
    let mut command = gospect.command(line);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    let mut running = Running::spawn(command);
    running.close_stdin();
    gospect.finish(&mut running)
}

/// A span of OTLP as `--format json` has it, so far as it is compared.
fn of_otlp(span: &Value) -> Value {
    let object = |pairs: &Value| -> Map<String, Value> {
        let each = pairs.as_array().into_iter().flatten().map(|pair| {
            let (kind, value) = pair["value"].as_object().unwrap().iter().next().unwrap();
            let value = match kind.as_str() {
                "intValue" => value.as_str().unwrap().parse::<i64>().unwrap().into(),
                _ => value.clone(),
            };
            (text(pair, "key").to_owned(), value)
        });
        each.collect()
    };
    let attributes = object(&span["attributes"]);
    let list = |key: &str| span[key].as_array().cloned().unwrap_or_default();
    let links = list("links")
        .into_iter()
        .map(|link| serde_json::json!({"by": object(&link["attributes"])["gospect.link_by"]}));
    let number = |key: &str| text(span, key).parse::<u64>().unwrap();
    assert!(number("startTimeUnixNano") < number("endTimeUnixNano"), "{span}");
    serde_json::json!({
        "kind": if span["kind"] == 2 { "server" } else { "client" },
        "name": span["name"],
        "trace_id": span["traceId"],
        "span_id": span["spanId"],
        "parent_span_id": span["parentSpanId"],
        "parent_by": attributes.get("gospect.parent_by"),
        "links": links.collect::<Vec<Value>>(),
        "events": list("events"),
        "status": if span["status"]["code"] == 2 { "error" } else { "unset" },
        "finished": attributes.get("gospect.finished").is_none(),
        "attributes": attributes,
    })
}

/// All spans of requests as `--format json` has them; each comes from the service `shop`.
fn spans_of(requests: &[Value]) -> Vec<Value> {
    let mut spans = Vec::new();
    for from in requests.iter().flat_map(|it| it["resourceSpans"].as_array().unwrap()) {
        let service = json!({"key": "service.name", "value": {"stringValue": "shop"}});
        let resource = from["resource"]["attributes"].as_array().unwrap();
        assert_eq!(resource[0], service);
        assert_eq!(resource.last().unwrap()["key"], "process.pid");
        let [scope] = &from["scopeSpans"].as_array().unwrap()[..] else { panic!("{from}") };
        assert_eq!(scope["scope"]["name"], "gospect");
        spans.extend(scope["spans"].as_array().unwrap().iter().map(of_otlp));
    }
    spans
}

/// OpenTelemetry's Collector: receives OTLP, writes JSON Lines.
struct Collector {
    running: Running,
    file: PathBuf,
    /// Ports of gRPC and HTTP.
    ports: [String; 2],
}

impl Collector {
    fn program() -> PathBuf {
        let recipe = Recipe::new("exe").arg("-ldflags=-s -w");
        Fixture::module("collector", &toolchain(GO), &recipe)
    }

    /// `tls` is what the configuration says of it.
    fn start(name: &str, tls: &Value) -> Self {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.otlp.json"));
        _ = std::fs::remove_file(&file);
        let server = |name: &str| (name.to_owned(), json!({"endpoint": "127.0.0.1:0", "tls": tls}));
        let protocols: Map<_, _> = ["grpc", "http"].into_iter().map(server).collect();
        // JSON is YAML.
        let config = json!({
            "receivers": {"otlp": {"protocols": protocols}},
            "exporters": {"file": {"path": file}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
            },
        });
        let running = Running::start(&Self::program(), &[format!("--config=yaml:{config}")]);
        let ports = ["GRPC", "HTTP"].map(|kind| {
            let starting = format!("Starting {kind} server");
            let line = running.wait_error_line(LIMIT, |line| line.contains(&starting));
            let (_, port) = line.rsplit_once("\"127.0.0.1:").unwrap_or_else(|| panic!("{line}"));
            port.trim_end_matches(['"', '}']).to_owned()
        });
        running.wait_error_line(LIMIT, |line| line.contains("Everything is ready"));
        Self { running, file, ports }
    }

    /// What it got.
    fn stop(mut self) -> Vec<Value> {
        self.running.signal("TERM");
        assert!(self.running.wait(LIMIT).success(), "{}", self.running.stderr());
        let text = std::fs::read_to_string(&self.file).unwrap();
        std::fs::remove_file(&self.file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The same trees at the real collector, by each protocol.
#[test]
fn root_opentelemetrys_collector_gets_the_same_trees() {
    let program = Fixture::build("requests", &newest(), Mode::Exe);
    for (protocol, port) in [("grpc", 0), ("http/protobuf", 1), ("http/json", 1)] {
        let collector = Collector::start(&protocol.replace('/', "-"), &Value::Null);
        let endpoint = format!("http://127.0.0.1:{}", collector.ports[port]);
        let line = [
            "spans",
            "--backend",
            "trampoline",
            "--otlp",
            &endpoint,
            "--otlp-protocol",
            protocol,
            "--",
            program.to_str().unwrap(),
        ];
        let output = gospect(&line, &[("OTEL_SERVICE_NAME", "shop")]);
        output.expect_code(0);
        let shown = as_text(trees(&spans_of(&collector.stop())));
        assert_eq!(shown, expected(1), "{protocol}: {shown}");
        assert!(!output.stderr.contains("not delivered"), "{}", output.stderr);
    }
}

/// By TLS, compressed, to a name: all by the environment.
#[test]
fn root_a_collector_is_spoken_to_by_tls_as_the_environment_says() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("certificates");
    std::fs::create_dir_all(&directory).unwrap();
    let made = Command::new(Collector::program()).arg("certificates").arg(&directory).status();
    assert!(made.unwrap().success());
    let file = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let tls = json!({
        "cert_file": file("server.pem"),
        "key_file": file("server-key.pem"),
        "client_ca_file": file("authority.pem"),
    });
    let program = Fixture::build("database", &newest(), Mode::Exe);
    let line = ["spans", "--backend", "trampoline", "--otlp", "--", program.to_str().unwrap()];
    for (protocol, port) in [("grpc", 0), ("http/protobuf", 1)] {
        let collector = Collector::start("tls", &tls);
        let endpoint = format!("https://localhost:{}", collector.ports[port]);
        let own = [
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", file("client.pem")),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", file("client-key.pem")),
        ];
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", &*file("authority.pem")),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=shop"),
            (own[0].0, &own[0].1),
            (own[1].0, &own[1].1),
        ];
        let output = gospect(&line, &variables);
        output.expect_code(0);
        assert!(output.stderr.contains("18 spans sent to"), "{protocol}: {}", output.stderr);
        // Whoever it does not know is not let in, and a server that is not known gets nothing.
        for left_out in [variables.iter().take(5).copied().collect(), variables[..2].to_vec()] {
            let left_out: Vec<(&str, &str)> = left_out;
            let output = gospect(&line, &left_out);
            output.expect_code(0);
            let told = "0 spans sent to";
            assert!(output.stderr.contains(told), "{protocol}: {}", output.stderr);
            assert!(output.stderr.contains("18 spans were not delivered"), "{}", output.stderr);
        }
        assert_eq!(spans_of(&collector.stop()).len(), 18);
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

/// What the sampler leaves out is not sent, and told.
#[test]
fn root_traces_that_are_not_sampled_are_not_sent() {
    let program = Fixture::build("database", &newest(), Mode::Exe);
    let line = ["spans", "--backend", "trampoline", "--otlp", "http://127.0.0.1:1", "--"];
    let line = [&line[..], &[program.to_str().unwrap()]].concat();
    let sampler = [("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0")];
    let output = gospect(&line, &sampler);
    output.expect_code(0);
    let told = "0 spans sent to http://127.0.0.1:1/v1/traces; 18 spans are of traces that are not sampled\n";
    assert!(output.stderr.contains(told), "{}", output.stderr);
}

/// A collector: answers the first request with 503, the others with 200, and gives the bodies of these.
fn collector() -> (u16, std::thread::JoinHandle<Vec<Value>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = std::thread::spawn(move || {
        let mut taken = Vec::new();
        for turn in 0.. {
            let (stream, _) = listener.accept().unwrap();
            let mut stream = BufReader::new(stream);
            let (mut head, mut length) = (String::new(), 0);
            while stream.read_line(&mut head).unwrap() > 2 {
                let last = head.lines().next_back().unwrap().to_ascii_lowercase();
                if let Some(digits) = last.strip_prefix("content-length: ") {
                    length = digits.parse().unwrap();
                }
            }
            if head.starts_with("GET /end") {
                break;
            }
            assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
            let head = head.to_ascii_lowercase();
            assert!(head.contains("content-type: application/json") && head.contains("api-key: k"));
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let status = if turn == 0 { "503 Service Unavailable" } else { "200 OK" };
            if turn > 0 {
                taken.push(serde_json::from_slice(&body).unwrap());
            }
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
        taken
    });
    (port, serving)
}

/// The same trees at a collector, which is busy at first; with what the environment says.
#[test]
fn root_a_collector_gets_the_same_trees() {
    let (port, serving) = collector();
    let program = Fixture::build("requests", &newest(), Mode::Exe);
    let endpoint = format!("http://127.0.0.1:{port}");
    let line =
        ["spans", "--backend", "trampoline", "--otlp", &endpoint, "--", program.to_str().unwrap()];
    let variables = [
        ("OTEL_SERVICE_NAME", "shop"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
    ];
    let output = gospect(&line, &variables);
    output.expect_code(0);
    std::net::TcpStream::connect(("127.0.0.1", port))
        .unwrap()
        .write_all(b"GET /end\r\n\r\n")
        .unwrap();
    let requests = serving.join().unwrap();
    let shown = as_text(trees(&spans_of(&requests)));
    assert_eq!(shown, expected(1), "{shown}");
    assert!(output.stderr.contains("spans sent to http://"), "{}", output.stderr);
}

/// Nobody listens: what is lost is told.
#[test]
fn root_spans_that_no_collector_takes_are_counted() {
    let program = Fixture::build("database", &newest(), Mode::Exe);
    let program = program.to_str().unwrap();
    let line = ["spans", "--backend", "trampoline", "--otlp", "http://127.0.0.1:1", "--", program];
    let output = gospect(&line, &[]);
    output.expect_code(0);
    assert!(output.stderr.contains("18 spans were not delivered"), "{}", output.stderr);
}
