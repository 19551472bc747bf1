//! The ELF symbol table.

use address::Svma;

/// One symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Name (`runtime.allgs`, `runtime.newproc.abi0`).
    pub name: String,
    /// `st_value`: an address, or an offset in the TLS block for a TLS symbol.
    pub value: u64,
    /// Size in bytes.
    pub size: u64,
    /// `STT_*`.
    pub kind: u8,
}

/// The symbols of `.symtab`.
#[derive(Debug, Default)]
pub struct SymbolTable {}

impl SymbolTable {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        true
    }

    /// The symbol of that exact name.
    pub fn by_name(&self, _name: &str) -> Option<Symbol> {
        None
    }

    /// The symbols at an address.
    pub fn at(&self, _address: Svma) -> Vec<Symbol> {
        Vec::new()
    }
}
