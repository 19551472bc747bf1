//! One pass over a function's instructions, then the choice of its entry site.

use super::kernel::probe_cost;
use super::prologue::{StackCheck, stack_check};
use super::special::refused_by_name;
use super::spills::spills;
use super::sweep::Sweep;
use super::{Analysis, Call, CodeFacts, CodeSite, ExitKind, ExitSite, ProbeCost, Refused};
use address::Svma;
use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

/// How many instructions after the first a cheaper site is looked for.
const MAX_LOOKAHEAD: usize = 4;

/// Says what the code of a function says. `code` begins at `facts.entry` and may include the
/// padding up to the next function. Never fails: what cannot be used is in the result.
pub fn analyze(code: &[u8], facts: &CodeFacts<'_>) -> Analysis {
    let sweep = Sweep::of(code, facts.entry);
    let check = stack_check(&sweep);
    let mut flow = Flow::default();
    for (index, instruction) in sweep.instructions.iter().enumerate() {
        let is_morestack = check.is_some_and(|check| check.call == index);
        let is_back = check.is_some_and(|check| check.back == index);
        if !is_morestack && !is_back {
            flow.add(instruction, code, facts, sweep.end);
        }
    }
    let body_index = check.map_or(0, |check| check.body);
    let entry = refused_by_facts(&sweep, facts, check.is_some())
        .or(flow.conditional_exit.map(Refused::ConditionalExit))
        .map_or_else(|| entry_site(code, facts, &sweep, check, &flow), Err);
    let at = |index: usize| sweep.instructions.get(index);
    let mut branch_targets: Vec<Svma> = flow.branches.iter().map(|branch| branch.to).collect();
    branch_targets.extend(facts.deferreturn);
    branch_targets.sort_unstable();
    branch_targets.dedup();
    Analysis {
        entry,
        body: at(body_index).map_or(facts.entry, |instruction| Svma(instruction.ip())),
        has_stack_check: check.is_some(),
        morestack: check.and_then(|check| at(check.call)).and_then(direct_target),
        spills: spills(&sweep, check),
        exits: flow.exits,
        calls: flow.calls,
        branch_targets,
        table_jumps: flow.table_jumps,
        loads_g: sweep.instructions.iter().any(loads_g),
        end: sweep.end,
        decode_errors: u32::try_from(sweep.errors.len()).unwrap_or(u32::MAX),
    }
}

/// Refusals that need no look at the control flow.
fn refused_by_facts(
    sweep: &Sweep,
    facts: &CodeFacts<'_>,
    has_stack_check: bool,
) -> Option<Refused> {
    if let Some(refused) = refused_by_name(facts, has_stack_check) {
        return Some(refused);
    }
    if facts.sp_write {
        return Some(Refused::SpWrite);
    }
    if facts.is_top_frame {
        return Some(Refused::TopFrame);
    }
    if facts.fips.is_some_and(|fips| fips.contains(&facts.entry)) {
        return Some(Refused::Fips);
    }
    if let Some(&address) = sweep.errors.first() {
        return Some(Refused::Undecodable(address));
    }
    sweep.instructions.is_empty().then_some(Refused::NoCode)
}

/// A branch whose target lies in the function.
struct Branch {
    from: Svma,
    to: Svma,
}

/// What the pass gathers.
#[derive(Default)]
struct Flow {
    exits: Vec<ExitSite>,
    calls: Vec<Call>,
    branches: Vec<Branch>,
    table_jumps: Vec<Svma>,
    conditional_exit: Option<Svma>,
}

impl Flow {
    fn add(&mut self, instruction: &Instruction, code: &[u8], facts: &CodeFacts<'_>, end: Svma) {
        let address = Svma(instruction.ip());
        let target = direct_target(instruction);
        let inside = target.filter(|target| (facts.entry..end).contains(target));
        let kind = match instruction.flow_control() {
            FlowControl::Return => Some(ExitKind::Return),
            FlowControl::UnconditionalBranch if inside.is_none() => Some(ExitKind::Tail(target)),
            FlowControl::IndirectBranch if is_table_jump(instruction) => {
                self.table_jumps.push(address);
                None
            }
            FlowControl::IndirectBranch => Some(ExitKind::Tail(None)),
            FlowControl::ConditionalBranch if inside.is_none() => {
                self.conditional_exit.get_or_insert(address);
                None
            }
            FlowControl::Call | FlowControl::IndirectCall
                if instruction.mnemonic() == Mnemonic::Call =>
            {
                self.calls.push(Call { address, target });
                None
            }
            _ => None,
        };
        if let Some(to) = inside
            && instruction.mnemonic() != Mnemonic::Call
        {
            self.branches.push(Branch { from: address, to });
        }
        if let Some(kind) = kind {
            // SP points to the return address at a RET, as at the first instruction.
            let sp_delta = match kind {
                ExitKind::Return => 0,
                ExitKind::Tail(_) => (facts.sp_delta)(address).unwrap_or(0),
            };
            self.exits.push(ExitSite { site: site(instruction, code, facts, sp_delta), kind });
        }
    }
}

