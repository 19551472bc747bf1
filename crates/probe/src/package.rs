//! Which package a function belongs to, by its symbol name.

use std::borrow::Cow;

/// Prefixes of compiler-made symbols, which belong to no package. Since Go 1.20 they
/// start with `type:` and `go:` (cmd/compile/internal/base/link.go, `ReservedImports`); 1.19 has
/// dots, so only those of its names are listed that no package `go` or `type` could have
/// (`go.uber.org/…` is a package). `go.(*struct {…}).M` is a wrapper of an unnamed type.
const COMPILER_MADE: [&str; 7] =
    ["type:", "go:", "type..", "go.buildid", "go.shape.", "go.(", "go.struct {"];

/// Import path of the package that the symbol `name` belongs to, unescaped
/// (`gopkg.in/yaml%2ev3.Marshal` gives `gopkg.in/yaml.v3`). Empty for compiler-made functions
/// (`type:.eq.…`) and for names without a package (C and assembly functions).
pub fn package_of(name: &str) -> Cow<'_, str> {
    if COMPILER_MADE.iter().any(|prefix| name.starts_with(prefix)) {
        return Cow::Borrowed("");
    }
    // No import path holds these (Go spec, import declarations), but what follows it may
    // hold slashes and dots of other paths: type arguments, receivers.
    let path_and_first = name.split(['[', '(', '{']).next().unwrap_or(name);
    let last = path_and_first.rfind('/').map_or(0, |slash| slash + 1);
    let (head, tail) = path_and_first.split_at(last);
    match tail.find('.') {
        Some(dot) => unescape(&name[..head.len() + dot]),
        None => Cow::Borrowed(""),
    }
}

/// Whether a package path is that of a vendored copy: GOPATH-style `…/vendor/…`, and the
/// standard library's `vendor/golang.org/x/…`. Packages vendored in module mode keep their own path
/// and are not told apart.
pub fn is_vendored(package: &str) -> bool {
    package.starts_with("vendor/") || package.contains("/vendor/")
}

/// Whether a package is part of the binary's main module, whose path (`mod` of the build
/// info) is `module`; without one only package `main` is.
pub fn is_main_module(package: &str, module: Option<&str>) -> bool {
    let inside = |module: &str| {
        package.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    package == "main" || module.filter(|path| !path.is_empty()).is_some_and(inside)
}

/// `%xx` undone, as the linker's `objabi.PathToPrefix` does it; anything else stays.
pub(crate) fn unescape(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|&b| char::from(b).to_digit(16));
        if let (b'%', Some(high), Some(low)) = (first, digit(0), digit(1)) {
            bytes.push((high * 16 + low) as u8);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    match String::from_utf8(bytes) {
        Ok(text) => Cow::Owned(text),
        Err(_) => Cow::Borrowed(path),
    }
}

/// `name` without its balanced `[…]` groups.
pub(crate) fn without_type_arguments(name: &str) -> String {
    let mut depth = 0usize;
    name.chars()
        .filter(|&c| {
            let before = depth;
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            before == 0 && depth == 0 && c != ']'
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_symbols() {
        for (name, package) in [
            ("main.add", "main"),
            ("main.(*T).M", "main"),
            ("main.(*T).M-fm", "main"),
            ("main.glob..func1", "main"),
            ("main.init.0", "main"),
            ("main.main.func1.2", "main"),
            ("main.Map[go.shape.int]", "main"),
            ("main.Map[github.com/x/y.T]", "main"),
            ("main.(*List[example.com/a.b/c.T]).Push.func1", "main"),
            ("net/http.(*Server).Serve", "net/http"),
            ("github.com/a/b.F", "github.com/a/b"),
            ("github.com/a/b%2ec.(*T).M[go.shape.int].func1", "github.com/a/b.c"),
            ("gopkg.in/yaml%2ev3.Marshal", "gopkg.in/yaml.v3"),
            ("example.com/%c3%a9.F", "example.com/é"),
            ("example.com/a%2.F", "example.com/a%2"),
            ("example.com/a%ff.F", "example.com/a%ff"),
            ("go/ast.Walk", "go/ast"),
            ("go.uber.org/zap.(*Logger).Info", "go.uber.org/zap"),
            ("go.opentelemetry.io/otel.Tracer", "go.opentelemetry.io/otel"),
            ("runtime.memmove.abi0", "runtime"),
            ("type:.eq.main.T", ""),
            ("type..eq.struct { F net/http.Header }", ""),
            ("type:.hash.[2]github.com/x/y.T", ""),
            ("go:buildid", ""),
            ("go.buildid", ""),
            ("go:(*struct { sync.Mutex; x.y/z.T }).Lock", ""),
            ("go.(*struct { sync.Mutex }).Lock", ""),
            ("memeqbody", ""),
            ("_rt0_amd64_linux", ""),
            ("setg_gcc<>", ""),
            ("", ""),
            ("/", ""),
        ] {
            assert_eq!(package_of(name), package, "{name}");
        }
    }

    #[test]
    fn vendored_packages() {
        assert!(is_vendored("vendor/golang.org/x/net/http2/hpack"));
        assert!(is_vendored("example.com/app/vendor/github.com/a/b"));
        assert!(!is_vendored("example.com/vendor"));
        assert!(!is_vendored("example.com/myvendor/a"));
    }

    #[test]
    fn packages_of_the_main_module() {
        assert!(is_main_module("main", None));
        assert!(is_main_module("example.com/app", Some("example.com/app")));
        assert!(is_main_module("example.com/app/store", Some("example.com/app")));
        assert!(!is_main_module("example.com/app2", Some("example.com/app")));
        assert!(!is_main_module("fmt", Some("")));
        assert!(!is_main_module("fmt", None));
    }

    #[test]
    fn type_arguments_are_cut_out() {
        assert_eq!(without_type_arguments("m.(*L[a.[]b]).P[c].func1"), "m.(*L).P.func1");
        assert_eq!(without_type_arguments("m.F]["), "m.F");
    }
}
