//! `--events` for people: a line per change.

use crate::clock::Clock;
use crate::printable::push_printable;
use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::rc::Rc;
use timeline::states::{Change, Event, State};

/// Columns of a state's name and number.
const STATE_WIDTH: usize = 13;

/// Columns of a wait reason; a longer one pushes the rest to the right.
const REASON_WIDTH: usize = 28;

/// Escape sequences.
const RESET: &str = "\x1b[0m";

/// The names of the columns, which the texts of several executables have once.
#[derive(Clone, Debug, Default)]
pub struct StatesHead(Rc<Cell<bool>>);

/// Writes changes as lines.
#[derive(Debug)]
pub struct StatesText {
    clock: Clock,
    color: bool,
    head: StatesHead,
}

impl StatesText {
    /// A writer of lines; `color` allows escape sequences.
    pub fn new(clock: Clock, color: bool, head: StatesHead) -> Self {
        Self { clock, color, head }
    }

    /// Writes what `event` says; nothing for whole lives and ends of processes.
    pub fn event(&mut self, event: &Event, out: &mut dyn Write) -> io::Result<()> {
        if !self.head.0.replace(true) {
            writeln!(
                out,
                "{:<15} {:<STATE_WIDTH$} {:<STATE_WIDTH$} {:<REASON_WIDTH$} {:>6} {:>7} {:>7}",
                "TIME", "OLD_STATE", "NEW_STATE", "REASON", "GOID", "PID", "TID"
            )?;
        }
        match event {
            Event::Change(change) => self.change(change, out),
            Event::Gap { cpu, from_ns, to_ns, lost } => {
                let time = self.clock.time_of_day(*to_ns);
                let since = match from_ns {
                    0 => "the beginning".to_owned(),
                    _ => self.clock.time_of_day(*from_ns),
                };
                writeln!(out, "{time} !! {lost} records lost on cpu {cpu} since {since}")
            }
            Event::Unknown(_) | Event::Lifetime(_) | Event::ProcessExit { .. } => Ok(()),
        }
    }

    fn change(&self, change: &Change, out: &mut dyn Write) -> io::Result<()> {
        let mut line = self.clock.time_of_day(change.ts_ns);
        for state in [change.from, change.to] {
            line.push(' ');
            self.push_state(&mut line, state);
        }
        let mut reason = String::new();
        push_printable(&mut reason, change.reason.as_deref().unwrap_or("-"));
        _ = write!(line, " {reason:<REASON_WIDTH$} {:>6}", change.who.goid);
        _ = write!(line, " {:>7} {:>7}", change.who.pid, change.tid);
        writeln!(out, "{line}")
    }

    fn push_state(&self, line: &mut String, state: State) {
        let name = format!("{}({})", state.name().to_uppercase(), state.0);
        let color = match state {
            State::RUNNING => "\x1b[32m",
            State::RUNNABLE => "\x1b[33m",
            State::SYSCALL => "\x1b[36m",
            State::WAITING => "\x1b[34m",
            _ => "\x1b[2m",
        };
        if self.color {
            _ = write!(line, "{color}{name:<STATE_WIDTH$}{RESET}");
        } else {
            _ = write!(line, "{name:<STATE_WIDTH$}");
        }
    }
}
