use super::*;

#[test]
fn a_whole_file_says_all_of_it() {
    let text = r#"
[agent]
listen = "127.0.0.1:0"
socket = "/run/gospect/agent.sock"
export = "http://collector:4317"
protocol = "grpc"
interval = "10s"

[[service]]
name = "shop"
match = { exe = ["/srv/*/shop", "/opt/shop"], port = 8080 }
sensors = ["http", "metrics"]
functions = ["main.*", "main.handle(req.Method)"]
sampling = 0.25
backend = "trampoline"
inject = ["preload", "launch"]
budget = "2.5%"
retry = "2m"
sql = true
headers = ["x-request-id", "User-Agent", "X-Request-Id"]

[[service]]
[service.match]
cgroup = "/system.slice/*"
"#;
    let config = Config::parse(text).unwrap();
    let agent = Agent {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        socket: Some("/run/gospect/agent.sock".into()),
        export: Export::To("http://collector:4317".to_owned()),
        protocol: Some("grpc".to_owned()),
        interval: Some(Duration::from_secs(10)),
    };
    let shop = Service {
        name: Some("shop".to_owned()),
        matching: Match {
            exe: vec![Glob::new("/srv/*/shop"), Glob::new("/opt/shop")],
            port: vec![8080],
            ..Match::default()
        },
        sensors: vec!["http".to_owned()],
        metrics: true,
        functions: vec!["main.*".to_owned(), "main.handle(req.Method)".to_owned()],
        sampling: Some(Sampling {
            name: "parentbased_traceidratio".to_owned(),
            argument: Some("0.25".to_owned()),
        }),
        backend: Backend::Trampoline,
        inject: vec![Way::Preload, Way::Launch],
        budget: Some(2.5),
        retry: Some(Duration::from_secs(120)),
        sql: true,
        queries: false,
        headers: ["X-Request-Id", "User-Agent"].map(|name| name.parse().unwrap()).to_vec(),
        time: false,
    };
    let cgroup = vec![Glob::new("/system.slice/*")];
    let rest = Service { matching: Match { cgroup, ..Match::default() }, ..Service::all() };
    assert_eq!(config, Config { agent, services: vec![shop, rest] });
}

#[test]
fn without_a_service_all_go_programs_are_taken() {
    for text in ["", "# nothing\n", "[agent]\n"] {
        assert_eq!(Config::parse(text).unwrap(), Config::default(), "{text:?}");
    }
    let none = Config::parse("[agent]\nlisten = \"none\"\nexport = \"none\"\n").unwrap();
    assert_eq!((none.agent.listen, none.agent.export), (None, Export::None));
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    assert_eq!(Config::parse(text).unwrap_err().to_string(), expected, "{text}");
}

#[test]
fn a_wrong_key_is_named_with_its_place() {
    refused("\n[agnet]\n", "2:2: unknown key `agnet` in the file: expected one of agent, service");
    refused(
        "[agent]\nlisten = \"none\"\nlissen = 1\n",
        "3:1: unknown key `lissen` in [agent]: expected one of listen, socket, export, protocol, interval",
    );
    refused(
        "[[service]]\nname = \"ä\"\nmatch = { exe = \"ä*\", prot = 1 }",
        "3:23: unknown key `prot` in match: expected one of exe, command, port, container, cgroup",
    );
    refused(
        "[[service]]\nsensor = []\n",
        "2:1: unknown key `sensor` in [[service]]: expected one of name, match, sensors, functions, \
         sampling, backend, inject, budget, retry, sql, queries, headers, time",
    );
}

