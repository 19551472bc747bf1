//! The words between a program that was started with `libgospect_preload.so` and the agent that gives
//! it code: packets of a `SOCK_SEQPACKET` socket, little-endian, of bounded lengths.
//!
//! ```text
//! program                                agent
//!   Hello  + descriptor of its file  ──▶
//!                                    ◀──  Offer + code, rings, patches (memfds), or Decline
//!   Done, or Failed                  ──▶
//!                                    ◀──  Go
//! ```
//! Until `Go` has come the program takes out again what it put in: an agent that dies in between leaves
//! nothing, and one that has said `Go` knows the program.
//!
//! Every packet begins with a header of [`HEADER`] bytes:
//! ```text
//!  0 magic   u32  "gosp"
//!  4 version u16  [`VERSION`]
//!  6 kind    u16
//!  8 length  u32  of the whole packet
//! 12 zero    u32
//! ```
//! Pure and `no_std`: it is part of a library without allocator or libc.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod bytes;
mod message;
mod offer;
mod patch;

pub use bytes::{HEADER, Reader, Writer};
pub use message::{Failed, FromAgent, FromProgram, Hello, Why};
pub use offer::{Offer, Span};
pub use patch::{JUMP, MAX_PATCHES, PATCH, PATCH_LEN, Patch, PatchError};

/// Of this protocol. Another one is declined on both sides.
pub const VERSION: u16 = 1;

/// Where the agent listens unless a program is told otherwise.
pub const SOCKET: &str = "/run/gospect/agent.sock";

/// The variable that names another place, absolute. Programs with `AT_SECURE` do not look at it.
pub const SOCKET_VARIABLE: &str = "GOSPECT_AGENT_SOCKET";

/// Bytes of a packet at the most.
pub const MAX_PACKET: usize = HEADER + 32 + 16 * MAX_RANGES;

/// Ranges of a [`Hello`] at the most.
pub const MAX_RANGES: usize = 1024;

/// How far from its code a program tells what it has mapped, and may be given areas: what a jump
/// reaches.
pub const REACH: u64 = 1 << 31;

/// Offsets in the control page, the magic that marks it and its size: as `capture-trampoline` has
/// them, which tests that they agree.
pub mod control {
    /// The word (u32) without which every hit returns at once.
    pub const ENABLED: u64 = 0;
    /// The process id (u32).
    pub const OWNER: u64 = 8;
    /// Where [`MARK_BYTES`] stand.
    pub const MARK: u64 = 16;
    /// What a control page is known by.
    pub const MARK_BYTES: [u8; 24] = *b"gospect: control page\xd2\x9b\x07";
    /// Bytes of the page.
    pub const SIZE: u64 = 4096;
}
