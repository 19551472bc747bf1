//! What programs of one build get.

use super::cache::Image;
use super::program::Program;
use crate::Error;
use crate::install::{Layout, code_segment};
use crate::prepare::{self, Order};
use address::{Avma, Bias, Svma};
use binary::{Executable, Segment};
use handover::Span;
use probe::Plan;
use process::{FileStamp, Mapping, Maps};
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Different places of areas for which code is kept: one, as a rule.
const MAX_IMAGES: usize = 8;

/// Bytes compared at once.
const PIECE: u64 = 1 << 20;

/// Files of the same build that are remembered.
const MAX_KNOWN: usize = 256;

/// Where the kernel puts a position-independent program when it is not to choose at random: as good
/// as any place for making code in advance.
const PIE_BASE: u64 = 0x5555_5555_4000;

/// A plan for one build of a program, and the code made for it so far.
pub struct Planned {
    executable: Arc<Executable>,
    plan: Arc<Plan>,
    excluded: BTreeSet<u32>,
    rings: (u32, u32),
    text: Text,
    hooked: Option<Svma>,
    images: Mutex<Vec<Cached>>,
    known: Mutex<HashSet<FileStamp>>,
}

/// The code's segment, as stated.
#[derive(Clone, Copy)]
struct Text {
    address: Svma,
    len: u64,
}

struct Cached {
    /// From the image to the areas.
    distance: u64,
    bias: Bias,
    image: Arc<Image>,
}

impl Planned {
    /// `plan` is for `executable`; each program gets up to `ring_bytes` of rings. Nothing is written
    /// into the functions of the plan in `excluded`.
    ///
    /// Errors: [`capture::Error::Failed`] for a file without code.
    pub fn new(
        executable: Arc<Executable>,
        plan: Arc<Plan>,
        ring_bytes: usize,
        excluded: BTreeSet<u32>,
    ) -> Result<Self, capture::Error> {
        let segment = code_segment(executable.image()).ok_or_else(|| capture::Error::Failed {
            what: format!("make code for `{}`", plan.image.path),
            source: "its file has no code".into(),
        })?;
        let text = Text { address: segment.address, len: segment.file_size };
        Ok(Self {
            text,
            hooked: prepare::hooked(&executable),
            rings: prepare::ring_sizes(prepare::possible_cpus(), ring_bytes, 1),
            executable,
            plan,
            excluded,
            images: Mutex::default(),
            known: Mutex::default(),
        })
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The file that it is for.
    pub fn executable(&self) -> &Arc<Executable> {
        &self.executable
    }

    /// Makes the code in advance, for the places that it will most likely have: the first program then
    /// waits for it no longer than the others.
    ///
    /// Errors: [`capture::Error::Failed`] when none can be made.
    pub fn warm(&self) -> Result<(), capture::Error> {
        let image = self.executable.image();
        let base = image.base();
        let is_fixed = self.executable.build_mode() == binary::BuildMode::Exe;
        let bias = if is_fixed { Bias(0) } else { Bias(PIE_BASE.wrapping_sub(base.0)) };
        let loads = image.segments().iter().filter(|segment| segment.kind == 1);
        let spans = loads.map(|segment| Span {
            start: bias.to_avma(segment.address).0,
            len: segment.memory_size,
        });
        let layout = self.layout(0, bias, spans.collect::<Vec<_>>().into_iter())?;
        self.image(bias, &layout)?;
        Ok(())
    }

    /// How many times code was made for it and is kept.
    pub fn made(&self) -> usize {
        self.images.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn order(&self) -> Order<'_> {
        Order {
            executable: &self.executable,
            plan: &self.plan,
            excluded: &self.excluded,
            rings: self.rings,
            no_rdpid: false,
        }
    }

    /// The mapped code of a process whose image lies there.
    pub(super) fn text(&self, bias: Bias) -> Range<Avma> {
        let start = bias.to_avma(self.text.address);
        start..start.add(self.text.len)
    }

    /// Whether `program` runs the build that this is for. Files are looked into once.
    pub(super) fn is_for(&self, program: &Program) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(&program.stamp) {
            return true;
        }
        let source = Arc::clone(&program.executable);
        let is_it = Executable::open(source).is_ok_and(|other| is_same(&self.executable, &other));
        // A file that changed meanwhile has another stamp.
        if is_it && program.executable.stamp() == Some(program.stamp) {
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(program.stamp);
        }
        is_it
    }

    /// Where the areas go in a process that has mapped `ranges`.
    pub(super) fn layout(
        &self,
        pid: u32,
        bias: Bias,
        ranges: impl Iterator<Item = Span>,
    ) -> Result<Layout, Error> {
        let mapping = |span: Span| Mapping {
            start: Avma(span.start),
            end: Avma(span.start.saturating_add(span.len)),
            offset: address::FileOffset(0),
            executable: false,
            writable: false,
            shared: false,
            inode: 0,
            path: None,
            label: None,
        };
        let maps = Maps { mappings: ranges.map(mapping).collect() };
        Layout::choose(pid, &maps, &self.text(bias), prepare::wanted(&self.order()))
    }

    /// The code for areas in these places. Programs that start together wait for one to be made.
    pub(super) fn image(&self, bias: Bias, layout: &Layout) -> Result<Arc<Image>, Error> {
        let distance = layout.control.0.wrapping_sub(bias.0);
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |one: &&Cached| one.distance == distance && (one.image.is_movable || one.bias == bias);
        if let Some(found) = images.iter().find(is_it) {
            return Ok(Arc::clone(&found.image));
        }
        let emitted = prepare::make(&self.order(), layout, bias, self.hooked)
            .map_err(|reason| Error::Unsuitable { pid: 0, reason })?;
        let image = Arc::new(Image::of(emitted, &self.plan, self.text.address)?);
        if images.len() >= MAX_IMAGES {
            images.remove(0);
        }
        images.push(Cached { distance, bias, image: Arc::clone(&image) });
        Ok(image)
    }
}

/// Whether two files are of one build. Build ids do not tell alone: some builds set them all to
/// one word, or to none. The code does.
fn is_same(one: &Executable, other: &Executable) -> bool {
    let (Some(code), Some(other_code)) = (code_segment(one.image()), code_segment(other.image()))
    else {
        return false;
    };
    let place = |segment: &Segment| (segment.address, segment.offset, segment.file_size);
    if one.build_id() != other.build_id() || place(code) != place(other_code) {
        return false;
    }
    let pieces = (0..code.file_size).step_by(PIECE as usize);
    pieces.into_iter().all(|at| {
        let (start, len) = (code.address.add(at), PIECE.min(code.file_size - at));
        let read = |executable: &Executable| executable.image().read_vec(start, len).ok();
        let bytes = read(one);
        bytes.is_some() && bytes == read(other)
    })
}
