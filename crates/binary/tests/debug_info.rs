//! Debug info of real programs against the calling convention, the table and the code.

use address::Svma;
use binary::layout::{Provenance, RuntimeLayouts};
use binary::{
    DebugInfo, DescribedAt, Executable, FunctionKey, Kind, TypeInfo, convention_of,
    dictionary_position, tls,
};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use testkit::{Fixture, Mode, Toolchain, assert_golden, oldest, toolchain};

fn open(path: &Path) -> (Executable, DebugInfo) {
    let executable = executable(path);
    let debug = DebugInfo::open(executable.image()).unwrap().expect("debug info");
    (executable, debug)
}

fn executable(path: &Path) -> Executable {
    Executable::open(Arc::new(std::fs::read(path).unwrap())).unwrap()
}

/// What became of the parameters of a whole program.
#[derive(Debug, Default)]
struct Agreement {
    functions: usize,
    same: usize,
    differ: Vec<String>,
    refused: usize,
    no_dictionary: Vec<String>,
}

/// Compares the place of every parameter that has a location list with the list's entry
/// for the first instruction.
fn agreement(toolchain: &Toolchain, mode: Mode) -> Agreement {
    let (executable, debug) = open(&Fixture::build("httpserver", toolchain, mode));
    let functions = executable.functions().unwrap();
    let mut result = Agreement::default();
    for entry in debug.described_functions().unwrap() {
        let signature = debug.signature_with_locations(entry).unwrap().unwrap();
        let key = FunctionKey {
            entry,
            convention: convention_of(executable.symbols(), entry),
            go_version: executable.go_version(),
            args_size: functions.find(entry).and_then(|function| function.args_size),
        };
        let placed = debug.placed_signature(key).unwrap().unwrap();
        result.functions += 1;
        let rule = dictionary_position(&signature.name, executable.go_version());
        if signature.dictionary.is_some() && rule.is_none() {
            result.no_dictionary.push(signature.name.clone());
        }
        for (param, variable) in placed.params.iter().zip(&signature.params) {
            let described = variable.described.as_ref().filter(|place| place.from_list);
            match (&param.place, described) {
                (Err(_), _) => result.refused += 1,
                (Ok(place), Some(described)) if described.agrees_with(place) => result.same += 1,
                (Ok(place), Some(described)) => {
                    let (function, name, at) = (&signature.name, &param.name, &described.at);
                    let kind = match at {
                        DescribedAt::Stack(_) => "stack",
                        DescribedAt::Registers(_) => "registers",
                    };
                    result.differ.push(format!("{function} {name}: {place}, said {kind} {at:?}"));
                }
                (Ok(_), None) => {}
            }
        }
    }
    result
}

/// The only disagreements are debug info's: parameters overwritten from another one,
/// whose description starts with the other's register, and values on the stack of which
/// the function reads a part, which are described at the part.
fn check_agreement(toolchain: &Toolchain, mode: Mode) {
    let found = agreement(toolchain, mode);
    let compared = found.same + found.differ.len();
    assert!(found.functions > 4000 && compared > 6000, "{found:#?}");
    let agreed = found.same as f64 / compared as f64;
    assert!(agreed >= 0.998, "{} of {compared}: {found:#?}", found.same);
    assert!(found.differ.len() <= 8, "{found:#?}");
    // Up to Go 1.21: where a small one could be missing, or is, and in unoptimized programs there is no description.
    let refusals = match (mode, toolchain.minor) {
        (Mode::NoOpt, _) => 60,
        (_, ..=21) => 20,
        _ => 0,
    };
    assert!(found.refused <= refusals, "{found:#?}");
    // Closures that are called where they stand get the dictionary as a captured variable,
    // after the parameters.
    let closures = found.no_dictionary.iter().all(|name| name.ends_with(".func1"));
    assert!(closures, "{found:#?}");
}

#[test]
fn places_agree_with_location_lists_go_1_19() {
    check_agreement(&oldest(), Mode::Exe);
}

#[test]
fn places_agree_with_location_lists_go_1_21() {
    check_agreement(&toolchain("1.21.13"), Mode::Exe);
}

#[test]
fn places_agree_with_location_lists_go_1_22() {
    check_agreement(&toolchain("1.22.10"), Mode::Exe);
}

#[test]
fn places_agree_with_location_lists_go_1_24() {
    check_agreement(&toolchain("1.24.11"), Mode::Exe);
}

