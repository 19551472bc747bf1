//! Lookups in the committed table; `cargo xtask offsets --check` tests the table itself.

use super::*;

fn field(version: &str, structure: &str, field: &str) -> String {
    let version = GoVersion::parse(version);
    match RuntimeLayouts::new(&version, None).field(structure, field) {
        Ok(at) => format!("{}:{} {}", at.offset, at.size, at.provenance),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_release_has_its_own_row() {
    let goid = |version| field(version, "runtime.g", "goid");
    assert_eq!(goid("go1.19.8"), "152:8 table");
    assert_eq!(goid("go1.22.10"), "152:8 table");
    assert_eq!(goid("go1.23.9"), "160:8 table");
    assert_eq!(goid("go1.24.11"), "160:8 table");
    assert_eq!(goid("go1.25.5"), "152:8 table");
    assert_eq!(goid("go1.27.3"), "152:8 table");
}

#[test]
fn a_patch_release_has_the_row_of_its_line() {
    assert_eq!(field("go1.24.3", "runtime.g", "stack.hi"), "8:8 table");
    assert_eq!(field("go1.23", "runtime.g", "atomicstatus"), "152:4 table");
}

#[test]
fn older_names_stand_for_the_newest() {
    assert_eq!(field("go1.24.11", "runtime.schedt", "runq.size"), "120:4 table");
    assert_eq!(field("go1.25.5", "runtime.schedt", "runq.size"), "128:4 table");
    assert_eq!(field("go1.19.8", "internal/abi.Type", "Size_"), "0:8 table");
    assert_eq!(field("go1.19.8", "internal/abi.ITab", "Fun"), "24:8 table");
}

#[test]
fn elements_of_arrays_have_their_size() {
    assert_eq!(field("go1.27.3", "runtime.mstats", "heapStats.stats[]"), "0:1168 table");
}

#[test]
fn no_build_gets_a_neighbours_row() {
    let goid = |version| field(version, "runtime.g", "goid");
    let refused = |version: &str, why: &str| {
        format!(
            "the layout of runtime.g in {version} is not known ({why}): use a build with debug \
             info, or name its debug file"
        )
    };
    for version in ["go1.24.5-microsoft", "go1.25.5 X:greenteagc", "devel go1.28-abc", "go1.27rc1"]
    {
        assert_eq!(goid(version), refused(version, "it is not a plain release"));
    }
    for version in ["go1.20.14", "go1.18.1", "go1.99.0"] {
        assert_eq!(goid(version), refused(version, "no release of its line was measured"));
    }
    assert_eq!(goid(""), refused("unknown", "the Go version is not recorded"));
}

#[test]
fn what_a_backport_moved_is_refused_for_older_patch_releases() {
    assert_eq!(field("go1.24.11", "runtime.m", "alllink"), "352:8 table");
    assert_eq!(
        field("go1.24.3", "runtime.m", "alllink"),
        "runtime.m of go1.24.3 is not known from allpSnapshot on, which go1.24.11 or an earlier \
         patch release inserted: use a build with debug info"
    );
    assert_eq!(field("go1.24.3", "runtime.m", "curg"), "192:8 table");
    let version = GoVersion::parse("go1.24.3");
    assert!(RuntimeLayouts::new(&version, None).size("runtime.m").is_err());
}

#[test]
fn code_tells_whether_a_backport_is_there() {
    let version = GoVersion::parse("go1.24.3");
    let at = |thread_link: u64, field: &str| {
        let plain = RuntimeLayouts::new(&version, None);
        let layouts = RuntimeLayouts { thread_link: Some(thread_link), ..plain };
        let found = layouts.field("runtime.m", field).ok()?;
        Some(format!("{} {}", found.offset, found.provenance))
    };
    // What debug info of Go 1.24.3 has.
    assert_eq!(at(328, "alllink").unwrap(), "328 code");
    assert_eq!(at(328, "ncgocall").unwrap(), "296 code");
    assert_eq!(at(328, "curg").unwrap(), "192 table");
    assert_eq!(at(352, "ncgocall").unwrap(), "320 code");
    assert_eq!(at(344, "ncgocall"), None);
}

#[test]
fn a_field_that_a_version_lacks_is_said_to_be_absent() {
    let expected = "runtime.g of go1.19.8 has no field parentGoid";
    assert_eq!(field("go1.19.8", "runtime.g", "parentGoid"), expected);
    assert_eq!(
        field("go1.27.3", "runtime.nonsense", "x"),
        "runtime.nonsense of go1.27.3 has no field x"
    );
}

#[test]
fn every_line_of_the_names_file_is_understood() {
    let text = include_str!("../../data/layouts.names");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    assert_eq!(names().lines(), lines);
}
