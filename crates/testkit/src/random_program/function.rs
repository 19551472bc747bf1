//! Random Go functions, and what calls and logs them.

use std::fmt::Write as _;

use super::types::Types;
use super::{PREFIX, Random};

/// A parameter or a result.
struct Part {
    name: String,
    ty: String,
    /// The variable of the caller.
    variable: String,
}

struct Function {
    number: u32,
    receiver: Option<Part>,
    params: Vec<Part>,
    is_variadic: bool,
    results: Vec<Part>,
    has_named_results: bool,
}

/// Declares function `number`, the variables that it writes and reads, and its caller.
pub(super) fn declare(number: u32, types: &Types, random: &mut Random) -> String {
    let function = Function::new(number, types, random);
    let mut text = String::new();
    let parts = function.receiver.iter().chain(&function.params).enumerate();
    for (index, part) in parts {
        _ = writeln!(text, "var sink{number}_{index} {}", part.ty);
    }
    for (index, part) in function.results.iter().enumerate() {
        _ = writeln!(text, "var give{number}_{index} {}", part.ty);
    }
    text + &function.body(random) + &function.caller(random)
}

/// How many values: few as a rule, else more than there are registers for.
fn how_many(random: &mut Random) -> usize {
    match random.below(10) {
        0 => random.below(20),
        1 => 9 + random.below(4),
        _ => random.below(5),
    }
}

impl Function {
    fn new(number: u32, types: &Types, random: &mut Random) -> Self {
        let receiver = random.one_in(4).then(|| {
            let named = types.any_named(random).text;
            let star = random.pick(&["", "*"]);
            Part { name: "r".into(), ty: format!("{star}{named}"), variable: "r".into() }
        });
        // Many of one kind fill the registers of that kind.
        let uniform =
            random.one_in(6).then(|| random.pick(&["float64", "int", "float32", "uint8"]));
        let value = |index: usize, letter: char, random: &mut Random| Part {
            name: format!("{letter}{index}"),
            ty: match uniform.filter(|_| !random.one_in(5)) {
                Some(ty) => ty.to_owned(),
                None => types.of_depth(random.below(4), random).text,
            },
            variable: format!("{letter}{index}"),
        };
        let most = if uniform.is_some() { 2 } else { 1 };
        let count = most * how_many(random);
        let mut params: Vec<Part> = (0..count).map(|index| value(index, 'a', random)).collect();
        let count = how_many(random);
        let mut results: Vec<Part> = (0..count).map(|index| value(index, 'x', random)).collect();
        let has_named_results = random.one_in(3);
        for (index, result) in results.iter_mut().enumerate().filter(|_| !has_named_results) {
            result.name = format!("~r{index}");
        }
        let is_variadic = !params.is_empty() && random.one_in(8);
        for param in &mut params {
            if random.one_in(25) {
                param.name = "_".into();
            }
        }
        if is_variadic && let Some(last) = params.last_mut() {
            last.ty = format!("[]{}", last.ty);
        }
        Self { number, receiver, params, is_variadic, results, has_named_results }
    }

    fn name(&self) -> String {
        format!("{PREFIX}{}", self.number)
    }

    /// As a trace has it.
    fn full_name(&self) -> String {
        match self.receiver.as_ref().map(|receiver| receiver.ty.as_str()) {
            None => format!("main.{}", self.name()),
            Some(ty) if ty.starts_with('*') => format!("main.({ty}).{}", self.name()),
            Some(ty) => format!("main.{ty}.{}", self.name()),
        }
    }

    fn signature(&self) -> String {
        let mut text = "func ".to_owned();
        if let Some(receiver) = &self.receiver {
            _ = write!(text, "({} {}) ", receiver.name, receiver.ty);
        }
        _ = write!(text, "{}(", self.name());
        for (index, param) in self.params.iter().enumerate() {
            let is_rest = self.is_variadic && index + 1 == self.params.len();
            let ty = match param.ty.strip_prefix("[]").filter(|_| is_rest) {
                Some(element) => format!("...{element}"),
                None => param.ty.clone(),
            };
            _ = write!(text, "{} {ty}, ", param.name);
        }
        text += ") (";
        for result in &self.results {
            let name = if self.has_named_results { result.name.as_str() } else { "" };
            _ = write!(text, "{name} {}, ", result.ty);
        }
        text + ") {\n"
    }

