//! Where results go: stdout or a file, buffered; and whether they are coloured.

use crate::args::Color;
use anyhow::Context as _;
use std::fs::File;
use std::io::{BufWriter, IsTerminal as _, Write};
use std::path::Path;

/// Opens the destination of results; fails before anything is traced.
pub fn open(path: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    Ok(match path {
        Some(path) => {
            let file = File::create(path)
                .with_context(|| format!("failed to open the output file {}", path.display()))?;
            Box::new(BufWriter::with_capacity(1 << 16, file))
        }
        None => Box::new(BufWriter::with_capacity(1 << 16, std::io::stdout())),
    })
}

/// Whether escape sequences go there.
pub fn is_colored(color: Color, path: Option<&Path>) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            path.is_none()
                && std::io::stdout().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        }
    }
}

/// Says something on stderr, which may be gone.
pub fn say(message: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "gospect: {message}");
}
