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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Different places of areas for which code is kept: one, as a rule.
const MAX_IMAGES: usize = 8;

/// How often code may be made for further places, and after which time once more: a program can say of its memory
/// what it likes, and making takes a while.
const MAX_MADE: u32 = MAX_IMAGES as u32;
const MADE_AGAIN: Duration = Duration::from_secs(10);

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
    /// The first one stays, which was made in advance or for the first program.
    images: Mutex<Vec<Cached>>,
    /// Held while code is made; those who need none do not wait.
    making: Mutex<Allowance>,
    known: Mutex<HashSet<FileStamp>>,
}

/// The code's segment, as stated.
#[derive(Clone, Copy)]
struct Text {
    address: Svma,
    len: u64,
}

struct Cached {
    /// Where the image was for which it was made, and where the areas.
    bias: Bias,
    layout: Layout,
    image: Arc<Image>,
    used: Instant,
}

/// How often code may still be made.
struct Allowance {
    left: u32,
    since: Instant,
}

impl Allowance {
    fn new() -> Self {
        Self { left: MAX_MADE, since: Instant::now() }
    }

    /// Takes one, if there is one at `now`.
    fn take(&mut self, now: Instant) -> bool {
        while self.left < MAX_MADE && now.saturating_duration_since(self.since) >= MADE_AGAIN {
            self.left += 1;
            self.since += MADE_AGAIN;
        }
        if self.left == MAX_MADE {
            self.since = now;
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
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
            making: Mutex::new(Allowance::new()),
            known: Mutex::default(),
        })
    }

    /// The executable was read from the file with this stamp, which need not be compared with it again.
    pub fn read_from(&self, stamp: FileStamp) {
        lock(&self.known).insert(stamp);
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
        self.place(0, bias, spans.collect::<Vec<_>>().into_iter())?;
        Ok(())
    }

    /// How many times code was made for it and is kept.
    pub fn made(&self) -> usize {
        lock(&self.images).len()
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
        if lock(&self.known).contains(&program.stamp) {
            return true;
        }
        let source = Arc::clone(&program.executable);
        let is_it =
            Executable::open(source).is_ok_and(|other| is_same_build(&self.executable, &other));
        // A file that changed meanwhile has another stamp.
        if is_it && program.executable.stamp() == Some(program.stamp) {
            let mut known = lock(&self.known);
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(program.stamp);
        }
        is_it
    }

    /// Where the areas go in a process that has mapped `ranges`, and the code for them there. Programs that start
    /// together wait for one to be made.
    pub(super) fn place(
        &self,
        pid: u32,
        bias: Bias,
        ranges: impl Iterator<Item = Span>,
    ) -> Result<(Layout, Arc<Image>), Error> {
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
        if let Some(found) = self.kept(bias, &maps) {
            return Ok(found);
        }
        let mut allowance = lock(&self.making);
        // Somebody may have made it meanwhile.
        if let Some(found) = self.kept(bias, &maps) {
            return Ok(found);
        }
        let layout = Layout::choose(pid, &maps, &self.text(bias), prepare::wanted(&self.order()))?;
        let unsuitable = |reason: String| Error::Unsuitable { pid, reason };
        if !allowance.take(Instant::now()) {
            let reason =
                "its memory is taken where others have their code, and more was made lately";
            return Err(unsuitable(reason.to_owned()));
        }
        let emitted =
            prepare::make(&self.order(), &layout, bias, self.hooked).map_err(unsuitable)?;
        let image = Arc::new(Image::of(emitted, &self.plan, self.text.address)?);
        let mut images = lock(&self.images);
        if images.len() >= MAX_IMAGES {
            let others = images.iter().enumerate().skip(1);
            if let Some((oldest, _)) = others.min_by_key(|(_, one)| one.used) {
                images.remove(oldest);
            }
        }
        images.push(Cached { bias, layout, image: Arc::clone(&image), used: Instant::now() });
        Ok((layout, image))
    }

    /// Code that was made for places that are free.
    fn kept(&self, bias: Bias, maps: &Maps) -> Option<(Layout, Arc<Image>)> {
        lock(&self.images).iter_mut().find_map(|one| {
            let by = bias.0.wrapping_sub(one.bias.0);
            let moved = (one.image.is_movable || by == 0).then(|| one.layout.moved(by, maps));
            let layout = moved.flatten()?;
            one.used = Instant::now();
            Some((layout, Arc::clone(&one.image)))
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether two files are of one build. Build ids do not tell alone: some builds set them all to
/// one word, or to none. The code does.
pub fn is_same_build(one: &Executable, other: &Executable) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_made_no_faster_than_it_may_be() {
        let start = Instant::now();
        let mut allowance = Allowance { left: MAX_MADE, since: start };
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        // Nothing is saved up beyond the most.
        let taken = (0..20).filter(|_| allowance.take(at(1000))).count();
        assert_eq!(taken, MAX_MADE as usize);
        assert!(!allowance.take(at(1009)) && allowance.take(at(1010)) && !allowance.take(at(1019)));
        assert!(allowance.take(at(1030)) && allowance.take(at(1030)) && !allowance.take(at(1030)));
    }
}
