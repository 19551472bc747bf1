//! Damaged files: whatever is wrong, an error or a smaller answer comes back, soon, and
//! without memory by a size that the file merely states.

mod common;

use address::{FileOffset, ReadAt, Svma};
use binary::Executable;
use common::{Damaged, damaged, open_good};
use proptest::prelude::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use testkit::{Fixture, Mode};

/// Address space of this test process: an allocation by a stated size would abort it.
const MAX_MEMORY: u64 = 2 << 30;

/// One case takes milliseconds; the bound is for a loaded machine.
const MAX_TIME: Duration = Duration::from_secs(20);

/// A real executable and the places in it that steer a reader.
struct Good {
    bytes: Arc<Vec<u8>>,
    /// File offset and size of headers and tables.
    hot: Vec<(u64, u64)>,
}

fn load(mode: Mode) -> Good {
    let limit = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(MAX_MEMORY), maximum: limit.maximum }).unwrap();
    let path = Fixture::build("symbols", &testkit::selected(), mode);
    let bytes = std::fs::read(&path).unwrap();
    let executable = open_good(&path);
    let image = executable.image();
    let module = executable.module().unwrap();
    let at = |address: Svma| image.file_offset(address).unwrap().0;
    let table = at(module.pc_header);
    let functions = executable.functions().unwrap();
    let first = functions.get(0).unwrap();
    assert_eq!(first.entry, module.text);
    let sections = bytes[0x28..0x30].try_into().unwrap();
    let mut hot = vec![
        (0, 64),
        (64, 56 * image.segments().len() as u64),
        (u64::from_le_bytes(sections), 64 * image.sections().len() as u64),
        (table, 72),
        (at(module.address), 600),
        (at(module.gofunc), 1 << 14),
        (at(module.types), 1 << 12),
    ];
    // The five tables of the pclntab, of which the header holds the offsets.
    for field in (32..72).step_by(8) {
        let word = bytes[table as usize + field..][..8].try_into().unwrap();
        hot.push((table + u64::from_le_bytes(word), 1 << 14));
    }
    let notes = image.segments().iter().filter(|segment| segment.kind == segment_type::NOTE);
    hot.extend(notes.map(|segment| (segment.offset.0, segment.file_size)));
    if let Some(section) = image.section(".go.buildinfo") {
        hot.push((section.offset.0, section.size));
    }
    for section in image.sections().iter().filter(|section| section.has_data()) {
        hot.push((section.offset.0, section.size.min(256)));
    }
    hot.retain(|&(_, size)| size > 0);
    Good { bytes: Arc::new(bytes), hot }
}

/// `p_type` values.
mod segment_type {
    pub const NOTE: u32 = 4;
}

/// A file that loses its end between two reads, and grows again when `again` is set.
struct Shrinking {
    bytes: Arc<Vec<u8>>,
    kept: u64,
    /// Reads that still find everything.
    good: usize,
    again: bool,
    reads: AtomicUsize,
}

impl Shrinking {
    fn is_short(&self, reads: usize) -> bool {
        reads >= self.good && !(self.again && reads.is_multiple_of(2))
    }
}

impl ReadAt for Shrinking {
    fn size(&self) -> u64 {
        let is_short = self.is_short(self.reads.load(Ordering::Relaxed));
        if is_short { self.kept } else { self.bytes.len() as u64 }
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let is_short = self.is_short(self.reads.fetch_add(1, Ordering::Relaxed));
        let end = offset.checked_add(buf.len() as u64);
        if is_short && end.is_none_or(|end| end > self.kept) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.bytes.read_exact_at(offset, buf)
    }
}

static EXE: LazyLock<Good> = LazyLock::new(|| load(Mode::Exe));
static PIE: LazyLock<Good> = LazyLock::new(|| load(Mode::StrippedPie));

/// Asks for everything there is.
fn read_everything(source: Arc<dyn ReadAt>) {
    let start = Instant::now();
    if let Ok(executable) = Executable::open(source) {
        let _ = executable.build_id();
        let _ = executable.build_info();
        let _ = executable.go_version();
        let _ = executable.symbols().by_name("runtime.main");
        read_functions(&executable);
        if let Ok(module) = executable.module() {
            let size = module.etypes.since(module.types).unwrap_or_default();
            for at in (0..size.min(1 << 16)).step_by(32) {
                let _ = executable.type_name(module.types.add(at));
            }
        }
    }
    let elapsed = start.elapsed();
    assert!(elapsed < MAX_TIME, "took {elapsed:?}");
}

