//! Sites that tell which goroutine hands something to which over a channel, when one of them waits for
//! the other.
//!
//! `runtime.send` gives a value to a goroutine that waits for one, and `runtime.recv` takes one from a
//! goroutine that waits to be rid of it; plain operations and `select` both come here (`runtime/chan.go`,
//! `runtime/select.go`, Go 1.19 to 1.27). What goes through a channel's buffer without anyone waiting
//! calls neither.

use crate::plan::{Refusal, RefusalReason};
use crate::planner::analyze_function;
use crate::states::{StateOffsets, add_ops, index_of, op};
use crate::{Plan, Site};
use binary::{Executable, Function};
use wire::{DEREF_MAPPED, Field, Fields, GSource, Op, OpCode, Record, RecordFlags, SiteKind};

/// Called by who gives.
const GIVING: &str = "runtime.send";

/// Called by who takes.
const TAKING: &str = "runtime.recv";

/// Register of the `*sudog`, the second parameter of both; its first field is the `*g` that waits
/// (`runtime/runtime2.go`).
const RBX: u8 = 3;

/// A value went from one goroutine to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// Who gave it; `None` when that was no goroutine but a timer.
    pub from: Option<u64>,
    /// First instruction of the function that the giver began with (avma).
    pub from_startpc: u64,
    /// Who took it.
    pub to: u64,
}

impl HandOver {
    /// Whether records of a site of `plan` are such events.
    pub fn is_at(plan: &Plan, site: u32) -> bool {
        plan.function_of(site).is_some_and(|(site, function)| {
            let is_its = function.name == GIVING || function.name == TAKING;
            is_its && !function.traced && site.kind == SiteKind::Entry
        })
    }

    /// Whether `plan` sees both kinds.
    pub fn are_watched(plan: &Plan) -> bool {
        let is_watched = |name: &str| {
            let is_of = |site| plan.function_of(site).is_some_and(|(_, it)| it.name == name);
            (0..plan.sites.len() as u32).any(|site| is_of(site) && Self::is_at(plan, site))
        };
        is_watched(GIVING) && is_watched(TAKING)
    }

    /// Takes a record apart; `None` for records of other sites, and for payloads that are not what
    /// these sites give.
    pub fn parse(plan: &Plan, record: &Record<'_>) -> Option<Self> {
        if !Self::is_at(plan, record.site) {
            return None;
        }
        let (_, function) = plan.function_of(record.site)?;
        let mut fields = Fields::new(record.payload);
        let mut word = || fields.next().as_ref().and_then(Field::as_u64);
        let (waiting, from_startpc) = (word()?, word()?);
        let is_goroutine = !record.flags.has(RecordFlags::SYSTEM_STACK) && record.goid != 0;
        let running = Some(record.goid).filter(|_| is_goroutine);
        Some(match function.name == GIVING {
            true => Self { from: running, from_startpc, to: waiting },
            false => Self { from: Some(waiting), from_startpc, to: running? },
        })
    }
}

/// What is read at the entry. Fields: goid of who waits, `startpc` of who gives.
fn hand_over_ops(name: &str, offsets: &StateOffsets) -> Vec<Op> {
    let waiting = [op(OpCode::Reg, RBX, 0), op(OpCode::Deref, DEREF_MAPPED, 0)];
    let word = |offset: u32| {
        let of_g = op(OpCode::Add, 0, i64::from(offset));
        [of_g, op(OpCode::Deref, DEREF_MAPPED, 0), op(OpCode::EmitAcc, 8, 0)]
    };
    let mut ops = [&waiting[..], &word(offsets.goid)].concat();
    match name == GIVING {
        true => ops.push(op(OpCode::CurrentG, 0, 0)),
        false => ops.extend(waiting),
    }
    ops.extend(word(offsets.startpc));
    ops
}

/// Adds to `plan` the sites of hand-overs. What cannot be watched is refused in the plan.
pub fn add_hand_overs(
    plan: &mut Plan,
    executable: &Executable,
    offsets: &StateOffsets,
) -> Result<(), binary::Error> {
    let table = executable.functions()?;
    for name in [GIVING, TAKING] {
        for function in table.by_name(name) {
            if let Err(reason) = add_hand_over(plan, executable, &function, offsets)? {
                let reason =
                    RefusalReason(format!("watched for what goroutines hand on: {reason}"));
                plan.refused.push(Refusal { function: function.name.clone(), reason });
            }
        }
    }
    Ok(())
}

