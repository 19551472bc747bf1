//! The agent's status page, in a browser: what it shows, that it keeps up, dark and light. Needs root and Chromium.

mod common;
#[path = "common/service.rs"]
mod service;

use common::{Directory, fixture, text, until};
use service::{Agent, LIMIT, ask};
use std::path::Path;
use std::process::Command;
use testkit::Running;

/// Milliseconds of a page's own time in which its script asks for it anew several times.
const BUDGET: &str = "--virtual-time-budget=7000";

/// An agent that watches one server, which has answered requests.
struct Watched {
    agent: Agent,
    server: Running,
    directory: Directory,
}

impl Watched {
    fn start() -> Self {
        let directory = Directory::new();
        let program = directory.copy(&fixture("httpserver"), "shop");
        let server = Running::start(&program, &[] as &[&str]);
        let served = text(&server.wait_for("listening", LIMIT)["addr"]);
        let service = format!(
            "[[service]]\nname = \"<shop>\"\nmatch = {{ exe = \"{}\" }}\ntime = true\n",
            program.display()
        );
        let agent = Agent::start(&directory.file("gospect.toml"), &service, &[]);
        until("all of the page is there", || {
            ask(&served, "/order?id=1");
            let process = agent.process(server.pid());
            let is_there = |part: &str| process[part].as_array().is_some_and(|all| !all.is_empty());
            ["requests", "slowest", "runtime", "goroutines"].into_iter().all(is_there)
        });
        Self { agent, server, directory }
    }

    fn finish(mut self) {
        self.agent.stop();
        assert!(self.server.is_running());
    }

    /// Runs the browser on the page; gives what it writes, and what the page's console says.
    fn browse(&self, options: &[&str]) -> (String, String) {
        let home = self.directory.file("home");
        let mut command = Command::new("chromium");
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]);
        command.arg(format!("--user-data-dir={}", home.display())).arg(BUDGET).args(options);
        command.arg(format!("http://{}/", self.agent.address));
        let output = command.output().expect("chromium");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let console = errors.lines().filter(|line| line.contains("CONSOLE"));
        let console = console.map(|line| format!("{line}\n")).collect();
        (String::from_utf8(output.stdout).expect("UTF-8"), console)
    }

    /// How bright the page's corner is, which is nothing but background, in a browser that wants it so.
    fn brightness(&self, scheme: &str) -> u32 {
        let picture = self.directory.file(&format!("{scheme}.png"));
        let wanted = if scheme == "dark" { 0 } else { 1 };
        let scheme = format!("--blink-settings=preferredColorScheme={wanted}");
        let file = format!("--screenshot={}", picture.display());
        self.browse(&["--window-size=1000,800", &scheme, &file]);
        corner(&picture)
    }
}

fn corner(picture: &Path) -> u32 {
    let file = std::io::BufReader::new(std::fs::File::open(picture).expect("a picture"));
    let mut reader = png::Decoder::new(file).read_info().expect("PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    reader.next_frame(&mut pixels).expect("pixels");
    pixels.iter().take(3).map(|&value| u32::from(value)).sum::<u32>() / 3
}

#[test]
fn root_the_page_shows_requests_and_keeps_up() {
    let watched = Watched::start();
    let (page, console) = watched.browse(&["--dump-dom"]);
    assert_eq!(console, "", "nothing that the policy forbids, no failure of the script");
    let after = |before: &str, until: char| {
        let rest = page.split_once(before).unwrap_or_else(|| panic!("no {before} in {page}")).1;
        rest.split(until).next().unwrap_or_default()
    };
    let refreshed: u32 = after("data-refreshed=\"", '"').parse().expect("a number");
    assert!(refreshed >= 2, "{refreshed}");
    assert!(after("<span id=\"fresh\"", '/').contains("as of "), "{page}");
    // The name that is made like markup is text, in the table and over what there is to know.
    let pid = watched.server.pid();
    assert_eq!(after(&format!("<a href=\"#p{pid}\">"), '/'), "&lt;shop&gt;<");
    let process = format!("<details class=\"process\" id=\"p{pid}\" open=\"\"><summary><h2>");
    assert!(after(&process, '\n').starts_with("&lt;shop&gt; <small>pid "), "{page}");
    let requests = after("<table class=\"requests\">", '\n');
    assert!(requests.contains("<td>GET /order</td>"), "{requests}");
    for part in ["Slowest of them", "<polyline points=\"", "<table class=\"groups\">", "running "] {
        assert!(page.contains(part), "{part}: {page}");
    }
    watched.finish();
}

#[test]
fn root_the_page_is_dark_or_light_as_the_browser_wants_it() {
    let watched = Watched::start();
    let (dark, light) = (watched.brightness("dark"), watched.brightness("light"));
    assert!(dark < 60 && light > 200, "{dark} and {light}");
    watched.finish();
}
