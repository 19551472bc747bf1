//! From an executable and a selection to a [`Plan`].

use crate::compile::{OpTable, RecoverySp, WitnessOffsets, witness_ops};
use crate::plan::{ConcreteTypes, Program, RefusalReason};
use crate::selection::{Matches, Selected, Selection, select};
use crate::shape::{ProgramTypes, Types};
use crate::value::{ValueKind, ValueSpec};
use crate::{ImageId, Limits, Plan, PlannedFunction, Refusal, RuntimeLayout, Site, Witness};
use address::{FileOffset, Svma};
use binary::code::{Analysis, CodeSite, ExitKind, Kept, ProbeCost};
use binary::{Convention, DebugInfo, Executable, Function, convention_of};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use wire::{GSource, MAX_PROGRAM_OPS, SiteKind};

mod asked;
mod context;
mod signature;
mod values;

pub use asked::{Mistake, Partial};
pub use signature::{SignatureSource, known_signature};
use values::FEW_KNOWN;
pub(crate) use values::MOST_KNOWN;
pub use values::{Values, map_form};

/// Functions larger than this are not decoded: the biggest that Go compiles are far smaller.
const MAX_FUNCTION: u64 = 64 << 20;

/// What is read without being asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueOptions {
    /// Arguments, where debug information describes them.
    pub arguments: bool,
    /// Results.
    pub results: bool,
    /// How much of each.
    pub limits: Limits,
}

/// What the planner needs to know of the runtime, from the layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeFacts {
    /// Offsets for the code at a hit.
    pub layout: RuntimeLayout,
    /// Offsets for the witnesses.
    pub witness: WitnessOffsets,
}

/// A question to the planner.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The executable.
    pub executable: &'a Executable,
    /// Its debug information, when there is some.
    pub debug: Option<&'a DebugInfo>,
    /// Which functions.
    pub selection: &'a Selection,
    /// Which values.
    pub values: ValueOptions,
    /// The runtime's layout.
    pub runtime: RuntimeFacts,
    /// Text that a process may still hash at its start, see
    /// [`binary::code::CodeFacts::fips`].
    pub fips: Option<&'a Range<Svma>>,
}

/// A plan and what was noticed on the way.
#[derive(Clone, Debug, Default)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Estimated cost class of each site under the uprobe backend, parallel to `plan.sites`.
    pub costs: Vec<ProbeCost>,
    /// Functions that matched.
    pub matched: usize,
    /// Patterns that matched nothing.
    pub unmatched: Vec<String>,
    /// Functions that matched and were excluded.
    pub excluded: usize,
    /// Traced functions that also exist inlined into others, with the number of copies: calls
    /// of those copies pass no site.
    pub inlined: Vec<(String, usize)>,
    /// Expressions and conditions that mean nothing in any of the functions.
    pub mistakes: Vec<Mistake>,
    /// Conditions that mean nothing in some of them.
    pub partial: Vec<Partial>,
}

/// Plans the tracing of the selected functions, with the witnesses that every plan watches.
pub fn plan(question: &Question<'_>) -> Result<Planned, binary::Error> {
    let types = ProgramTypes::new(question.executable, question.debug);
    let mut planner = Planner::new(question, &types);
    let matches = select(question.executable, question.selection, &|function| {
        callees(question.executable, function)
    })?;
    let Matches { functions, unmatched, excluded } = matches;
    let matched = functions.len();
    for selected in &functions {
        planner.add_traced(selected)?;
    }
    // Witnesses alone tell nothing: with no function to trace there is nothing to plan.
    if planner.plan.functions.iter().any(|function| function.traced) {
        planner.add_witnesses()?;
    }
    let death = planner.death();
    let moved = planner.stack_move()?;
    let Planner { mut plan, costs, ops, sense, .. } = planner;
    let (mistakes, partial) = sense.finish();
    plan.ops = ops.finish();
    let mut inlined = inlined_copies(question.executable, &plan)?;
    let unseen = GOROUTINE_CHANGES.iter().any(|name| inlined.contains_key(*name));
    if let (Some(death), Some(moved), false) = (death, moved, unseen) {
        plan.g_changes = vec![death, moved];
    }
    inlined.retain(|name, _| plan.functions.iter().any(|f| f.traced && f.name == *name));
    let inlined = inlined.into_iter().collect();
    Ok(Planned { plan, costs, matched, unmatched, excluded, inlined, mistakes, partial })
}

