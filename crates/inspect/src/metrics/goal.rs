//! The heap goal: `gcControllerState.heapGoal` (`runtime/mgcpacer.go`), the same in Go 1.19
//! to 1.27 but for the headroom below the memory limit.

use binary::layout::LimitHeadroom;

/// What the goal is computed from; bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pacing {
    pub(super) memory_limit: u64,
    /// `u64::MAX` when `GOGC` is off.
    pub(super) percent_goal: u64,
    pub(super) sweep_trigger: u64,
    /// `u64::MAX` while no cycle runs.
    pub(super) triggered: u64,
    pub(super) heap_marked: u64,
    pub(super) heap_free: u64,
    pub(super) heap_alloc: u64,
    pub(super) mapped_ready: u64,
}

/// The least distance of the goal from where the cycle was triggered.
const RUNWAY: u64 = 64 << 10;

impl Pacing {
    pub(super) fn goal(&self, headroom: LimitHeadroom) -> u64 {
        let limited = self.limited_goal(headroom);
        if limited < self.percent_goal {
            return limited;
        }
        let goal = self.percent_goal.max(self.sweep_trigger);
        if self.triggered == u64::MAX {
            goal
        } else {
            goal.max(self.triggered.saturating_add(RUNWAY))
        }
    }

    /// `memoryLimitHeapGoal`.
    fn limited_goal(&self, headroom: LimitHeadroom) -> u64 {
        let other =
            self.mapped_ready.saturating_sub(self.heap_free).saturating_sub(self.heap_alloc);
        let overage = self.mapped_ready.saturating_sub(self.memory_limit);
        let goal = match self.memory_limit.checked_sub(other.saturating_add(overage)) {
            None | Some(0) => return self.heap_marked,
            Some(goal) => goal,
        };
        let room = (goal / 100 * headroom.percent).max(headroom.at_least);
        let goal = if goal < room.saturating_mul(2) { room } else { goal - room };
        goal.max(self.heap_marked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use binary::GoVersion;

    const MIB: u64 = 1 << 20;

    fn headroom(version: &str) -> LimitHeadroom {
        LimitHeadroom::of(&GoVersion::parse(version)).unwrap()
    }

    fn pacing() -> Pacing {
        Pacing {
            memory_limit: i64::MAX as u64,
            percent_goal: 4 * MIB,
            triggered: u64::MAX,
            heap_marked: MIB,
            heap_free: MIB,
            heap_alloc: 2 * MIB,
            mapped_ready: 8 * MIB,
            sweep_trigger: 0,
        }
    }

    #[test]
    fn the_percentage_rules_without_a_limit() {
        let new = headroom("go1.27.3");
        assert_eq!(pacing().goal(new), 4 * MIB);
        assert_eq!(Pacing { sweep_trigger: 5 * MIB, ..pacing() }.goal(new), 5 * MIB);
        assert_eq!(Pacing { triggered: 4 * MIB, ..pacing() }.goal(new), 4 * MIB + RUNWAY);
        // GOGC=off with no limit: 3% below all there is.
        let off = Pacing { percent_goal: u64::MAX, ..pacing() };
        let left = i64::MAX as u64 - 5 * MIB;
        assert_eq!(off.goal(new), left - left / 100 * 3);
    }

    #[test]
    fn a_limit_rules_when_it_is_lower() {
        let limited = Pacing { memory_limit: 205 * MIB, percent_goal: u64::MAX, ..pacing() };
        let percent = 200 * MIB / 100 * 3;
        assert_eq!(limited.goal(headroom("go1.21.13")), 200 * MIB - percent);
        assert_eq!(limited.goal(headroom("go1.19.8")), 199 * MIB);
        // The rest alone exceeds it: what is marked is the least.
        let tight = Pacing { memory_limit: 5 * MIB, ..pacing() };
        assert_eq!(tight.goal(headroom("go1.27.3")), MIB);
        let small = Pacing { memory_limit: 13 * MIB / 2, mapped_ready: 13 * MIB / 2, ..pacing() };
        assert_eq!(small.goal(headroom("go1.27.3")), 2 * MIB);
    }
}
