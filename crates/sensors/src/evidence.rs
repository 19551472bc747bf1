//! Which trace a span belongs to, and which span is its parent.
//!
//! Witnesses speak for a parent; nothing is guessed. Where none speaks the span is a root, and where
//! one speaks for a trace and another one for another, it is a root too, with a link to what was
//! not taken.

use crate::goroutine::Origin;
use crate::span::{Link, SpanContext, Witness};

/// What speaks for a parent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evidence {
    /// What a server's request names.
    pub(crate) incoming: Option<SpanContext>,
    /// What a client's request names: the program itself makes a span there.
    pub(crate) outgoing: Option<SpanContext>,
    /// Innermost span that is open on the goroutine.
    pub(crate) frame: Option<Origin>,
    /// Open span that itself made the goroutine, to answer on it what it was asked.
    pub(crate) maker: Option<Origin>,
    /// Open span whose request the context comes from.
    pub(crate) context: Option<Origin>,
    /// Span that the goroutine was made in.
    pub(crate) origin: Option<Origin>,
    /// Whether that one is still open, and nobody else gave the goroutine something to do: else it may serve
    /// any other.
    pub(crate) is_origin_sure: bool,
}

/// What it comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// `None`: a new one.
    pub(crate) trace: Option<u128>,
    /// An id that the program made for this very span.
    pub(crate) own: Option<u64>,
    pub(crate) parent: Option<u64>,
    pub(crate) by: Option<Witness>,
    pub(crate) links: Vec<Link>,
    /// The tree that a parent which was seen is in.
    pub(crate) tree: Option<u64>,
}

impl Evidence {
    /// Of a span that answers a request. Who made its goroutine says nothing where that is whoever
    /// accepts connections.
    pub(crate) fn of_server(&self) -> Decision {
        let frame = self.frame.map(|frame| (frame, Witness::Frame));
        let inside = frame.or(self.maker.map(|maker| (maker, Witness::Goroutine)));
        match (self.incoming, inside) {
            (Some(incoming), inside) => {
                let others = inside.filter(|(inside, _)| inside.context.trace != incoming.trace);
                let links = others.map(|(inside, by)| Link { context: inside.context, by });
                Decision {
                    trace: Some(incoming.trace),
                    parent: Some(incoming.span),
                    by: Some(Witness::TraceParent),
                    links: links.into_iter().collect(),
                    ..Decision::default()
                }
            }
            (None, Some((inside, by))) => child_of(inside, by),
            (None, None) => Decision::default(),
        }
    }

    /// Of a span that makes a request.
    pub(crate) fn of_client(&self) -> Decision {
        let inside = self.inside();
        let Some(outgoing) = self.outgoing else { return inside };
        let (trace, own) = (Some(outgoing.trace), Some(outgoing.span));
        match (inside.trace, inside.parent, inside.by) {
            (Some(other), Some(span), Some(by)) if other != outgoing.trace => {
                let link = Link { context: SpanContext { trace: other, span }, by };
                Decision { trace, own, links: vec![link], ..Decision::default() }
            }
            _ => Decision { trace, own, ..inside },
        }
    }

    /// What the process itself says. Two witnesses have to speak for one tree.
    fn inside(&self) -> Decision {
        let open = self.origin.filter(|_| self.is_origin_sure);
        let witnesses = [
            (self.frame, Witness::Frame),
            // Within a frame it says nothing more.
            (open.filter(|_| self.frame.is_none()), Witness::Goroutine),
            (self.context, Witness::Context),
        ];
        let mut known = witnesses.into_iter().filter_map(|(origin, by)| Some((origin?, by)));
        match (known.next(), known.next()) {
            (Some((first, by)), Some((second, other))) if first.tree != second.tree => {
                let link = |origin: Origin, by| Link { context: origin.context, by };
                Decision {
                    links: vec![link(first, by), link(second, other)],
                    ..Decision::default()
                }
            }
            (Some((parent, by)), _) => child_of(parent, by),
            (None, _) => {
                let left = self.origin.map(|origin| origin.context);
                let link = left.map(|context| Link { context, by: Witness::Goroutine });
                Decision { links: link.into_iter().collect(), ..Decision::default() }
            }
        }
    }
}

