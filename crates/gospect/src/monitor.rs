//! Processes whose metrics are read again and again: which they are, what is known of their
//! executables, and that each is still the one it was.

mod fleet;
mod image;
mod rows;
mod service;
mod watched;

pub use fleet::{Chosen, Fleet, Round};
pub use image::Images;
pub use rows::rows;
pub use service::service_of;
pub use watched::{Read, Seen, Wants, Watched};
