//! The closures of a program that captured variables, by what they take and give.

use super::types::{CapturedVariable, Closure};
use binary::{DebugInfo, Executable, Function, TypeId};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Closures whose debug information is read at the most, the program's own first.
const MAX_READ: usize = 1024;

/// Closures of one type that are kept.
const MAX_KEPT: usize = 8;

type Key = Vec<Arc<str>>;

/// Closures by the names of the types of parameters and results.
#[derive(Debug, Default)]
pub(super) struct Closures(HashMap<Key, Vec<Closure>>);

impl Closures {
    /// Those of an executable. What they captured is described from Go 1.23 on.
    pub(super) fn of(
        executable: &Executable,
        debug: &DebugInfo,
        is_own: &dyn Fn(&str) -> bool,
    ) -> Result<Self, binary::Error> {
        let table = executable.functions()?;
        let mut functions: Vec<Function> =
            table.iter().filter(|function| is_closure(&function.name)).collect();
        functions.sort_by_key(|function| (!is_own(&function.name), function.entry));
        let mut all = Self::default();
        for function in functions.iter().take(MAX_READ) {
            // What can not be read of one says nothing of the others.
            let Ok(Some((keys, closure))) = read(debug, function) else { continue };
            for key in keys {
                let same = all.0.entry(key).or_default();
                if same.len() < MAX_KEPT {
                    same.push(closure.clone());
                }
            }
        }
        Ok(all)
    }

    /// Those that a value of a func type may be.
    pub(super) fn of_type(&self, debug: &DebugInfo, func: TypeId) -> Vec<Closure> {
        let Ok(Some(parts)) = debug.func_parts(func) else { return Vec::new() };
        let names = parts.iter().map(|part| Some(Arc::clone(&debug.type_info(*part).ok()?.name)));
        let Some(key) = names.collect::<Option<Vec<_>>>() else { return Vec::new() };
        self.0.get(&key).cloned().unwrap_or_default()
    }
}

/// `F.func1`, `F.gowrap1`, `T.M-fm`: whatever has a context.
fn is_closure(name: &str) -> bool {
    name.contains(".func") || name.contains(".gowrap") || name.contains(".deferwrap")
}

fn read(
    debug: &DebugInfo,
    function: &Function,
) -> Result<Option<(BTreeSet<Key>, Closure)>, binary::Error> {
    let Some(signature) = debug.signature(function.entry)? else { return Ok(None) };
    if signature.captured.is_empty() {
        return Ok(None);
    }
    let mut plain = Key::new();
    for param in &signature.params {
        plain.push(Arc::clone(&debug.type_info(param.ty)?.name));
    }
    // Func types have pointers to results, or (seen from Go 1.26 on) these.
    let mut with_pointers = plain.clone();
    for result in &signature.results {
        let name = &debug.type_info(result.ty)?.name;
        plain.push(Arc::clone(name));
        with_pointers.push(format!("*{name}").into());
    }
    let (mut captured, mut size) = (Vec::new(), 8);
    for variable in &signature.captured {
        let ty = debug.type_info(variable.ty)?;
        let Ok(offset) = u32::try_from(variable.offset) else { return Ok(None) };
        size = u64::from(offset).saturating_add(ty.size).max(size);
        let by_reference = variable.name.starts_with('&');
        let name = variable.name.trim_start_matches('&').into();
        captured.push(CapturedVariable { name, offset, ty, by_reference });
    }
    let Ok(size) = u32::try_from(size) else { return Ok(None) };
    let keys = BTreeSet::from([plain, with_pointers]);
    Ok(Some((keys, Closure { code: function.entry.0, size, captured })))
}
