//! Goroutines that are there already, read from memory and told as records, so that a recorded
//! file has them too.

use crate::clock;
use crate::target::Target;
use anyhow::Context as _;
use binary::layout::RuntimeLayouts;
use inspect::{Options, Snapshot};
use process::Process;
use wire::{FIELD_HEADER, Record, RecordFlags, RecordKind};

/// Goroutines told of at the most: as many as are followed.
const MAX_FOUND: usize = 1 << 19;

/// The field of a descriptor that the layouts must have without debug information.
const NEEDED: (&str, &str) = ("runtime.g", "startpc");

/// Reads the goroutines of a process: a record for each, between a mark that comes before
/// anything is read and one behind. The first mark says how many records were `lost` by then: no
/// other record may have told of it.
pub fn found_records(
    target: &Target,
    pid: u32,
    lost: u64,
) -> anyhow::Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let process = Process::open(pid)?;
    let memory = process.memory()?;
    let executable = &target.executable;
    let bias = process.bias(executable.image().base())?;
    let known = RuntimeLayouts::new(executable.go_version(), None).field(NEEDED.0, NEEDED.1);
    let debug = if known.is_err() { target.debug_info()? } else { None };
    let layouts = RuntimeLayouts::new(executable.go_version(), debug.as_ref());
    let snapshot = Snapshot::open(executable, &layouts, &memory, bias)
        .context("failed to find the goroutines that are there already")?;
    let ts_ns = clock::monotonic_ns();
    let mark = record(pid, ts_ns, 0, [0, 0, lost, 0, 0]);
    let mut records = Vec::new();
    snapshot.walk(Options { stacks: false }, &mut |goroutine| {
        if goroutine.goid != 0 && records.len() < MAX_FOUND {
            let raw = goroutine.raw;
            let parent = goroutine.parent_goid.unwrap_or(0);
            let words =
                [raw.status.into(), raw.wait_reason.into(), raw.gopc.0, raw.startpc.0, parent];
            records.push(record(pid, ts_ns, goroutine.goid, words));
        }
    })?;
    records.push(record(pid, ts_ns, 0, [0; 5]));
    Ok((mark, records))
}

fn record(pid: u32, ts_ns: u64, goid: u64, words: [u64; 5]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(5 * (FIELD_HEADER + 8));
    for word in words {
        // A field that was read: its status, 0, its length twice.
        payload.extend_from_slice(&[0, 0, 8, 0, 8, 0, 0, 0]);
        payload.extend_from_slice(&word.to_le_bytes());
    }
    let record = Record {
        ts_ns,
        goid,
        stack: 0,
        depth: 0,
        caller: 0,
        site: 0,
        pid,
        tid: 0,
        lost: 0,
        cpu: 0,
        flags: RecordFlags(0),
        kind: RecordKind::Goroutine,
        payload: &payload,
    };
    let mut bytes = Vec::new();
    record.write(&mut bytes);
    bytes
}
