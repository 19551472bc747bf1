//! Text of processes made safe for a terminal.

use crate::observation::Observation;

/// Names come from the processes: what a terminal would act on, or show in another order, is
/// replaced.
pub(crate) fn cleaned(mut of: Observation) -> Observation {
    for text in [&mut of.service, &mut of.exe].into_iter().chain(of.restricted.as_mut()) {
        *text = clean(text);
    }
    of
}

/// The same of one text.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if is_unsafe(c) { '?' } else { c }).collect()
}

fn is_unsafe(c: char) -> bool {
    let invisible = ['\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    c.is_control() || c == '\u{feff}' || invisible.iter().any(|range| range.contains(&c))
}
