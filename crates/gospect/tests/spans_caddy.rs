//! `gospect spans` of Debian's caddy: stripped, with cgo, of Go 1.19; every request of many.

#[path = "common/trees.rs"]
mod trees;

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use testkit::{Gospect, Running, signal_process};
use trees::spans_line;

const LIMIT: Duration = Duration::from_secs(240);
const CADDY: &str = "/usr/bin/caddy";

/// Requests of each connection, and connections.
const REQUESTS: usize = 5000;
const CONNECTIONS: usize = 4;

/// Method, path and status of a request.
type Asked = (String, String, u64);

/// What is asked of a connection, each path once.
fn asked(connection: usize) -> impl Iterator<Item = Asked> {
    (0..REQUESTS).map(move |number| {
        let method = if number % 3 == 0 { "POST" } else { "GET" };
        let (place, status) = if number % 10 == 0 { ("no", 404) } else { ("ok", 200) };
        (method.to_owned(), format!("/{place}/{connection}-{number}"), status)
    })
}

fn ask(port: u16, connection: usize) {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    for (method, path, status) in asked(connection) {
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let (mut head, mut length) = (String::new(), 0);
        while answers.read_line(&mut head).unwrap() > 2 {
            let last = head.lines().next_back().unwrap().to_ascii_lowercase();
            if let Some(digits) = last.strip_prefix("content-length: ") {
                length = digits.parse().unwrap();
            }
        }
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {head}");
        answers.read_exact(&mut vec![0; length]).unwrap();
    }
}

/// A port that nobody listens on.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn wait_for_port(port: u16) {
    let end = Instant::now() + LIMIT;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "caddy does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The process that gospect started.
fn child(of: &Running) -> u32 {
    let path = format!("/proc/{0}/task/{0}/children", of.pid());
    let children = std::fs::read_to_string(path).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

fn span(span: &Value) -> Asked {
    let attributes = &span["attributes"];
    let text = |name: &str| attributes[name].as_str().unwrap_or_default().to_owned();
    let status = attributes["http.response.status_code"].as_u64().unwrap_or(0);
    assert_eq!(span["kind"], "server", "{span}");
    assert_eq!((&span["finished"], &span["unavailable"]), (&true.into(), &serde_json::json!({})));
    assert!(span["duration_ns"].as_u64().unwrap() > 0, "{span}");
    (text("http.request.method"), text("url.path"), status)
}

/// Twenty thousand requests, each a span with method, path and status, on both backends.
#[test]
fn root_every_request_of_caddy_is_a_span() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for backend in ["trampoline", "uprobe"] {
        let port = free_port();
        let config = directory.join(format!("Caddyfile-{backend}"));
        let text = format!(
            "{{\n\tadmin off\n\tauto_https off\n}}\n:{port} {{\n\thandle /ok/* {{\n\t\trespond hello 200\n\t}}\n\
             \thandle {{\n\t\trespond no 404\n\t}}\n}}\n"
        );
        std::fs::write(&config, text).unwrap();
        let gospect = Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT);
        let command =
            [CADDY, "run", "--adapter", "caddyfile", "--config", config.to_str().unwrap()];
        let mut running = gospect.start(&spans_line(backend, &[], &command));
        wait_for_port(port);
        std::thread::scope(|scope| {
            for connection in 0..CONNECTIONS {
                scope.spawn(move || ask(port, connection));
            }
        });
        signal_process(child(&running), "TERM");
        let output = gospect.finish(&mut running);
        output.expect_code(0);
        let summary = output.of_type("summary").remove(0);
        assert_eq!((&summary["lost"], &summary["open"]), (&0.into(), &0.into()), "{summary}");
        let mut left: BTreeMap<Asked, usize> = BTreeMap::new();
        for one in output.of_type("span").iter().map(span) {
            *left.entry(one).or_default() += 1;
        }
        for one in (0..CONNECTIONS).flat_map(asked) {
            assert_eq!(left.remove(&one), Some(1), "{backend}: {one:?}");
        }
        assert!(left.is_empty(), "{backend}: {left:?}");
        std::fs::remove_file(&config).unwrap();
    }
}
