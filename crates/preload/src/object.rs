//! The root of the library as the loader sees it: the constructor, and what the compiler asks of a
//! program without libc.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use core::ffi::c_int;
use core::panic::PanicInfo;
use gospect_preload::Given;

global_asm!(".weak __libc_stack_end", ".weak getauxval", ".weak environ");

/// What the dynamic loader calls.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: unsafe extern "C" fn(c_int, *const *const u8, *const *const u8) =
    gospect_preload_constructor;

/// The address of a symbol that may not be there: null then.
macro_rules! weak {
    ($symbol:literal) => {{
        let address: *const u8;
        // SAFETY: reads the library's own table of addresses, which the loader has filled in.
        unsafe {
            asm!(
                concat!("mov {}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                out(reg) address,
                options(nostack, pure, readonly, preserves_flags)
            );
        }
        address
    }};
}

/// Called once by the loader, which is glibc's or musl's.
#[unsafe(no_mangle)]
unsafe extern "C" fn gospect_preload_constructor(
    _count: c_int,
    _arguments: *const *const u8,
    environment: *const *const u8,
) {
    // glibc hands these to constructors, musl does not. glibc's own name is seen where the program
    // has a C library; without one (Go links such programs) the loader can only be glibc's, for musl's
    // is its C library.
    let (getauxval, environ) = (weak!("getauxval"), weak!("environ"));
    let is_glibc = !weak!("__libc_stack_end").is_null();
    let given = if is_glibc || getauxval.is_null() || environ.is_null() {
        Given::Environment(environment)
    } else {
        // SAFETY: the functions and variables of these names are those of the C library.
        unsafe {
            Given::Library {
                getauxval: core::mem::transmute::<
                    *const u8,
                    unsafe extern "C" fn(u64) -> u64,
                >(getauxval),
                environment: *environ.cast::<*const *const u8>(),
            }
        }
    };
    // SAFETY: the loader calls this before the program runs, and has handed over what it says.
    unsafe { gospect_preload::start(&given) };
}

/// Nothing here panics; were it otherwise, the program would have to end rather than go on with half of
/// something.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        // SAFETY: an instruction that ends the program.
        unsafe { asm!("ud2", options(noreturn, nostack)) };
    }
}

// What the compiler calls. The instructions are named, for a loop might be compiled to a call of these.

/// C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the caller gives `count` bytes on both sides.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") count => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
    to
}

/// C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= count {
        // SAFETY: as the caller says; copying upwards overwrites nothing that is read later.
        return unsafe { memcpy(to, from, count) };
    }
    // SAFETY: as the caller says; downwards for the same reason, and the flag is put back.
    unsafe {
        asm!(
            "std",
            "rep movsb",
            "cld",
            inout("rcx") count => _,
            inout("rdi") to.wrapping_add(count).wrapping_sub(1) => _,
            inout("rsi") from.wrapping_add(count).wrapping_sub(1) => _,
            options(nostack)
        );
    }
    to
}

/// C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: c_int, count: usize) -> *mut u8 {
    // SAFETY: the caller gives `count` bytes.
    unsafe {
        asm!(
            "rep stosb",
            inout("rcx") count => _,
            inout("rdi") to => _,
            in("al") byte as u8,
            options(nostack, preserves_flags)
        );
    }
    to
}

/// C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, count: usize) -> c_int {
    let mut at = 0;
    while at < count {
        // SAFETY: the caller gives `count` bytes on both sides; volatile, so that this stays a loop.
        let (a, b) = unsafe { (one.add(at).read_volatile(), other.add(at).read_volatile()) };
        if a != b {
            return c_int::from(a) - c_int::from(b);
        }
        at += 1;
    }
    0
}

/// C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, count: usize) -> c_int {
    // SAFETY: as the caller says.
    unsafe { memcmp(one, other, count) }
}

/// C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut len = 0;
    // SAFETY: the caller gives bytes that end with a zero; volatile, so that this stays a loop.
    while unsafe { text.add(len).read_volatile() } != 0 {
        len += 1;
    }
    len
}
