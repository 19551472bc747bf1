//! What `code::analyze` says of functions cut from real executables, as text.

use address::Svma;
use binary::code::{Analysis, CodeFacts, ExitKind, Spills, analyze};
use std::fmt::Write as _;

/// A function: why it is here, its name, its address where it was cut from, its bytes in hex.
struct Cut {
    why: &'static str,
    name: &'static str,
    entry: u64,
    assembly: bool,
    hex: &'static str,
}

const fn go(why: &'static str, name: &'static str, entry: u64, hex: &'static str) -> Cut {
    Cut { why, name, entry, assembly: false, hex }
}

const fn asm(why: &'static str, name: &'static str, entry: u64, hex: &'static str) -> Cut {
    Cut { why, name, entry, assembly: true, hex }
}

/// Go 1.27.3 unless said otherwise.
const CUTS: &[Cut] = &[
    go(
        "stackguard1, slow path with spills, panic call",
        "runtime.(*mheap).allocManual",
        0x43b720,
        "493b6618762b554889e54883ec1884c9740d31ffe8470300004883c4185dc3488d05597e2600bb3c000000\
         e8b079040090488944240848895c2410884c241890e8bb060500488b442408488b5c24100fb64c2418ebaa\
         cccccccccccccccccccc",
    ),
    go(
        "large frame",
        "main.rec",
        0x625d00,
        "4c8da42468feffff4d3b66100f86a3000000554889e54881ec10020000488d4c2408ba08000000440f1139\
         440f117910440f117920440f1179304883c1406690ffca75e34889c148c1f93f48c1e9374801c14881e100\
         feffff4889c24829ca904881fa000200007341884414084885c0750f0fb64424084881c4100200005d90c3\
         488994240802000048ffc8e86fffffff488b8c24080200000fb64c0c084801c84881c4100200005dc3b800\
         020000e86c40e6ff904889442408e82124e6ff488b442408e937ffffff",
    ),
    go(
        "huge frame",
        "main.huge",
        0x625de0,
        "4989e44981ec00110100724f4d3b66107649554889e54881ec78110100488d7c2408b92e2200004889c231\
         c0f348ab4881fa701101007318c644140801488d442408e8390000004881c4781101005dc3b870110100e8\
         e63fe6ff904889442408e89b23e6ff488b442408eb94",
    ),
    go(
        "huge frame without push, Go 1.19.8",
        "main.huge",
        0x60e4e0,
        "4989e44981ec08110100726a4d3b661076644881ec881101004889ac2480110100488dac2480110100488d\
         7c2410b92e2200004889c231c0f348ab0f1f4400004881fa70110100731fc644141001488d442410e84800\
         0000488bac24801101004881c488110100c34889d0b970110100e86b5ee5ff9048894424080f1f440000e8\
         fb39e5ff488b442408e971ffffff",
    ),
    go(
        "no check; ABI0 wrapper that loads g",
        "runtime.newproc",
        0x48bd60,
        "554889e54883ec08488b442418450f57ff644c8b3425f8ffffffe881a7fcff4883c4085dc3",
    ),
    go(
        "no check, an emulated instruction behind the first",
        "runtime.lockRank.String",
        0x41c7e0,
        "4885c07449483de803000074344885c07c094839057f6d57007f0d488d05a7352700bb08000000c3488b0d\
         616d570048c1e004488b1401488b5c01084889d090c3488d05bd2a2700bb04000000c3488d054b312700bb\
         07000000c3",
    ),
    go(
        "jump through a register to another method",
        "io.(*nopCloser).Read",
        0x4a78a0,
        "48895c2410488b10488b4008488b5218ffe2",
    ),
    asm(
        "tail call to a local symbol",
        "runtime.memequal",
        0x40a200,
        "4839d87506b801000000c34889c64889df4889cbe987feffff",
    ),
    go(
        "the first instruction is the head of a loop",
        "runtime.(*gcControllerState).memoryLimitHeapGoal",
        0x4352a0,
        "488b8820010000488b9028010000488b98300100004829da488d1c0a90488bb0380100004839de72d7c3",
    ),
    go(
        "a loop that begins behind the first instruction",
        "main.count",
        0x1000,
        "31c948ffc14839c17cf8c3",
    ),
    asm(
        "EVEX",
        "internal/runtime/gc/scan.expandAVX512_1",
        0x411880,
        "62f1fe486f0862f1fe486f5001c3",
    ),
    go("LOCK first, Go 1.27 -N -l", "internal/runtime/atomic.(*Uint32).And", 0x1000, "f02118c3"),
    go("the last instruction ends in CC", "main.f", 0x1000, "31c0c3b8000000cccccccc"),
    go("a jump table", "main.f", 0x1000, "4883f8037708488d0dffffff00ff24c1c3b801000000c3"),
    go("a conditional jump out", "main.f", 0x1000, "4885c00f84f7ffff0fc3"),
    go("does not decode", "main.f", 0x1000, "900effc3"),
    go("nothing", "main.f", 0x1000, "cccccccc"),
    go("a marker", "go:textfipsstart", 0x1000, "cc"),
    go("C", "x_cgo_init", 0x1000, "55c3"),
    go("C, split by the compiler", "fatalf.cold", 0x1000, "55c3"),
    asm("another convention", "runtime.gcWriteBarrier2", 0x1000, "c3"),
    asm("another convention", "runtime.call1024", 0x1000, "c3"),
    asm("another convention, local symbol", "gogo", 0x1000, "c3"),
    go("a name like a special one, but Go", "main.gogo", 0x1000, "c3"),
];

