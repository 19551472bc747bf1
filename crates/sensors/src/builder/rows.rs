//! Rows that queries give: from the query's return until they are closed, on whatever goroutine.

use super::SpanBuilder;
use super::open::Open;
use crate::catalog::{Field, Role};
use crate::database::{self, RETURNED};
use crate::evidence::child_of;
use crate::fields::{Values, Watched};
use crate::goroutine::Origin;
use crate::span::{Span, SpanKind, Witness};
use std::collections::{BTreeMap, HashMap};
use timeline::KeyHash;
use timeline::{Call, End, Symbolizer};

/// Rows that are remembered, the oldest making room: programs forget to close theirs.
const MOST: usize = 1 << 14;

/// What `io.EOF` says: there are no more rows.
const NO_MORE: &[u8] = b"EOF";

/// Process, and address of a `sql.Rows` there.
type Address = (u32, u64);

/// Rows that are being read.
#[derive(Debug)]
struct Reading {
    open: Open,
    /// Place among all that were opened.
    turn: u64,
    rows: i64,
    /// Gaps that had been told of when they were opened.
    gaps: u64,
    /// Why the number is not known.
    doubt: Option<String>,
}

/// All that are open.
#[derive(Debug, Default)]
pub(super) struct OpenRows {
    by_address: HashMap<Address, Reading, KeyHash>,
    in_order: BTreeMap<u64, Address>,
    turn: u64,
    pub(super) most: usize,
    /// Whether it is watched when rows are closed, and that one is read.
    sees_ends: bool,
    sees_rows: bool,
    /// Places so far where records were lost.
    gaps: u64,
}

impl OpenRows {
    pub(super) fn new<'a>(mut roles: impl Iterator<Item = &'a Role> + Clone) -> Self {
        Self {
            most: MOST,
            sees_ends: roles.clone().any(|role| *role == Role::RowsEnd),
            sees_rows: roles.any(|role| *role == Role::Row),
            ..Self::default()
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_address.is_empty() && self.in_order.is_empty()
    }

    /// Records were lost: what is open has perhaps more rows than were seen.
    pub(super) fn gap(&mut self) {
        self.gaps += 1;
    }

    /// Gives those that have to go: the former ones at that address, and the oldest.
    fn insert(&mut self, address: Address, open: Open) -> impl Iterator<Item = Open> + use<> {
        let former = self.remove(address);
        let (turn, gaps) = (self.turn, self.gaps);
        let doubt = (!self.sees_rows).then(|| "the reading of rows is not watched".to_owned());
        self.turn += 1;
        self.in_order.insert(turn, address);
        self.by_address.insert(address, Reading { open, turn, rows: 0, gaps, doubt });
        let is_full = self.by_address.len() > self.most.max(1);
        let oldest = if is_full { self.in_order.values().next().copied() } else { None };
        let oldest = oldest.and_then(|address| self.remove(address));
        former.into_iter().chain(oldest)
    }

    /// Takes rows out, with what is known of their number.
    fn remove(&mut self, address: Address) -> Option<Open> {
        let Reading { mut open, turn, rows, gaps, doubt } = self.by_address.remove(&address)?;
        self.in_order.remove(&turn);
        let lost = (gaps != self.gaps).then(|| "records were lost meanwhile".to_owned());
        match doubt.or(lost) {
            None => open.attributes.int(RETURNED, rows),
            Some(reason) => open.attributes.lack(RETURNED, reason),
        }
        Some(open)
    }
}

impl SpanBuilder {
    /// Begins the rows that a query gave, if it did.
    pub(super) fn begin_rows(
        &mut self,
        call: &Call,
        query: &Open,
        values: &Values<'_>,
        out: &mut Vec<Span>,
    ) {
        let address = values.address(Field::Rows).filter(|_| self.rows.sees_ends);
        let Some(address) = address else { return };
        let (name, attributes) = database::rows();
        let mut open = Open::new(call, SpanKind::Client, name, attributes);
        open.begins(call.end_ns);
        let query = Origin { context: query.context, tree: query.tree };
        self.begin(open, child_of(query, Witness::Rows));
        // From here on they are nobody's frame; there are none when too many spans are open.
        let Some(open) = self.take((call.pid, call.goid), call.id) else { return };
        for lost in self.rows.insert((call.pid, address), open) {
            self.end(lost, call.end_ns, false, out);
        }
    }

    /// One more row, or none.
    pub(super) fn row(&mut self, call: &Call, watched: &Watched) {
        let Some(address) = watched.at_entry(call).address(Field::Rows) else { return };
        let Some(reading) = self.rows.by_address.get_mut(&(call.pid, address)) else { return };
        match (call.end, watched.at_return(call).truth(Field::Row)) {
            (End::Return, Ok(true)) if call.end_exact => reading.rows += 1,
            (End::Return, Ok(false)) if call.end_exact => {}
            (End::Return, Err(reason)) => reading.doubt = Some(reason.to_owned()),
            (End::Return | End::Lost, _) => {
                reading.doubt = Some("records were lost meanwhile".to_owned());
            }
            _ => {}
        }
    }

    /// Ends rows. All who close them hold one lock, so that they are closed when the first of them is done.
    pub(super) fn end_rows(
        &mut self,
        call: &Call,
        watched: &Watched,
        symbols: &dyn Symbolizer,
        out: &mut Vec<Span>,
    ) {
        let before = watched.at_entry(call);
        let Some(address) = before.address(Field::Rows) else { return };
        let Some(mut open) = self.rows.remove((call.pid, address)) else { return };
        open.is_stream = open.goid != call.goid;
        if call.end == End::Return && call.end_exact {
            match failure(&before, &watched.at_return(call)) {
                Ok(None) => {}
                Ok(Some(descriptor)) => {
                    let name = symbols.type_name(call.pid, descriptor).map(|(name, _)| name);
                    open.failed(name.as_deref().unwrap_or("_OTHER"));
                }
                Err(reason) => open.attributes.lack("error.type", reason),
            }
        }
        self.ended(open, call, out);
    }

    /// Reports the rows that nobody was seen to close, of one process or of all.
    pub(super) fn give_up_rows(&mut self, pid: Option<u32>, out: &mut Vec<Span>) {
        let in_order = self.rows.in_order.values().copied();
        let left: Vec<Address> =
            in_order.filter(|address| pid.is_none_or(|pid| address.0 == pid)).collect();
        for address in left {
            if let Some(open) = self.rows.remove(address) {
                let end_ns = self.last_ns.max(open.start_ns());
                self.end(open, end_ns, false, out);
            }
        }
    }
}

/// Type of the error that rows ended with, as `(*Rows).Err` gives it: that of the last row, why they were closed, or
/// that of closing them (`database/sql/sql.go`, `close` and `lasterrOrErrLocked`).
fn failure<'a>(before: &Values<'a>, after: &Values<'a>) -> Result<Option<u64>, &'a str> {
    let last = before.dynamic_type(Field::Error)?;
    let is_end = before.bytes(Field::ErrorText).is_ok_and(|(text, _)| text == NO_MORE);
    if last.is_some() && !is_end {
        return Ok(last);
    }
    // Who finds them closed has no say.
    if !is_end && !before.truth(Field::Over)? {
        let reason = before.dynamic_type(Field::Reason)?;
        if reason.is_some() {
            return Ok(reason);
        }
    }
    after.dynamic_type(Field::Error)
}
