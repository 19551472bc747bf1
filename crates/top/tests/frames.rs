//! Whole frames, rendered to a buffer.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};
use std::path::Path;
use testkit::assert_golden;
use top::{App, Asked, Go, Group, GroupBy, Key, Observation, Palette, States, View};

const SECOND: u64 = 1_000_000_000;

fn frame(app: &App, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    terminal
}

/// The text of a frame, without what is blank at the ends of lines.
fn text(app: &App, width: u16, height: u16) -> String {
    let terminal = frame(app, width, height);
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..height {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    assert_golden(path, actual);
}

fn caddy(step: u64) -> Observation {
    let go = Go {
        heap_live: Some((5 + step * 3 % 11) << 20),
        heap_goal: Some(16 << 20),
        sys: Some(40 << 20),
        memory_limit: None,
        gogc_percent: Some(100),
        allocated: Some((step * 12) << 20),
        cycles: Some(120 + step / 2),
        phase: Some("mark"),
        gc_cpu: Some(0.0123),
        pauses: vec![93_000, 64_000, 120_500],
        goroutines: Some(1234),
        states: Some(States {
            runnable: 3,
            running: 2,
            syscall: 29,
            waiting: 1200,
            other: 0,
            reasons: vec![
                ("IO wait".to_owned(), 900),
                ("select".to_owned(), 200),
                ("chan receive".to_owned(), 70),
                ("sleep".to_owned(), 20),
                ("sync.Mutex.Lock".to_owned(), 10),
            ],
        }),
        run_queue: Some(3),
        latency: Some((12_000, 1_200_000)),
        processors: Some(2),
        processors_running: Some(1),
        threads_idle: Some(4),
    };
    Observation {
        pid: 4242,
        start: 7,
        exe: "/usr/bin/caddy".to_owned(),
        service: "caddy".to_owned(),
        go_version: Some("go1.19.8".to_owned()),
        restricted: None,
        cpu_seconds: step as f64 * 0.123,
        resident: 44 << 20,
        threads: 12,
        open_fds: Some(15),
        go: Some(go),
    }
}

/// With a name that tries to reach the terminal, and counters that go back once.
fn shop(step: u64) -> Observation {
    let mut of = caddy(step);
    of.pid = 977;
    of.service = "a shop with a long name\u{1b}[31m".to_owned();
    of.exe = "/srv/shop/bin/shop".to_owned();
    of.go_version = Some("go1.27.3".to_owned());
    of.cpu_seconds = step as f64 * 1.5;
    of.resident = 2 << 30;
    if let Some(go) = &mut of.go {
        go.states = None;
        go.goroutines = Some(1_000_000);
        go.memory_limit = Some(3 << 30);
        go.gogc_percent = None;
        go.heap_goal = None;
        go.pauses.clear();
        go.phase = Some("off");
        go.run_queue = Some(12_345);
        go.latency = None;
        if step == 4 {
            go.allocated = Some(0);
        }
    }
    of
}

fn not_go(step: u64) -> Observation {
    Observation {
        pid: 1,
        start: 1,
        exe: "/usr/lib/systemd/systemd".to_owned(),
        service: "systemd".to_owned(),
        restricted: Some("/usr/lib/systemd/systemd: not a Go executable".to_owned()),
        cpu_seconds: step as f64 * 0.001,
        resident: 12 << 20,
        threads: 1,
        ..Observation::default()
    }
}

fn observed(palette: Palette) -> App {
    let mut app = App::new(palette);
    for step in 0..=4 {
        let all = vec![not_go(step), shop(step), caddy(step)];
        app.observe(all, step * SECOND, format!("12:00:0{step}"));
    }
    app
}

#[test]
fn the_table_fits_small_and_large_terminals() {
    let mut app = observed(Palette::Plain);
    golden("table-80x24.txt", &text(&app, 80, 24));
    golden("table-200x50.txt", &text(&app, 200, 50));
    // Too low for details.
    golden("table-80x12.txt", &text(&app, 80, 12));
    golden("table-40x10.txt", &text(&app, 40, 10));
    assert_eq!(app.key(Key::Down), Asked::Nothing);
    golden("picked-80x24.txt", &text(&app, 80, 24));
    app.key(Key::End);
    golden("restricted-80x24.txt", &text(&app, 80, 24));
}

#[test]
fn no_terminal_is_too_small() {
    let app = observed(Palette::Plain);
    for (width, height) in [(1, 1), (2, 3), (10, 2), (300, 1), (5, 60)] {
        frame(&app, width, height);
    }
    frame(&App::new(Palette::Plain), 80, 24);
}

#[test]
fn keys_sort_pick_and_stop() {
    let pids = |app: &App| -> Vec<u32> {
        let text = text(app, 80, 24);
        let rows = text.lines().skip(2).take(3);
        rows.map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect()
    };
    let mut app = observed(Palette::Plain);
    assert_eq!(pids(&app), [977, 4242, 1]);
    app.key(Key::Char('i'));
    assert_eq!(pids(&app), [1, 4242, 977]);
    app.key(Key::Char('P'));
    assert_eq!(pids(&app), [1, 977, 4242]);
    app.key(Key::Right);
    assert_eq!(pids(&app), [977, 4242, 1], "by service");
    app.key(Key::Char('A'));
    assert_eq!(pids(&app), [4242, 1, 977], "what went back is not known");
    app.key(Key::Char(' '));
    assert!(app.is_frozen());
    app.observe(vec![caddy(9)], 9 * SECOND, "later".to_owned());
    assert_eq!(pids(&app), [4242, 1, 977]);
    app.key(Key::Char(' '));
    app.observe(vec![caddy(9)], 9 * SECOND, "later".to_owned());
    assert_eq!(text(&app, 80, 24).lines().nth(3), Some(""));
    assert_eq!(app.key(Key::Char('q')), Asked::Quit);
}

#[test]
fn an_id_that_another_process_has_begins_anew() {
    let mut app = observed(Palette::Plain);
    let mut other = caddy(5);
    other.start = 8;
    app.observe(vec![other], 5 * SECOND, "12:00:05".to_owned());
    let text = text(&app, 80, 24);
    let row = text.lines().nth(2).unwrap();
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["4242", "caddy", "-", "44.0M", "9.0M", "16.0M", "-", "1234", "3", "-"]
    );
}

