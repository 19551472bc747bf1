//! `gospect doctor`: what of requests can be seen in an executable, and why not the rest.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, Running, Toolchain, newest, oldest};

/// Lines about sensors, the first word of each being how it came out.
fn sensors(name: &str, go: &Toolchain, mode: Mode) -> String {
    let program = Fixture::build(name, go, mode);
    let gospect = Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(Duration::from_secs(120));
    let output = gospect.run(&["doctor", program.to_str().unwrap(), "--format", "json"]);
    let checks = output.of_type("check");
    assert!(checks.iter().any(|check| check["name"] == "runtime layout"), "{output:?}");
    let about = checks.iter().filter(|check| check["area"] == "sensor" || check["area"] == "field");
    let text = |check: &serde_json::Value, key: &str| check[key].as_str().unwrap().to_owned();
    let line = |check: &serde_json::Value| {
        let [status, name, detail] = ["status", "name", "detail"].map(|key| text(check, key));
        format!("{status} {name}: {detail}\n")
    };
    about.map(line).collect()
}

#[test]
fn what_of_requests_can_be_seen_is_told_by_sensor() {
    let expected = "\
ok net/http.serverHandler.ServeHTTP: works, with 11 of 11 fields
RUNok net/http.(*chunkWriter).writeHeader: works, with 2 of 2 fields
ok OWN.writeHeaders: works, with 2 of 2 fields
ok net/http.(*response).finishRequest: works, with 2 of 2 fields
";
    for (go, mode) in [(newest(), Mode::Exe), (oldest(), Mode::Exe), (newest(), Mode::Stripped)] {
        let told = sensors("headers", &go, mode);
        // Since Go 1.27 one library runs the handlers of HTTP/2, whoever serves.
        let run =
            "ok net/http/internal/http2.(*serverConn).runHandler: works, with 11 of 11 fields\n";
        let (run, own) = match go.minor >= 27 {
            true => (run, "net/http/internal/http2.(*serverConn)"),
            false => ("", "net/http.(*http2serverConn)"),
        };
        let expected = expected.replace("RUN", run).replace("OWN", own);
        assert!(told.starts_with(&expected), "go {} {mode}:\n{told}", go.version);
        for line in [
            "note net/http.(*Transport).roundTrip: not in this executable: linked out, inlined, or of other versions only\n",
            "ok google.golang.org/grpc: not in this executable\n",
            "ok database/sql: not in this executable\n",
        ] {
            assert!(told.contains(line), "go {} {mode}:\n{told}", go.version);
        }
        assert!(!told.contains("unavailable"), "go {} {mode}:\n{told}", go.version);
    }
    let program = Fixture::build("counts", &newest(), Mode::Exe);
    let gospect = Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(Duration::from_secs(120));
    let output = gospect.run(&["doctor", program.to_str().unwrap()]);
    let absent = "ok    sensor      net/http                    not in this executable";
    assert!(output.stdout.contains(absent), "{output:?}");
}

/// Somebody who is called as an agent is and answers a byte at a time, for ever, does not keep anybody waiting.
#[test]
fn root_who_never_comes_to_an_end_is_not_heard_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let own = OwnedFd::from(listener.try_clone().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                while stream.write_all(b"H").is_ok() {
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
        }
    });
    let directory = std::env::temp_dir().join(format!("gospect-doctor-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    // A script of that name: its command line is `gospect agent`, and the port is its own too.
    std::fs::write(directory.join("agent"), "read line\n").unwrap();
    let mut line = Command::new("/bin/sh");
    line.arg0("gospect").arg("agent").current_dir(&directory);
    let mut agent = line.stdin(Stdio::piped()).stdout(Stdio::from(own)).spawn().unwrap();
    let program = Running::start(&Fixture::build("parked", &newest(), Mode::Exe), &[] as &[&str]);
    let gospect = Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(Duration::from_secs(120));
    let output = gospect.run(&["doctor", "-p", &program.pid().to_string(), "--format", "json"]);
    drop(agent.stdin.take());
    assert!(agent.wait().is_ok());
    std::fs::remove_dir_all(directory).unwrap();
    let checks = output.of_type("check");
    let name = format!("gospect agent, process {}: it does not answer at", agent.id());
    let told = checks.iter().filter_map(|check| check["detail"].as_str());
    let told: Vec<_> = told.filter(|detail| detail.starts_with(&name)).collect();
    let port = format!(":{}", address.port());
    assert!(matches!(told[..], [why] if why.contains(&port)), "{output:?}");
}
