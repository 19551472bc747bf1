//! How much of a value is captured.

/// Bounds on what is captured of one value. What lies beyond is shown as cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a string's text.
    pub string_bytes: u16,
    /// Elements of a slice, an array or a map.
    pub elements: u16,
    /// Levels of structs, pointers, interfaces and elements below the value itself.
    pub depth: u8,
}

impl Limits {
    /// What `string_bytes` may be at the most.
    pub const MAX_STRING_BYTES: u16 = wire::MAX_FIELD_DATA as u16;
    /// What `elements` may be at the most.
    pub const MAX_ELEMENTS: u16 = 64;
    /// What `depth` may be at the most.
    pub const MAX_DEPTH: u8 = 8;
}

impl Default for Limits {
    /// 64 bytes, 8 elements, 3 levels.
    fn default() -> Self {
        Self { string_bytes: 64, elements: 8, depth: 3 }
    }
}
