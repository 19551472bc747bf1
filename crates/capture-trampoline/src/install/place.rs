//! Where a process has the image.

use crate::Error;
use address::{Avma, Bias};
use binary::{Image, Segment};
use process::{Maps, Process};
use std::ops::Range;
use std::path::Path;

/// Where a process has the image.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// What to add to stated addresses.
    pub bias: Bias,
    /// The mapped code.
    pub text: Range<Avma>,
}

impl Place {
    /// Looks it up. Refuses a process whose code was remapped: what lies there is not the file.
    pub(crate) fn of(process: &Process, image: &Image) -> Result<Self, Error> {
        let unsuitable =
            |reason: &str| Error::Unsuitable { pid: process.pid(), reason: reason.to_owned() };
        let bias = process.bias(image.base())?;
        let code = code_segment(image).ok_or_else(|| unsuitable("its file has no code"))?;
        let start = bias.to_avma(code.address);
        let text = start..start.add(code.file_size);
        let maps = process.maps()?;
        let exe = process.exe_path()?;
        let offset = code.offset.0;
        if !is_whole(&maps, &text, &exe, offset) {
            return Err(unsuitable(
                "its code was remapped (huge pages?) and is not its file: use --backend uprobe",
            ));
        }
        Ok(Self { bias, text })
    }
}

/// The segment that holds the code: the largest that may be run.
pub(crate) fn code_segment(image: &Image) -> Option<&Segment> {
    const EXECUTABLE: u32 = 1;
    const LOAD: u32 = 1;
    let code = image.segments().iter().filter(|s| s.kind == LOAD && s.flags & EXECUTABLE != 0);
    code.max_by_key(|segment| segment.file_size)
}

/// Whether all of `text` shows the file `exe` from `offset` on. A program that changes the
/// protection of its code has it in several mappings.
fn is_whole(maps: &Maps, text: &Range<Avma>, exe: &Path, offset: u64) -> bool {
    let mut at = text.start;
    while at < text.end {
        let Some(mapping) = maps.find(at).filter(|m| m.path.as_deref() == Some(exe)) else {
            return false;
        };
        let before = at.0 - mapping.start.0;
        let wanted = offset.checked_add(at.0 - text.start.0);
        if mapping.offset.0.checked_add(before) != wanted {
            return false;
        }
        at = mapping.end;
    }
    true
}
