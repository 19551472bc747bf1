//! What crosses the boundary between the code that runs at a hit and the code that
//! reads: the record, the site table and the fetch-program encoding.
//!
//! Shared by the BPF program (`capture-uprobe`, through `bpf/wire.h`), the
//! in-process trampolines and every reader, live or from a recorded file. Both
//! sides are size-tested against each other. A hostile target can influence every
//! byte of a record: [`Record::parse`] validates lengths and callers validate ids.
#![forbid(unsafe_code)]

mod fetch;
pub mod file;
mod record;
mod site;

pub use fetch::{
    Body, DEREF_MAPPED, Elements, FIELD_HEADER, Field, FieldStatus, Fields, HMAP_BUCKETS,
    HMAP_FLAGS, HMAP_LOG, HMAP_OLD, HMAP_SAME_SIZE, IMAGE_PLACE, KIND_POINTER, MAX_BLOCKS,
    MAX_CONDITION_OPS, MAX_FIELD_DATA, MAX_MAP_GROUPS, MAX_PROGRAM_OPS, MAX_STEPS, MapKey, Op,
    OpCode, Order, Relation, SWISS_DIR, SWISS_DIR_LEN, SWISS_GROUPS, SWISS_MASK, TYPE_ELEM,
    TYPE_KIND, Word,
};
pub use record::{
    HEADER_SIZE, MAX_PAYLOAD, Record, RecordError, RecordFlags, RecordKind, clear_ordered,
    lost_so_far, mark_beside_loss, stamp,
};
pub use site::{GSource, SiteConfig, SiteKind};
