//! The file of the configuration, while somebody may be writing it.
//!
//! An editor or `cp` that writes in place empties a file first and fills it then. What stands there meanwhile may be
//! a configuration as well, of fewer services or of all programs. So a file is taken at its word when it has been let
//! alone for a while.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// A longer file is no configuration, bytes.
const MOST: u64 = 1 << 20;
/// How long a file has to be let alone.
const QUIET: Duration = Duration::from_millis(250);
/// For how long it may be written after the signal.
const PATIENCE: Duration = Duration::from_secs(3);

/// Reads a file when the agent begins: pipes too.
///
/// # Errors
/// What reading failed of; a file that is too long.
pub fn read(path: &Path) -> io::Result<String> {
    text_of(File::open(path)?)
}

fn text_of(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(io::Error::other("it is longer than a MiB"));
    }
    Ok(text)
}

/// Reading it once more: it is looked at until it is as its writer wants it.
pub struct Rereading {
    due: Instant,
    /// When it is looked at for the last time.
    until: Instant,
    last: Option<Seen>,
}

/// A file as it was at a moment.
#[derive(PartialEq, Eq)]
struct Seen {
    state: State,
    text: String,
}

/// Any change of a file changes this.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    file: (u64, u64),
    len: u64,
    /// Last change of it or of what is said of it, time since the epoch: a program may set the time of the last
    /// writing to an older one, and not this.
    changed: Duration,
}

impl State {
    fn of(meta: &Metadata) -> Self {
        let seconds = Duration::from_secs(u64::try_from(meta.ctime()).unwrap_or_default());
        let rest = Duration::from_nanos(u64::try_from(meta.ctime_nsec()).unwrap_or_default());
        Self { file: (meta.dev(), meta.ino()), len: meta.len(), changed: seconds + rest }
    }

    /// Whether the last change was some time before `now`. A time that is yet to come says nothing.
    fn is_old(&self, now: SystemTime) -> bool {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        now.checked_sub(self.changed).is_some_and(|age| age >= QUIET)
    }
}

impl Seen {
    /// Looks at it, and whether it stays the same meanwhile.
    fn of(path: &Path) -> Result<Self, String> {
        let told = |error: io::Error| error.to_string();
        // Opening a pipe that nobody writes to would wait for ever.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(told)?;
        let before = file.metadata().map_err(told)?;
        if !before.is_file() {
            return Err("only a file can be read again".to_owned());
        }
        let text = text_of(file).map_err(told)?;
        let state = State::of(&before);
        // By its name: it may have been replaced.
        let after = State::of(&std::fs::metadata(path).map_err(told)?);
        if after != state || text.len() as u64 != state.len {
            return Err("it is being written all the time".to_owned());
        }
        if text.trim().is_empty() {
            let what = "it is empty: a comment in it makes it a configuration of all Go programs";
            return Err(what.to_owned());
        }
        Ok(Self { state, text })
    }
}

impl Rereading {
    /// Begins at `now`.
    pub fn new(now: Instant) -> Self {
        Self { due: now, until: now + PATIENCE, last: None }
    }

