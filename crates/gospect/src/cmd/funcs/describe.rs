//! All that is said about one function.

use address::Svma;
use binary::code::{Analysis, Kept};
use binary::{
    Convention, DebugInfo, Executable, Function, FunctionTable, InlinedCall, PlacedSignature,
    PlacedVariable, convention_of, flag,
};
use output::{InlinedAt, ListedFunction, ListedValue, Traceable};
use probe::compile::lost_value;
use probe::planner::{SignatureSource, analyze_function, callees, known_signature, uprobe_refusal};
use std::collections::{BTreeMap, HashMap, HashSet};

const ONLY_INLINED: &str = "only inlined";

/// The inlined copies of the wanted functions, by name.
pub struct Inlined(BTreeMap<String, Copies>);

struct Copies {
    places: Vec<InlinedAt>,
    /// One of the functions that hold a copy, and the copy.
    example: (Function, InlinedCall),
}

impl Inlined {
    /// Looks through the whole table once.
    pub fn collect(table: &FunctionTable, wanted: &dyn Fn(&str) -> bool) -> Self {
        let mut by_name: BTreeMap<String, Copies> = BTreeMap::new();
        for (holder, call) in table.inlined_copies(wanted) {
            let place =
                InlinedAt { func: call.caller.clone(), file: call.file.clone(), line: call.line };
            let name = call.name.clone();
            let copies = by_name
                .entry(name)
                .or_insert_with(|| Copies { places: Vec::new(), example: (holder, call) });
            copies.places.push(place);
        }
        for copies in by_name.values_mut() {
            copies.places.sort_unstable();
            copies.places.dedup();
        }
        Self(by_name)
    }

    /// The names that none of the `chosen` functions of the table has.
    pub fn without(&self, table: &FunctionTable, chosen: &[usize]) -> Vec<&str> {
        let standing: HashSet<_> = chosen.iter().filter_map(|index| table.name(*index)).collect();
        let names = self.0.keys().map(String::as_str);
        names.filter(|name| !standing.contains(*name)).collect()
    }

    fn places(&self, name: &str) -> Vec<InlinedAt> {
        self.0.get(name).map(|copies| copies.places.clone()).unwrap_or_default()
    }
}

/// What descriptions are made from.
pub struct Describer<'a> {
    /// The executable.
    pub executable: &'a Executable,
    /// Its functions.
    pub table: &'a FunctionTable,
    /// Its debug information.
    pub debug: Option<&'a DebugInfo>,
    /// Inlined copies.
    pub inlined: &'a Inlined,
    /// Why functions can carry no trampolines, by entry; or why none can.
    pub trampolines: &'a Result<HashMap<Svma, String>, String>,
    /// Whether to list what each function calls.
    pub callees: bool,
}

