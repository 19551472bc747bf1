//! A path or pid to bytes and identity: executables, maps, threads, memory, discovery,
//! and starting a program so that it can be prepared before its first instruction.
//!
//! Hand in a pid; get a [`Process`] that notices when the pid comes to mean another process.
//! Reads files, `/proc` and process memory; interprets no Go structure and changes
//! nothing in the processes it looks at.

mod clock;
mod ended;
mod error;
mod exec_events;
mod file_source;
mod find;
mod held;
mod launch;
mod lookup;
mod maps;
mod memory;
mod memory_room;
mod network;
mod opened;
mod place;
mod privilege;
mod usage;
mod user;

pub use clock::clock_source;
pub use error::Error;
pub use exec_events::{ExecEvents, Execs};
pub use file_source::{FileIdentity, FileSource, FileStamp};
pub use find::find_by_exe;
pub use held::{HELD_FAILED, held_exec};
pub use launch::{ExecError, Held, spawn_held};
pub use lookup::find_program;
pub use maps::{Mapping, Maps};
pub use memory::ProcessMemory;
pub use memory_room::{MemoryRoom, memory_room};
pub use opened::Process;
pub use place::Listener;
pub use privilege::{Capabilities, Capability, Restrictions, is_ignored, why_inaccessible};
pub use usage::{ImageStamp, NetworkBytes, Usage, UsageReader};
pub use user::User;
