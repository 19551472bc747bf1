//! The state of the view.

use crate::columns::{self, COLUMNS, Sort};
use crate::detail;
use crate::groups::{Group, GroupBy, Groups};
use crate::help;
use crate::key::{Asked, Key};
use crate::observation::Observation;
use crate::palette::Palette;
use crate::row::Row;
use crate::safe::{clean, cleaned};
use crate::table::Table;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use std::collections::BTreeMap;

/// Lines from which on there is room for details below the table.
const HEIGHT_WITH_DETAIL: u16 = detail::HEIGHT + 8;

/// Rows of a page.
const PAGE: isize = 10;

/// What is on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The processes.
    Table,
    /// Goroutines of one process.
    Groups,
    /// The keys.
    Help,
}

/// The view.
#[derive(Debug)]
pub struct App {
    rows: BTreeMap<u32, Row>,
    palette: Palette,
    /// What is said at the top right: when it was read.
    clock: String,
    sort: Sort,
    inverted: bool,
    frozen: bool,
    details: bool,
    /// The process picked; none is the first, whichever that is.
    picked: Option<u32>,
    view: View,
    groups: Option<Groups>,
}

impl App {
    /// A view of nothing yet.
    pub fn new(palette: Palette) -> Self {
        Self {
            rows: BTreeMap::new(),
            palette,
            clock: String::new(),
            sort: Sort::Cpu,
            inverted: false,
            frozen: false,
            details: true,
            picked: None,
            view: View::Table,
            groups: None,
        }
    }

    /// What is on the screen.
    pub fn view(&self) -> View {
        self.view
    }

    /// Whether it stands still: what is observed meanwhile is taken in and not shown.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Takes in what all processes were at `at_ns` (of any clock that does not jump); `clock` is
    /// the time of day for people. Those not among them are gone.
    pub fn observe(&mut self, all: Vec<Observation>, at_ns: u64, clock: String) {
        if self.frozen {
            return;
        }
        self.clock = clock;
        let mut before = std::mem::take(&mut self.rows);
        for now in all.into_iter().map(cleaned) {
            let pid = now.pid;
            // A row of another process or program image begins anew.
            let known = before
                .remove(&pid)
                .filter(|row| row.now.start == now.start && row.now.exe == now.exe);
            let row = match known {
                Some(mut row) => {
                    row.observe(now, at_ns);
                    row
                }
                None => Row::new(now, at_ns),
            };
            self.rows.insert(pid, row);
        }
        self.picked = self.picked.filter(|pid| self.rows.contains_key(pid));
    }

    /// Takes in the groups that were asked for, largest first, or why there are none.
    pub fn set_groups(&mut self, pid: u32, by: GroupBy, found: Result<Vec<Group>, String>) {
        if let Some(groups) = self.groups.as_mut().filter(|of| of.pid == pid && of.by == by) {
            let cleaned = |group: Group| Group { key: clean(&group.key), ..group };
            groups.found = Some(found.map(|all| all.into_iter().map(cleaned).collect()));
            groups.scroll(0);
        }
    }

    /// The groups that are on the screen: to be counted again.
    pub fn wanted_groups(&self) -> Option<(u32, GroupBy)> {
        let groups = self.groups.as_ref().filter(|_| self.view == View::Groups)?;
        Some((groups.pid, groups.by))
    }

    /// Does what a key asks for, and says what is left to do.
    pub fn key(&mut self, key: Key) -> Asked {
        match (self.view, key) {
            (_, Key::Char('q')) => return Asked::Quit,
            (View::Help, _) => {
                self.view = if self.groups.is_some() { View::Groups } else { View::Table };
            }
            (_, Key::Char('?' | 'h')) => self.view = View::Help,
            (_, Key::Char(' ')) => self.frozen = !self.frozen,
            (View::Groups, key) => return self.key_in_groups(key),
            (View::Table, key) => return self.key_in_table(key),
        }
        Asked::Nothing
    }

    fn key_in_table(&mut self, key: Key) -> Asked {
        match key {
            Key::Up | Key::Char('k') => self.pick(-1),
            Key::Down | Key::Char('j') => self.pick(1),
            Key::PageUp => self.pick(-PAGE),
            Key::PageDown => self.pick(PAGE),
            Key::Home => self.pick(isize::MIN / 2),
            Key::End => self.pick(isize::MAX / 2),
            Key::Left => self.sort_beside(-1),
            Key::Right => self.sort_beside(1),
            Key::Enter => return self.open_groups(),
            Key::Char('i') => self.inverted = !self.inverted,
            Key::Char('d') => self.details = !self.details,
            Key::Char(c) => self.sort_by_letter(c),
            Key::Back | Key::Tab => {}
        }
        Asked::Nothing
    }

