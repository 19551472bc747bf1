//! The ELF symbol table.

use crate::bytes::c_string;
use crate::image::Image;
use address::Svma;
use object::LittleEndian;
use object::elf;
use object::pod;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::OnceLock;

/// One symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Name (`runtime.allgs`, `runtime.newproc.abi0`).
    pub name: String,
    /// `st_value`: a stated address, or an offset in the TLS block for a TLS symbol.
    pub value: u64,
    /// Size in bytes.
    pub size: u64,
    /// `STT_*`.
    pub kind: u8,
}

/// The defined symbols of `.symtab`; names are built when asked for.
#[derive(Debug, Default)]
pub struct SymbolTable {
    strings: Vec<u8>,
    /// Sorted by value.
    entries: Vec<Entry>,
    /// Places in `entries` by the hash of the name, in order of value.
    names: OnceLock<HashMap<u64, Vec<u32>>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name: u32,
    kind: u8,
    value: u64,
    size: u64,
}

impl SymbolTable {
    /// Reads `.symtab`; empty when there is none or it is damaged.
    pub(crate) fn read(image: &Image) -> Self {
        Self::try_read(image).unwrap_or_default()
    }

    fn try_read(image: &Image) -> Option<Self> {
        let section = image.sections().iter().find(|section| section.kind == elf::SHT_SYMTAB)?;
        let strings = image.section_raw(image.sections().get(section.link as usize)?).ok()?;
        let raw = image.section_raw(section).ok()?;
        let mut entries: Vec<Entry> = raw
            .chunks_exact(size_of::<elf::Sym64<LittleEndian>>())
            .filter_map(|bytes| pod::from_bytes::<elf::Sym64<LittleEndian>>(bytes).ok())
            .map(|(symbol, _)| symbol)
            .filter(|symbol| symbol.st_shndx.get(LittleEndian) != elf::SHN_UNDEF)
            .map(|symbol| Entry {
                name: symbol.st_name.get(LittleEndian),
                kind: symbol.st_type(),
                value: symbol.st_value.get(LittleEndian),
                size: symbol.st_size.get(LittleEndian),
            })
            .collect();
        entries.sort_by_key(|entry| entry.value);
        Some(Self { strings, entries, names: OnceLock::new() })
    }

    /// Whether there is no symbol.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The symbol of that exact name; the lowest, when C code has several.
    pub fn by_name(&self, name: &str) -> Option<Symbol> {
        let names = self.names.get_or_init(|| self.hash_names());
        names.get(&hash(name.as_bytes()))?.iter().find_map(|&index| {
            let entry = self.entries.get(index as usize)?;
            let found = c_string(&self.strings, entry.name as usize)?;
            (found == name.as_bytes()).then(|| self.symbol(entry))
        })
    }

    fn hash_names(&self) -> HashMap<u64, Vec<u32>> {
        let mut names: HashMap<u64, Vec<u32>> = HashMap::with_capacity(self.entries.len());
        // A sound table refers to every string once; one that lets all symbols share a
        // huge string is not followed to the end.
        let mut budget = self.strings.len().saturating_mul(4);
        for (index, entry) in (0u32..).zip(&self.entries) {
            let Some(name) = c_string(&self.strings, entry.name as usize) else { continue };
            let Some(left) = budget.checked_sub(name.len()) else { break };
            budget = left;
            names.entry(hash(name)).or_default().push(index);
        }
        names
    }

    /// The symbols whose value is that address, TLS symbols excepted.
    pub fn at(&self, address: Svma) -> Vec<Symbol> {
        let start = self.entries.partition_point(|entry| entry.value < address.0);
        self.entries
            .get(start..)
            .unwrap_or_default()
            .iter()
            .take_while(|entry| entry.value == address.0)
            .filter(|entry| entry.kind != elf::STT_TLS)
            .map(|entry| self.symbol(entry))
            .collect()
    }

    /// All symbols by value.
    pub fn iter(&self) -> impl Iterator<Item = Symbol> + '_ {
        self.entries.iter().map(|entry| self.symbol(entry))
    }

    fn symbol(&self, entry: &Entry) -> Symbol {
        let name = c_string(&self.strings, entry.name as usize).unwrap_or_default();
        Symbol {
            name: String::from_utf8_lossy(name).into_owned(),
            value: entry.value,
            size: entry.size,
            kind: entry.kind,
        }
    }
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
