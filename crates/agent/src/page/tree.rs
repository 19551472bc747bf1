//! A request with all that it did, as bars over its time.

use super::shown::{count, duration};
use crate::status::{SpanStatus, TreeStatus};
use maud::{Markup, html};
use std::collections::{BTreeMap, HashMap};

/// Width of the bars, in their own coordinates.
const WIDTH: f64 = 1000.0;
/// Nested no deeper than this.
const DEPTH: usize = 12;

/// The tree, closed but for its first line.
pub(super) fn tree(tree: &TreeStatus, id: &str) -> Markup {
    let name = tree.spans.first().map_or("(nothing is kept of it)", |root| root.name.as_str());
    let depths = depths(&tree.spans);
    html! {
        details.tree id=(id) {
            summary {
                span.duration { (duration(tree.duration_ns)) } " " span.name { (name) } " "
                small { "trace " code { (tree.trace_id) } }
            }
            table.spans {
                tbody {
                    @for (span, depth) in tree.spans.iter().zip(depths) {
                        (row(span, depth, tree.duration_ns))
                    }
                }
            }
            @if tree.more > 0 { p { "and " (count(tree.more)) " more" } }
        }
    }
}

fn row(span: &SpanStatus, depth: usize, whole_ns: u64) -> Markup {
    html! {
        tr.error[span.is_error] {
            td class=(format!("name depth-{depth}")) title=(title(span)) {
                @if span.kind == "client" { "› " }
                (span.name) " "
                small { "g" (span.goid) }
            }
            td.number { (duration(span.duration_ns)) }
            td.bar {
                svg viewBox=(format!("0 0 {WIDTH} 10")) preserveAspectRatio="none" {
                    (bar(span, whole_ns))
                }
            }
        }
        @if let Some(time) = &span.time {
            tr { td.split colspan="3" { (split(time)) } }
        }
    }
}

fn title(span: &SpanStatus) -> String {
    let pairs = span.attributes.iter().map(|(name, value)| format!("{name} = {value}"));
    pairs.collect::<Vec<_>>().join("\n")
}

/// Where the span lies within the request; at least a line of it can be seen.
fn bar(span: &SpanStatus, whole_ns: u64) -> Markup {
    let scale = WIDTH / whole_ns.max(1) as f64;
    let x = (span.offset_ns as f64 * scale).min(WIDTH - 2.0);
    let width = (span.duration_ns as f64 * scale).clamp(2.0, WIDTH - x);
    html! {
        rect x=(format!("{x:.1}")) y="1" width=(format!("{width:.1}")) height="8" {}
    }
}

/// What the time went to, the most first.
fn split(time: &BTreeMap<String, u64>) -> Markup {
    let mut parts: Vec<_> = time.iter().filter(|(_, ns)| **ns > 0).collect();
    parts.sort_by(|a, b| b.1.cmp(a.1));
    html! {
        @for (name, ns) in parts {
            span.part { (name) " " (duration(*ns)) } " "
        }
    }
}

/// How deep each span lies, by its parent; one whose parent is elsewhere begins anew.
fn depths(spans: &[SpanStatus]) -> Vec<usize> {
    let mut of_id: HashMap<&str, usize> = HashMap::new();
    let mut depths = Vec::with_capacity(spans.len());
    for span in spans {
        let parent = span.parent_span_id.as_deref().and_then(|parent| of_id.get(parent));
        let depth = parent.map_or(0, |depth| (depth + 1).min(DEPTH));
        of_id.insert(&span.span_id, depth);
        depths.push(depth);
    }
    depths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: &str, parent: Option<&str>, offset_ns: u64, duration_ns: u64) -> SpanStatus {
        SpanStatus {
            name: format!("GET /{id}"),
            kind: "server",
            span_id: id.to_owned(),
            parent_span_id: parent.map(ToOwned::to_owned),
            offset_ns,
            duration_ns,
            ..SpanStatus::default()
        }
    }

    #[test]
    fn spans_lie_under_their_parents() {
        let spans = [
            span("a", Some("elsewhere"), 0, 100),
            span("b", Some("a"), 10, 50),
            span("c", Some("b"), 20, 10),
            span("d", Some("a"), 70, 5),
            span("e", None, 80, 5),
        ];
        assert_eq!(depths(&spans), [0, 1, 2, 1, 0]);
        let chain: Vec<_> = (0..40)
            .map(|n| {
                span(
                    &n.to_string(),
                    Some(&(n - 1).to_string()).filter(|_| n > 0).map(|p| p.as_str()),
                    0,
                    1,
                )
            })
            .collect();
        assert_eq!(depths(&chain).last(), Some(&DEPTH));
    }

    #[test]
    fn bars_stay_within_the_request() {
        let bar = |offset, duration| bar(&span("a", None, offset, duration), 1000).into_string();
        assert_eq!(bar(0, 1000), r#"<rect x="0.0" y="1" width="1000.0" height="8"></rect>"#);
        assert_eq!(bar(900, 500), r#"<rect x="900.0" y="1" width="100.0" height="8"></rect>"#);
        assert_eq!(bar(5000, 0), r#"<rect x="998.0" y="1" width="2.0" height="8"></rect>"#);
    }
}
