//! From a plan to machine code: a patch of 5 bytes for each place, a stub for each site, and
//! recorders that the stubs share. Pure: bytes in, bytes out; no process.
//!
//! ```text
//! target            stub                          recorder
//! jmp stub  ──────▶ lea r13, [back]
//!                   jmp recorder  ──────────────▶ reserve, fill, rdtsc, commit
//!                   delta, tag           ┌─────── jmp r13
//!            back:  moved instructions ◀─┘
//! next   ◀───────── jmp next
//! ```
//! The code uses no stack, calls nothing and blocks on nothing. It may use what is dead where
//! a Go function begins or ends (`cmd/compile/abi-internal.md`, Go 1.17 to 1.27): R12, R13,
//! R15 and the flags; RDX at returns; X15, which is 0 by convention and is set to 0 again.
#![deny(unsafe_code)]

mod body;
mod condition;
mod fetch;
mod hook;
mod live;
mod map;
mod pc_map;
mod program;
mod recorder;
mod refused;
mod region;
mod select;
mod source;
mod stub;
mod swap;

pub use pc_map::{PcMap, TrampolinePc};
pub use refused::{EmitError, Obstacle, Refused};
pub use source::ExecutableCode;

use crate::layout::{self, Rings, TAG_SITE};
use crate::payload::Payload;
use address::{Avma, Bias, Svma};
use binary::code::Analysis;
use hook::{Hooked, Tables};
use probe::Plan;
use recorder::Key;
use select::{Selected, select};
use std::collections::HashMap;
use std::ops::Range;
use stub::{Call, Stubs};

/// Bytes of a patch: `jmp rel32`.
pub const PATCH_LEN: usize = 5;

/// Gives the code of the plan's functions.
pub trait CodeSource {
    /// The function that begins at `entry`.
    fn function(&self, entry: Svma) -> Result<FunctionCode, Refused>;

    /// Whether what begins at `entry` follows the calling convention of Go code: keeps no
    /// register but SP, RBP and R14, and looks at none but those for arguments.
    fn is_ordinary(&self, entry: Svma) -> bool;
}

/// The code of one function.
#[derive(Clone, Debug)]
pub struct FunctionCode {
    /// Its bytes, with the padding up to the next function.
    pub bytes: Vec<u8>,
    /// What they say.
    pub analysis: Analysis,
    /// `abi.FuncFlagAsm`.
    pub is_assembly: bool,
    /// Where jump tables lead, sorted.
    pub table_targets: Vec<Svma>,
}

/// What the code is made for.
#[derive(Clone, Copy, Debug)]
pub struct EmitOptions {
    /// Where [`Emitted::code`] will be mapped: within 2 GB of the text, the control page and
    /// the rings.
    pub code_base: Avma,
    /// Where the image lies.
    pub bias: Bias,
    /// The control page, see [`crate::layout::ENABLED`].
    pub control: Avma,
    /// The rings.
    pub rings: Rings,
    /// Whether the CPU has `rdpid`: a ring for each CPU; else for each M, by its address.
    pub has_rdpid: bool,
    /// Offset of `m.procid`, for the thread id.
    pub m_procid: Option<u32>,
    /// Offset of `m.gsignal`: nothing is read from memory on that stack, and without the offset on
    /// no system stack at all.
    pub m_gsignal: Option<u32>,
    /// Entry of `runtime.sigtrampgo`, to be hooked: see [`Emitted::hook`]. With `None`, the two
    /// promises below are the installer's to keep.
    pub sigtrampgo: Option<Svma>,
    /// Whether a fault in one of [`Emitted::loads`] is turned into a jump to its landing. If
    /// not, values behind pointers are left out.
    pub recovers_loads: bool,
    /// Whether a fault in a moved instruction is translated to its original place before the Go
    /// runtime sees it (by [`Emitted::pc_map`]). If not, instructions that can fault stay
    /// where they are, and some functions are refused for it.
    pub translates_faults: bool,
}

impl EmitOptions {
    /// Whether a 32-bit displacement reaches this address of the process from wherever in the code,
    /// which is smaller than what is left out here.
    fn is_near(&self, place: u64) -> bool {
        let distance = place.wrapping_sub(self.code_base.0) as i64;
        distance.unsigned_abs() < 0x7000_0000
    }
}

/// One write into the text. Never crosses a page boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Index of the function in the plan.
    pub function: u32,
    /// First byte.
    pub address: Svma,
    /// What must be there before.
    pub original: [u8; PATCH_LEN],
    /// What is there afterwards.
    pub replacement: [u8; PATCH_LEN],
    /// End of the last moved instruction: PCs strictly between `address` and this must not be
    /// resumed at (a thread, a saved PC) while the patch is in. It may lie before the end
    /// of the patch, whose rest is padding then.
    pub end: Svma,
}

