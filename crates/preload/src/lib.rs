//! `libgospect_preload.so`: brings trampolines into a Go program from within, before its runtime
//! starts, with no privilege at all.
//!
//! Its constructor is called by the dynamic loader. In a program that is none of Go's it looks at
//! the program's headers, which lie in memory, and makes no system call. In a Go program it asks the
//! agent ([`handover`]) and does what that offers, after a look at every number. Whatever goes wrong, the
//! program goes on as if nothing had been.
//!
//! The library has no allocator and no libc (Go programs without cgo have none), needs no other
//! library, exports nothing and keeps nothing running. System calls are made by its own few lines of
//! assembly: crates for that set `errno`, which is libc's, or come as a part of more than is needed here,
//! and the build compiles these sources without Cargo (see `build.rs`).

#![cfg_attr(not(test), no_std)]

mod agent;
mod error;
mod install;
mod maps;
mod program;
mod start;
mod sys;
mod text;

pub use start::{Given, start};

/// Where the build has put the library.
#[cfg(not(object))]
pub const PATH: &str = concat!(env!("OUT_DIR"), "/libgospect_preload.so");
