//! Names, positions, inlined calls and types read from the file, against what the
//! runtime of the same program says. Builds with the toolchain of `GOSPECT_TEST_GO`
//! (else the newest), in the mode of `GOSPECT_TEST_MODE` and stripped.

mod common;

use address::{Bias, Svma};
use binary::{Executable, Frame};
use common::open_good;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::{Fixture, Mode};

/// Addresses asked of the runtime in one run.
const MAX_ADDRESSES: usize = 30_000;

fn builds() -> Vec<PathBuf> {
    let go = testkit::selected();
    let mut modes = vec![Mode::selected(), Mode::Stripped, Mode::StrippedPie];
    modes.dedup();
    modes.into_iter().map(|mode| Fixture::build("symbols", &go, mode)).collect()
}

/// A running `symbols`: its answers so far, and its bias.
struct Program {
    child: std::process::Child,
    stdout: std::io::BufReader<std::process::ChildStdout>,
    frames: Vec<String>,
    pcs: Vec<u64>,
    types: Vec<(u64, u8, String)>,
    bias: Bias,
}

impl Program {
    fn start(path: &Path, executable: &Executable) -> Self {
        use std::io::BufRead as _;
        let mut child = Command::new(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        let (mut frames, mut pcs, mut types) = (Vec::new(), Vec::new(), Vec::new());
        let entry = loop {
            let mut line = String::new();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "the program ended early");
            let (kind, rest) = line.trim_end().split_once(' ').unwrap();
            match kind {
                "frame" => frames.push(rest.to_owned()),
                "pc" => pcs.push(hex(rest)),
                "type" => {
                    let mut parts = rest.splitn(3, ' ');
                    let mut next = || parts.next().unwrap();
                    types.push((hex(next()), next().parse().unwrap(), next().to_owned()));
                }
                "entry" => break hex(rest),
                _ => panic!("unexpected line {line:?}"),
            }
        };
        let main = executable.functions().unwrap().by_name("main.main");
        assert_eq!(main.len(), 1);
        let bias = Bias(entry.wrapping_sub(main[0].entry.0));
        Self { child, stdout, frames, pcs, types, bias }
    }

    /// The innermost function, file and line of each address, as text.
    fn ask(mut self, addresses: &[Svma]) -> BTreeMap<Svma, String> {
        let mut questions = String::new();
        for &address in addresses {
            writeln!(questions, "{:x}", self.bias.to_avma(address)).unwrap();
        }
        let mut stdin = self.child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(questions.as_bytes()).unwrap());
        let mut answers = String::new();
        self.stdout.read_to_string(&mut answers).unwrap();
        writer.join().unwrap();
        assert!(self.child.wait().unwrap().success());
        answers
            .lines()
            .map(|line| {
                let mut parts = line.splitn(3, ' ');
                assert_eq!(parts.next(), Some("at"));
                let address = address::Avma(hex(parts.next().unwrap()));
                (self.bias.to_svma(address), parts.next().unwrap().to_owned())
            })
            .collect()
    }
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// A frame as the runtime prints it: with `[...]` for type arguments.
fn printed(frame: &Frame) -> String {
    let name = match (frame.func.find('['), frame.func.rfind(']')) {
        (Some(start), Some(end)) => {
            format!("{}[...]{}", &frame.func[..start], &frame.func[end + 1..])
        }
        _ => frame.func.clone(),
    };
    format!("{name} {}:{}", frame.file, frame.line)
}

/// Some addresses in every function.
fn sample(executable: &Executable) -> Vec<Svma> {
    let functions = executable.functions().unwrap();
    let mut addresses = Vec::new();
    for function in functions.iter() {
        let size = functions.code_end(&function).since(function.entry).unwrap();
        let step = (size / 11).max(1);
        addresses.extend((0..size).step_by(step as usize).map(|at| function.entry.add(at)));
    }
    let stride = addresses.len().div_ceil(MAX_ADDRESSES);
    addresses.into_iter().step_by(stride).collect()
}

#[test]
fn every_address_is_symbolized_as_the_runtime_does() {
    for path in builds() {
        let executable = open_good(&path);
        let addresses = sample(&executable);
        assert!(addresses.len() > 5_000, "{}", addresses.len());
        let runtime = Program::start(&path, &executable).ask(&addresses);
        assert_eq!(runtime.len(), addresses.len());
        let (mut differences, mut unnamed) = (Vec::new(), BTreeSet::new());
        for address in addresses {
            let frames = executable.symbolize(address);
            // Markers that the linker puts between parts of text have no code of their own.
            let function = executable.functions().unwrap().find(address).unwrap();
            let ours = match frames.first() {
                Some(frame) => printed(frame),
                None if function.name.starts_with("go:textfips") => continue,
                None => "nothing".to_owned(),
            };
            let theirs = &runtime[&address];
            if ours.split_once(' ').is_some_and(|(_, place)| *theirs == format!(" {place}")) {
                unnamed.insert(frames[0].func.clone());
            } else if ours != *theirs {
                differences.push(format!("{address:x}: {ours}, runtime {theirs}"));
            }
        }
        // The runtime takes the name at offset 0 of the name table for no name
        // (`runtime.funcname`).
        assert!(unnamed.len() <= 1, "{unnamed:?}");
        assert!(differences.is_empty(), "{}: {differences:#?}", path.display());
    }
}

