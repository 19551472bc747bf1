//! One process, for as long as it lives.

use super::image::{Image, Images};
use super::service::service_of;
use inspect::metrics::{Confirmed, GoroutineStates, Options, RuntimeMetrics, Value};
use process::{FileIdentity, ImageStamp, Process, ProcessMemory, Usage, UsageReader};
use std::sync::Arc;
use std::time::Duration;

/// Times that a runtime is looked for again where not all of it was found: a process that has just
/// begun has not set it up.
const TRIES: u32 = 20;

/// How long a process may take from giving up its memory to its end.
const DYING: Duration = Duration::from_millis(200);

/// What to read beyond what is cheap.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wants {
    /// Goroutines are counted by state in processes that have at most so many.
    pub states_up_to: u64,
}

/// What was read of a process.
#[derive(Clone, Debug)]
pub struct Read {
    /// What the kernel counts.
    pub usage: Usage,
    /// The Go runtime, when it can be read.
    pub runtime: Option<RuntimeMetrics>,
    /// Goroutines by state, when they were counted.
    pub states: Option<Value<GoroutineStates>>,
    /// Why there is nothing of the runtime this time.
    pub why: Option<String>,
}

/// A process and what is known of the program that it runs.
pub struct Watched {
    /// The process.
    pub process: Process,
    /// Its executable.
    pub exe: String,
    /// The service it belongs to.
    pub service: String,
    /// Which file its executable is.
    pub file: Option<FileIdentity>,
    /// Whether it is a Go program, one that cannot be read too.
    pub is_go: bool,
    /// Which program image all of this is of.
    stamp: ImageStamp,
    runtime: Runtime,
}

/// The Go runtime of a process.
enum Runtime {
    Found(Box<Found>),
    /// Why it is not read.
    Restricted(String),
}

struct Found {
    image: Arc<Image>,
    memory: ProcessMemory,
    confirmed: Confirmed,
    bias: address::Bias,
    tries: u32,
}

/// What became of a process since it was read last.
pub enum Seen {
    /// It was read; whether it runs another image than before.
    Read { read: Box<Read>, replaced: bool },
    /// It has ended.
    Ended,
}

impl Watched {
    /// Finds out what `process` runs. An error is of a process that is gone.
    pub fn open(process: Process, images: &mut Images) -> Result<Self, process::Error> {
        let stamp = process.image_stamp()?;
        let exe = process.exe_path().map_or_else(
            |_| process.command_line().unwrap_or_default().into_iter().next().unwrap_or_default(),
            |path| path.display().to_string(),
        );
        let service = service_of(&process, &exe);
        let file = process.exe_identity().ok();
        let (is_go, runtime) = match find(&process, file, images) {
            Ok(found) => (true, Runtime::Found(Box::new(found))),
            Err(error) if process.is_alive() => {
                (is_of_go(&error), Runtime::Restricted(format!("{error:#}")))
            }
            Err(_) => return Err(process::Error::Gone(process.pid())),
        };
        Ok(Self { process, exe, service, file, is_go, stamp, runtime })
    }

    /// Its version of Go.
    pub fn go_version(&self) -> Option<&str> {
        match &self.runtime {
            Runtime::Found(found) => Some(&found.image.go_version),
            Runtime::Restricted(_) => None,
        }
    }

    /// Why its runtime is not read.
    pub fn restricted(&self) -> Option<&str> {
        match &self.runtime {
            Runtime::Found(_) => None,
            Runtime::Restricted(why) => Some(why),
        }
    }

