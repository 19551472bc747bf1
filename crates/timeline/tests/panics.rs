//! Panics that began, for those who ask.

#[allow(dead_code, reason = "shared with other tests")]
mod support;

use support::Story;
use timeline::{Event, Options};

/// What is said of panics, in order: when, of what type, with which text.
fn told(panics: bool) -> String {
    let mut story = Story::of(&["main.f"]);
    story.enter("", "main.f", 100, &[]).panic(300, 7, &[1; 16], "no").recover(100);
    story.enter("", "main.f", 200, &[]).panic(400, 8, &[1; 16], "again");
    let (events, _) = story.events(Options { panics, ..Options::default() });
    let said = events.iter().filter_map(|event| match event {
        Event::Panicking(panic) => {
            Some(format!("{} g{} {:?}\n", panic.type_word, panic.goid, panic.text))
        }
        _ => None,
    });
    said.collect()
}

#[test]
fn panics_are_told_when_they_begin_and_only_when_asked_for() {
    let expected = "\
7 g18 Some(String { bytes: [110, 111], len: 2 })
8 g18 Some(String { bytes: [97, 103, 97, 105, 110], len: 5 })
";
    assert_eq!(told(true), expected);
    assert_eq!(told(false), "");
}
