//! `internal/abi.Name`: flags, length, bytes.

use crate::bytes::uvarint;
use crate::image::Image;
use crate::module_data::ModuleData;
use address::Svma;

/// Longer names than this are damage. (The name of a large unnamed struct is long.)
const MAX_NAME: u64 = 1 << 16;

/// The name at an offset from `types`.
pub(super) fn of_offset(image: &Image, module: &ModuleData, offset: u32) -> Option<String> {
    at(image, module, module.types.add(u64::from(i32::try_from(offset).ok()?.unsigned_abs())))
}

/// The name at an address of the type data.
pub(super) fn at(image: &Image, module: &ModuleData, address: Svma) -> Option<String> {
    if !module.has_type(address) {
        return None;
    }
    let head = (2..=11).rev().find_map(|len| image.read_vec(address, len).ok())?;
    let (len, rest) = uvarint(head.get(1..)?)?;
    if len > MAX_NAME {
        return None;
    }
    let start = address.add((head.len() - rest.len()) as u64);
    String::from_utf8(image.read_vec(start, len).ok()?).ok()
}
