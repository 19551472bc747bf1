//! Facts about a Go executable. Pure: an image (bytes behind [`address::ReadAt`]) in,
//! facts out; opens no file and knows no process. Input is untrusted: nothing here
//! panics on it or allocates by a size it states.
#![forbid(unsafe_code)]

mod error;
mod image;

pub use error::Error;
pub use image::{Image, Section, Segment};
