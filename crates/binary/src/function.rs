//! Functions, as the pclntab has them.

use address::Svma;

/// Bits of [`Function::flags`] (`internal/abi.FuncFlag`).
pub mod flag {
    /// The function is the outermost frame of a stack.
    pub const TOP_FRAME: u8 = 1;
    /// The function writes SP by other means than push, pop, call and constant add.
    pub const SP_WRITE: u8 = 2;
    /// Written in assembly.
    pub const ASM: u8 = 4;
}

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
    /// Address of the deferreturn call, if the function has deferred calls that are not
    /// open coded all the way.
    pub deferreturn: Option<Svma>,
    /// Line of the `func` keyword; `None` in Go 1.19, which does not record it.
    pub start_line: Option<u32>,
}

/// One frame of a symbolized address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Function name.
    pub func: String,
    /// Source file.
    pub file: String,
    /// Source line.
    pub line: u32,
    /// Entry of the function whose code holds the address.
    pub entry: Svma,
    /// Whether this function is inlined into the next frame's.
    pub inlined: bool,
}

/// One call that was inlined into a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedCall {
    /// Index in the function's inline tree.
    pub index: u32,
    /// The inlined function.
    pub name: String,
    /// Address in the outer function whose position is that of the call.
    pub parent_pc: Svma,
    /// The function that holds the call: the outer function, or another inlined one.
    pub caller: String,
    /// File of the call.
    pub file: String,
    /// Line of the call.
    pub line: u32,
    /// `internal/abi.FuncID` of the inlined function.
    pub func_id: u8,
    /// Line of the inlined function's `func` keyword, where recorded.
    pub start_line: Option<u32>,
}

/// The functions of an executable, sorted by address.
#[derive(Debug)]
pub struct FunctionTable {}

impl FunctionTable {
    /// How many functions there are.
    pub fn len(&self) -> usize {
        0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The function at a place in the table.
    pub fn get(&self, _index: usize) -> Option<Function> {
        None
    }

    /// All functions in address order.
    pub fn iter(&self) -> impl Iterator<Item = Function> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The function whose code (padding included) holds an address.
    pub fn find(&self, _address: Svma) -> Option<Function> {
        None
    }

    /// All functions of that exact name.
    pub fn by_name(&self, _name: &str) -> Vec<Function> {
        Vec::new()
    }

    /// File and line of the instruction at `pc`; `None` in padding.
    pub fn file_line(&self, _function: &Function, _pc: Svma) -> Option<(String, u32)> {
        None
    }

    /// Bytes that the function has lowered SP by when it is about to execute `pc` (pcsp;
    /// 0 at the entry, where SP points to the return address).
    pub fn sp_delta(&self, _function: &Function, _pc: Svma) -> Option<i32> {
        None
    }

    /// All calls inlined into a function.
    pub fn inline_tree(&self, _function: &Function) -> Vec<InlinedCall> {
        Vec::new()
    }

    /// All inlined copies of the functions whose name `wanted` accepts: each with the
    /// function that holds the copy. One pass over the table.
    pub fn inlined_copies(&self, _wanted: &dyn Fn(&str) -> bool) -> Vec<(Function, InlinedCall)> {
        Vec::new()
    }
}
