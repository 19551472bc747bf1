//! Goroutines that are alike, counted.

use crate::args::GroupBy;
use output::{GoroutineGroup, ListedGoroutine};
use std::collections::HashMap;

/// Groups kept; goroutines of further ones are counted together.
const MAX_GROUPS: usize = 100_000;

/// The groups so far.
pub struct Groups {
    by: GroupBy,
    groups: HashMap<String, GoroutineGroup>,
}

impl Groups {
    /// No group.
    pub fn new(by: GroupBy) -> Self {
        Self { by, groups: HashMap::new() }
    }

    /// Counts one.
    pub fn add(&mut self, goroutine: &ListedGoroutine) {
        let mut key = self.key(goroutine);
        if self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&key) {
            "(other)".clone_into(&mut key);
        }
        match self.groups.get_mut(&key) {
            Some(group) => {
                group.count += 1;
                // A sample is there for its stack.
                if group.sample.stack.is_empty() && !goroutine.stack.is_empty() {
                    group.sample = goroutine.clone();
                }
            }
            None => {
                let group =
                    GoroutineGroup { key: key.clone(), count: 1, sample: goroutine.clone() };
                self.groups.insert(key, group);
            }
        }
    }

    fn key(&self, of: &ListedGoroutine) -> String {
        match self.by {
            GroupBy::State => of.state.to_owned(),
            GroupBy::Reason => of.reason.as_deref().unwrap_or(of.state).to_owned(),
            GroupBy::Site => match (&of.created_by, &of.start) {
                (Some(site), _) => format!("{} {}:{}", site.func, site.file, site.line),
                (None, Some(start)) => start.to_string(),
                (None, None) => "unknown".to_owned(),
            },
        }
    }

    /// The groups, largest first.
    pub fn into_sorted(self) -> Vec<GoroutineGroup> {
        let mut groups: Vec<_> = self.groups.into_values().collect();
        groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
        groups
    }
}
