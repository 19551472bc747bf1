//! Which functions: patterns and rules as typed to a [`Selection`].

mod rules_file;

use crate::args::{ConditionArgs, SpanChoice, TraceArgs};
use crate::failure::usage;
use probe::expression::{Condition, ExpressionError, Operand, Request, RequestError};
use probe::pattern::Pattern;
use probe::selection::{CallsOf, Conditions, Selection, Stated, Wanted};

/// Parses all that names functions.
pub fn selection(args: &TraceArgs) -> anyhow::Result<Selection> {
    let select = &args.select;
    let mut wanted = Vec::new();
    for text in select.functions.iter().chain(&args.rules) {
        wanted.push(rule(text)?);
    }
    if let Some(path) = &args.conditions.rules_file {
        wanted.extend(rules_file::read(path)?);
    }
    let named = wanted.len() + select.calls_of.len();
    // A drilldown that is not among the traced functions would hide everything.
    if let Some(name) = &args.show.drilldown {
        wanted.push(rule(name)?);
    }
    let exclude = excluded(&select.exclude)?;
    let calls_of = select.calls_of.iter().map(|text| calls_of(text)).collect::<Result<_, _>>()?;
    let selection = Selection {
        always: 0,
        wanted,
        exclude,
        exclude_vendor: select.exclude_vendor,
        main_module: select.main_module,
        whole_module: select.main_module && named == 0,
        calls_of,
        conditions: conditions(&args.conditions)?,
    };
    if selection.is_empty() {
        return Err(usage(
            "no function named: give -u PATTERN, a RULE, --calls-of NAME or --main-module",
        ));
    }
    Ok(selection)
}

/// What `spans --functions` names, which may be nothing.
pub fn within_spans(choice: &SpanChoice) -> anyhow::Result<Selection> {
    let wanted = choice.functions.iter().map(|text| rule(text)).collect::<Result<_, _>>()?;
    let exclude = excluded(&choice.exclude)?;
    Ok(Selection { wanted, exclude, exclude_vendor: true, ..Selection::default() })
}

fn excluded(patterns: &[String]) -> anyhow::Result<Vec<Pattern>> {
    let parse =
        |text: &String| Pattern::parse(text).map_err(|error| malformed("pattern", text, &error));
    patterns.iter().map(parse).collect()
}

fn rule(text: &str) -> anyhow::Result<Wanted> {
    wanted(text).map_err(|error| malformed("rule", text, &error))
}

fn wanted(text: &str) -> Result<Wanted, RequestError> {
    let Request { text, pattern, params, results, declared } = Request::parse(text)?;
    Ok(Wanted { text, pattern, params, results, declared })
}

fn conditions(args: &ConditionArgs) -> anyhow::Result<Conditions> {
    let entry = stated("--if", args.if_entry.as_deref(), Condition::parse)?;
    let result = stated("--if-result", args.if_result.as_deref(), Condition::parse)?;
    let duration = stated("--if-duration", args.if_duration.as_deref(), Condition::parse_duration)?;
    let by = stated("--by", args.by.as_deref(), Operand::parse)?;
    Ok(Conditions { entry, result, duration, by })
}

fn stated<T>(
    option: &str,
    text: Option<&str>,
    parse: impl Fn(&str) -> Result<T, ExpressionError>,
) -> anyhow::Result<Option<Stated<T>>> {
    let Some(text) = text else { return Ok(None) };
    let parsed = parse(text).map_err(|error| malformed(option, text, &error))?;
    Ok(Some(Stated { text: text.to_owned(), parsed }))
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
