//! Traffic of a network namespace.

use crate::usage::NetworkBytes;

/// `InOctets` and `OutOctets` of the text of `/proc/PID/net/netstat`: pairs of lines, names
/// over values. `None` when it holds none.
pub(crate) fn parse(text: &[u8]) -> Option<NetworkBytes> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some(names), Some(values)) =
            (names.strip_prefix("IpExt: "), values.strip_prefix("IpExt: "))
        else {
            continue;
        };
        let value = |wanted: &str| {
            let at = names.split(' ').position(|name| name == wanted)?;
            values.split(' ').nth(at)?.parse().ok()
        };
        return Some(NetworkBytes { received: value("InOctets")?, sent: value("OutOctets")? });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_found_by_their_names() {
        let text = b"TcpExt: SyncookiesSent A\nTcpExt: 1 2\n\
            IpExt: InNoRoutes InOctets OutOctets X\nIpExt: 7 10530063386 6351120216 1\n";
        let wanted = NetworkBytes { received: 10_530_063_386, sent: 6_351_120_216 };
        assert_eq!(parse(text), Some(wanted));
        assert_eq!(parse(b"IpExt: InOctets OutOctets\nIpExt: 1\n"), None);
        assert_eq!(parse(b"TcpExt: A\nTcpExt: 1\n"), None);
        assert_eq!(parse(b"\xff"), None);
    }
}
