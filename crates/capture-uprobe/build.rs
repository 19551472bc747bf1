//! Compiles the BPF program with clang, the only compiler that makes CO-RE objects.

use libbpf_cargo::SkeletonBuilder;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=bpf");
    let object = PathBuf::from(std::env::var("OUT_DIR")?).join("gospect.bpf.o");
    // The object holds the names of its sources: the same from every directory.
    let here = std::env::var("CARGO_MANIFEST_DIR")?;
    let names = format!("-ffile-prefix-map={here}=crates/capture-uprobe");
    SkeletonBuilder::new()
        .source("bpf/gospect.bpf.c")
        .obj(&object)
        // v3: 32-bit ALU and atomic compare-and-swap, in every kernel this backend accepts.
        .clang_args(["-mcpu=v3", "-nostdinc", "-Wall", "-Werror", &names])
        .build()
        .map_err(|e| format!("{e:#}\nthe BPF program needs clang 12 or newer on PATH"))?;
    Ok(())
}
