//! All stacks, by process; oldest first when something must go.

use crate::hash::KeyHash;
use crate::stack::Stack;
use std::collections::{HashMap, VecDeque};

/// Bookkeeping entries that are not worth a sweep.
const FEW: usize = 1024;

/// Places found lately, a power of two.
const RECENT: usize = 256;

/// Names a stack within its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// A goroutine's own stack, by goid.
    Own(u64),
    /// A system stack, by the address of its g.
    System(u64),
}

/// Where a stack is kept, until it is removed or rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u32);

/// How a slot is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Use {
    /// For nothing; its number is in the list of free ones.
    #[default]
    Free,
    /// By a stack of which nothing is known. It is as good as absent, and stays because its
    /// goroutine most likely makes the next call too.
    Resting,
    /// By a stack.
    Busy,
}

#[derive(Debug)]
struct Slot {
    pid: u32,
    key: Key,
    usage: Use,
    stack: Stack,
}

/// Stacks of all processes.
#[derive(Debug)]
pub(crate) struct Table {
    processes: HashMap<u32, HashMap<Key, u32, KeyHash>, KeyHash>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The slot of the key that was last looked up, by some bits of the key. A slot says itself
    /// whose it is.
    recent: [u32; RECENT],
    /// Stacks by age; may name stacks that are gone (their generation tells).
    order: VecDeque<(u32, u64)>,
    busy: usize,
    resting: usize,
    generation: u64,
    sweep_at: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            processes: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            recent: [0; RECENT],
            order: VecDeque::new(),
            busy: 0,
            resting: 0,
            generation: 0,
            sweep_at: 0,
        }
    }
}

impl Table {
    /// Number of stacks.
    pub fn len(&self) -> usize {
        self.busy
    }

    /// Entries of all tables.
    pub fn remembered(&self) -> usize {
        self.busy + self.resting + self.order.len() + self.processes.len()
    }

    /// Where the stack is.
    pub fn find(&mut self, pid: u32, key: Key) -> Option<Place> {
        let index = self.slot(pid, key)?;
        let slot = self.slots.get(index as usize)?;
        (slot.usage == Use::Busy).then_some(Place(index))
    }

    /// The stack at a place.
    pub fn at(&mut self, place: Place) -> Option<&mut Stack> {
        let slot = self.slots.get_mut(place.0 as usize)?;
        (slot.usage == Use::Busy).then_some(&mut slot.stack)
    }

    pub fn get_mut(&mut self, pid: u32, key: Key) -> Option<&mut Stack> {
        let place = self.find(pid, key)?;
        self.at(place)
    }

    /// The slot of a key, of whatever use.
    fn slot(&mut self, pid: u32, key: Key) -> Option<u32> {
        let recent = recent(pid, key);
        let index = self.recent[recent];
        let is_it = |slot: &Slot| slot.key == key && slot.pid == pid && slot.usage != Use::Free;
        if self.slots.get(index as usize).is_some_and(is_it) {
            return Some(index);
        }
        let index = *self.processes.get(&pid)?.get(&key)?;
        self.recent[recent] = index;
        Some(index)
    }

    /// Where the stack is, made when it is not there.
    pub fn make(&mut self, pid: u32, key: Key) -> Place {
        let index = match self.slot(pid, key) {
            Some(index) => index,
            None => self.take_slot(pid, key),
        };
        let slot = &mut self.slots[index as usize];
        if slot.usage != Use::Busy {
            self.resting -= usize::from(slot.usage == Use::Resting);
            self.busy += 1;
            self.generation += 1;
            slot.usage = Use::Busy;
            slot.stack.generation = self.generation;
            self.order.push_back((index, self.generation));
            self.forget_old_orders();
        }
        Place(index)
    }

    fn forget_old_orders(&mut self) {
        if self.order.len() < FEW + 2 * self.busy {
            return;
        }
        let slots = &self.slots;
        self.order.retain(|&(index, generation)| {
            let slot = slots.get(index as usize);
            slot.is_some_and(|it| it.usage == Use::Busy && it.stack.generation == generation)
        });
    }

