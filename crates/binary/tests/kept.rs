//! What the code of whole programs keeps over its stack checks, against the calling convention.

use binary::code::{Kept, Lost, Spills, analyze_function};
use binary::{
    DebugInfo, Executable, Function, FunctionKey, Kind, Place, PlacedVariable, Reg, convention_of,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use testkit::{Fixture, Mode, Toolchain, big_binary, newest, oldest, toolchains};

const AX: Reg = Reg::Int(0);
const BX: Reg = Reg::Int(3);

/// What became of the functions and parameters of a program.
#[derive(Debug, Default)]
struct Tally {
    /// Functions with a check that comes back.
    checked: usize,
    /// Of these, where the slow path was not understood.
    unknown: Vec<String>,
    /// Calls of `morestack` that are no part of a check.
    stray: Vec<String>,
    /// Functions of which some register arguments are kept and others are not.
    partial: Vec<String>,
    /// Parameters in registers of functions with a check.
    params: usize,
    /// Of these, the ones that are lost, by reason.
    lost: BTreeMap<String, usize>,
    /// Functions of the runtime that say how calls end, and have what is read there.
    witnesses: usize,
}

impl Tally {
    fn of(path: &Path) -> Self {
        let executable = Executable::open(Arc::new(std::fs::read(path).expect("program")));
        let executable = executable.expect("Go executable");
        let debug = DebugInfo::open(executable.image()).expect("DWARF").expect("DWARF");
        let table = executable.functions().expect("function table");
        let mut tally = Self::default();
        for function in table.iter() {
            tally.add(&executable, &debug, &function);
        }
        tally
    }

    fn add(&mut self, executable: &Executable, debug: &DebugInfo, function: &Function) {
        let analysis = analyze_function(executable, function, None).expect("code");
        let table = executable.functions().expect("function table");
        let assembly = function.flags & binary::flag::ASM != 0;
        let grows = |call: &binary::code::Call| {
            let target = call.target.and_then(|target| table.find(target));
            target.is_some_and(|target| target.name.starts_with("runtime.morestack"))
        };
        if !assembly && analysis.calls.iter().any(grows) {
            self.stray.push(function.name.clone());
        }
        match &analysis.spills {
            Spills::Untouched => return,
            Spills::Unknown => self.unknown.push(function.name.clone()),
            Spills::Reloaded(_) => {}
        }
        self.checked += 1;
        let kept = Kept::of(executable, function, &analysis);
        let reads: &[Reg] = match &function.name[..] {
            "runtime.gopanic" if kept.register(AX, 8).is_ok() => &[BX],
            "runtime.recovery" | "runtime.goexit0" | "runtime.copystack" => &[AX],
            _ => &[],
        };
        let is_there = |reg: &Reg| kept.behind_register(*reg).is_ok();
        self.witnesses += usize::from(!reads.is_empty() && reads.iter().all(is_there));
        let key = FunctionKey {
            entry: function.entry,
            convention: convention_of(executable.symbols(), function.entry),
            go_version: executable.go_version(),
            args_size: function.args_size,
        };
        let Ok(Some(signature)) = debug.placed_signature(key) else { return };
        let found: Vec<_> =
            signature.params.iter().filter_map(|param| register_loss(param, &kept)).collect();
        self.params += found.len();
        for loss in found.iter().filter_map(|loss| loss.err()) {
            *self.lost.entry(loss.to_string()).or_default() += 1;
        }
        let is_unkept =
            |loss: &&Result<(), Lost>| matches!(loss, Err(lost) if *lost != Lost::Pointee);
        let unkept = found.iter().filter(is_unkept).count();
        if unkept != 0 && unkept != found.len() {
            self.partial.push(function.name.clone());
        }
    }
}

/// What is lost of a parameter that is in registers: `Ok` for nothing.
fn register_loss(param: &PlacedVariable, kept: &Kept) -> Option<Result<(), Lost>> {
    let Ok(Place::Registers(pieces)) = &param.place else { return None };
    let data = pieces.first()?;
    let whole = pieces.iter().try_for_each(|piece| kept.register(piece.reg, piece.size));
    let is_string = param.ty.kind == Kind::String;
    Some(whole.and_then(|()| if is_string { kept.behind_register(data.reg) } else { Ok(()) }))
}

fn check(path: &Path, toolchain: &Toolchain, least: usize) {
    let tally = Tally::of(path);
    let label = format!("{}: {tally:?}", path.display());
    let none: &[String] = &[];
    assert_eq!(tally.unknown, none, "not understood: {label}");
    assert_eq!(tally.stray, none, "outside of checks: {label}");
    assert_eq!(tally.partial, none, "kept in part: {label}");
    assert_eq!(tally.witnesses, 4, "{} by {}", label, toolchain.version);
    assert!(tally.checked > least, "{label}");
    let lost: usize = tally.lost.values().sum();
    assert!(lost * 100 < tally.params, "{label}");
}

#[test]
fn all_toolchains_keep_all_register_arguments_or_none() {
    for toolchain in toolchains() {
        check(&Fixture::build("args", &toolchain, Mode::Exe), &toolchain, 1200);
    }
}

#[test]
fn web_servers_keep_all_register_arguments_or_none() {
    for toolchain in [oldest(), newest()] {
        for mode in [Mode::Exe, Mode::NoOpt] {
            check(&Fixture::build("httpserver", &toolchain, mode), &toolchain, 3600);
        }
    }
}

#[test]
fn a_big_program_keeps_all_register_arguments_or_none() {
    check(&big_binary(&newest()), &newest(), 20_000);
}
