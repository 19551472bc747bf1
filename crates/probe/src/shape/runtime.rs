//! Where the runtime keeps what values lead to, as far as no version from Go 1.19 to 1.27 differs.

/// Place of the word that tells types apart in their descriptors: hash, flags, alignments and kind
/// (`internal/abi.Type`). Unlike an address it does not hang on where the image lies.
pub const HASH: i64 = 16;

/// Bytes of a map's header that are captured: `runtime.hmap` up to Go 1.23,
/// `internal/runtime/maps.Map` since then. Both begin with the number of entries, in 8 bytes.
pub const MAP_BYTES: u32 = 32;
/// `hmap.buckets`.
pub const HMAP_BUCKETS: u32 = 16;
/// `maps.Map.dirPtr`: one group, or a directory of tables.
pub const SWISS_DIRECTORY: u32 = 16;
/// `maps.Map.dirLen`: tables in the directory, 0 when there is only one group.
pub const SWISS_DIRECTORY_LEN: u32 = 24;
/// `maps.table.groups.data`.
pub const SWISS_TABLE_GROUPS: i64 = 16;
/// Control bytes of a group below this belong to entries (`internal/runtime/maps/group.go`).
pub const SWISS_EMPTY: u8 = 0x80;
/// Hash bytes of a bucket from this on belong to entries (`runtime/map.go`, minTopHash).
pub const BUCKET_FULL: u8 = 5;

/// Bytes of a `runtime.hchan` that are captured.
pub const CHAN_BYTES: u32 = 32;
/// `hchan.dataqsiz`, behind `qcount`.
pub const CHAN_CAP: u32 = 8;
/// `hchan.closed`, 4 bytes.
pub const CHAN_CLOSED: u32 = 28;
