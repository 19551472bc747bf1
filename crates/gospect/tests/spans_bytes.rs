//! What a program says and hears while `gospect spans` watches it: the same bytes as without, its own
//! handling of `traceparent` included.

use std::io::{ErrorKind, Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, Running, newest};

const LIMIT: Duration = Duration::from_secs(120);

/// Times that all is asked.
const TIMES: usize = 5;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// What is asked, each on a connection of its own.
fn requests() -> Vec<String> {
    let get = |path: &str, lines: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n{lines}\r\n")
    };
    let post =
        |lines: &str| format!("POST /echo HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n{lines}");
    let cookie = "c".repeat(8 << 10);
    vec![
        get("/plain", ""),
        get("/plain?a=1&b=2", "X-Odd:  two  words \r\n"),
        get("/chain", &format!("Traceparent: {TRACE}\r\nTracestate: a=1,b=2\r\n")),
        get("/chain", &format!("traceparent: {TRACE}\r\nCookie: {cookie}\r\n")),
        get("/chain", &format!("Cookie: {cookie}\r\ntRACEPARENT: {TRACE}\r\n")),
        get("/chain", ""),
        get("/chain", "Traceparent: 00-0-0-01\r\n"),
        get("/chain", &format!("Traceparent: {TRACE}\r\nTraceparent: {TRACE}\r\n")),
        get("/pieces", ""),
        get("/half", ""),
        get("/panics", ""),
        get("/taken", ""),
        get("/none", ""),
        get("/plain", "").replace("HTTP/1.1", "HTTP/1.0"),
        get("/plain", "").replace("GET", "PROPFIND"),
        get("/plain", "").replace("GET", "HEAD"),
        post("Content-Length: 5\r\n\r\nhello"),
        post("Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"),
        post("Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello"),
        // Ahead of the answers, on one connection.
        get("/plain", "").replace("Connection: close\r\n", "") + &get("/chain", ""),
        "no request\r\n\r\n".to_owned(),
    ]
}

/// All that comes until the other side ends it, in whatever way.
fn read_all(mut stream: impl Read) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return all,
            Ok(len) => all.extend(&piece[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                all.extend(format!("<{:?}>", error.kind()).bytes());
                return all;
            }
        }
    }
}

/// The stock: writes down what it is asked, and answers.
fn stock(told: Sender<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let told = told.clone();
            std::thread::spawn(move || answer(stream, &told));
        }
    });
    address
}

fn answer(mut stream: TcpStream, told: &Sender<Vec<u8>>) {
    let (mut heard, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(len @ 1..) = stream.read(&mut piece) {
        heard.extend(&piece[..len]);
        if heard.ends_with(b"\r\n\r\nwanted") {
            told.send(std::mem::take(&mut heard)).unwrap();
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-Stock: 7\r\n\r\nyes";
            stream.write_all(answer.as_bytes()).unwrap();
        }
    }
}

/// The time of an answer is another one each time.
fn without_date(bytes: Vec<u8>) -> String {
    let text = String::from_utf8(bytes).unwrap();
    let lines = text.split_inclusive('\n').map(|line| match line.starts_with("Date: ") {
        true => format!("Date: {} bytes\r\n", line.len()),
        false => line.to_owned(),
    });
    lines.collect()
}

/// All that goes over the wire, both ways and on both sides of the program.
fn exchange(address: &str, asked: &Receiver<Vec<u8>>) -> String {
    let mut all = String::new();
    for request in std::iter::repeat_n(requests(), TIMES).flatten() {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        all.push_str(&without_date(read_all(&stream)));
        _ = stream.shutdown(Shutdown::Both);
        all.push_str("\n== asks\n");
        for bytes in asked.try_iter() {
            all.push_str(&String::from_utf8(bytes).unwrap());
            all.push('\n');
        }
    }
    all
}

fn address(running: &Running) -> String {
    let listening = running.wait_for("listening", LIMIT);
    listening["addr"].as_str().unwrap().to_owned()
}

/// One process: before gospect attaches, while it watches, and when it has let go; and another one that it
/// starts.
#[test]
fn root_bytes_on_the_wire_are_those_without_gospect() {
    let program = Fixture::build("services", &newest(), Mode::Exe);
    let gospect = Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT);
    let (told, asked) = channel();
    let stock = stock(told);
    let args = ["-part", "serve", "-stock", &stock];
    let mut alone = String::new();
    // Of a round: one server's span for each request that is one, and a client's for each `/chain`.
    let chains = requests().concat().matches("/chain").count();
    let spans = TIMES * (requests().len() + chains);
    for backend in ["uprobe", "trampoline"] {
        let mut running = Running::start(&program, &args);
        let at = address(&running);
        let before = exchange(&at, &asked);
        assert_eq!(before.matches("POST /asked").count(), TIMES * chains, "{before}");
        if alone.is_empty() {
            alone.clone_from(&before);
        }
        assert_eq!(before, alone, "two programs");
        let pid = running.pid().to_string();
        let line = ["spans", "-p", &pid, "--backend", backend, "--format", "json"];
        let mut watching = gospect.start(&[&line[..], &["--queries", "--time"]].concat());
        watching.wait_error_line(LIMIT, |line| line.contains("watching"));
        let during = exchange(&at, &asked);
        watching.signal("INT");
        let output = gospect.finish(&mut watching);
        output.expect_code(0);
        let after = exchange(&at, &asked);
        assert_eq!(during, alone, "{backend}: while it is watched");
        assert_eq!(after, alone, "{backend}: afterwards");
        assert_eq!(output.of_type("span").len(), spans, "{backend}: {}", output.stderr);
        running.close_stdin();
        assert!(running.wait(LIMIT).success(), "{}", running.stderr());

        let line = ["spans", "--backend", backend, "--format", "json", "--"];
        let line = [&line[..], &[program.to_str().unwrap()], &args].concat();
        let mut launched = gospect.start(&line);
        let shown = exchange(&address(&launched), &asked);
        launched.close_stdin();
        let output = gospect.finish(&mut launched);
        output.expect_code(0);
        assert_eq!(shown, alone, "{backend}: from the start");
        assert_eq!(output.of_type("span").len(), spans, "{backend}: {}", output.stderr);
    }
}