#[test]
fn places_agree_with_location_lists_go_1_25() {
    check_agreement(&toolchain("1.25.5"), Mode::Exe);
}

#[test]
fn places_agree_with_location_lists_go_1_27() {
    check_agreement(&toolchain("1.27.3"), Mode::Exe);
}

#[test]
fn places_agree_with_location_lists_unoptimized() {
    check_agreement(&toolchain("1.21.13"), Mode::NoOpt);
}

/// Signatures of the `main` package as `gospect funcs` shows them.
fn signatures(path: &Path) -> String {
    let (executable, debug) = open(path);
    let mut text = String::new();
    for function in executable.functions().unwrap().iter() {
        if !function.name.starts_with("main.") {
            continue;
        }
        let key = FunctionKey {
            entry: function.entry,
            convention: convention_of(executable.symbols(), function.entry),
            go_version: executable.go_version(),
            args_size: function.args_size,
        };
        let Some(placed) = debug.placed_signature(key).unwrap() else { continue };
        let list = |variables: &[binary::PlacedVariable]| {
            let one = |variable: &binary::PlacedVariable| {
                let place = match &variable.place {
                    Ok(place) => place.to_string(),
                    Err(reason) => format!("unavailable: {reason}"),
                };
                format!("{} {} @ {place}", variable.name, variable.ty.name)
            };
            variables.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let (params, results) = (list(&placed.params), list(&placed.results));
        writeln!(text, "{}({params}) -> ({results})", placed.name).unwrap();
    }
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n") + "\n"
}

fn golden(name: &str) -> String {
    format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn signatures_of_the_args_fixture() {
    for version in ["1.19", "1.21.13", "1.22.10", "1.27.3"] {
        let path = Fixture::build("args", &toolchain(version), Mode::Exe);
        assert_golden(golden(&format!("signatures-{version}.txt")), &signatures(&path));
    }
}

#[test]
fn cgo_programs_mix_versions_and_languages() {
    let path = Fixture::build("cgo", &oldest(), Mode::Cgo);
    let (executable, debug) = open(&path);
    let main = executable.functions().unwrap().by_name("main.main")[0].entry;
    assert_eq!(debug.signature(main).unwrap().unwrap().name, "main.main");
    // `_start` is C's or assembly's: no Go function.
    assert_eq!(debug.signature(executable.image().entry()).unwrap(), None);
    assert_eq!(debug.signature(Svma(0x10)).unwrap(), None);
    assert!(debug.find_type("runtime.g").unwrap().is_some());
}

#[test]
fn stripped_programs_have_no_debug_info() {
    let path = Fixture::build("args", &toolchain("1.27.3"), Mode::Stripped);
    assert!(DebugInfo::open(executable(&path).image()).unwrap().is_none());
}

fn named(debug: &DebugInfo, name: &str) -> Arc<TypeInfo> {
    debug.type_info(debug.find_type(name).unwrap().expect(name)).unwrap()
}

#[test]
fn types_resolve_to_what_they_are_made_of() {
    for version in ["1.19", "1.24.11", "1.27.3"] {
        let (_, debug) = open(&Fixture::build("httpserver", &toolchain(version), Mode::Exe));
        let shape = |name: &str| {
            let info = named(&debug, name);
            assert_eq!(&*info.name, name);
            (info.size, info.align, info.kind.clone())
        };
        assert_eq!(shape("bool"), (1, 1, Kind::Bool));
        assert_eq!(shape("int"), (8, 8, Kind::Int { signed: true }));
        assert_eq!(shape("uint16"), (2, 2, Kind::Int { signed: false }));
        assert_eq!(shape("float64"), (8, 8, Kind::Float));
        assert_eq!(shape("string"), (16, 8, Kind::String));
        assert_eq!(shape("error"), (16, 8, Kind::Interface { empty: false }));
        assert_eq!(shape("interface {}"), (16, 8, Kind::Interface { empty: true }));
        assert_eq!(shape("net/http.Handler"), (16, 8, Kind::Interface { empty: false }));
        assert_eq!(shape("net/http.HandlerFunc"), (8, 8, Kind::Func));
        let Kind::Map { key: Some(key), elem: Some(elem) } = shape("net/http.Header").2 else {
            panic!("net/http.Header")
        };
        let name = |id| debug.type_info(id).unwrap().name.to_string();
        assert_eq!((name(key), name(elem)), ("string".to_owned(), "[]string".to_owned()));
        assert_eq!(shape("chan struct {}"), (8, 8, Kind::Chan));
        assert_eq!(shape("unsafe.Pointer"), (8, 8, Kind::UnsafePointer));
        let Kind::Slice { elem } = named(&debug, "[]uint8").kind else { panic!("[]uint8") };
        assert_eq!(&*debug.type_info(elem).unwrap().name, "uint8");
        let Kind::Pointer { elem: Some(elem) } = named(&debug, "*net/http.Request").kind else {
            panic!("*net/http.Request")
        };
        let request = debug.type_info(elem).unwrap();
        let Kind::Struct { fields } = &request.kind else { panic!("net/http.Request") };
        let first: Vec<_> = fields.iter().take(2).map(|f| (&*f.name, f.offset)).collect();
        assert_eq!((request.size, first), (request.size, vec![("Method", 0), ("URL", 16)]));
        assert_eq!(debug.find_type("main.Nonsense").unwrap(), None);
    }
}

#[test]
fn paths_follow_pointers_and_embedded_structs() {
    let (_, debug) = open(&Fixture::build("httpserver", &toolchain("1.27.3"), Mode::Exe));
    let show = |path: &str| match debug.type_path(path) {
        Err(error) => error.to_string(),
        Ok(found) => {
            let ty = debug.type_info(found.ty()).unwrap();
            let steps = found.steps.iter().map(|step| {
                let arrow = if step.through_pointer { "->" } else { "." };
                format!("{arrow}{}@{}", step.field.name, step.field.offset)
            });
            format!("{} {}", steps.collect::<String>(), ty.name)
        }
    };
    assert_eq!(show("net/http.Request"), " net/http.Request");
    assert_eq!(show("net/http.Request.URL->Path"), ".URL@16->Path@56 string");
    assert_eq!(show("*net/http.Request.Method"), "->Method@0 string");
    assert_eq!(show("runtime.m.mOS"), show("runtime.m->mOS"));
    // Promoted by the embedded conn.
    assert_eq!(show("net.TCPConn.fd.net"), ".conn@0.fd@0->net@80 string");
    assert_eq!(
        show("net/http.Request.Nope"),
        "the executable has no field Nope in type net/http.Request"
    );
    assert_eq!(show("main.Nope.X"), "the executable has no type main.Nope.X");
}

#[test]
fn layouts_come_from_debug_info_where_there_is_some() {
    for mode in [Mode::Pie, Mode::Cgo] {
        let (executable, debug) = open(&Fixture::build("counts", &toolchain("1.27.3"), mode));
        let version = executable.go_version();
        let (with, without) =
            (RuntimeLayouts::new(version, Some(&debug)), RuntimeLayouts::new(version, None));
        for (structure, field) in [
            ("runtime.g", "goid"),
            ("runtime.g", "stack.hi"),
            ("runtime.m", "curg"),
            ("runtime.schedt", "runq.size"),
            ("runtime.mstats", "heapStats.stats[]"),
            ("internal/abi.Type", "TFlag"),
        ] {
            let (a, b) = (with.field(structure, field), without.field(structure, field));
            let (a, b) = (a.unwrap(), b.unwrap());
            assert_eq!((a.provenance, b.provenance), (Provenance::Dwarf, Provenance::Table));
            assert_eq!((a.offset, a.size), (b.offset, b.size), "{structure}.{field}");
        }
    }
}

#[test]
fn the_place_of_g_is_found_by_symbol_and_by_code() {
    let offset = |name, version, mode| {
        let path = Fixture::build(name, &toolchain(version), mode);
        tls::g_offset(&executable(&path)).unwrap()
    };
    for version in ["1.19", "1.27.3"] {
        assert_eq!(offset("counts", version, Mode::Exe), (-8, Provenance::Code));
        assert_eq!(offset("counts", version, Mode::Pie), (-8, Provenance::Code));
        assert_eq!(offset("counts", version, Mode::Stripped), (-8, Provenance::Code));
        assert_eq!(offset("counts", version, Mode::Cgo), (-8, Provenance::Symbol));
        let (moved, provenance) = offset("cgo_tls", version, Mode::Cgo);
        assert_eq!(provenance, Provenance::Symbol);
        assert!(moved <= -408, "{moved}");
        let mut recipe = Mode::Cgo.recipe().arg("-ldflags=-s -w");
        recipe.label = "cgo-stripped".into();
        let path = Fixture::build_as("cgo_tls", &toolchain(version), &recipe);
        assert_eq!(tls::g_offset(&executable(&path)).unwrap(), (moved, Provenance::Code));
    }
}
