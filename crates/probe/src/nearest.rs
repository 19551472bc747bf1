//! Names near a pattern that matched nothing.

/// Edits beyond which two names are not alike.
const MAX_DISTANCE: usize = 4;
/// Names longer than this are not measured: time is bounded whatever the symbol table holds.
const MAX_LENGTH: usize = 256;

/// The names most like `pattern`, best first, at most `limit` (5 is a good number).
///
/// Names equal but for case come first, then those that end in the pattern after a dot or a
/// slash (`add` for `main.add`), then those a few edits away, as a whole or by as many last
/// components as the pattern has. Wildcards in the pattern do not count. Ties go to
/// the shorter name, then by alphabet. 100,000 names take well under 100 ms.
pub fn nearest<'a>(
    pattern: &str,
    names: impl IntoIterator<Item = &'a str>,
    limit: usize,
) -> Vec<&'a str> {
    let wanted = Wanted::new(pattern);
    if wanted.text.is_empty() || wanted.text.len() > MAX_LENGTH || limit == 0 {
        return Vec::new();
    }
    let mut best: Vec<(usize, usize, &str)> = Vec::with_capacity(limit + 1);
    let mut row = Vec::new();
    for name in names.into_iter().filter(|name| name.len() <= MAX_LENGTH) {
        let worst = (best.len() == limit).then(|| best.last().map_or(0, |entry| entry.0));
        let Some(score) = wanted.score(name, worst, &mut row) else { continue };
        let entry = (score, name.len(), name);
        if let Err(at) = best.binary_search(&entry) {
            best.insert(at, entry);
            best.truncate(limit);
        }
    }
    best.into_iter().map(|(_, _, name)| name).collect()
}

struct Wanted {
    /// Lower-case, without wildcards and the slashes of a regex.
    text: Vec<u8>,
    /// Separators in it.
    separators: usize,
    /// See [`letters`].
    letters: u64,
}

/// Scores below this are exact in some way; an edit distance comes on top of it.
const EDITED: usize = 2;

impl Wanted {
    fn new(pattern: &str) -> Self {
        let text: Vec<u8> = pattern
            .trim_matches('/')
            .bytes()
            .filter(|byte| !b"*?^$\\".contains(byte))
            .map(|byte| byte.to_ascii_lowercase())
            .collect();
        let text = text.trim_ascii().to_vec();
        Self { separators: count_separators(&text), letters: letters(&text), text }
    }

    /// 0 and 1 for exact likeness, [`EDITED`] + distance otherwise; `None` when unlike, or not
    /// better than or equal to `worst`.
    fn score(&self, name: &str, worst: Option<usize>, row: &mut Vec<usize>) -> Option<usize> {
        let bytes = name.as_bytes();
        if bytes.eq_ignore_ascii_case(&self.text) {
            return Some(0);
        }
        if self.is_tail_of(bytes) {
            return Some(1);
        }
        let mut bound = MAX_DISTANCE.min(self.text.len() / 4 + 1);
        if let Some(worst) = worst {
            bound = bound.min(worst.checked_sub(EDITED)?);
        }
        let tail = self.tail(bytes);
        let whole = self.distance(bytes, bound, row);
        let part = if tail.len() == bytes.len() { None } else { self.distance(tail, bound, row) };
        whole.into_iter().chain(part).min().map(|distance| EDITED + distance)
    }

    /// Whether the name ends in the text, at a component's start. `main.` has no tail.
    fn is_tail_of(&self, name: &[u8]) -> bool {
        name.len().checked_sub(self.text.len() + 1).is_some_and(|before| {
            is_separator(name[before]) && name[before + 1..].eq_ignore_ascii_case(&self.text)
        })
    }

