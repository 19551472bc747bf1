//! The Go compiler with trampolines in all of its functions, the runtime's included: it compiles
//! net/http, and the object file has to be the same byte for byte.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use testkit::Running;

use super::Rounds;
use super::setup::{LIMIT, Programs, capture, child, lost_share, millis, summary};

/// How often the compiler's CPU time is read while it runs; the last reading counts.
const LOOK: Duration = Duration::from_millis(2);

/// A compilation that can be repeated.
pub struct Compilation {
    program: PathBuf,
    args: Vec<String>,
    folder: PathBuf,
}

impl Compilation {
    /// Of net/http, with the export data of what it imports.
    pub fn prepare() -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("gospect-compile-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("failed to make {folder:?}"))?;
        let imports = r#"{{if .Export}}packagefile {{.ImportPath}}={{.Export}}{{end}}"#;
        let mut config = go(&["list", "-export", "-deps", "-f", imports, "net/http"])?;
        // Packages of the standard library that are vendored are imported by their short names.
        let maps = r#"{{range $from, $to := .ImportMap}}importmap {{$from}}={{$to}}
{{end}}"#;
        config += &go(&["list", "-f", maps, "net/http"])?;
        let path = folder.join("importcfg");
        fs::write(&path, config).with_context(|| format!("failed to write {path:?}"))?;
        let files = r#"{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}
{{end}}"#;
        let files = go(&["list", "-f", files, "net/http"])?;
        let tools = go(&["env", "GOTOOLDIR"])?;
        let mut args = ["-p", "net/http", "-std", "-complete", "-pack", "-c", "1"].to_vec();
        let config = path.to_string_lossy();
        args.extend(["-importcfg", &*config]);
        let args = args.into_iter().chain(files.lines()).map(str::to_owned).collect();
        Ok(Self { program: Path::new(tools.trim()).join("compile"), args, folder })
    }

    fn output(&self, name: &str) -> (PathBuf, Vec<String>) {
        let out = self.folder.join(name);
        let mut args = vec!["-o".to_owned(), out.to_string_lossy().into_owned()];
        args.extend(self.args.iter().cloned());
        (out, args)
    }
}

impl Drop for Compilation {
    fn drop(&mut self) {
        // A folder of ours in the one for temporary files: left there it harms nobody.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// One round: without and with.
pub fn round(
    programs: &Programs,
    compilation: &Compilation,
    rounds: &mut Rounds,
) -> anyhow::Result<()> {
    let (plain, args) = compilation.output("plain.a");
    let begin = Instant::now();
    let running = Running::start(&compilation.program, &args);
    let pid = running.pid();
    let cpu = until_end(running, pid)?.0;
    rounds.add("compile.untraced.cpu_ms".into(), cpu);
    rounds.add("compile.untraced.wall_ms".into(), millis(begin.elapsed()));

    let (traced, args) = compilation.output("traced.a");
    let mut all = capture("trampoline", &["*".to_owned()]);
    all.extend(["--args", "none", "--results", "none", "--"].map(str::to_owned));
    all.push(compilation.program.to_string_lossy().into_owned());
    all.extend(args);
    // Without the right to load BPF, functions that carry no trampolines are left out. A uprobe
    // in one of them (runtime.mallocgc's are among them) would cost more than all trampolines.
    let mut command = Command::new("setpriv");
    command.arg("--bounding-set=-sys_admin,-bpf,-perfmon").arg(&programs.gospect).args(all);
    let begin = Instant::now();
    let running = Running::spawn(command);
    let pid = loop {
        ensure!(begin.elapsed() < LIMIT, "the compiler does not start");
        if let Ok(pid) = child(running.pid()) {
            break pid;
        }
        std::thread::sleep(LOOK);
    };
    let (cpu, gospect) = until_end(running, pid)?;
    let summary = summary(&gospect)?;
    ensure!(fs::read(&plain)? == fs::read(&traced)?, "the compiler made something else");
    let number = |what: &str| summary[what].as_f64().unwrap_or(f64::NAN);
    let records = number("entries") + number("exits") + number("lost");
    let key = |what: &str| format!("compile.trampoline.{what}");
    rounds.add(key("cpu_ms"), cpu);
    rounds.add(key("wall_ms"), millis(begin.elapsed()));
    rounds.add(key("functions"), number("functions"));
    rounds.add(key("records"), records);
    rounds.add(key("lost_share"), lost_share(&summary));
    let untraced = rounds.last("compile.untraced.cpu_ms").unwrap_or(f64::NAN);
    rounds.add(key("ns_per_record"), (cpu - untraced) * 1e6 / records);
    rounds.add_ratio(
        "compile.trampoline/untraced.cpu".into(),
        "compile.trampoline.cpu_ms",
        "compile.untraced.cpu_ms",
    );
    Ok(())
}

/// Waits for `running` and gives the CPU time of `pid`, milliseconds, as it was last read. A process
/// that is waited for takes what it has used with it.
fn until_end(mut running: Running, pid: u32) -> anyhow::Result<(f64, Running)> {
    let begin = Instant::now();
    let mut cpu = 0.0;
    while running.is_running() {
        ensure!(begin.elapsed() < LIMIT, "it does not end");
        cpu = cpu_ms(pid).unwrap_or(cpu).max(cpu);
        std::thread::sleep(LOOK);
    }
    let status = running.wait(LIMIT);
    ensure!(status.success(), "{}", running.stderr());
    Ok((cpu, running))
}

/// User and system time of all threads that a process has or had (`stat`, fields 14 and 15).
fn cpu_ms(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    let ticks: f64 = ticks.map(|it| it.unwrap_or(0.0)).sum();
    // CLK_TCK is 100 on every Linux that gospect runs on.
    Some(ticks * 10.0)
}

fn go(args: &[&str]) -> anyhow::Result<String> {
    let out = Command::new("go").args(args).env("GOFLAGS", "-mod=mod").output();
    let out = out.context("failed to run go")?;
    ensure!(out.status.success(), "go {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