/// Which traced functions, and which of [`GOROUTINE_CHANGES`], have inlined copies, and how many.
fn inlined_copies(
    executable: &Executable,
    plan: &Plan,
) -> Result<BTreeMap<String, usize>, binary::Error> {
    let traced: HashSet<&str> = plan
        .functions
        .iter()
        .filter(|function| function.traced)
        .map(|function| function.name.as_str())
        .chain(GOROUTINE_CHANGES)
        .collect();
    let mut copies: BTreeMap<String, usize> = BTreeMap::new();
    for (_, call) in executable.functions()?.inlined_copies(&|name| traced.contains(name)) {
        *copies.entry(call.name).or_default() += 1;
    }
    Ok(copies)
}

/// A plan with the sites of these functions and nothing else: no values, no witnesses, no
/// layout. It tells where functions can be traced, and is not for tracing them.
pub fn bare_plan(executable: &Executable, functions: &[Function]) -> Result<Plan, binary::Error> {
    let recovery = RecoverySp::ViaG { sigcode0: 0 };
    let question = Question {
        executable,
        debug: None,
        selection: &Selection::default(),
        values: ValueOptions { arguments: false, results: false, limits: Limits::default() },
        runtime: RuntimeFacts {
            layout: RuntimeLayout::default(),
            witness: WitnessOffsets { g_goid: 0, g_stack_hi: 0, recovery },
        },
        fips: None,
    };
    let types = ProgramTypes::new(executable, None);
    let mut planner = Planner::new(&question, &types);
    for function in functions {
        let function = function.clone();
        planner.add_traced(&Selected {
            function,
            params: None,
            results: None,
            declared: Vec::new(),
        })?;
    }
    Ok(planner.plan)
}

/// Entries of the functions that `function` calls or jumps to directly.
pub fn callees(executable: &Executable, function: &Function) -> Vec<Svma> {
    let Ok(analysis) = analyze_function(executable, function, None) else { return Vec::new() };
    let tails = analysis.exits.iter().filter_map(|exit| match exit.kind {
        ExitKind::Tail(target) => target,
        ExitKind::Return => None,
    });
    analysis.calls.iter().filter_map(|call| call.target).chain(tails).collect()
}

/// Decodes one function.
pub fn analyze_function(
    executable: &Executable,
    function: &Function,
    fips: Option<&Range<Svma>>,
) -> Result<Analysis, binary::Error> {
    let size = function.end.since(function.entry).unwrap_or_default();
    if size > MAX_FUNCTION {
        return Err(binary::Error::corrupt("function table", format!("{size} bytes of code")));
    }
    binary::code::analyze_function(executable, function, fips)
}

/// Why uprobes cannot trace a function: it has no place where a call begins, or the kernel
/// refuses a probe there or where it ends. `None` when they can.
pub fn uprobe_refusal(analysis: &Analysis) -> Option<String> {
    let entry = match &analysis.entry {
        Ok(entry) => entry,
        Err(refused) => return Some(refused.to_string()),
    };
    let sites = std::iter::once(entry).chain(analysis.exits.iter().map(|exit| &exit.site));
    sites.into_iter().find_map(|site| {
        let reason = site.uprobe.err()?;
        Some(format!("0x{:x} cannot be probed: {reason}", site.address))
    })
}

/// Name of each witness's function; the first one that the executable has is watched.
const WITNESSES: [(Witness, &[&str]); 5] = [
    (Witness::Panic, &["runtime.gopanic"]),
    (Witness::Recovery, &["runtime.recovery"]),
    (Witness::Goexit, &["runtime.Goexit"]),
    (Witness::FatalPanic, &["runtime.fatalpanic"]),
    // Since Go 1.22 goexit0 calls gdestroy, and so does whatever else ends a goroutine.
    (Witness::GoroutineDeath, &["runtime.gdestroy", "runtime.goexit0"]),
];

/// What stops a goroutine and gives its stack another place (runtime/stack.go).
const COPYSTACK: &str = "runtime.copystack";

/// Functions that change what [`Plan::g_changes`] speaks of. With a profile the compiler may
/// inline them, and what happens in a copy is not seen.
const GOROUTINE_CHANGES: [&str; 3] = [COPYSTACK, "runtime.gdestroy", "runtime.goexit0"];

struct Planner<'a> {
    question: &'a Question<'a>,
    plan: Plan,
    costs: Vec<ProbeCost>,
    ops: OpTable,
    by_entry: HashMap<Svma, usize>,
    types: &'a ProgramTypes<'a>,
    sense: asked::Sense,
}