    /// As many last components of the name as the text has.
    fn tail<'a>(&self, name: &'a [u8]) -> &'a [u8] {
        let mut left = self.separators;
        for (at, _) in name.iter().enumerate().rev().filter(|(_, byte)| is_separator(**byte)) {
            if left == 0 {
                return &name[at + 1..];
            }
            left -= 1;
        }
        name
    }

    /// Edit distance (insert, delete, replace; ASCII case ignored) if it is at most `bound`.
    fn distance(&self, name: &[u8], bound: usize, row: &mut Vec<usize>) -> Option<usize> {
        // One edit changes the length by at most 1 and the set of letters by at most 2.
        let apart = (letters(name) ^ self.letters).count_ones() as usize;
        if name.len().abs_diff(self.text.len()) > bound || apart > 2 * bound {
            return None;
        }
        // Cells further than `bound` from the diagonal are over it; they hold `over`.
        let over = bound + 1;
        row.clear();
        row.extend((0..=name.len()).map(|j| j.min(over)));
        for (i, &want) in self.text.iter().enumerate() {
            let first = (i + 1).saturating_sub(bound).max(1);
            let last = (i + 1 + bound).min(name.len());
            let mut diagonal = row[first - 1];
            row[first - 1] = if first == 1 { (i + 1).min(over) } else { over };
            let mut least = row[first - 1];
            for j in first..=last {
                let replaced = diagonal + usize::from(name[j - 1].to_ascii_lowercase() != want);
                diagonal = row[j];
                row[j] = replaced.min(diagonal + 1).min(row[j - 1] + 1).min(over);
                least = least.min(row[j]);
            }
            if least > bound {
                return None;
            }
        }
        row.last().copied().filter(|distance| *distance <= bound)
    }
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b'.' | b'/')
}

fn count_separators(text: &[u8]) -> usize {
    text.iter().filter(|byte| is_separator(**byte)).count()
}

/// The set of bytes in `text`, case ignored, hashed into 64 bits: a cheap lower bound.
fn letters(text: &[u8]) -> u64 {
    text.iter().fold(0, |set, byte| set | 1 << (byte.to_ascii_lowercase() & 63))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 10] = [
        "main.main",
        "main.add",
        "main.add1",
        "main.(*Student).String",
        "net/http.(*Server).Serve",
        "net/http.HandleFunc",
        "runtime.gopanic",
        "runtime.mallocgc",
        "strings.Builder.add",
        "example.com/app/store.(*DB).Query",
    ];

    #[test]
    fn case_then_tails_then_edits() {
        assert_eq!(nearest("Main.Add", NAMES, 5), ["main.add", "main.add1", "main.main"]);
        assert_eq!(nearest("add", NAMES, 5), ["main.add", "strings.Builder.add", "main.add1"]);
        assert_eq!(nearest("http.HandlFunc", NAMES, 5), ["net/http.HandleFunc"]);
        assert_eq!(nearest("mian.add*", NAMES, 2), ["main.add", "main.add1"]);
        assert_eq!(nearest("main.(*Student).Strin", NAMES, 1), ["main.(*Student).String"]);
        assert_eq!(nearest("(*DB).query", NAMES, 1), ["example.com/app/store.(*DB).Query"]);
        assert_eq!(nearest("runtime.gopanick", NAMES, 5), ["runtime.gopanic"]);
    }

    #[test]
    fn nothing_like_it_gives_nothing() {
        assert_eq!(nearest("zzzzzzzz.qqqq", NAMES, 5), [""; 0]);
        assert_eq!(nearest("*", NAMES, 5), [""; 0]);
        assert_eq!(nearest("main.add", NAMES, 0), [""; 0]);
    }

    #[test]
    fn a_large_symbol_table_is_quick() {
        let names: Vec<String> = (0..100_000u64)
            .map(|i| {
                let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                format!("github.com/org/project{}/pkg.(*Type{}).Method{mixed:x}", i % 97, i % 13)
            })
            .collect();
        let start = std::time::Instant::now();
        let found =
            nearest("github.com/org/project5/pkg.(*Type5).Metod", names.iter().map(|n| &**n), 5);
        let limit = if cfg!(debug_assertions) { 3000 } else { 100 };
        assert!(start.elapsed().as_millis() < limit, "took {:?}", start.elapsed());
        assert!(found.len() <= 5);
    }

    fn plain_distance(a: &[u8], b: &[u8]) -> usize {
        match (a, b) {
            ([], rest) | (rest, []) => rest.len(),
            ([x, a_rest @ ..], [y, b_rest @ ..]) => {
                if x == y {
                    return plain_distance(a_rest, b_rest);
                }
                let least = plain_distance(a_rest, b_rest)
                    .min(plain_distance(a_rest, b))
                    .min(plain_distance(a, b_rest));
                least + 1
            }
        }
    }

    proptest! {
        #[test]
        fn the_distance_is_the_edit_distance(a in "[a-c]{1,6}", b in "[a-c]{0,6}", bound in 0usize..7) {
            let expected = plain_distance(a.as_bytes(), b.as_bytes());
            let got = Wanted::new(&a).distance(b.as_bytes(), bound, &mut Vec::new());
            prop_assert_eq!(got, (expected <= bound).then_some(expected));
        }
    }
}
