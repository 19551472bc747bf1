//! `gospect types`: how types lie in memory.

mod listed;

use crate::args::{Format, TypesArgs};
use crate::failure::{Outcome, nothing, usage};
use crate::sink;
use crate::target::Target;
use binary::{TypeId, TypeLayout, TypeSource};
use output::{ListedType, ListedTypeName};
use probe::pattern::Pattern;
use probe::type_path::{self, TypePathError};
use std::collections::BTreeMap;
use std::io::Write;

/// Shows the types, or their names when none is named.
pub fn run(args: &TypesArgs) -> anyhow::Result<Outcome> {
    let wanted = args.binary.further(&args.types)?;
    let target = Target::of_args(&args.binary)?;
    let debug = target.debug_info()?;
    let types = TypeSource::new(&target.executable, debug.as_ref());
    let mut answers = Vec::new();
    if wanted.is_empty() {
        answers.push(Answer::Names(names(types, |_| true)?));
    }
    for text in &wanted {
        answers.push(answer(types, text)?);
    }
    let mut out = sink::open(args.binary.output.as_deref())?;
    for (index, answer) in answers.iter().enumerate() {
        if index > 0 && args.binary.format == Format::Text {
            writeln!(out)?;
        }
        answer.write(types, args.binary.format, &mut out)?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

/// What there is to show for one TYPE.
enum Answer {
    Layout(ListedType),
    Names(BTreeMap<String, TypeId>),
}

fn answer(types: TypeSource<'_>, text: &str) -> anyhow::Result<Answer> {
    match type_path::resolve(types, text) {
        Ok(path) => {
            let layout = TypeLayout::read(types, path.end)?;
            Ok(Answer::Layout(listed::listed(types, &layout, &path)?))
        }
        Err(TypePathError::Binary(error)) => Err(error.into()),
        Err(error @ TypePathError::NoType { .. }) if is_pattern(text) => {
            let pattern = Pattern::parse(text)
                .map_err(|error| usage(format!("malformed pattern `{text}`: {error}")))?;
            let names = names(types, |name| pattern.matches(name))?;
            if names.is_empty() {
                Err(nothing(error.to_string()))
            } else {
                Ok(Answer::Names(names))
            }
        }
        Err(error) => Err(nothing(error.to_string())),
    }
}

/// Type names hold asterisks too, so this counts only when there is no such type.
fn is_pattern(text: &str) -> bool {
    text.starts_with('/') || text.contains(['*', '?'])
}

fn names(
    types: TypeSource<'_>,
    wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<BTreeMap<String, TypeId>> {
    Ok(types.type_names()?.into_iter().filter(|(name, _)| wanted(name)).collect())
}

impl Answer {
    fn write(
        &self,
        types: TypeSource<'_>,
        format: Format,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        match (self, format) {
            (Self::Layout(layout), Format::Text) => layout.write_text(out)?,
            (Self::Layout(layout), Format::Json) => layout.write_json(out)?,
            (Self::Names(names), format) => {
                for (name, id) in names {
                    // A name without a description (a C type's forward declaration) has no size.
                    let Ok(info) = types.type_info(*id) else { continue };
                    let kind = listed::kind_name(&info);
                    let line = ListedTypeName { name: name.clone(), kind, size: info.size };
                    match format {
                        Format::Text => line.write_text(out)?,
                        Format::Json => line.write_json(out)?,
                    }
                }
            }
        }
        Ok(())
    }
}
