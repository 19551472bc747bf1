//! A constant of the pacer that debug info does not have.

use crate::GoVersion;

/// How far below `GOMEMLIMIT` the collector keeps its goal (`runtime/mgcpacer.go`,
/// `memoryLimitHeapGoal`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitHeadroom {
    /// In percent of the goal (`memoryLimitHeapGoalHeadroomPercent`).
    pub percent: u64,
    /// And no less than this, bytes (`memoryLimitMinHeapGoalHeadroom`).
    pub at_least: u64,
}

/// Minor versions from which on a row holds; a later row has precedence. Go 1.19 calls the
/// bytes `memoryLimitHeapGoalHeadroom` and has no percentage; 1.20 was not measured.
const TABLE: [(u32, Option<LimitHeadroom>); 4] = [
    (19, Some(LimitHeadroom { percent: 0, at_least: 1 << 20 })),
    (20, None),
    (21, Some(LimitHeadroom { percent: 3, at_least: 1 << 20 })),
    (28, None),
];

impl LimitHeadroom {
    /// That of a version; `None` when it is not known.
    pub fn of(version: &GoVersion) -> Option<Self> {
        let known = version.major == 1;
        TABLE.iter().rev().find(|(since, _)| known && *since <= version.minor)?.1
    }
}
