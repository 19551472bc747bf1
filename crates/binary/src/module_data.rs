//! `runtime.moduledata`: where the parts of a Go module lie.

use address::Svma;

/// The fields of the first module's `runtime.moduledata` that matter here (stated
/// addresses).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleData {
    /// Where the structure itself lies.
    pub address: Svma,
    /// `pcHeader`: start of the pclntab.
    pub pc_header: Svma,
    /// Lowest function address.
    pub min_pc: Svma,
    /// End of the last function.
    pub max_pc: Svma,
    /// Start of Go text: what `_func.entryOff` counts from.
    pub text: Svma,
    /// End of Go text.
    pub etext: Svma,
    /// Start of the type data.
    pub types: Svma,
    /// End of the type data.
    pub etypes: Svma,
    /// Start of read-only data.
    pub rodata: Svma,
    /// What funcdata offsets count from.
    pub gofunc: Svma,
    /// `noptrdata` start and end.
    pub noptrdata: (Svma, Svma),
    /// `data` start and end.
    pub data: (Svma, Svma),
    /// `bss` start and end.
    pub bss: (Svma, Svma),
    /// `noptrbss` start and end.
    pub noptrbss: (Svma, Svma),
    /// Offsets of type descriptors from `types` (address, count of i32); up to Go 1.26.
    pub typelinks: Option<(Svma, u64)>,
    /// Pointers to itabs (address, count); up to Go 1.26.
    pub itablinks: Option<(Svma, u64)>,
    /// Bytes of contiguous type descriptors at `types`; from Go 1.27.
    pub typedesc_len: Option<u64>,
    /// Contiguous itabs (start, bytes); from Go 1.27.
    pub itabs: Option<(Svma, u64)>,
}
