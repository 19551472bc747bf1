//! What the preloaded library adds to the start of a program, without an agent and with one.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::{Fixture, Mode, Running, Toolchain};

use super::Rounds;
use super::setup::{LIMIT, Programs, cpu_ns, millis};
use super::statistics::estimate;

/// Ways of starting a program: without any library, with one that does nothing, with ours where no agent is, and with
/// ours and an agent that has the code ready.
const WAYS: [&str; 4] = ["nothing", "empty", "absent", "cached"];

/// Programs, how many of their starts by each way a round has, and by how many of the ways.
const SUBJECTS: [(&str, usize, usize); 3] =
    [("true", 170, 3), ("server", 170, 4), ("caddy", 20, 4)];

/// Of programs that an agent has the code for at least so many have to take it: one that is not scheduled for
/// a second goes on without.
const SERVED: f64 = 0.9;

/// Everything that is started, in a folder of its own.
pub struct Starts {
    folder: PathBuf,
    library: PathBuf,
    empty: PathBuf,
    agent: Running,
    address: String,
}

impl Starts {
    /// Makes copies of the programs and starts the agent, which plans for those that it is told of.
    pub fn prepare(programs: &Programs, caddy: &Path) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("gospect-starts-{}", std::process::id()));
        fs::create_dir_all(&folder).context("failed to make a folder")?;
        let library = programs.gospect.with_file_name("libgospect_preload.so");
        ensure!(library.is_file(), "no {}: build gospect-preload as well", library.display());
        let empty = empty_library(&folder)?;
        let server = Fixture::build("httpserver", &Toolchain::at(Path::new("go"))?, Mode::Pie);
        for (name, path) in
            [("true", Path::new("/bin/true")), ("server", &server), ("caddy", caddy)]
        {
            // Those that no service takes: the agent has nothing to do with them.
            for name in [name.to_owned(), format!("{name}-cached")] {
                copy(path, &folder.join(name))?;
            }
        }
        let (config, at) = (folder.join("gospect.toml"), folder.display());
        let text = format!(
            "[agent]\nlisten = \"127.0.0.1:0\"\nexport = \"none\"\nsocket = \"{at}/run/agent.sock\"\n\
             [[service]]\nmatch = {{ exe = [\"{at}/server-cached\", \"{at}/caddy-cached\"] }}\n\
             inject = [\"preload\"]\n\
             [[service]]\nmatch = {{ exe = \"{at}/*-first-*\" }}\ninject = [\"preload\"]\n"
        );
        fs::write(&config, text).context("failed to write a configuration")?;
        let config = config.to_string_lossy().into_owned();
        let agent = Running::start(&programs.gospect, &["agent", "--config", &config]);
        let line = agent.wait_error_line(LIMIT, |line| line.contains("serving http://"));
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.context("no address")?.to_owned();
        let starts = Self { folder, library, empty, agent, address };
        let begun = Instant::now();
        while starts.told("ready")? < 2.0 {
            ensure!(begun.elapsed() < LIMIT, "no plans; {}", starts.agent.stderr());
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(starts)
    }

    /// What the agent says of preloaded programs.
    fn told(&self, key: &str) -> anyhow::Result<f64> {
        let mut stream = TcpStream::connect(&self.address).context("failed to ask the agent")?;
        write!(stream, "GET /status HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body = answer.split_once("\r\n\r\n").context("no answer")?.1;
        let status: Value = serde_json::from_str(body).context("no status")?;
        status["preload"][key].as_f64().with_context(|| format!("no {key}"))
    }

    /// Milliseconds that a program takes to start: a server until it says that it is ready, the others until they
    /// have ended.
    fn start(&self, program: &Path, way: &str) -> anyhow::Result<f64> {
        let mut command = Command::new(program);
        let socket = if way == "absent" { "none/agent.sock" } else { "run/agent.sock" };
        command.env("GOSPECT_AGENT_SOCKET", self.folder.join(socket));
        command.env("HOME", &self.folder).env_remove("XDG_DATA_HOME").env_remove("XDG_CONFIG_HOME");
        match way {
            "nothing" => &mut command,
            "empty" => command.env("LD_PRELOAD", &self.empty),
            _ => command.env("LD_PRELOAD", &self.library),
        };
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("caddy") {
            command.arg("version");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let begun = Instant::now();
        let mut child = command.spawn().with_context(|| format!("failed to start {name}"))?;
        if name.starts_with("server") {
            let mut line = String::new();
            let out = child.stdout.take().context("no output")?;
            BufReader::new(out).read_line(&mut line)?;
            let took = millis(begun.elapsed());
            child.kill()?;
            child.wait()?;
            ensure!(line.contains("\"ready\""), "{name} did not start: {line}");
            return Ok(took);
        }
        let status = child.wait()?;
        let took = millis(begun.elapsed());
        let mut errors = String::new();
        child.stderr.take().context("no errors")?.read_to_string(&mut errors)?;
        ensure!(status.success() && errors.is_empty(), "{name} {way}: {status}: {errors}");
        Ok(took)
    }

    /// One round: all programs, each start by one way after the other; then the first start of a new file each.
    pub fn round(&self, number: usize, rounds: &mut Rounds) -> anyhow::Result<()> {
        for (subject, starts, ways) in SUBJECTS {
            self.round_of(subject, starts, &WAYS[..ways], rounds)?;
        }
        for subject in ["server", "caddy"] {
            let program = self.folder.join(format!("{subject}-first-{number}"));
            copy(&self.folder.join(subject), &program)?;
            self.settle()?;
            let took = self.start(&program, "first")?;
            rounds.add(format!("preload.{subject}.first.ms"), took);
            let before = rounds.last(&format!("preload.{subject}.nothing.ms"));
            rounds.add(format!("preload.{subject}.first.added_ms"), took - before.unwrap_or(0.0));
            self.settle()?;
            fs::remove_file(&program).context("failed to remove a program")?;
        }
        Ok(())
    }

    fn round_of(
        &self,
        subject: &str,
        starts: usize,
        ways: &[&str],
        rounds: &mut Rounds,
    ) -> anyhow::Result<()> {
        let key = |way: &str, what: &str| format!("preload.{subject}.{way}.{what}");
        let before = self.told("served")?;
        let mut times = vec![Vec::new(); ways.len()];
        for turn in 0..starts {
            for at in (0..ways.len()).map(|at| (at + turn) % ways.len()) {
                let way = ways[at];
                let name =
                    if way == "cached" { format!("{subject}-cached") } else { subject.into() };
                times[at].push(self.start(&self.folder.join(name), way)?);
            }
        }
        let medians: Vec<f64> =
            times.iter().map(|times| estimate(times).map_or(f64::NAN, |it| it.median)).collect();
        for (way, median) in ways.iter().zip(&medians) {
            rounds.add(key(way, "ms"), *median);
        }
        for (way, median) in ways.iter().zip(&medians).skip(1) {
            rounds.add(key(way, "added_ms"), median - medians[0]);
        }
        for (way, median) in ways.iter().zip(&medians).skip(2) {
            rounds.add(key(way, "to_empty_ms"), median - medians[1]);
            rounds.add(key(way, "starts"), starts as f64);
        }
        if ways.contains(&"cached") {
            let share = (self.told("served")? - before) / starts as f64;
            ensure!(
                share >= SERVED,
                "{share} of {subject} took their code: {}",
                self.agent.stderr()
            );
            rounds.add(key("cached", "served_share"), share);
        }
        Ok(())
    }

    /// Waits until the agent has nothing to do.
    fn settle(&self) -> anyhow::Result<()> {
        let (begun, pause) = (Instant::now(), Duration::from_millis(250));
        loop {
            let before = cpu_ns(self.agent.pid())?;
            std::thread::sleep(pause);
            let spent = cpu_ns(self.agent.pid())? - before;
            if spent < 0.05 * pause.as_nanos() as f64 || begun.elapsed() > LIMIT {
                return Ok(());
            }
        }
    }
}

impl Drop for Starts {
    fn drop(&mut self) {
        // It ends with the benchmark; that it has ended already is no failure.
        let kill = format!("kill -TERM {}", self.agent.pid());
        let _ = Command::new("sh").args(["-c", &kill]).status();
        self.agent.wait(LIMIT);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::copy(from, to).with_context(|| format!("failed to copy {}", from.display()))?;
    Ok(())
}

/// A library that does nothing, with the segments that ours has.
fn empty_library(folder: &Path) -> anyhow::Result<PathBuf> {
    let (source, made) = (folder.join("empty.c"), folder.join("empty.so"));
    let text = "__attribute__((constructor)) static void none(void) {}\n\
                const char *const word = \"word\";\n";
    fs::write(&source, text).context("failed to write a library")?;
    let flags = ["-shared", "-fPIC", "-nostdlib", "-Wl,-z,now", "-Wl,-z,relro", "-o"];
    let status = Command::new("cc").args(flags).args([&made, &source]).status();
    ensure!(status.context("failed to run cc")?.success(), "cc makes no library");
    Ok(made)
}
