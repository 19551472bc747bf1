//! The thread that plans: a large executable takes seconds, in which captures have to be read.

use super::prepared::Prepared;
use crate::target::Target;
use agent::{Glob, Service, Way};
use process::FileStamp;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a plan that nobody uses is kept: a service that ends often begins anew.
const UNUSED: Duration = Duration::from_secs(300);
/// Plans kept at the most.
const KEPT: usize = 64;
/// Of them for programs that are expected.
const EXPECTED: usize = KEPT / 2;
/// Executables that wait to be planned, each an open file; who comes later asks again.
const WAITING: usize = 8;

/// What comes of planning.
pub type Outcome = Result<Arc<Prepared>, String>;

struct Job {
    target: Target,
    service: Service,
    /// Whether programs will ask for the code, which is made now then.
    warm: bool,
}

struct Known {
    file: FileStamp,
    service: Service,
    /// `None` while it is being planned.
    outcome: Option<Outcome>,
    used: Instant,
}

/// Plans, unless there is a plan of the same build among those that were `made`.
fn plan(target: Target, service: &Service, warm: bool, made: &[Weak<Prepared>]) -> Outcome {
    let same = made.iter().filter_map(Weak::upgrade).find(|it| it.is_for(&target, service));
    let outcome = match same {
        Some(same) => Ok(same.of_copy(target)),
        None => Prepared::new(target, service),
    };
    if warm && let Ok(carried) = outcome.as_ref().map(Prepared::carried) {
        // Whoever asks is told why there is none.
        _ = carried.map(|carried| carried.warm());
    }
    outcome.map(Arc::new).map_err(|error| format!("{error:#}"))
}

/// Plans, each executable once for services that want the same of it.
pub struct Planner {
    jobs: Sender<Job>,
    done: Receiver<(FileStamp, Service, Outcome)>,
    known: Vec<Known>,
}

