//! From an offer to code in this process, and back as long as nobody has said `Go`.

use crate::agent::Agent;
use crate::error::{Because as _, Stop};
use crate::program::Program;
use crate::sys::{self, Errno, Fd, Three};
use crate::text::{self, Text};
use handover::{FromAgent, Offer, PATCH, PATCH_LEN, Span, Why, control};

/// F_SEAL_SHRINK and F_SEAL_GROW: what is mapped does not go away.
const SIZE_SEALS: usize = 2 | 4;
/// F_SEAL_WRITE, F_SEAL_FUTURE_WRITE: what was looked at stays as it is.
const WRITE_SEALS: usize = 8 | 16;

/// Memory that goes when dropped, unless it is kept.
struct Area {
    span: Span,
}

impl Area {
    /// Maps at a free address.
    fn map(span: Span, protection: usize, flags: usize, file: Option<&Fd>) -> Result<Self, Stop> {
        let flags = flags | sys::NOREPLACE;
        let file = file.map(|fd| (fd, 0));
        // SAFETY: an address that is in use makes the call fail; older kernels (before 4.17) choose
        // another then.
        let start = unsafe { sys::map(span.start, span.len, protection, flags, file) };
        let area = Self { span: Span { start: start.because(Why::Areas)?, len: span.len } };
        if area.span.start == span.start { Ok(area) } else { None.because(Why::Areas) }
    }

    /// Maps where the kernel likes, to be read.
    fn read_only(file: &Fd, len: u64) -> Result<Self, Stop> {
        // SAFETY: a new mapping is nobody's.
        let start = unsafe { sys::map(0, len, sys::READ, sys::PRIVATE, Some((file, 0))) };
        Ok(Self { span: Span { start: start.because(Why::Patches)?, len } })
    }

    fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: who drops it uses it no more, and no jump leads there.
        let _ = unsafe { sys::unmap(self.span.start, self.span.len) };
    }
}

/// The areas of an offer, in place.
struct Areas {
    control: Area,
    code: Area,
    rings: Area,
}

impl Areas {
    fn map(offer: &Offer, code: &Fd, rings: &Fd) -> Result<Self, Stop> {
        let anonymous = sys::PRIVATE | sys::ANONYMOUS;
        let read_write = sys::READ | sys::WRITE;
        let areas = Self {
            control: Area::map(offer.control_page(), read_write, anonymous, None)?,
            code: Area::map(offer.code, sys::READ | sys::EXEC, sys::SHARED, Some(code))?,
            rings: Area::map(offer.rings, read_write, sys::SHARED, Some(rings))?,
        };
        areas.mark(control::MARK, &control::MARK_BYTES);
        areas.mark(control::OWNER, &sys::pid().to_le_bytes());
        sys::advise(offer.control, control::SIZE, sys::WIPE_ON_FORK).because(Why::Areas)?;
        // An older kernel dumps them; so be it.
        let _ = sys::advise(offer.rings.start, offer.rings.len, sys::DONT_DUMP);
        Ok(areas)
    }

    fn mark<const N: usize>(&self, offset: u64, bytes: &[u8; N]) {
        let place = self.control.span.start.wrapping_add(offset) as *mut [u8; N];
        // SAFETY: all of these places lie within the page, which is ours.
        unsafe { place.write_volatile(*bytes) };
    }

    /// Lets hits count, and leaves everything where it is.
    fn enable(self) {
        self.mark(control::ENABLED, &1u32.to_le_bytes());
        for area in [self.control, self.code, self.rings] {
            area.keep();
        }
    }
}

/// Does what `offer` says, tells the agent, and waits for its word. On an error nothing is left.
///
/// # Safety
/// The program has one thread, and runs no code of its own yet.
pub(crate) unsafe fn install(
    agent: &Agent,
    program: Program,
    executable: &Fd,
    offer: &Offer,
    fds: Three,
) -> Result<(), Stop> {
    if !offer.fits(program.bias, program.text) {
        return None.because(Why::Offer);
    }
    let [Some(code), Some(rings), Some(patches)] = fds else {
        return None.because(Why::Descriptors);
    };
    let patches_len = u64::from(offer.patches) * PATCH as u64;
    verify(&code, offer.code.len, true)?;
    verify(&rings, offer.rings.len, false)?;
    verify(&patches, patches_len, true)?;
    let list = Area::read_only(&patches, patches_len)?;
    // SAFETY: the mapping has that many bytes, which nobody can change: the file is sealed.
    let entries = unsafe {
        let start = list.span.start as *const [u8; PATCH];
        core::slice::from_raw_parts(start, offer.patches as usize)
    };
    // SAFETY: only addresses in the text are asked for.
    let live = |at: u64| unsafe { (at as *const [u8; PATCH_LEN]).read_volatile() };
    text::check(entries, offer.hooks as usize, program.text, offer.code, &live)?;
    let areas = Areas::map(offer, &code, &rings)?;
    let text = Text { program, executable, patches: entries };
    // SAFETY: as the caller says.
    let written = unsafe { text.write()? };
    let told = agent.done(written.patches, written.pages).and_then(|()| agent.listen());
    let stop = match told {
        Ok((FromAgent::Go, _)) => {
            areas.enable();
            return Ok(());
        }
        Ok(_) => Stop::Silent,
        Err(stop) => stop,
    };
    // SAFETY: as the caller says.
    unsafe { text.take_out() };
    Err(stop)
}

/// Whether a descriptor is a memfd of that length, which it keeps, and if so its contents.
fn verify(fd: &Fd, len: u64, is_constant: bool) -> Result<(), Stop> {
    let seals = sys::seals(fd).because(Why::Descriptors)?;
    let stat = sys::fstat(fd).because(Why::Descriptors)?;
    let is_sealed = seals & SIZE_SEALS == SIZE_SEALS && (!is_constant || seals & WRITE_SEALS != 0);
    if stat.size == len && is_sealed { Ok(()) } else { Err(Errno(0)).because(Why::Descriptors) }
}
