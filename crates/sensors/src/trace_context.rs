//! W3C trace context: the `traceparent` header.

use crate::span::SpanContext;

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub(crate) context: SpanContext,
    /// Whether the trace is recorded, by its flags.
    pub(crate) is_sampled: bool,
}

/// Characters of a header of version 00, and the least of later versions.
const LEN: usize = 55;

/// Trace, span and flag of a header; `None` for one that the standard calls invalid.
pub(crate) fn parse(header: &[u8]) -> Option<TraceParent> {
    let text = std::str::from_utf8(header.get(..LEN)?).ok()?;
    let is_whole =
        header.len() == LEN || (!text.starts_with("00") && header.get(LEN) == Some(&b'-'));
    let mut parts = text.split('-');
    let version = hex(parts.next()?, 2)?;
    let trace = hex(parts.next()?, 32)?;
    let span = hex(parts.next()?, 16)? as u64;
    let flags = hex(parts.next()?, 2)?;
    let is_valid = is_whole && parts.next().is_none() && version != 0xff && trace != 0 && span != 0;
    let context = SpanContext { trace, span };
    is_valid.then_some(TraceParent { context, is_sampled: flags & 1 == 1 })
}

/// A number of so many digits, all of them lower-case.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (text.len() == digits && text.bytes().all(is_hex)).then_some(())?;
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_headers_name_a_span() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = SpanContext {
            trace: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
            span: 0xb7ad_6b71_6920_3331,
        };
        let context = TraceParent { context, is_sampled: true };
        let left_out = TraceParent { is_sampled: false, ..context };
        assert_eq!(parse(good.replace("-01", "-02").as_bytes()), Some(left_out));
        assert_eq!(parse(good.as_bytes()), Some(context));
        let later = good.replacen("00", "01", 1);
        assert_eq!(parse(later.as_bytes()), Some(context));
        assert_eq!(parse(format!("{later}-more").as_bytes()), Some(context));
        let bad = [
            format!("{good}-more"),
            format!("{later}more"),
            good.replacen("00", "ff", 1),
            good.replace("0af7", "0AF7"),
            good.replace("b7ad6b7169203331", "0000000000000000"),
            good.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            good.replace('-', "_"),
            good[..54].to_owned(),
            String::new(),
            format!("00-+{}", &good[4..]),
        ];
        for text in bad {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
