//! Plans for whole executables, without values.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod hand;
pub mod machine;

use address::{Avma, Bias, Svma};
use binary::code::{ExitKind, analyze_function};
use binary::{Executable, flag};
use capture_trampoline::emit::EmitOptions;
use capture_trampoline::layout::Rings;
use probe::{Plan, PlannedFunction, Program, RuntimeLayout, Site};
use std::path::Path;
use std::sync::Arc;
use wire::{GSource, SiteKind};

/// Opens a file.
pub fn open(path: &Path) -> Executable {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Executable::open(Arc::new(bytes)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Offsets as in Go 1.27.
pub const RUNTIME: RuntimeLayout =
    RuntimeLayout { g_goid: 152, g_stack_hi: 8, g_m: 48, m_g0: 0, m_curg: 184, tls_g: -8 };

/// Every function of the executable that is not assembly and has a place where its calls
/// begin.
pub fn plan_all(executable: &Executable) -> Plan {
    let mut plan = Plan { runtime: RUNTIME, ..Plan::default() };
    for function in executable.functions().expect("pclntab").iter() {
        if function.flags & flag::ASM != 0 {
            continue;
        }
        let Ok(analysis) = analyze_function(executable, &function, None) else { continue };
        let index = plan.functions.len() as u32;
        let site = |kind, address: Svma, sp_delta| Site {
            function: index,
            kind,
            address,
            file_offset: Default::default(),
            sp_delta,
            g_source: GSource::R14,
            program: Program::default(),
            guard: None,
            condition: 0,
        };
        let Ok(entry) = analysis.entry else { continue };
        plan.sites.push(site(SiteKind::Entry, entry.address, entry.sp_delta));
        for exit in &analysis.exits {
            let kind = match exit.kind {
                ExitKind::Return => SiteKind::Return,
                ExitKind::Tail(_) => SiteKind::TailJump,
            };
            plan.sites.push(site(kind, exit.site.address, exit.site.sp_delta));
        }
        plan.functions.push(PlannedFunction {
            name: function.name.clone(),
            file: String::new(),
            line: 0,
            entry: function.entry,
            size: function.end.since(function.entry).unwrap_or(0),
            traced: true,
            witness: None,
            args: Vec::new(),
            results: Vec::new(),
        });
    }
    plan
}

/// Code above the image.
pub fn options(executable: &Executable, translates_faults: bool) -> EmitOptions {
    let bias = Bias(if executable.image().is_pie() { 0x5555_5000_0000 } else { 0 });
    let code_base = bias.to_avma(Svma(0x1000_0000));
    EmitOptions {
        code_base,
        bias,
        control: Avma(code_base.0 - 0x1000),
        rings: Rings { base: code_base.add(0x1000_0000), count: 2, bytes: 1 << 19 },
        has_rdpid: true,
        m_procid: Some(72),
        m_gsignal: Some(80),
        sigtrampgo: None,
        recovers_loads: true,
        translates_faults,
    }
}