impl Planner {
    /// One with its thread.
    pub fn start() -> std::io::Result<Self> {
        let (jobs, waiting) = channel::<Job>();
        let (sender, done) = channel();
        std::thread::Builder::new().name("planner".to_owned()).spawn(move || {
            let mut made = Vec::new();
            for Job { target, service, warm } in waiting {
                let file = target.stamp;
                let planned = || plan(target, &service, warm, &made);
                // A file that breaks the planning of itself is no reason to plan nothing any more.
                let outcome = catch_unwind(AssertUnwindSafe(planned)).unwrap_or_else(|_| {
                    Err("its planning failed: a mistake in gospect".to_owned())
                });
                made.retain(|one: &Weak<Prepared>| one.strong_count() > 0);
                made.extend(outcome.iter().map(Arc::downgrade));
                if sender.send((file, service, outcome)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs, done, known: Vec::new() })
    }

    /// The plan of an executable for a service; `None` while it is being made. `open` opens the executable.
    pub fn of(
        &mut self,
        file: FileStamp,
        service: &Service,
        open: impl FnOnce() -> anyhow::Result<Target>,
    ) -> Option<Outcome> {
        self.planned(file, service, open, false)
    }

    /// Plans the executables that services name and whose programs may ask for their plans, so that the first one
    /// need not wait: a plan takes longer than a program does. Says how many are ready. Plans are kept as long as this
    /// is repeated; a file that has changed is planned anew.
    pub fn expect(&mut self, services: &[Service]) -> usize {
        let asks = |service: &&Service| {
            service.is_instrumented() && service.inject.contains(&Way::Preload)
        };
        let named = services.iter().filter(asks).flat_map(|service| {
            let paths = service.matching.exe.iter().filter(|glob| glob.is_literal());
            paths.map(move |glob: &Glob| (Path::new(glob.text()), service))
        });
        let mut ready = 0;
        for (path, service) in named.take(EXPECTED) {
            let Ok(meta) = std::fs::metadata(path) else { continue };
            // Opening anything else may wait for ever.
            if !meta.is_file() {
                continue;
            }
            let open = || Target::of_path(path, None);
            let outcome = self.planned(FileStamp::from(&meta), service, open, true);
            ready += usize::from(matches!(outcome, Some(Ok(_))));
        }
        ready
    }

    fn planned(
        &mut self,
        file: FileStamp,
        service: &Service,
        open: impl FnOnce() -> anyhow::Result<Target>,
        warm: bool,
    ) -> Option<Outcome> {
        self.take();
        let is_it = |known: &&mut Known| known.file == file && known.service.plans_as(service);
        if let Some(known) = self.known.iter_mut().find(is_it) {
            known.used = Instant::now();
            return known.outcome.clone();
        }
        if self.known.iter().filter(|known| known.outcome.is_none()).count() >= WAITING {
            return None;
        }
        self.forget();
        let target = match open() {
            Ok(target) => target,
            Err(error) => {
                let outcome = Some(Err(format!("{error:#}")));
                // A process may be gone, which says nothing of the file.
                if warm {
                    let (service, used) = (service.clone(), Instant::now());
                    self.known.push(Known { file, service, outcome: outcome.clone(), used });
                }
                return outcome;
            }
        };
        // A process may have become another program just now.
        let file = target.stamp;
        let service = service.clone();
        let known = Known { file, service: service.clone(), outcome: None, used: Instant::now() };
        self.known.push(known);
        match self.jobs.send(Job { target, service, warm }) {
            Ok(()) => None,
            Err(_) => Some(Err("the planning thread failed".to_owned())),
        }
    }

    /// Takes a plan that was made elsewhere.
    pub fn add(&mut self, service: &Service, prepared: &Arc<Prepared>) {
        self.known.push(Known {
            file: prepared.target.stamp,
            service: service.clone(),
            outcome: Some(Ok(Arc::clone(prepared))),
            used: Instant::now(),
        });
    }

    fn take(&mut self) {
        for (file, service, outcome) in self.done.try_iter() {
            let is_it = |known: &&mut Known| known.file == file && known.service.plans_as(&service);
            if let Some(known) = self.known.iter_mut().find(is_it) {
                known.outcome = Some(outcome);
            }
        }
    }

    fn forget(&mut self) {
        let now = Instant::now();
        let is_used = |known: &Known| match &known.outcome {
            None => true,
            Some(Ok(prepared)) => {
                Arc::strong_count(prepared) > 1 || now.duration_since(known.used) < UNUSED
            }
            Some(Err(_)) => now.duration_since(known.used) < UNUSED,
        };
        self.known.retain(is_used);
        while self.known.len() >= KEPT {
            // What is being planned is not asked for a second time.
            let ready = self.known.iter().enumerate().filter(|(_, known)| known.outcome.is_some());
            let oldest = ready.min_by_key(|(_, known)| known.used);
            match oldest.map(|(at, _)| at) {
                Some(at) => drop(self.known.remove(at)),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{Fixture, Mode, newest};

    /// Copies of one executable, as containers of one image have them, are planned once; others for themselves.
    #[test]
    fn files_of_one_build_share_a_plan() {
        let name = format!("gospect-copies-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a directory");
        let copy = |name: &str, fixture: &str, mode: Mode| {
            let copy = directory.join(name);
            std::fs::copy(Fixture::build(fixture, &newest(), mode), &copy).expect("a copy");
            copy
        };
        let files = [
            copy("one", "httpserver", Mode::Exe),
            copy("same", "httpserver", Mode::Exe),
            copy("stripped", "httpserver", Mode::Stripped),
            copy("other", "relay", Mode::Exe),
        ];
        let mut planner = Planner::start().expect("a thread");
        let mut planned = |file: &Path, service: &Service| {
            let stamp = FileStamp::from(&std::fs::metadata(file).expect("a file"));
            loop {
                let outcome = planner.of(stamp, service, || Target::of_path(file, None));
                match outcome {
                    Some(outcome) => break outcome.expect("a plan"),
                    None => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        };
        let service = Service::all();
        let all = files.each_ref().map(|file| planned(file, &service));
        let code = |prepared: &Arc<Prepared>| prepared.carried().expect("code");
        let is_shared = all.each_ref().map(|one| Arc::ptr_eq(&code(one), &code(&all[0])));
        assert_eq!(is_shared, [true, true, false, false]);
        for (prepared, file) in all.iter().zip(&files) {
            assert_eq!(&prepared.target.shown, file);
            assert_eq!(prepared.planned.plan.image.path, file.display().to_string());
        }
        // Another service wants something else of it.
        let timed = Service { time: true, ..Service::all() };
        assert!(!Arc::ptr_eq(&code(&planned(&files[1], &timed)), &code(&all[0])));
        std::fs::remove_dir_all(directory).expect("the directory");
    }

    /// However many executables there are and however often each is asked for: no more wait than may, and each is
    /// planned.
    #[test]
    fn many_executables_are_planned_one_after_the_other() {
        let fixture = Fixture::build("empty", &newest(), Mode::Exe);
        let directory =
            std::env::temp_dir().join(format!("gospect-planner-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let copies: Vec<_> = (0..2 * WAITING)
            .map(|number| {
                let copy = directory.join(number.to_string());
                std::fs::copy(&fixture, &copy).expect("a copy");
                copy
            })
            .collect();
        let ((jobs, waiting), (sender, done)) = (channel::<Job>(), channel());
        let mut planner = Planner { jobs, done, known: Vec::new() };
        let service = Service::all();
        let mut planned = 0;
        while planned < copies.len() {
            let mut ready = 0;
            for copy in copies.iter().chain(&copies) {
                let file = FileStamp::from(&std::fs::metadata(copy).expect("a file"));
                let open = || Target::of_path(copy, None);
                ready += usize::from(planner.of(file, &service, open).is_some());
            }
            assert_eq!(ready, 2 * planned);
            let jobs: Vec<Job> = waiting.try_iter().collect();
            assert!(!jobs.is_empty() && jobs.len() <= WAITING, "{}", jobs.len());
            planned += jobs.len();
            for Job { target, service, .. } in jobs {
                sender.send((target.stamp, service, Err("no".to_owned()))).expect("a receiver");
            }
        }
        std::fs::remove_dir_all(directory).expect("the directory");
    }
}
