//! Which files are refused, in which words, and which unusual ones are not.

mod common;

use address::{ReadAt, Svma};
use binary::{BuildMode, Error, Executable};
use common::{damaged, no_section_headers, open, open_good};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testkit::{Fixture, Mode, Recipe};

/// With the newest Go, since Go 1.19 does not record the build mode.
fn build(recipe: &Recipe) -> PathBuf {
    Fixture::build_as("symbols", &testkit::newest(), recipe)
}

fn refusal(path: &Path) -> String {
    open(path).err().unwrap_or_else(|| panic!("{} is accepted", path.display())).to_string()
}

fn refusal_of(source: Arc<dyn ReadAt>) -> String {
    Executable::open(source).expect_err("it is accepted").to_string()
}

/// The executable and where its pclntab is in the file.
fn bytes_and_table(mode: Mode) -> (Arc<Vec<u8>>, u64) {
    let path = Fixture::build("symbols", &testkit::selected(), mode);
    let executable = open_good(&path);
    let header = executable.module().unwrap().pc_header;
    let table = executable.image().file_offset(header).unwrap().0;
    (Arc::new(std::fs::read(path).unwrap()), table)
}

#[test]
fn other_machines_and_other_files_are_named() {
    let arm = build(&Recipe::new("arm64").env("GOARCH", "arm64"));
    assert_eq!(refusal(&arm), "not a 64-bit x86-64 executable (64-bit arm64)");
    let x86 = build(&Recipe::new("386").env("GOARCH", "386"));
    assert_eq!(refusal(&x86), "not a 64-bit x86-64 executable (32-bit x86)");
    assert_eq!(refusal(Path::new("Cargo.toml")), "not an ELF file");
    assert_eq!(refusal_of(Arc::new(vec![])), "not an ELF file");
    // A Rust program: this one.
    let rust = std::env::current_exe().unwrap();
    assert_eq!(refusal(&rust), "not a Go executable (no Go function table in it)");
}

#[test]
fn libraries_are_refused_by_their_build_mode() {
    for mode in ["c-shared", "plugin"] {
        for flags in ["", "-s -w"] {
            let label = format!("{mode}{}", flags.replace(' ', ""));
            let recipe = Recipe::new(&label)
                .cgo()
                .arg(&format!("-buildmode={mode}"))
                .arg(&format!("-ldflags={flags}"));
            assert_eq!(
                refusal(&build(&recipe)),
                format!(
                    "not an ordinary Go executable: Go code built as a library \
                     (-buildmode={mode}); only executables are supported"
                )
            );
        }
    }
}

#[test]
fn a_library_without_build_info_is_refused_by_its_moduledata() {
    let path = build(&Recipe::new("c-shared").cgo().arg("-buildmode=c-shared").arg("-ldflags="));
    let mut bytes = std::fs::read(path).unwrap();
    let magic = b"\xff Go buildinf:";
    while let Some(at) = bytes.windows(magic.len()).position(|window| window == magic) {
        bytes[at] = 0;
    }
    assert_eq!(
        refusal_of(Arc::new(bytes)),
        "not an ordinary Go executable: Go code built as a library \
         (-buildmode=c-shared, c-archive or plugin); only executables are supported"
    );
}

#[test]
fn a_changed_magic_is_called_obfuscation_and_an_old_one_old() {
    let (bytes, table) = bytes_and_table(Mode::Exe);
    let with_magic = |magic: u32| damaged(&bytes, vec![(table, magic.to_le_bytes().to_vec())]);
    assert_eq!(
        refusal_of(with_magic(0x1234_5678)),
        "not an ordinary Go executable: its function table starts with 0x12345678, which is not \
         Go's (obfuscated by garble?)"
    );
    assert_eq!(
        refusal_of(with_magic(0xffff_fffa)),
        "not an ordinary Go executable: built with a Go older than 1.18; Go 1.19 and newer are \
         supported"
    );
}

#[test]
fn build_info_behind_pointers_is_too_old() {
    let (bytes, _) = bytes_and_table(Mode::Exe);
    let path = Fixture::build("symbols", &testkit::selected(), Mode::Exe);
    let section = open_good(&path).image().section(".go.buildinfo").unwrap().clone();
    let old = damaged(&bytes, vec![(section.offset.0 + 15, vec![0])]);
    assert_eq!(
        refusal_of(old),
        "not an ordinary Go executable: built with a Go older than 1.18; Go 1.19 and newer are \
         supported"
    );
}

#[test]
fn a_packed_executable_is_told_from_others() {
    // UPX leaves program headers, its mark and packed bytes.
    let (bytes, _) = bytes_and_table(Mode::Exe);
    let mut packed = bytes[..4096].to_vec();
    for (at, patch) in no_section_headers() {
        packed[at as usize..][..patch.len()].copy_from_slice(&patch);
    }
    packed[0xe00..0xe04].copy_from_slice(b"UPX!");
    assert_eq!(
        refusal_of(Arc::new(packed)),
        "not an ordinary Go executable: packed with UPX; unpack it with upx -d first"
    );
}

