//! What a caller may force, for tests and for kernels that need another way.

/// Choices that differ from what the kernel would get by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Refuse as if the system had no BPF.
    pub no_bpf: bool,
    /// One perf event per site, as on kernels older than 6.6.
    pub perf_link: bool,
    /// Interpret fetch programs in a bounded loop instead of `bpf_loop`.
    pub bounded_loop: bool,
    /// Do not read where calls come from: every entry record has `caller` 0, and a hit costs
    /// the target a tenth less.
    pub without_callers: bool,
    /// Read whose hit it is from the target's memory each time, also where the last hits tell.
    pub read_g_always: bool,
}
