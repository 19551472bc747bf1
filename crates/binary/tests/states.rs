//! Where goroutines change their state: found in every Go version and build mode, nothing more
//! and nothing less.

mod common;

use binary::code::{ProbeCost, Swap, swaps_of_function};
use binary::layout::RuntimeLayouts;
use binary::{DebugInfo, Executable, Function};
use std::fmt::Write as _;
use std::path::Path;
use testkit::{Mode, Toolchain, assert_golden, toolchains};

use common::open_good;

const REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

fn fixture(go: &Toolchain, mode: Mode) -> Executable {
    open_good(&testkit::Fixture::build("parked", go, mode))
}

/// Functions that set and clear the bit by which the collector holds a goroutine's stack.
const SCAN_BIT: [&str; 2] = ["runtime.castogscanstatus", "runtime.casfrom_Gscanstatus"];

/// Every swap of `g.atomicstatus` in the runtime, whatever function it is in.
fn sites(executable: &Executable) -> Vec<(Function, Swap)> {
    let debug = DebugInfo::open(executable.image()).unwrap();
    let layouts = RuntimeLayouts::new(executable.go_version(), debug.as_ref());
    let field = layouts.field("runtime.g", "atomicstatus").unwrap().offset as u32;
    let table = executable.functions().unwrap();
    let runtime = table.iter().filter(|function| function.name.starts_with("runtime."));
    let changing = runtime.filter(|function| !SCAN_BIT.contains(&function.name.as_str()));
    let swaps = changing.flat_map(|function| {
        let swaps = swaps_of_function(executable, &function, field).unwrap();
        swaps.into_iter().map(move |swap| (function.clone(), swap))
    });
    swaps.collect()
}

/// One line per place; places as distances from the function's first byte.
fn listing(sites: &[(Function, Swap)], places: bool) -> String {
    let mut text = String::new();
    for (function, swap) in sites {
        let at = |address: address::Svma| address.since(function.entry).unwrap();
        _ = write!(text, "  {}", function.name);
        if places {
            _ = write!(text, "+{:x} next +{:x}", at(swap.address), at(swap.after));
        }
        let [base, new] = [swap.base, swap.new].map(|number| REGISTERS[usize::from(number)]);
        let what = if swap.is_call { "called field" } else { "g" };
        _ = write!(text, " {what}={base} new={new}");
        if places && let Some(outcome) = swap.outcome {
            let cost = match outcome.cost {
                ProbeCost::Emulated => "emulated",
                ProbeCost::SingleStepped => "stepped",
            };
            let zero = if outcome.zero { "ZF" } else { "not ZF" };
            _ = write!(text, "; {zero} at +{:x} ({cost})", at(outcome.address));
        }
        text.push('\n');
    }
    text
}

/// `GOSPECT_BLESS=1` writes the list anew.
#[test]
fn the_places_of_each_release_are_these() {
    let mut text = String::new();
    for go in toolchains() {
        let Some(version) = go.required() else { continue };
        _ = writeln!(text, "go{version}");
        text.push_str(&listing(&sites(&fixture(&go, Mode::Exe)), true));
    }
    assert_golden(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/states.txt"), &text);
}

/// Without inlining the functions with a swap of their own call what swaps, from Go 1.21 on.
#[test]
fn without_inlining_the_same_functions_call_what_swaps() {
    for go in toolchains() {
        let of = |mode| sites(&fixture(&go, mode));
        let holders = |sites: &[(Function, Swap)]| -> Vec<String> {
            sites.iter().map(|(function, _)| function.name.clone()).collect()
        };
        let (plain, other) = (of(Mode::Exe), of(Mode::NoOpt));
        assert_eq!(holders(&other), holders(&plain), "go {}", go.version);
        for (function, swap) in &other {
            let what = format!("go {}: {} {swap:?}", go.version, function.name);
            let is_method = go.minor >= 21 && function.name != "runtime.allGsSnapshotSortedForGC";
            assert!(swap.is_call || !is_method, "{what}");
            assert!(swap.outcome.is_some(), "{what}");
        }
    }
}

#[test]
fn every_way_of_building_has_the_same_changes() {
    let modes = [Mode::Pie, Mode::Cgo, Mode::CgoPie, Mode::Stripped, Mode::StrippedPie, Mode::V3];
    for go in toolchains() {
        let plain = listing(&sites(&fixture(&go, Mode::Exe)), false);
        for mode in modes {
            let other = sites(&fixture(&go, mode));
            assert_eq!(listing(&other, false), plain, "go {} {mode}", go.version);
            for (function, swap) in &other {
                let what = format!("go {} {mode}: {} {swap:?}", go.version, function.name);
                assert!(swap.outcome.is_some(), "{what}");
            }
        }
    }
}
