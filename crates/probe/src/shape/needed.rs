//! How much of an object a shape looks at.

use super::Shape;

impl Shape {
    /// Bytes from the beginning of the object up to the last one that is looked at: what lies behind is not
    /// captured.
    pub fn needed(&self) -> u32 {
        match self {
            Self::Bool => 1,
            Self::Int { size }
            | Self::Uint { size }
            | Self::Float { size }
            | Self::Complex { size }
            | Self::Enum { size, .. } => (*size).into(),
            Self::Duration
            | Self::Pointer
            | Self::To { .. }
            | Self::Map(_)
            | Self::Chan
            | Self::Func
            | Self::Closure { .. } => 8,
            Self::String | Self::Interface { .. } | Self::Time => 16,
            Self::Bytes | Self::Ip | Self::Slice { .. } => 24,
            Self::Array { shown, stride, elem, .. } => match shown.checked_sub(1) {
                Some(before) => {
                    u32::from(before).saturating_mul(*stride).saturating_add(elem.needed())
                }
                None => 0,
            },
            Self::Struct { members, .. } => {
                let ends = members.iter().map(|m| m.offset.saturating_add(m.shape.needed()));
                ends.max().unwrap_or(0)
            }
            Self::Only(member) => member.offset.saturating_add(member.shape.needed()),
            Self::Written(_, shape) => shape.needed(),
            Self::Unavailable(_) => 0,
        }
    }

    /// How much is captured of an object of `size` bytes: at least one byte of what has some, so that an
    /// address at which there is nothing is told from an object.
    pub fn captured(&self, size: u64) -> u32 {
        let needed = self.needed().clamp(1, super::MAX_OBJECT);
        size.min(needed.into()) as u32
    }
}
