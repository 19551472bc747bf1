//! Debian's caddy: a stripped cgo program that nobody built for tracing, 1,000 requests one after
//! the other, without gospect and with it, launched and attached to while it serves.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::Running;

use super::Rounds;
use super::setup::{LIMIT, Programs, capture, child, cpu_ns, end, lost_share, status_kib, summary};

/// What every body is.
const BODY: &str = "hello from caddy";
/// Requests that are measured.
const REQUESTS: &str = "1000";
/// All that is traced, except where it says otherwise.
const PATTERN: &str = "net/http.*";
/// The function that the uprobe row has; every request calls it once.
const ONE: &str = "github.com/caddyserver/caddy/v2/modules/caddyhttp.(*Server).ServeHTTP";

/// A way of running it: its name, whether gospect launches it, backend and pattern.
type Way = (&'static str, bool, Option<(&'static str, &'static str)>);

const WAYS: [Way; 4] = [
    ("untraced", false, None),
    ("attached", false, Some(("trampoline", PATTERN))),
    ("launched", true, Some(("trampoline", PATTERN))),
    ("uprobe_one", false, Some(("uprobe", ONE))),
];

/// What asking gave.
pub struct Load {
    /// Requests that were answered rightly: all of them.
    pub requests: f64,
    /// Median of the requests' times, microseconds.
    pub p50_us: f64,
}

/// Where caddy is, and a folder for what it writes.
pub struct Caddy {
    program: PathBuf,
    folder: PathBuf,
}

impl Caddy {
    /// Looks for it on the path.
    pub fn find() -> anyhow::Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = std::env::split_paths(&path)
            .map(|folder| folder.join("caddy"))
            .find(|program| program.is_file())
            .context("no caddy on PATH: `scripts/setup bench` installs what is measured")?;
        let folder = std::env::temp_dir().join(format!("gospect-bench-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("failed to make {folder:?}"))?;
        Ok(Self { program, folder })
    }

    /// The file.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A configuration that answers on a free port, and its address.
    fn configure(&self) -> anyhow::Result<(PathBuf, String)> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let text = format!(
            "{{\n\tadmin off\n\tauto_https off\n}}\nhttp://{address} {{\n\trespond `{BODY}`\n}}\n"
        );
        let path = self.folder.join(format!("Caddyfile-{port}"));
        fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
        Ok((path, address))
    }

    /// One that answers, and its address.
    pub fn serve(&self) -> anyhow::Result<(Running, String)> {
        let (config, address) = self.configure()?;
        let mut args = ["run", "--adapter", "caddyfile", "--config"].map(str::to_owned).to_vec();
        args.push(config.to_string_lossy().into_owned());
        let running = self.start(&self.program, &args);
        answers(&address)?;
        Ok((running, address))
    }

    /// Asks so often, by so many connections that pause behind each answer.
    pub fn ask(
        &self,
        programs: &Programs,
        address: &str,
        requests: u32,
        at_once: u32,
        pause: &str,
    ) -> anyhow::Result<Load> {
        let (requests, at_once) = (requests.to_string(), at_once.to_string());
        let done = finished(asking(programs, address, &requests, &at_once, "60s", pause))?;
        let number = |key: &str| done[key].as_f64().with_context(|| format!("no {key}"));
        Ok(Load { requests: number("requests")?, p50_us: number("p50_ns")? / 1e3 })
    }

    /// `program` with `args`, in an environment where caddy writes into our folder only.
    fn start(&self, program: &Path, args: &[String]) -> Running {
        let mut command = Command::new(program);
        command.args(args).env("HOME", &self.folder).env_remove("XDG_DATA_HOME");
        command.env_remove("XDG_CONFIG_HOME");
        Running::spawn(command)
    }
}

impl Drop for Caddy {
    fn drop(&mut self) {
        // A folder of ours in the one for temporary files: left there it harms nobody.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// One round: each way once, each in a caddy of its own.
pub fn round(
    programs: &Programs,
    caddy: &Caddy,
    number: usize,
    rounds: &mut Rounds,
) -> anyhow::Result<()> {
    for way in 0..WAYS.len() {
        one(programs, caddy, WAYS[(way + number) % WAYS.len()], rounds)?;
    }
    for way in ["attached", "launched", "uprobe_one"] {
        for what in ["mean_us", "p50_us", "cpu_us"] {
            rounds.add_ratio(
                format!("caddy.{way}/untraced.{what}"),
                &format!("caddy.{way}.{what}"),
                &format!("caddy.untraced.{what}"),
            );
        }
    }
    Ok(())
}

fn one(
    programs: &Programs,
    caddy: &Caddy,
    (name, is_launched, how): Way,
    rounds: &mut Rounds,
) -> anyhow::Result<()> {
    let key = |what: &str| format!("caddy.{name}.{what}");
    let (config, address) = caddy.configure()?;
    let mut args = vec![caddy.program.to_string_lossy().into_owned()];
    args.extend(["run", "--adapter", "caddyfile", "--config"].map(str::to_owned));
    args.push(config.to_string_lossy().into_owned());
    let begin = Instant::now();
    let (server, mut gospect) = match how {
        Some((backend, pattern)) if is_launched => {
            let mut all = traced(backend, pattern);
            all.push("--".to_owned());
            all.extend(args);
            (None, Some(caddy.start(&programs.gospect, &all)))
        }
        _ => (Some(caddy.start(&caddy.program, &args[1..])), None),
    };
    answers(&address)?;
    rounds.add(key("start_ms"), begin.elapsed().as_secs_f64() * 1e3);
    let pid = match (&server, &gospect) {
        (Some(server), _) => server.pid(),
        (None, Some(gospect)) => child(gospect.pid())?,
        (None, None) => unreachable!("one of both was started"),
    };
    let mut served = 0.0;
    let mut serve = |load: Running| -> anyhow::Result<Value> {
        let done = finished(load)?;
        served += done["requests"].as_f64().unwrap_or(0.0);
        Ok(done)
    };
    // Where gospect attaches it does so under this load.
    let load = asking(programs, &address, "0", "4", "2s", "0s");
    if let (Some((backend, pattern)), false) = (how, is_launched) {
        gospect = Some(programs.attach(backend, pid, &[pattern.to_owned()]).0);
    }
    serve(load)?;
    let before = cpu_ns(pid)?;
    let done = serve(asking(programs, &address, REQUESTS, "1", "60s", "0s"))?;
    let spent = cpu_ns(pid)? - before;
    for what in ["mean", "sd", "p50", "p99"] {
        let ns = done[format!("{what}_ns")].as_f64().with_context(|| format!("no {what}"))?;
        rounds.add(key(&format!("{what}_us")), ns / 1e3);
    }
    rounds.add(key("cpu_us"), spent / done["requests"].as_f64().unwrap_or(f64::NAN) / 1e3);
    rounds.add(key("rss_kib"), status_kib(pid, "VmRSS:")?);
    let load = asking(programs, &address, "0", "4", "1s", "0s");
    if let Some(mut gospect) = gospect {
        let summary = if is_launched {
            serve(load)?;
            // It ends with what it launched.
            let kill = Command::new("sh").args(["-c", &format!("kill -TERM {pid}")]).status()?;
            ensure!(kill.success(), "failed to end caddy");
            gospect.wait(LIMIT);
            summary(&gospect)?
        } else {
            let summary = end(gospect)?;
            serve(load)?;
            summary
        };
        rounds.add(key("lost_share"), lost_share(&summary));
        for what in ["functions", "attach_ms", "detach_ms"] {
            rounds.add(key(what), summary[what].as_f64().unwrap_or(f64::NAN));
        }
    } else {
        serve(load)?;
    }
    rounds.add(key("right_responses"), served);
    Ok(())
}

fn traced(backend: &str, pattern: &str) -> Vec<String> {
    let mut all = capture(backend, &[pattern.to_owned()]);
    all.extend(["--args", "none", "--results", "none"].map(str::to_owned));
    all
}

/// Starts to ask.
fn asking(
    programs: &Programs,
    address: &str,
    n: &str,
    at_once: &str,
    time: &str,
    pause: &str,
) -> Running {
    let args = ["-addr", address, "-n", n, "-c", at_once, "-for", time, "-expect", BODY];
    let args = [&args[..], &["-pause", pause]].concat();
    let args = args.iter().chain(&["-paths", "/"]);
    Running::start(&programs.load, &args.collect::<Vec<_>>())
}

/// Waits until all has been asked, and makes sure that every answer was right.
fn finished(mut load: Running) -> anyhow::Result<Value> {
    load.wait(LIMIT);
    let done = load.wait_for("done", Duration::from_secs(1));
    ensure!(done["failures"] == 0, "requests failed: {done}");
    Ok(done)
}

/// Waits until somebody listens.
fn answers(address: &str) -> anyhow::Result<()> {
    let begin = Instant::now();
    while std::net::TcpStream::connect(address).is_err() {
        ensure!(begin.elapsed() < LIMIT, "nobody listens at {address}");
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
