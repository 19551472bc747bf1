//! Every function of real web servers, checked against what pclntab says independently.

use address::{ReadAt, Svma};
use binary::code::{Analysis, ExitKind, ProbeCost, Refused, analyze_function};
use binary::{Executable, Function, FunctionTable, flag};
use std::sync::Arc;
use testkit::{Fixture, Mode, toolchain};

/// Shares of a binary's functions, in percent.
#[derive(Default)]
struct Tally {
    functions: usize,
    checked: usize,
    traceable: usize,
    emulated: usize,
    checked_traceable: usize,
    checked_emulated: usize,
    returns: usize,
    complaints: Vec<String>,
}

impl Tally {
    fn percent(&self, count: usize) -> f64 {
        100.0 * count as f64 / self.functions as f64
    }

    fn add(&mut self, table: &FunctionTable, function: &Function, analysis: &Analysis) {
        self.functions += 1;
        self.checked += usize::from(analysis.has_stack_check);
        self.returns += analysis.exits.iter().filter(|e| e.kind == ExitKind::Return).count();
        if let Ok(site) = analysis.entry {
            self.traceable += 1;
            self.checked_traceable += usize::from(analysis.has_stack_check);
            if site.uprobe == Ok(ProbeCost::Emulated) {
                self.emulated += 1;
                self.checked_emulated += usize::from(analysis.has_stack_check);
            }
        }
        let wrong = complaints(table, function, analysis);
        self.complaints.extend(wrong.into_iter().map(|what| format!("{}: {what}", function.name)));
    }
}

/// What contradicts pclntab.
fn complaints(table: &FunctionTable, function: &Function, analysis: &Analysis) -> Vec<String> {
    let assembly = function.flags & flag::ASM != 0;
    let mut wrong = wrong_depths(table, function, analysis);
    for exit in &analysis.exits {
        if let ExitKind::Tail(Some(target)) = exit.kind
            && !starts_at(table, target)
        {
            wrong.push(format!("jumps out to 0x{target:x}, which is no function"));
        }
        if exit.site.uprobe.is_err() {
            wrong.push(format!("exit at 0x{:x} cannot be probed", exit.site.address));
        }
    }
    for target in analysis.calls.iter().filter_map(|call| call.target) {
        let duff = table.find(target).is_some_and(|to| to.name.starts_with("runtime.duff"));
        if !assembly && !duff && !starts_at(table, target) {
            wrong.push(format!("calls 0x{target:x}, which is no function"));
        }
    }
    if let Some(morestack) = analysis.morestack
        && !table.find(morestack).is_some_and(|to| to.name.starts_with("runtime.morestack"))
    {
        wrong.push(format!("takes 0x{morestack:x} for morestack"));
    }
    // The linker's markers are one `int3` each.
    let marker = analysis.entry == Err(Refused::Marker);
    if !marker && analysis.end != table.code_end(function) {
        wrong.push(format!("ends at 0x{:x}", analysis.end));
    }
    let expected = match analysis.entry {
        // Loops to the first byte, and LOCK as a leaf's first instruction.
        Ok(_) | Err(Refused::EntryIsLoop(_) | Refused::Unprobeable(_) | Refused::Marker) => true,
        Err(_) => assembly,
    };
    if !expected {
        wrong.push(format!("refused: {:?}", analysis.entry));
    }
    wrong
}

fn starts_at(table: &FunctionTable, address: Svma) -> bool {
    table.find(address).is_some_and(|found| found.entry == address)
}

/// Sites at which SP does not point to the return address, by pcsp.
fn wrong_depths(table: &FunctionTable, function: &Function, analysis: &Analysis) -> Vec<String> {
    if function.flags & flag::SP_WRITE != 0 {
        return Vec::new();
    }
    let assembly = function.flags & flag::ASM != 0;
    let judged = |kind: ExitKind| kind == ExitKind::Return || !assembly;
    let exits = analysis.exits.iter().filter(|exit| judged(exit.kind)).map(|exit| exit.site);
    let sites = analysis.entry.iter().copied().chain(exits);
    let deltas = sites.map(|site| (site.address, table.sp_delta(function, site.address)));
    deltas
        .filter(|&(_, delta)| delta != Some(0))
        .map(|(address, delta)| format!("site 0x{address:x}: pcsp says {delta:?}"))
        .collect()
}

fn tally(version: &str, mode: Mode) -> Tally {
    let path = Fixture::build("httpserver", &toolchain(version), mode);
    let source: Arc<dyn ReadAt> = Arc::new(std::fs::read(path).expect("fixture"));
    let executable = Executable::open(source).expect("Go executable");
    let table = executable.functions().expect("function table");
    let mut tally = Tally::default();
    for function in table.iter() {
        let analysis = analyze_function(&executable, &function, None).expect("code");
        tally.add(table, &function, &analysis);
    }
    tally
}

#[test]
fn web_servers_of_all_kinds() {
    for version in ["1.19", "1.21.13", "1.24.11", "1.27.3"] {
        for mode in [Mode::Exe, Mode::Pie, Mode::NoOpt] {
            let tally = tally(version, mode);
            let label = format!("{version} {}", mode.label());
            assert_eq!(tally.complaints, Vec::<String>::new(), "{label}");
            assert!(tally.functions > 4000, "{label}: {} functions", tally.functions);
            assert!(tally.percent(tally.traceable) > 97.5, "{label}: {}", tally.traceable);
            assert!(tally.returns > tally.functions, "{label}: {} returns", tally.returns);
            let checked = tally.percent(tally.checked);
            assert!((70.0..85.0).contains(&checked), "{label}: {checked}% have a check");
            // Go 1.19 begins the body with `sub rsp`, later versions with `push rbp`.
            let cheap = if version == "1.19" { 0 } else { tally.checked_traceable };
            assert_eq!(tally.checked_emulated, cheap, "{label}");
            assert!(tally.emulated >= tally.checked_emulated, "{label}");
        }
    }
}
