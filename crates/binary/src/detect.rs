//! What kind of executable a file is.

/// How an executable was linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildMode {
    /// At fixed addresses.
    Exe,
    /// Position independent.
    Pie,
}

impl BuildMode {
    /// As `-buildmode` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exe => "exe",
            Self::Pie => "pie",
        }
    }
}
