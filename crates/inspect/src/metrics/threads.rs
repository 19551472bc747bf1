//! `allm`: the threads of the runtime.

use super::layout::Thread;
use super::reader::Reader;
use super::unknown::Unknown;
use address::{Avma, ReadMemory as _};
use binary::globals::Global;

/// One thread (M).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadNow {
    pub(super) address: Avma,
    pub(super) g0: u64,
    pub(super) id: u64,
    /// Calls to C it made.
    pub(super) cgo_calls: u64,
    /// Nanoseconds it waited for locks of the runtime.
    pub(super) lock_wait: u64,
}

/// Follows the list, newest first. A thread that ends meanwhile takes itself out and still
/// leads on to the rest.
///
/// Fails when there are more than `most`: then the list leads in a circle or is none.
pub(super) fn read(
    reader: &Reader<'_>,
    allm: Avma,
    layout: &Thread,
    most: u64,
) -> Result<Vec<ThreadNow>, Unknown> {
    let name = Global::Allm.symbol();
    let unreadable = |_| Unknown::Unreadable(name);
    let mut all = Vec::new();
    let mut bytes = vec![0; layout.pieces.size()];
    let mut next = reader.read_word(allm).map_err(unreadable)?;
    while next != 0 {
        if all.len() as u64 >= most {
            return Err(Unknown::Implausible(name));
        }
        let address = Avma(next);
        reader.read_parts(&mut layout.pieces.parts(address, &mut bytes)).map_err(unreadable)?;
        let m = layout.pieces.view(&bytes);
        all.push(ThreadNow {
            address,
            g0: m.word(layout.g0),
            id: m.word(layout.id),
            cgo_calls: m.word(layout.ncgocall),
            lock_wait: layout.lock_wait.map_or(0, |offset| m.word(offset)),
        });
        next = m.word(layout.alllink);
    }
    Ok(all)
}
