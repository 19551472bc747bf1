//! A thread that gets a CPU soon, and not more of it than others.
//!
//! A ring of a busy CPU is full after a few milliseconds, which is how long the kernel lets
//! others finish when all CPUs are taken. A thread that asks for short slices of time waits less
//! for them (EEVDF, Linux 6.12); its share stays the same. Older kernels ignore the wish.

use std::mem::size_of;

/// The shortest that the kernel grants, nanoseconds (`__setparam_fair` in kernel/sched).
const SLICE_NS: u64 = 100_000;

/// Asks for short slices for the calling thread; what it starts later has ordinary ones. Does
/// nothing for a thread with a scheduling policy of its own, and nothing where it can't.
pub(crate) fn shorten() {
    // SAFETY: all fields are integers, of which any bits are valid.
    let mut wish: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the pointer is to a sched_attr of that size, which the kernel fills in.
    let code = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut wish, size, 0) };
    if code != 0 || wish.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    wish.sched_runtime = SLICE_NS;
    wish.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    // SAFETY: the pointer is to a sched_attr that says its size, which the kernel only reads.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wish, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current() -> libc::sched_attr {
        // SAFETY: as above.
        let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::sched_attr>();
        // SAFETY: as above.
        let code = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
        assert_eq!(code, 0);
        attr
    }

    #[test]
    fn a_thread_keeps_policy_and_niceness() {
        let (before, after) = std::thread::spawn(|| {
            let before = current();
            shorten();
            (before, current())
        })
        .join()
        .unwrap();
        assert_eq!(after.sched_policy, before.sched_policy);
        assert_eq!(after.sched_nice, before.sched_nice);
        let reset = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        assert_eq!(after.sched_flags & reset, reset);
    }
}
