//! Stopping a process, all of it, and acting in its name while it stands.
//!
//! A trace belongs to the thread that started it: everything here is to be used by one thread,
//! and the types are not `Send`. A process is traced only while something is done to it; in
//! between it runs untraced, and debuggers may come and go.

mod access;
mod borrowed;
mod stopped;
mod sys;
mod thread;

pub(crate) use access::check as check_access;
pub(crate) use borrowed::Borrowed;
pub(crate) use stopped::Stopped;
pub(crate) use sys::Registers;
pub(crate) use thread::Thread;
