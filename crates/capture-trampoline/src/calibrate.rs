//! What a hit costs on this machine: measured on a function of our own, in our own process.

mod area;

use crate::Error;
use crate::emit::{CodeSource, EmitOptions, Emitted, FunctionCode, Refused, emit};
use crate::layout::{DATA, DROPS, HEAD, LIMIT, Rings, UNIT};
use crate::prepare::has_rdpid;
use address::{Bias, Svma};
use area::Area;
use binary::code::{CodeFacts, ExitKind, analyze};
use iced_x86::IcedError;
use iced_x86::code_asm::{CodeAssembler, registers::*};
use probe::{Plan, PlannedFunction, Program, RuntimeLayout, Site};
use std::time::Duration;
use wire::{GSource, SiteKind};

/// CPU time that a hit costs the target, picoseconds: a few nanoseconds are too coarse a unit for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitCost {
    /// Recorded, without values.
    pub recorded_ps: u64,
    /// Not recorded, since its ring is full: counted, and nothing else.
    pub lost_ps: u64,
}

/// Calls per batch, each of an entry and a return; the middle one of [`BATCHES`] counts, for a machine that does
/// other work too.
const CALLS: u64 = 1_000;
const BATCHES: usize = 15;
/// A batch's records fit into the ring.
const RING: u32 = 1 << 17;

/// Where things lie in the area, and its size.
const CALLER: usize = 0;
const TEXT: usize = 0x1000;
const CODE: usize = 0x2000;
const CONTROL: usize = 0x6000;
const GOROUTINE: usize = 0x7000;
const RINGS: usize = 0x8000;
const SIZE: usize = RINGS + 0x1_0000 + RING as usize;

/// Where the file would have the function.
const ENTRY: Svma = Svma(0x40_1000);
/// Bytes of the function, its padding included.
const FUNCTION: usize = 0x60;
/// Multiplications in it, each of the result before: a few nanoseconds, beside which a CPU does part of what a hit takes, as
/// it does in programs.
const WORK: usize = 8;

/// Where Go 1.23 and newer have the fields (runtime/runtime2.go); any place would do here.
const LAYOUT: RuntimeLayout =
    RuntimeLayout { g_goid: 152, g_stack_hi: 8, g_m: 48, m_g0: 0, m_curg: 184, tls_g: -8 };
const PROCID: u32 = 72;

/// Measures what hits cost here, in the CPU time of the calling thread: some milliseconds. Another thread clears the
/// ring between batches, as the reader of a capture does, so that on several CPUs the memory comes from elsewhere.
///
/// Errors: [`Error::Io`] when the kernel gives no memory for code, or the code cannot be made or did not record.
pub fn calibrate() -> Result<HitCost, Error> {
    let what = "measure what trampolines cost";
    let failed = |why: String| Error::io(what, std::io::Error::other(why));
    let function = Function::new().map_err(|error| failed(error.to_string()))?;
    let mut area = Area::new(SIZE).map_err(|error| Error::io(what, error))?;
    let options = options(&area);
    let emitted =
        emit(&function.plan(), &function, &options).map_err(|error| failed(error.to_string()))?;
    if let Some((_, refused)) = emitted.refused.first() {
        return Err(failed(refused.to_string()));
    }
    if emitted.code.len() > CONTROL - CODE {
        return Err(failed(format!("{} bytes of code have no room", emitted.code.len())));
    }
    let caller = caller(area.at(CALLER).0).map_err(|error| failed(error.to_string()))?;
    area.put(CALLER, &caller);
    fill(&mut area, &function, &emitted);
    // With the function as it is, then with jumps in it: one area for each, since code does not change under way.
    let plain_text = CALLER + caller.len().next_multiple_of(64);
    area.put(plain_text, &function.bytes);
    area.make_executable(CALLER..CONTROL).map_err(|error| Error::io(what, error))?;
    measure(&area, plain_text).ok_or_else(|| failed("too few hits were recorded".to_owned()))
}

/// Of what is in the area. `None` when its code does not do what it should.
fn measure(area: &Area, plain: usize) -> Option<HitCost> {
    let ring = |offset: u32| area.word(RINGS + offset as usize);
    let [mut without, mut recorded, mut lost] = [[0; BATCHES]; 3];
    let hits = 2 * CALLS;
    for batch in 0..BATCHES {
        without[batch] =
            picoseconds(|| area.call(CALLER, [CALLS, area.at(GOROUTINE).0, area.at(plain).0]));
        ring(LIMIT).store(u64::from(RING), SEQ);
        let traced = || area.call(CALLER, [CALLS, area.at(GOROUTINE).0, area.at(TEXT).0]);
        recorded[batch] = picoseconds(traced);
        if ring(HEAD).load(SEQ) != hits * UNIT as u64 {
            return None;
        }
        ring(LIMIT).store(0, SEQ);
        ring(DROPS).store(0, SEQ);
        lost[batch] = picoseconds(traced);
        if ring(DROPS).load(SEQ) != hits {
            return None;
        }
        std::thread::scope(|scope| {
            // Without a thread it is done here.
            let thread = std::thread::Builder::new().spawn_scoped(scope, || clear(area));
            if thread.is_err() {
                clear(area);
            }
        });
    }
    let [without, recorded, lost] = [without, recorded, lost].map(|mut batches| {
        batches.sort_unstable();
        batches[BATCHES / 2]
    });
    let more = |ps: u64| ps.saturating_sub(without) / hits;
    Some(HitCost { recorded_ps: more(recorded), lost_ps: more(lost) })
}

const SEQ: std::sync::atomic::Ordering = std::sync::atomic::Ordering::SeqCst;