    fn body(&self, random: &mut Random) -> String {
        let number = self.number;
        let mut text = format!("\n//go:noinline\n{}", self.signature());
        if random.one_in(4) {
            let bytes = 1 << (7 + random.below(8));
            _ = writeln!(text, "\tvar room [{bytes}]byte\n\ttouch(&room[{}], 1)", bytes / 2);
        }
        let recovers = self.has_named_results && random.one_in(3);
        if recovers {
            text += "\tdefer func() {\n\t\trecover()\n";
            for (index, result) in self.results.iter().enumerate() {
                _ = writeln!(text, "\t\t{} = give{number}_{index}", result.name);
            }
            text += "\t}()\n";
        }
        let used = |random: &mut Random| !random.one_in(4);
        for (index, part) in self.receiver.iter().chain(&self.params).enumerate() {
            if part.name != "_" && used(random) {
                _ = writeln!(text, "\tsink{number}_{index} = {}", part.name);
                if random.one_in(4) {
                    // What was passed is shown, not what became of it.
                    _ = writeln!(text, "\tvar zero{index} {}", part.ty);
                    _ = writeln!(text, "\t{} = zero{index}", part.name);
                    _ = writeln!(text, "\tsink{number}_{index} = {}", part.name);
                }
            }
        }
        if recovers && random.one_in(2) {
            return text + "\tpanic(\"recovered\")\n}\n";
        }
        text += "\treturn ";
        for (index, result) in self.results.iter().enumerate() {
            let same = self.params.iter().find(|param| param.name != "_" && param.ty == result.ty);
            let comma = if index > 0 { ", " } else { "" };
            match same.filter(|_| random.one_in(2)) {
                Some(param) => _ = write!(text, "{comma}{}", param.name),
                None => _ = write!(text, "{comma}give{number}_{index}"),
            }
        }
        text + "\n}\n"
    }

    fn caller(&self, random: &mut Random) -> String {
        let number = self.number;
        let mut text = format!("\nfunc call{number}(s *source) {{\n");
        let given = || self.receiver.iter().chain(&self.params);
        for part in given() {
            _ = writeln!(text, "\tvar {} {}\n\tfill(s, &{0})", part.variable, part.ty);
        }
        for (index, part) in self.results.iter().enumerate() {
            _ = writeln!(
                text,
                "\tfill(s, &give{number}_{index})\n\tvar {} {}",
                part.variable, part.ty
            );
        }
        let results = join(self.results.iter().map(|part| part.variable.clone()));
        let equals = if results.is_empty() { "" } else { " = " };
        let receiver = if self.receiver.is_some() { "r." } else { "" };
        let arguments = join(self.params.iter().map(|part| part.variable.clone()));
        let dots = if self.is_variadic { "..." } else { "" };
        let call = format!("{results}{equals}{receiver}{}({arguments}{dots})", self.name());
        match random.one_in(4) {
            true => _ = writeln!(text, "\tapart(func() {{ {call} }})"),
            false => _ = writeln!(text, "\t{call}"),
        }
        let names = |parts: &mut dyn Iterator<Item = &Part>| {
            let names = join(parts.map(|part| format!("{:?}", part.name)));
            format!("[]string{{{names}}}")
        };
        let pointers = |parts: &mut dyn Iterator<Item = &Part>| {
            let pointers = join(parts.map(|part| format!("&{}", part.variable)));
            format!("[]any{{{pointers}}}")
        };
        _ = writeln!(
            text,
            "\temit({:?}, {}, {}, {}, {})\n}}",
            self.full_name(),
            names(&mut given()),
            pointers(&mut given()),
            names(&mut self.results.iter()),
            pointers(&mut self.results.iter()),
        );
        text
    }
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}
