//! `gospect info`: facts about an executable.

use crate::args::{Format, InfoArgs};
use crate::failure::{Outcome, usage};
use crate::sink;
use crate::target::Target;
use binary::layout::RuntimeLayouts;
use binary::{BuildIds, DebugInfo, Executable, Module, flag, tls};
use output::{BuildFacts, DwarfFacts, Fact, FunctionCounts, Info, ModuleInfo};
use std::io::Write as _;

/// `SHF_COMPRESSED` of the ELF specification.
const COMPRESSED: u64 = 1 << 11;

/// Shows the facts.
pub fn run(args: &InfoArgs) -> anyhow::Result<Outcome> {
    if !args.binary.further(&[])?.is_empty() {
        return Err(usage("give BIN or --pid PID, not both"));
    }
    let target = Target::of_args(&args.binary)?;
    let info = info(&target, args.binary.debug_file.is_some())?;
    let mut out = sink::open(args.binary.output.as_deref())?;
    match args.binary.format {
        Format::Text => info.write_text(&mut out)?,
        Format::Json => info.write_json(&mut out)?,
    }
    out.flush()?;
    Ok(Outcome::Done)
}

fn info(target: &Target, separate: bool) -> anyhow::Result<Info> {
    let executable = &target.executable;
    // What is wrong with debug information that was asked for is an error, else a fact.
    let (debug, damaged) = match target.debug_info() {
        Ok(debug) => (debug, None),
        Err(error) if separate => return Err(error),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    let ids = BuildIds::read(executable.image());
    Ok(Info {
        path: target.shown.display().to_string(),
        size: executable.image().source().size(),
        go_version: executable.go_version().to_string(),
        build: build(executable),
        build_mode: executable.build_mode().as_str().to_owned(),
        stripped: executable.is_stripped(),
        dwarf: dwarf(executable, debug.as_ref(), damaged, separate),
        counts: counts(executable),
        goid_offset: goid_offset(executable, debug.as_ref()),
        g_tls_offset: g_tls_offset(executable),
        go_build_id: ids.go,
        gnu_build_id: ids.gnu,
        entry: executable.image().entry().0,
    })
}

fn build(executable: &Executable) -> BuildFacts {
    let Ok(info) = executable.build_info() else { return BuildFacts::default() };
    BuildFacts {
        package: (!info.path.is_empty()).then(|| info.path.clone()),
        module: (!info.main.path.is_empty()).then(|| module(&info.main)),
        dependencies: info.dependencies.iter().map(module).collect(),
        settings: info.settings.clone(),
    }
}

fn module(of: &Module) -> ModuleInfo {
    ModuleInfo {
        path: of.path.clone(),
        version: of.version.clone(),
        sum: (!of.sum.is_empty()).then(|| of.sum.clone()),
        replace: of.replace.as_deref().map(|replace| Box::new(module(replace))),
    }
}

fn dwarf(
    executable: &Executable,
    debug: Option<&DebugInfo>,
    damaged: Option<String>,
    separate: bool,
) -> DwarfFacts {
    let Some(debug) = debug else {
        let reason = damaged.unwrap_or_else(|| "the executable has none".to_owned());
        return DwarfFacts { dwarf_unavailable: Some(reason), ..DwarfFacts::default() };
    };
    let own = executable.image().section(".debug_info").filter(|_| !separate);
    DwarfFacts {
        dwarf_version: Some(debug.version()),
        dwarf_compressed: own.map(|section| section.flags & COMPRESSED != 0),
        dwarf_unavailable: None,
    }
}

fn counts(executable: &Executable) -> FunctionCounts {
    let functions = executable.function_count();
    match executable.functions() {
        Ok(table) => {
            let (mut wrappers, mut assembly) = (0, 0);
            for function in table.iter() {
                wrappers += u64::from(function.is_wrapper);
                assembly += u64::from(function.flags & flag::ASM != 0);
            }
            FunctionCounts {
                functions: table.len() as u64,
                wrappers: Some(wrappers),
                assembly: Some(assembly),
                functions_unavailable: None,
            }
        }
        Err(error) => FunctionCounts {
            functions,
            functions_unavailable: Some(error.to_string()),
            ..FunctionCounts::default()
        },
    }
}

fn goid_offset(executable: &Executable, debug: Option<&DebugInfo>) -> Fact {
    let layouts = RuntimeLayouts::new(executable.go_version(), debug);
    match layouts.field("runtime.g", "goid") {
        Ok(field) => match i64::try_from(field.offset) {
            Ok(value) => Fact::Known { value, source: field.provenance.to_string() },
            Err(_) => Fact::Unknown { unavailable: "the offset has more than 63 bits".to_owned() },
        },
        Err(error) => Fact::Unknown { unavailable: error.to_string() },
    }
}

fn g_tls_offset(executable: &Executable) -> Fact {
    match tls::g_offset(executable) {
        Ok((value, provenance)) => Fact::Known { value, source: provenance.to_string() },
        Err(error) => Fact::Unknown { unavailable: error.to_string() },
    }
}
