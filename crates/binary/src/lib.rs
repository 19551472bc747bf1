//! Facts about a Go executable. Pure: an image (bytes behind [`address::ReadAt`]) in,
//! facts out; opens no file and knows no process. Input is untrusted: nothing here
//! panics on it or allocates by a size it states.
#![forbid(unsafe_code)]

mod build_info;
pub mod code;
mod detect;
mod error;
mod executable;
mod function;
mod image;
mod module_data;
mod symbol;

pub use build_info::{BuildInfo, GoVersion, Module};
pub use detect::BuildMode;
pub use error::Error;
pub use executable::Executable;
pub use function::{Frame, Function, FunctionTable, InlinedCall, flag};
pub use image::{Image, Section, Segment};
pub use module_data::ModuleData;
pub use symbol::{Symbol, SymbolTable};
