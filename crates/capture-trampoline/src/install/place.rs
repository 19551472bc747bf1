//! Where a process has the image.

use crate::Error;
use address::{Avma, Bias};
use binary::Image;
use process::Process;
use std::ops::Range;

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
        const EXECUTABLE: u32 = 1;
        const LOAD: u32 = 1;
        let unsuitable =
            |reason: &str| Error::Unsuitable { pid: process.pid(), reason: reason.to_owned() };
        let bias = process.bias(image.base())?;
        let code = image
            .segments()
            .iter()
            .filter(|s| s.kind == LOAD && s.flags & EXECUTABLE != 0)
            .max_by_key(|s| s.file_size)
            .ok_or_else(|| unsuitable("its file has no code"))?;
        let start = bias.to_avma(code.address);
        let text = start..start.add(code.file_size);
        let maps = process.maps()?;
        let exe = process.exe_path()?;
        let mapping = maps
            .find(start)
            .filter(|m| m.executable && m.path.as_deref() == Some(&exe))
            .ok_or_else(|| unsuitable("its code was remapped (huge pages?) and is not its file"))?;
        if mapping.end < text.end {
            return Err(unsuitable("its code was remapped in parts and is not its file"));
        }
        Ok(Self { bias, text })
    }
}
