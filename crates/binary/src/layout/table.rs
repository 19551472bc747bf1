//! The generated table: struct fields by Go release.

use super::LayoutError;
use crate::GoVersion;
use std::collections::HashMap;
use std::sync::LazyLock;

static TABLE: LazyLock<Table> =
    LazyLock::new(|| Table::parse(include_str!("../../data/layouts.tsv")));

/// The table of this build.
pub(super) fn table() -> &'static Table {
    &TABLE
}

/// Struct and field.
type Key = (&'static str, &'static str);

/// Offset and size in bytes, where the release has the field.
type Cell = Option<(u64, u64)>;

/// The parsed table. Rows are `struct TAB field TAB cell...`; a cell is `offset:size`
/// or `-`; the field `.` is the struct itself, its cell `0:size`.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) releases: Vec<GoVersion>,
    rows: HashMap<Key, Vec<Cell>>,
}

/// The table's view of one release.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column<'t> {
    table: &'t Table,
    index: usize,
}

impl Table {
    pub(super) fn parse(text: &'static str) -> Self {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let header = lines.next().unwrap_or_default();
        let releases = header.split('\t').skip(2).map(GoVersion::parse).collect();
        let rows = lines.filter_map(|line| {
            let mut cells = line.split('\t');
            let key = (cells.next()?, cells.next()?);
            Some((key, cells.map(parse_cell).collect()))
        });
        Self { releases, rows: rows.collect() }
    }

    /// The column for a version: that release's, else the one of the nearest patch release
    /// of the same line.
    pub(super) fn column(
        &self,
        version: &GoVersion,
        structure: &str,
    ) -> Result<Column<'_>, LayoutError> {
        let refuse = |why| LayoutError::UnknownBuild {
            structure: structure.to_owned(),
            version: version.to_string(),
            why,
        };
        if !version.is_known() {
            return Err(refuse("the Go version is not recorded"));
        }
        if !version.is_plain() {
            return Err(refuse("it is not a plain release"));
        }
        let same_line =
            |release: &GoVersion| (release.major, release.minor) == (version.major, version.minor);
        let nearest = self
            .releases
            .iter()
            .enumerate()
            .filter(|(_, release)| same_line(release))
            .min_by_key(|(_, release)| release.patch.abs_diff(version.patch));
        let (index, _) = nearest.ok_or_else(|| refuse("no release of its line was measured"))?;
        Ok(Column { table: self, index })
    }
}

impl Column<'_> {
    /// Offset and size of a field.
    pub(super) fn field(&self, structure: &str, field: &str) -> Cell {
        *self.table.rows.get(&(structure, field))?.get(self.index)?
    }

    /// Size of a struct.
    pub(super) fn size(&self, structure: &str) -> Option<u64> {
        Some(self.field(structure, ".")?.1)
    }
}

fn parse_cell(cell: &str) -> Cell {
    let (offset, size) = cell.split_once(':')?;
    Some((offset.parse().ok()?, size.parse().ok()?))
}
