//! Signatures of the standard library, by the version of Go: a stripped executable does not say what its functions are
//! declared as, but it says which Go built it.
//!
//! `cargo xtask signatures` derives the table from the sources of the toolchains. A line is a symbol, a
//! mask of the releases in the first line whose signature that is, parameters and results.

use crate::declared::{Declarations, Declared};
use crate::{Executable, Function, GoVersion, TypeSource};
use flate2::read::DeflateDecoder;
use std::io::Read as _;
use std::sync::OnceLock;

/// The table, compressed.
const COMPRESSED: &[u8] = include_bytes!("../data/signatures.tsv.deflate");

/// The table's size, bytes: far above what it has.
const MAX_SIZE: u64 = 32 << 20;

struct Table {
    text: String,
    /// Releases of the mask's bits, lowest first: minor versions of Go 1.
    minors: Vec<u32>,
    /// Where lines begin, sorted by symbol.
    lines: Vec<u32>,
}

/// A line of the table.
struct Row<'a> {
    symbol: &'a str,
    mask: u32,
    params: &'a str,
    results: &'a str,
}

impl Row<'_> {
    fn parse(line: &str) -> Option<Row<'_>> {
        let mut columns = line.split('\t');
        Some(Row {
            symbol: columns.next()?,
            mask: u32::from_str_radix(columns.next()?, 16).ok()?,
            params: columns.next()?,
            results: columns.next()?,
        })
    }
}

impl Table {
    fn get() -> &'static Self {
        static TABLE: OnceLock<Table> = OnceLock::new();
        TABLE.get_or_init(|| {
            let mut text = String::new();
            // The bytes are ours: what is damaged gives fewer rows, and a test counts them.
            _ = DeflateDecoder::new(COMPRESSED).take(MAX_SIZE).read_to_string(&mut text);
            Self::parse(text)
        })
    }

    fn parse(text: String) -> Self {
        let head = text.lines().next().unwrap_or_default();
        let versions = head.trim_start_matches('#').split('\t');
        let minors = versions.map(|version| GoVersion::parse(version).minor).collect();
        let starts = text.match_indices('\n').map(|(at, _)| at as u32 + 1);
        let mut lines: Vec<u32> = starts.filter(|at| (*at as usize) < text.len()).collect();
        lines.shrink_to_fit();
        Self { text, minors, lines }
    }

    fn row(&self, at: u32) -> Option<Row<'_>> {
        Row::parse(self.text.get(at as usize..)?.lines().next()?)
    }

    fn find(&self, minor: u32, symbol: &str) -> Option<Row<'_>> {
        let bit = 1 << self.minors.iter().position(|known| *known == minor)?;
        let before = |at: &u32| self.row(*at).is_some_and(|row| row.symbol < symbol);
        let first = self.lines.partition_point(before);
        let rows = self.lines.get(first..)?.iter().filter_map(|at| self.row(*at));
        rows.take_while(|row| row.symbol == symbol).find(|row| row.mask & bit != 0)
    }
}

/// The signature that the standard library of the executable's version has for a function, as far as
/// the types are in the program.
pub fn standard_signature(
    executable: &Executable,
    function: &Function,
    types: TypeSource<'_>,
) -> Option<Declared> {
    let version = executable.go_version();
    if !version.is_plain() || version.major != 1 {
        return None;
    }
    let table = Table::get();
    let name = &function.name;
    let (row, by_pointer) = match table.find(version.minor, name) {
        Some(row) => (row, false),
        // The method of a value by a pointer is a wrapper that the compiler makes.
        None => (table.find(version.minor, &of_value(name)?)?, true),
    };
    let mut params = declarations(types, row.params)?;
    if by_pointer {
        let receiver = row.params.split(',').next()?.split_once(' ')?.1;
        params.first_mut()?.1 = types.parse_type_leniently(&format!("*{receiver}")).ok()?;
    }
    Some(Declared { params: Some(params), results: Some(declarations(types, row.results)?) })
}

/// `net/http.serverHandler.ServeHTTP` of `net/http.(*serverHandler).ServeHTTP`.
fn of_value(name: &str) -> Option<String> {
    let (package, rest) = name.split_once(".(*")?;
    let (receiver, method) = rest.split_once(").")?;
    Some(format!("{package}.{receiver}.{method}"))
}

/// `a int, b map[string]func(int, int)` taken apart.
fn declarations(types: TypeSource<'_>, text: &str) -> Option<Declarations> {
    let mut open = 0i32;
    let parts = text.split(|c: char| {
        open += match c {
            '(' | '[' | '{' => 1,
            ')' | ']' | '}' => -1,
            _ => 0,
        };
        c == ',' && open == 0
    });
    let parts = parts.map(str::trim).filter(|part| !part.is_empty());
    let declared = parts.map(|part| {
        let (name, ty) = part.split_once(' ')?;
        Some((name.to_owned(), types.parse_type_leniently(ty).ok()?))
    });
    declared.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameters and results in the table.
    fn found(minor: u32, symbol: &str) -> String {
        match Table::get().find(minor, symbol) {
            Some(row) => format!("({}) -> ({})", row.params, row.results),
            None => "none".to_owned(),
        }
    }

    #[test]
    fn every_version_has_its_signatures() {
        let handler =
            "(sh net/http.serverHandler, rw net/http.ResponseWriter, req *net/http.Request) -> ()";
        let expected = [
            (19, "net/http.serverHandler.ServeHTTP", handler),
            (27, "net/http.serverHandler.ServeHTTP", handler),
            // Go 1.20 was not measured.
            (20, "net/http.serverHandler.ServeHTTP", "none"),
            (27, "os.ReadFile", "(name string) -> (~r0 []byte, ~r1 error)"),
            (
                19,
                "database/sql.(*DB).QueryContext",
                "(db *database/sql.DB, ctx context.Context, query string, args ...any) \
                 -> (~r0 *database/sql.Rows, ~r1 error)",
            ),
            (19, "net/http.serverHandler.nothing", "none"),
        ];
        for (minor, symbol, signature) in expected {
            assert_eq!(found(minor, symbol), signature, "{symbol} in 1.{minor}");
        }
        // What 1.21 brought.
        assert_eq!(found(19, "context.WithoutCancel"), "none");
        assert_eq!(
            found(21, "context.WithoutCancel"),
            "(parent context.Context) -> (~r0 context.Context)"
        );
    }

    #[test]
    fn rows_are_whole_and_sorted() {
        let table = Table::get();
        assert_eq!(table.minors, [19, 21, 22, 23, 24, 25, 26, 27]);
        assert!(table.lines.len() > 17_000, "{} rows", table.lines.len());
        let mut last = String::new();
        for at in &table.lines {
            let row = table.row(*at).expect("a whole row");
            assert!(*row.symbol >= *last && row.mask != 0 && row.mask < 1 << 8, "{}", row.symbol);
            row.symbol.clone_into(&mut last);
        }
    }
}
