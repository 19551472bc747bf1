//! How text stands out.

use ratatui::style::{Color, Modifier, Style};

/// Whether there are colours. Backgrounds are never set, and of the terminal's colours only those
/// that are readable on black and on white.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Palette {
    /// Attributes only.
    Plain,
    /// The terminal's own colours.
    Coloured,
}

impl Palette {
    /// The column that rows are sorted by, and titles.
    pub(crate) fn title(self) -> Style {
        self.colour(Color::Blue).add_modifier(Modifier::BOLD)
    }

    /// Names of figures.
    pub(crate) fn label(self) -> Style {
        self.colour(Color::Blue)
    }

    /// Bars.
    pub(crate) fn bars(self) -> Style {
        self.colour(Color::Green)
    }

    /// What deserves attention.
    pub(crate) fn warning(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// The row picked.
    pub(crate) fn picked(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// What is less important.
    pub(crate) fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn colour(self, colour: Color) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Coloured => Style::new().fg(colour),
        }
    }
}