pub(crate) fn child_of(parent: Origin, by: Witness) -> Decision {
    Decision {
        trace: Some(parent.context.trace),
        parent: Some(parent.context.span),
        by: Some(by),
        tree: Some(parent.tree),
        ..Decision::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(trace: u128, span: u64) -> SpanContext {
        SpanContext { trace, span }
    }

    fn origin(trace: u128, span: u64) -> Option<Origin> {
        Some(Origin { context: context(trace, span), tree: trace as u64 })
    }

    /// Trace, own id, parent, witness, links.
    fn told(decision: &Decision) -> String {
        let Decision { trace, own, parent, by, links, .. } = decision;
        let links: Vec<String> = links
            .iter()
            .map(|link| format!("{}/{} {}", link.context.trace, link.context.span, link.by.name()))
            .collect();
        let by = by.map_or("-", Witness::name);
        format!("{trace:?} {own:?} {parent:?} {by} [{}]", links.join(", "))
    }

    #[test]
    fn an_incoming_header_wins_and_what_else_was_known_is_linked() {
        let all = Evidence {
            incoming: Some(context(7, 70)),
            frame: origin(1, 10),
            origin: origin(2, 20),
            is_origin_sure: true,
            ..Evidence::default()
        };
        assert_eq!(told(&all.of_server()), "Some(7) None Some(70) traceparent [1/10 frame]");
        let same = Evidence { frame: origin(7, 10), ..all };
        assert_eq!(told(&same.of_server()), "Some(7) None Some(70) traceparent []");
        let frame = Evidence { incoming: None, ..all };
        assert_eq!(told(&frame.of_server()), "Some(1) None Some(10) frame []");
        let none = Evidence { frame: None, ..frame };
        assert_eq!(told(&none.of_server()), "None None None - []");
        let made = Evidence { maker: origin(4, 40), ..none };
        assert_eq!(told(&made.of_server()), "Some(4) None Some(40) goroutine []");
        let named = Evidence { incoming: Some(context(7, 70)), ..made };
        assert_eq!(told(&named.of_server()), "Some(7) None Some(70) traceparent [4/40 goroutine]");
    }

    #[test]
    fn a_client_belongs_to_its_frame_else_to_who_made_its_goroutine() {
        let all = Evidence {
            frame: origin(1, 10),
            origin: origin(2, 20),
            is_origin_sure: true,
            ..Evidence::default()
        };
        assert_eq!(told(&all.of_client()), "Some(1) None Some(10) frame []");
        let made = Evidence { frame: None, ..all };
        assert_eq!(told(&made.of_client()), "Some(2) None Some(20) goroutine []");
        // A worker that outlived the request that started it may serve any.
        let outlived = Evidence { is_origin_sure: false, ..made };
        assert_eq!(told(&outlived.of_client()), "None None None - [2/20 goroutine]");
        let none = Evidence { origin: None, ..made };
        assert_eq!(told(&none.of_client()), "None None None - []");
    }

    #[test]
    fn a_context_is_a_second_witness() {
        let alone = Evidence { context: origin(3, 30), ..Evidence::default() };
        assert_eq!(told(&alone.of_client()), "Some(3) None Some(30) context []");
        let frame = Evidence { frame: origin(3, 31), ..alone };
        assert_eq!(told(&frame.of_client()), "Some(3) None Some(31) frame []");
        let made = Evidence { origin: origin(3, 31), is_origin_sure: true, ..alone };
        assert_eq!(told(&made.of_client()), "Some(3) None Some(31) goroutine []");
        // A worker that was started in one request and serves another.
        let other = Evidence { origin: origin(2, 20), ..made };
        assert_eq!(told(&other.of_client()), "None None None - [2/20 goroutine, 3/30 context]");
        let outlived = Evidence { is_origin_sure: false, ..other };
        assert_eq!(told(&outlived.of_client()), "Some(3) None Some(30) context []");
        let foreign = Evidence { frame: origin(1, 10), ..alone };
        assert_eq!(told(&foreign.of_client()), "None None None - [1/10 frame, 3/30 context]");
    }

    #[test]
    fn a_header_that_a_client_sends_names_its_span_and_may_contradict() {
        let agrees = Evidence {
            outgoing: Some(context(1, 70)),
            frame: origin(1, 10),
            ..Evidence::default()
        };
        assert_eq!(told(&agrees.of_client()), "Some(1) Some(70) Some(10) frame []");
        let differs = Evidence { outgoing: Some(context(7, 70)), ..agrees };
        assert_eq!(told(&differs.of_client()), "Some(7) Some(70) None - [1/10 frame]");
        let made = Evidence { frame: None, origin: origin(2, 20), is_origin_sure: true, ..differs };
        assert_eq!(told(&made.of_client()), "Some(7) Some(70) None - [2/20 goroutine]");
        let outlived = Evidence { is_origin_sure: false, ..made };
        assert_eq!(told(&outlived.of_client()), "Some(7) Some(70) None - [2/20 goroutine]");
        let alone = Evidence { origin: None, ..made };
        assert_eq!(told(&alone.of_client()), "Some(7) Some(70) None - []");
    }
}
