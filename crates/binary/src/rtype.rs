//! Type descriptors in the file (`internal/abi.Type`): name and kind. Their layout is
//! the same from Go 1.19 to 1.27.

mod full_name;
mod info;
mod method;
mod name;
mod reach;

pub use info::{Itab, RuntimeType};
pub use method::RuntimeSignature;
pub(crate) use reach::RuntimeTypes;

use crate::bytes::u32_at;
use crate::image::Image;
use crate::module_data::ModuleData;
use address::Svma;

/// `internal/abi.Type`: size in bytes and offsets.
const SIZE: u64 = 48;
const TFLAG: usize = 20;
const KIND: usize = 23;
const STR: usize = 40;

/// The low bits of the kind byte; above them stand flags (up to Go 1.25).
const KIND_MASK: u8 = 31;
/// `reflect.UnsafePointer`, the last kind.
const LAST_KIND: u8 = 26;
/// `abi.TFlagExtraStar`: the name in the file has a leading `*` that is not the type's.
const EXTRA_STAR: u8 = 2;

/// The name of the type at `descriptor` as `%T` prints it, and its `reflect.Kind`.
pub(crate) fn type_name(
    image: &Image,
    module: &ModuleData,
    descriptor: Svma,
) -> Option<(String, u8)> {
    if !module.has_type(descriptor) {
        return None;
    }
    let raw = image.read_vec(descriptor, SIZE).ok()?;
    let kind = raw.get(KIND)? & KIND_MASK;
    if kind == 0 || kind > LAST_KIND {
        return None;
    }
    let name = name::of_offset(image, module, u32_at(&raw, STR)?)?;
    let starred = raw.get(TFLAG)? & EXTRA_STAR != 0;
    let name = if starred { name.strip_prefix('*')? } else { &name };
    (!name.is_empty()).then(|| (name.to_owned(), kind))
}