    /// Reads it. Nothing of another process or program image is among what comes back: both
    /// are looked at before and after.
    pub fn read(&mut self, wants: Wants, images: &mut Images, usages: &mut UsageReader) -> Seen {
        let mut replaced = false;
        // A program that replaces itself all the time is not read.
        for _ in 0..4 {
            let Ok(usage) = usages.read(&self.process) else { return Seen::Ended };
            let left = self.has_left(usage.image);
            if left && self.process.wait_exit(DYING) {
                return Seen::Ended;
            }
            if left && !self.is_current() {
                // Another thread of it called execve meanwhile, and has taken its place.
                continue;
            }
            if !left && usage.image != self.stamp || !self.is_current() {
                replaced = true;
                if self.reopen(images).is_err() {
                    return Seen::Ended;
                }
                continue;
            }
            let (runtime, states, why) = self.sample(wants);
            match self.process.image_stamp() {
                Ok(stamp) if (left || stamp == self.stamp) && self.is_current() => {
                    let read = Box::new(Read { usage, runtime, states, why });
                    return Seen::Read { read, replaced };
                }
                Ok(_) => {}
                Err(_) => return Seen::Ended,
            }
        }
        match usages.read(&self.process) {
            Ok(usage) => {
                let why = Some("it replaced its program again and again".to_owned());
                let read = Box::new(Read { usage, runtime: None, states: None, why });
                Seen::Read { read, replaced }
            }
            Err(_) => Seen::Ended,
        }
    }

    /// Whether the thread that the process began with has no memory any more: mostly all others
    /// are about to have none either, but it may have ended alone.
    fn has_left(&self, image: ImageStamp) -> bool {
        image == ImageStamp::default() && self.stamp != image
    }

    /// Whether the memory that was opened is still the process's: tells an execve also where the
    /// kernel puts images in the same place each time.
    fn is_current(&self) -> bool {
        match &self.runtime {
            Runtime::Found(found) => found.memory.is_current(found.bias.to_avma(found.image.base)),
            Runtime::Restricted(_) => true,
        }
    }

    fn reopen(&mut self, images: &mut Images) -> Result<(), process::Error> {
        let process = Process::open(self.process.pid())?;
        if process.start_ticks() != self.process.start_ticks() {
            return Err(process::Error::Gone(process.pid()));
        }
        if self.has_left(process.image_stamp()?) {
            // It is ending, or on its way to another image: the next look tells.
            return Ok(());
        }
        *self = Self::open(process, images)?;
        Ok(())
    }

    fn sample(&mut self, wants: Wants) -> Sampled {
        let Runtime::Found(found) = &mut self.runtime else { return (None, None, None) };
        let plan = &found.image.plan;
        if !found.confirmed.is_complete() && found.tries < TRIES {
            found.tries += 1;
            found.confirmed = plan.confirm(&found.memory, found.bias);
        }
        match plan.sample(&found.memory, &found.confirmed, Options::default()) {
            Ok(runtime) => {
                let goroutines = &runtime.scheduler.goroutines;
                let few = matches!(goroutines, Ok(count) if *count <= wants.states_up_to);
                let states = few.then(|| plan.goroutine_states(&found.memory, &found.confirmed));
                (Some(runtime), states, None)
            }
            Err(error) => (None, None, Some(error.to_string())),
        }
    }
}

/// The runtime, goroutines by state, and why there is nothing of the runtime.
type Sampled = (Option<RuntimeMetrics>, Option<Value<GoroutineStates>>, Option<String>);

/// Whether what could not be read is a Go program.
fn is_of_go(error: &anyhow::Error) -> bool {
    use binary::Error::{NotElf, NotGo, WrongMachine};
    let unreachable = error.downcast_ref::<process::Error>().is_some();
    let other = matches!(error.downcast_ref(), Some(NotElf | NotGo(_) | WrongMachine(_)));
    !unreachable && !other
}

fn find(
    process: &Process,
    file: Option<FileIdentity>,
    images: &mut Images,
) -> anyhow::Result<Found> {
    let file = match file {
        Some(file) => file,
        None => process.exe_identity()?,
    };
    let image = images.of(process, file)?;
    let memory = process.memory()?;
    let bias = process.bias(image.base)?;
    let confirmed = image.plan.confirm(&memory, bias);
    Ok(Found { image, memory, confirmed, bias, tries: 0 })
}
