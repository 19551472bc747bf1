//! Exit codes: 0 done, 1 failed, 2 usage, 3 nothing matched or nothing called, 4 the
//! target died or events were lost under `--strict`.

use std::fmt;
use std::process::ExitCode;

/// How a command that did not fail ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Exit code 0.
    #[default]
    Done,
    /// Exit code 3: nothing matched, nothing traceable, or attached and never called.
    Nothing,
    /// Exit code 4: the target died by a signal or an unrecovered panic, or events were
    /// lost under `--strict`. Beats [`Outcome::Nothing`].
    Grave,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => ExitCode::SUCCESS,
            Outcome::Nothing => ExitCode::from(3),
            Outcome::Grave => ExitCode::from(4),
        }
    }
}

/// An error that decides the exit code; everything else exits with 1.
#[derive(Debug)]
pub enum Failure {
    /// Exit code 2.
    Usage(String),
    /// Exit code 3.
    Nothing(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Nothing(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Failure {}

/// A usage error with this message.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Failure::Usage(message.into()).into()
}

/// Nothing to do, with the reason.
pub fn nothing(message: impl Into<String>) -> anyhow::Error {
    Failure::Nothing(message.into()).into()
}

/// Whether `error` says that there is nothing to do.
pub fn is_nothing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Failure::Nothing(_)))
}

/// Whether the chain of `error` holds a closed output pipe, which is no failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

/// The exit code of `error`, and the message for stderr if there is one to print.
pub fn verdict(error: &anyhow::Error) -> (ExitCode, Option<String>) {
    if is_closed_pipe(error) {
        return (ExitCode::SUCCESS, None);
    }
    let code = match error.downcast_ref::<Failure>() {
        Some(Failure::Usage(_)) => 2,
        Some(Failure::Nothing(_)) => 3,
        None => 1,
    };
    (ExitCode::from(code), Some(format!("gospect: {error:#}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn a_closed_pipe_is_quiet_however_deep_it_lies() {
        let error = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let error = Err::<(), _>(error).context("failed to write").unwrap_err();
        let (code, message) = verdict(&error);
        assert_eq!((format!("{code:?}"), message), (format!("{:?}", ExitCode::SUCCESS), None));
    }

    #[test]
    fn the_grave_outcome_beats_nothing() {
        assert!(Outcome::Grave > Outcome::Nothing && Outcome::Nothing > Outcome::Done);
    }

    #[test]
    fn usage_keeps_its_code_below_context() {
        let error = usage("bad pattern").context("in --exclude");
        assert_eq!(format!("{:?}", verdict(&error).0), format!("{:?}", ExitCode::from(2)));
    }
}
