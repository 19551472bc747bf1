//! What the linker embedded about the build: `.go.buildinfo`, read as
//! `debug/buildinfo/buildinfo.go` (Go 1.27) does.

use crate::Error;
use crate::bytes::uvarint;
use crate::go_version::GoVersion;
use crate::image::Image;
use crate::scan::{self, Order};
use address::Svma;

const MAGIC: &[u8] = b"\xff Go buildinf:";

/// The header is aligned to this and the strings follow it at twice this.
const ALIGN: usize = 16;
const HEADER_SIZE: usize = 32;

/// Bit of the flags byte: strings follow inline (since Go 1.18), not behind pointers.
const INLINE_STRINGS: u8 = 2;

/// More text than this is not build info.
const MAX_TEXT: u64 = 16 << 20;

/// `cmd/go/internal/modload/build.go`: what stands around the module text.
const SENTINEL: usize = 16;

/// A module of the build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Module path.
    pub path: String,
    /// Version (`(devel)` for the main module of a plain build).
    pub version: String,
    /// Checksum; empty when there is none.
    pub sum: String,
    /// The module that replaces it.
    pub replace: Option<Box<Module>>,
}

impl Module {
    /// From the tab-separated fields after the line's keyword.
    fn parse(fields: &str) -> Self {
        let mut fields = fields.split('\t').map(str::to_owned);
        let mut next = || fields.next().unwrap_or_default();
        Self { path: next(), version: next(), sum: next(), replace: None }
    }
}

/// The embedded build info.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildInfo {
    /// The Go version.
    pub go_version: GoVersion,
    /// Package path of `main`; empty when built without modules.
    pub path: String,
    /// The main module; empty when built without modules.
    pub main: Module,
    /// Dependencies, in file order.
    pub dependencies: Vec<Module>,
    /// Build settings (`-buildmode`, `CGO_ENABLED`, `GOAMD64`, `vcs.revision` ...), in
    /// file order, quotes removed.
    pub settings: Vec<(String, String)>,
}

impl BuildInfo {
    /// The value of a build setting.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Finds and reads the build info: by its section, else by its magic.
    pub(crate) fn read(image: &Image) -> Result<Self, Error> {
        let section = image.section(".go.buildinfo").filter(|section| section.has_data());
        if let Some(section) = section
            && let Ok(head) = image.read_vec(section.address, section.size.min(HEADER_SIZE as u64))
            && head.starts_with(MAGIC)
        {
            return read_at(image, section.address);
        }
        let mut refusal = None;
        let found =
            scan::search(image, Order::WritableFirst, HEADER_SIZE as u64, |start, piece| {
                (0..piece.len()).step_by(ALIGN).find_map(|at| {
                    if !piece.get(at..)?.starts_with(MAGIC) {
                        return None;
                    }
                    // A program that reads build info has the magic among its own constants.
                    match read_at(image, start.add(at as u64)) {
                        Ok(info) => Some(info),
                        Err(error) => {
                            refusal.get_or_insert(error);
                            None
                        }
                    }
                })
            });
        found.ok_or_else(|| refusal.unwrap_or_else(|| Error::Missing("build info".into())))
    }

    fn parse(version: &str, text: &str) -> Self {
        let mut info = Self { go_version: GoVersion::parse(version), ..Self::default() };
        for line in text.lines() {
            let Some((keyword, rest)) = line.split_once('\t') else { continue };
            match keyword {
                "path" => info.path = rest.to_owned(),
                "mod" => info.main = Module::parse(rest),
                "dep" => info.dependencies.push(Module::parse(rest)),
                "=>" => {
                    let replaced = info.dependencies.last_mut().unwrap_or(&mut info.main);
                    replaced.replace = Some(Box::new(Module::parse(rest)));
                }
                "build" => info.settings.extend(parse_setting(rest)),
                _ => {}
            }
        }
        info
    }
}

