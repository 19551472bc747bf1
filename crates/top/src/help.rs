//! What keys there are.

use crate::palette::Palette;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};

const KEYS: [(&str, &str); 17] = [
    ("↑ ↓  j k", "pick a process; PgUp PgDn Home End too"),
    ("← →", "sort by the column beside"),
    ("i", "turn the order round"),
    ("C M H", "sort by CPU, resident memory, live heap"),
    ("G A N R P", "sort by collections, allocation, goroutines, run queue, process id"),
    ("Enter", "goroutines of the picked process, grouped"),
    ("Tab", "there: group them by another thing"),
    ("d", "details of the picked process, or none"),
    ("Space", "stand still, or go on"),
    ("Esc", "back"),
    ("? h", "this help"),
    ("q", "quit"),
    ("", ""),
    ("HEAP GOAL", "heap in use, and the size at which a collection ends"),
    ("GC/s PAUSE", "collections per second, and the last pause"),
    ("RUNQ", "goroutines that could run and have no processor"),
    ("-", "not known: no Go program, not kept by its version, or not readable"),
];

pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, palette: Palette) {
    let mut lines = vec![Line::styled(" Keys of gospect top", palette.title()), Line::default()];
    for (key, what) in KEYS {
        lines.push(Line::from(vec![
            Span::styled(format!("  {key:<12}"), palette.label()),
            Span::raw(what),
        ]));
    }
    frame.render_widget(Text::from(lines), area);
}
