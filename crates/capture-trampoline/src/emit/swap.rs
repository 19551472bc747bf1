//! Records of a compare-and-swap in the middle of a function: filled before the instruction,
//! committed behind it, when it is known whether it swapped.
//!
//! ```text
//! target            stub                            recorder
//! jmp stub  ──────▶ [x11 = r13]
//!                   lea r13, [back]
//!                   jmp recorder  ────────────────▶ reserve, fill, rdtsc
//!                   distance, tag          ┌─────── jmp r13
//!            back:  [r13 = x11]          ◀─┤
//!                   the instruction        │
//!                   sete record, commit    │ no record: ring full, disabled, no g
//! after  ◀───────── jmp after              │
//!            skip:  [r13 = x11]          ◀─┘
//!                   the instruction
//! after  ◀───────── jmp after
//! ```
//! Nothing here may be assumed free but what liveness proves: R12 and R13 are kept in vector
//! registers where they hold something, RAX and RDX always, and R15 and X15 are not touched. X9 to
//! X14 must not be named by the function, and are free then: these functions of the runtime have no
//! floating-point parameters or results (Go 1.19 to 1.27), and no vector register outlives a call.
//! The instruction sets all arithmetic flags, so they are free before it; behind it only
//! instructions run that leave them alone.
//! ```text
//! X14 = RAX   X13 = RDX   X12 = R12   X11 = R13   X10 = record, if R12 is in use   X9 = time
//! ```

use super::body::{Body, can_fault, can_move};
use super::program::{Base, evaluate};
use super::recorder::{Key, Recorder, Stack};
use super::region::crosses_page;
use super::stub::{Call, Stubs};
use super::{CodeSource, Obstacle, PATCH_LEN, Refused};
use crate::layout::{DROPS, record};
use address::Svma;
use binary::code::{Liveness, LivenessFacts, named_vectors};
use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::{CodeAssembler, qword_ptr, word_ptr};
use iced_x86::{FlowControl, IcedError, InstructionInfoFactory, Mnemonic, OpKind};
use probe::{Plan, Site};

/// X9 to X14.
const VECTORS: u32 = 0b111_1110_0000_0000;
/// How many instructions before the swap a patch may begin.
const MAX_BEFORE: usize = 4;
const R12: u8 = 12;
const R13: u8 = 13;

/// Which scratch registers hold something at the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct InUse {
    pub(super) r12: bool,
    pub(super) r13: bool,
}

/// A compare-and-swap to be recorded.
#[derive(Clone, Debug)]
pub(super) struct Swap {
    /// Index of the site in the plan.
    pub(super) site: u32,
    /// Index of the instruction.
    pub(super) at: usize,
    /// Index of the first instruction under the patch: `at`, unless the patch would cross a page.
    pub(super) start: usize,
    /// SP at the function's first instruction minus SP there, bytes.
    pub(super) sp_delta: i32,
    pub(super) key: Key,
}

