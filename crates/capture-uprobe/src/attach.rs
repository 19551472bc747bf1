//! Putting the program on the sites: whole sets by multi links, or one perf event each.

use crate::error::{from_libbpf, os_error};
use capture::Error;
use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts, UprobeOpts};
use probe::{Plan, Site};
use std::collections::BTreeSet;
use std::path::Path;
use wire::{GSource, SiteKind};

/// Sites that may turn out unprobeable before the cause must be another.
const MAX_BAD_SITES: usize = 32;

/// Perf links at the most: each takes about 0.1 s to remove, whatever one does.
pub(crate) const MAX_PERF_SITES: usize = 1_000;

/// A site the kernel refused, or one of the same function as such a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedSite {
    /// Index into [`Plan::sites`].
    pub site: u32,
    /// Index into [`Plan::functions`]; none of its sites is watched.
    pub function: u32,
    /// What the kernel said.
    pub reason: String,
}

/// What to attach to.
pub(crate) struct Target<'a> {
    /// For sites without a fetch program.
    pub(crate) plain: &'a ProgramMut<'a>,
    /// For sites with one.
    pub(crate) fetching: &'a ProgramMut<'a>,
    pub(crate) path: &'a Path,
    /// By the name that people know it by.
    pub(crate) name: &'a str,
    /// Filter by process, -1 for none.
    pub(crate) pid: i32,
    pub(crate) multi: bool,
    /// Read the return address at entries.
    pub(crate) callers: bool,
}

/// Sites a cookie can tell apart.
pub(crate) const MAX_SITES: usize = 1 << 24;

/// What a hit has to know of its site; `COOKIE_*` in `bpf/wire.h` mirror it.
fn cookie(id: u32, site: &Site, callers: bool) -> u64 {
    const CALLER: u32 = 1 << 24;
    const G_TLS: u32 = 1 << 25;
    const IF_ZERO: u32 = 1 << 26;
    const IF_NOT_ZERO: u32 = 1 << 27;
    let mut low = id;
    if callers && site.kind == SiteKind::Entry {
        low |= CALLER;
    }
    if site.g_source == GSource::Tls {
        low |= G_TLS;
    }
    if let Some(guard) = site.guard {
        low |= if guard.zero { IF_ZERO } else { IF_NOT_ZERO };
    }
    u64::from(site.sp_delta.cast_unsigned()) << 32 | u64::from(low)
}

/// Links by when they have to go.
///
/// Entries come last for a second reason: in a function of one instruction entry and exit lie
/// at the same address, and the kernel runs what was put there last first (`consumer_add` in
/// kernel/events/uprobes.c prepends, in every version).
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// Entries of traced functions: last on, first off, so that no call lacks its end.
    pub(crate) entries: Vec<Link>,
    /// Returns, tail jumps, sites within functions, and witnesses.
    pub(crate) others: Vec<Link>,
}

/// Attaches every site of `plan` that the kernel takes. Functions with a refused site are left
/// out whole.
pub(crate) fn attach_plan(
    target: &Target<'_>,
    plan: &Plan,
) -> Result<(Links, Vec<SkippedSite>), Error> {
    let mut skipped: Vec<SkippedSite> = Vec::new();
    loop {
        let out: BTreeSet<u32> = skipped.iter().map(|s| s.function).collect();
        let mut refused = Vec::new();
        let mut links = Links::default();
        let (entries, others) = sites_by_order(plan, &out);
        attach_set(target, plan, &others, &mut links.others, &mut refused)?;
        attach_set(target, plan, &entries, &mut links.entries, &mut refused)?;
        if refused.is_empty() {
            return Ok((links, skipped));
        }
        drop(links);
        skipped.extend(whole_functions(plan, &refused));
    }
}

fn sites_by_order(plan: &Plan, out: &BTreeSet<u32>) -> (Vec<u32>, Vec<u32>) {
    let entry_of_traced = |site: &Site| {
        let function = plan.functions.get(site.function as usize);
        site.kind == SiteKind::Entry && function.is_none_or(|f| f.witness.is_none())
    };
    let ids = 0..u32::try_from(plan.sites.len()).unwrap_or(u32::MAX);
    ids.zip(&plan.sites)
        .filter(|(_, site)| !out.contains(&site.function))
        .map(|(id, site)| (id, entry_of_traced(site)))
        .fold((Vec::new(), Vec::new()), |(mut entries, mut others), (id, entry)| {
            if entry {
                entries.push(id)
            } else {
                others.push(id)
            }
            (entries, others)
        })
}

