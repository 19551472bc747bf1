//! `gospect spans`: URLs as they go out, and peers that have an address or none.

#[path = "common/trees.rs"]
mod trees;

use serde_json::Value;
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, newest, oldest};
use trees::{spans, spans_line, text, without_port};

/// In the order of `fixtures/go/urls`, each as its client and its server have it.
const TOLD: &str = "\
http://127.0.0.1 / by 127.0.0.1
http://127.0.0.1/a/b /a/b by 127.0.0.1
http://127.0.0.1/a%2Fb /a/b by 127.0.0.1
http://127.0.0.1/%FF /\u{fffd} by 127.0.0.1
http://127.0.0.1/a%20b%21 /a b! by 127.0.0.1
http://127.0.0.1/a%21 /a! by 127.0.0.1
http://127.0.0.1/%C3%A4;c=d /ä;c=d by 127.0.0.1
http://127.0.0.1/ESCAPED… /LETTERS… by 127.0.0.1
http://127.0.0.1/%2fRAW… //LETTERS… by 127.0.0.1
http://127.0.0.1/other /other by 127.0.0.1
http://127.0.0.1/opaque%2Fpath /opaque/path by 127.0.0.1
http://by.unix/path /path by nobody
";

/// 128 bytes are captured of a text: `/ä…` is cut through its last letter, and so is `/%2f%C3%A4…` through an escape.
fn expected() -> String {
    let escaped = format!("{}%C3", "%C3%A4".repeat(63));
    let raw = format!("{}%C3%", "%C3%A4".repeat(20));
    let told = TOLD.replace("ESCAPED", &escaped).replace("RAW", &raw);
    told.replace("LETTERS", &"ä".repeat(63))
}

fn told(spans: &[Value]) -> String {
    let of = |kind: &str| -> Vec<&Value> {
        let mut spans: Vec<&Value> = spans.iter().filter(|span| span["kind"] == kind).collect();
        spans.sort_by_key(|span| span["start_ns"].as_u64());
        spans
    };
    let (clients, servers) = (of("client"), of("server"));
    assert_eq!(clients.len(), servers.len());
    let line = |(client, server): (&&Value, &&Value)| {
        let [client, server] = [client, server].map(|span| &span["attributes"]);
        let [peer, address] =
            ["network.peer.address", "client.address"].map(|name| text(server, name));
        assert_eq!(peer, address);
        let peer = if peer.is_empty() { "nobody" } else { peer };
        let url = without_port(text(client, "url.full"));
        format!("{url} {} by {peer}\n", text(server, "url.path"))
    };
    clients.iter().zip(&servers).map(line).collect()
}

#[test]
fn root_urls_are_told_as_they_go_out() {
    for (go, backend) in [(newest(), "uprobe"), (newest(), "trampoline"), (oldest(), "trampoline")]
    {
        let program = Fixture::build("urls", &go, Mode::Exe);
        let gospect = Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(Duration::from_secs(120));
        let output = gospect.run(&spans_line(backend, &[], &[program.to_str().unwrap()]));
        output.expect_code(0);
        let shown = told(&spans(&output, &format!("go {} {backend}", go.version)));
        assert_eq!(shown, expected(), "go {} {backend}:\n{shown}", go.version);
    }
}
