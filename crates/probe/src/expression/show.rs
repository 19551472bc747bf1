//! Operands as text: the name of the value they give.

use super::{Operand, Start, StepKind};
use std::fmt::{self, Write as _};

impl fmt::Display for Operand {
    /// The form with the fewest parentheses that parses to the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = match &self.start {
            Start::Name(name) => name.clone(),
            Start::Goid => "$goid".to_owned(),
            Start::Duration => "$duration".to_owned(),
        };
        // What stands before it binds less than what stands behind it.
        let mut is_prefixed = false;
        for step in &self.steps {
            let prefix = matches!(step.kind, StepKind::Address | StepKind::Deref);
            let call = matches!(step.kind, StepKind::Len | StepKind::Cap);
            if is_prefixed && !prefix && !call {
                text = format!("({text})");
            }
            is_prefixed = prefix;
            match &step.kind {
                StepKind::Field(name) => write!(text, ".{name}")?,
                StepKind::Assert(name) => write!(text, ".({name})")?,
                StepKind::Index(index) => write!(text, "[{index}]")?,
                StepKind::Key(key) => {
                    let key = key.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
                    write!(text, "[\"{key}\"]")?;
                }
                StepKind::Len => text = format!("len({text})"),
                StepKind::Cap => text = format!("cap({text})"),
                StepKind::Address => text = format!("&{text}"),
                StepKind::Deref => text = format!("*{text}"),
            }
        }
        f.write_str(&text)
    }
}
