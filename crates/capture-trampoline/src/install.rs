//! Bringing code into a process and taking it out again.
//!
//! Order decides what our death leaves behind. Areas are mapped and filled first, jumps are
//! written last, page by page, each with one write: at any moment every jump leads to
//! complete code. Removal goes the other way.

mod area;
mod gap;
mod leftovers;
mod place;
mod remote;
mod rest;
mod room;
mod scan;
mod stacks;
mod stop;
mod target;
mod text;

pub(crate) use area::{Area, CODE_NAME, MFD_EXEC, RINGS_NAME, write_code};
pub(crate) use gap::{Layout, PAGE, Wanted};
pub(crate) use leftovers::{Resting, remove_leftovers};
pub use leftovers::{has_leftovers, is_carrier};
pub(crate) use place::{Place, code_segment};
pub(crate) use remote::sleepers;
pub(crate) use room::check_pages;
pub(crate) use stacks::StackFacts;
pub(crate) use target::{Prepared, Target};
pub use target::{Removal, Report};
pub(crate) use text::TextPatch;

#[cfg(test)]
mod tests;
