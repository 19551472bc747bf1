//! Functions that are no functions in the usual sense, by name.
//!
//! From the runtime's assembly, Go 1.19 to 1.27: `asm_amd64.s`, `asm.s`,
//! `sys_linux_amd64.s`, `duff_amd64.s`, `preempt_amd64.s`, `race_amd64.s`, `cgo/*_amd64.s`.

use super::{CodeFacts, Refused};

const BARRIER: &str = "is a write barrier: the compiler calls it with arguments in registers of its choice, and it keeps all of them";
const DUFF: &str = "is entered in the middle, at a place that depends on the size to clear or copy";
const BOUNDS: &str =
    "is the stub of a failed bounds check: its arguments are in registers that vary by call";
const RACE: &str = "is glue of the race detector: it runs C code on the g0 stack, without g in R14";
const MORESTACK: &str =
    "grows the stack in the middle of its caller's check and does not return to it";
const SWITCH: &str = "switches stacks: it is left on another stack than it was entered on";
const START: &str = "starts the process or a thread, before there is a goroutine";
const SIGNAL: &str =
    "runs on a signal stack or by the C calling convention, called by the kernel or C";
const CGO: &str = "crosses between C and Go: one side of it follows the C calling convention";
const EXIT: &str = "is the return address of a goroutine's first function: nothing calls it";
const REFLECT: &str = "copies a frame of arguments of any size for reflection and is left through the function it calls";
const PREEMPT: &str =
    "is injected between two instructions of a preempted function and keeps all registers";
const DEBUG: &str = "is injected by debuggers and talks to them through breakpoints";
const SPILL: &str = "moves argument registers to a place that its caller names in R12";
const RETPOLINE: &str = "is left through a return address it writes itself";
const CLONE: &str = "returns twice, the second time in a new thread or process";

/// Full names under `runtime.`, and those of local assembly symbols, which have no package.
#[rustfmt::skip]
const NAMES: &[(&str, &str)] = &[
    ("duffzero", DUFF), ("duffcopy", DUFF),
    ("racecall", RACE), ("racecallatomic", RACE), ("racecalladdr", RACE),
    ("racefuncenter", RACE), ("racefuncexit", RACE), ("racecallbackthunk", RACE),
    ("morestack", MORESTACK), ("morestack_noctxt", MORESTACK), ("morestackc", MORESTACK),
    ("gogo", SWITCH), ("mcall", SWITCH), ("systemstack", SWITCH), ("systemstack_switch", SWITCH),
    ("switchToCrashStack0", SWITCH), ("gosave_systemstack_switch", SWITCH),
    ("rt0_go", START), ("rt0_lib_go", START), ("_rt0_amd64", START), ("_rt0_amd64_lib", START),
    ("_rt0_amd64_linux", START), ("_rt0_amd64_linux_lib", START), ("_rt0_amd64_lib_go", START),
    ("main", START), ("mstart", START), ("settls", START),
    ("sigtramp", SIGNAL), ("cgoSigtramp", SIGNAL), ("sigreturn", SIGNAL),
    ("sigreturn__sigaction", SIGNAL), ("sigfwd", SIGNAL), ("sigprofNonGoWrapper", SIGNAL),
    ("sigpanic0", SIGNAL),
    ("asmcgocall", CGO), ("asmcgocall_no_g", CGO), ("asmcgocall_landingpad", CGO),
    ("cgocallback", CGO), ("crosscall2", CGO), ("crosscall2_trampoline", CGO),
    ("crosscall_amd64", CGO), ("setg", CGO), ("setg_gcc", CGO), ("_cgo_topofstack", CGO),
    ("addmoduledata", CGO),
    ("goexit", EXIT),
    ("reflectcall", REFLECT), ("callRet", REFLECT),
    ("asyncPreempt", PREEMPT),
    ("spillArgs", SPILL), ("unspillArgs", SPILL),
    ("clone", CLONE),
];

/// Beginnings of names under `runtime.`, and of local assembly symbols; assembly only.
#[rustfmt::skip]
const PREFIXES: &[(&str, &str)] = &[
    ("gcWriteBarrier", BARRIER), ("panicIndex", BOUNDS), ("panicSlice", BOUNDS),
    ("panicBounds", BOUNDS), ("panicExtend", BOUNDS), ("race", RACE),
    ("debugCall", DEBUG), ("retpoline", RETPOLINE),
];

/// Symbols among the functions that are none.
const MARKERS: &[&str] =
    &["go:buildid", "go.buildid", "go:textfipsstart", "go:textfipsend", "runtime.etext"];

/// Why the function must not be probed whatever its bytes are. A Go function may have a C
/// name by `go:linkname` (`_cgo_panic`); one with a stack check is Go.
pub(super) fn refused_by_name(facts: &CodeFacts<'_>, has_stack_check: bool) -> Option<Refused> {
    if MARKERS.contains(&facts.name) {
        return Some(Refused::Marker);
    }
    let local = facts.name.strip_suffix(".abi0").unwrap_or(facts.name);
    let local = local.strip_prefix("runtime.").or((!local.contains('.')).then_some(local));
    if facts.is_assembly
        && let Some(why) = local.and_then(special)
    {
        return Some(Refused::Special(why));
    }
    (!has_stack_check && is_c(facts)).then_some(Refused::C)
}

fn special(local: &str) -> Option<&'static str> {
    let by_name = NAMES.iter().find(|(name, _)| *name == local);
    let by_prefix = || PREFIXES.iter().find(|(prefix, _)| local.starts_with(prefix));
    if let Some((_, why)) = by_name.or_else(by_prefix) {
        return Some(why);
    }
    // call16 to call1073741824.
    let size = local.strip_prefix("call")?;
    (!size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit())).then_some(REFLECT)
}

/// Whether the code was compiled from C: pclntab lists C functions of internally linked cgo
/// and race builds without the assembly flag. Every Go name has a package and a dot.
fn is_c(facts: &CodeFacts<'_>) -> bool {
    /// What C compilers append to the names of split and cloned functions.
    const CLONES: [&str; 5] = [".cold", ".part.", ".isra.", ".constprop.", ".llvm."];
    let name = facts.name;
    let base = CLONES.iter().filter_map(|clone| name.find(clone)).min().unwrap_or(name.len());
    let base = name.get(..base).unwrap_or(name);
    let c_prefix = ["_cgo_", "x_cgo_", "_Z", "__"].iter().any(|prefix| base.starts_with(prefix));
    !facts.is_assembly && !name.is_empty() && (c_prefix || !base.contains('.'))
}