/// The refused sites and all others of their functions.
fn whole_functions(plan: &Plan, refused: &[(u32, String)]) -> Vec<SkippedSite> {
    let mut skipped = Vec::new();
    for (id, site) in plan.sites.iter().enumerate() {
        let of_function = refused.iter().find(|(bad, _)| {
            plan.sites.get(*bad as usize).is_some_and(|b| b.function == site.function)
        });
        let own = refused.iter().find(|(bad, _)| *bad as usize == id);
        if let Some((_, reason)) = own.or(of_function) {
            let site_id = u32::try_from(id).unwrap_or(u32::MAX);
            skipped.push(SkippedSite {
                site: site_id,
                function: site.function,
                reason: reason.clone(),
            });
        }
    }
    skipped
}

/// Attaches `ids`, in halves where the whole is refused, until single sites are found to blame.
fn attach_set(
    target: &Target<'_>,
    plan: &Plan,
    ids: &[u32],
    links: &mut Vec<Link>,
    refused: &mut Vec<(u32, String)>,
) -> Result<(), Error> {
    let (plain, fetching): (Vec<u32>, Vec<u32>) = ids.iter().partition(|&&id| !fetches(plan, id));
    let size = if target.multi { ids.len().max(1) } else { 1 };
    let mut waiting: Vec<&[u32]> = plain.chunks(size).chain(fetching.chunks(size)).collect();
    while let Some(part) = waiting.pop() {
        let error = match attach(target, plan, part) {
            Ok(link) => {
                links.push(link);
                continue;
            }
            Err(error) => error,
        };
        if !may_be_a_site(&error) || refused.len() >= MAX_BAD_SITES {
            return Err(typed(target, &error));
        }
        if let [id] = part {
            refused.push((*id, format!("the kernel refuses a probe there: {error}")));
        } else {
            let (left, right) = part.split_at(part.len() / 2);
            waiting.extend([right, left]);
        }
    }
    Ok(())
}

fn fetches(plan: &Plan, id: u32) -> bool {
    plan.sites.get(id as usize).is_some_and(needs_fetching)
}

/// Whether the program for sites that read nothing will not do.
pub(crate) fn needs_fetching(site: &Site) -> bool {
    site.program.len > 0 || site.condition > 0 || site.guard.is_some()
}

/// Attaches `ids`, which all have a fetch program or all have none.
fn attach(target: &Target<'_>, plan: &Plan, ids: &[u32]) -> libbpf_rs::Result<Link> {
    let sites = || ids.iter().filter_map(|&id| Some((id, plan.sites.get(id as usize)?)));
    // What the site's instruction decides is known behind it.
    let place = |site: &Site| site.guard.map_or(site.file_offset, |guard| guard.after_offset);
    let offset = |site: &Site| usize::try_from(place(site).0).unwrap_or(usize::MAX);
    let fetching = ids.first().is_some_and(|&id| fetches(plan, id));
    let program = if fetching { target.fetching } else { target.plain };
    if target.multi {
        let opts = UprobeMultiOpts {
            offsets: sites().map(|(_, site)| offset(site)).collect(),
            cookies: sites().map(|(id, site)| cookie(id, site, target.callers)).collect(),
            ..UprobeMultiOpts::default()
        };
        return program.attach_uprobe_multi_with_opts(target.pid, target.path, "", opts);
    }
    let (id, site) =
        sites().next().ok_or_else(|| libbpf_rs::Error::from_raw_os_error(libc::EINVAL))?;
    let cookie = cookie(id, site, target.callers);
    let opts = UprobeOpts { cookie, ..UprobeOpts::default() };
    program.attach_uprobe_with_opts(target.pid, target.path, offset(site), opts)
}

/// Whether `error` may come from one site: an unprobeable instruction gives ENOTSUPP (524),
/// a place that is not code EINVAL or EIO.
fn may_be_a_site(error: &libbpf_rs::Error) -> bool {
    const OTHERS: [i32; 7] = [
        libc::EPERM,
        libc::EACCES,
        libc::ENOENT,
        libc::ESRCH,
        libc::ENOMEM,
        libc::EMFILE,
        libc::EINTR,
    ];
    os_error(error).is_some_and(|code| !OTHERS.contains(&code))
}

fn typed(target: &Target<'_>, error: &libbpf_rs::Error) -> Error {
    match u32::try_from(target.pid) {
        Ok(pid) if os_error(error) == Some(libc::ESRCH) => Error::ProcessGone(pid),
        _ => from_libbpf(&format!("install uprobes in {}", target.name), error),
    }
}
