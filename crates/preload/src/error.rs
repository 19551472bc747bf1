//! Why a program goes on without code.

use crate::sys::Errno;
use handover::{Failed, Why};

/// What stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nobody is to be told: there is no agent, or none that is trusted.
    Silent,
    /// The agent is to know.
    Told(Why, Errno),
}

impl Stop {
    /// As the agent is told.
    pub(crate) fn failed(self) -> Option<Failed> {
        match self {
            Self::Silent => None,
            Self::Told(why, Errno(errno)) => Some(Failed { why, errno }),
        }
    }
}

/// Turns what the kernel says into what the agent is told.
pub(crate) trait Because<T> {
    /// The reason.
    fn because(self, why: Why) -> Result<T, Stop>;
}

impl<T> Because<T> for Result<T, Errno> {
    fn because(self, why: Why) -> Result<T, Stop> {
        self.map_err(|errno| Stop::Told(why, errno))
    }
}

impl<T> Because<T> for Option<T> {
    fn because(self, why: Why) -> Result<T, Stop> {
        self.ok_or(Stop::Told(why, Errno(0)))
    }
}
