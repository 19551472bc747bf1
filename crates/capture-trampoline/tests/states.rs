//! The sites of goroutine states in whole programs of every version: found, and fit to carry
//! trampolines.

mod common;

use binary::DebugInfo;
use binary::layout::RuntimeLayouts;
use capture_trampoline::emit::{ExecutableCode, emit};
use common::{RUNTIME, open, options};
use probe::Plan;
use probe::states::{StateOffsets, add_states};
use std::fmt::Write as _;
use testkit::{Fixture, Mode, REQUIRED, toolchain};

/// Sites by function, and what was refused where.
fn describe(name: &str, mode: Mode, version: &str, text: &mut String) {
    let path = Fixture::build(name, &toolchain(version), mode);
    let executable = open(&path);
    let debug = DebugInfo::open(executable.image()).expect("debug info is sound");
    let layouts = RuntimeLayouts::new(executable.go_version(), debug.as_ref());
    let mut plan = Plan { runtime: RUNTIME, ..Plan::default() };
    add_states(&mut plan, &executable, &StateOffsets::of(&layouts).expect("offsets"))
        .expect("code in the file");
    let source = ExecutableCode::new(&executable);
    let emitted = emit(&plan, &source, &options(&executable, true)).expect("emits");
    let _ = write!(text, "{version} {mode}:");
    for (index, function) in plan.functions.iter().enumerate() {
        let sites = plan.sites.iter().zip(&emitted.sites);
        let sites = sites.filter(|(site, _)| site.function as usize == index);
        let units: Vec<u8> = sites.map(|(_, site)| site.units).collect();
        let name = function.name.trim_start_matches("runtime.");
        let _ = write!(text, " {name} {units:?}");
    }
    for refusal in &plan.refused {
        let _ = write!(text, " refused {}: {}", refusal.function, refusal.reason.0);
    }
    for (index, reason) in &emitted.refused {
        let _ = write!(text, " refused {}: {reason}", plan.functions[*index as usize].name);
    }
    let _ = writeln!(text);
}

#[test]
fn every_state_change_of_every_version_can_carry_trampolines() {
    let mut text = String::new();
    for version in REQUIRED {
        describe("httpserver", Mode::Exe, version, &mut text);
    }
    for version in [REQUIRED[0], REQUIRED[REQUIRED.len() - 1]] {
        for mode in [Mode::Pie, Mode::Cgo, Mode::V3, Mode::Stripped] {
            describe("httpserver", mode, version, &mut text);
        }
    }
    for version in REQUIRED.iter().skip_while(|version| !version.starts_with("1.23")) {
        describe("coro", Mode::Exe, version, &mut text);
    }
    let golden = format!("{}/tests/golden/states.txt", env!("CARGO_MANIFEST_DIR"));
    testkit::assert_golden(golden, &text);
}
