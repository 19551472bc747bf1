//! What is hidden of texts that are shown when somebody asks for them.
//!
//! Queries of URLs and headers keep what they are about, and lose values whose name says that they are secret;
//! statements lose all literals. Where a text may be read in two ways, the one is taken that hides more.

mod statement;

pub(crate) use statement::statement;

/// What stands in place of a secret, as OpenTelemetry's conventions have it.
const REDACTED: &str = "REDACTED";

/// Parts of names whose values are secret, in lower case: those of the conventions (`AWSAccessKeyId`, `Signature`,
/// `sig`, `X-Goog-Signature`) are among them.
const SECRET: [&str; 13] = [
    "auth",
    "cookie",
    "credential",
    "jwt",
    "key",
    "otp",
    "pass",
    "pwd",
    "secret",
    "session",
    "sig",
    "sid",
    "token",
];

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|part| name.contains(part))
}

/// The query of a URL, the values of names that are secret replaced.
pub(crate) fn query(query: &str) -> String {
    let mut masked = String::with_capacity(query.len());
    // Both separate (the URL standard, and what was once recommended besides).
    for pair in query.split_inclusive(['&', ';']) {
        let end = pair.trim_end_matches(['&', ';']);
        match end.split_once('=') {
            // A name may be written in escapes that hide it.
            Some((name, value)) if !value.is_empty() && (is_secret(name) || name.contains('%')) => {
                masked.push_str(&format!("{name}={REDACTED}{}", &pair[end.len()..]));
            }
            _ => masked.push_str(pair),
        }
    }
    masked
}

/// The value of a header, or what stands in its place.
pub(crate) fn header(name: &str, value: String) -> String {
    if is_secret(name) { REDACTED.to_owned() } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_queries_secrets_are_hidden() {
        let cases = [
            ("", ""),
            ("q=shoes&page=2", "q=shoes&page=2"),
            ("flag&q=", "flag&q="),
            ("token=", "token="),
            ("access_token=abc&q=1", "access_token=REDACTED&q=1"),
            ("q=1;Password=a=b;r=2", "q=1;Password=REDACTED;r=2"),
            (
                "AWSAccessKeyId=A&Signature=b%3D&Expires=3",
                "AWSAccessKeyId=REDACTED&Signature=REDACTED&Expires=3",
            ),
            (
                "X-Goog-Signature=a&sig=b&SIG=c",
                "X-Goog-Signature=REDACTED&sig=REDACTED&SIG=REDACTED",
            ),
            ("%74oken=abc", "%74oken=REDACTED"),
            // What was not captured of it.
            ("api_key=ab…", "api_key=REDACTED"),
            ("&&=x&", "&&=x&"),
        ];
        for (given, expected) in cases {
            assert_eq!(query(given), expected, "{given}");
        }
    }

    #[test]
    fn of_headers_those_of_who_asks_are_hidden() {
        for name in
            ["Authorization", "Proxy-Authorization", "X-Api-Key", "X-Csrf-Token", "Set-Cookie"]
        {
            assert_eq!(header(name, "x".to_owned()), "REDACTED", "{name}");
        }
        assert_eq!(header("User-Agent", "curl/8".to_owned()), "curl/8");
    }
}
