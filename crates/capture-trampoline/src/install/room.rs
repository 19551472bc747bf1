//! Whether a process may have the memory that our patches make it use.

use super::gap::PAGE;
use super::target::Prepared;
use super::text;
use crate::Error;

/// Pages besides those of the text: the control page, page tables.
const SPARE_PAGES: u64 = 64;

/// Refuses when the pages to be written could get a process of the target's control group killed:
/// each written page of text becomes a private one, charged to that group.
pub(super) fn check(pid: u32, prepared: &Prepared) -> Result<(), Error> {
    check_pages(pid, text::page_count(prepared.hook.iter().chain(&prepared.patches)))
}

/// The same for so many pages of text.
pub(crate) fn check_pages(pid: u32, pages: u64) -> Result<(), Error> {
    let need = (pages + SPARE_PAGES) * PAGE;
    match process::memory_room(pid) {
        Some(room) if room.bytes < need => Err(Error::Unsuitable {
            pid,
            reason: format!(
                "its control group {} may use {} KiB more and {} KiB are needed: raise the limit, \
                 select fewer functions, or use --backend uprobe",
                room.group.display(),
                room.bytes >> 10,
                need >> 10
            ),
        }),
        _ => Ok(()),
    }
}