/// Looks at the site and proves what has to be free.
pub(super) fn swap(
    plan: &Plan,
    site: &Site,
    number: u32,
    body: &Body<'_>,
    source: &dyn CodeSource,
    moves_faulting: bool,
) -> Result<Swap, Refused> {
    let missing = Refused::NoSuchSite(site.address);
    let at = body.index_of(site.address).ok_or_else(|| missing.clone())?;
    let instruction = body.instructions.get(at).ok_or_else(|| missing.clone())?;
    let is_swap = instruction.mnemonic() == Mnemonic::Cmpxchg
        && instruction.op0_kind() == OpKind::Memory
        && !instruction.is_ip_rel_memory_operand();
    if !is_swap || site.guard.is_none() || instruction.len() < PATCH_LEN {
        return Err(missing);
    }
    let start = start(body, at, moves_faulting)?;
    let function = plan.functions.get(site.function as usize);
    if !function.is_some_and(|function| function.name.starts_with("runtime.")) {
        return Err(Refused::NotRuntime(site.address));
    }
    if named_vectors(&body.code.bytes, body.entry) & VECTORS != 0 {
        return Err(Refused::VectorsNamed(site.address));
    }
    let in_use = in_use(body, source, site.address)?;
    let ops = super::select::ops_of(plan, number)?;
    // Of memory only what cannot fault: no one has looked at what a fault here would meet.
    let (values, is_complete) = evaluate(ops, false, &[])?;
    if !is_complete || values.uses(Base::FirstSp) {
        return Err(Refused::Reads(site.address));
    }
    if let Some(number) = (9..15).find(|&number| values.uses(Base::Vector(number))) {
        return Err(Refused::Vector(number));
    }
    // What is recorded is kept too, whether anything else uses it or not.
    let in_use = InUse {
        r12: in_use.r12 || values.uses(Base::Register(R12)),
        r13: in_use.r13 || values.uses(Base::Register(R13)),
    };
    let key = Key {
        has_caller: false,
        saves_rdx: true,
        has_delta: true,
        condition: Vec::new(),
        values,
        swap: Some(in_use),
    };
    Ok(Swap { site: number, at, start, sp_delta: site.sp_delta, key })
}

/// Where the patch begins: at the instruction, or so few instructions before that it does not
/// cross a page.
fn start(body: &Body<'_>, at: usize, moves_faulting: bool) -> Result<usize, Refused> {
    let address = body.address(at);
    let refuse = |why| Err(Refused::NoRoom { at: address, why });
    if !crosses_page(address) {
        return Ok(at);
    }
    let mut info = InstructionInfoFactory::new();
    for start in (at.saturating_sub(MAX_BEFORE)..at).rev() {
        let Some(moved) = body.instructions.get(start) else { break };
        if moved.flow_control() != FlowControl::Next || !can_move(moved) {
            return refuse(Obstacle::Fixed);
        }
        if !moves_faulting && can_fault(moved, &mut info) {
            return refuse(Obstacle::Fault);
        }
        let from = body.address(start);
        if body.has_target(from.add(1)..address.add(1), &[]) {
            return refuse(Obstacle::Branch);
        }
        if !crosses_page(from) {
            return Ok(start);
        }
    }
    refuse(Obstacle::Page)
}

fn in_use(body: &Body<'_>, source: &dyn CodeSource, at: Svma) -> Result<InUse, Refused> {
    let is_ordinary_call = |address: Svma| {
        let call = body.code.analysis.calls.iter().find(|call| call.address == address);
        call.is_some_and(|call| call.target.is_none_or(|target| source.is_ordinary(target)))
    };
    let facts = LivenessFacts {
        entry: body.entry,
        table_targets: &body.code.table_targets,
        is_ordinary_call: &is_ordinary_call,
    };
    let live = Liveness::of(&body.code.bytes, &facts).before(at);
    let live = live.ok_or(Refused::NoSuchSite(at))?;
    Ok(InUse { r12: live.has(R12), r13: live.has(R13) })
}

impl Recorder<'_> {
    /// The recorder of a swap. The stub says in 2 bytes before the tag how far behind R13 the code
    /// for the case without a record lies.
    pub(super) fn all_of_swap(&mut self, in_use: InUse) -> Result<(), IcedError> {
        let (mut skip, mut system) = (self.asm.create_label(), self.asm.create_label());
        if in_use.r12 {
            self.asm.movq(xmm12, r12)?;
        }
        self.check(skip)?;
        self.asm.movq(xmm13, rdx)?;
        self.asm.movq(xmm14, rax)?;
        self.find_ring()?;
        self.asm.cmp(qword_ptr(r14 + self.runtime.g_goid), 0)?;
        self.asm.je(system)?;
        self.record(Stack::Own)?;

        let mut commit = self.commit;
        self.asm.set_label(&mut commit)?;
        self.time()?;
        self.asm.movq(xmm9, rax)?;
        if in_use.r12 {
            self.asm.movq(xmm10, r12)?;
        }
        self.asm.movq(rax, xmm14)?;
        self.asm.movq(rdx, xmm13)?;
        if in_use.r12 {
            self.asm.movq(r12, xmm12)?;
        }
        self.asm.jmp(r13)?;

        let mut full = self.full;
        self.asm.set_label(&mut full)?;
        self.asm.lock().inc(qword_ptr(r12 + DROPS))?;
        self.asm.movq(rax, xmm14)?;
        self.asm.movq(rdx, xmm13)?;
        self.asm.set_label(&mut skip)?;
        self.asm.movzx(r12d, word_ptr(r13 - 6))?;
        self.asm.add(r13, r12)?;
        if in_use.r12 {
            self.asm.movq(r12, xmm12)?;
        }
        self.asm.jmp(r13)?;

        self.asm.set_label(&mut system)?;
        self.record(Stack::System)?;
        self.asm.jmp(commit)
    }
}

