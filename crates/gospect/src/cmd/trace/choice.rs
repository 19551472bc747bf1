//! Which functions: patterns and rules as typed to a [`Selection`].

use crate::args::TraceArgs;
use crate::failure::usage;
use probe::pattern::Pattern;
use probe::rule::Rule;
use probe::selection::{CallsOf, Selection, Wanted};

/// Parses all that names functions.
pub fn selection(args: &TraceArgs) -> anyhow::Result<Selection> {
    let select = &args.select;
    let mut wanted = Vec::new();
    let named = select.functions.len() + args.rules.len() + select.calls_of.len();
    for text in select.functions.iter().chain(&args.rules) {
        wanted.push(rule(text)?);
    }
    // A drilldown that is not among the traced functions would hide everything.
    if let Some(name) = &args.show.drilldown {
        wanted.push(rule(name)?);
    }
    let exclude = select
        .exclude
        .iter()
        .map(|text| Pattern::parse(text).map_err(|error| malformed("pattern", text, &error)))
        .collect::<Result<_, _>>()?;
    let calls_of = select.calls_of.iter().map(|text| calls_of(text)).collect::<Result<_, _>>()?;
    let selection = Selection {
        wanted,
        exclude,
        exclude_vendor: select.exclude_vendor,
        main_module: select.main_module,
        whole_module: select.main_module && named == 0,
        calls_of,
    };
    if selection.is_empty() {
        return Err(usage(
            "no function named: give -u PATTERN, a RULE, --calls-of NAME or --main-module",
        ));
    }
    Ok(selection)
}

fn rule(text: &str) -> anyhow::Result<Wanted> {
    let rule = Rule::parse(text).map_err(|error| malformed("rule", text, &error))?;
    // `f()` names a function and asks for nothing: it gets what every function gets.
    let params = rule.params.filter(|params| !params.is_empty());
    Ok(Wanted { text: rule.text, pattern: rule.pattern, params })
}

fn malformed(what: &str, text: &str, error: &dyn std::fmt::Display) -> anyhow::Error {
    usage(format!("malformed {what} `{text}`: {error}"))
}

/// `NAME[:DEPTH]`. Names may hold colons (`type:.eq.main.T`), depths are numbers.
fn calls_of(text: &str) -> anyhow::Result<CallsOf> {
    let (name, depth) = match text.rsplit_once(':') {
        Some((name, depth)) if !depth.is_empty() && depth.bytes().all(|b| b.is_ascii_digit()) => {
            let depth = depth
                .parse()
                .map_err(|_| usage(format!("malformed --calls-of `{text}`: depth too large")))?;
            (name, Some(depth))
        }
        _ => (text, None),
    };
    if name.is_empty() {
        return Err(usage(format!("malformed --calls-of `{text}`: no function name")));
    }
    Ok(CallsOf { name: name.to_owned(), depth })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_splits_at_a_numeric_depth_only() {
        let parsed = |text| calls_of(text).unwrap();
        let with = |name: &str, depth| CallsOf { name: name.to_owned(), depth };
        assert_eq!(parsed("main.f:2"), with("main.f", Some(2)));
        assert_eq!(parsed("main.f"), with("main.f", None));
        assert_eq!(parsed("type:.eq.main.T"), with("type:.eq.main.T", None));
        assert!(calls_of(":2").is_err() && calls_of("main.f:99999999999").is_err());
    }
}