#[test]
fn functions_cut_from_executables() {
    let mut text = String::new();
    for cut in CUTS {
        let bytes = bytes(cut.hex);
        let facts = facts(cut.name, cut.entry, cut.assembly);
        let _ = writeln!(text, "{} ({})", cut.name, cut.why);
        text.push_str(&dump(&analyze(&bytes, &facts), Svma(cut.entry)));
    }
    testkit::assert_golden(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/code.txt"), &text);
}

#[test]
fn facts_that_refuse() {
    let fips = Svma(0x1000)..Svma(0x2000);
    let plain = facts("main.f", 0x1000, true);
    let refusals = [
        CodeFacts { sp_write: true, ..plain },
        CodeFacts { is_top_frame: true, ..plain },
        CodeFacts { fips: Some(&fips), ..plain },
    ]
    .map(|facts| analyze(&[0xc3], &facts).entry.expect_err("refused").to_string());
    assert_eq!(
        refusals,
        [
            "is assembly that switches or rewrites its stack pointer",
            "is the outermost frame of a stack: it is started, not called",
            "lies in the text that the FIPS self-check hashes at start: a probe would make it fail",
        ]
    );
}

proptest::proptest! {
    /// Whatever the bytes: no panic, and every address lies in the function.
    #[test]
    fn any_bytes(code in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let entry = Svma(0xffff_ffff_ffff_ff00);
        let analysis = analyze(&code, &facts("main.f", entry.0, false));
        let inside = |address: Svma| address.0.wrapping_sub(entry.0) < code.len() as u64;
        proptest::prop_assert!(analysis.entry.is_err() || inside(analysis.entry.unwrap().address));
        proptest::prop_assert!(analysis.exits.iter().all(|exit| inside(exit.site.address)));
        proptest::prop_assert!(analysis.calls.iter().all(|call| inside(call.address)));
    }
}

fn facts(name: &str, entry: u64, is_assembly: bool) -> CodeFacts<'_> {
    CodeFacts {
        entry: Svma(entry),
        name,
        is_assembly,
        sp_write: false,
        is_top_frame: false,
        deferreturn: None,
        fips: None,
        sp_delta: &|_| None,
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn spills(spills: &Spills) -> String {
    match spills {
        Spills::Untouched => "the check ends the process".to_owned(),
        Spills::Reloaded(spills) => {
            let kept = spills
                .iter()
                .map(|spill| format!(" {}:{}@{}", spill.reg, spill.bytes, spill.offset));
            format!("keeps{}", kept.collect::<String>())
        }
        Spills::Unknown => "keeps nothing known".to_owned(),
    }
}

/// Addresses as offsets from the function's entry.
fn dump(analysis: &Analysis, start: Svma) -> String {
    let mut text = String::new();
    let offset = |address: Svma| {
        let delta = address.0.wrapping_sub(start.0) as i64;
        format!("{}0x{:x}", if delta < 0 { "-" } else { "+" }, delta.unsigned_abs())
    };
    match &analysis.entry {
        Ok(site) => {
            let at = offset(site.address);
            let _ = writeln!(text, "  entry {at} len {} {:?}", site.len, site.uprobe);
        }
        Err(refused) => _ = writeln!(text, "  refused: {refused}"),
    }
    if let Some(morestack) = analysis.morestack {
        let _ = writeln!(
            text,
            "  check; body {} morestack {}",
            offset(analysis.body),
            offset(morestack)
        );
        let _ = writeln!(text, "  {}", spills(&analysis.spills));
    }
    for exit in &analysis.exits {
        let kind = match exit.kind {
            ExitKind::Return => "return".to_owned(),
            ExitKind::Tail(Some(target)) => format!("tail to {}", offset(target)),
            ExitKind::Tail(None) => "tail".to_owned(),
        };
        let _ = writeln!(text, "  {kind} {} {:?}", offset(exit.site.address), exit.site.uprobe);
    }
    for call in &analysis.calls {
        let target = call.target.map_or("?".to_owned(), offset);
        let _ = writeln!(text, "  call {} to {target}", offset(call.address));
    }
    for (name, list) in [("target", &analysis.branch_targets), ("table", &analysis.table_jumps)] {
        for &address in list {
            let _ = writeln!(text, "  {name} {}", offset(address));
        }
    }
    if analysis.loads_g {
        text.push_str("  loads g\n");
    }
    let _ = writeln!(text, "  end {}", offset(analysis.end));
    text
}