#[test]
fn groups_are_asked_for_shown_and_left() {
    let mut app = observed(Palette::Plain);
    app.key(Key::Down);
    assert_eq!(app.key(Key::Enter), Asked::Groups { pid: 4242, by: GroupBy::Site });
    assert_eq!(app.wanted_groups(), Some((4242, GroupBy::Site)));
    golden("groups-waiting-80x24.txt", &text(&app, 80, 24));
    let group = |number: u64| Group {
        key: format!("main.serve.func{number} /srv/main.go:{number}"),
        count: 10_000 / (number + 1),
    };
    app.set_groups(4242, GroupBy::State, Ok(Vec::new()));
    app.set_groups(4242, GroupBy::Site, Ok((0..40).map(group).collect()));
    golden("groups-80x24.txt", &text(&app, 80, 24));
    app.key(Key::PageDown);
    golden("groups-scrolled-80x24.txt", &text(&app, 80, 24));
    assert_eq!(app.key(Key::Tab), Asked::Groups { pid: 4242, by: GroupBy::Reason });
    app.set_groups(4242, GroupBy::Reason, Err("no permission".to_owned()));
    golden("groups-refused-80x24.txt", &text(&app, 80, 24));
    app.key(Key::Back);
    assert_eq!((app.view(), app.wanted_groups()), (View::Table, None));
}

#[test]
fn help_names_the_keys() {
    let mut app = observed(Palette::Plain);
    app.key(Key::Char('?'));
    golden("help-80x24.txt", &text(&app, 80, 24));
    app.key(Key::Char('x'));
    assert_eq!(app.view(), View::Table);
}

/// Text only: what is black or white, or stands on a background, is lost on some theme.
#[test]
fn colours_suit_dark_and_light_themes() {
    let mut app = observed(Palette::Coloured);
    app.key(Key::End);
    let coloured = frame(&app, 200, 50);
    let allowed = [Color::Reset, Color::Blue, Color::Green, Color::Red];
    let mut used = Vec::new();
    for cell in &coloured.backend().buffer().content {
        assert_eq!(cell.bg, Color::Reset);
        assert!(allowed.contains(&cell.fg), "{:?}", cell.fg);
        if !used.contains(&cell.fg) {
            used.push(cell.fg);
        }
    }
    assert_eq!(used.len(), allowed.len(), "{used:?}");
}

#[test]
fn without_colour_all_is_said_by_text_and_attributes() {
    let plain = frame(&observed(Palette::Plain), 200, 50);
    let coloured = frame(&observed(Palette::Coloured), 200, 50);
    let (plain, coloured) = (plain.backend().buffer(), coloured.backend().buffer());
    for (a, b) in plain.content.iter().zip(&coloured.content) {
        assert_eq!((a.symbol(), a.modifier), (b.symbol(), b.modifier));
        assert_eq!((a.fg, a.bg), (Color::Reset, Color::Reset));
    }
    let reversed = |cell: &&ratatui::buffer::Cell| cell.modifier.contains(Modifier::REVERSED);
    assert!(plain.content.iter().any(|cell| reversed(&cell)), "the picked row stands out");
}
