//! A running fixture and what is read of it.

// Each test file uses a part of it.
#![allow(dead_code)]

use binary::Executable;
use binary::layout::RuntimeLayouts;
use inspect::metrics::{
    Confirmed, MetricsPlan, Options, RuntimeMetrics, TimeHistogram, Unknown, Value,
};
use process::{Process, ProcessMemory};
use serde_json::Value as Json;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::Running;

/// How long a fixture may take for a step on a loaded machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A process and its plan.
pub struct Subject {
    pub running: Running,
    pub ready: Json,
    pub process: Process,
    pub memory: ProcessMemory,
    pub plan: MetricsPlan,
    pub confirmed: Confirmed,
    reports: usize,
}

/// What the program said before and after, and what was read between.
pub struct Round {
    pub before: Json,
    pub ours: RuntimeMetrics,
    pub after: Json,
}

pub fn executable(path: &Path) -> Executable {
    Executable::open(Arc::new(std::fs::read(path).unwrap())).unwrap()
}

impl Subject {
    pub fn start(program: &Path, args: &[&str], env: &[(&str, &str)]) -> Self {
        let executable = executable(program);
        let layouts = RuntimeLayouts::new(executable.go_version(), None);
        Self::start_as(program, &executable, &layouts, args, env)
    }

    /// With layouts of one's own.
    pub fn start_as(
        program: &Path,
        executable: &Executable,
        layouts: &RuntimeLayouts<'_>,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new(program);
        command.args(args).envs(env.iter().copied());
        let running = Running::spawn(command);
        let ready = running.wait_for("ready", LIMIT);
        let plan = MetricsPlan::prepare(executable, layouts).unwrap();
        let process = Process::open(running.pid()).unwrap();
        let memory = process.memory().unwrap();
        let bias = process.bias(executable.image().base()).unwrap();
        let begun = Instant::now();
        let mut confirmed = plan.confirm(&memory, bias);
        while !confirmed.is_complete() && begun.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(1));
            confirmed = plan.confirm(&memory, bias);
        }
        let globals = confirmed.globals();
        assert!(confirmed.is_whole(), "{}: {globals:x?}", program.display());
        Self { running, ready, process, memory, plan, confirmed, reports: 0 }
    }

    /// All there is. A program that is off its CPU while it folds its counts is looked at
    /// again later.
    pub fn sample(&self) -> RuntimeMetrics {
        let begun = Instant::now();
        loop {
            let sample = self.sample_with(Options { unflushed: true });
            let torn = matches!(sample.memory.sys, Err(Unknown::Torn(_)));
            if !torn || begun.elapsed() > LIMIT {
                return sample;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn sample_with(&self, options: Options) -> RuntimeMetrics {
        self.plan.sample(&self.memory, &self.confirmed, options).unwrap()
    }

    /// One reading between two of the program's own.
    pub fn round(&mut self) -> Round {
        self.running.go();
        self.wait_lines("barrier");
        let ours = self.sample();
        self.running.go();
        let report = self.wait_lines("report");
        self.reports += 1;
        Round { before: report["before"].clone(), ours, after: report["after"].clone() }
    }

    /// The line of that kind that belongs to this round.
    fn wait_lines(&self, kind: &str) -> Json {
        let seen = std::cell::Cell::new(0);
        let line = self.running.wait_line(LIMIT, |line| {
            let is = serde_json::from_str::<Json>(line).is_ok_and(|line| line["type"] == kind);
            let before = seen.get();
            seen.set(before + usize::from(is));
            is && before == self.reports
        });
        serde_json::from_str(&line).unwrap()
    }
}

/// A number of ours beside the program's own, before and after.
#[derive(Debug)]
pub struct Claim {
    pub name: String,
    pub before: f64,
    pub ours: f64,
    pub after: f64,
}

impl Claim {
    pub fn is_steady(&self) -> bool {
        self.before == self.after
    }

    /// Between the two, whichever is larger. What is no whole number is compared to a billionth:
    /// its text is not read to the last bit, and seconds are made of nanoseconds.
    pub fn is_bracketed(&self) -> bool {
        let (low, high) = (self.before.min(self.after), self.before.max(self.after));
        let whole = high.fract() == 0.0 && low.fract() == 0.0;
        let slack = if whole { 0.0 } else { 1e-9 };
        low - slack <= self.ours && self.ours <= high + slack
    }
}

impl Round {
    fn claim(&self, name: &str, ours: f64, of: impl Fn(&Json) -> Json) -> Claim {
        let number = |side: &Json| {
            let value = of(side);
            value.as_f64().unwrap_or_else(|| panic!("{name} is {value}"))
        };
        let (before, after) = (number(&self.before), number(&self.after));
        Claim { name: name.to_owned(), before, ours, after }
    }

    /// Every field of `runtime.MemStats` that is a number, and the runtime's other counts.
    pub fn stats(&self) -> Vec<Claim> {
        let (m, c, s) = (&self.ours.memory, &self.ours.collector, &self.ours.scheduler);
        let stats: [(&str, &Value<u64>); 26] = [
            ("Sys", &m.sys),
            ("Alloc", &m.heap_alloc),
            ("HeapAlloc", &m.heap_alloc),
            ("TotalAlloc", &m.total_alloc),
            ("Mallocs", &m.mallocs),
            ("Frees", &m.frees),
            ("HeapSys", &m.heap_sys),
            ("HeapIdle", &m.heap_idle),
            ("HeapInuse", &m.heap_inuse),
            ("HeapReleased", &m.heap_released),
            ("HeapObjects", &m.heap_objects),
            ("StackInuse", &m.stack_inuse),
            ("StackSys", &m.stack_sys),
            ("MSpanInuse", &m.mspan_inuse),
            ("MSpanSys", &m.mspan_sys),
            ("MCacheInuse", &m.mcache_inuse),
            ("MCacheSys", &m.mcache_sys),
            ("BuckHashSys", &m.buckhash_sys),
            ("GCSys", &m.gc_sys),
            ("OtherSys", &m.other_sys),
            ("NextGC", &c.heap_goal),
            ("LastGC", &c.last_ns),
            ("PauseTotalNs", &c.pause_total_ns),
            ("NumGC", &c.cycles),
            ("NumForcedGC", &c.forced_cycles),
            ("GCCPUFraction", &Ok(0)),
        ];
        let mut claims: Vec<Claim> = stats
            .iter()
            .map(|(name, value)| {
                let ours = if *name == "GCCPUFraction" {
                    *c.cpu_fraction.as_ref().unwrap()
                } else {
                    *value.as_ref().unwrap_or_else(|why| panic!("{name}: {why}")) as f64
                };
                self.claim(name, ours, |side| side["stats"][*name].clone())
            })
            .collect();
        for (name, value) in [
            ("goroutines", &s.goroutines),
            ("threads", &s.threads),
            ("procs", &s.gomaxprocs),
            ("cgo_calls", &self.ours.cgo_calls),
        ] {
            let ours = *value.as_ref().unwrap_or_else(|why| panic!("{name}: {why}")) as f64;
            claims.push(self.claim(name, ours, |side| side[name].clone()));
        }
        claims
    }

    /// What `runtime/metrics` has and this version keeps.
    pub fn metrics(&self) -> Vec<Claim> {
        let (m, c, s) = (&self.ours.memory, &self.ours.collector, &self.ours.scheduler);
        let cpu = |of: fn(&inspect::metrics::CpuTimes) -> u64| {
            c.cpu.as_ref().map(|cpu| of(cpu) as f64 / 1e9).map_err(Clone::clone)
        };
        let count = |value: &Value<u64>| value.clone().map(|number| number as f64);
        let all: Vec<(&str, Value<f64>)> = vec![
            ("/cgo/go-to-c-calls:calls", count(&self.ours.cgo_calls)),
            ("/gc/heap/tiny/allocs:objects", count(&m.tiny_allocs)),
            ("/gc/heap/live:bytes", count(&c.heap_marked)),
            ("/gc/heap/goal:bytes", count(&c.heap_goal)),
            ("/gc/gogc:percent", c.gogc_percent.clone().map(|p| i64::from(p) as u64 as f64)),
            ("/gc/gomemlimit:bytes", count(&c.memory_limit)),
            ("/sched/gomaxprocs:threads", count(&s.gomaxprocs)),
            ("/sched/goroutines-created:goroutines", count(&s.goroutines_created)),
            ("/sync/mutex/wait/total:seconds", count(&s.mutex_wait_ns).map(|ns| ns / 1e9)),
            ("/cpu/classes/gc/mark/assist:cpu-seconds", cpu(|c| c.gc_assist_ns)),
            ("/cpu/classes/gc/mark/dedicated:cpu-seconds", cpu(|c| c.gc_dedicated_ns)),
            ("/cpu/classes/gc/mark/idle:cpu-seconds", cpu(|c| c.gc_idle_ns)),
            ("/cpu/classes/gc/pause:cpu-seconds", cpu(|c| c.gc_pause_ns)),
            ("/cpu/classes/gc/total:cpu-seconds", cpu(|c| c.gc_total_ns)),
            ("/cpu/classes/scavenge/assist:cpu-seconds", cpu(|c| c.scavenge_assist_ns)),
            ("/cpu/classes/scavenge/background:cpu-seconds", cpu(|c| c.scavenge_background_ns)),
            ("/cpu/classes/scavenge/total:cpu-seconds", cpu(|c| c.scavenge_total_ns)),
            ("/cpu/classes/idle:cpu-seconds", cpu(|c| c.idle_ns)),
            ("/cpu/classes/user:cpu-seconds", cpu(|c| c.user_ns)),
            ("/cpu/classes/total:cpu-seconds", cpu(|c| c.total_ns)),
        ];
        let known = |name: &str| !self.before["metrics"][name].is_null();
        let mut claims = Vec::new();
        for (name, ours) in all.into_iter().filter(|(name, _)| known(name)) {
            let ours = ours.unwrap_or_else(|why| panic!("{name}: {why}"));
            claims.push(self.claim(name, ours, |side| side["metrics"][name].clone()));
        }
        for (name, ours) in self.histograms().into_iter().filter(|(name, _)| known(name)) {
            let ours = ours.as_ref().unwrap_or_else(|why| panic!("{name}: {why}"));
            claims.extend(self.buckets(name, ours));
        }
        claims.extend(self.by_size());
        claims
    }

    fn histograms(&self) -> [(&'static str, &Value<TimeHistogram>); 6] {
        let (c, s) = (&self.ours.collector, &self.ours.scheduler);
        [
            ("/sched/latencies:seconds", &s.latencies),
            ("/gc/pauses:seconds", &c.pause_histogram),
            ("/sched/pauses/total/gc:seconds", &c.pause_histogram),
            ("/sched/pauses/total/other:seconds", &s.pauses_other),
            ("/sched/pauses/stopping/gc:seconds", &s.pauses_stopping_gc),
            ("/sched/pauses/stopping/other:seconds", &s.pauses_stopping_other),
        ]
    }

    /// One claim per bucket; the bounds must be the runtime's.
    fn buckets(&self, name: &str, ours: &TimeHistogram) -> Vec<Claim> {
        let theirs = &self.before["metrics"][name];
        let bounds: Vec<&str> =
            theirs["bounds_ns"].as_array().unwrap().iter().map(|b| b.as_str().unwrap()).collect();
        let mut expected = vec!["-Inf".to_owned()];
        expected.extend(ours.buckets().map(|bucket| bucket.from_ns.to_string()));
        let last = ours.buckets().last().unwrap().to_ns;
        let mut counts = vec![ours.underflow];
        counts.extend(ours.buckets().map(|bucket| bucket.count));
        if last != u64::MAX {
            expected.push(last.to_string());
            counts.push(ours.overflow);
        }
        expected.push("+Inf".to_owned());
        assert_eq!(bounds, expected, "{name}");
        let claim = |index: usize, count: &u64| {
            let of = |side: &Json| side["metrics"][name]["counts"][index].clone();
            self.claim(&format!("{name}[{index}]"), *count as f64, of)
        };
        counts.iter().enumerate().map(|(index, count)| claim(index, count)).collect()
    }

    /// `/gc/heap/allocs-by-size`, `/gc/heap/frees-by-size`.
    fn by_size(&self) -> Vec<Claim> {
        let classes = self.ours.memory.size_classes.as_ref().unwrap();
        let mut claims = Vec::new();
        for (index, class) in classes.iter().enumerate() {
            for (what, count) in [("allocs", class.mallocs), ("frees", class.frees)] {
                let name = format!("/gc/heap/{what}-by-size:bytes");
                let of = |side: &Json| side["metrics"][&name]["counts"][index].clone();
                claims.push(self.claim(&format!("{name}[{}]", class.size), count as f64, of));
            }
        }
        claims
    }
}

/// Fails with all claims that do not hold.
pub fn assert_bracketed(what: &str, claims: &[Claim]) {
    let wrong: Vec<&Claim> = claims.iter().filter(|claim| !claim.is_bracketed()).collect();
    assert!(wrong.is_empty(), "{what}: {wrong:#?}");
}
