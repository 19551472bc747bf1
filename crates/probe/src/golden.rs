//! A plan as text: for `--dry-run` and for tests that compare whole plans.

use crate::plan::{Guard, Plan, PlannedFunction, Program, Site};
use crate::screen::Screen;
use crate::value::{Check, ValueKind, ValueSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use wire::{
    Body, DEREF_MAPPED, Elements, GSource, IMAGE_PLACE, MapKey, Op, OpCode, Order, Relation,
    SiteKind, Word,
};

/// Shows a plan: the image, each function with its sites, programs and values, what is
/// refused. Stable: equal plans give equal text. A program is written where it is first
/// used and named `#N`, N being the number of its first op.
#[derive(Clone, Copy, Debug)]
pub struct PlanText<'a>(pub &'a Plan);

impl fmt::Display for PlanText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.0;
        let or_unknown = |text: &'_ str| if text.is_empty() { "?" } else { text }.to_owned();
        writeln!(
            f,
            "image {} {} build {}",
            or_unknown(&plan.image.path),
            or_unknown(&plan.image.go_version),
            or_unknown(&plan.image.build_id)
        )?;
        let layout = &plan.runtime;
        writeln!(
            f,
            "runtime g.goid {:+} g.stack.hi {:+} g.m {:+} m.g0 {:+} m.curg {:+} tls g {:+}",
            layout.g_goid, layout.g_stack_hi, layout.g_m, layout.m_g0, layout.m_curg, layout.tls_g
        )?;
        let traced = plan.functions.iter().filter(|function| function.traced).count();
        writeln!(
            f,
            "{traced} functions traced, {} sites, {} ops, {} refused",
            plan.sites.len(),
            plan.ops.len(),
            plan.refused.len()
        )?;
        let mut sites_of: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (id, site) in plan.sites.iter().enumerate() {
            sites_of.entry(site.function).or_default().push(id);
        }
        let mut shown = BTreeSet::new();
        for (index, function) in (0u32..).zip(&plan.functions) {
            write_function(f, function, plan.screens.get(&index))?;
            write_sites(f, plan, &sites_of.remove(&index).unwrap_or_default(), &mut shown)?;
        }
        for (function, sites) in sites_of {
            writeln!(f, "unknown function {function}")?;
            write_sites(f, plan, &sites, &mut shown)?;
        }
        for place in &plan.g_changes {
            writeln!(f, "g changes file 0x{place:x}")?;
        }
        for refusal in &plan.refused {
            writeln!(f, "refused {}: {}", refusal.function, refusal.reason.0)?;
        }
        Ok(())
    }
}

fn write_function(
    f: &mut fmt::Formatter<'_>,
    function: &PlannedFunction,
    screen: Option<&Screen>,
) -> fmt::Result {
    write!(f, "{} 0x{:x}+0x{:x}", function.name, function.entry, function.size)?;
    if !function.file.is_empty() {
        write!(f, " {}:{}", function.file, function.line)?;
    }
    if let Some(witness) = function.witness {
        write!(f, " witness {witness:?}")?;
    }
    writeln!(f, "{}", if function.traced { "" } else { " not traced" })?;
    let hidden = screen.map_or((0, 0), |screen| (screen.hidden_args, screen.hidden_results));
    for (title, values, hidden) in
        [("arg", &function.args, hidden.0), ("result", &function.results, hidden.1)]
    {
        for (index, value) in values.iter().enumerate() {
            let not_shown = if index < usize::from(hidden) { "hidden " } else { "" };
            write_value(f, &format!("{not_shown}{title}"), value)?;
        }
    }
    let Some(screen) = screen else { return Ok(()) };
    for screening in screen.entry.iter().chain(&screen.end) {
        writeln!(f, "  shown if {}", screening.text)?;
    }
    if let Some(by) = &screen.by {
        writeln!(f, "  by {}", by.text)?;
    }
    Ok(())
}

fn write_value(f: &mut fmt::Formatter<'_>, title: &str, value: &ValueSpec) -> fmt::Result {
    write!(f, "  {title} {} {}: ", value.name, value.type_name)?;
    let mut kind = &value.kind;
    while let ValueKind::Checked { check, value } = kind {
        match check {
            Check::Index(index) => write!(f, "if longer than {index}, ")?,
            Check::Type { hash, name } => write!(f, "if a {name} (hash 0x{hash:x}), ")?,
            Check::LengthAt => f.write_str("0 if nil, ")?,
        }
        kind = value;
    }
    match kind {
        ValueKind::Bool => f.write_str("bool"),
        ValueKind::Int { size } => write!(f, "int of {size}"),
        ValueKind::Uint { size } => write!(f, "uint of {size}"),
        ValueKind::Float { size } => write!(f, "float of {size}"),
        ValueKind::Complex { size } => write!(f, "complex of {size}"),
        ValueKind::String => f.write_str("string"),
        ValueKind::Text => f.write_str("text"),
        ValueKind::Pointer => f.write_str("pointer"),
        ValueKind::Slice => f.write_str("slice"),
        ValueKind::Interface => f.write_str("interface"),
        ValueKind::Checked { .. } => Ok(()),
        ValueKind::Nested(nested) => write!(f, "{}", nested.shape),
        ValueKind::Unavailable(reason) => write!(f, "unavailable, {reason}"),
    }?;
    writeln!(f)
}