impl Describer<'_> {
    /// A function that has code of its own.
    pub fn standing(&self, function: &Function) -> ListedFunction {
        let analysis = analyze_function(self.executable, function, None);
        let uprobe = match &analysis {
            Err(error) => Traceable::no(error.to_string()),
            Ok(analysis) => uprobe_refusal(analysis).map_or_else(Traceable::yes, Traceable::no),
        };
        let kept = analysis.as_ref().map(|found| Kept::of(self.executable, function, found));
        let kept = kept.unwrap_or_else(|_| Kept::all());
        let by_symbol = convention_of(self.executable.symbols(), function.entry);
        let loads_g = analysis.as_ref().is_ok_and(|found| found.loads_g);
        let convention = if loads_g { Convention::Abi0 } else { by_symbol };
        let (entry, exits) = analysis.map(|found| self.sites(&found)).unwrap_or_default();
        let (mut params, mut results) = (Vec::new(), Vec::new());
        let (mut signature_unavailable, mut signature_from) = (None, None);
        match self.signature(function, convention) {
            Ok((found, source)) => {
                params = values(&found.params, &kept);
                results = values(&found.results, &Kept::all());
                signature_from = source.name();
            }
            Err(reason) => signature_unavailable = Some(reason),
        }
        let place = self.table.file_line(function, function.entry);
        ListedFunction {
            name: function.name.clone(),
            line: function.start_line.or(place.as_ref().map(|(_, line)| *line)),
            file: place.map(|(file, _)| file),
            addr: Some(function.entry.0),
            size: self.table.code_end(function).since(function.entry).unwrap_or_default(),
            params,
            results,
            signature_unavailable,
            signature_from,
            inlined_at: self.inlined.places(&function.name),
            uprobe,
            trampoline: self.trampoline(function),
            entry,
            exits,
            callees: self.callees.then(|| self.callee_names(function)),
        }
    }

    fn trampoline(&self, function: &Function) -> Traceable {
        match self.trampolines.as_ref().map(|reasons| reasons.get(&function.entry)) {
            Ok(None) => Traceable::yes(),
            Ok(Some(reason)) | Err(reason) => Traceable::no(reason),
        }
    }

    /// A function of which there are only inlined copies.
    pub fn only_inlined(&self, name: &str) -> Option<ListedFunction> {
        let copies = self.inlined.0.get(name)?;
        let (holder, call) = &copies.example;
        let body = self.table.inlined_body(holder, call);
        Some(ListedFunction {
            name: name.to_owned(),
            line: call.start_line.or(body.as_ref().map(|(_, line)| *line)),
            file: body.map(|(file, _)| file),
            addr: None,
            size: 0,
            params: Vec::new(),
            results: Vec::new(),
            signature_unavailable: Some("its values are wherever each copy keeps them".to_owned()),
            signature_from: None,
            inlined_at: copies.places.clone(),
            uprobe: Traceable::no(ONLY_INLINED),
            trampoline: Traceable::no(ONLY_INLINED),
            entry: None,
            exits: Vec::new(),
            callees: self.callees.then(Vec::new),
        })
    }

    /// Places in the file where a call begins and where it ends.
    fn sites(&self, analysis: &Analysis) -> (Option<u64>, Vec<u64>) {
        let offset = |address: Svma| self.executable.image().file_offset(address).map(|at| at.0);
        let entry = analysis.entry.as_ref().ok().and_then(|site| offset(site.address));
        let exits = analysis.exits.iter().filter_map(|exit| offset(exit.site.address)).collect();
        (entry, exits)
    }

    fn signature(
        &self,
        function: &Function,
        convention: Convention,
    ) -> Result<(PlacedSignature, SignatureSource), String> {
        if function.flags & flag::ASM != 0 {
            return Err("written in assembly, which debug information does not describe".into());
        }
        known_signature(self.executable, self.debug, function, convention).ok_or_else(|| match self
            .debug
        {
            Some(_) => "debug information does not describe it".to_owned(),
            None => "there is no debug information (try --debug-file)".to_owned(),
        })
    }

    /// Names of what it calls directly, each once, in the order of the calls.
    fn callee_names(&self, function: &Function) -> Vec<String> {
        let mut known = HashSet::new();
        callees(self.executable, function)
            .into_iter()
            .filter_map(|target| self.table.find(target))
            .filter(|callee| callee.index != function.index && known.insert(callee.index))
            .map(|callee| callee.name)
            .collect()
    }
}

/// Values with their places, and why they are not to be had there.
fn values(variables: &[PlacedVariable], kept: &Kept) -> Vec<ListedValue> {
    let listed = variables.iter().map(|variable| {
        let (loc, unavailable) = match &variable.place {
            Ok(place) => (
                Some(place.to_string()),
                lost_value(variable, kept).err().map(|lost| lost.to_string()),
            ),
            Err(reason) => (None, Some(reason.clone())),
        };
        let ty = variable.ty.name.to_string();
        ListedValue { name: variable.name.clone(), ty, loc, unavailable }
    });
    listed.collect()
}
