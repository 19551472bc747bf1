//! Bringing code into a program that is being started, before its first instruction.

use crate::Error;
use crate::capture::check_image;
use crate::install::{Place, Target};
use crate::memory::TargetMemory;
use crate::prepare::{self, Hooks, Made, Order};
use crate::ptrace::{AboutToExec, Stopped, on_own_thread};
use capture::Request;
use process::Process;
use std::sync::mpsc;
use std::time::Duration;

/// How long a launched process may take to become the program.
const EXEC_LIMIT: Duration = Duration::from_secs(60);

/// What is done meanwhile by whoever starts the program.
pub(crate) struct Start<'a> {
    /// Lets the waiting process become the program.
    pub release: &'a mut (dyn FnMut() -> Result<(), capture::Error> + 'a),
    /// Told why there is no code, while the program stands before its first instruction.
    pub instead: &'a mut (dyn FnMut(&capture::Error) + 'a),
}

/// What the tracing thread says.
enum Said {
    /// The process is watched, and may become the program.
    Watching,
    /// The program stands there and gets no code. It goes on when the answer comes.
    Impossible(capture::Error),
}

/// Installs in process `pid`, which waits for [`Start::release`].
pub(crate) fn launch(
    pid: u32,
    request: &Request<'_>,
    order: &Order<'_>,
    start: &mut Start<'_>,
) -> Result<(Target, Made), capture::Error> {
    let (say, said) = mpsc::channel();
    let (answer, answered) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        // The trace belongs to that thread; this one waits in `release` until the program is there,
        // and signals that arrive meanwhile have to be answered.
        let tracing = scope.spawn(move || {
            on_own_thread(move || {
                let waiting = AboutToExec::seize(pid)?;
                // The receiver waits for this.
                let _ = say.send(Said::Watching);
                let process = Process::open(pid)?;
                let mut stopped =
                    waiting.wait(EXEC_LIMIT, || check_image(&process, request).is_ok())?;
                let installed = install(process, order, &mut stopped);
                Ok(installed.map_err(|error| {
                    let error = capture::Error::from(error);
                    let told = say.send(Said::Impossible(error)).is_ok();
                    // The other side hangs up when it is done. Dropping `stopped` then lets go.
                    let _ = told && answered.recv().is_ok();
                }))
            })
        });
        // Without a word the thread has failed, and says why.
        let released = match said.recv() {
            Ok(_) => (start.release)(),
            Err(_) => Ok(()),
        };
        let impossible = match said.recv() {
            Ok(Said::Impossible(error)) => {
                (start.instead)(&error);
                Err(error)
            }
            Ok(Said::Watching) | Err(_) => Ok(()),
        };
        drop(answer);
        let result = match tracing.join() {
            Ok(result) => result.map_err(capture::Error::from),
            Err(panic) => std::panic::resume_unwind(panic),
        };
        released?;
        impossible?;
        result?.map_err(|()| capture::Error::ProcessGone(pid))
    })
}

fn install(
    process: Process,
    order: &Order<'_>,
    stopped: &mut Stopped,
) -> Result<(Target, Made), Error> {
    let memory = TargetMemory::open(process.pid())?;
    let place = Place::of(&process, order.executable.image())?;
    let made = prepare::prepare(&process, &place, order, Hooks::Allowed)?;
    let target = Target::launch(process, memory, &place, &made.prepared, stopped)?;
    Ok((target, made))
}