/// The sites of one function, all of them or a reason.
struct FunctionSites {
    entry: CodeSite,
    exits: Vec<(CodeSite, SiteKind)>,
    g_source: GSource,
    kept: Kept,
}

impl<'a> Planner<'a> {
    fn new(question: &'a Question<'a>, types: &'a ProgramTypes<'a>) -> Self {
        let executable = question.executable;
        let image = ImageId {
            build_id: executable.build_id().unwrap_or_default().to_owned(),
            path: String::new(),
            go_version: executable.go_version().text.clone(),
        };
        let plan = Plan { image, runtime: question.runtime.layout, ..Plan::default() };
        Self {
            question,
            plan,
            costs: Vec::new(),
            ops: OpTable::default(),
            by_entry: HashMap::new(),
            types,
            sense: asked::Sense::default(),
        }
    }

    fn refuse(&mut self, function: &Function, reason: String) {
        let refusal = Refusal { function: function.name.clone(), reason: RefusalReason(reason) };
        self.plan.refused.push(refusal);
    }

    fn sites_of(&self, function: &Function) -> Result<FunctionSites, String> {
        let analysis = analyze_function(self.question.executable, function, self.question.fips)
            .map_err(|error| error.to_string())?;
        if let Some(reason) = uprobe_refusal(&analysis) {
            return Err(reason);
        }
        let kept = Kept::of(self.question.executable, function, &analysis);
        let entry = analysis.entry.map_err(|refused| refused.to_string())?;
        let mut exits = Vec::new();
        for exit in &analysis.exits {
            let kind = match exit.kind {
                ExitKind::Return => SiteKind::Return,
                ExitKind::Tail(_) => SiteKind::TailJump,
            };
            exits.push((exit.site, kind));
        }
        let assembly = function.flags & binary::flag::ASM != 0;
        let g_source = if assembly || analysis.loads_g { GSource::Tls } else { GSource::R14 };
        Ok(FunctionSites { entry, exits, g_source, kept })
    }

    fn add_traced(&mut self, selected: &Selected) -> Result<(), binary::Error> {
        let function = &selected.function;
        let sites = match self.sites_of(function) {
            Ok(sites) => sites,
            Err(reason) => {
                self.refuse(function, reason);
                return Ok(());
            }
        };
        let signature = self.signature(selected, sites.g_source)?;
        let chosen = self.choose(selected, signature.as_ref(), &sites.kept)?;
        let at_entry = self.ops.intern_behind(&chosen.unless, &chosen.at_entry);
        let at_return = self.ops.intern(&chosen.at_return);
        let condition = chosen.unless.len() as u16;
        if !chosen.screen.is_empty() {
            self.plan.screens.insert(self.plan.functions.len() as u32, chosen.screen);
        }
        if chosen.captured > 0 {
            self.plan.captured.insert(self.plan.functions.len() as u32, chosen.captured);
        }
        let ConcreteTypes { args, results } = &chosen.concrete;
        if args.iter().chain(results).any(Option::is_some) {
            self.plan.concrete.insert(self.plan.functions.len() as u32, chosen.concrete);
        }
        let planned = self.planned(function, true, None, chosen.args, chosen.results);
        let first = self.plan.sites.len();
        self.push(planned, &sites, at_entry, at_return);
        self.plan.sites[first].condition = condition;
        Ok(())
    }

