//! Shapes in a plan's text.

use super::{KnownType, Shape};
use std::fmt;

impl fmt::Display for Shape {
    /// As a Go type would be written, with what is cut: `{name string, next *…}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Int { size } => write!(f, "int{}", 8 * u32::from(*size)),
            Self::Uint { size } => write!(f, "uint{}", 8 * u32::from(*size)),
            Self::Float { size } => write!(f, "float{}", 8 * u32::from(*size)),
            Self::Complex { size } => write!(f, "complex{}", 8 * u32::from(*size)),
            Self::Duration => f.write_str("duration"),
            Self::Time => f.write_str("time"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Ip => f.write_str("ip"),
            Self::Pointer => f.write_str("*…"),
            Self::To { size, elem } => write!(f, "*({size}){elem}"),
            Self::Slice { most: 0, .. } => f.write_str("[]…"),
            Self::Slice { most, stride, elem } => write!(f, "[..{most}]({stride}){elem}"),
            Self::Array { len, shown, elem, .. } => write!(f, "[{shown} of {len}]{elem}"),
            Self::Struct { members, omitted } => {
                f.write_str("{")?;
                for (index, member) in members.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{} {}", member.name, member.shape)?;
                }
                if *omitted > 0 {
                    write!(f, ", …+{omitted}")?;
                }
                f.write_str("}")
            }
            Self::Only(member) => write!(f, "{{{}}}", member.shape),
            Self::Interface { copy: 0, .. } => f.write_str("interface"),
            Self::Interface { copy, known, .. } => {
                write!(f, "interface({copy}")?;
                for KnownType { word, shape, .. } in known {
                    write!(f, ", 0x{word:x} {shape}")?;
                }
                f.write_str(")")
            }
            Self::Map(map) if map.group == 0 => f.write_str("map"),
            Self::Map(map) => write!(f, "map[{}]({}){}", map.key, map.group, map.elem),
            Self::Chan => f.write_str("chan"),
            Self::Func => f.write_str("func"),
            Self::Closure { known } => {
                f.write_str("func(")?;
                for (index, KnownType { word, shape, .. }) in known.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}0x{word:x} {shape}")?;
                }
                f.write_str(")")
            }
            Self::Written(writing, shape) => write!(f, "{writing:?}{shape}"),
            Self::Enum { size, names, .. } => {
                write!(f, "enum{} of {}", 8 * u32::from(*size), names.len())
            }
            Self::Unavailable(reason) => write!(f, "<{reason}>"),
        }
    }
}
