//! Names of types with the paths of their packages in full, as debug information has them.

use super::info::{ARRAY_LEN, ELEM, MAP_ELEM};
use super::{SIZE, TFLAG, name, type_name};
use crate::bytes::u32_at;
use crate::executable::Executable;
use address::Svma;

/// `abi.TFlagUncommon` and `abi.TFlagNamed`.
pub(super) const UNCOMMON: u8 = 1;
const NAMED: u8 = 4;

/// `abi.UncommonType`: bytes, and offsets.
pub(super) const UNCOMMON_SIZE: u64 = 16;
const METHOD_COUNT: usize = 4;
const METHODS_AT: usize = 8;
const UNUSED: usize = 12;

/// `abi.ChanType.Dir`.
const DIRECTION: u64 = 56;

/// `abi.FuncType`: counts of parameters and results, the size, and the bit that says variadic.
const IN_OUT: u64 = 48;
pub(super) const FUNC_SIZE: u64 = 56;
const VARIADIC: u16 = 1 << 15;

/// How deep and how wide a name is put together; what is beyond keeps its short name.
const MAX_DEPTH: u32 = 12;
const MAX_PARTS: u32 = 256;

/// What lies behind a named type's descriptor, and behind those with methods.
pub(super) struct Uncommon {
    pub(super) package: u32,
    pub(super) methods: Svma,
    pub(super) method_count: u16,
}

/// A func type's parameters and results.
pub(super) struct InOut {
    pub(super) params: Vec<Svma>,
    pub(super) results: Vec<Svma>,
    pub(super) is_variadic: bool,
}

impl Executable {
    /// The name as debug information has it. Struct and interface literals keep the short names of
    /// their packages inside.
    pub(super) fn full_type_name(&self, descriptor: Svma) -> Option<String> {
        self.name_part(descriptor, MAX_DEPTH, &mut { MAX_PARTS })
    }

    fn name_part(&self, descriptor: Svma, depth: u32, left: &mut u32) -> Option<String> {
        let module = self.module().ok()?;
        let (short, kind) = type_name(self.image(), module, descriptor)?;
        let flags = *self.image().read_vec(descriptor.add(TFLAG as u64), 1).ok()?.first()?;
        if flags & NAMED != 0 {
            return Some(self.with_path(descriptor, kind, flags, &short).unwrap_or(short));
        }
        *left = left.saturating_sub(1);
        if depth == 0 || *left == 0 {
            return Some(short);
        }
        let made = self.made_name(descriptor, kind, depth - 1, left);
        Some(made.unwrap_or(short))
    }

    /// The name of a type that no declaration named, from those of its parts.
    fn made_name(&self, at: Svma, kind: u8, depth: u32, left: &mut u32) -> Option<String> {
        let word = |offset| self.read_word(at.add(offset)).ok();
        let mut part = |offset| self.name_part(Svma(word(offset)?), depth, left);
        Some(match kind {
            17 => format!("[{}]{}", word(ARRAY_LEN)?, part(ELEM)?),
            18 => {
                let elem = part(ELEM)?;
                match word(DIRECTION)? {
                    1 => format!("<-chan {elem}"),
                    2 => format!("chan<- {elem}"),
                    _ if elem.starts_with("<-") => format!("chan ({elem})"),
                    _ => format!("chan {elem}"),
                }
            }
            19 => self.func_name(at, depth, left)?,
            21 => format!("map[{}]{}", part(ELEM)?, part(MAP_ELEM)?),
            22 => format!("*{}", part(ELEM)?),
            23 => format!("[]{}", part(ELEM)?),
            _ => return None,
        })
    }

    fn func_name(&self, at: Svma, depth: u32, left: &mut u32) -> Option<String> {
        let InOut { params, results, is_variadic } = self.in_out(at)?;
        let mut names = |types: &[Svma]| -> Option<Vec<String>> {
            types.iter().map(|ty| self.name_part(*ty, depth, left)).collect()
        };
        let (mut params, results) = (names(&params)?, names(&results)?);
        if let (true, Some(last)) = (is_variadic, params.last_mut()) {
            *last = format!("...{}", last.strip_prefix("[]")?);
        }
        let results = match &results[..] {
            [] => String::new(),
            [one] => format!(" {one}"),
            many => format!(" ({})", many.join(", ")),
        };
        Some(format!("func({}){results}", params.join(", ")))
    }

    /// Parameters and results of a func type.
    pub(super) fn in_out(&self, at: Svma) -> Option<InOut> {
        let head = self.image().read_vec(at, IN_OUT + 4).ok()?;
        let counts = u32_at(&head, IN_OUT as usize)?;
        let (inputs, outputs) = (counts as u16, (counts >> 16) as u16);
        let uncommon = if head.get(TFLAG)? & UNCOMMON != 0 { UNCOMMON_SIZE } else { 0 };
        let types = |from: u16, count: u16| -> Option<Vec<Svma>> {
            let all = (from..from.checked_add(count)?).map(|index| {
                let place = at.add(FUNC_SIZE + uncommon + 8 * u64::from(index));
                self.read_word(place).ok().map(Svma)
            });
            all.collect()
        };
        let is_variadic = outputs & VARIADIC != 0;
        let results = types(inputs, outputs & !VARIADIC)?;
        Some(InOut { params: types(0, inputs)?, results, is_variadic })
    }

    /// What lies behind the descriptor. Read by its own words: nothing of it is taken that does not
    /// look as the compiler writes it (`dextratype` in cmd/compile/internal/reflectdata/reflect.go).
    pub(super) fn uncommon(&self, descriptor: Svma, kind: u8, flags: u8) -> Option<Uncommon> {
        if flags & UNCOMMON == 0 {
            return None;
        }
        let offset = match kind {
            17 => 72,
            18 => 64,
            19 | 22 | 23 => 56,
            20 | 25 => 80,
            21 => self.map_type_size().ok()?,
            _ => SIZE,
        };
        let raw = self.image().read_vec(descriptor.add(offset), UNCOMMON_SIZE).ok()?;
        let (counts, methods) = (u32_at(&raw, METHOD_COUNT)?, u32_at(&raw, METHODS_AT)?);
        let (method_count, exported) = (counts as u16, (counts >> 16) as u16);
        let is_sound = u32_at(&raw, UNUSED)? == 0
            && exported <= method_count
            && u64::from(methods) >= UNCOMMON_SIZE;
        let methods = descriptor.add(offset).add(methods.into());
        is_sound.then_some(Uncommon { package: u32_at(&raw, 0)?, methods, method_count })
    }

    /// The name behind the path of its package. Universe types (`error`, `int`) have none.
    fn with_path(&self, descriptor: Svma, kind: u8, flags: u8, short: &str) -> Option<String> {
        let package = self.uncommon(descriptor, kind, flags)?.package;
        if package == 0 {
            return None;
        }
        let module = self.module().ok()?;
        let path = name::at(self.image(), module, module.types.add(package.into()))?;
        // Shapes of type arguments have theirs in the name.
        if short.strip_prefix(&*path).is_some_and(|rest| rest.starts_with('.')) {
            return None;
        }
        let (_, rest) = short.split_once('.')?;
        Some(format!("{path}.{rest}"))
    }
}