#[test]
fn a_wrong_value_is_named_with_its_place_and_what_was_expected() {
    let service = |line: &str| format!("[[service]]\n{line}\n");
    refused("[agent]\nlisten = 9463", "2:10: `listen` is 9463: expected ADDRESS:PORT, or \"none\"");
    refused(
        "[agent]\nlisten = \":9463\"",
        "2:10: `listen` is `:9463`: expected ADDRESS:PORT, or \"none\"",
    );
    refused("agent = 1", "1:9: `agent` is 1: expected a table");
    refused("[service]\nname = \"x\"", "1:1: `service` is a table: expected [[service]]");
    refused("[agent]\nsocket = \"x\"", "2:10: `socket` is `x`: expected an absolute path");
    refused(
        "[agent]\ninterval = \"10ms\"",
        "2:12: `interval` is `10ms`: expected a time from a second to an hour, as \"15s\"",
    );
    refused(
        &service("retry = \"2h\""),
        "2:9: `retry` is `2h`: expected a time from a second to an hour, as \"15s\"",
    );
    refused(
        "[agent]\nprotocol = \"udp\"",
        "2:12: `protocol` is `udp`: expected one of grpc, http/protobuf, http/json",
    );
    refused(
        &service("match = { port = [80, 0] }"),
        "2:23: `port` is 0: expected a port, 1 to 65535",
    );
    refused(
        &service("backend = \"ptrace\""),
        "2:11: `backend` is `ptrace`: expected one of auto, uprobe, trampoline, none",
    );
    refused(
        &service("inject = [\"attach\", \"magic\"]"),
        "2:21: `inject` is `magic`: expected one of launch, attach, preload",
    );
    refused(
        &service("budget = 0"),
        "2:10: `budget` is 0: expected a share of a CPU in percent, as 5 or \"5%\"",
    );
    refused(
        &service("functions = [\"main.*\", \"/x\"]"),
        &Config::parse(&service("functions = [\"main.*\", \"/x\"]")).unwrap_err().to_string(),
    );
    let wrong = Config::parse(&service("functions = [\"main.*\", \"/x\"]")).unwrap_err();
    assert_eq!(wrong.place, WrongPlace { line: 2, column: 24 });
    let wrong = Config::parse(&service("sampling = 2.0")).unwrap_err();
    assert!(
        wrong.what.starts_with("`sampling` is 2: expected a share of traces, 0 to 1"),
        "{wrong}"
    );
    let wrong = Config::parse(&service("sampling = \"traceidratio=2\"")).unwrap_err();
    assert!(wrong.what.contains("`traceidratio=2`"), "{wrong}");
    let wrong = Config::parse(&service("sensors = [\"htpp\"]")).unwrap_err();
    assert!(
        wrong.to_string().starts_with("2:12: `sensors` is `htpp`: expected one of http"),
        "{wrong}"
    );
    refused(
        &service("headers = [\"User-Agent\", \"Cookie\"]"),
        "2:26: `headers` has `Cookie`: only headers with names of 8 to 15 bytes can be read, as in \
         `X-Request-Id`",
    );
    refused(&service("headers = 1"), "2:11: `headers` is 1: expected the name of a header");
    refused(&service("sql = 1"), "2:7: `sql` is 1: expected true or false");
}

#[test]
fn what_is_no_toml_is_told_with_its_place() {
    let wrong = Config::parse("[agent]\nlisten = \n").unwrap_err();
    assert_eq!(wrong.place.line, 2, "{wrong}");
    let wrong = Config::parse("[agent]\nlisten = \"a\"\nlisten = \"b\"\n").unwrap_err();
    assert_eq!(wrong.place.line, 3, "{wrong}");
}

#[test]
fn a_port_is_awaited_where_it_would_change_something() {
    use crate::Candidate;
    let text = "[[service]]\nname = \"a\"\nmatch = { exe = \"/a\", port = 80 }\n\
                [[service]]\nname = \"b\"\nmatch = { exe = \"/b\" }\n\
                [[service]]\nname = \"c\"\nmatch = { port = 81 }\n";
    let config = Config::parse(text).unwrap();
    let found = |exe: &str, ports: &[u16]| {
        let ports = ports.to_vec();
        let candidate = Candidate { exe: exe.to_owned(), ports, ..Candidate::default() };
        (config.service_of(&candidate), config.awaits_port(&candidate))
    };
    assert_eq!(found("/a", &[]), (None, true));
    assert_eq!(found("/a", &[80]), (Some(0), false));
    assert_eq!(found("/a", &[81]), (Some(2), true));
    assert_eq!(found("/b", &[]), (Some(1), false));
    assert_eq!(found("/c", &[]), (None, true));
    assert_eq!(found("/c", &[80, 81]), (Some(2), false));
    assert!(config.asks_for_ports());
}

/// What a change of the configuration does to a process that is watched.
#[test]
fn a_service_is_put_in_as_another_one_when_nothing_of_that_differs() {
    let service = |keys: &str| {
        let text = format!("[[service]]\nname = \"shop\"\n{keys}\n");
        Config::parse(&text).unwrap().services.remove(0)
    };
    let plain = service("");
    for keys in ["budget = \"5%\"", "retry = \"2m\"", "sampling = 0.5", "match = { exe = \"/a\" }"]
    {
        assert!(service(keys).is_put_in_as(&plain), "{keys}");
    }
    for keys in [
        "inject = [\"launch\"]",
        "backend = \"uprobe\"",
        "sensors = [\"http\"]",
        "functions = [\"main.*\"]",
        "sql = true",
        "queries = true",
        "headers = \"User-Agent\"",
        "time = true",
    ] {
        assert!(!service(keys).is_put_in_as(&plain), "{keys}");
    }
}
