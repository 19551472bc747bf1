//! Writing jumps into the program's own code and taking them out. Pages that lie near each other become
//! writable and executable again together: each such change costs some microseconds.

use crate::error::{Because as _, Stop};
use crate::program::Program;
use crate::sys::{self, Errno, Fd};
use handover::{PATCH, PATCH_LEN, Patch, Span, Why};

const PAGE: u64 = 4096;

/// Pages without patches between two that are changed together, at the most.
const GAP: u64 = 16;

/// The program's code, and what is to be done to it.
pub(crate) struct Text<'a> {
    pub program: Program,
    /// The file that it shows.
    pub executable: &'a Fd,
    /// Checked entries.
    pub patches: &'a [[u8; PATCH]],
}

/// Which way to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub patches: u32,
    pub pages: u32,
}

/// Looks at all `entries`: whether they are jumps from `text` into `code`, in order, and whether
/// what they replace is there. The first `hooks` are an order of their own.
pub(crate) fn check(
    entries: &[[u8; PATCH]],
    hooks: usize,
    text: Span,
    code: Span,
    live: &dyn Fn(u64) -> [u8; PATCH_LEN],
) -> Result<(), Stop> {
    let (first, others) = entries.split_at_checked(hooks).because(Why::Patches)?;
    let mut hook = Span::default();
    for (part, is_hook) in [(first, true), (others, false)] {
        let mut after = 0;
        for entry in part {
            let patch = Patch::read(entry).ok().because(Why::Patches)?;
            after = patch.check(text, code, after).ok().because(Why::Patches)?;
            let address = patch.address(text);
            let own = Span { start: address, len: PATCH_LEN as u64 };
            if live(address) != patch.original || own.meets(hook) {
                return None.because(Why::Patches);
            }
            if is_hook {
                hook = own;
            }
        }
    }
    Ok(())
}

impl Text<'_> {
    /// Writes all jumps. When some pages cannot be written, those before them are as they were.
    ///
    /// # Safety
    /// Nobody runs this code meanwhile, or will resume within a patch.
    pub(crate) unsafe fn write(&self) -> Result<Written, Stop> {
        let mut written = Written::default();
        for run in self.runs() {
            // SAFETY: as the caller says.
            if let Err(errno) = unsafe { self.write_run(run, Direction::In) } {
                let begun = written.patches as usize + run.len();
                let patches = self.patches.get(..begun).unwrap_or(self.patches);
                // SAFETY: likewise.
                unsafe { Text { patches, ..*self }.take_out() };
                return Err(errno).because(Why::Text);
            }
            written.patches += run.len() as u32;
            written.pages += self.pages(run).map(|_| 1).sum::<u32>();
        }
        Ok(written)
    }

    /// Puts back what was there.
    ///
    /// # Safety
    /// As for [`Text::write`].
    pub(crate) unsafe fn take_out(&self) {
        for run in self.runs() {
            // SAFETY: as the caller says. Pages that can no longer be run are mapped anew there.
            let _ = unsafe { self.write_run(run, Direction::Out) };
        }
    }

    /// The page of a patch.
    fn page(&self, entry: &[u8; PATCH]) -> u64 {
        Patch::read(entry).map_or(0, |patch| patch.address(self.program.text) / PAGE)
    }

    /// Patches on pages that lie near each other, in ascending order.
    fn runs(&self) -> impl Iterator<Item = &[[u8; PATCH]]> {
        self.patches.chunk_by(|one, other| {
            self.page(other).checked_sub(self.page(one)).is_some_and(|distance| distance <= GAP)
        })
    }

    /// Patches of a run that lie on one page each.
    fn pages<'r>(&self, run: &'r [[u8; PATCH]]) -> impl Iterator<Item = &'r [[u8; PATCH]]> {
        run.chunk_by(|one, other| self.page(one) == self.page(other))
    }

    unsafe fn write_run(&self, run: &[[u8; PATCH]], direction: Direction) -> Result<(), Errno> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(()) };
        let text = self.program.text;
        let start = self.page(first) * PAGE;
        let len = (self.page(last) + 1) * PAGE - start;
        // SAFETY: nobody runs these pages, as the caller says.
        unsafe { sys::protect(start, len, sys::READ | sys::WRITE)? };
        let patches = run.iter().filter_map(|entry| Patch::read(entry).ok());
        for patch in patches {
            let place = patch.address(text) as *mut [u8; PATCH_LEN];
            let bytes = match direction {
                Direction::In => patch.replacement,
                Direction::Out => patch.original,
            };
            // SAFETY: checked to lie in the text, on a page that is writable now.
            unsafe { place.write_volatile(bytes) };
        }
        // SAFETY: as above.
        match unsafe { sys::protect(start, len, sys::READ | sys::EXEC) } {
            Ok(()) => Ok(()),
            Err(errno) => {
                // A policy against code that was written (SELinux, systemd, prctl) lets no page be
                // run again; the file's own it does.
                // SAFETY: the pages become what the file has there, as they were before.
                unsafe { self.map_anew(start, len) };
                Err(errno)
            }
        }
    }

    /// Maps pages of the text from the file again.
    unsafe fn map_anew(&self, start: u64, len: u64) {
        let Program { text, text_offset, .. } = self.program;
        let offset = text_offset.wrapping_add(start.wrapping_sub(text.start));
        let flags = sys::PRIVATE | sys::FIXED;
        let file = Some((self.executable, offset));
        // SAFETY: as the caller says.
        if unsafe { sys::map(start, len, sys::READ | sys::EXEC, flags, file) }.is_err() {
            // Nothing better is left.
            // SAFETY: likewise.
            let _ = unsafe { sys::protect(start, len, sys::READ | sys::WRITE | sys::EXEC) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Span = Span { start: 0x40_1000, len: 0x10_0000 };
    const CODE: Span = Span { start: 0x4000_0000, len: 0x1000 };
    const ORIGINAL: [u8; PATCH_LEN] = [0x55, 0x48, 0x89, 0xe5, 0x90];

    fn entry(offset: u32) -> [u8; PATCH] {
        let distance = CODE.start.wrapping_sub(TEXT.start + u64::from(offset) + 5) as i32;
        let [a, b, c, d] = distance.to_le_bytes();
        Patch { offset, original: ORIGINAL, replacement: [handover::JUMP, a, b, c, d] }.write()
    }

    fn check_all(offsets: &[u32], hooks: usize) -> bool {
        let entries: Vec<_> = offsets.iter().map(|&offset| entry(offset)).collect();
        check(&entries, hooks, TEXT, CODE, &|_| ORIGINAL).is_ok()
    }

    #[test]
    fn all_patches_are_looked_at_before_any_is_written() {
        assert!(check_all(&[0x10, 0x15, 0x2000], 0));
        assert!(check_all(&[0x3000, 0x10, 0x2000], 1));
        assert!(!check_all(&[0x3000, 0x10, 0x2000], 0));
        assert!(!check_all(&[0x10, 0x14], 0));
        assert!(!check_all(&[0x10, 0x12], 1), "over the hook");
        assert!(!check_all(&[0x10], 2));
        let other = check(&[entry(0x10)], 0, TEXT, CODE, &|_| [0xcc; PATCH_LEN]);
        assert_eq!(other, Err(Stop::Told(Why::Patches, Errno(0))));
    }
}
