//! Which general registers hold something that is used later, at each instruction of a function:
//! found backwards over its control flow. And which vector registers it names at all.
//!
//! What the calling convention says (`cmd/compile/abi-internal.md`, Go 1.17 to 1.27): no register
//! but SP, RBP and R14 keeps its value over a call; R12, R13 and R15 carry neither arguments
//! nor results, nor does RDX results. R15 is the GOT's address in `-dynlink` builds only, which have
//! other refusals. Where that does not hold (assembly that keeps registers) or is not known, every
//! register counts as used.

use super::sweep::Sweep;
use address::Svma;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register};

/// A set of general registers, by hardware number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GeneralSet(pub u16);

const ALL: u16 = u16::MAX;
const RDX: u16 = 1 << 2;
/// R12, R13, R15.
const SCRATCH: u16 = 1 << 12 | 1 << 13 | 1 << 15;

impl GeneralSet {
    /// Whether a register is in it.
    pub fn has(self, number: u8) -> bool {
        number < 16 && self.0 >> number & 1 == 1
    }
}

/// What has to be known besides the bytes.
#[derive(Clone, Copy)]
pub struct LivenessFacts<'a> {
    /// Address of the first byte.
    pub entry: Svma,
    /// Where jump tables lead.
    pub table_targets: &'a [Svma],
    /// Whether the CALL at an address follows the calling convention of Go code: false for
    /// those of assembly and of what is not known.
    pub is_ordinary_call: &'a dyn Fn(Svma) -> bool,
}

/// Live registers in front of each instruction of a function.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// Sorted by address.
    before: Vec<(Svma, GeneralSet)>,
}

impl Liveness {
    /// Finds them in `code`. A jump that leaves the function counts as a use of all.
    pub fn of(code: &[u8], facts: &LivenessFacts<'_>) -> Self {
        let sweep = Sweep::of(code, facts.entry);
        let mut info = InstructionInfoFactory::new();
        let effects: Vec<Effect> =
            sweep.instructions.iter().map(|it| Effect::of(it, facts, &sweep, &mut info)).collect();
        let mut live = vec![0u16; effects.len()];
        // Sets only grow: at most 16 registers in each of so many places.
        let mut changed = true;
        while changed {
            changed = false;
            for (index, effect) in effects.iter().enumerate().rev() {
                let out = effect
                    .next
                    .iter()
                    .fold(effect.out, |out, &next| out | live.get(next).copied().unwrap_or(ALL));
                let before = effect.uses | (out & !effect.kills);
                if let Some(place) = live.get_mut(index)
                    && *place != before
                {
                    *place = before;
                    changed = true;
                }
            }
        }
        let addresses = sweep.instructions.iter().map(|instruction| Svma(instruction.ip()));
        Self { before: addresses.zip(live.into_iter().map(GeneralSet)).collect() }
    }

    /// What is live in front of the instruction at `address`; `None` where none begins.
    pub fn before(&self, address: Svma) -> Option<GeneralSet> {
        let index = self.before.binary_search_by_key(&address, |(at, _)| *at).ok()?;
        self.before.get(index).map(|(_, live)| *live)
    }
}

/// What an instruction does to registers, and what may run after it.
struct Effect {
    uses: u16,
    kills: u16,
    /// Live behind it whatever follows.
    out: u16,
    /// Indexes of instructions.
    next: Vec<usize>,
}

impl Effect {
    fn of(
        instruction: &Instruction,
        facts: &LivenessFacts<'_>,
        sweep: &Sweep,
        info: &mut InstructionInfoFactory,
    ) -> Self {
        let (mut uses, mut kills) = (0, 0);
        for used in info.info(instruction).used_registers() {
            let Some(bit) = general_bit(used.register()) else { continue };
            match used.access() {
                OpAccess::None | OpAccess::NoMemAccess => {}
                // A write of 32 bits clears the rest; shorter ones leave it.
                OpAccess::Write if used.register().size() >= 4 => kills |= bit,
                OpAccess::Write | OpAccess::CondWrite => {}
                _ => uses |= bit,
            }
        }
        let mut effect = Self { uses, kills, out: 0, next: Vec::new() };
        let following = sweep.index_of(instruction.next_ip()).unwrap_or(usize::MAX);
        let target = || {
            let is_near = instruction.op0_kind() == OpKind::NearBranch64;
            let index = is_near.then(|| sweep.index_of(instruction.near_branch_target()));
            index.flatten().unwrap_or(usize::MAX)
        };
        match instruction.flow_control() {
            FlowControl::Next => effect.next.push(following),
            FlowControl::ConditionalBranch => effect.next.extend([following, target()]),
            FlowControl::UnconditionalBranch => effect.next.push(target()),
            FlowControl::Return => effect.out = ALL & !SCRATCH & !RDX,
            FlowControl::Call | FlowControl::IndirectCall => {
                let at = Svma(instruction.ip());
                effect.uses = ALL;
                if (facts.is_ordinary_call)(at) {
                    effect.uses &= !SCRATCH;
                    effect.kills = SCRATCH;
                }
                effect.next.push(following);
            }
            FlowControl::IndirectBranch if instruction.memory_index() != Register::None => {
                let targets = facts.table_targets.iter();
                effect.next.extend(targets.filter_map(|target| sweep.index_of(target.0)));
                if effect.next.is_empty() {
                    effect.out = ALL;
                }
            }
            _ => effect.out = ALL,
        }
        effect
    }
}

