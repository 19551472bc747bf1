//! `tidy`: the rules no other tool checks.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::{root, say};

/// Lines a Rust file may have.
const MAX_LINES: usize = 600;

/// Crates that hold no unsafe code, and say so.
const SAFE_CRATES: [&str; 14] = [
    "address", "agent", "binary", "handover", "inspect", "metrics", "otlp", "output", "probe",
    "sensors", "testkit", "timeline", "top", "wire",
];

/// Which of our crates each crate may depend on: dependencies point one way.
const BORDERS: [(&str, &[&str]); 17] = [
    ("address", &[]),
    ("handover", &[]),
    ("wire", &[]),
    ("process", &["address"]),
    ("binary", &["address"]),
    ("inspect", &["address", "binary"]),
    ("probe", &["address", "binary", "wire"]),
    ("capture", &["probe", "wire"]),
    ("capture-uprobe", &["address", "capture", "probe", "wire"]),
    ("timeline", &["probe", "wire"]),
    ("sensors", &["probe", "timeline"]),
    ("metrics", &["inspect", "process"]),
    ("output", &["metrics", "probe", "sensors", "timeline"]),
    ("agent", &["metrics", "probe", "sensors"]),
    ("otlp", &["metrics", "output", "sensors"]),
    ("testkit", &[]),
    ("top", &[]),
];

/// Checks every file that git knows or would take in.
pub fn run() -> anyhow::Result<()> {
    let out = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard"])
        .current_dir(root())
        .output()
        .context("failed to run git")?;
    ensure!(out.status.success(), "git ls-files failed");
    let files = String::from_utf8(out.stdout).context("a file name is not UTF-8")?;
    let mut wrong = Vec::new();
    for file in files.lines() {
        // Deleted files are listed until the deletion is committed; binaries are not text.
        if let Ok(text) = fs::read_to_string(root().join(file)) {
            check_file(file, &text, &mut wrong);
        }
    }
    check_safe_crates(&mut wrong);
    check_borders(&mut wrong)?;
    for line in &wrong {
        say(line);
    }
    if !wrong.is_empty() {
        bail!("tidy: {} complaints", wrong.len());
    }
    Ok(())
}

fn check_file(file: &str, text: &str, wrong: &mut Vec<String>) {
    let kind = Path::new(file).extension().and_then(|kind| kind.to_str()).unwrap_or("");
    let golden = matches!(kind, "txt" | "golden" | "json" | "jsonl");
    if golden || file.starts_with("LICENSE") {
        return;
    }
    if !text.is_empty() && !text.ends_with('\n') {
        wrong.push(format!("{file}: no newline at the end"));
    }
    for (number, line) in (1..).zip(text.lines()) {
        // In a table of tab-separated values the last one may be empty.
        let cut = if file.ends_with(".tsv") { &[' '][..] } else { &[' ', '\t'] };
        if line.trim_end_matches(cut) != line {
            wrong.push(format!("{file}:{number}: trailing space"));
        }
    }
    if kind == "rs" {
        let lines = text.lines().count();
        if lines > MAX_LINES {
            wrong.push(format!("{file}: {lines} lines, {MAX_LINES} are the limit"));
        }
        check_unsafe(file, text, wrong);
    }
}

/// clippy asks for SAFETY comments on blocks and impls; this asks that unsafe stays where it
/// belongs: where a process is looked into, where code is put into one, and in the library that does that
/// from within, without libc.
fn check_unsafe(file: &str, text: &str, wrong: &mut Vec<String>) {
    let allowed = [
        "crates/process/",
        "crates/capture-uprobe/",
        "crates/capture-trampoline/",
        "crates/preload/",
    ];
    if allowed.iter().any(|place| file.starts_with(place)) {
        return;
    }
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.split("//").next().unwrap_or("");
        let words = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"];
        if !code.contains('"') && words.iter().any(|word| code.contains(word)) {
            wrong.push(format!("{file}:{number}: unsafe code outside the crates that may"));
        }
    }
}

fn check_safe_crates(wrong: &mut Vec<String>) {
    for name in SAFE_CRATES {
        let path = format!("crates/{name}/src/lib.rs");
        if let Ok(text) = fs::read_to_string(root().join(&path))
            && !text.contains("#![forbid(unsafe_code)]")
        {
            wrong.push(format!("{path}: no #![forbid(unsafe_code)]"));
        }
    }
}

fn check_borders(wrong: &mut Vec<String>) -> anyhow::Result<()> {
    for (name, allowed) in BORDERS {
        let path = format!("crates/{name}/Cargo.toml");
        let Ok(text) = fs::read_to_string(root().join(&path)) else { continue };
        let section = text
            .split("[dependencies]")
            .nth(1)
            .with_context(|| format!("{path} has no [dependencies]"))?;
        let lines = section.lines().skip(1).take_while(|line| !line.starts_with('['));
        for line in lines {
            let dependency = line.split([' ', '=', '.']).next().unwrap_or("");
            let ours = BORDERS.iter().any(|(crate_name, _)| *crate_name == dependency);
            if ours && !allowed.contains(&dependency) {
                wrong.push(format!("{path}: {name} must not depend on {dependency}"));
            }
        }
    }
    Ok(())
}