fn direct_target(instruction: &Instruction) -> Option<Svma> {
    (instruction.op0_kind() == OpKind::NearBranch64).then(|| Svma(instruction.near_branch_target()))
}

/// `jmp [table + index*8]`: how the compiler switches over dense integers and strings.
fn is_table_jump(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::Memory
        && instruction.memory_index() != Register::None
        && instruction.memory_index_scale() == 8
}

/// `mov r14, fs:[…]`.
fn loads_g(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_register() == Register::R14
        && instruction.op1_kind() == OpKind::Memory
        && instruction.segment_prefix() == Register::FS
}

fn site(instruction: &Instruction, code: &[u8], facts: &CodeFacts<'_>, sp_delta: i32) -> CodeSite {
    let start = instruction.ip().wrapping_sub(facts.entry.0) as usize;
    let bytes = code.get(start..start.saturating_add(instruction.len())).unwrap_or_default();
    CodeSite {
        address: Svma(instruction.ip()),
        sp_delta,
        len: instruction.len() as u8,
        uprobe: probe_cost(instruction, bytes),
    }
}

/// The instruction that every call passes exactly once with its arguments in place: an
/// emulated one near the start if there is any, else the first one that can be probed.
/// SP is still as at the first instruction, since nothing passed over writes it.
fn entry_site(
    code: &[u8],
    facts: &CodeFacts<'_>,
    sweep: &Sweep,
    check: Option<StackCheck>,
    flow: &Flow,
) -> Result<CodeSite, Refused> {
    let start = check.map_or(0, |check| check.body);
    let first = sweep.instructions.get(start).ok_or(Refused::NoCode)?;
    let repeats = |address: u64| {
        let looped = |branch: &&Branch| branch.to > facts.entry && branch.to.0 <= address;
        flow.branches.iter().find(looped).map(|branch| branch.from)
    };
    if let Some(branch) = flow.branches.iter().find(|branch| branch.to == facts.entry) {
        return Err(Refused::EntryIsLoop(branch.from));
    }
    if let Some(from) = repeats(first.ip()) {
        return Err(Refused::BodyIsLoop(from));
    }
    let mut info = InstructionInfoFactory::new();
    let mut chosen: Option<CodeSite> = None;
    for instruction in sweep.instructions.iter().skip(start).take(MAX_LOOKAHEAD) {
        let leaves = flow.exits.iter().any(|exit| exit.site.address.0 == instruction.ip());
        if repeats(instruction.ip()).is_some() || (leaves && chosen.is_some()) {
            break;
        }
        let here = site(instruction, code, facts, 0);
        match here.uprobe {
            Ok(ProbeCost::Emulated) => return Ok(here),
            Ok(ProbeCost::SingleStepped) => _ = chosen.get_or_insert(here),
            Err(_) => {}
        }
        if !can_pass(instruction, &mut info) {
            break;
        }
    }
    let refused = site(first, code, facts, 0).uprobe.err();
    chosen.ok_or(Refused::Unprobeable(refused.unwrap_or(super::Unprobeable::Opcode)))
}

/// Whether a site may lie behind this instruction: it always goes on to the next one, cannot
/// fault, and leaves SP, g and everything that may hold an argument alone. R12 and R13 are
/// scratch at a function's start (`cmd/compile/abi-internal.md`).
fn can_pass(instruction: &Instruction, info: &mut InstructionInfoFactory) -> bool {
    if instruction.flow_control() != FlowControl::Next {
        return false;
    }
    let info = info.info(instruction);
    let writes = |access: OpAccess| {
        !matches!(
            access,
            OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
        )
    };
    let spares_arguments = info
        .used_registers()
        .iter()
        .filter(|used| writes(used.access()))
        .all(|used| matches!(used.register().full_register(), Register::R12 | Register::R13));
    // g and the stack are always mapped; g.* is read by method wrappers.
    let cannot_fault = info.used_memory().iter().all(|used| match used.base() {
        Register::RSP => used.index() == Register::None && !writes(used.access()),
        Register::R14 => used.index() == Register::None,
        _ => false,
    });
    spares_arguments && cannot_fault
}
