//! What both sides say.

use crate::offer::Offer;
use crate::{MAX_RANGES, Reader, Span, Writer};

const HELLO: u16 = 1;
const OFFER: u16 = 2;
const DECLINE: u16 = 3;
const DONE: u16 = 4;
const FAILED: u16 = 5;
const GO: u16 = 6;

/// A program introduces itself; a descriptor of its executable comes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// What to add to addresses in the image for those in the process.
    pub bias: u64,
    /// The segment that holds the code (avma).
    pub text: Span,
    /// Pairs of start and end of what is mapped within [`crate::REACH`] of the text, ascending.
    ranges: &'a [u8],
}

impl<'a> Hello<'a> {
    /// Writes it for the mappings that `ranges` gives; `None` when `buffer` or the packet is too
    /// small for them.
    pub fn write(
        buffer: &mut [u8],
        bias: u64,
        text: Span,
        ranges: impl Iterator<Item = Span>,
    ) -> Option<usize> {
        let mut writer = Writer::new(buffer, HELLO);
        writer.u64(bias);
        writer.u64(text.start);
        writer.u64(text.len);
        writer.u64(0);
        for range in ranges {
            writer.u64(range.start);
            writer.u64(range.end()?);
        }
        writer.finish()
    }

    fn read(mut body: Reader<'a>) -> Option<Self> {
        let (bias, start, len, zero) = (body.u64()?, body.u64()?, body.u64()?, body.u64()?);
        let text = Span { start, len };
        let hello = Self { bias, text, ranges: body.rest() };
        let count = hello.ranges.len() / 16;
        let is_whole = hello.ranges.len().is_multiple_of(16) && count <= MAX_RANGES && zero == 0;
        // Ascending and apart, so that whoever looks for gaps need not care.
        let mut last = 0;
        let is_ordered = hello.ranges().all(|range| {
            let is_next = range.start >= last && range.len > 0;
            last = range.end().unwrap_or(u64::MAX);
            is_next
        });
        (is_whole && is_ordered && text.end().is_some() && len > 0).then_some(hello)
    }

    /// What is mapped, ascending, without overlap.
    pub fn ranges(&self) -> impl Iterator<Item = Span> + 'a {
        self.ranges.chunks_exact(16).map(|pair| {
            let word = |at: usize| {
                let chunk = pair.get(at..).and_then(<[u8]>::first_chunk);
                u64::from_le_bytes(chunk.copied().unwrap_or_default())
            };
            let (start, end) = (word(0), word(8));
            Span { start, len: end.saturating_sub(start) }
        })
    }
}

/// Why a program took out what it had begun to put in, or took nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The offer's numbers are not for this program.
    Offer,
    /// The descriptors are not what the offer says, or not sealed.
    Descriptors,
    /// A patch does not fit, or its place holds other bytes than the file.
    Patches,
    /// An area could not be mapped where it was to be.
    Areas,
    /// Text could not be written.
    Text,
    /// The last word did not come in time.
    Time,
    /// One of a later version.
    Other(u32),
}

impl Why {
    const ALL: [(Self, u32); 6] = [
        (Self::Offer, 1),
        (Self::Descriptors, 2),
        (Self::Patches, 3),
        (Self::Areas, 4),
        (Self::Text, 5),
        (Self::Time, 6),
    ];

    fn code(self) -> u32 {
        let known = Self::ALL.iter().find(|(why, _)| *why == self);
        match (known, self) {
            (Some((_, code)), _) => *code,
            (None, Self::Other(code)) => code,
            (None, _) => 0,
        }
    }

    fn of(code: u32) -> Self {
        let known = Self::ALL.iter().find(|(_, number)| *number == code);
        known.map_or(Self::Other(code), |(why, _)| *why)
    }

    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Offer => "the offer does not fit the program",
            Self::Descriptors => "the descriptors of the offer are not what it says",
            Self::Patches => "its code in memory differs from the file",
            Self::Areas => "memory could not be mapped near its code",
            Self::Text => "its code could not be written: a security policy may forbid it",
            Self::Time => "the agent took too long",
            Self::Other(_) => "unknown",
        }
    }
}

/// That the program goes on without code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Where it ended.
    pub why: Why,
    /// What the kernel said, 0 when it was not asked.
    pub errno: u32,
}

/// What a program says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromProgram<'a> {
    /// The beginning.
    Hello(Hello<'a>),
    /// Everything is in place.
    Done {
        /// Patches written.
        patches: u32,
        /// Pages of text that were written and are the program's own now.
        pages: u32,
    },
    /// Nothing is in place.
    Failed(Failed),
}

impl<'a> FromProgram<'a> {
    /// Takes a packet apart.
    pub fn read(packet: &'a [u8]) -> Option<Self> {
        let (kind, mut body) = Reader::open(packet)?;
        match kind {
            HELLO => Hello::read(body).map(Self::Hello),
            DONE => {
                let (patches, pages) = (body.u32()?, body.u32()?);
                body.end().map(|()| Self::Done { patches, pages })
            }
            FAILED => {
                let (why, errno) = (Why::of(body.u32()?), body.u32()?);
                body.end().map(|()| Self::Failed(Failed { why, errno }))
            }
            _ => None,
        }
    }

    /// Writes [`FromProgram::Done`] or [`FromProgram::Failed`]; the other has [`Hello::write`].
    pub fn write(self, buffer: &mut [u8]) -> Option<usize> {
        let (kind, one, other) = match self {
            Self::Hello(_) => return None,
            Self::Done { patches, pages } => (DONE, patches, pages),
            Self::Failed(Failed { why, errno }) => (FAILED, why.code(), errno),
        };
        let mut writer = Writer::new(buffer, kind);
        writer.u32(one);
        writer.u32(other);
        writer.finish()
    }
}

