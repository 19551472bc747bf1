//! The constructor: whether this is a Go program, and if so what is to be done.

use crate::agent::{Agent, Place};
use crate::error::{Because as _, Stop};
use crate::install;
use crate::maps;
use crate::program::Program;
use crate::sys::{self, Fd};
use handover::{FromAgent, Hello, MAX_PACKET, REACH, SOCKET, SOCKET_VARIABLE, Span, Why};

/// Bytes of `/proc/self/maps` at the most: some thousand mappings, of which a program that starts
/// has fifty.
const MAX_MAPS: usize = 256 << 10;

/// Entries of the environment, and of the kernel's vector, that are looked at.
const MAX_ENTRIES: usize = 1 << 16;

/// `AT_*` of `linux/auxvec.h`.
const PHDR: u64 = 3;
const PHENT: u64 = 4;
const PHNUM: u64 = 5;
const SECURE: u64 = 23;

/// What the loader has to give.
#[derive(Clone, Copy, Debug)]
pub enum Given {
    /// The environment as the kernel has put it on the stack, the auxiliary vector behind it.
    Environment(*const *const u8),
    /// The C library's function for the vector, and its environment, which may be null.
    Library {
        /// `getauxval`.
        getauxval: unsafe extern "C" fn(u64) -> u64,
        /// `environ`.
        environment: *const *const u8,
    },
}

/// The parts of the auxiliary vector that are of use.
#[derive(Clone, Copy, Debug, Default)]
struct Vector {
    headers: u64,
    size: u64,
    count: u64,
    is_secure: bool,
}

impl Vector {
    /// # Safety
    /// What is given is what it says.
    unsafe fn of(given: &Given) -> Self {
        let mut vector = Self::default();
        match *given {
            Given::Library { getauxval, .. } => {
                for key in [PHDR, PHENT, PHNUM, SECURE] {
                    // SAFETY: as the caller says.
                    vector.take(key, unsafe { getauxval(key) });
                }
            }
            Given::Environment(environment) => {
                // SAFETY: as the caller says: strings, nulls, pairs of words of which none but the
                // last begins with 0.
                unsafe {
                    let mut at = environment;
                    while !(*at).is_null() {
                        at = at.add(1);
                    }
                    // Of a program with raised rights glibc has taken out variables, and each has left a
                    // null at the end.
                    while (*at).is_null() {
                        at = at.add(1);
                    }
                    let mut pair = at.cast::<[u64; 2]>();
                    loop {
                        let [key, value] = *pair;
                        if key == 0 {
                            break;
                        }
                        vector.take(key, value);
                        pair = pair.add(1);
                    }
                }
            }
        }
        vector
    }

    fn take(&mut self, key: u64, value: u64) {
        match key {
            PHDR => self.headers = value,
            PHENT => self.size = value,
            PHNUM => self.count = value,
            SECURE => self.is_secure = value != 0,
            _ => {}
        }
    }
}

/// What the constructor does. In a program that is none of Go's, nothing that the kernel hears of.
///
/// # Safety
/// To be called by the dynamic loader before the program runs, with what the loader gives.
pub unsafe fn start(given: &Given) {
    // SAFETY: as the caller says.
    let vector = unsafe { Vector::of(given) };
    if vector.size != size_of::<crate::program::Header>() as u64 {
        return;
    }
    // SAFETY: the vector is the kernel's.
    let Some(program) = (unsafe { Program::look(vector.headers, vector.count) }) else { return };
    // SAFETY: as the caller says.
    let told = unsafe { socket_variable(given) }.filter(|_| !vector.is_secure);
    let Some(place) = Place::of(told.unwrap_or(SOCKET.as_bytes())) else { return };
    let Ok(agent) = Agent::connect(&place, vector.is_secure) else { return };
    // SAFETY: as the caller says.
    if let Err(stop) = unsafe { ask(&agent, program) }
        && let Some(failed) = stop.failed()
    {
        agent.failed(failed);
    }
}

/// The value of the variable that names another socket.
///
/// # Safety
/// What is given is what it says.
unsafe fn socket_variable<'a>(given: &Given) -> Option<&'a [u8]> {
    let (Given::Environment(environment) | Given::Library { environment, .. }) = *given;
    if environment.is_null() {
        return None;
    }
    for index in 0..MAX_ENTRIES {
        // SAFETY: as the caller says: pointers to strings, a null at the end.
        let entry = unsafe { *environment.add(index) };
        if entry.is_null() {
            return None;
        }
        // SAFETY: likewise.
        let entry = unsafe { core::ffi::CStr::from_ptr(entry.cast()) }.to_bytes();
        let value = entry.strip_prefix(SOCKET_VARIABLE.as_bytes());
        if let Some(value) = value.and_then(|value| value.strip_prefix(b"=")) {
            return Some(value);
        }
    }
    None
}

