//! Where areas are to be, and whether that can be true of a program.

use crate::{MAX_PATCHES, REACH, Reader, Writer, control};

const PAGE: u64 = 4096;

/// Nothing is mapped below: nil with an offset must fault.
const LOWEST: u64 = 1 << 24;

/// Bytes of code and of rings at the most.
const MAX_CODE: u64 = 1 << 28;
const MAX_RINGS: u64 = 1 << 31;

/// A range of addresses in the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
}

impl Span {
    /// First byte after it; `None` when there is no such address.
    pub fn end(self) -> Option<u64> {
        self.start.checked_add(self.len)
    }

    /// Whether all of `start..start + len` lies in it.
    pub fn holds(self, start: u64, len: u64) -> bool {
        let end = start.checked_add(len);
        start >= self.start && end.is_some_and(|end| self.end().is_some_and(|own| end <= own))
    }

    /// Whether they have a byte in common.
    pub fn meets(self, other: Self) -> bool {
        let (Some(end), Some(other_end)) = (self.end(), other.end()) else { return true };
        self.start < other_end && other.start < end
    }
}

/// What a program is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The bias of the [`crate::Hello`] that it answers.
    pub bias: u64,
    /// Where the control page goes (avma).
    pub control: u64,
    /// Where the rings go, right behind it.
    pub rings: Span,
    /// Where the code goes, whole pages.
    pub code: Span,
    /// Patches in the third descriptor, of [`crate::PATCH`] bytes each.
    pub patches: u32,
    /// How many of them, the first ones, are to be in before the others and out after them: 0 or 1.
    pub hooks: u32,
}

impl Offer {
    pub(crate) fn put(&self, writer: &mut Writer<'_>) {
        writer.u64(self.bias);
        writer.u64(self.control);
        for span in [self.rings, self.code] {
            writer.u64(span.start);
            writer.u64(span.len);
        }
        writer.u32(self.patches);
        writer.u32(self.hooks);
    }

    pub(crate) fn read(mut body: Reader<'_>) -> Option<Self> {
        let (bias, control) = (body.u64()?, body.u64()?);
        let rings = Span { start: body.u64()?, len: body.u64()? };
        let code = Span { start: body.u64()?, len: body.u64()? };
        let (patches, hooks) = (body.u32()?, body.u32()?);
        body.end().map(|()| Self { bias, control, rings, code, patches, hooks })
    }

    /// The control page.
    pub fn control_page(&self) -> Span {
        Span { start: self.control, len: control::SIZE }
    }

    /// Whether it can be for a program whose code is `text` and that said `bias`: sizes within
    /// bounds, whole pages, near enough to the text, apart from it and from each other.
    pub fn fits(&self, bias: u64, text: Span) -> bool {
        let areas = [self.control_page(), self.rings, self.code];
        let is_area = |area: &Span| {
            let is_whole = area.start.is_multiple_of(PAGE) && area.len.is_multiple_of(PAGE);
            let (Some(end), Some(text_end)) = (area.end(), text.end()) else { return false };
            let lowest = text_end.saturating_sub(REACH).max(LOWEST);
            let highest = text.start.saturating_add(REACH);
            is_whole && area.len > 0 && area.start >= lowest && end <= highest
        };
        let [control, rings, code] = areas;
        let is_apart = !control.meets(rings) && !control.meets(code) && !rings.meets(code);
        self.bias == bias
            && areas.iter().all(|area| is_area(area) && !area.meets(text))
            && is_apart
            && self.code.len <= MAX_CODE
            && self.rings.len <= MAX_RINGS
            && (1..=MAX_PATCHES).contains(&self.patches)
            && self.hooks <= 1
            && self.hooks <= self.patches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Span = Span { start: 0x5555_0000_1000, len: 0x20_0000 };

    fn offer() -> Offer {
        Offer {
            bias: 7,
            control: 0x5554_f000_0000,
            rings: Span { start: 0x5554_f000_1000, len: 0x10_0000 },
            code: Span { start: 0x5554_f010_1000, len: 0x2000 },
            patches: 3,
            hooks: 1,
        }
    }

    #[test]
    fn an_offer_that_cannot_be_meant_is_told_apart() {
        assert!(offer().fits(7, TEXT));
        assert!(!offer().fits(8, TEXT));
        type Change = fn(&mut Offer);
        let wrong: [(&str, Change); 16] = [
            ("no code", |o| o.code.len = 0),
            ("half a page", |o| o.code.len = 100),
            ("a start within a page", |o| o.rings.start += 8),
            ("code over rings", |o| o.code.start = o.rings.start + 4096),
            ("control over code", |o| o.control = o.code.start),
            ("rings over control", |o| o.rings.start = o.control),
            ("over the text", |o| o.code.start = TEXT.start),
            ("out of reach below", |o| o.code.start = TEXT.start - (1 << 31)),
            ("out of reach above", |o| o.code.start = TEXT.start + (1 << 31)),
            ("at the end of memory", |o| o.code = Span { start: !0xfff, len: 0x1000 }),
            ("more than there is", |o| o.rings.len = !0xfff),
            ("large code", |o| o.code = Span { start: TEXT.start - (1 << 30), len: 1 << 29 }),
            ("no patches", |o| (o.patches, o.hooks) = (0, 0)),
            ("many patches", |o| o.patches = MAX_PATCHES + 1),
            ("many hooks", |o| o.hooks = 2),
            ("on the pages of nil", |o| o.control = 0x10_0000),
        ];
        for (name, change) in wrong {
            let mut offer = offer();
            change(&mut offer);
            assert!(!offer.fits(7, TEXT), "{name}");
        }
    }

    #[test]
    fn spans_do_not_wrap() {
        let last = Span { start: u64::MAX - 4, len: 4 };
        assert!(last.holds(u64::MAX - 2, 2));
        assert!(!last.holds(u64::MAX - 2, 3));
        assert!(!last.holds(u64::MAX - 2, u64::MAX));
        assert!(Span { start: u64::MAX, len: 9 }.meets(TEXT), "what cannot be is in the way");
    }
}