    fn key_in_groups(&mut self, key: Key) -> Asked {
        let Some(groups) = &mut self.groups else { return Asked::Nothing };
        match key {
            Key::Up | Key::Char('k') => groups.scroll(-1),
            Key::Down | Key::Char('j') => groups.scroll(1),
            Key::PageUp => groups.scroll(-PAGE),
            Key::PageDown => groups.scroll(PAGE),
            Key::Home => groups.first = 0,
            Key::End => groups.scroll(isize::MAX / 2),
            Key::Tab => {
                groups.by = groups.by.next();
                groups.found = None;
                groups.first = 0;
                return Asked::Groups { pid: groups.pid, by: groups.by };
            }
            Key::Back => {
                self.groups = None;
                self.view = View::Table;
            }
            Key::Left | Key::Right | Key::Enter | Key::Char(_) => {}
        }
        Asked::Nothing
    }

    fn open_groups(&mut self) -> Asked {
        let rows = self.sorted();
        let Some(row) = rows.get(self.picked_index(&rows)) else { return Asked::Nothing };
        let (pid, by) = (row.now.pid, GroupBy::default());
        let service = row.now.service.clone();
        self.groups = Some(Groups { pid, service, by, found: None, first: 0 });
        self.view = View::Groups;
        Asked::Groups { pid, by }
    }

    fn sort_by_letter(&mut self, c: char) {
        self.sort = match c {
            'C' => Sort::Cpu,
            'M' => Sort::Resident,
            'H' => Sort::Heap,
            'G' => Sort::Gc,
            'A' => Sort::Alloc,
            'N' => Sort::Goroutines,
            'R' => Sort::Queue,
            'P' => Sort::Pid,
            _ => return,
        };
        self.inverted = false;
    }

    fn sort_beside(&mut self, by: isize) {
        let all: Vec<Sort> = COLUMNS.iter().filter_map(|column| column.sort).collect();
        let now = all.iter().position(|sort| *sort == self.sort).unwrap_or_default();
        let next = now.saturating_add_signed(by).min(all.len() - 1);
        self.sort = all[next];
        self.inverted = false;
    }

    fn pick(&mut self, by: isize) {
        let rows = self.sorted();
        let last = rows.len().saturating_sub(1);
        let next = self.picked_index(&rows).saturating_add_signed(by).min(last);
        self.picked = rows.get(next).map(|row| row.now.pid);
    }

    fn picked_index(&self, rows: &[&Row]) -> usize {
        rows.iter().position(|row| Some(row.now.pid) == self.picked).unwrap_or_default()
    }

    fn sorted(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.values().collect();
        rows.sort_by(|a, b| columns::compare(self.sort, a, b));
        if self.inverted {
            rows.reverse();
        }
        rows
    }

    /// Draws a frame.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let [top, middle, bottom] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
                .areas(frame.area());
        frame.render_widget(self.head(top.width), top);
        match self.view {
            View::Help => help::draw(frame, middle, self.palette),
            View::Groups => {
                if let Some(groups) = &self.groups {
                    groups.draw(frame, middle, self.palette);
                }
            }
            View::Table => self.draw_table(frame, middle),
        }
        frame.render_widget(self.foot(), bottom);
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.sorted();
        let picked = self.picked_index(&rows);
        let details = self.details && area.height + 2 >= HEIGHT_WITH_DETAIL && !rows.is_empty();
        let below = if details { detail::HEIGHT } else { 0 };
        let [table, detail] =
            Layout::vertical([Constraint::Min(0), Constraint::Length(below)]).areas(area);
        if rows.is_empty() {
            frame.render_widget(Line::raw(" No process yet: waiting for one."), table);
            return;
        }
        // The picked one stays on the screen; a heading is above the rows.
        let room = usize::from(table.height).saturating_sub(1).max(1);
        let first = (picked + 1).saturating_sub(room);
        Table { rows: &rows, picked, first, sort: self.sort, palette: self.palette }
            .draw(frame, table);
        if let Some(row) = rows.get(picked).filter(|_| details) {
            detail::draw(row, frame, detail, self.palette);
        }
    }

    fn head(&self, width: u16) -> Line<'static> {
        let cpu: f64 = self.rows.values().filter_map(|row| row.cpu).sum();
        let processes = match self.rows.len() {
            1 => "1 process".to_owned(),
            count => format!("{count} processes"),
        };
        let left = format!(" gospect top  {processes}, CPU {}%", crate::amount::percent(cpu));
        let right = if self.frozen {
            format!("standing still  {} ", self.clock)
        } else {
            format!("{} ", self.clock)
        };
        let used = left.chars().count() + right.chars().count();
        // Where there is no room for it, the time is left out.
        let text = match usize::from(width).checked_sub(used) {
            Some(blank) if blank > 0 => format!("{left}{}{right}", " ".repeat(blank)),
            _ => left,
        };
        Line::styled(text, self.palette.title())
    }

    fn foot(&self) -> Line<'static> {
        let text = match self.view {
            View::Table => " ↑↓ pick  ←→ sort  Enter goroutines  Space stand still  ? help  q quit",
            View::Groups => " ↑↓ scroll  Tab group by another thing  Esc back  ? help  q quit",
            View::Help => " any key: back  q quit",
        };
        Line::styled(text, self.palette.faint())
    }
}