/// Introduces the program and takes what is offered.
///
/// # Safety
/// As for [`start`].
unsafe fn ask(agent: &Agent, program: Program) -> Result<(), Stop> {
    // Loaded by a program that runs already (dlopen), this would be too late. The directory of
    // a process's threads has a link for each besides its own two.
    let threads = sys::stat(c"/proc/self/task").map_err(|_| Stop::Silent)?;
    if threads.links != 3 {
        return Err(Stop::Silent);
    }
    let executable = sys::open(c"/proc/self/exe").map_err(|_| Stop::Silent)?;
    introduce(agent, program, &executable)?;
    let (message, fds) = agent.listen()?;
    match message {
        FromAgent::Offer(offer) => {
            // SAFETY: one thread, and the runtime has not begun.
            unsafe { install::install(agent, program, &executable, &offer, fds) }
        }
        FromAgent::Decline | FromAgent::Go => Err(Stop::Silent),
    }
}

/// Memory for as long as the maps are looked at: a stack may be small.
struct Scratch {
    start: u64,
}

impl Scratch {
    const LEN: usize = MAX_MAPS + MAX_PACKET.next_multiple_of(4096);

    fn map() -> Option<Self> {
        let (protection, flags) = (sys::READ | sys::WRITE, sys::PRIVATE | sys::ANONYMOUS);
        // SAFETY: a new mapping is nobody's.
        let start = unsafe { sys::map(0, Self::LEN as u64, protection, flags, None) };
        start.ok().map(|start| Self { start })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has so many bytes, and this is the only way to them.
        unsafe { core::slice::from_raw_parts_mut(self.start as *mut u8, Self::LEN) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: nothing is borrowed from it any more.
        let _ = unsafe { sys::unmap(self.start, Self::LEN as u64) };
    }
}

fn introduce(agent: &Agent, program: Program, executable: &Fd) -> Result<(), Stop> {
    let mut scratch = Scratch::map().ok_or(Stop::Silent)?;
    let (maps, packet) = scratch.bytes().split_at_mut(MAX_MAPS);
    let file = sys::open(c"/proc/self/maps").map_err(|_| Stop::Silent)?;
    let mut len = 0;
    loop {
        let Some(free) = maps.get_mut(len..).filter(|free| !free.is_empty()) else {
            return None.because(Why::Offer);
        };
        match sys::read(&file, free) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(_) => return Err(Stop::Silent),
        }
    }
    let mappings = maps::mappings(maps.get(..len).unwrap_or_default());
    if !maps::is_whole(mappings.clone(), program.text, program.text_offset) {
        return None.because(Why::Patches);
    }
    let from = program.text.start.saturating_sub(REACH);
    let until = program.text.end().unwrap_or(u64::MAX).saturating_add(REACH);
    let near = Span { start: from, len: until - from };
    // What comes before a packet has been sent is told to nobody.
    let ranges = mappings.map(|mapping| mapping.span).filter(|span| span.meets(near));
    let len = Hello::write(packet, program.bias, program.text, ranges).ok_or(Stop::Silent)?;
    agent.hello(packet.get(..len).unwrap_or_default(), executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_lies_behind_however_many_nulls() {
        for nulls in 1..4 {
            let mut words = vec![c"A=1".as_ptr() as u64, c"B=2".as_ptr() as u64];
            words.resize(2 + nulls, 0);
            words.extend([33, 7, PHDR, 0x40, PHENT, 56, PHNUM, 5, SECURE, 1, 0, 0, PHDR, 1]);
            let given = Given::Environment(words.as_ptr().cast());
            // SAFETY: the words are as the kernel puts them.
            let vector = unsafe { Vector::of(&given) };
            let Vector { headers, size, count, is_secure } = vector;
            assert_eq!((headers, size, count, is_secure), (0x40, 56, 5, true));
        }
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let mut words: Vec<*const core::ffi::c_char> = vec![
            c"GOSPECT_AGENT_SOCKETS=/no".as_ptr(),
            c"GOSPECT_AGENT_SOCKET".as_ptr(),
            core::ptr::null(),
        ];
        // SAFETY: strings, and a null at the end.
        let find = |words: &[*const core::ffi::c_char]| unsafe {
            socket_variable(&Given::Environment(words.as_ptr().cast()))
        };
        assert_eq!(find(&words), None);
        words.insert(1, c"GOSPECT_AGENT_SOCKET=/a/b".as_ptr());
        assert_eq!(find(&words), Some(&b"/a/b"[..]));
    }
}