/// What the agent says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromAgent {
    /// Here is code; three descriptors come along: code, rings, patches.
    Offer(Offer),
    /// There is none for this program.
    Decline,
    /// The program is known, and may switch its code on.
    Go,
}

impl FromAgent {
    /// Takes a packet apart.
    pub fn read(packet: &[u8]) -> Option<Self> {
        let (kind, body) = Reader::open(packet)?;
        match kind {
            OFFER => Offer::read(body).map(Self::Offer),
            DECLINE => body.end().map(|()| Self::Decline),
            GO => body.end().map(|()| Self::Go),
            _ => None,
        }
    }

    /// Writes it; `None` when `buffer` is too small.
    pub fn write(self, buffer: &mut [u8]) -> Option<usize> {
        let kind = match self {
            Self::Offer(_) => OFFER,
            Self::Decline => DECLINE,
            Self::Go => GO,
        };
        let mut writer = Writer::new(buffer, kind);
        if let Self::Offer(offer) = self {
            offer.put(&mut writer);
        }
        writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_PACKET;
    use proptest::prelude::*;

    const TEXT: Span = Span { start: 0x5555_0000_1000, len: 0x20_0000 };

    fn hello(ranges: &[Span]) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 2 * MAX_PACKET];
        let len = Hello::write(&mut buffer, 0x5555_0000_0000, TEXT, ranges.iter().copied())?;
        buffer.truncate(len);
        Some(buffer)
    }

    fn offer() -> Offer {
        let span = |start, len| Span { start, len };
        Offer {
            bias: 0x5555_0000_0000,
            control: 0x5554_f000_0000,
            rings: span(0x5554_f000_1000, 0x10_0000),
            code: span(0x5554_f010_1000, 0x2000),
            patches: 3,
            hooks: 1,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let ranges = [TEXT, Span { start: 0x7f00_0000_0000, len: 4096 }];
        let packet = hello(&ranges).unwrap();
        let Some(FromProgram::Hello(read)) = FromProgram::read(&packet) else { panic!() };
        assert_eq!((read.bias, read.text), (0x5555_0000_0000, TEXT));
        assert!(read.ranges().eq(ranges));

        let mut buffer = [0; 256];
        let failed = FromProgram::Failed(Failed { why: Why::Text, errno: 13 });
        for message in [FromProgram::Done { patches: 7, pages: 2 }, failed] {
            let len = message.write(&mut buffer).unwrap();
            assert_eq!(FromProgram::read(&buffer[..len]), Some(message));
        }
        for message in [FromAgent::Offer(offer()), FromAgent::Decline, FromAgent::Go] {
            let len = message.write(&mut buffer).unwrap();
            assert_eq!(FromAgent::read(&buffer[..len]), Some(message));
        }
        for why in Why::ALL.map(|(why, _)| why).into_iter().chain([Why::Other(77)]) {
            assert_eq!(Why::of(why.code()), why);
        }
    }

    #[test]
    fn a_hello_is_bounded_and_ordered() {
        let pages = |count: u64| (0..count).map(|n| Span { start: n << 13, len: 4096 });
        let most: Vec<_> = pages(MAX_RANGES as u64).collect();
        assert_eq!(hello(&most).map(|packet| packet.len()), Some(MAX_PACKET));
        let more: Vec<_> = pages(MAX_RANGES as u64 + 1).collect();
        assert_eq!(hello(&more), None);
        let back = [Span { start: 4096, len: 4096 }, Span { start: 0, len: 4096 }];
        let over = [Span { start: 0, len: 8192 }, Span { start: 4096, len: 8192 }];
        let empty = [Span { start: 0, len: 0 }];
        for wrong in [&back[..], &over, &empty] {
            assert_eq!(FromProgram::read(&hello(wrong).unwrap()), None, "{wrong:?}");
        }
    }

    #[test]
    fn half_a_packet_is_none() {
        let mut buffer = [0; 256];
        let len = FromAgent::Offer(offer()).write(&mut buffer).unwrap();
        let packet = hello(&[TEXT]).unwrap();
        for end in 0..len {
            assert_eq!(FromAgent::read(&buffer[..end]), None);
        }
        for end in 0..packet.len() {
            assert_eq!(FromProgram::read(&packet[..end]), None);
        }
        // One byte more than it says.
        assert_eq!(FromAgent::read(&buffer[..len + 1]), None);
        // What the other side says.
        assert_eq!(FromProgram::read(&buffer[..len]), None);
        // A later version.
        buffer[4] += 1;
        assert_eq!(FromAgent::read(&buffer[..len]), None);
    }

    #[test]
    fn a_small_buffer_gets_nothing() {
        for size in 0..HEADER_AND_DONE {
            let mut buffer = [0; HEADER_AND_DONE];
            let done = FromProgram::Done { patches: 1, pages: 1 };
            assert_eq!(done.write(&mut buffer[..size]), None);
        }
    }

    const HEADER_AND_DONE: usize = crate::HEADER + 8;

    proptest! {
        #[test]
        fn garbage_is_taken_calmly(bytes in prop::collection::vec(any::<u8>(), 0..400), real in 0u16..8) {
            let _ = (FromProgram::read(&bytes), FromAgent::read(&bytes));
            // Behind a header that is right.
            let mut buffer = [0; 512];
            let mut writer = Writer::new(&mut buffer, real);
            bytes.iter().for_each(|&byte| writer.u16(byte.into()));
            if let Some(len) = writer.finish() {
                let _ = FromAgent::read(&buffer[..len]);
                if let Some(FromProgram::Hello(hello)) = FromProgram::read(&buffer[..len]) {
                    prop_assert!(hello.ranges().count() <= MAX_RANGES);
                }
            }
        }
    }
}