/// What a reader needs to know about the records of one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteRecord {
    /// Whether the site is installed.
    pub installed: bool,
    /// What their payload looks like.
    pub payload: Payload,
    /// Units of a record on a goroutine's own stack.
    pub units: u8,
    /// Units of one on a system stack.
    pub system_units: u8,
    /// SP at the function's first instruction minus SP where the record is made, bytes: to be
    /// taken from the record's depth.
    pub sp_delta: i32,
    /// Whether records count only where the lowest byte of [`Header::caller`](layout::Header) is
    /// not 0: the instruction swapped.
    pub is_guarded: bool,
}

/// Everything to install.
#[derive(Clone, Debug, Default)]
pub struct Emitted {
    /// To be mapped R+X at [`EmitOptions::code_base`].
    pub code: Vec<u8>,
    /// Shared recorders, as a range of `code`: a PC in it belongs to the site that R13 leads
    /// back to, and its registers are in use; let it run.
    pub recorders: Range<usize>,
    /// Sorted by address, no two overlap.
    pub patches: Vec<Patch>,
    /// Functions of the plan that are not installed: index and reason. All sites of a function
    /// are installed or none.
    pub refused: Vec<(u32, Refused)>,
    /// Functions of the plan that are installed without all of their values, which are read from
    /// memory where that is not safe: their records have fewer fields.
    pub without_values: Vec<u32>,
    /// Reads of the recorders that may fault, sorted, and where the thread goes on then.
    pub loads: Vec<(Avma, Avma)>,
    /// The patch of `runtime.sigtrampgo`, not among `patches`: it must be in before any of them
    /// and come out after them all, just before the code is unmapped. `None` when it was not
    /// asked for, is not needed, or has no room; values behind pointers and functions whose
    /// moved instructions can fault are left out then. Its `function` is `u32::MAX`.
    pub hook: Option<Patch>,
    /// Original places and their copies.
    pub pc_map: PcMap,
    /// For each site of the plan.
    pub sites: Vec<SiteRecord>,
    /// Whether all of it is right for every process in which image and areas lie equally far apart,
    /// wherever that is: it names no address that only one process has.
    pub is_movable: bool,
}

/// Makes the code for all functions of `plan` that it can be made for.
///
/// Fails when no code can be made at all; a function that can carry none is in
/// [`Emitted::refused`].
pub fn emit(
    plan: &Plan,
    code: &dyn CodeSource,
    options: &EmitOptions,
) -> Result<Emitted, EmitError> {
    check(plan, options)?;
    let (hooked, options) = find_hook(code, options);
    let options = &options;
    let mut refused = Vec::new();
    let selected = select_all(plan, code, options, hooked.as_ref(), &mut refused);
    let Recorders { code: mut bytes, places, loads } = recorders(plan, &selected, options)?;
    let recorders = 0..bytes.len();
    let base = options.code_base.add(bytes.len() as u64);
    let mut stubs = Stubs::new(options, base);
    // The hook's own place is known when everything else is.
    if let Some(hooked) = &hooked {
        hooked.stub(&mut stubs, base).map_err(|_| EmitError::Far)?;
    }
    let hook = stubs.patches.pop();
    let mut emitted = Emitted { recorders, loads, hook, refused, ..Emitted::default() };
    emitted.sites = vec![SiteRecord::default(); plan.sites.len()];
    for function in &selected {
        let mark = stubs.mark();
        match add_function(&mut stubs, function, &places) {
            Ok(()) => {
                function.describe(&mut emitted.sites);
                if !function.has_all_values {
                    emitted.without_values.push(function.index);
                }
            }
            Err(reason) => {
                stubs.back_to(&mark);
                emitted.refused.push((function.index, reason));
            }
        }
    }
    emitted.refused.sort_by_key(|(index, _)| *index);
    stubs.patches.sort_unstable_by_key(|patch| patch.address);
    bytes.append(&mut stubs.code);
    let end = options.code_base.add(bytes.len() as u64);
    if let Some(hooked) = &hooked {
        add_hook(hooked, &mut bytes, &emitted, &stubs.pieces, options)?;
    }
    emitted.patches = stubs.patches;
    emitted.pc_map = PcMap::new(stubs.pieces, end, stubs.moved);
    emitted.code = bytes;
    emitted.is_movable = is_movable(plan, options);
    Ok(emitted)
}

fn is_movable(plan: &Plan, options: &EmitOptions) -> bool {
    let is_told_by_distance = |op: &wire::Op| {
        let stated = if op.a == wire::IMAGE_PLACE { op.imm.wrapping_neg() } else { op.imm };
        options.is_near(options.bias.0.wrapping_add_signed(stated))
    };
    plan.ops.iter().filter(|op| op.code == wire::OpCode::Image).all(is_told_by_distance)
}

/// The hook if there can be one, and the options as they are with it or without.
fn find_hook(code: &dyn CodeSource, options: &EmitOptions) -> (Option<Hooked>, EmitOptions) {
    let mut options = *options;
    let Some(sigtrampgo) = options.sigtrampgo else { return (None, options) };
    let is_needed = options.recovers_loads || options.translates_faults;
    let hooked = is_needed.then(|| Hooked::find(code, sigtrampgo).ok()).flatten();
    options.recovers_loads &= hooked.is_some();
    options.translates_faults &= hooked.is_some();
    (hooked, options)
}