/// As the reader does it.
fn clear(area: &Area) {
    for unit in (0..RING as usize).step_by(UNIT) {
        area.word(RINGS + DATA as usize + unit).store(0, SEQ);
    }
    area.word(RINGS + HEAD as usize).store(0, SEQ);
}

fn options(area: &Area) -> EmitOptions {
    EmitOptions {
        code_base: area.at(CODE),
        bias: Bias(area.at(TEXT).0.wrapping_sub(ENTRY.0)),
        control: area.at(CONTROL),
        rings: Rings { base: area.at(RINGS), count: 1, bytes: RING },
        has_rdpid: has_rdpid(),
        m_procid: Some(PROCID),
        m_gsignal: None,
        sigtrampgo: None,
        recovers_loads: false,
        // The function's instructions do not fault here.
        translates_faults: true,
    }
}

/// The function with jumps in it, its stubs, and a goroutine that is its own m.
fn fill(area: &mut Area, function: &Function, emitted: &Emitted) {
    area.put(TEXT, &function.bytes);
    for patch in &emitted.patches {
        area.put(TEXT + (patch.address.0 - ENTRY.0) as usize, &patch.replacement);
    }
    area.put(CODE, &emitted.code);
    area.put(CONTROL, &1u32.to_le_bytes());
    let goroutine = area.at(GOROUTINE).0;
    for (offset, value) in [
        (LAYOUT.g_goid, 7),
        (LAYOUT.g_stack_hi, u64::MAX >> 1),
        (LAYOUT.g_m, goroutine),
        (PROCID, 7),
    ] {
        area.put(GOROUTINE + offset as usize, &value.to_le_bytes());
    }
}

/// A function as the Go compiler writes small ones.
struct Function {
    bytes: Vec<u8>,
    code: FunctionCode,
}

impl Function {
    fn new() -> Result<Self, IcedError> {
        let mut asm = CodeAssembler::new(64)?;
        asm.push(rbp)?;
        asm.mov(rbp, rsp)?;
        asm.sub(rsp, 0x10)?;
        for _ in 0..WORK {
            asm.imul_2(rax, rcx)?;
        }
        asm.add(rsp, 0x10)?;
        asm.pop(rbp)?;
        asm.ret()?;
        let mut bytes = asm.assemble(ENTRY.0)?;
        // As between functions.
        bytes.resize(FUNCTION, 0xcc);
        let facts = CodeFacts {
            entry: ENTRY,
            name: "main.f",
            is_assembly: false,
            sp_write: false,
            is_top_frame: false,
            deferreturn: None,
            fips: None,
            sp_delta: &|_| Some(0),
        };
        let analysis = analyze(&bytes, &facts);
        let table_targets = Vec::new();
        let code =
            FunctionCode { bytes: bytes.clone(), analysis, is_assembly: false, table_targets };
        Ok(Self { bytes, code })
    }

    fn plan(&self) -> Plan {
        let site = |kind, address| Site {
            function: 0,
            kind,
            address,
            file_offset: Default::default(),
            sp_delta: 0,
            g_source: GSource::R14,
            program: Program::default(),
            guard: None,
            condition: 0,
        };
        let analysis = &self.code.analysis;
        let entry = analysis.entry.as_ref().map(|entry| site(SiteKind::Entry, entry.address));
        let exits = analysis.exits.iter().filter(|exit| exit.kind == ExitKind::Return);
        let exits = exits.map(|exit| site(SiteKind::Return, exit.site.address));
        let function = PlannedFunction {
            name: "main.f".to_owned(),
            file: String::new(),
            line: 0,
            entry: ENTRY,
            size: FUNCTION as u64,
            traced: true,
            witness: None,
            args: Vec::new(),
            results: Vec::new(),
        };
        Plan {
            runtime: LAYOUT,
            sites: entry.into_iter().chain(exits).collect(),
            functions: vec![function],
            ..Plan::default()
        }
    }
}

impl CodeSource for Function {
    fn function(&self, entry: Svma) -> Result<FunctionCode, Refused> {
        if entry == ENTRY { Ok(self.code.clone()) } else { Err(Refused::NoSuchSite(entry)) }
    }

    fn is_ordinary(&self, _: Svma) -> bool {
        true
    }
}

/// `fn(calls, g, function)` by the C convention: calls it so often, with R14 = g and X15 = 0.
fn caller(at: u64) -> Result<Vec<u8>, IcedError> {
    let mut asm = CodeAssembler::new(64)?;
    let saved = [rbx, rbp, r12, r13, r14, r15];
    for register in saved {
        asm.push(register)?;
    }
    asm.mov(rbx, rdi)?;
    asm.mov(r14, rsi)?;
    asm.mov(rbp, rdx)?;
    asm.xorps(xmm15, xmm15)?;
    let mut again = asm.create_label();
    asm.set_label(&mut again)?;
    asm.call(rbp)?;
    asm.dec(rbx)?;
    asm.jnz(again)?;
    for register in saved.into_iter().rev() {
        asm.pop(register)?;
    }
    asm.ret()?;
    asm.assemble(at)
}

/// CPU time of this thread.
fn picoseconds(work: impl Fn()) -> u64 {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap_or_default()
    };
    let start = now();
    work();
    let nanoseconds = now().saturating_sub(start).as_nanos();
    u64::try_from(nanoseconds * 1_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_cost_nanoseconds_and_lost_ones_less() {
        let HitCost { recorded_ps, lost_ps } =
            calibrate().expect("the kernel gives memory for code");
        assert!((1_000..1_000_000).contains(&recorded_ps), "{recorded_ps}");
        assert!((100..recorded_ps).contains(&lost_ps), "{lost_ps} of {recorded_ps}");
    }
}
