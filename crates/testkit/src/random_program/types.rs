//! Random Go types.

use std::fmt::Write as _;

use super::Random;

const NUMBERS: [&str; 15] = [
    "int8",
    "int16",
    "int32",
    "int64",
    "int",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "uint",
    "uintptr",
    "float32",
    "float64",
    "complex64",
    "complex128",
];

const NAMED: usize = 32;

/// A type as it is written in Go.
#[derive(Clone, Debug)]
pub(super) struct Type {
    pub(super) text: String,
    /// Whether it may be the key of a map.
    is_key: bool,
}

impl Type {
    fn new(text: impl Into<String>, is_key: bool) -> Self {
        Self { text: text.into(), is_key }
    }
}

/// The types that a program declares, and those made of them.
pub(super) struct Types {
    declarations: String,
    named: Vec<Type>,
}

impl Types {
    pub(super) fn new(random: &mut Random) -> Self {
        let mut types = Self { declarations: String::new(), named: Vec::new() };
        for number in 0..NAMED {
            let name = format!("T{number}");
            let underlying = match random.below(6) {
                0 => Type::new(random.pick(&NUMBERS), true),
                1 => types.of_depth(2, random),
                _ => types.structure(2, random),
            };
            // A named pointer or interface has no methods.
            let methodless = ["*", "any", "error", "fmt.", "unsafe."];
            let underlying = match methodless.iter().any(|it| underlying.text.starts_with(it)) {
                true => Type::new("struct { A, B int8; C string }", true),
                false => underlying,
            };
            _ = writeln!(types.declarations, "type {name} {}\n", underlying.text);
            types.named.push(Type::new(name, underlying.is_key));
        }
        types
    }

    pub(super) fn declarations(&self) -> &str {
        &self.declarations
    }

    /// What interfaces of the program hold: a pointer to each type.
    pub(super) fn dynamics(&self) -> String {
        let mut text = "var dynamics = []func() any{".to_owned();
        let own = self.named.iter().map(|ty| ty.text.as_str());
        let plain = NUMBERS.into_iter().chain([
            "bool",
            "string",
            "[]byte",
            "[]string",
            "[2]int16",
            "struct{ X, Y int }",
            "map[string]int8",
            "*int32",
            "chan int",
            "func(int) int",
            "error",
            "node",
        ]);
        for ty in own.chain(plain) {
            _ = write!(text, "\n\tfunc() any {{ return new({ty}) }},");
        }
        text + "\n}\n\n"
    }

    /// A type with methods of its own.
    pub(super) fn any_named(&self, random: &mut Random) -> Type {
        self.named[random.below(self.named.len())].clone()
    }

    /// Any type; one at `depth` 0 is made of no others.
    pub(super) fn of_depth(&self, depth: usize, random: &mut Random) -> Type {
        if depth == 0 || random.below(5) < 2 {
            return self.plain(random);
        }
        let inner = |random: &mut Random| self.of_depth(depth - 1, random);
        match random.below(10) {
            0 | 1 => self.structure(depth - 1, random),
            2 | 3 => {
                let (len, element) = (random.pick(&[0, 1, 1, 2, 3, 5]), inner(random));
                Type::new(format!("[{len}]{}", element.text), element.is_key)
            }
            4 | 5 => Type::new(format!("*{}", inner(random).text), true),
            6 | 7 => Type::new(format!("[]{}", inner(random).text), false),
            8 => {
                let key = self.key(random);
                Type::new(format!("map[{key}]{}", inner(random).text), false)
            }
            _ => {
                let direction = random.pick(&["chan ", "<-chan ", "chan<- "]);
                Type::new(format!("{direction}{}", self.plain(random).text), false)
            }
        }
    }

    fn plain(&self, random: &mut Random) -> Type {
        match random.below(12) {
            0..4 => Type::new(random.pick(&NUMBERS), true),
            4 => Type::new("bool", true),
            5 | 6 => Type::new("string", true),
            7 if !self.named.is_empty() => self.any_named(random),
            8 => Type::new(random.pick(&["any", "error", "fmt.Stringer"]), false),
            9 => Type::new("[]byte", false),
            10 => {
                Type::new(random.pick(&["func(int) int", "unsafe.Pointer", "*node", "node"]), false)
            }
            _ => Type::new(random.pick(&["int", "float64"]), true),
        }
    }

    fn key(&self, random: &mut Random) -> String {
        loop {
            let ty = self.of_depth(1, random);
            if ty.is_key {
                return ty.text;
            }
        }
    }

    fn structure(&self, depth: usize, random: &mut Random) -> Type {
        let mut text = "struct {".to_owned();
        let mut is_key = true;
        for number in 0..random.below(6) {
            let field = self.of_depth(depth, random);
            is_key &= field.is_key;
            match random.below(12) {
                0 => _ = write!(text, " _ {};", random.pick(&["int8", "int64", "float32"])),
                _ => _ = write!(text, " F{number} {};", field.text),
            }
        }
        Type::new(text + " }", is_key)
    }
}