fn write_sites(
    f: &mut fmt::Formatter<'_>,
    plan: &Plan,
    ids: &[usize],
    shown: &mut BTreeSet<u32>,
) -> fmt::Result {
    for &id in ids {
        let site = &plan.sites[id];
        write_site(f, id, site)?;
        let condition = plan.condition(site);
        if !condition.is_empty() {
            writeln!(f, "    not recorded if one of these ends with reject:")?;
            write_fields(f, condition)?;
        }
        if site.program.len > 0 && shown.insert(site.program.start) {
            write_program(f, plan, site.program)?;
        }
    }
    Ok(())
}

fn write_site(f: &mut fmt::Formatter<'_>, id: usize, site: &Site) -> fmt::Result {
    let kind = match site.kind {
        SiteKind::Entry => "entry",
        SiteKind::Return => "return",
        SiteKind::TailJump => "tail",
        SiteKind::At => "at",
    };
    let g = match site.g_source {
        GSource::R14 => "r14",
        GSource::Tls => "tls",
    };
    write!(
        f,
        "  site {id} {kind} 0x{:x} file 0x{:x} sp {:+} g {g}",
        site.address, site.file_offset, site.sp_delta
    )?;
    if site.program.len > 0 {
        write!(f, " program #{}", site.program.start)?;
    }
    if let Some(guard) = site.guard {
        let Guard { after, after_offset, zero } = guard;
        let state = if zero { "zero" } else { "not zero" };
        write!(f, " if {state} at 0x{after:x} file 0x{after_offset:x}")?;
    }
    writeln!(f)
}

fn write_program(f: &mut fmt::Formatter<'_>, plan: &Plan, program: Program) -> fmt::Result {
    let start = program.start as usize;
    match plan.ops.get(start..start.saturating_add(usize::from(program.len))) {
        Some(ops) => write_fields(f, ops),
        None => writeln!(f, "    beyond the op table"),
    }
}

/// One line a field.
fn write_fields(f: &mut fmt::Formatter<'_>, ops: &[Op]) -> fmt::Result {
    let mut bodies: Vec<usize> = Vec::new();
    let mut line: Vec<String> = Vec::new();
    for (index, op) in ops.iter().enumerate() {
        line.push(OpText(*op).to_string());
        let more = ops.get(index + 1).is_some_and(|next| next.code == OpCode::Each);
        let ends_field = op.code.is_emit() || op.code.opens_field();
        if (ends_field && !more) || index + 1 == ops.len() {
            writeln!(f, "    {:indent$}{}", "", line.join(", "), indent = 2 * bodies.len())?;
            line.clear();
        }
        if op.code == OpCode::Each {
            bodies.push(index + 1 + usize::from(Body::of_imm(op.imm).ops));
        }
        bodies.retain(|end| *end > index + 1);
    }
    Ok(())
}

/// `u4`, `s8`.
struct WordText(u8);

impl fmt::Display for WordText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Word { size, signed } = Word::of_operand(self.0);
        write!(f, "{}{size}", if signed { 's' } else { 'u' })
    }
}

fn write_relation(f: &mut fmt::Formatter<'_>, relation: Relation, imm: i64) -> fmt::Result {
    let Relation { order, negated, unsigned, with_aux } = relation;
    let sign = match (order, negated) {
        (Order::Equal, false) => "==",
        (Order::Equal, true) => "!=",
        (Order::Less, false) => "<",
        (Order::Less, true) => ">=",
        (Order::Greater, false) => ">",
        (Order::Greater, true) => "<=",
    };
    let of = if unsigned { " unsigned" } else { "" };
    match with_aux {
        true => write!(f, "aux {sign} acc{of}"),
        false => write!(f, "{sign} {imm}{of}"),
    }
}

/// Shows one op, as in `deref` and `add +8`.
#[derive(Clone, Copy, Debug)]
pub struct OpText(pub Op);