/// The executable, with another Go version in its build info.
fn with_version(version: &str) -> (Result<Executable, Error>, Executable) {
    let path = Fixture::build("symbols", &testkit::selected(), Mode::Exe);
    let whole = open_good(&path);
    let width = whole.go_version().text.len();
    assert!(width >= version.len());
    let section = whole.image().section(".go.buildinfo").unwrap();
    // Behind the header and the length of the string.
    let patch = (section.offset.0 + 33, format!("{version:width$}").into_bytes());
    let source = damaged(&Arc::new(std::fs::read(&path).unwrap()), vec![patch]);
    (Executable::open(source), whole)
}

#[test]
fn an_unsupported_version_is_named() {
    // Opening needs the moduledata where the build info does not tell the build mode.
    let (executable, _) = with_version("go1.20");
    let error = executable.and_then(|executable| executable.functions().map(|_| ())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "not an ordinary Go executable: Go 1.20 is not supported; Go 1.19 and Go 1.21 to 1.27 are"
    );
}

#[test]
fn a_version_without_a_row_is_read_by_the_row_that_fits_the_file() {
    for version in ["go1.99", "devel"] {
        let (executable, whole) = with_version(version);
        let executable = executable.unwrap();
        assert_eq!(executable.module().unwrap(), whole.module().unwrap(), "{version}");
        assert_eq!(names(&executable), names(&whole), "{version}");
    }
}

fn names(executable: &Executable) -> Vec<(Svma, String)> {
    executable.functions().unwrap().iter().map(|f| (f.entry, f.name)).collect()
}

#[test]
fn an_old_table_is_called_old_without_section_headers_too() {
    let (bytes, table) = bytes_and_table(Mode::Exe);
    let mut patches = no_section_headers();
    patches.push((table, 0xffff_fffau32.to_le_bytes().to_vec()));
    assert_eq!(
        refusal_of(damaged(&bytes, patches)),
        "not an ordinary Go executable: built with a Go older than 1.18; Go 1.19 and newer are \
         supported"
    );
}

#[test]
fn the_table_of_a_program_carried_as_data_is_passed_over() {
    let path = Fixture::build("symbols", &testkit::selected(), Mode::Exe);
    let whole = open_good(&path);
    let image = whole.image();
    let table = whole.module().unwrap().pc_header;
    let head = image.read_vec(table, 72).unwrap();
    // A header that would do, in data that comes before the table.
    let decoy = Svma(whole.module().unwrap().rodata.0.next_multiple_of(8));
    assert!(decoy < table);
    let decoy = image.file_offset(decoy);
    let mut patches = no_section_headers();
    patches.push((decoy.unwrap().0, head));
    let bytes = Arc::new(std::fs::read(&path).unwrap());
    let bare = Executable::open(damaged(&bytes, patches)).unwrap();
    assert_eq!(bare.module().unwrap(), whole.module().unwrap());
    assert_eq!(names(&bare), names(&whole));
}

#[test]
fn section_headers_are_not_needed() {
    for mode in [Mode::Exe, Mode::StrippedPie, Mode::Cgo, Mode::CgoPie] {
        let path = Fixture::build("symbols", &testkit::selected(), mode);
        let whole = open_good(&path);
        let bytes = Arc::new(std::fs::read(path).unwrap());
        let bare = Executable::open(damaged(&bytes, no_section_headers())).unwrap();
        assert!(bare.image().sections().is_empty());
        assert!(bare.is_stripped());
        assert_eq!(bare.build_info().unwrap(), whole.build_info().unwrap());
        assert_eq!(bare.build_id(), whole.build_id());
        assert_eq!(bare.module().unwrap(), whole.module().unwrap());
        assert_eq!(names(&bare), names(&whole));
    }
}

/// The file as lld writes it: words that a relative relocation sets are zero.
fn without_relocated_words(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let executable = open_good(path);
    let image = executable.image();
    let words = |bytes: &[u8], size: usize| -> Vec<Vec<u64>> {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        bytes
            .chunks_exact(8 * size)
            .map(|entry| entry.chunks_exact(8).map(word).collect())
            .collect()
    };
    let dynamic = image.section(".dynamic").unwrap();
    let entries = words(&image.section_raw(dynamic).unwrap(), 2);
    let value = |tag| entries.iter().find(|entry| entry[0] == tag).unwrap()[1];
    let table = image.read_vec(Svma(value(7)), value(8)).unwrap();
    words(&table, 3)
        .into_iter()
        .filter(|entry| entry[1] & 0xffff_ffff == 8)
        .map(|entry| (image.file_offset(Svma(entry[0])).unwrap().0, vec![0; 8]))
        .collect()
}

#[test]
fn relocations_are_used_where_the_linker_left_zeros() {
    for mode in [Mode::StrippedPie, Mode::CgoPie] {
        let path = Fixture::build("symbols", &testkit::selected(), mode);
        let whole = open_good(&path);
        assert_eq!(whole.build_mode(), BuildMode::Pie);
        let mut bytes = std::fs::read(&path).unwrap();
        let patches = without_relocated_words(&path);
        assert!(patches.len() > 1000);
        for (at, zeros) in patches {
            bytes[at as usize..][..zeros.len()].copy_from_slice(&zeros);
        }
        let bytes = Arc::new(bytes);
        for patches in [vec![], no_section_headers()] {
            let bare = Executable::open(damaged(&bytes, patches)).unwrap();
            assert_eq!(bare.module().unwrap(), whole.module().unwrap());
            assert_eq!(names(&bare), names(&whole));
        }
    }
}
