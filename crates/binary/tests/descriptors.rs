//! Types by their descriptors in stripped programs, against debug information.

use binary::{
    DebugInfo, Executable, FunctionKey, Kind, TypeId, TypeInfo, TypeSource, convention_of,
};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use testkit::{Fixture, Mode, Toolchain, oldest, toolchain};

fn executable(path: &Path) -> Executable {
    Executable::open(Arc::new(std::fs::read(path).unwrap())).unwrap()
}

fn debug_info(executable: &Executable) -> DebugInfo {
    DebugInfo::open(executable.image()).unwrap().expect("debug info")
}

/// The name, without what the two spell differently: dots in the last element of a path, the mark of
/// types that the compiler made, and what stands in literals of structs and interfaces.
fn plain(name: &str) -> String {
    let name = name.replace("%2e", ".").replace("noalg.", "");
    // Types that functions declare are numbered.
    let mut parts = name.split('·');
    let first = parts.next().unwrap_or_default().to_owned();
    let name = parts
        .fold(first, |name, part| name + part.trim_start_matches(|c: char| c.is_ascii_digit()));
    match name.find("struct { ").or(name.find("interface { ")) {
        Some(at) => format!("{}literal", &name[..at]),
        None => name,
    }
}

/// Whether a name is that of a declaration, or made of such with `*` and `[]`: code alone leads to other
/// types.
fn is_declared(name: &str) -> bool {
    let inner = name.trim_start_matches(['*', '[', ']']);
    // The constant nil of this one stands in the code.
    inner != "sync.dequeueNil"
        && inner.starts_with(|c: char| c.is_alphabetic())
        && !["{", "(", "noalg.", "go.shape."].iter().any(|made| inner.contains(made))
}

/// What two descriptions of a type have to agree on, the names of their parts' types included.
fn described(types: TypeSource<'_>, ty: &TypeInfo) -> String {
    let name = |id: TypeId| plain(&types.type_info(id).unwrap().name);
    let parts = match &ty.kind {
        Kind::Struct { fields } => {
            let field = |field: &binary::Field| {
                // Up to Go 1.21 debug information has the package of embedded types.
                let short = field.name.rsplit(['/', '.']).next().unwrap_or_default();
                let shown = if field.embedded { short } else { &field.name };
                format!("\n  {shown} {} @{} {}", name(field.ty), field.offset, field.embedded)
            };
            fields.iter().map(field).collect()
        }
        Kind::Slice { elem } | Kind::Pointer { elem: Some(elem) } => name(*elem),
        Kind::Array { elem, len } => format!("{len} {}", name(*elem)),
        Kind::Map { key: Some(key), elem: Some(elem) } => {
            format!("{} {}", name(*key), name(*elem))
        }
        plain => format!("{plain:?}"),
    };
    // Debug information does not know that this one is aligned.
    let align = if ty.name.ends_with(".align64") { 8 } else { ty.align };
    format!("size {} align {align} {parts}", ty.size)
}

/// Every type that has both a descriptor and debug information.
fn compare(toolchain: &Toolchain, mode: Mode) -> (usize, Vec<String>) {
    let executable = executable(&Fixture::build("httpserver", toolchain, mode));
    let debug = debug_info(&executable);
    let (by_debug, by_descriptor) =
        (TypeSource::new(&executable, Some(&debug)), TypeSource::new(&executable, None));
    let (mut same, mut differ) = (0, Vec::new());
    let reached: HashSet<_> = executable.runtime_type_names().values().flatten().collect();
    for (name, id) in debug.type_names().unwrap() {
        let Some(descriptor) = by_debug.descriptor(id).unwrap() else { continue };
        // The runtime's own, which nobody names.
        if ["map.bucket[", "map.group["].iter().any(|made| name.contains(made)) {
            continue;
        }
        let stated = debug.type_info(id).unwrap();
        let Some(found) = executable.runtime_type(descriptor) else {
            differ.push(format!("{name}: no descriptor at {descriptor:?}"));
            continue;
        };
        if !reached.contains(&descriptor) && is_declared(&name) {
            differ.push(format!("{name}: nothing leads to its descriptor"));
        }
        let (one, other) = (described(by_debug, &stated), described(by_descriptor, &found.info));
        let is_named = plain(&found.info.name) == plain(&name);
        if one == other && is_named {
            same += 1;
        } else {
            differ.push(format!("{name}: {one}\n{}: {other}", found.info.name));
        }
    }
    (same, differ)
}

#[test]
fn descriptors_say_what_debug_information_says() {
    for toolchain in [oldest(), toolchain("1.23.9"), toolchain("1.26.6"), toolchain("1.27.3")] {
        for mode in [Mode::Exe, Mode::Pie] {
            let (same, differ) = compare(&toolchain, mode);
            let shown: Vec<&String> = differ.iter().take(6).collect();
            assert!(
                differ.is_empty(),
                "{}: {} differ: {shown:#?}",
                toolchain.version,
                differ.len()
            );
            assert!(same > 1500, "{}: only {same} types were compared", toolchain.version);
        }
    }
}

/// What the signatures of debug information and the descriptions for tracebacks disagree about.
fn arguments(fixture: &str, toolchain: &Toolchain) -> (usize, Vec<String>) {
    let executable = executable(&Fixture::build(fixture, toolchain, Mode::Exe));
    let debug = debug_info(&executable);
    let types = TypeSource::new(&executable, Some(&debug));
    let (mut same, mut differ) = (0, Vec::new());
    for function in executable.functions().unwrap().iter() {
        let convention = convention_of(executable.symbols(), function.entry);
        let go_version = executable.go_version();
        let (entry, args_size) = (function.entry, function.args_size);
        let key = FunctionKey { entry, convention, go_version, args_size };
        let Some(signature) = debug.placed_signature(key).unwrap() else { continue };
        match signature.contradiction(&executable, &function, types, convention, true).unwrap() {
            Some(contradiction) => differ.push(contradiction),
            None => same += 1,
        }
    }
    (same, differ)
}

#[test]
fn tracebacks_know_the_arguments_that_debug_information_has() {
    for toolchain in [toolchain("1.22.10"), toolchain("1.25.5"), toolchain("1.27.3")] {
        let (same, mut differ) = arguments("httpserver", &toolchain);
        // Generics of the program's own, methods too.
        differ.extend(arguments("values", &toolchain).1);
        let shown: Vec<&String> = differ.iter().take(40).collect();
        assert!(differ.is_empty(), "{}: {} differ: {shown:#?}", toolchain.version, differ.len());
        assert!(same > 5000, "{}: only {same} functions were compared", toolchain.version);
    }
}
