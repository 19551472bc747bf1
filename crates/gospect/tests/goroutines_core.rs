//! The core of `goroutines` for one Go version and build mode: what `cargo xtask matrix --suite
//! goroutines_core` runs for all of them.

mod common;
#[path = "common/snapshots.rs"]
mod snapshots;

use snapshots::{PARKED, check_core_dump, check_json, compare_with_its_own};
use testkit::{Mode, selected};

#[test]
fn programs_are_seen_as_they_see_themselves() {
    compare_with_its_own("parked", &selected(), Mode::selected(), PARKED);
}

#[test]
fn json_has_what_the_text_lacks() {
    check_json(&selected(), Mode::selected());
}

#[test]
fn a_core_dump_shows_what_the_crash_showed() {
    check_core_dump(&selected(), Mode::selected());
}
