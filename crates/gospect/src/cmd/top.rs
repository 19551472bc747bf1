//! `gospect top`: a live view of Go programs.

mod counted;
mod keys;
mod observed;

use crate::args::TopArgs;
use crate::clock;
use crate::cmd::metrics::open;
use crate::failure::{Outcome, usage};
use crate::monitor::{Fleet, Wants};
use crate::signals::Signals;
use anyhow::Context as _;
use keys::{Keys, is_hung_up};
use output::Clock;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};
use top::{App, Asked, GroupBy, Key, Palette};

/// Longest wait for a key: signals are looked for as often.
const POLL: Duration = Duration::from_millis(100);

/// Counting groups may take this part of the time.
const SHARE: u32 = 10;

/// Shows processes until it is told to stop.
pub fn run(args: &TopArgs) -> anyhow::Result<Outcome> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(usage("top needs a terminal; see gospect metrics --interval"));
    }
    let fleet = open(&args.watch)?;
    let signals = Signals::install()?;
    let coloured = crate::sink::is_colored(args.color, None);
    let palette = if coloured { Palette::Coloured } else { Palette::Plain };
    let mut live = Live {
        app: App::new(palette),
        fleet,
        wants: Wants { states_up_to: args.watch.states_up_to },
        next: Instant::now(),
        interval: args.interval.0.max(POLL),
        groups_at: Instant::now(),
    };
    let end = args.duration.map(|span| Instant::now() + span.0);
    let mut terminal = ratatui::try_init().context("failed to set up the terminal")?;
    let keys = Keys::read().context("failed to read keys")?;
    let result = live.run(&mut terminal, &keys, &signals, end);
    let restored = ratatui::try_restore().context("failed to restore the terminal");
    if is_hung_up() {
        // Nobody is there to be told that a terminal that is gone cannot be written to.
        return Ok(Outcome::Done);
    }
    restored?;
    result.map(|()| Outcome::Done)
}

/// The view and what it shows.
struct Live {
    app: App,
    fleet: Fleet,
    wants: Wants,
    /// When processes are read next.
    next: Instant,
    interval: Duration,
    /// When the groups on the screen are counted again.
    groups_at: Instant,
}

impl Live {
    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        keys: &Keys,
        signals: &Signals,
        end: Option<Instant>,
    ) -> anyhow::Result<()> {
        let is_over = || end.is_some_and(|end| Instant::now() >= end);
        while !signals.detach_asked(false) && !is_hung_up() && !is_over() {
            self.refresh();
            terminal.draw(|frame| self.app.draw(frame)).context("failed to draw")?;
            let left = self.next.saturating_duration_since(Instant::now());
            let mut limit = left.min(POLL);
            // All that is there, so that a held key does not run on.
            while let Some(event) = keys.next(limit).context("failed to read keys")? {
                limit = Duration::ZERO;
                let Some(key) = key_of(&event) else { continue };
                match self.app.key(key) {
                    Asked::Nothing => {}
                    Asked::Quit => return Ok(()),
                    Asked::Groups { pid, by } => {
                        // Looking takes a moment: it says so meanwhile.
                        terminal.draw(|frame| self.app.draw(frame)).context("failed to draw")?;
                        self.count(pid, by);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads what is due.
    fn refresh(&mut self) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + self.interval;
        if self.app.is_frozen() {
            return;
        }
        let mut all = Vec::new();
        self.fleet.round(self.wants, &mut |watched, read| {
            all.push(observed::observation(watched, &read));
        });
        let at_ns = clock::monotonic_ns();
        let clock =
            Clock { unix_offset_ns: clock::unix_offset_ns(), utc_offset_s: clock::utc_offset_s() };
        let time = clock.time_of_day(at_ns);
        self.app.observe(all, at_ns, time.split('.').next().unwrap_or_default().to_owned());
        if let Some((pid, by)) = self.app.wanted_groups()
            && now >= self.groups_at
        {
            self.count(pid, by);
        }
    }

    fn count(&mut self, pid: u32, by: GroupBy) {
        let started = Instant::now();
        let found = counted::groups(pid, by).map_err(|error| format!("{error:#}"));
        self.groups_at = Instant::now() + started.elapsed() * SHARE;
        self.app.set_groups(pid, by, found);
    }
}

fn key_of(event: &Event) -> Option<Key> {
    let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return None };
    if *kind == KeyEventKind::Release {
        return None;
    }
    // In raw mode Ctrl-C is a key.
    if modifiers.contains(KeyModifiers::CONTROL) {
        return (*code == KeyCode::Char('c')).then_some(Key::Char('q'));
    }
    Some(match code {
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc | KeyCode::Backspace => Key::Back,
        KeyCode::Tab => Key::Tab,
        KeyCode::F(1) => Key::Char('?'),
        KeyCode::Char(c) => Key::Char(*c),
        _ => return None,
    })
}
