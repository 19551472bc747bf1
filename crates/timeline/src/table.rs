//! All stacks, by process; oldest first when something must go.

use crate::hash::KeyHash;
use crate::stack::Stack;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

/// Bookkeeping entries that are not worth a sweep.
const FEW: usize = 1024;

/// Names a stack within its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// A goroutine's own stack, by goid.
    Own(u64),
    /// A system stack, by the address of its g.
    System(u64),
}

type Stacks = HashMap<Key, Stack, KeyHash>;

/// Stacks of all processes.
#[derive(Debug, Default)]
pub(crate) struct Table {
    processes: HashMap<u32, Stacks, KeyHash>,
    /// Stacks by age; may name stacks that are gone (their generation tells).
    order: VecDeque<(u32, Key, u64)>,
    len: usize,
    generation: u64,
    sweep_at: usize,
}

impl Table {
    /// Number of stacks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Entries of all tables.
    pub fn remembered(&self) -> usize {
        self.len + self.order.len() + self.processes.len()
    }

    pub fn get(&self, pid: u32, key: Key) -> Option<&Stack> {
        self.processes.get(&pid)?.get(&key)
    }

    pub fn get_mut(&mut self, pid: u32, key: Key) -> Option<&mut Stack> {
        self.processes.get_mut(&pid)?.get_mut(&key)
    }

    /// The stack, made when it is not there.
    pub fn get_or_make(&mut self, pid: u32, key: Key) -> &mut Stack {
        self.forget_the_gone();
        match self.processes.entry(pid).or_default().entry(key) {
            Entry::Occupied(stack) => stack.into_mut(),
            Entry::Vacant(place) => {
                self.len += 1;
                self.generation += 1;
                self.order.push_back((pid, key, self.generation));
                place.insert(Stack { generation: self.generation, ..Stack::default() })
            }
        }
    }

    /// Keeps the bookkeeping proportional to what is alive; amortised constant time.
    fn forget_the_gone(&mut self) {
        if self.processes.len() >= self.sweep_at.max(FEW) {
            self.processes.retain(|_, stacks| !stacks.is_empty());
            self.sweep_at = 2 * self.processes.len();
        }
        if self.order.len() >= FEW + 2 * self.len {
            let processes = &self.processes;
            self.order.retain(|(pid, key, generation)| {
                let stack = processes.get(pid).and_then(|stacks| stacks.get(key));
                stack.is_some_and(|stack| stack.generation == *generation)
            });
        }
    }

    pub fn remove(&mut self, pid: u32, key: Key) -> Option<Stack> {
        let stack = self.processes.get_mut(&pid)?.remove(&key)?;
        self.len = self.len.saturating_sub(1);
        Some(stack)
    }

    /// Removes the stack if nothing is known of it any more.
    pub fn remove_if_idle(&mut self, pid: u32, key: Key) {
        if self.get(pid, key).is_some_and(Stack::is_idle) {
            self.remove(pid, key);
        }
    }

    /// Removes the stack that was made first.
    pub fn remove_oldest(&mut self) -> Option<Stack> {
        while let Some((pid, key, generation)) = self.order.pop_front() {
            if self.get(pid, key).is_some_and(|stack| stack.generation == generation) {
                return self.remove(pid, key);
            }
        }
        None
    }

    /// Removes all stacks of a process, in the order of their keys.
    pub fn remove_process(&mut self, pid: u32) -> Vec<(Key, Stack)> {
        let stacks = self.processes.remove(&pid).unwrap_or_default();
        self.len = self.len.saturating_sub(stacks.len());
        let mut stacks: Vec<_> = stacks.into_iter().collect();
        stacks.sort_unstable_by_key(|(key, _)| *key);
        stacks
    }

    /// Processes known, in order.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.processes.keys().copied().collect();
        pids.sort_unstable();
        pids
    }
}