    /// Gives a key a slot that is not in use yet.
    fn take_slot(&mut self, pid: u32, key: Key) -> u32 {
        self.forget_the_gone();
        let slot = Slot { pid, key, usage: Use::Free, stack: Stack::default() };
        let index = match self.free.pop() {
            Some(index) => {
                let place = &mut self.slots[index as usize];
                (place.pid, place.key) = (pid, key);
                index
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.processes.entry(pid).or_default().insert(key, index);
        self.recent[recent(pid, key)] = index;
        index
    }

    /// Keeps the bookkeeping proportional to what is alive; amortised constant time.
    fn forget_the_gone(&mut self) {
        if self.resting >= FEW + self.busy.max(self.slots.len() / 4) {
            for index in 0..self.slots.len() {
                if self.slots[index].usage == Use::Resting {
                    self.release(index as u32);
                }
            }
        }
        if self.processes.len() >= self.sweep_at.max(FEW) {
            self.processes.retain(|_, stacks| !stacks.is_empty());
            self.sweep_at = 2 * self.processes.len();
        }
    }

    /// Makes a slot free; gives what was in it.
    fn release(&mut self, index: u32) -> Option<Stack> {
        let slot = self.slots.get_mut(index as usize)?;
        match std::mem::take(&mut slot.usage) {
            Use::Free => return None,
            Use::Resting => self.resting -= 1,
            Use::Busy => self.busy -= 1,
        }
        let stack = std::mem::take(&mut slot.stack);
        if let Some(stacks) = self.processes.get_mut(&slot.pid) {
            stacks.remove(&slot.key);
        }
        self.free.push(index);
        Some(stack)
    }

    pub fn remove(&mut self, pid: u32, key: Key) -> Option<Stack> {
        let index = self.slot(pid, key)?;
        let is_busy = self.slots.get(index as usize)?.usage == Use::Busy;
        self.release(index).filter(|_| is_busy)
    }

    /// Removes the stack if nothing is known of it any more.
    pub fn remove_if_idle(&mut self, place: Place) {
        let Some(slot) = self.slots.get_mut(place.0 as usize) else { return };
        if slot.usage != Use::Busy || !slot.stack.is_idle() {
            return;
        }
        slot.stack.rest();
        slot.usage = Use::Resting;
        self.busy -= 1;
        self.resting += 1;
        // Its entry in the order is void. Most often it is the last one.
        if self.order.back().is_some_and(|&(_, generation)| generation == slot.stack.generation) {
            self.order.pop_back();
        }
    }

    /// Removes the stack that was made first.
    pub fn remove_oldest(&mut self) -> Option<Stack> {
        while let Some((index, generation)) = self.order.pop_front() {
            let slot = self.slots.get(index as usize)?;
            if slot.usage == Use::Busy && slot.stack.generation == generation {
                return self.release(index);
            }
        }
        None
    }

    /// Removes all stacks of a process, in the order of their keys.
    pub fn remove_process(&mut self, pid: u32) -> Vec<(Key, Stack)> {
        let places = self.processes.remove(&pid).unwrap_or_default();
        let mut places: Vec<(Key, u32)> = places.into_iter().collect();
        places.sort_unstable_by_key(|(key, _)| *key);
        let mut stacks = Vec::new();
        for (key, index) in places {
            let is_busy = self.slots.get(index as usize).is_some_and(|it| it.usage == Use::Busy);
            stacks.extend(self.release(index).filter(|_| is_busy).map(|stack| (key, stack)));
        }
        stacks
    }

    /// All stacks, in no order.
    pub fn stacks(&mut self) -> impl Iterator<Item = &mut Stack> {
        let busy = self.slots.iter_mut().filter(|slot| slot.usage == Use::Busy);
        busy.map(|slot| &mut slot.stack)
    }

    /// Processes known, in order.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.processes.keys().copied().collect();
        pids.sort_unstable();
        pids
    }
}

/// Where a key's slot is noted. Keys that a target chooses to collide only make it slower.
fn recent(pid: u32, key: Key) -> usize {
    let (Key::Own(number) | Key::System(number)) = key;
    let mixed = (number ^ u64::from(pid) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as usize % RECENT
}