fn add_hand_over(
    plan: &mut Plan,
    executable: &Executable,
    function: &Function,
    offsets: &StateOffsets,
) -> Result<Result<(), String>, binary::Error> {
    let table = executable.functions()?;
    if !table.inlined_copies(&|name| name == function.name).is_empty() {
        return Ok(Err("it is inlined elsewhere".to_owned()));
    }
    if plan.functions.iter().any(|known| known.entry == function.entry && known.traced) {
        return Ok(Err("it is traced too; exclude it from the traced functions".to_owned()));
    }
    let analysis = analyze_function(executable, function, None)?;
    let entry = match analysis.entry {
        Ok(entry) => entry,
        Err(refused) => return Ok(Err(refused.to_string())),
    };
    if let Err(reason) = entry.uprobe {
        return Ok(Err(reason.to_string()));
    }
    let index = index_of(plan, executable, function);
    let program = add_ops(plan, &hand_over_ops(&function.name, offsets));
    plan.insert_site(Site {
        function: index,
        kind: SiteKind::Entry,
        address: entry.address,
        file_offset: executable.image().file_offset(entry.address).unwrap_or_default(),
        sp_delta: entry.sp_delta,
        g_source: if analysis.loads_g { GSource::Tls } else { GSource::R14 },
        program,
        guard: None,
        condition: 0,
    });
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PlannedFunction;
    use crate::interpret::{Registers, interpret};
    use crate::test_image::Image;
    use wire::RecordKind;

    const OFFSETS: StateOffsets = StateOffsets {
        goid: 8,
        atomicstatus: 0,
        waitreason: 0,
        parent_goid: None,
        gopc: 0,
        startpc: 16,
        sched_pc: 0,
    };

    /// A plan with one site of each function.
    fn plan() -> Plan {
        let mut plan = Plan::default();
        for (index, name) in [GIVING, TAKING, "main.f"].into_iter().enumerate() {
            plan.functions.push(PlannedFunction {
                name: name.to_owned(),
                file: String::new(),
                line: 0,
                entry: Default::default(),
                size: 0,
                traced: name == "main.f",
                witness: None,
                args: Vec::new(),
                results: Vec::new(),
            });
            plan.insert_site(Site {
                function: index as u32,
                kind: SiteKind::Entry,
                address: Default::default(),
                file_offset: Default::default(),
                sp_delta: 0,
                g_source: GSource::R14,
                program: Default::default(),
                guard: None,
                condition: 0,
            });
        }
        plan
    }
    /// What a hit says: at 0 a `sudog`, at 32 the g that waits (17), at 64 the one that runs.
    fn told(site: u32, flags: u16, goid: u64) -> Option<HandOver> {
        let plan = plan();
        let words = [32, 0, 0, 0, 0, 17, 0x1700, 0, 0, 99, 0x9900];
        let bytes = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        let image = Image { base: 0, bytes };
        let name = &plan.functions[site as usize].name;
        let registers = Registers { gpr: [0; 16], ..Registers::default() };
        let payload = interpret(&hand_over_ops(name, &OFFSETS), &registers, 64, &image);
        let record = Record {
            ts_ns: 1,
            goid,
            stack: 0,
            depth: 0,
            caller: 0,
            site,
            pid: 1,
            tid: 1,
            lost: 0,
            cpu: 0,
            flags: RecordFlags(flags),
            kind: RecordKind::Hit,
            payload: &payload,
        };
        HandOver::parse(&plan, &record)
    }

    #[test]
    fn who_gives_is_the_one_that_runs_or_the_one_that_waits() {
        assert!(HandOver::are_watched(&plan()));
        assert!(!HandOver::are_watched(&Plan { sites: plan().sites.split_off(1), ..plan() }));
        let given = HandOver { from: Some(99), from_startpc: 0x9900, to: 17 };
        assert_eq!(told(0, 0, 99), Some(given));
        // A timer, on the system stack or none.
        let by_timer = HandOver { from: None, ..given };
        assert_eq!(told(0, RecordFlags::SYSTEM_STACK, 99), Some(by_timer));
        assert_eq!(told(0, 0, 0), Some(by_timer));
        assert_eq!(told(1, 0, 99), Some(HandOver { from: Some(17), from_startpc: 0x1700, to: 99 }));
        assert_eq!(told(1, 0, 0), None);
        assert_eq!(told(2, 0, 99), None);
    }
}