    fn values(&self) -> Values<'a> {
        let Question { executable, values, .. } = self.question;
        let map_form = map_form(executable.go_version());
        Values {
            types: Some(self.types as &dyn Types),
            map_form,
            limits: values.limits,
            known: FEW_KNOWN,
        }
    }

    fn planned(
        &self,
        function: &Function,
        traced: bool,
        witness: Option<Witness>,
        args: Vec<ValueSpec>,
        results: Vec<ValueSpec>,
    ) -> PlannedFunction {
        let place = self
            .question
            .executable
            .functions()
            .ok()
            .and_then(|table| table.file_line(function, function.entry));
        let (file, line) = place.unwrap_or_default();
        PlannedFunction {
            name: function.name.clone(),
            file,
            line: function.start_line.unwrap_or(line),
            entry: function.entry,
            size: function.end.since(function.entry).unwrap_or_default(),
            traced,
            witness,
            args,
            results,
        }
    }

    fn push(
        &mut self,
        planned: PlannedFunction,
        sites: &FunctionSites,
        at_entry: Program,
        at_return: Program,
    ) {
        self.by_entry.insert(planned.entry, self.plan.functions.len());
        let function = self.plan.functions.len() as u32;
        self.plan.functions.push(planned);
        self.push_site(function, &sites.entry, SiteKind::Entry, sites.g_source, at_entry);
        for (site, kind) in &sites.exits {
            let program = if *kind == SiteKind::Return { at_return } else { Program::default() };
            self.push_site(function, site, *kind, sites.g_source, program);
        }
    }

    fn push_site(
        &mut self,
        function: u32,
        site: &CodeSite,
        kind: SiteKind,
        g_source: GSource,
        program: Program,
    ) {
        // The code was read from the file, so the file backs it.
        let file_offset =
            self.question.executable.image().file_offset(site.address).unwrap_or_default();
        let address = site.address;
        let sp_delta = site.sp_delta;
        let (guard, condition) = (None, 0);
        let site_plan = Site {
            function,
            kind,
            address,
            file_offset,
            sp_delta,
            g_source,
            program,
            guard,
            condition,
        };
        self.plan.sites.push(site_plan);
        self.costs.push(site.uprobe.unwrap_or(ProbeCost::SingleStepped));
    }

    fn add_witnesses(&mut self) -> Result<(), binary::Error> {
        let table = self.question.executable.functions()?;
        for (witness, names) in WITNESSES {
            let found = names.iter().find_map(|name| table.by_name(name).into_iter().next());
            // What the linker left out cannot happen in this program.
            let Some(function) = found else { continue };
            let ops = witness_ops(witness, &self.question.runtime.witness);
            match self.by_entry.get(&function.entry).copied() {
                Some(index) => self.join(index, witness, ops),
                None => match self.sites_of(&function) {
                    Ok(mut sites) => {
                        sites.exits.clear();
                        let program = self.ops.intern(&ops);
                        let planned =
                            self.planned(&function, false, Some(witness), Vec::new(), Vec::new());
                        self.push(planned, &sites, program, Program::default());
                    }
                    Err(reason) => {
                        self.refuse(&function, format!("watched for ends: {reason}"));
                        // What is gone is then told by later entries alone.
                        self.plan.decide_outside();
                    }
                },
            }
        }
        Ok(())
    }

    /// Where goroutines end, when that is watched.
    fn death(&self) -> Option<FileOffset> {
        let is_death = |site: &&Site| {
            let function = self.plan.functions.get(site.function as usize);
            site.kind == SiteKind::Entry
                && function.is_some_and(|f| f.witness == Some(Witness::GoroutineDeath))
        };
        self.plan.sites.iter().find(is_death).map(|site| site.file_offset)
    }

    /// Where stacks move, when it can be watched at little cost: a program that only makes
    /// goroutines moves stacks more often than it makes calls that are traced.
    fn stack_move(&self) -> Result<Option<FileOffset>, binary::Error> {
        let found = self.question.executable.functions()?.by_name(COPYSTACK);
        let [function] = &found[..] else { return Ok(None) };
        let Ok(FunctionSites { entry, .. }) = self.sites_of(function) else { return Ok(None) };
        let offset = self.question.executable.image().file_offset(entry.address);
        Ok(offset.filter(|_| entry.uprobe == Ok(ProbeCost::Emulated)))
    }

    /// A traced function that is a witness too: one site, one record, the witness's
    /// fields first.
    fn join(&mut self, index: usize, witness: Witness, mut ops: Vec<wire::Op>) {
        self.plan.functions[index].witness = Some(witness);
        let Some(at) = self
            .plan
            .sites
            .iter()
            .position(|site| site.function as usize == index && site.kind == SiteKind::Entry)
        else {
            return;
        };
        let arguments = self.ops.get(self.plan.sites[at].program);
        if ops.len() + arguments.len() <= MAX_PROGRAM_OPS {
            ops.extend_from_slice(arguments);
        } else {
            for value in &mut self.plan.functions[index].args {
                value.kind = ValueKind::Unavailable("too many values".to_owned());
            }
        }
        // A witness is always wanted.
        self.plan.sites[at].condition = 0;
        self.plan.sites[at].program = self.ops.intern(&ops);
    }
}

/// Whether a function's values are found by [`Convention::Internal`].
pub fn is_register_abi(executable: &Executable, function: &Function) -> bool {
    function.flags & binary::flag::ASM == 0
        && convention_of(executable.symbols(), function.entry) == Convention::Internal
}
