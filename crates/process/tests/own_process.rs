//! Processes seen from outside, with children of the test.

use address::{Avma, MemoryError, Part, ReadAt as _, ReadMemory as _, Svma};
use process::{Error, FileIdentity, Process, find_by_exe};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Sleeper(Child);

impl Sleeper {
    fn start(program: &Path) -> Self {
        let child = Command::new(program).arg("60").stdin(Stdio::null()).spawn().unwrap();
        let sleeper = Self(child);
        // Spawned means forked: wait until it has become the program, its arguments last.
        let file = FileIdentity::of(program).unwrap();
        loop {
            let process = Process::open(sleeper.0.id()).unwrap();
            let is_program = process.exe_identity().unwrap() == file;
            if is_program && !process.command_line().unwrap().is_empty() {
                return sleeper;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Copies by another process: a descriptor of ours open for writing, inherited by what other
/// tests fork at that moment, would keep the copy from being executed (ETXTBSY).
fn copy_program(from: &str, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

fn scratch(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("{name}-{}", std::process::id()))
}

#[test]
fn a_deleted_executable_is_still_readable_and_found() {
    let path = scratch("deleted-sleep");
    copy_program("/bin/sleep", &path);
    let original = std::fs::read(&path).unwrap();
    let sleeper = Sleeper::start(&path);
    let file = FileIdentity::of(&path).unwrap();
    std::fs::remove_file(&path).unwrap();

    let process = Process::open(sleeper.0.id()).unwrap();
    let source = process.executable().unwrap();
    let mut bytes = vec![0; source.size() as usize];
    source.read_exact_at(0, &mut bytes).unwrap();
    assert!(bytes == original);
    assert_eq!(source.identity(), file);
    assert_eq!(find_by_exe(file), [sleeper.0.id()]);
    assert_eq!(process.command_line().unwrap(), [path.display().to_string(), "60".to_owned()]);

    // The first page of the file is where the bias says.
    let bias = process.bias(Svma(0)).unwrap();
    let mut magic = [0; 4];
    process.memory().unwrap().read_memory(bias.to_avma(Svma(0)), &mut magic).unwrap();
    assert_eq!(&magic, b"\x7fELF");
    assert!(process.maps().unwrap().find(bias.to_avma(Svma(0))).is_some());
}

#[test]
fn an_ended_process_is_gone_and_not_another() {
    let path = scratch("ended-sleep");
    copy_program("/bin/sleep", &path);
    let mut sleeper = Sleeper::start(&path);
    std::fs::remove_file(&path).unwrap();
    let pid = sleeper.0.id();
    let process = Process::open(pid).unwrap();
    assert!(process.is_alive());
    assert_eq!(process.threads().unwrap(), [pid]);
    assert_eq!(process.namespaced_pids().unwrap().first(), Some(&pid));
    assert!(!process.wait_exit(Duration::from_millis(1)));
    sleeper.end();
    assert!(process.wait_exit(Duration::from_secs(5)));
    assert!(matches!(process.maps(), Err(Error::Gone(gone)) if gone == pid));
    assert!(matches!(Process::open(pid), Err(Error::NoProcess(gone)) if gone == pid));
}

#[test]
fn memory_reads_are_whole_or_not_at_all() {
    let process = Process::open(std::process::id()).unwrap();
    let memory = process.memory().unwrap();
    let word = 0x1122_3344_5566_7788u64;
    assert_eq!(memory.read_word(Avma(&raw const word as u64)), Ok(word));
    for nowhere in [0, 8, 1 << 63, u64::MAX - 3] {
        assert!(memory.read_word(Avma(nowhere)).is_err(), "0x{nowhere:x}");
    }
    // Across the end of the last mapping of the stack.
    let maps = process.maps().unwrap();
    let stack = maps.mappings.iter().find(|m| m.label.as_deref() == Some("Stack")).unwrap();
    assert!(memory.read_word(Avma(stack.end.0 - 8)).is_ok());
    assert!(memory.read_word(Avma(stack.end.0 - 4)).is_err());
}

/// More parts than the kernel takes in one call; and one of them that cannot be read.
#[test]
fn parts_are_read_together_or_fail() {
    let memory = Process::open(std::process::id()).unwrap().memory().unwrap();
    let words: Vec<u64> = (0..3000).map(|word| word * 0x0101_0101).collect();
    let mut read = vec![[0; 8]; words.len()];
    let places = || words.iter().map(|word| Avma(std::ptr::from_ref(word) as u64));
    let mut parts: Vec<Part<'_>> =
        places().zip(&mut read).map(|(address, bytes)| Part { address, bytes }).collect();
    memory.read_parts(&mut parts).unwrap();
    parts[2500].address = Avma(0);
    assert_eq!(memory.read_parts(&mut parts), Err(MemoryError(Avma(0))));
    let read: Vec<u64> = read.into_iter().map(u64::from_le_bytes).collect();
    assert_eq!(read, words);
    memory.read_parts(&mut []).unwrap();
}

/// The same pid, start and file, but another address space.
#[test]
fn an_execve_of_the_same_file_is_noticed() {
    let script = "read line; exec /bin/sh -c 'read line; exit'";
    let shell = |command: &mut Command| command.arg("-c").arg(script).stdin(Stdio::piped()).spawn();
    let mut child = shell(&mut Command::new("/bin/sh")).unwrap();
    let mut input = child.stdin.take().unwrap();
    // Spawned means forked: wait until it has become the shell.
    let is = |text: &str| {
        let process = Process::open(child.id()).unwrap();
        process.command_line().unwrap().iter().any(|argument| argument == text)
    };
    while !is(script) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let process = Process::open(child.id()).unwrap();
    let memory = process.memory().unwrap();
    let mapped = process.maps().unwrap().mappings.first().unwrap().start;
    assert!(memory.is_current(mapped));
    input.write_all(b"\n").unwrap();
    while !is("read line; exit") {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!memory.is_current(mapped));
    let again = Process::open(process.pid()).unwrap();
    assert_eq!(again.start_ticks(), process.start_ticks());
    let mapped = again.maps().unwrap().mappings.first().unwrap().start;
    assert!(again.memory().unwrap().is_current(mapped));
    drop(input);
    child.wait().unwrap();
}

#[test]
fn no_such_process_is_said_so() {
    for pid in [0, 4_194_305, u32::MAX] {
        assert!(matches!(Process::open(pid), Err(Error::NoProcess(p)) if p == pid));
    }
}