/// `key=value`, either of them quoted as Go quotes when it holds special characters.
fn parse_setting(text: &str) -> Option<(String, String)> {
    let (key, value) = if text.starts_with('"') {
        let end = text.match_indices("\"=").map(|(at, _)| at + 1).next()?;
        (text.get(..end)?, text.get(end + 1..)?)
    } else {
        text.split_once('=')?
    };
    Some((unquote(key), unquote(value)))
}

/// Removes Go quotes (`strconv.Unquote`; the escapes that `strconv.Quote` writes in build
/// settings).
fn unquote(text: &str) -> String {
    if let Some(raw) = text.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) {
        return raw.to_owned();
    }
    let Some(quoted) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return text.to_owned();
    };
    let mut plain = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    while let Some(char) = chars.next() {
        match (char, char == '\\') {
            (_, true) => match chars.next() {
                Some('n') => plain.push('\n'),
                Some('t') => plain.push('\t'),
                Some('r') => plain.push('\r'),
                Some(other) => plain.push(other),
                None => {}
            },
            (char, false) => plain.push(char),
        }
    }
    plain
}

/// Reads the build info whose header is at `address`.
fn read_at(image: &Image, address: Svma) -> Result<BuildInfo, Error> {
    let header = image.read_vec(address, HEADER_SIZE as u64)?;
    let flags = header.get(15).copied().unwrap_or_default();
    if flags & INLINE_STRINGS == 0 {
        return Err(Error::UnsupportedKind(
            "built with a Go older than 1.18; Go 1.19 and newer are supported".into(),
        ));
    }
    let (version, next) = read_string(image, address.add(HEADER_SIZE as u64))?;
    if !(version.starts_with(b"go") || version.starts_with(b"devel")) {
        return Err(Error::corrupt("build info", "no Go version in it"));
    }
    let (text, _) = read_string(image, next)?;
    // Without modules the text is empty, and then it has no sentinels either.
    let end = text.len().saturating_sub(SENTINEL);
    let text = text.get(SENTINEL..end).unwrap_or_default();
    Ok(BuildInfo::parse(&String::from_utf8_lossy(&version), &String::from_utf8_lossy(text)))
}

/// A string behind its length, and the address after it.
fn read_string(image: &Image, address: Svma) -> Result<(Vec<u8>, Svma), Error> {
    // Nothing but the length need be there.
    let head = (1..=10).rev().find_map(|len| image.read_vec(address, len).ok());
    let head = head.ok_or(Error::Unmapped { address: address.0 })?;
    let (len, rest) =
        uvarint(&head).ok_or_else(|| Error::corrupt("build info", "endless string length"))?;
    if len > MAX_TEXT {
        return Err(Error::corrupt("build info", format!("a string of {len} bytes")));
    }
    let start = address.add((head.len() - rest.len()) as u64);
    Ok((image.read_vec(start, len)?, start.add(len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_text_is_parsed() {
        let info = BuildInfo::parse(
            "go1.27.3",
            "path\texample.com/srv\nmod\texample.com/srv\t(devel)\t\n\
             dep\tgithub.com/a/b\tv1.2.3\th1:x=\n=>\t../b\t(devel)\t\n\
             build\t-buildmode=exe\nbuild\t-ldflags=\"-s -w -X main.v=\\\"1\\\"\"\n\
             build\tCGO_ENABLED=0\nnonsense\n",
        );
        assert_eq!(info.path, "example.com/srv");
        assert_eq!(info.main.version, "(devel)");
        assert_eq!(info.dependencies.len(), 1);
        assert_eq!(info.dependencies[0].sum, "h1:x=");
        assert_eq!(info.dependencies[0].replace.as_ref().unwrap().path, "../b");
        assert_eq!(info.setting("-ldflags"), Some("-s -w -X main.v=\"1\""));
        assert_eq!(info.setting("CGO_ENABLED"), Some("0"));
        assert_eq!(info.setting("-race"), None);
    }
}
