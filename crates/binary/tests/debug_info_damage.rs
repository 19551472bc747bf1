//! Damaged debug info gives errors or wrong answers, never a panic or a hang.

use address::ReadAt;
use binary::{Convention, DebugInfo, FunctionKey, GoVersion, Image};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{Fixture, Mode, toolchain};

/// Damaged copies tried per version.
const ROUNDS: u64 = 150;

/// Functions read in each.
const FUNCTIONS: usize = 60;

/// What no round may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A file with some bytes replaced. Shares the intact ones.
struct Damaged {
    bytes: Arc<Vec<u8>>,
    patches: Vec<(u64, u8)>,
}

impl ReadAt for Damaged {
    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.bytes.read_exact_at(offset, buf)?;
        for (at, byte) in &self.patches {
            let place = at.checked_sub(offset).and_then(|at| buf.get_mut(at as usize));
            if let Some(place) = place {
                *place = *byte;
            }
        }
        Ok(())
    }
}

/// The next number of a splitmix64 sequence.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Asks for all that debug info is asked for.
fn exercise(image: &Image, version: &GoVersion) -> usize {
    let Ok(Some(debug)) = DebugInfo::open(image) else { return 0 };
    let mut answers = 0;
    for name in ["runtime.g", "main.point", "error", "[]uint8"] {
        if let Ok(Some(id)) = debug.find_type(name) {
            answers += usize::from(debug.type_info(id).is_ok() && debug.abi_type(id).is_ok());
        }
    }
    let functions = debug.described_functions().unwrap_or_default();
    let step = functions.len() / FUNCTIONS + 1;
    for &entry in functions.iter().step_by(step) {
        let key = FunctionKey {
            entry,
            convention: Convention::Internal,
            go_version: version,
            args_size: Some(24),
        };
        answers += usize::from(matches!(debug.placed_signature(key), Ok(Some(_))));
    }
    answers
}

fn damage(version: &str, sections: &[&str]) {
    let mut recipe = Mode::Exe.recipe().arg("-ldflags=-compressdwarf=false");
    recipe.label = "exe-plain-dwarf".into();
    let path = Fixture::build_as("args", &toolchain(version), &recipe);
    let bytes = Arc::new(std::fs::read(path).unwrap());
    let go_version = GoVersion::parse(&format!("go{version}"));
    let intact = Image::open(bytes.clone()).unwrap();
    assert!(exercise(&intact, &go_version) >= FUNCTIONS / 2);
    let ranges: Vec<(u64, u64)> = sections
        .iter()
        .map(|name| intact.section(name).expect(name))
        .map(|section| (section.offset.0, section.size))
        .collect();
    let mut state = 1;
    let mut changed = 0;
    for round in 0..ROUNDS {
        let patches = (0..1 + round % 7 * 9).map(|_| {
            let (start, size) = ranges[next(&mut state) as usize % ranges.len()];
            // Mostly near the start, where headers and abbreviations are.
            let span = if next(&mut state).is_multiple_of(3) { size } else { size.min(400) };
            (start + next(&mut state) % span, next(&mut state) as u8)
        });
        let damaged = Damaged { bytes: bytes.clone(), patches: patches.collect() };
        let image = Image::open(Arc::new(damaged)).unwrap();
        let start = Instant::now();
        changed += usize::from(exercise(&image, &go_version) < FUNCTIONS / 2);
        assert!(start.elapsed() < LIMIT, "round {round} took {:?}", start.elapsed());
    }
    // The damage is felt.
    assert!(changed > 10, "{changed}");
}

#[test]
fn damaged_dwarf_4_is_survived() {
    damage("1.21.13", &[".debug_abbrev", ".debug_info", ".debug_loc", ".debug_ranges"]);
}

#[test]
fn damaged_dwarf_5_is_survived() {
    let sections =
        [".debug_abbrev", ".debug_info", ".debug_loclists", ".debug_rnglists", ".debug_addr"];
    damage("1.27.3", &sections);
}
