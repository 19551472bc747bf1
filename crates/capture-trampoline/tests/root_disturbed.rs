//! Somebody sets a breakpoint over a jump in the moment in which it is written.

mod support;

use capture_trampoline::{HOOKED, has_leftovers, remove_leftovers, set_step_hook};
use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;
use support::Subject;
use testkit::{Fixture, Mode, Running, newest};

const PATTERNS: [&str; 2] = ["main.*", "fmt.*"];
const JUMP: u8 = 0xe9;
const BREAKPOINT: u8 = 0xcc;

/// The program, the process, and a function that runs already and is not called again.
static DISTURBED: OnceLock<(PathBuf, u32, Range<u64>)> = OnceLock::new();
/// Where the breakpoint stands.
static PLACE: OnceLock<u64> = OnceLock::new();

fn write(pid: u32, address: u64, byte: u8) {
    let memory = OpenOptions::new().write(true).open(format!("/proc/{pid}/mem")).unwrap();
    memory.write_all_at(&[byte], address).unwrap();
}

/// Comes between the writing of a page and the look at what stands there then.
fn disturb(name: &'static str) {
    let Some((path, pid, function)) = DISTURBED.get() else { return };
    if name != "page written" || PLACE.get().is_some() {
        return;
    }
    let mut different = Subject::new(path, &PATTERNS).different_bytes(*pid).into_iter();
    if let Some(place) = different.find(|address| function.contains(address)) {
        // A static program: its code lies where its file says.
        write(*pid, place, BREAKPOINT);
        PLACE.set(place).unwrap();
    }
}

#[test]
fn root_an_attach_that_fails_among_its_writes_leaves_no_jump_to_nowhere() {
    let path = Fixture::build("spin", &newest(), Mode::Exe);
    let subject = Subject::new(&path, &PATTERNS);
    let functions = subject.executable.functions().unwrap();
    let range = |name| {
        let function = functions.iter().find(|function| function.name == name).unwrap();
        function.entry.0..function.end.0
    };
    let mut target = Running::held(&path, &["-for", "0", "-g", "2"]);
    target.go();
    let pid = target.pid();
    DISTURBED.set((path.clone(), pid, range("main.main"))).unwrap();
    set_step_hook(disturb);
    let error = subject.attach(pid).map(|_| ()).unwrap_err();
    let place = *PLACE.get().expect("a jump in main.main");
    let text = format!("{error:?}");
    assert!(text.contains("Left {") && text.contains("ForeignCode {"), "{text}");
    assert!(target.is_running(), "{}", target.stderr());
    // Only the one jump is left, for whose sake the code stays, and with it the hook.
    let hook = range(HOOKED);
    let is_left = |address: &u64| (place..place + 5).contains(address) || hook.contains(address);
    let different = subject.different_bytes(pid);
    assert!(different.iter().all(is_left), "{different:x?}");
    assert!(has_leftovers(pid));
    // The tool that has set the breakpoint takes it off, and puts back what it has found.
    write(pid, place, JUMP);
    let removal = remove_leftovers(pid).unwrap().expect("the code");
    assert_eq!((removal.foreign, removal.left_bytes), (0, 0));
    subject.assert_clean(pid);
    target.close_stdin();
    let done = target.wait_for("done", Duration::from_secs(120));
    assert_eq!(done["wrong"], 0, "{done}");
}
