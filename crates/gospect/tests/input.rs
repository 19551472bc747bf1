//! Bad input: every way of asking for what cannot be had gives its own exit code and a line
//! that says what is wrong. Those that load no probes need no root.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{any_gospect, expect_refusal, path_text, temporary};
use testkit::{Fixture, Mode, Recipe, newest};

/// A file that is removed in the end.
struct Temporary(PathBuf);

impl Temporary {
    fn with(bytes: &[u8]) -> Self {
        let path = temporary("bin");
        fs::write(&path, bytes).expect("a temporary file");
        Self(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("a path of ours")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

fn counts() -> PathBuf {
    Fixture::build("counts", &newest(), Mode::Exe)
}

/// The same refusal by every command that opens an executable.
#[track_caller]
fn expect_refused_everywhere(binary: &str, words: &[&str]) {
    let trace = any_gospect().run(&["trace", "--exe", binary, "-u", "main.*", "--duration", "1s"]);
    expect_refusal(&trace, 1, words);
    expect_refusal(&any_gospect().run(&["info", binary]), 1, words);
    expect_refusal(&any_gospect().run(&["funcs", binary]), 1, words);
}

#[test]
fn what_is_no_elf_file_is_refused() {
    expect_refused_everywhere(Temporary::with(b"#!/bin/sh\necho hello\n").text(), &["elf"]);
    expect_refused_everywhere(Temporary::with(b"").text(), &["elf"]);
}

#[test]
fn a_file_that_is_not_there_is_refused() {
    expect_refused_everywhere("/nonexistent/program", &["/nonexistent/program"]);
}

#[test]
fn a_directory_is_refused() {
    expect_refused_everywhere("/usr", &["/usr"]);
}

#[test]
fn a_c_program_is_refused() {
    expect_refused_everywhere("/bin/true", &["go"]);
}

#[test]
fn other_architectures_are_refused_by_name() {
    for (arch, word) in [("386", "32-bit"), ("arm64", "arm64")] {
        let recipe = Recipe::new(arch).env("GOARCH", arch);
        let binary = Fixture::build_as("counts", &newest(), &recipe);
        expect_refused_everywhere(path_text(&binary), &[word]);
    }
}

#[test]
fn libraries_and_plugins_are_refused_by_name() {
    for (mode, word) in [("c-shared", "c-shared"), ("plugin", "plugin")] {
        let recipe = Recipe::new(mode).cgo().arg(&format!("-buildmode={mode}"));
        let binary = Fixture::build_as("counts", &newest(), &recipe);
        expect_refused_everywhere(path_text(&binary), &[word]);
    }
}

#[test]
fn a_packed_executable_is_refused_by_name() {
    // What UPX leaves: the header, three program headers, its mark in the structure behind them
    // (`l_info` in its src/stub/src/include/linux.h), and compressed bytes.
    let mut bytes = fs::read(counts()).expect("the fixture");
    bytes.truncate(0x10000);
    bytes[40..48].fill(0); // No section headers.
    bytes[60..64].fill(0);
    bytes[56] = 3;
    let behind = 64 + 3 * 56;
    bytes[behind + 4..behind + 8].copy_from_slice(b"UPX!");
    for (at, byte) in bytes.iter_mut().enumerate().skip(behind + 12) {
        *byte = (at * 167 % 251) as u8;
    }
    let packed = Temporary::with(&bytes);
    expect_refused_everywhere(packed.text(), &["upx"]);
}

#[test]
fn truncated_and_damaged_executables_do_no_harm() {
    let bytes = fs::read(counts()).expect("the fixture");
    for percent in [1, 10, 30, 50, 70, 90, 99] {
        let part = Temporary::with(&bytes[..bytes.len() * percent / 100]);
        for command in [&["info"][..], &["funcs"], &["types"]] {
            let mut args = command.to_vec();
            args.push(part.text());
            if command == ["types"] {
                args.push("main.none");
            }
            let output = any_gospect().run(&args);
            assert!(output.code.is_some_and(|code| code <= 3), "{percent}%: {}", output.story());
            assert!(!output.stderr.contains("panicked"), "{percent}%: {}", output.story());
        }
    }
    let mut damaged = bytes.clone();
    for at in (0x1000..damaged.len()).step_by(97) {
        damaged[at] ^= 0x5a;
    }
    let damaged = Temporary::with(&damaged);
    let output = any_gospect().run(&["funcs", damaged.text()]);
    assert!(output.code.is_some_and(|code| code <= 3), "{}", output.story());
    assert!(!output.stderr.contains("panicked"), "{}", output.story());
}

#[test]
fn a_changed_function_table_is_refused() {
    // What an obfuscator does: another magic number at the head of the function table.
    let mut bytes = fs::read(counts()).expect("the fixture");
    let magic = [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
    let at: Vec<usize> = (0..bytes.len() - 8).filter(|&at| bytes[at..at + 8] == magic).collect();
    assert!(!at.is_empty(), "the fixture has a function table");
    for at in at {
        bytes[at..at + 4].copy_from_slice(&[0x12, 0x34, 0x56, 0x78]);
    }
    let changed = Temporary::with(&bytes);
    expect_refusal(&any_gospect().run(&["funcs", changed.text()]), 1, &["function table"]);
}

#[test]
fn no_such_process_is_refused() {
    let gone = {
        let mut child = Command::new("/bin/true").spawn().expect("true");
        child.wait().expect("its end");
        child.id().to_string()
    };
    for args in [&["trace", "-u", "main.*", "-p"][..], &["info", "-p"], &["funcs", "-p"]] {
        let mut args = args.to_vec();
        args.push(&gone);
        expect_refusal(&any_gospect().run(&args), 1, &[&gone]);
    }
}

#[test]
fn usage_errors_exit_with_2() {
    let program = counts();
    let program = path_text(&program);
    let wrong: &[&[&str]] = &[
        &["trace"],
        &["trace", "-u", "main.*"],
        &["trace", "-u", "main.*", "--"],
        &["trace", "--exe", program],
        &["trace", "--exe", program, "-u", "/(/"],
        &["trace", "--exe", program, "-u", "main.*", "--duration", "soon"],
        &["trace", "--exe", program, "-u", "main.*", "--format", "yaml"],
        &["trace", "--exe", program, "main.add(a=+0(%zz):s64)"],
        &["trace", "--exe", program, "main.add(a=(%ax):s65)"],
        &["trace", "--exe", program, "main.add(a=(%ax:s64)"],
        &["trace", "-p", "none", "-u", "main.*"],
        &["trace", "--exe", program, "-u", "main.*", "--depth", "0"],
        &["trace", "--exe", program, "-u", "main.*", "--limit", "0"],
        &["trace", "--exe", program, "-u", "main.*", "--max-overhead", "nan"],
        &["trace", "--exe", program, "-u", "main.*", "--ring", "0"],
        &["trace", "--exe", program, "-u", "main.*", "--color", "pink"],
        &["trace", "-p", "1", "--exe", program, "-u", "main.*"],
        &["nothing"],
        &["funcs", program, "/(/"],
        &["completions", "tcl"],
    ];
    for args in wrong {
        let output = any_gospect().run(args);
        assert_eq!(output.code, Some(2), "{args:?}: {}", output.story());
        assert_eq!(output.stdout, "", "{args:?}: {}", output.story());
        assert_ne!(output.stderr, "", "{args:?} says why");
    }
}

#[test]
fn a_malformed_rule_says_where() {
    let program = counts();
    let rule = "main.work(i=(%ax):q64)";
    let output = any_gospect().run(&["trace", rule, "--", path_text(&program)]);
    expect_refusal(&output, 2, &[rule, "q64"]);
    let column = rule.find("q64").expect("it is there") + 1;
    assert!(output.stderr.contains(&column.to_string()), "column {column}: {}", output.stderr);
}

#[test]
fn a_full_disk_is_a_failure() {
    let program = counts();
    let output = any_gospect().run(&["funcs", path_text(&program), "-o", "/dev/full"]);
    expect_refusal(&output, 1, &["/dev/full"]);
    for line in [&["funcs", path_text(&program)][..], &["doctor"], &["completions", "bash"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let mut command = any_gospect().command(line);
        let output = command.stdout(full).stderr(Stdio::piped()).output().expect("gospect starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line:?}: {said}");
        assert!(said.contains("failed to write to stdout: "), "{line:?}: {said}");
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let program = counts();
    let mut child = Command::new(env!("CARGO_BIN_EXE_gospect"))
        .args(["funcs", path_text(&program)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gospect starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
