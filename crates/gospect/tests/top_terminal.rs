//! `gospect top` in a real terminal.

mod common;

use std::process::Command;

use testkit::{Fixture, Mode, Running, newest, signal_process};

use common::{LIMIT, any_gospect, expect_refusal, until};

/// A tmux server of our own with one window, ended on drop.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// Runs a command line of the shell in a window of this size.
    fn start(name: &str, width: u32, height: u32, line: &str) -> Self {
        let socket = format!("gospect-test-{name}-{}", std::process::id());
        let terminal = Self { socket };
        let (width, height) = (width.to_string(), height.to_string());
        let new = ["new-session", "-d", "-s", "top", "-x", &width, "-y", &height, line];
        terminal.tmux(&new);
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-L", &self.socket, "-f", "/dev/null"])
            .args(args)
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TMUX")
            .output()
            .expect("tmux: run scripts/setup test");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// What is on the screen, with escape sequences for `-e`.
    fn screen(&self, options: &[&str]) -> String {
        let mut args = vec!["capture-pane", "-p", "-t", "top"];
        args.extend(options);
        self.tmux(&args)
    }

    /// The pid of what the shell in the window runs.
    fn child(&self) -> u32 {
        let shell = self.tmux(&["list-panes", "-t", "top", "-F", "#{pane_pid}"]);
        let children = format!("/proc/{0}/task/{0}/children", shell.trim());
        let children = std::fs::read_to_string(children).expect("its children");
        children.trim().parse().expect("one child")
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", "-t", "top", key]);
    }

    #[track_caller]
    fn wait(&self, words: &str) -> String {
        let mut screen = String::new();
        until(&format!("{words:?} on the screen"), || {
            screen = self.screen(&[]);
            screen.contains(words)
        });
        screen
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn keys_work_and_the_terminal_is_left_as_it_was() {
    let program = Fixture::build("metrics", &newest(), Mode::Exe);
    let running = Running::start(&program, &["-parked", "37"]);
    running.wait_for("ready", LIMIT);
    let (gospect, pid) = (env!("CARGO_BIN_EXE_gospect"), running.pid());
    let line = format!(
        "echo before; NO_COLOR=1 {gospect} top -p {pid} --interval 200ms; echo \"left $?\"; read end"
    );
    let terminal = Terminal::start("keys", 80, 24, &line);
    let screen = terminal.wait("q quit");
    let screen = if screen.contains("metrics") { screen } else { terminal.wait("metrics") };
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[0].starts_with(" gospect top  1 process, CPU "), "{screen}");
    assert!(lines[1].starts_with("    PID SERVICE "), "{screen}");
    assert!(lines[2].trim_start().starts_with(&format!("{pid} metrics")), "{screen}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{screen}");
    // Of those that the fixture parks, by what they wait for.
    terminal.wait("chan receive ");

    terminal.press("Enter");
    let groups = terminal.wait("main.start ");
    assert!(groups.contains("by the statement that started them"), "{groups}");
    terminal.press("Tab");
    terminal.wait("by what they wait for");
    terminal.wait("chan receive");
    terminal.press("Escape");
    terminal.wait("SERVICE");
    terminal.press("?");
    terminal.wait("Keys of gospect top");
    terminal.press("x");
    terminal.wait("SERVICE");
    // Without colour: of the attributes none that sets one.
    let shown = terminal.screen(&["-e"]);
    let attributes = shown.split("\x1b[").skip(1).filter_map(|rest| rest.split_once('m'));
    let numbers = attributes.flat_map(|(codes, _)| codes.split(';'));
    let colours: Vec<u32> = numbers
        .filter_map(|code| code.parse().ok())
        .filter(|code| matches!(code, 30..=38 | 40..=48 | 90..=107))
        .collect();
    assert_eq!(colours, [] as [u32; 0], "{shown:?}");
    terminal.press("q");
    let after = terminal.wait("left 0");
    assert!(after.contains("before") && !after.contains("SERVICE"), "{after}");
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let program = Fixture::build("metrics", &newest(), Mode::Exe);
    let running = Running::start(&program, &["-parked", "3"]);
    let (gospect, pid) = (env!("CARGO_BIN_EXE_gospect"), running.pid());
    let line = format!("{gospect} top -p {pid}; echo \"left $?\"; read end");
    let terminal = Terminal::start("signal", 200, 50, &line);
    let screen = terminal.wait("HEAP TREND");
    assert!(screen.lines().next().is_some_and(|line| line.chars().count() <= 200), "{screen}");
    signal_process(terminal.child(), "TERM");
    let after = terminal.wait("left 0");
    assert!(!after.contains("HEAP TREND"), "{after}");
}

/// The window is closed, and so is the terminal; whether its shell had SIGHUP ignored or not.
#[test]
fn it_ends_with_its_terminal() {
    let program = Fixture::build("metrics", &newest(), Mode::Exe);
    let running = Running::start(&program, &["-parked", "3"]);
    let (gospect, pid) = (env!("CARGO_BIN_EXE_gospect"), running.pid());
    for (name, before) in [("closed", ""), ("nohup", "trap '' HUP; ")] {
        let line = format!("{before}{gospect} top -p {pid}; echo left");
        let terminal = Terminal::start(name, 200, 50, &line);
        terminal.wait("HEAP TREND");
        let child = terminal.child();
        terminal.tmux(&["kill-server"]);
        until(&format!("{name}: it has ended"), || {
            std::fs::read_to_string(format!("/proc/{child}/stat"))
                .map_or(true, |stat| stat.contains(") Z "))
        });
    }
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    let own = std::process::id().to_string();
    expect_refusal(&any_gospect().run(&["top", "-p", &own]), 2, &["terminal", "metrics"]);
}