impl fmt::Display for OpText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const REGISTERS: [&str; 16] = [
            "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11",
            "r12", "r13", "r14", "r15",
        ];
        let Op { code, a, imm } = self.0;
        match code {
            OpCode::Reg => f.write_str(REGISTERS[usize::from(a & 15)]),
            OpCode::StackSlot => write!(f, "stack {imm:+}"),
            OpCode::CurrentG => f.write_str("g"),
            OpCode::Add => write!(f, "add {imm:+}"),
            OpCode::Deref if a == DEREF_MAPPED => f.write_str("deref mapped"),
            OpCode::Deref => f.write_str("deref"),
            OpCode::SetAux => f.write_str("set aux"),
            OpCode::GetAux => f.write_str("get aux"),
            OpCode::Reset => f.write_str("reset"),
            OpCode::EmitAcc => write!(f, "emit {a}"),
            OpCode::EmitBytes => write!(f, "emit bytes {imm}"),
            OpCode::EmitString => write!(f, "emit string {imm}"),
            OpCode::NilCheck => f.write_str("nil check"),
            OpCode::FloatReg => write!(f, "x{}", a & 15),
            OpCode::EmitElements => {
                let Elements { stride, most } = Elements::of_imm(imm);
                write!(f, "emit {most} elements of {stride}")
            }
            OpCode::EmitDynamic => write!(f, "emit dynamic {imm}"),
            OpCode::Each => match Body::of_imm(imm).stride {
                0 => f.write_str("in it"),
                stride => write!(f, "in each {stride}"),
            },
            OpCode::BlockWord => write!(f, "block {a} {imm:+}"),
            OpCode::SkipNonZero => write!(f, "skip {imm} if not 0"),
            OpCode::SkipZero => write!(f, "skip {imm} if 0"),
            OpCode::Image if a == IMAGE_PLACE => {
                let sign = if imm < 0 { '-' } else { '+' };
                write!(f, "image place {sign}0x{:x}", imm.unsigned_abs())
            }
            OpCode::Image => write!(f, "image {imm:#x}"),
            OpCode::Load => write!(f, "load {}", WordText(a)),
            OpCode::Narrow => write!(f, "as {}", WordText(a)),
            OpCode::Compare => write_relation(f, Relation::of_operand(a), imm),
            OpCode::Touch => write!(f, "touch {imm}"),
            OpCode::AddAux => write!(f, "add aux {imm:+}"),
            OpCode::Match => write!(f, "match {} {imm:#x}", WordText(a)),
            OpCode::Reject => f.write_str("reject"),
            OpCode::MapElem => {
                let key = MapKey::of_operand(a);
                let form = if key.is_swiss { "swiss" } else { "buckets" };
                let first = String::from_utf8_lossy(&imm.to_le_bytes()).into_owned();
                write!(f, "map elem {first:?} of {}, {form}, {} words", key.len, key.elem_words)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{
        AutoPlace, AutoShape, Builder, OpTable, RecoverySp, VECTOR, WitnessOffsets, compile_value,
        witness_ops,
    };
    use crate::plan::{ImageId, Refusal, RefusalReason, RuntimeLayout, Witness};
    use address::{FileOffset, Svma};

    fn site(function: u32, kind: SiteKind, address: u64, program: Program) -> Site {
        Site {
            function,
            kind,
            address: Svma(address),
            file_offset: FileOffset(address - 0x40_0000),
            sp_delta: if kind == SiteKind::Return { 0 } else { 8 },
            g_source: if function == 0 { GSource::R14 } else { GSource::Tls },
            program,
            guard: None,
            condition: 0,
        }
    }

    fn function(name: &str, entry: u64, args: Vec<ValueSpec>) -> PlannedFunction {
        PlannedFunction {
            name: name.to_owned(),
            file: String::new(),
            line: 0,
            entry: Svma(entry),
            size: 0x80,
            traced: true,
            witness: None,
            args,
            results: Vec::new(),
        }
    }

    fn plan() -> Plan {
        let mut table = OpTable::default();
        let value = |name: &str, shape, registers: &[u8], builder: &mut Builder| {
            compile_value(name, "T", &shape, &AutoPlace::Registers(registers.to_vec()), builder)
        };
        let mut builder = Builder::default();
        let args = vec![
            value("s", AutoShape::String, &[0, 3], &mut builder),
            value("f", AutoShape::Float { size: 8 }, &[VECTOR], &mut builder),
        ];
        let entry = table.intern(&builder.finish());
        let mut builder = Builder::default();
        let results =
            vec![value("~r0", AutoShape::Interface { has_methods: true }, &[0, 3], &mut builder)];
        let exit = table.intern(&builder.finish());
        let offsets = WitnessOffsets {
            g_goid: 152,
            g_stack_hi: 8,
            recovery: RecoverySp::ViaPanic { g_panic: 32, panic_sp: 40 },
        };
        let recovery = table.intern(&witness_ops(Witness::Recovery, &offsets));
        let traced = PlannedFunction {
            results,
            file: "/src/main.go".into(),
            line: 10,
            ..function("main.greet", 0x48_0000, args)
        };
        let watched = PlannedFunction {
            traced: false,
            witness: Some(Witness::Recovery),
            ..function("runtime.recovery", 0x43_0000, Vec::new())
        };
        Plan {
            image: ImageId {
                path: "/bin/app".into(),
                go_version: "go1.26.6".into(),
                ..ImageId::default()
            },
            runtime: RuntimeLayout {
                g_goid: 152,
                g_stack_hi: 8,
                g_m: 48,
                m_g0: 0,
                m_curg: 184,
                tls_g: -8,
            },
            functions: vec![traced, watched],
            sites: vec![
                site(0, SiteKind::Entry, 0x48_000a, entry),
                site(0, SiteKind::Return, 0x48_0040, exit),
                site(0, SiteKind::Return, 0x48_0050, exit),
                site(0, SiteKind::TailJump, 0x48_0060, Program::default()),
                site(1, SiteKind::Entry, 0x43_0010, recovery),
                site(7, SiteKind::At, 0x43_0010, Program { start: 9000, len: 1 }),
            ],
            ops: table.finish(),
            refused: vec![Refusal {
                function: "main.tiny".into(),
                reason: RefusalReason("no room for a site".into()),
            }],
            g_changes: vec![FileOffset(0x3_0000), FileOffset(0x3_0020)],
            states: None,
            ..Plan::default()
        }
    }

    #[test]
    fn a_plan_as_text() {
        let expected = "\
image /bin/app go1.26.6 build ?
runtime g.goid +152 g.stack.hi +8 g.m +48 m.g0 +0 m.curg +184 tls g -8
1 functions traced, 6 sites, 27 ops, 1 refused
main.greet 0x480000+0x80 /src/main.go:10
  arg s T: string
  arg f T: float of 8
  result ~r0 T: interface
  site 0 entry 0x48000a file 0x8000a sp +8 g r14 program #0
    rbx, set aux, rax, emit string 64
    x0, emit 8
  site 1 return 0x480040 file 0x80040 sp +0 g r14 program #6
    rax, nil check, add +8, deref, emit 8
    rbx, emit 8
  site 2 return 0x480050 file 0x80050 sp +0 g r14 program #6
  site 3 tail 0x480060 file 0x80060 sp +8 g r14
runtime.recovery 0x430000+0x80 witness Recovery not traced
  site 4 entry 0x430010 file 0x30010 sp +8 g tls program #13
    rax, add +152, deref, emit 8
    rax, add +8, deref, emit 8
    rax, add +32, deref, add +40, deref, emit 8
unknown function 7
  site 5 at 0x430010 file 0x30010 sp +8 g tls program #9000
    beyond the op table
g changes file 0x30000
g changes file 0x30020
refused main.tiny: no room for a site
";
        assert_eq!(PlanText(&plan()).to_string(), expected);
    }

    #[test]
    fn every_op_has_a_text() {
        let ops = [
            (OpCode::Reg, 15, 0, "r15"),
            (OpCode::StackSlot, 0, -8, "stack -8"),
            (OpCode::CurrentG, 0, 0, "g"),
            (OpCode::Add, 0, -1, "add -1"),
            (OpCode::GetAux, 0, 0, "get aux"),
            (OpCode::Reset, 0, 0, "reset"),
            (OpCode::EmitBytes, 0, 16, "emit bytes 16"),
            (OpCode::Image, 0, 0x40, "image 0x40"),
            (OpCode::Image, IMAGE_PLACE, -0x40, "image place -0x40"),
            (OpCode::Load, 0x14, 0, "load s4"),
            (OpCode::Narrow, 1, 0, "as u1"),
            (OpCode::Compare, 0x05, -7, ">= -7"),
            (OpCode::Compare, 0x18, 0, "aux == acc unsigned"),
            (OpCode::Touch, 0, 4, "touch 4"),
            (OpCode::AddAux, 0, -3, "add aux -3"),
            (OpCode::Match, 2, 0x6c6c, "match u2 0x6c6c"),
            (OpCode::Reject, 0, 0, "reject"),
            (
                OpCode::MapElem,
                0xb3,
                0x6d65_646e_6f63_6573,
                r#"map elem "secondem" of 11, swiss, 3 words"#,
            ),
        ];
        for (code, a, imm, text) in ops {
            assert_eq!(OpText(Op::new(code, a, imm)).to_string(), text);
        }
    }
}