    /// Whether it is to be looked at.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// What it holds, or why nothing can be made of it; `None` while that may change yet. `clock` is `now` by the
    /// clock of files.
    pub fn look(
        &mut self,
        path: &Path,
        now: Instant,
        clock: SystemTime,
    ) -> Option<Result<String, String>> {
        self.due = now + QUIET;
        let is_last = now >= self.until;
        match Seen::of(path) {
            Ok(seen) if seen.state.is_old(clock) || self.last.as_ref() == Some(&seen) => {
                Some(Ok(seen.text))
            }
            Ok(_) if is_last => Some(Err("it is being written all the time".to_owned())),
            Ok(seen) => {
                self.last = Some(seen);
                None
            }
            Err(reason) if is_last => Some(Err(reason)),
            Err(_) => {
                self.last = None;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let name = format!("gospect-config-{name}-{}", std::process::id());
            let place = Self(std::env::temp_dir().join(name));
            fs::create_dir_all(&place.0).unwrap();
            place
        }

        fn file(&self) -> PathBuf {
            self.0.join("gospect.toml")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    /// So many pauses after the signal, by a clock on which files have just been written.
    fn looked(
        rereading: &mut Rereading,
        path: &Path,
        pauses: u32,
    ) -> Option<Result<String, String>> {
        let now = rereading.until - PATIENCE + QUIET * pauses;
        assert!(rereading.is_due(now));
        rereading.look(path, now, SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn a_file_that_was_let_alone_is_taken_at_once() {
        let place = Place::new("old");
        fs::write(place.file(), "[agent]\n").unwrap();
        let now = Instant::now();
        let later = SystemTime::now() + QUIET + Duration::from_secs(1);
        let found = Rereading::new(now).look(&place.file(), now, later);
        assert_eq!(found, Some(Ok("[agent]\n".to_owned())));
    }

    #[test]
    fn a_file_that_is_being_written_is_taken_when_it_is_whole() {
        let place = Place::new("written");
        let mut rereading = Rereading::new(Instant::now());
        // Not there, emptied, the first part, which would be right, and all of it.
        assert_eq!(looked(&mut rereading, &place.file(), 0), None);
        for (pauses, text) in (1..).zip(["", "[agent]\n", "[agent]\nlisten = \"none\"\n"]) {
            fs::write(place.file(), text).unwrap();
            assert_eq!(looked(&mut rereading, &place.file(), pauses), None, "{text:?}");
            assert!(!rereading.is_due(rereading.due - Duration::from_millis(1)));
        }
        let whole = "[agent]\nlisten = \"none\"\n".to_owned();
        assert_eq!(looked(&mut rereading, &place.file(), 4), Some(Ok(whole)));
    }

    #[test]
    fn a_file_that_is_replaced_by_the_same_text_is_looked_at_again() {
        let place = Place::new("replaced");
        let mut rereading = Rereading::new(Instant::now());
        for pauses in 0..2 {
            let new = place.0.join("new");
            fs::write(&new, "# all\n").unwrap();
            fs::rename(&new, place.file()).unwrap();
            assert_eq!(looked(&mut rereading, &place.file(), pauses), None);
        }
        assert_eq!(looked(&mut rereading, &place.file(), 2), Some(Ok("# all\n".to_owned())));
    }

    #[test]
    fn what_stays_no_configuration_is_told() {
        let place = Place::new("none");
        let told = |path: &Path| {
            let mut rereading = Rereading::new(Instant::now());
            assert_eq!(looked(&mut rereading, path, 0), None);
            looked(&mut rereading, path, 12).unwrap().unwrap_err()
        };
        assert_eq!(told(&place.file()), "No such file or directory (os error 2)");
        assert_eq!(told(&place.0), "only a file can be read again");
        fs::write(place.file(), "\n").unwrap();
        let empty = "it is empty: a comment in it makes it a configuration of all Go programs";
        assert_eq!(told(&place.file()), empty);
        fs::write(place.file(), vec![b'#'; MOST as usize + 1]).unwrap();
        assert_eq!(told(&place.file()), "it is longer than a MiB");
        // A pipe that nobody writes to.
        let pipe = place.0.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        assert_eq!(told(&pipe), "only a file can be read again");
    }

    #[test]
    fn what_is_written_all_the_time_is_given_up() {
        let place = Place::new("busy");
        let mut rereading = Rereading::new(Instant::now());
        for pauses in 0..12 {
            fs::write(place.file(), format!("# {pauses}\n")).unwrap();
            assert_eq!(looked(&mut rereading, &place.file(), pauses), None);
        }
        fs::write(place.file(), "# last\n").unwrap();
        let reason = "it is being written all the time".to_owned();
        assert_eq!(looked(&mut rereading, &place.file(), 12), Some(Err(reason)));
    }
}