fn general_bit(register: Register) -> Option<u16> {
    let full = register.full_register();
    full.is_gpr64().then(|| 1u16.checked_shl(full.number() as u32)).flatten()
}

/// The vector registers that the code names, by number: of `xmm`, `ymm` and `zmm` alike. None of
/// the others is read or written, and so none holds an argument that it looks at or a result
/// that it makes.
pub fn named_vectors(code: &[u8], entry: Svma) -> u32 {
    let sweep = Sweep::of(code, entry);
    if !sweep.errors.is_empty() {
        return u32::MAX;
    }
    let mut info = InstructionInfoFactory::new();
    sweep.instructions.iter().fold(0, |named, instruction| {
        let used = info.info(instruction).used_registers();
        used.iter()
            .filter(|used| used.register().is_vector_register())
            .fold(named, |named, used| named | 1 << (used.register().number() & 31))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: Svma = Svma(0x1000);

    fn live(code: &[u8], tables: &[Svma], ordinary: bool, at: u64) -> Vec<u8> {
        let facts =
            LivenessFacts { entry: ENTRY, table_targets: tables, is_ordinary_call: &|_| ordinary };
        let live = Liveness::of(code, &facts).before(ENTRY.add(at)).expect("an instruction");
        [2, 12, 13, 15].into_iter().filter(|&number| live.has(number)).collect()
    }

    #[test]
    fn scratch_is_dead_before_a_return_and_an_ordinary_call() {
        assert_eq!(live(&[0xc3], &[], true, 0), []);
        // call; ret
        let call = [0xe8, 0, 1, 0, 0, 0xc3];
        assert_eq!(live(&call, &[], true, 0), [2]);
        assert_eq!(live(&call, &[], false, 0), [2, 12, 13, 15]);
    }

    #[test]
    fn uses_are_found_over_branches_and_loops() {
        // 0 nop; 1 jne 9; 3 mov r12d, eax; 6 nop; 7 jmp -8 (0 again); 9 mov rax, r13; c ret
        let code = [0x90, 0x75, 0x06, 0x41, 0x89, 0xc4, 0x90, 0xeb, 0xf7, 0x4c, 0x89, 0xe8, 0xc3];
        assert_eq!(live(&code, &[], true, 0), [13]);
        assert_eq!(live(&code, &[], true, 6), [13]);
        assert_eq!(live(&code, &[], true, 12), []);
    }

    #[test]
    fn narrow_and_conditional_writes_keep_what_was_there() {
        // 0 mov r12b, al; 3 cmove r13, rax; 7 mov rax, r12; a add rax, r13; d ret
        let code =
            [0x41, 0x88, 0xc4, 0x4c, 0x0f, 0x44, 0xe8, 0x4c, 0x89, 0xe0, 0x4c, 0x01, 0xe8, 0xc3];
        assert_eq!(live(&code, &[], true, 0), [12, 13]);
        assert_eq!(live(&code, &[], true, 7), [12, 13]);
    }

    #[test]
    fn jumps_out_use_everything_and_tables_what_lies_there() {
        // jmp far away
        assert_eq!(live(&[0xe9, 0, 1, 0, 0], &[], true, 0), [2, 12, 13, 15]);
        // 0 jmp [rax*8+0]; 7 ret; 8 mov rax, r15; b ret
        let code = [0xff, 0x24, 0xc5, 0, 0, 0, 0, 0xc3, 0x4c, 0x89, 0xf8, 0xc3];
        assert_eq!(live(&code, &[ENTRY.add(8)], true, 0), [15]);
        assert_eq!(live(&code, &[], true, 0), [2, 12, 13, 15]);
    }

    #[test]
    fn named_vectors_are_counted_in_every_width() {
        // movups xmm3, xmm14; vmovdqu ymm9, [rax]; ret
        let code = [0x41, 0x0f, 0x10, 0xde, 0xc5, 0x7e, 0x6f, 0x08, 0xc3];
        assert_eq!(named_vectors(&code, ENTRY), 1 << 3 | 1 << 14 | 1 << 9);
        assert_eq!(named_vectors(&[0xc3], ENTRY), 0);
        // Not to be decoded.
        assert_eq!(named_vectors(&[0x06, 0xc3], ENTRY), u32::MAX);
    }
}
