//! Goroutines of one process, grouped.

use crate::amount;
use crate::palette::Palette;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// What goroutines of a group have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    /// The statement that started them.
    #[default]
    Site,
    /// What they wait for.
    Reason,
    /// What they do.
    State,
}

impl GroupBy {
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Site => Self::Reason,
            Self::Reason => Self::State,
            Self::State => Self::Site,
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Site => "the statement that started them",
            Self::Reason => "what they wait for",
            Self::State => "what they do",
        }
    }
}

/// Goroutines that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What they have in common.
    pub key: String,
    /// How many there are.
    pub count: u64,
}

/// The view of them.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    pub pid: u32,
    pub service: String,
    pub by: GroupBy,
    /// Largest first; or why there are none. `None` while they are looked for.
    pub found: Option<Result<Vec<Group>, String>>,
    /// The first one shown.
    pub first: usize,
}

impl Groups {
    pub(crate) fn scroll(&mut self, by: isize) {
        let len = match &self.found {
            Some(Ok(groups)) => groups.len(),
            _ => 0,
        };
        self.first = self.first.saturating_add_signed(by).min(len.saturating_sub(1));
    }

    pub(crate) fn draw(&self, frame: &mut Frame<'_>, area: Rect, palette: Palette) {
        let title = format!(" Goroutines of {} {} by {}", self.pid, self.service, self.by.title());
        let mut lines = vec![Line::styled(title, palette.title()), Line::default()];
        match &self.found {
            None => lines.push(Line::raw(" Looking at them …")),
            Some(Err(why)) => {
                lines.push(Line::styled(format!(" They cannot be read: {why}"), palette.warning()));
            }
            Some(Ok(groups)) => {
                let total: u64 = groups.iter().map(|group| group.count).sum();
                let head = format!("{:>8} {:>6}  {}", "COUNT", "SHARE", "GROUP");
                lines.push(Line::styled(head, palette.label()));
                let room = usize::from(area.height).saturating_sub(lines.len() + 1);
                for group in groups.iter().skip(self.first).take(room) {
                    lines.push(line_of(group, total));
                }
                let left = groups.len().saturating_sub(self.first + room);
                if left > 0 {
                    let text = format!("{:>17} more", left);
                    lines.push(Line::styled(text, palette.faint()));
                }
            }
        }
        frame.render_widget(ratatui::text::Text::from(lines), area);
    }
}

fn line_of(group: &Group, total: u64) -> Line<'static> {
    let share = group.count as f64 / total.max(1) as f64 * 100.0;
    Line::from(vec![
        Span::raw(format!("{:>8} ", amount::count(group.count))),
        Span::raw(format!("{:>5}%  ", amount::percent(share))),
        Span::raw(group.key.clone()),
    ])
}
