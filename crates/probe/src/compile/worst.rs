//! What a program may cost at the most.

use super::emitted_bytes;
use wire::{Body, MAX_BLOCKS, Op, OpCode};

/// Bounds of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worst {
    /// Payload bytes.
    pub bytes: usize,
    /// Steps, as [`wire::MAX_STEPS`] counts them.
    pub steps: usize,
    /// Blocks open at a time.
    pub blocks: usize,
}

/// The bounds of `ops`, in which every body ends.
pub fn worst(ops: &[Op]) -> Worst {
    let mut sum = Worst { steps: ops.len(), ..Worst::default() };
    let mut at = 0;
    // Bytes of data of the field before.
    let mut last = 0;
    // Where the field in hand begins.
    let mut begin = 0;
    let mut before: Option<Skipped<'_>> = None;
    while let Some(op) = ops.get(at) {
        at += 1;
        if let OpCode::SkipZero | OpCode::SkipNonZero = op.code {
            let condition = &ops[begin..at - 1];
            let end = at.saturating_add(usize::try_from(op.imm).unwrap_or(0)).min(ops.len());
            let inside = worst(&ops[at..end]);
            let mut bytes = inside.bytes;
            if let Some(before) = before.filter(|before| before.end == begin)
                && before.code != op.code
                && is_exclusive(before.condition, condition)
            {
                bytes = bytes.saturating_sub(before.bytes);
            }
            sum.bytes = sum.bytes.saturating_add(bytes);
            // Fewer than its ops where a body in it is run for no element.
            sum.steps = sum.steps.saturating_add(inside.steps).saturating_sub(end - at);
            sum.blocks = sum.blocks.max(inside.blocks);
            before = Some(Skipped { condition, code: op.code, end, bytes: inside.bytes });
            (at, begin, last) = (end, end, 0);
            continue;
        }
        if op.code == OpCode::Each {
            let body = Body::of_imm(op.imm);
            let end = (at + usize::from(body.ops)).min(ops.len());
            let inside = worst(&ops[at..end]);
            let times = data_bytes(last).checked_div(body.stride.into()).unwrap_or(1);
            sum.bytes = sum.bytes.saturating_add(times.saturating_mul(inside.bytes));
            let passes = times.saturating_mul(inside.steps + 1);
            sum.steps = sum.steps.saturating_add(passes).saturating_sub(end - at);
            sum.blocks = sum.blocks.max(inside.blocks + 1);
            at = end;
        }
        if op.code == OpCode::MapElem {
            sum.steps = sum.steps.saturating_add(wire::MAX_MAP_GROUPS);
        }
        if op.code.is_emit() || op.code.opens_field() {
            begin = at;
        }
        last = emitted_bytes(op);
        sum.bytes = sum.bytes.saturating_add(last);
    }
    sum
}

/// Ops that were passed over when a condition held.
struct Skipped<'a> {
    condition: &'a [Op],
    code: OpCode,
    end: usize,
    bytes: usize,
}

/// Whether two conditions come to the same, so that of what two opposite skips pass over only one is
/// run: nothing in them is read from memory that may change in between.
pub fn is_exclusive(one: &[Op], other: &[Op]) -> bool {
    one == other && !one.iter().any(|op| matches!(op.code, OpCode::Deref | OpCode::MapElem))
}

/// Bytes of data in a field of so many.
fn data_bytes(field: usize) -> usize {
    field.saturating_sub(wire::FIELD_HEADER)
}

impl Worst {
    /// The bounds of one program behind another.
    pub fn and(self, next: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(next.bytes),
            steps: self.steps.saturating_add(next.steps),
            blocks: self.blocks.max(next.blocks),
        }
    }

    /// Whether a program with these bounds runs to its end.
    pub fn fits(&self) -> bool {
        self.bytes <= wire::MAX_PAYLOAD
            && self.steps <= wire::MAX_STEPS
            && self.blocks <= MAX_BLOCKS
    }
}
