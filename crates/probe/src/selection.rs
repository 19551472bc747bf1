//! Which functions of an executable a person asked for.

use crate::expression::{Condition, Declarations, Operand, Params};
use crate::package::{is_main_module, is_vendored, package_of};
use crate::pattern::Pattern;
use binary::{Executable, Function};
use std::collections::{BTreeMap, HashSet};

/// A pattern that names functions to trace; a RULE also says what to read.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// As the person wrote it.
    pub text: String,
    /// Which names it means.
    pub pattern: Pattern,
    /// What is read at the entry in place of the automatic arguments.
    pub params: Option<Params>,
    /// What is read at returns in place of the automatic results.
    pub results: Option<Vec<Operand>>,
    /// What is stated of the signature.
    pub declared: Declarations,
}

/// A parsed text with what the person wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct Stated<T> {
    /// As written.
    pub text: String,
    /// What it says.
    pub parsed: T,
}

/// Which calls of the selected functions are shown, and what they are told apart by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Decided at the entry.
    pub entry: Option<Stated<Condition>>,
    /// Decided at the return.
    pub result: Option<Stated<Condition>>,
    /// Decided by how long the call took.
    pub duration: Option<Stated<Condition>>,
    /// What statistics are split by.
    pub by: Option<Stated<Operand>>,
}

/// What a function reaches by direct calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallsOf {
    /// Exact name of the function to start from.
    pub name: String,
    /// How many calls deep; unlimited when absent.
    pub depth: Option<u32>,
}

/// All that decides which functions are traced.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Patterns and rules; a function is wanted when one of them matches.
    pub wanted: Vec<Wanted>,
    /// The first so many of them mean their functions whatever exclusions say.
    pub always: usize,
    /// Functions to leave out, whatever else says yes.
    pub exclude: Vec<Pattern>,
    /// Leave out packages below a `/vendor/` folder, unless named exactly.
    pub exclude_vendor: bool,
    /// Only functions of the main module.
    pub main_module: bool,
    /// All functions of the main module, besides what is wanted by name.
    pub whole_module: bool,
    /// What these reach.
    pub calls_of: Vec<CallsOf>,
    /// Which of their calls.
    pub conditions: Conditions,
}

impl Selection {
    /// Whether the person named nothing at all.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.calls_of.is_empty() && !self.whole_module
    }
}

/// A selected function and the rules that chose what to read of it: indices into
/// [`Selection::wanted`] of the first ones that match and say so.
#[derive(Clone, Debug)]
pub struct Selected {
    /// The function.
    pub function: Function,
    /// The one that says what to read at the entry.
    pub params: Option<usize>,
    /// The one that says what to read at returns.
    pub results: Option<usize>,
    /// Those that state the signature: the first one counts, and of the first
    /// [`Selection::always`] the first that can be.
    pub declared: Vec<usize>,
}

/// What a selection comes to in one executable.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    /// In address order, each function once.
    pub functions: Vec<Selected>,
    /// Texts of [`Selection::wanted`] and [`Selection::calls_of`] that no function matches.
    pub unmatched: Vec<String>,
    /// Functions that a pattern matches and an exclusion left out.
    pub excluded: usize,
}

/// Chooses the functions. `callees` gives the entries of what a function calls directly.
pub fn select(
    executable: &Executable,
    selection: &Selection,
    callees: &dyn Fn(&Function) -> Vec<address::Svma>,
) -> Result<Matches, binary::Error> {
    let table = executable.functions()?;
    let module = executable.build_info().ok().map(|info| info.main.path.clone());
    let reached = reach(executable, selection, callees)?;
    let mut matched = vec![false; selection.wanted.len()];
    let mut chosen: BTreeMap<usize, Selected> = BTreeMap::new();
    let mut excluded = 0;
    for function in table.iter() {
        let hits: Vec<usize> = (0..selection.wanted.len())
            .filter(|&i| selection.wanted[i].pattern.matches(&function.name))
            .collect();
        hits.iter().for_each(|&i| matched[i] = true);
        let in_module = || is_main_module(&package_of(&function.name), module.as_deref());
        let wanted = !hits.is_empty()
            || reached.indices.contains(&function.index)
            || (selection.whole_module && in_module());
        if !wanted {
            continue;
        }
        let named = hits.iter().any(|&i| selection.wanted[i].pattern.literal().is_some());
        let kept = hits.first().is_some_and(|&first| first < selection.always);
        let is_left_out = || {
            selection.exclude.iter().any(|pattern| pattern.matches(&function.name))
                || (selection.exclude_vendor && !named && is_vendored(&package_of(&function.name)))
                || (selection.main_module && !in_module())
        };
        if !kept && is_left_out() {
            excluded += 1;
            continue;
        }
        let first = |says: &dyn Fn(&Wanted) -> bool| {
            hits.iter().copied().find(|&i| selection.wanted.get(i).is_some_and(says))
        };
        let params = first(&|wanted| wanted.params.is_some());
        let results = first(&|wanted| wanted.results.is_some());
        let declared = hits.iter().copied();
        let declared = declared.filter(|&i| !selection.wanted[i].declared.is_empty()).collect();
        chosen.insert(function.index, Selected { function, params, results, declared });
    }
    let unmatched = selection
        .wanted
        .iter()
        .zip(&matched)
        .filter(|(_, matched)| !**matched)
        .map(|(wanted, _)| wanted.text.clone())
        .chain(reached.unknown)
        .collect();
    Ok(Matches { functions: without_twins(chosen), unmatched, excluded })
}

/// An assembly function and the wrapper that the compiler makes for its other ABI have one
/// name. Tracing both would show every call twice: the wrapper is left out.
fn without_twins(chosen: BTreeMap<usize, Selected>) -> Vec<Selected> {
    let originals: HashSet<String> = chosen
        .values()
        .filter(|selected| !selected.function.is_wrapper)
        .map(|selected| selected.function.name.clone())
        .collect();
    chosen
        .into_values()
        .filter(|selected| {
            !(selected.function.is_wrapper && originals.contains(&selected.function.name))
        })
        .collect()
}

#[derive(Default)]
struct Reached {
    indices: HashSet<usize>,
    unknown: Vec<String>,
}

/// Breadth first over direct calls. Calls into the runtime are the compiler's (allocation,
/// bounds checks, write barriers) and not followed, unless the start lies there.
fn reach(
    executable: &Executable,
    selection: &Selection,
    callees: &dyn Fn(&Function) -> Vec<address::Svma>,
) -> Result<Reached, binary::Error> {
    let table = executable.functions()?;
    let mut reached = Reached::default();
    for start in &selection.calls_of {
        let roots = table.by_name(&start.name);
        if roots.is_empty() {
            reached.unknown.push(start.name.clone());
        }
        let follow_runtime = is_runtime(&start.name);
        let mut seen: HashSet<usize> = roots.iter().map(|function| function.index).collect();
        let mut level = roots;
        let mut left = start.depth.unwrap_or(u32::MAX);
        while left > 0 && !level.is_empty() {
            left -= 1;
            let targets = level.iter().flat_map(callees).filter_map(|entry| table.find(entry));
            level = targets
                .filter(|function| follow_runtime || !is_runtime(&function.name))
                .filter(|function| seen.insert(function.index))
                .collect();
        }
        reached.indices.extend(seen);
    }
    Ok(reached)
}

fn is_runtime(name: &str) -> bool {
    let package = package_of(name);
    package.is_empty()
        || package == "runtime"
        || package.starts_with("runtime/internal/")
        || package.starts_with("internal/runtime/")
        || package.starts_with("internal/abi")
}
