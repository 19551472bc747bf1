//! What the code at a hit needs to know about the site.

use serde::{Deserialize, Serialize};

/// Where in its function a site lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum SiteKind {
    /// After the stack-bound check, before the body.
    Entry = 0,
    /// At a return instruction.
    Return = 1,
    /// At a jump that leaves the function for another one.
    TailJump = 2,
    /// In the middle of the function.
    At = 3,
}

/// Where the current g is found at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum GSource {
    /// R14: ABIInternal code.
    R14 = 0,
    /// Thread-local storage at the plan's TLS offset: assembly and ABI0 code.
    Tls = 1,
}

/// One entry of the site table, 24 bytes, indexed by the site's id (the uprobe's cookie).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteConfig {
    /// Where the site lies in its function.
    pub kind: SiteKind,
    /// Where g is.
    pub g_source: GSource,
    /// First op of the fetch program in the shared op table.
    pub program_start: u32,
    /// Number of ops; 0 when nothing is read.
    pub program_len: u16,
    /// Number of ops right before these that decide whether the hit is wanted. They are passed over on
    /// system stacks and where the goroutine is not known: such hits are all recorded.
    pub condition_len: u16,
    /// SP at the function's first instruction minus SP at the site, bytes.
    pub sp_delta: i32,
    /// Where the hit is, in the image: with where it is in the process it tells where that lies.
    pub address: u64,
}

impl SiteConfig {
    /// Size on the wire, bytes.
    pub const SIZE: usize = 24;

    /// `kind u8, g_source u8, program_len u16, program_start u32, sp_delta i32, condition_len u16, zero
    /// u16, address u64`.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = self.kind as u8;
        bytes[1] = self.g_source as u8;
        bytes[2..4].copy_from_slice(&self.program_len.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.program_start.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sp_delta.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.condition_len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.address.to_le_bytes());
        bytes
    }
}
