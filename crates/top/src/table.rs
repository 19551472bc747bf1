//! The table of processes.

use crate::columns::{self, Sort};
use crate::palette::Palette;
use crate::row::Row;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};

/// Between columns.
const GAP: u16 = 1;

/// How it is shown.
pub(crate) struct Table<'a> {
    pub rows: &'a [&'a Row],
    pub picked: usize,
    /// The first one shown.
    pub first: usize,
    pub sort: Sort,
    pub palette: Palette,
}

impl Table<'_> {
    pub(crate) fn draw(&self, frame: &mut Frame<'_>, area: Rect) {
        let mut lines = vec![self.head(area.width)];
        let room = usize::from(area.height).saturating_sub(1);
        for (index, row) in self.rows.iter().enumerate().skip(self.first).take(room) {
            lines.push(self.line(row, index == self.picked, area.width));
        }
        frame.render_widget(Text::from(lines), area);
    }

    fn head(&self, width: u16) -> Line<'static> {
        let spans = columns::shown(width).map(|column| {
            let sorted = column.sort == Some(self.sort);
            let style = if sorted { self.palette.title() } else { self.palette.label() };
            // A mark beside the colour: there may be none.
            let title = if sorted { format!("*{}", column.title) } else { column.title.to_owned() };
            let columns = usize::from(self.width_of(column.width, width));
            Span::styled(aligned(&title, columns, is_left(column.title)), style)
        });
        Line::from(spans.collect::<Vec<_>>())
    }

    fn line(&self, row: &Row, picked: bool, width: u16) -> Line<'static> {
        let mut text = String::new();
        for column in columns::shown(width) {
            let columns = usize::from(self.width_of(column.width, width));
            let cell = (column.cell)(row, columns);
            text.push_str(&aligned(&cell, columns, is_left(column.title)));
        }
        let style = if picked { self.palette.picked() } else { Style::new() };
        Line::styled(text, style)
    }

    /// Columns of a column: the one without a width takes what the others leave.
    fn width_of(&self, own: u16, all: u16) -> u16 {
        if own > 0 {
            return own;
        }
        let others: u16 = columns::shown(all).map(|column| column.width + GAP).sum();
        all.saturating_sub(others).max(4)
    }
}

fn is_left(title: &str) -> bool {
    matches!(title, "SERVICE" | "HEAP TREND" | "GO")
}

/// `text` in `width` columns and a gap; what is too long loses its end.
fn aligned(text: &str, width: usize, left: bool) -> String {
    let used = Span::raw(text).width();
    if used > width {
        let mut cut = String::new();
        for c in text.chars() {
            let more = Span::raw(c.to_string()).width();
            if Span::raw(cut.as_str()).width() + more > width.saturating_sub(1) {
                break;
            }
            cut.push(c);
        }
        cut.push('…');
        return aligned(&cut, width, left);
    }
    let blank = " ".repeat(width - used);
    if left { format!("{text}{blank} ") } else { format!("{blank}{text} ") }
}
