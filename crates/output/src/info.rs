//! What `gospect info` says about an executable.

use crate::printable::push_printable;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// A fact with what it was taken from, or the reason why it is not known.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Fact {
    /// It is known.
    Known {
        /// The fact.
        value: i64,
        /// What it was taken from: `dwarf`, `rtype`, `code`, `symbol`, `table`, `convention`.
        source: String,
    },
    /// It is not.
    Unknown {
        /// Why.
        unavailable: String,
    },
}

/// A module of the build.
#[derive(Clone, Debug, Serialize)]
pub struct ModuleInfo {
    /// Module path.
    pub path: String,
    /// Version; `(devel)` for the main module of a plain build.
    pub version: String,
    /// Checksum, when there is one.
    pub sum: Option<String>,
    /// The module that replaces it.
    pub replace: Option<Box<ModuleInfo>>,
}

/// What the linker embedded about the build.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BuildFacts {
    /// Package path of `main`.
    pub package: Option<String>,
    /// The main module; none when built without modules.
    pub module: Option<ModuleInfo>,
    /// The modules it needs.
    pub dependencies: Vec<ModuleInfo>,
    /// Settings of the build, in the order of the file; an object in JSON.
    #[serde(serialize_with = "as_object")]
    pub settings: Vec<(String, String)>,
}

/// The debug information.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DwarfFacts {
    /// DWARF version of the first unit.
    pub dwarf_version: Option<u16>,
    /// Whether it is compressed in the file.
    pub dwarf_compressed: Option<bool>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dwarf_unavailable: Option<String>,
}

/// How many functions there are.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FunctionCounts {
    /// All of them, those that exist only inlined not counted.
    pub functions: u64,
    /// Those that the compiler made (method and ABI wrappers).
    pub wrappers: Option<u64>,
    /// Those written in assembly.
    pub assembly: Option<u64>,
    /// Why only their number is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functions_unavailable: Option<String>,
}

/// An executable.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename = "info")]
pub struct Info {
    /// The path people know it by.
    pub path: String,
    /// Bytes of the file.
    pub size: u64,
    /// The Go version, as it stands in the file.
    pub go_version: String,
    /// What the linker embedded.
    #[serde(flatten)]
    pub build: BuildFacts,
    /// `exe` or `pie`.
    pub build_mode: String,
    /// Whether the symbol table is gone.
    pub stripped: bool,
    /// The debug information.
    #[serde(flatten)]
    pub dwarf: DwarfFacts,
    /// The functions.
    #[serde(flatten)]
    pub counts: FunctionCounts,
    /// Offset of `goid` in `runtime.g`, bytes.
    pub goid_offset: Fact,
    /// Offset of the running g from the thread pointer (fs base), bytes.
    pub g_tls_offset: Fact,
    /// The Go linker's build id.
    pub go_build_id: Option<String>,
    /// The GNU build id, hex.
    pub gnu_build_id: Option<String>,
    /// Address in the image where the process starts.
    pub entry: u64,
}

fn as_object<S: Serializer>(pairs: &[(String, String)], out: S) -> Result<S::Ok, S::Error> {
    let mut map = out.serialize_map(Some(pairs.len()))?;
    for (key, value) in pairs {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

impl Info {
    /// Writes one `{"type":"info"}` line.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        out.write_all(&line)
    }

    /// Writes it for people, a fact a line.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut lines = Lines::default();
        lines.add("path", &self.path);
        lines.add("size", &format!("{} bytes", self.size));
        lines.add("go version", &self.go_version);
        if let Some(package) = &self.build.package {
            lines.add("package", package);
        }
        match &self.build.module {
            Some(module) => lines.add("module", &module_text(module)),
            None => lines.add("module", "none"),
        }
        for module in &self.build.dependencies {
            lines.add("dependency", &module_text(module));
        }
        for (key, value) in &self.build.settings {
            lines.add("setting", &format!("{key}={value}"));
        }
        lines.add("build mode", &self.build_mode);
        lines.add("stripped", if self.stripped { "yes" } else { "no" });
        lines.add("debug info", &self.dwarf_text());
        lines.add("functions", &self.counts_text());
        lines.add("goid offset", &fact_text(&self.goid_offset, "runtime.g"));
        lines.add("g's TLS offset", &fact_text(&self.g_tls_offset, "fs"));
        lines.add("go build id", self.go_build_id.as_deref().unwrap_or("none"));
        lines.add("gnu build id", self.gnu_build_id.as_deref().unwrap_or("none"));
        lines.add("entry", &format!("0x{:x}", self.entry));
        out.write_all(lines.0.as_bytes())
    }

    fn dwarf_text(&self) -> String {
        match (self.dwarf.dwarf_version, &self.dwarf.dwarf_unavailable) {
            (Some(version), _) => {
                let compressed = self.dwarf.dwarf_compressed == Some(true);
                format!("DWARF {version}{}", if compressed { ", compressed" } else { "" })
            }
            (None, Some(reason)) => reason.clone(),
            (None, None) => "none".to_owned(),
        }
    }

    fn counts_text(&self) -> String {
        let counts = &self.counts;
        let more = match (counts.wrappers, counts.assembly, &counts.functions_unavailable) {
            (Some(wrappers), Some(assembly), _) => {
                format!(" ({wrappers} made by the compiler, {assembly} in assembly)")
            }
            (_, _, Some(reason)) => format!(" ({reason})"),
            _ => String::new(),
        };
        format!("{}{more}", counts.functions)
    }
}

fn fact_text(fact: &Fact, base: &str) -> String {
    match fact {
        Fact::Known { value, source } => format!("{base}{value:+} (from {source})"),
        Fact::Unknown { unavailable } => format!("unknown: {unavailable}"),
    }
}

fn module_text(module: &ModuleInfo) -> String {
    let mut text = module.path.clone();
    for part in [Some(&module.version), module.sum.as_ref()].into_iter().flatten() {
        if !part.is_empty() {
            text.push(' ');
            text.push_str(part);
        }
    }
    if let Some(replace) = &module.replace {
        text.push_str(" => ");
        text.push_str(&module_text(replace));
    }
    text
}

/// Lines of a name and a text.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, text: &str) {
        self.0.push_str(&format!("{name:<16}"));
        push_printable(&mut self.0, text);
        self.0.push('\n');
    }
}