fn read_functions(executable: &Executable) {
    let Ok(functions) = executable.functions() else { return };
    assert_eq!(functions.len() as u64, executable.function_count());
    for function in functions.iter() {
        assert!(function.entry <= function.end);
        let _ = functions.sp_delta(&function, function.entry.add(5));
        let _ = functions.code_end(&function);
        if function.index.is_multiple_of(16) {
            let _ = executable.symbolize(function.entry.add(9));
        }
    }
    let _ = functions.inlined_copies(&|name| name.len().is_multiple_of(4));
    let _ = functions.by_name("main.main");
}

fn good(pie: bool) -> &'static Good {
    if pie { &PIE } else { &EXE }
}

/// A patch in one of the hot places, or anywhere.
fn patch(pie: bool) -> impl Strategy<Value = (u64, Vec<u8>)> {
    let good = good(pie);
    let size = good.bytes.len() as u64;
    let hot = proptest::sample::select(good.hot.clone())
        .prop_flat_map(|(start, size)| (Just(start), 0..size))
        .prop_map(|(start, at)| start + at);
    let place = prop_oneof![8 => hot, 1 => 0..size];
    let bytes = prop_oneof![
        4 => any::<u8>().prop_map(|byte| vec![byte]),
        2 => proptest::collection::vec(any::<u8>(), 8),
        1 => Just(vec![0xff; 8]),
        1 => Just(vec![0; 8]),
        1 => any::<u32>().prop_map(|word| word.to_le_bytes().to_vec()),
    ];
    (place, bytes)
}

/// `PROPTEST_CASES` cases; few without it, since each reads a whole executable.
fn config() -> ProptestConfig {
    let chosen = std::env::var_os("PROPTEST_CASES").map(|_| ProptestConfig::default().cases);
    ProptestConfig { cases: chosen.unwrap_or(48), failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_truncated_file_is_survived(pie: bool, kept in 0.0..1.0f64) {
        let good = good(pie);
        let size = (good.bytes.len() as f64 * kept) as u64;
        read_everything(Arc::new(Damaged { bytes: good.bytes.clone(), size, patches: vec![] }));
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_read_is_survived(
        pie: bool,
        kept in 0.0..1.0f64,
        good in prop_oneof![0usize..64, 0usize..4096],
        again: bool,
    ) {
        let bytes = self::good(pie).bytes.clone();
        let kept = (bytes.len() as f64 * kept) as u64;
        let reads = AtomicUsize::new(0);
        read_everything(Arc::new(Shrinking { bytes, kept, good, again, reads }));
    }

    #[test]
    fn a_cut_within_a_table_is_survived(pie: bool, pick: proptest::sample::Index, at in 0u64..4096) {
        let good = good(pie);
        let (start, size) = good.hot[pick.index(good.hot.len())];
        let size = (start + at.min(size)).min(good.bytes.len() as u64);
        read_everything(Arc::new(Damaged { bytes: good.bytes.clone(), size, patches: vec![] }));
    }

    #[test]
    fn changed_bytes_are_survived(
        (pie, patches) in any::<bool>()
            .prop_flat_map(|pie| (Just(pie), proptest::collection::vec(patch(pie), 1..12))),
    ) {
        read_everything(damaged(&good(pie).bytes, patches));
    }

    #[test]
    fn a_section_of_any_size_is_survived(pie: bool, pick: proptest::sample::Index, offset: u64, size: u64) {
        let good = good(pie);
        let (table, bytes) = good.hot[2];
        let header = table + 64 * pick.index((bytes / 64) as usize) as u64;
        // sh_offset and sh_size.
        let patches =
            vec![(header + 24, offset.to_le_bytes().to_vec()), (header + 32, size.to_le_bytes().to_vec())];
        read_everything(damaged(&good.bytes, patches));
    }
}

#[test]
fn the_intact_file_is_read_in_whole() {
    for pie in [false, true] {
        let source = damaged(&good(pie).bytes, vec![]);
        assert_eq!(source.size(), good(pie).bytes.len() as u64);
        let executable = Executable::open(source.clone()).unwrap();
        assert!(executable.functions().unwrap().len() > 1000);
        assert_eq!(executable.image().svma(FileOffset(0)), Some(executable.image().base()));
        read_everything(source);
    }
}