impl Stubs<'_> {
    /// Adds the stub and the patch of a swap.
    pub(super) fn add_swap(
        &mut self,
        function: u32,
        body: &Body<'_>,
        swap: &Swap,
        call: &Call,
    ) -> Result<(), Refused> {
        let at = body.address(swap.at);
        let after = body.address(swap.at + 1);
        let in_use = swap.key.swap.unwrap_or(InUse { r12: true, r13: true });
        let bytes = body.bytes(at..after).ok_or(Refused::Reach(at))?;
        let failed = |_: IcedError| Refused::Reach(at);
        let before = keep_r13(in_use.r13, false).map_err(failed)?;
        let back = keep_r13(in_use.r13, true).map_err(failed)?;
        let commit = commit(in_use).map_err(failed)?;
        let distance = back.len() + bytes.len() + commit.len() + PATCH_LEN;
        let distance = u16::try_from(distance).map_err(|_| Refused::Reach(at))?;

        let stub = self.here();
        for index in swap.start..swap.at {
            let (original, here) = (body.address(index), self.here());
            if index != swap.start {
                self.moved.push((original, here));
            }
            self.piece(original, true);
            let moved = body.instructions.get(index).ok_or(Refused::Reach(original))?;
            self.instruction(body, moved, None)?;
        }
        if swap.start != swap.at {
            self.moved.push((at, self.here()));
        }
        self.piece(at, false);
        self.code.extend_from_slice(&before);
        self.call(&Call { delta: Some(distance), ..*call }, at)?;
        for ends in [&commit[..], &[]] {
            self.piece(at, false);
            self.code.extend_from_slice(&back);
            self.piece(at, true);
            self.code.extend_from_slice(bytes);
            self.piece(after, false);
            self.code.extend_from_slice(ends);
            self.jump(self.options.bias.to_avma(after), at)?;
        }
        self.patch(function, body, body.address(swap.start)..after, stub)
    }
}

/// `movq xmm11, r13` or back; nothing where R13 is free.
fn keep_r13(is_in_use: bool, back: bool) -> Result<Vec<u8>, IcedError> {
    let mut asm = CodeAssembler::new(64)?;
    match (is_in_use, back) {
        (false, _) => return Ok(Vec::new()),
        (true, false) => asm.movq(xmm11, r13)?,
        (true, true) => asm.movq(r13, xmm11)?,
    }
    asm.assemble(0)
}

/// Says in the record whether the swap was made, and commits it. Leaves the flags alone.
fn commit(in_use: InUse) -> Result<Vec<u8>, IcedError> {
    let mut asm = CodeAssembler::new(64)?;
    if in_use.r12 {
        asm.movq(r12, xmm10)?;
    }
    asm.sete(iced_x86::code_asm::byte_ptr(r12 + record::CALLER))?;
    asm.movq(qword_ptr(r12 + record::TSC), xmm9)?;
    if in_use.r12 {
        asm.movq(r12, xmm12)?;
    }
    asm.assemble(0)
}
