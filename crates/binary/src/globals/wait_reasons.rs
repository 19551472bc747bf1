//! Names of wait reasons: what `g.waitreason` counts.

use super::{Global, find};
use crate::layout::Provenance;
use crate::{Executable, GoVersion};
use address::Svma;
use std::sync::LazyLock;

/// By minor version; checked against the toolchains' own executables by a test, which can
/// also write it.
static TABLE: LazyLock<Vec<(GoVersion, Vec<String>)>> =
    LazyLock::new(|| parse(include_str!("../../data/wait_reasons.tsv")));

/// No version has more reasons.
const MAX_REASONS: u64 = 64;

/// No name is longer, bytes.
const MAX_NAME: u64 = 64;

/// The first names, in every version.
const FIRST: [&str; 3] = ["", "GC assist marking", "IO wait"];

/// The names of wait reasons of one executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitReasons {
    names: Vec<String>,
    /// [`Provenance::Symbol`] or [`Provenance::Code`] when they are the executable's own.
    pub provenance: Provenance,
}

impl WaitReasons {
    /// Reads `runtime.waitReasonStrings`, else takes the table's for the Go version; `None`
    /// when neither is to be had.
    pub fn of(executable: &Executable) -> Option<Self> {
        Self::read(executable).or_else(|| Self::of_version(executable.go_version()))
    }

    /// The executable's own.
    pub fn read(executable: &Executable) -> Option<Self> {
        let symbol = executable.symbols().by_name(Global::WaitReasonStrings.symbol());
        let known = Self::of_version(executable.go_version()).map(|known| known.names.len() as u64);
        // Without a symbol the array's end is not marked.
        let count = symbol.map(|symbol| symbol.size / 16).or(known).unwrap_or(MAX_REASONS);
        let candidates = find(executable, Global::WaitReasonStrings).ok()?;
        candidates.into_iter().find_map(|candidate| {
            let names: Vec<String> = (0..count.min(MAX_REASONS))
                .map_while(|index| {
                    let name = read_name(executable, candidate.address.add(index * 16))?;
                    // Only the first has no name: whatever follows the array ends it.
                    (index == 0 || !name.is_empty()).then_some(name)
                })
                .collect();
            let begins = names.iter().take(FIRST.len()).eq(FIRST.iter());
            begins.then_some(Self { names, provenance: candidate.provenance })
        })
    }

    /// The table's names for releases of that line.
    pub fn of_version(version: &GoVersion) -> Option<Self> {
        let same = |of: &GoVersion| (of.major, of.minor) == (version.major, version.minor);
        let (_, names) = TABLE.iter().find(|(of, _)| version.is_known() && same(of))?;
        Some(Self { names: names.clone(), provenance: Provenance::Table })
    }

    /// The name of a reason; `None` for 0, which is no reason, and for unknown numbers.
    pub fn name(&self, reason: u8) -> Option<&str> {
        self.names.get(usize::from(reason)).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// All names, by number.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

fn read_name(executable: &Executable, at: Svma) -> Option<String> {
    let start = executable.read_word(at).ok()?;
    let len = executable.read_word(at.add(8)).ok()?;
    if len == 0 {
        return Some(String::new());
    }
    if len > MAX_NAME {
        return None;
    }
    let bytes = executable.image().read_vec(Svma(start), len).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.bytes().all(|byte| (0x20..0x7f).contains(&byte)).then_some(text)
}

/// A column per release, a row per number.
fn parse(text: &str) -> Vec<(GoVersion, Vec<String>)> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let header = lines.next().unwrap_or_default();
    let mut columns: Vec<(GoVersion, Vec<String>)> =
        header.split('\t').skip(1).map(|v| (GoVersion::parse(v), Vec::new())).collect();
    for line in lines {
        for ((_, names), cell) in columns.iter_mut().zip(line.split('\t').skip(1)) {
            // A dash stands where the release has no such number.
            if cell != "-" {
                names.push(cell.to_owned());
            }
        }
    }
    columns
}