fn select_all(
    plan: &Plan,
    code: &dyn CodeSource,
    options: &EmitOptions,
    hooked: Option<&Hooked>,
    refused: &mut Vec<(u32, Refused)>,
) -> Vec<Selected> {
    let mut selected = Vec::new();
    let mut base = 0;
    for sites in plan.sites.chunk_by(|one, other| one.function == other.function) {
        let Some(first) = sites.first() else { continue };
        let chosen = select(plan, sites, base, code, options).and_then(|function| {
            match hooked.is_some_and(|hooked| hooked.entry() == function.entry) {
                true => Err(Refused::Hooked),
                false => Ok(function),
            }
        });
        base += sites.len() as u32;
        match chosen {
            Ok(function) => selected.push(function),
            Err(reason) => refused.push((first.function, reason)),
        }
    }
    selected
}

/// Adds tables and hook behind the stubs, and leads the hook's stub, the first one, there.
fn add_hook(
    hooked: &Hooked,
    code: &mut Vec<u8>,
    emitted: &Emitted,
    pieces: &[TrampolinePc],
    options: &EmitOptions,
) -> Result<(), EmitError> {
    let mut tables = Tables { loads: emitted.loads.clone(), ..Tables::default() };
    tables.add_moved(options, code, pieces);
    code.resize(code.len().next_multiple_of(8), 0xcc);
    let tables_at = options.code_base.add(code.len() as u64);
    code.append(&mut tables.bytes(options.code_base));
    let hook_at = options.code_base.add(code.len() as u64);
    let lengths = (tables.loads.len(), tables.moved.len());
    code.append(&mut hook::assemble(options, lengths, tables_at, hook_at)?);
    let start = emitted.recorders.end;
    let mut stub = Stubs::new(options, options.code_base.add(start as u64));
    let failed = |refused: Refused| EmitError::Assemble(refused.to_string());
    hooked.stub(&mut stub, hook_at).map_err(failed)?;
    if let Some(place) = code.get_mut(start..start + stub.code.len()) {
        place.copy_from_slice(&stub.code);
    }
    Ok(())
}

/// What would make every function fail.
fn check(plan: &Plan, options: &EmitOptions) -> Result<(), EmitError> {
    let Rings { count, bytes, .. } = options.rings;
    if !options.rings.is_valid() {
        return Err(EmitError::Rings { bytes, count });
    }
    if plan.sites.len() > TAG_SITE as usize {
        return Err(EmitError::TooManySites(plan.sites.len()));
    }
    let is_near = |to: Avma| {
        let distance = to.0.wrapping_sub(options.code_base.0) as i64;
        // Room for the code itself.
        i32::try_from(distance.saturating_mul(2)).is_ok() || distance.unsigned_abs() < 0x7000_0000
    };
    if is_near(options.control) && is_near(options.rings.base) {
        Ok(())
    } else {
        Err(EmitError::Far)
    }
}

/// All recorders, and where each lies.
struct Recorders {
    code: Vec<u8>,
    places: HashMap<Key, Avma>,
    loads: Vec<(Avma, Avma)>,
}

/// The recorders that the functions need.
fn recorders(
    plan: &Plan,
    selected: &[Selected],
    options: &EmitOptions,
) -> Result<Recorders, EmitError> {
    /// A cache line.
    const ALIGN: usize = 64;
    let (mut code, mut places, mut loads) = (Vec::new(), HashMap::new(), Vec::new());
    for key in selected.iter().flat_map(Selected::keys) {
        if !places.contains_key(key) {
            let at = options.code_base.add(code.len() as u64);
            let mut assembled = recorder::assemble(key, options, &plan.runtime, at)?;
            code.append(&mut assembled.code);
            code.resize(code.len().next_multiple_of(ALIGN), 0xcc);
            loads.append(&mut assembled.loads);
            places.insert(key.clone(), at);
        }
    }
    loads.sort_unstable();
    Ok(Recorders { code, places, loads })
}

fn add_function(
    stubs: &mut Stubs<'_>,
    function: &Selected,
    recorders: &HashMap<Key, Avma>,
) -> Result<(), Refused> {
    let body = body::Body::of(&function.code, function.entry);
    for (region, keys) in &function.regions {
        let mut calls = Vec::new();
        for (event, key) in region.events.iter().zip(keys) {
            let recorder = recorders.get(key).copied().ok_or(Refused::Reach(region.start))?;
            let tag = layout::tag(event.site, key.units() as u32);
            let delta = key.has_delta.then_some(event.sp_delta as u16);
            calls.push(Call { recorder, tag, delta });
        }
        stubs.add(function.index, &body, region, &calls)?;
    }
    for swap in &function.swaps {
        let out_of_reach = Refused::Reach(body.address(swap.at));
        let recorder = recorders.get(&swap.key).copied().ok_or(out_of_reach)?;
        let tag = layout::tag(swap.site, swap.key.units() as u32);
        stubs.add_swap(function.index, &body, swap, &Call { recorder, tag, delta: None })?;
    }
    Ok(())
}
