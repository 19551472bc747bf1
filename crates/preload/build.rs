//! Makes `libgospect_preload.so`, beside the programs that Cargo makes.
//!
//! Not as a `cdylib` of Cargo's, for two reasons. A library without `std` cannot unwind, and Cargo sets
//! how panics end for all crates of a profile together; gospect itself has to unwind, since that is how a
//! panic takes trampolines out again. And the functions that the compiler calls (`memcpy` …) must not
//! leave the library: what LD_PRELOAD brings in comes before libc. So the sources are compiled here
//! as one static library, and linked with nothing exported.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "libgospect_preload.so";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(object)");
    for place in ["build.rs", "src", "../handover/src"] {
        println!("cargo::rerun-if-changed={place}");
    }
    for variable in ["CC", "RUSTC"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let source = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let handover = source.join("../handover/src/lib.rs");
    compile(&out, "handover", "rlib", &handover, &[]);
    compile(&out, "gospect_preload", "rlib", &source.join("src/lib.rs"), &["handover"]);
    let used = ["handover", "gospect_preload"];
    compile(&out, "object", "staticlib", &source.join("src/object.rs"), &used);
    link(&out);
    // OUT_DIR is target/PROFILE/build/PACKAGE-HASH/out.
    let beside = out.ancestors().nth(3).expect("OUT_DIR lies in a target directory");
    // By a new file: a running program may have the old one mapped.
    let fresh = out.join("copy.so");
    std::fs::copy(out.join(NAME), &fresh).expect("the library can be copied");
    std::fs::rename(&fresh, beside.join(NAME)).expect("the library can be put beside the programs");
}

fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| panic!("Cargo sets {name}"))
}

fn compile(out: &Path, name: &str, kind: &str, source: &Path, used: &[&str]) {
    let mut command = Command::new(variable("RUSTC"));
    command.args(["--edition", "2024", "--cfg", "object", "--crate-name", name]);
    command.args(["--crate-type", kind, "--target", "x86_64-unknown-linux-gnu"]);
    let settings = [
        "panic=abort",
        "opt-level=2",
        "codegen-units=1",
        "relocation-model=pic",
        "force-unwind-tables=no",
        "overflow-checks=off",
        "debug-assertions=off",
    ];
    for setting in settings {
        command.args(["-C", setting]);
    }
    let root = source.ancestors().nth(4).unwrap_or(source);
    command.arg(format!("--remap-path-prefix={}=gospect", root.display()));
    for name in used {
        let library = out.join(format!("lib{name}.rlib"));
        command.arg("--extern").arg(format!("{name}={}", library.display()));
    }
    command.arg("-L").arg(out).arg("--out-dir").arg(out).arg(source);
    run(command);
}

fn link(out: &Path) {
    let exports = out.join("exports");
    std::fs::write(&exports, "{ local: *; };\n").expect("the list of exports can be written");
    let mut command = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(["-shared", "-nostdlib", "-o"]).arg(out.join(NAME));
    command.args(["-Wl,-u,gospect_preload_constructor", "-Wl,--gc-sections", "-Wl,-z,defs"]);
    command.args(["-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,--build-id=sha1"]);
    command.arg(format!("-Wl,-soname,{NAME}"));
    command.arg(format!("-Wl,--version-script={}", exports.display()));
    command.arg("-Wl,-s").arg(out.join("libobject.a"));
    run(command);
}

fn run(mut command: Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed:\n{errors}");
}
