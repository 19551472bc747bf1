//! Code for every function of whole programs: how many get it, why the others do not, and
//! whether what was moved is what it was.

mod common;

use address::Svma;
use binary::Executable;
use capture_trampoline::emit::{Emitted, ExecutableCode, Refused, emit};
use common::{open, options, plan_all};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use testkit::{Fixture, Mode, REQUIRED, Toolchain, toolchain};

/// Share of non-assembly functions that must carry an entry and all exits when faults are
/// translated, in percent.
const MIN_COVERAGE: f64 = 98.0;
/// The same when they are not.
const MIN_COVERAGE_UNTRANSLATED: f64 = 82.0;
/// Code per function, bytes.
const MAX_BYTES: f64 = 128.0;

/// The variant's name, without its data.
fn reason(refused: &Refused) -> String {
    match refused {
        Refused::NoRoom { why, .. } => format!("no room: {why}"),
        other => {
            let text = format!("{other:?}");
            text.split(['(', ' ']).next().unwrap_or_default().to_owned()
        }
    }
}

fn instruction(bytes: &[u8], ip: u64) -> Instruction {
    Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode()
}

/// Everything that must hold of emitted code, whatever the program.
fn check(executable: &Executable, emitted: &Emitted, translates: bool) {
    let options = options(executable, translates);
    let bytes_at = |address: Svma, len: u64| {
        executable.image().read_vec(address, len).expect("text is in the file")
    };
    let mut last = Svma(0);
    for patch in &emitted.patches {
        assert!(patch.address >= last, "0x{:x} overlaps", patch.address);
        last = patch.end.max(patch.address.add(5));
        assert_eq!(patch.address.0 / 4096, (patch.address.0 + 4) / 4096, "0x{:x}", patch.address);
        assert_eq!(bytes_at(patch.address, 5), patch.original);
        let from = options.bias.to_avma(patch.address);
        let to = instruction(&patch.replacement, from.0).near_branch_target();
        let piece = emitted.pc_map.original(address::Avma(to)).expect("leads to a stub");
        assert_eq!((piece.start.0, piece.original), (to, patch.address));
    }
    for piece in emitted.pc_map.pieces() {
        let at = (piece.start.0 - options.code_base.0) as usize;
        let here = instruction(&emitted.code[at..], piece.start.0);
        if !piece.is_moved {
            continue;
        }
        let was = options.bias.to_avma(piece.original);
        // Less than the longest instruction may be left at the end of the text.
        let original = (1..=15)
            .rev()
            .find_map(|len| executable.image().read_vec(piece.original, len).ok())
            .expect("text is in the file");
        let original = instruction(&original, was.0).to_string();
        let original = original.replace("short ", "");
        let area = options.code_base.0..options.code_base.0 + emitted.code.len() as u64;
        if area.contains(&here.near_branch_target()) {
            // A detour: the same branch, to a copy of what it led to.
            let target = address::Avma(here.near_branch_target());
            let copy = emitted.pc_map.original(target).expect("in a stub");
            let mnemonic = original.split(' ').next().expect("a mnemonic");
            let there = options.bias.to_avma(copy.original).0;
            assert_eq!(copy.start, target);
            assert_eq!(original, format!("{mnemonic} {there:016X}h"));
            continue;
        }
        assert_eq!(original, here.to_string(), "0x{:x}", piece.original);
    }
    for &(original, avma) in emitted.pc_map.moved() {
        let piece = emitted.pc_map.original(avma).expect("in a stub");
        assert_eq!((piece.start, piece.original), (avma, original));
    }
}

fn row(name: &str, path: &Path, translates: bool, table: &mut String) -> (f64, f64) {
    let executable = open(path);
    let plan = plan_all(&executable);
    let start = std::time::Instant::now();
    let source = ExecutableCode::new(&executable);
    let emitted = emit(&plan, &source, &options(&executable, translates)).expect("emits");
    let time = start.elapsed();
    check(&executable, &emitted, translates);
    let total = plan.functions.len();
    let done = total - emitted.refused.len();
    let coverage = 100.0 * done as f64 / total as f64;
    let bytes = emitted.code.len() as f64 / done as f64;
    let several = emitted.patches.iter().filter(|patch| {
        emitted.pc_map.relocated(patch.address.add(1)).is_some()
            || (2..5).any(|i| emitted.pc_map.relocated(patch.address.add(i)).is_some())
    });
    let several = 100.0 * several.count() as f64 / emitted.patches.len() as f64;
    let _ = writeln!(
        table,
        "{name} translates={translates}: {done} of {total} ({coverage:.2}%), {bytes:.1} bytes \
         each, {} patches, {several:.1}% with PCs inside, {} ms",
        emitted.patches.len(),
        time.as_millis()
    );
    let mut reasons: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (index, refused) in &emitted.refused {
        let entry = reasons.entry(reason(refused)).or_default();
        entry.0 += 1;
        let name = &plan.functions[*index as usize].name;
        entry.1 = format!("{name}: {refused}");
    }
    for (reason, (count, example)) in reasons {
        let _ = writeln!(table, "    {count:6} {reason} (e.g. {example})");
    }
    (coverage, bytes)
}

fn compiler(toolchain: &Toolchain) -> PathBuf {
    toolchain.goroot().join("pkg/tool/linux_amd64/compile")
}

#[test]
fn nearly_every_function_of_a_server_and_the_compiler_can_carry_trampolines() {
    let mut table = String::new();
    let mut failed = false;
    let all: Vec<Toolchain> = REQUIRED.iter().map(|version| toolchain(version)).collect();
    for (index, toolchain) in all.iter().enumerate() {
        let mut programs = vec![("server", Fixture::build("httpserver", toolchain, Mode::Exe))];
        let at_an_end = index == 0 || index + 1 == all.len();
        if at_an_end {
            programs.push(("server pie", Fixture::build("httpserver", toolchain, Mode::Pie)));
            programs.push(("compiler", compiler(toolchain)));
        }
        for (name, path) in &programs {
            let name = format!("{} {name}", toolchain.version);
            let (coverage, bytes) = row(&name, path, true, &mut table);
            failed |= coverage < MIN_COVERAGE || bytes > MAX_BYTES;
            if at_an_end {
                let (coverage, _) = row(&name, path, false, &mut table);
                failed |= coverage < MIN_COVERAGE_UNTRANSLATED;
            }
        }
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trampoline-coverage.txt");
    std::fs::write(path, &table).expect("writable");
    assert!(!failed, "\n{table}");
}