#[test]
fn an_inlined_stack_is_unfolded_as_the_runtime_does() {
    for path in builds() {
        let executable = open_good(&path);
        let program = Program::start(&path, &executable);
        let (bias, frames, pcs) = (program.bias, program.frames.clone(), program.pcs.clone());
        program.ask(&[]);
        // The second return address lies in main.outer, into which two calls are inlined
        // unless the build forbids it.
        let address = bias.to_svma(address::Avma(pcs[1])).add(0u64.wrapping_sub(1));
        let ours: Vec<_> = executable.symbolize(address).iter().map(printed).collect();
        assert_eq!(ours, frames[1..=ours.len()]);
        let inlining = Mode::selected() != Mode::NoOpt || path != builds()[0];
        assert_eq!(ours.len(), if inlining { 3 } else { 1 });
    }
}

#[test]
fn type_descriptors_have_the_names_and_kinds_of_reflect() {
    for path in builds() {
        let executable = open_good(&path);
        let program = Program::start(&path, &executable);
        let bias = program.bias;
        let types = program.types.clone();
        program.ask(&[]);
        assert!(types.len() > 20);
        for (descriptor, kind, name) in types {
            let descriptor = bias.to_svma(address::Avma(descriptor));
            assert_eq!(executable.type_name(descriptor), Some((name, kind)));
        }
        let module = executable.module().unwrap();
        assert_eq!(executable.type_name(module.types), None);
        assert_eq!(executable.type_name(module.etypes), None);
        assert_eq!(executable.type_name(module.text), None);
    }
}

#[test]
fn functions_are_those_of_the_symbol_table() {
    let go = testkit::selected();
    let executable = open_good(&Fixture::build("symbols", &go, Mode::Exe));
    assert!(!executable.is_stripped());
    let mut wrong = Vec::new();
    for function in executable.functions().unwrap().iter() {
        let symbols = executable.symbols().at(function.entry);
        // Go 1.19 leaves type arguments and array lengths out of the pclntab; the linker
        // rewrites the middle dot in symbols only.
        let agrees = symbols.iter().any(|symbol| {
            let name = symbol.name.strip_suffix(".abi0").unwrap_or(&symbol.name);
            let (start, end) = function.name.split_once("[...]").unwrap_or((&function.name, ""));
            name == function.name
                || name == function.name.replace('·', ".")
                || (start != function.name && name.starts_with(start) && name.ends_with(end))
        });
        if !agrees {
            wrong.push(format!("{:x} {} {symbols:?}", function.entry, function.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Every function, with the position of its entry and its first line.
fn function_lines(mode: Mode) -> Vec<String> {
    let executable = open_good(&Fixture::build("symbols", &testkit::selected(), mode));
    let functions = executable.functions().unwrap();
    let describe = |function: binary::Function| {
        let position = functions.file_line(&function, function.entry);
        format!("{} {position:?} {:?}", function.name, function.start_line)
    };
    functions.iter().map(describe).collect()
}

#[test]
fn a_stripped_executable_has_the_same_functions() {
    assert!(function_lines(Mode::Exe).iter().any(|line| line.starts_with("main.outer Some")));
    assert_eq!(function_lines(Mode::Stripped), function_lines(Mode::Exe));
    assert_eq!(function_lines(Mode::StrippedPie), function_lines(Mode::Pie));
}

#[test]
fn inlined_copies_are_listed_with_their_calls() {
    let path = Fixture::build("inlined", &testkit::selected(), Mode::Exe);
    let executable = open_good(&path);
    let functions = executable.functions().unwrap();
    let wanted = ["main.tiny", "main.once"];
    let mut text = String::new();
    for (holder, call) in functions.inlined_copies(&|name| wanted.contains(&name)) {
        let file = call.file.rsplit('/').next().unwrap();
        assert!(functions.inline_tree(&holder).contains(&call), "{call:?}");
        let inlined = call.name;
        writeln!(text, "{inlined} in {} by {} {file}:{}", holder.name, call.caller, call.line)
            .unwrap();
    }
    assert_eq!(
        text,
        "main.tiny in main.host by main.host main.go:27\n\
         main.once in main.host by main.host main.go:27\n"
    );
    assert!(functions.by_name("main.tiny").is_empty());
    assert_eq!(functions.by_name("main.once").len(), 1);
    assert!(functions.by_name("main.dead").is_empty());
}
