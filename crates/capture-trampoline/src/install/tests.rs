//! A hand-made patch in a program that checks its own results.

use super::gap::Wanted;
use super::*;
use crate::emit::PATCH_LEN;
use crate::memory::TargetMemory;
use address::{Avma, ReadMemory as _};
use binary::Executable;
use iced_x86::{Decoder, DecoderOptions};
use process::{FileSource, Process};
use std::sync::Arc;
use std::time::Duration;
use testkit::{Fixture, Mode, Running, newest};

/// `lock inc qword ptr [counter]`, then the moved instructions, then `jmp` back.
fn stub(at: Avma, counter: Avma, moved: &[u8], back: Avma) -> Vec<u8> {
    let mut code = vec![0xf0, 0x48, 0xff, 0x05];
    code.extend(rel(at.add(8), counter));
    code.extend(moved);
    code.push(0xe9);
    code.extend(rel(at.add(code.len() as u64 + 4), back));
    code
}

fn rel(from: Avma, to: Avma) -> [u8; 4] {
    (to.0.wrapping_sub(from.0) as u32).to_le_bytes()
}

struct Subject {
    running: Running,
    executable: Executable,
}

impl Subject {
    fn start(mode: Mode, args: &[&str]) -> Self {
        let path = Fixture::build("spin", &newest(), mode);
        let mut running = Running::held(&path, args);
        running.go();
        let executable = Executable::open(Arc::new(FileSource::open(&path).unwrap())).unwrap();
        Self { running, executable }
    }

    fn process(&self) -> Process {
        Process::open(self.running.pid()).unwrap()
    }

    fn place(&self) -> Place {
        Place::of(&self.process(), self.executable.image()).unwrap()
    }

    /// A counter of the calls of `main.mix`, whose first instructions can be moved as they are.
    fn prepare(&self) -> Prepared {
        let place = self.place();
        let wanted = Wanted { ring_count: 1, ring_bytes: 1 << 14, code_room: 4096 };
        let maps = self.process().maps().unwrap();
        let layout = Layout::choose(1, &maps, &place.text, wanted).unwrap();
        let functions = self.executable.functions().unwrap();
        let mix = functions.iter().find(|f| f.name == "main.mix").unwrap();
        let bytes = self.executable.image().read_vec(mix.entry, 32).unwrap();
        let start = place.bias.to_avma(mix.entry);
        let mut decoder = Decoder::with_ip(64, &bytes, start.0, DecoderOptions::NONE);
        let mut moved = Vec::new();
        while decoder.position() < PATCH_LEN {
            moved.push(Avma(decoder.ip()));
            let instruction = decoder.decode();
            assert!(!instruction.is_ip_rel_memory_operand() && !instruction.is_jcc_short_or_near());
        }
        let len = decoder.position();
        let end = start.add(len as u64);
        let code = stub(layout.code, layout.rings.base, &bytes[..len], end);
        let mut replacement = [0xe9; PATCH_LEN];
        replacement[1..].copy_from_slice(&rel(start.add(5), layout.code));
        let patch = TextPatch {
            function: 0,
            start,
            end,
            original: *bytes.first_chunk().unwrap(),
            replacement,
        };
        let relocated = move |pc: Avma| {
            let offset = pc.since(start).filter(|_| moved.contains(&pc))?;
            Some(layout.code.add(8 + offset))
        };
        Prepared {
            layout,
            code,
            patches: vec![patch],
            hook: None,
            handlers: Vec::new(),
            stacks: StackFacts::of(&self.executable),
            sleepers: sleepers(&self.executable, place.bias),
            relocated: Box::new(relocated),
        }
    }

    fn attach(&self, prepared: &Prepared) -> Result<Target, crate::Error> {
        let memory = TargetMemory::open(self.running.pid())?;
        Target::attach(self.process(), memory, &self.place(), prepared)
    }

    /// The code in memory where the patch goes.
    fn live(&self, prepared: &Prepared) -> [u8; PATCH_LEN] {
        let mut live = [0; PATCH_LEN];
        let memory = self.process().memory().unwrap();
        memory.read_memory(prepared.patches[0].start, &mut live).unwrap();
        live
    }

    /// Whether any mapping or text of ours is there.
    fn assert_clean(&self, prepared: &Prepared) {
        assert_eq!(self.live(prepared), prepared.patches[0].original);
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.running.pid())).unwrap();
        assert!(!maps.contains("memfd:gospect"), "{maps}");
    }

    fn finish(mut self) {
        self.running.close_stdin();
        let done = self.running.wait_for("done", Duration::from_secs(60));
        assert_eq!(done["wrong"], 0, "{done}");
        assert!(self.running.wait(Duration::from_secs(10)).success());
    }
}

#[test]
fn root_a_patch_counts_and_goes_without_a_trace() {
    for mode in [Mode::Exe, Mode::Pie, Mode::Cgo] {
        let subject = Subject::start(mode, &["-for", "0", "-g", "3"]);
        let prepared = subject.prepare();
        let mut target = subject.attach(&prepared).unwrap();
        assert_eq!(subject.live(&prepared), prepared.patches[0].replacement);
        std::thread::sleep(Duration::from_millis(200));
        let counted = target.area.rings.load(0);
        assert!(counted > 1000, "{mode}: {counted}");
        let removal = target.remove().unwrap();
        assert_eq!((removal.foreign, removal.left_bytes), (0, 0), "{removal:?}");
        subject.assert_clean(&prepared);
        subject.finish();
    }
}

#[test]
fn root_two_hundred_cycles_leave_a_busy_program_well() {
    let subject = Subject::start(Mode::Exe, &["-for", "0", "-g", "4"]);
    let prepared = subject.prepare();
    let mut longest = Duration::ZERO;
    let (mut left, mut exposed) = (0, 0);
    for cycle in 0..200 {
        let mut target = match subject.attach(&prepared) {
            Ok(target) => target,
            Err(error) => panic!("cycle {cycle}: {error}"),
        };
        let removal = target.remove().unwrap();
        let stops = target.report.stops.iter().chain(&removal.stops);
        longest = longest.max(stops.max().copied().unwrap_or_default());
        left += removal.left_bytes;
        exposed += u32::from(target.report.was_exposed);
    }
    // Only when no thread sleeps where a call can be borrowed, which is rare.
    assert!(exposed <= 20, "{exposed} of 200 installations had to write a system call");
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    assert_eq!(left, 0);
    subject.assert_clean(&prepared);
    subject.finish();
}
