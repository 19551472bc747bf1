//! The file of names: which structs the table has and what versions call their fields.

use crate::GoVersion;
use std::sync::LazyLock;

static NAMES: LazyLock<Names> =
    LazyLock::new(|| Names::parse(include_str!("../../data/layouts.names")));

/// The names this build knows.
pub(super) fn names() -> &'static Names {
    &NAMES
}

/// The parsed file.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Canonical name, then the others.
    pub(super) structs: Vec<Vec<&'static str>>,
    pub(super) aliases: Vec<Alias>,
    backports: Vec<Backport>,
}

/// Other names of a field.
#[derive(Debug)]
pub(super) struct Alias {
    pub(super) structure: &'static str,
    /// Canonical name, then the others.
    pub(super) fields: Vec<&'static str>,
}

/// A field that a patch release inserted.
#[derive(Debug)]
pub(super) struct Backport {
    pub(super) release: GoVersion,
    structure: &'static str,
    pub(super) field: &'static str,
}

impl Names {
    /// Parses the file, which is part of this crate; a test checks that no line is left over.
    fn parse(text: &'static str) -> Self {
        let mut names = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["struct", ref all @ ..] => names.structs.push(all.to_vec()),
                ["alias", structure, ref fields @ ..] => {
                    names.aliases.push(Alias { structure, fields: fields.to_vec() });
                }
                ["backport", release, structure, field] => names.backports.push(Backport {
                    release: GoVersion::parse(release),
                    structure,
                    field,
                }),
                _ => {}
            }
        }
        names
    }

    /// All names of a struct, the one asked for first.
    pub(super) fn struct_names<'s>(&self, structure: &'s str) -> Vec<&'s str>
    where
        'static: 's,
    {
        let mut all = vec![structure];
        let known = self.structs.iter().find(|names| names.first() == Some(&structure));
        all.extend(known.into_iter().flatten().skip(1).copied());
        all
    }

    /// All names of a field, the one asked for first.
    pub(super) fn field_names<'s>(&self, structure: &str, field: &'s str) -> Vec<&'s str>
    where
        'static: 's,
    {
        let mut all = vec![field];
        for alias in self.aliases.iter().filter(|alias| alias.structure == structure) {
            if alias.fields.first() == Some(&field) {
                all.extend(alias.fields.iter().skip(1).copied());
            }
        }
        all
    }

    /// How many lines of the file were understood.
    #[cfg(test)]
    pub(super) fn lines(&self) -> usize {
        self.structs.len() + self.aliases.len() + self.backports.len()
    }

    pub(super) fn backports_of(&self, structure: &str) -> impl Iterator<Item = &Backport> {
        self.backports.iter().filter(move |backport| backport.structure == structure)
    }
}
