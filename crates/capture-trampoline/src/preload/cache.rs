//! Code that was made once, for all processes in which image and areas lie equally far apart.

use crate::emit::{Emitted, Patch, Refused};
use crate::install::{CODE_NAME, MFD_EXEC, PAGE, write_code};
use crate::reader::SiteInfo;
use crate::{Error, prepare};
use address::Svma;
use handover::PATCH;
use probe::Plan;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Code, patches and what readers need, on memfds that nobody can change any more.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) code: File,
    /// Bytes of code, whole pages.
    pub(super) code_len: u64,
    pub(super) patches: File,
    pub(super) patch_count: u32,
    pub(super) has_hook: bool,
    /// Pages of text that are written.
    pub(super) pages: u64,
    pub(super) functions: usize,
    pub(super) refused: Vec<(u32, Refused)>,
    pub(super) sites: Arc<[SiteInfo]>,
    pub(super) is_movable: bool,
}

impl Image {
    /// Puts it on memfds; `text` is where the code's segment is stated to begin.
    pub(super) fn of(mut emitted: Emitted, plan: &Plan, text: Svma) -> Result<Self, Error> {
        let failed = |e: std::io::Error| Error::io("make memory for code", e);
        let code = std::mem::take(&mut emitted.code);
        let code_len = (code.len().max(1) as u64).next_multiple_of(PAGE);
        let file = memfd(CODE_NAME, true)?;
        ftruncate(&file, code_len).map_err(|e| failed(e.into()))?;
        seal(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        write_code(&file, &code, code_len)?;
        let all = || emitted.hook.iter().chain(&emitted.patches);
        let entries: Option<Vec<[u8; PATCH]>> = all().map(|patch| entry(patch, text)).collect();
        let entries = entries.ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))?;
        let mut patches = memfd("gospect-patches", false)?;
        patches.write_all(entries.as_flattened()).map_err(failed)?;
        let constant = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
        seal(&patches, constant)?;
        let mut pages: Vec<u64> = all().map(|patch| patch.address.0 / PAGE).collect();
        pages.sort_unstable();
        pages.dedup();
        let mut functions: Vec<u32> = emitted.patches.iter().map(|p| p.function).collect();
        functions.sort_unstable();
        functions.dedup();
        Ok(Self {
            code: file,
            code_len,
            patches,
            patch_count: u32::try_from(entries.len()).unwrap_or(u32::MAX),
            has_hook: emitted.hook.is_some(),
            pages: pages.len() as u64,
            functions: functions.len(),
            sites: prepare::site_infos(plan, &emitted).into(),
            is_movable: emitted.is_movable,
            refused: emitted.refused,
        })
    }
}

fn entry(patch: &Patch, text: Svma) -> Option<[u8; PATCH]> {
    let offset = u32::try_from(patch.address.since(text)?).ok()?;
    let Patch { original, replacement, .. } = *patch;
    Some(handover::Patch { offset, original, replacement }.write())
}

/// An empty memfd; code is to be run from it, where the kernel asks to be told.
pub(super) fn memfd(name: &str, is_code: bool) -> Result<File, Error> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let run = MemfdFlags::from_bits_retain(MFD_EXEC as u32);
    let made = match is_code {
        // An older kernel (before 6.3) knows no such flag, and allows it.
        true => memfd_create(name, flags | run).or_else(|_| memfd_create(name, flags)),
        false => memfd_create(name, flags),
    };
    made.map(File::from).map_err(|e| Error::io("make memory to share", e))
}

pub(super) fn seal(file: impl AsFd, seals: SealFlags) -> Result<(), Error> {
    fcntl_add_seals(file, seals).map_err(|e| Error::io("seal memory to share", e))
}
