//! Facts about a Go executable. Pure: an image (bytes behind [`address::ReadAt`]) in,
//! facts out; opens no file and knows no process. Input is untrusted: nothing here
//! panics on it or allocates by a size it states.
#![forbid(unsafe_code)]

mod abi;
mod abi_type;
mod argument_info;
mod argument_map;
mod build_info;
mod bytes;
pub mod code;
mod declared;
mod detect;
mod dwarf;
mod error;
mod executable;
mod function;
pub mod globals;
mod go_version;
mod image;
mod inline;
pub mod layout;
mod made_type;
mod module_data;
mod note;
mod pclntab;
mod relocation;
mod rtype;
mod scan;
mod signature_table;
mod symbol;
mod symbolizer;
pub mod tls;
mod type_layout;
mod type_source;
mod type_text;
mod types;

pub use abi::{AbiType, Convention, Piece, Place, Placements, Reg, Shape, assign};
pub use argument_info::ArgumentInfo;
pub use argument_map::ArgumentMap;
pub use build_info::{BuildInfo, Module};
pub use declared::{Declarations, Declared};
pub use detect::BuildMode;
pub use dwarf::{
    Captured, DebugInfo, Described, DescribedAt, FunctionKey, PackageVariable, PathStep,
    PlacedSignature, PlacedVariable, Signature, TypePath, Variable, convention_of,
    dictionary_position,
};
pub use error::Error;
pub use executable::Executable;
pub use function::{Function, FunctionTable, flag};
pub use go_version::GoVersion;
pub use image::{Image, Section, Segment};
pub use inline::InlinedCall;
pub use module_data::ModuleData;
pub use note::BuildIds;
pub use rtype::{Itab, RuntimeSignature, RuntimeType};
pub use signature_table::standard_signature;
pub use symbol::{Symbol, SymbolTable};
pub use symbolizer::Frame;
pub use type_layout::{Hole, LaidOutField, TypeLayout};
pub use type_source::TypeSource;
pub use type_text::TypeTextError;
pub use types::{Field, Kind, TypeId, TypeInfo};
