//! Where results go: stdout or a file, buffered; and whether they are coloured.

use crate::args::Color;
use crate::failure::usage;
use anyhow::Context as _;
use process::FileIdentity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::SIGPIPE;
use std::fs::File;
use std::io::{BufWriter, IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

/// A pipe takes writes up to this size whole (POSIX PIPE_BUF on Linux), however many
/// processes write to it.
const ATOMIC: usize = 4096;

/// Writes whole lines, as many at a time as a shared pipe takes in one piece: a launched
/// command writes to the same stdout, and its lines must not land inside ours.
struct WholeLines<W: Write> {
    out: W,
    pending: Vec<u8>,
}

impl<W: Write> WholeLines<W> {
    fn new(out: W) -> Self {
        Self { out, pending: Vec::with_capacity(2 * ATOMIC) }
    }

    /// Writes what fits into one piece, up to its last line's end. A line that is longer
    /// goes out alone.
    fn write_piece(&mut self) -> std::io::Result<()> {
        let window = &self.pending[..self.pending.len().min(ATOMIC)];
        let end = match window.iter().rposition(|&byte| byte == b'\n') {
            Some(at) => at + 1,
            None => self
                .pending
                .iter()
                .position(|&byte| byte == b'\n')
                .map_or(self.pending.len(), |at| at + 1),
        };
        self.out.write_all(&self.pending[..end])?;
        self.pending.drain(..end);
        Ok(())
    }
}

impl<W: Write> Write for WholeLines<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        while self.pending.len() > ATOMIC && self.pending.contains(&b'\n') {
            self.write_piece()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        while !self.pending.is_empty() {
            self.write_piece()?;
        }
        self.out.flush()
    }
}

/// A file that says its name when writing to it fails: a full disk is told from a full stdout.
/// What it held before goes with the first thing written, so that a command that does
/// nothing destroys nothing.
struct Named {
    file: File,
    path: PathBuf,
    emptied: bool,
}

impl Named {
    fn empty(&mut self) -> std::io::Result<()> {
        if !std::mem::replace(&mut self.emptied, true) {
            // Pipes and devices hold nothing and can not be cut.
            let regular = self.file.metadata().is_ok_and(|meta| meta.is_file());
            let result = if regular { self.file.set_len(0) } else { Ok(()) };
            self.name(result)?;
        }
        Ok(())
    }

    fn name<T>(&self, result: std::io::Result<T>) -> std::io::Result<T> {
        result.map_err(|error| {
            let text = format!("failed to write to {}: {error}", self.path.display());
            std::io::Error::new(error.kind(), text)
        })
    }
}

impl Write for Named {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.empty()?;
        let result = self.file.write(bytes);
        self.name(result)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.empty()?;
        let result = self.file.flush();
        self.name(result)
    }
}

/// Stdout that says its name when writing to it fails.
struct Stdout<W: Write>(W);

impl<W: Write> Write for Stdout<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes).map_err(to_stdout)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush().map_err(to_stdout)
    }
}

fn to_stdout(error: std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("failed to write to stdout: {error}"))
}

/// Whether a launched command ended as gospect is about to, since nobody reads the stdout that they
/// share: by `signal`, while results go to stdout and not to `path`. That is no failure.
pub fn is_closed_for_both(path: Option<&Path>, signal: Option<i32>) -> bool {
    path.is_none() && signal == Some(SIGPIPE) && is_stdout_closed()
}

fn is_stdout_closed() -> bool {
    let stdout = std::io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    // Of a pipe without a reader poll(2) always tells.
    matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1))
        && fds.iter().all(|fd| fd.revents().contains(PollFlags::ERR))
}

/// Refuses to write results over `input`, a file that is read or recorded meanwhile.
pub fn keep_apart(output: Option<&Path>, input: &Path) -> anyhow::Result<()> {
    let Some(output) = output else { return Ok(()) };
    let same = output == input
        || matches!((FileIdentity::of(output), FileIdentity::of(input)), (Ok(a), Ok(b)) if a == b);
    // What is written to a device is not lost by writing more to it.
    if same && !std::fs::metadata(output).is_ok_and(|meta| !meta.is_file()) {
        return Err(usage(format!("{} would be overwritten by the output", input.display())));
    }
    Ok(())
}

/// As [`open`], when a launched command writes to our stdout too.
pub fn open_shared(path: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    if path.is_some() {
        return open(path);
    }
    // The descriptor itself: Stdout's own buffer would split lines again.
    let stdout = std::io::stdout().as_fd().try_clone_to_owned()?;
    Ok(Box::new(WholeLines::new(Stdout(File::from(stdout)))))
}

/// Opens the destination of results; fails before anything is traced.
pub fn open(path: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    Ok(match path {
        Some(path) => {
            let file =
                File::options().write(true).create(true).truncate(false).open(path).with_context(
                    || format!("failed to open the output file {}", path.display()),
                )?;
            let named = Named { file, path: path.to_owned(), emptied: false };
            Box::new(BufWriter::with_capacity(1 << 16, named))
        }
        None => Box::new(BufWriter::with_capacity(1 << 16, Stdout(std::io::stdout()))),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps each write apart.
    #[derive(Default)]
    struct Pieces(Vec<Vec<u8>>);

    impl Write for Pieces {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn pieces_end_at_lines_and_fit_into_a_pipe() {
        let mut lines = WholeLines::new(Pieces::default());
        let mut all = Vec::new();
        for length in [10, 3000, 2000, 9000, 1, 4095, 50] {
            let line = [vec![b'x'; length], vec![b'\n']].concat();
            lines.write_all(&line).unwrap();
            all.extend(line);
        }
        lines.write_all(b"no newline").unwrap();
        all.extend(b"no newline");
        lines.flush().unwrap();
        let pieces = lines.out.0;
        assert_eq!(pieces.concat(), all);
        let (last, rest) = pieces.split_last().unwrap();
        assert_eq!(last, b"no newline");
        for piece in rest {
            let newlines = piece.iter().filter(|&&byte| byte == b'\n').count();
            assert_eq!(piece.last(), Some(&b'\n'));
            assert!(piece.len() <= ATOMIC || newlines == 1, "{} bytes", piece.len());
        }
    }
}
