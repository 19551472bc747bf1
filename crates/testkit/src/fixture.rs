//! Fixture programs, compiled on demand and kept.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};

use crate::error::Error;
use crate::mode::{Mode, Recipe};
use crate::toolchain::Toolchain;

/// Raise it when the way of building changes, so that old binaries are not used.
const CACHE_FORMAT: u32 = 1;

/// Where toolchains and fixtures are kept: `GOSPECT_CACHE`, else `~/.cache/gospect`.
#[must_use]
pub fn cache_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("GOSPECT_CACHE") {
        return PathBuf::from(dir);
    }
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
    home.join(".cache/gospect")
}

/// The module that holds the fixtures' sources: `fixtures/go`.
#[must_use]
pub fn source_root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/go");
    root.canonicalize().unwrap_or(root)
}

/// The fixture programs.
pub struct Fixture;

impl Fixture {
    /// Builds `fixtures/go/<name>` and returns the binary; a cached one if there is one.
    ///
    /// # Panics
    /// When it does not build; the message holds what the compiler said.
    #[must_use]
    pub fn build(name: &str, toolchain: &Toolchain, mode: Mode) -> PathBuf {
        Self::build_as(name, toolchain, &mode.recipe())
    }

    /// Builds with a recipe of one's own.
    ///
    /// # Panics
    /// When it does not build.
    #[must_use]
    pub fn build_as(name: &str, toolchain: &Toolchain, recipe: &Recipe) -> PathBuf {
        Self::try_build(name, toolchain, recipe).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Builds `fixtures/<name>`, a module of its own that needs others, which `go` fetches when
    /// they are not there: as `go.mod` and `go.sum` pin them.
    ///
    /// # Panics
    /// When it does not build.
    #[must_use]
    pub fn module(name: &str, toolchain: &Toolchain, recipe: &Recipe) -> PathBuf {
        let root = source_root().with_file_name(name);
        // Fixtures are built without a network otherwise; empty is what is configured.
        let proxy = std::env::var("GOPROXY").unwrap_or_default();
        let recipe = recipe.clone().env("GOFLAGS", "-mod=readonly").env("GOPROXY", &proxy);
        let sources = [root.clone()];
        build_package(&root, ".", name, &sources, toolchain, &recipe)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Builds, with the failure as a value.
    ///
    /// # Errors
    /// When there is no such fixture, a file cannot be written, or the compiler refuses.
    pub fn try_build(name: &str, toolchain: &Toolchain, recipe: &Recipe) -> Result<PathBuf, Error> {
        let root = source_root();
        if !root.join(name).join("main.go").is_file() {
            return Err(Error::NoFixture { name: name.to_owned(), root });
        }
        let sources = [root.join("go.mod"), root.join("fact"), root.join(name)];
        let package = format!("./{name}");
        build_package(&root, &package, name, &sources, toolchain, recipe)
    }
}

/// Compiles `package` of the module at `root`, unless it was compiled before from the same
/// bytes. `sources` are the files and directories that the result depends on.
pub(crate) fn build_package(
    root: &Path,
    package: &str,
    name: &str,
    sources: &[PathBuf],
    toolchain: &Toolchain,
    recipe: &Recipe,
) -> Result<PathBuf, Error> {
    let mut hasher = DefaultHasher::new();
    (CACHE_FORMAT, &toolchain.version, recipe).hash(&mut hasher);
    // The path stands in the line tables, so it is a part of the result.
    root.hash(&mut hasher);
    for source in sources {
        hash_tree(source, &mut hasher)?;
    }
    let dir = cache_dir().join("fixtures").join(format!(
        "{name}-{}-{}-{:016x}",
        toolchain.version,
        recipe.label,
        hasher.finish()
    ));
    let binary = dir.join(name);
    if binary.is_file() {
        return Ok(binary);
    }
    fs::create_dir_all(&dir).map_err(Error::io("make", &dir))?;
    let lock_path = dir.join("lock");
    let lock = File::create(&lock_path).map_err(Error::io("make", &lock_path))?;
    // Held until `lock` is dropped, and by the kernel no longer than this process lives.
    flock(&lock, FlockOperation::LockExclusive)
        .map_err(|errno| Error::io("lock", &lock_path)(errno.into()))?;
    if binary.is_file() {
        return Ok(binary);
    }
    let fresh = dir.join(format!("{name}.new"));
    compile(root, package, name, &fresh, toolchain, recipe)?;
    fs::rename(&fresh, &binary).map_err(Error::io("rename", &fresh))?;
    Ok(binary)
}

/// One `go build`; needs no network, since fixtures import the standard library only, unless a recipe names a
/// proxy of modules.
fn compile(
    root: &Path,
    package: &str,
    name: &str,
    out: &Path,
    toolchain: &Toolchain,
    recipe: &Recipe,
) -> Result<(), Error> {
    let mut command = Command::new(&toolchain.go);
    command
        .current_dir(root)
        .env("GOFLAGS", "-mod=mod")
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off")
        .env("GOPROXY", "off")
        .env_remove("GOROOT")
        .env_remove("GOEXPERIMENT")
        .env("CGO_ENABLED", if recipe.import_c { "1" } else { "0" })
        .args(["build", "-buildvcs=false"]);
    if recipe.import_c {
        command.arg("-overlay").arg(overlay(root, package, out)?);
    }
    for (key, value) in &recipe.env {
        command.env(key, value);
    }
    command.args(&recipe.args).arg("-o").arg(out).arg(package);
    let result = command.output().map_err(Error::io("run", &toolchain.go))?;
    if result.status.success() {
        return Ok(());
    }
    Err(Error::Build {
        name: name.to_owned(),
        version: toolchain.version.clone(),
        label: recipe.label.clone(),
        stderr: String::from_utf8_lossy(&result.stderr).into_owned(),
    })
}

/// Writes the overlay that adds a file with `import "C"` to the package, so that the same
/// sources give a cgo program and a plain one.
fn overlay(root: &Path, package: &str, out: &Path) -> Result<PathBuf, Error> {
    let source = out.with_extension("cgo.go");
    let text = "package main\n\nimport \"C\"\n";
    fs::write(&source, text).map_err(Error::io("write", &source))?;
    let place = root.join(package.trim_start_matches("./")).join("zz_cgo_mode.go");
    let replace = serde_json::json!({ "Replace": { place.to_string_lossy(): source } });
    let path = out.with_extension("overlay.json");
    fs::write(&path, replace.to_string()).map_err(Error::io("write", &path))?;
    Ok(path)
}

/// Hashes a file, or the files of a directory in the order of their names.
fn hash_tree(path: &Path, hasher: &mut DefaultHasher) -> Result<(), Error> {
    if path.is_dir() {
        let mut entries: Vec<PathBuf> = fs::read_dir(path)
            .map_err(Error::io("list", path))?
            .flatten()
            .map(|entry| entry.path())
            .collect();
        entries.sort();
        for entry in entries {
            hash_tree(&entry, hasher)?;
        }
        return Ok(());
    }
    path.hash(hasher);
    fs::read(path).map_err(Error::io("read", path))?.hash(hasher);
    Ok(())
}
