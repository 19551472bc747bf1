//! Databases by OpenTelemetry's semantic conventions (version 1.27 and later).

use crate::catalog::Field;
use crate::fields::Values;
use crate::http::Attributes;
use crate::mask;

/// What database/sql speaks to is known by its driver alone.
const SYSTEM: &str = "other_sql";

/// Letters of an operation at the most.
const MAX_OPERATION: usize = 32;

/// Name of a span of rows that are read. It asks for no operation: whoever counts operations counts queries.
const READ: &str = "ROWS";

/// How many rows were read.
pub(crate) const RETURNED: &str = "db.response.returned_rows";

/// Name and attributes of rows that are read.
pub(crate) fn rows() -> (String, Attributes) {
    let mut attributes = Attributes::default();
    attributes.text("db.system.name", SYSTEM);
    (READ.to_owned(), attributes)
}

/// What a database is asked, and the name of the span: its operation, the one given or the one that
/// the statement begins with. The statement itself only when it is `shown`.
pub(crate) fn asked(
    operation: Option<&str>,
    values: &Values<'_>,
    shown: bool,
) -> (String, Attributes) {
    let mut attributes = Attributes::default();
    attributes.text("db.system.name", SYSTEM);
    let operation = match operation {
        Some(operation) => Some(operation.to_owned()),
        None => match values.text(Field::Statement) {
            Ok(statement) => {
                let first = first_word(&statement);
                if shown {
                    attributes.text("db.query.text", mask::statement(&statement));
                }
                first
            }
            Err(reason) => {
                attributes.lack("db.operation.name", reason);
                None
            }
        },
    };
    match operation {
        Some(operation) => {
            attributes.text("db.operation.name", operation.clone());
            (operation, attributes)
        }
        None => (SYSTEM.to_owned(), attributes),
    }
}

/// The word that a statement begins with, behind comments, in capital letters.
fn first_word(statement: &str) -> Option<String> {
    let mut rest = statement.trim_start();
    loop {
        let comment = if rest.starts_with("--") {
            "\n"
        } else if rest.starts_with("/*") {
            "*/"
        } else {
            break;
        };
        rest = rest.get(2..)?.split_once(comment)?.1.trim_start();
    }
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    (1..=MAX_OPERATION).contains(&end).then(|| rest[..end].to_ascii_uppercase())
}
