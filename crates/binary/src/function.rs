//! Functions, as the pclntab has them.

use crate::Error;
use crate::image::Image;
use crate::module_data::ModuleData;
use crate::pclntab::{Format, Header, Record, Table};
use address::Svma;
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::OnceLock;

/// Bits of [`Function::flags`] (`internal/abi.FuncFlag`).
pub mod flag {
    /// The function is the outermost frame of a stack.
    pub const TOP_FRAME: u8 = 1;
    /// The function writes SP by other means than push, pop, call and constant add.
    pub const SP_WRITE: u8 = 2;
    /// Written in assembly.
    pub const ASM: u8 = 4;
}

/// `runtime._ArgsSizeUnknown`.
const ARGS_SIZE_UNKNOWN: i32 = i32::MIN;

/// One function. Two functions may have one name: an assembly function (ABI0) and its
/// ABIInternal wrapper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Place in the table, which is sorted by address.
    pub index: usize,
    /// Symbol name; instantiations of generics as the linker has them
    /// (`main.Map[go.shape.int]`, `main.Map[...]` in Go 1.19).
    pub name: String,
    /// First instruction.
    pub entry: Svma,
    /// The next function's entry, or the end of Go text; padding included.
    pub end: Svma,
    /// See [`flag`].
    pub flags: u8,
    /// `internal/abi.FuncID`; numbers vary by version.
    pub func_id: u8,
    /// Whether the compiler made it (method wrapper, ABI wrapper): hidden in tracebacks.
    pub is_wrapper: bool,
    /// Bytes of stack arguments and results; `None` when unknown (variadic assembly).
    pub args_size: Option<u32>,
    /// Address of the deferreturn call, in functions that have one.
    pub deferreturn: Option<Svma>,
    /// Line of the `func` keyword; `None` in Go 1.19, which does not record it.
    pub start_line: Option<u32>,
}

/// The functions of an executable, sorted by address.
#[derive(Debug)]
pub struct FunctionTable {
    pub(crate) table: Table,
    pub(crate) image: Image,
    pub(crate) gofunc: Svma,
    text: Svma,
    /// Places by the hash of the name.
    names: OnceLock<HashMap<u64, Vec<u32>>>,
}

impl FunctionTable {
    pub(crate) fn read(
        image: &Image,
        header: &Header,
        module: &ModuleData,
        format: &'static Format,
    ) -> Result<Self, Error> {
        let table = Table::read(image, header, module, format)?;
        // An obfuscator that keeps the magic still breaks what the runtime must find.
        let consistent = [0, table.len() / 2, table.len().saturating_sub(1)]
            .into_iter()
            .filter_map(|index| table.record(index))
            .all(|record| table.is_consistent(&record));
        if !consistent {
            return Err(Error::UnsupportedKind(
                "its function table does not agree with itself (obfuscated?)".into(),
            ));
        }
        Ok(Self {
            table,
            image: image.clone(),
            gofunc: module.gofunc,
            text: module.text,
            names: OnceLock::new(),
        })
    }

    /// How many functions there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The function at a place in the table.
    pub fn get(&self, index: usize) -> Option<Function> {
        self.table.record(index).map(|record| self.function(&record))
    }

    /// The name of the function at a place in the table: cheaper than [`Self::get`] when
    /// all names are looked through.
    pub fn name(&self, index: usize) -> Option<Cow<'_, str>> {
        let record = self.table.record(index)?;
        Some(self.table.name(self.table.name_offset(&record)))
    }

    /// All functions in address order.
    pub fn iter(&self) -> impl Iterator<Item = Function> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The function whose code (padding included) holds an address.
    pub fn find(&self, address: Svma) -> Option<Function> {
        self.get(self.table.find(address.since(self.text)?)?)
    }

    /// All functions of that exact name.
    pub fn by_name(&self, name: &str) -> Vec<Function> {
        let names = self.names.get_or_init(|| self.hash_names());
        let places = names.get(&hash(name)).map(Vec::as_slice).unwrap_or_default();
        places
            .iter()
            .filter_map(|&index| self.get(index as usize))
            .filter(|function| function.name == name)
            .collect()
    }

    fn hash_names(&self) -> HashMap<u64, Vec<u32>> {
        let mut names: HashMap<u64, Vec<u32>> = HashMap::with_capacity(self.len());
        for index in 0..u32::try_from(self.len()).unwrap_or(u32::MAX) {
            if let Some(name) = self.name(index as usize) {
                names.entry(hash(&name)).or_default().push(index);
            }
        }
        names
    }

    /// File and line of the instruction at `pc`; `None` in padding. What is inlined there
    /// decides: [`crate::Executable::symbolize`] tells whose line it is. For a return
    /// address pass the byte before it.
    pub fn file_line(&self, function: &Function, pc: Svma) -> Option<(String, u32)> {
        let record = self.table.record(function.index)?;
        self.position(&record, pc.since(function.entry)?)
    }

    /// Bytes by which the function has lowered SP when it is about to execute `pc`: 0 at
    /// the entry, where SP points to the return address.
    pub fn sp_delta(&self, function: &Function, pc: Svma) -> Option<i32> {
        let record = self.table.record(function.index)?;
        self.table.sp_deltas(&record).value_at(pc.since(function.entry)?)
    }

    /// End of the code for which the table has stack depths: the padding begins there.
    pub fn code_end(&self, function: &Function) -> Svma {
        let record = self.table.record(function.index);
        let last = record.and_then(|record| self.table.sp_deltas(&record).last());
        last.map_or(function.end, |range| function.entry.add(range.end).min(function.end))
    }

    /// File and line at an offset from the function's entry.
    pub(crate) fn position(&self, record: &Record, offset: u64) -> Option<(String, u32)> {
        let index = self.table.files(record).value_at(offset)?;
        let line = self.table.lines(record).value_at(offset)?;
        let file = self.table.file(record, index)?;
        Some((file.into_owned(), u32::try_from(line).ok()?))
    }

    fn function(&self, record: &Record) -> Function {
        let table = &self.table;
        let entry = self.text.add(record.entry);
        let func_id = table.func_id(record);
        let args = table.args(record);
        let deferreturn = table.deferreturn(record);
        Function {
            index: record.index,
            name: table.name(table.name_offset(record)).into_owned(),
            entry,
            end: entry.add(record.size),
            flags: table.flags(record),
            func_id,
            is_wrapper: func_id == table.format().wrapper_id,
            args_size: if args == ARGS_SIZE_UNKNOWN { None } else { u32::try_from(args).ok() },
            deferreturn: (deferreturn != 0).then(|| entry.add(deferreturn.into())),
            start_line: table.start_line(record),
        }
    }
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
