//! What a person asks for.

use crate::groups::GroupBy;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// A screen up.
    PageUp,
    /// A screen down.
    PageDown,
    /// To the first.
    Home,
    /// To the last.
    End,
    /// Enter.
    Enter,
    /// Escape or backspace.
    Back,
    /// Tabulator.
    Tab,
    /// A character.
    Char(char),
}

/// What a key asks of the one who runs the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing but a new frame.
    Nothing,
    /// The end.
    Quit,
    /// The goroutines of a process, grouped; to hand to [`crate::App::set_groups`].
    Groups {
        /// The process.
        pid: u32,
        /// What they have in common.
        by: GroupBy,
    },
}
