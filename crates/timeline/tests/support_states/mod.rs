//! A plan of state changes, and records for it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use address::{FileOffset, Svma};
use probe::states::StateNames;
use probe::{Guard, Plan, PlannedFunction, Program, Site};
use std::sync::Arc;
use wire::{GSource, Record, RecordFlags, RecordKind, SiteKind};

const CHANGE: u32 = 0;
/// Where a record's flags are.
pub const FLAGS: usize = 58;
pub const CREATION: u32 = 1;
pub const PID: u32 = 100;

/// Names of reasons by number.
pub fn reasons() -> Vec<&'static str> {
    let mut names = vec!["other"; 40];
    names[0] = "";
    names[18] = "select";
    names[19] = "chan receive";
    names[33] = "stopping the world";
    names[38] = "coroutine";
    names
}

/// Whose wait reasons tell who only seems to wait.
pub fn plan() -> Arc<Plan> {
    plan_with(None)
}

/// Where goroutines that work on the system stack seem to be, as in Go 1.19.
pub const SYSTEM_STACK: u16 = 0x260;

pub fn plan_with(system_stack: Option<u16>) -> Arc<Plan> {
    let function = |name: &str| PlannedFunction {
        name: name.to_owned(),
        file: String::new(),
        line: 0,
        entry: Svma(0x1000),
        size: 16,
        traced: false,
        witness: None,
        args: Vec::new(),
        results: Vec::new(),
    };
    let site = |function, kind, guard| Site {
        function,
        kind,
        address: Svma(0x1000),
        file_offset: FileOffset(0),
        sp_delta: 0,
        g_source: GSource::R14,
        program: Program::default(),
        guard,
        condition: 0,
    };
    let guard = Guard { after: Svma(0x1008), after_offset: FileOffset(8), zero: true };
    Arc::new(Plan {
        functions: vec![function("runtime.casgstatus"), function("runtime.newproc1")],
        sites: vec![site(0, SiteKind::At, Some(guard)), site(1, SiteKind::Return, None)],
        states: Some(StateNames {
            reasons: reasons().into_iter().map(str::to_owned).collect(),
            system_stack,
        }),
        ..Plan::default()
    })
}

/// A record with these words as fields.
pub fn record(
    kind: RecordKind,
    site: u32,
    ts_ns: u64,
    goid: u64,
    words: &[u64],
    lost: u32,
) -> Vec<u8> {
    let mut payload = Vec::new();
    for word in words {
        payload.extend_from_slice(&[0, 0, 8, 0, 8, 0, 0, 0]);
        payload.extend_from_slice(&word.to_le_bytes());
    }
    let record = Record {
        ts_ns,
        goid,
        stack: 0,
        depth: 0,
        caller: 0,
        site,
        pid: PID,
        tid: 1,
        lost,
        cpu: 0,
        flags: RecordFlags(0),
        kind,
        payload: &payload,
    };
    let mut bytes = Vec::new();
    record.write(&mut bytes);
    bytes
}

pub fn change(ts_ns: u64, goid: u64, old: u32, new: u32, reason: u8, by: u64) -> Vec<u8> {
    let words = [goid, reason.into(), old.into(), new.into()];
    record(RecordKind::Hit, CHANGE, ts_ns, by, &words, 0)
}

/// The same from a capture that proves its order.
pub fn ordered(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[FLAGS..][..2].copy_from_slice(&RecordFlags::ORDERED.to_le_bytes());
    bytes
}

/// The same made on another thread.
pub fn on_thread(mut bytes: Vec<u8>, tid: u32) -> Vec<u8> {
    bytes[48..52].copy_from_slice(&tid.to_le_bytes());
    bytes
}

/// The same after so many records of its CPU were lost.
pub fn with_lost(mut bytes: Vec<u8>, lost: u32) -> Vec<u8> {
    bytes[52..56].copy_from_slice(&lost.to_le_bytes());
    bytes
}

/// A change of a goroutine that seems to be at `pc`, made on a system stack.
pub fn change_at(pc: u64, ts_ns: u64, goid: u64, [old, new]: [u32; 2], reason: u8) -> Vec<u8> {
    let words = [goid, reason.into(), old.into(), new.into(), pc];
    let mut bytes = record(RecordKind::Hit, CHANGE, ts_ns, goid, &words, 0);
    bytes[FLAGS..][..2].copy_from_slice(&RecordFlags::SYSTEM_STACK.to_le_bytes());
    bytes
}

pub fn creation(ts_ns: u64, goid: u64, state: u64, parent: u64) -> Vec<u8> {
    let words = [goid, 0x100, 0x200, state, 0, parent];
    record(RecordKind::Hit, CREATION, ts_ns, parent, &words, 0)
}

pub fn found(ts_ns: u64, goid: u64, state: u64) -> Vec<u8> {
    record(RecordKind::Goroutine, 0, ts_ns, goid, &[state, 19, 0x300, 0x400, 1], 0)
}
