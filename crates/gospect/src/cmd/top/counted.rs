//! Goroutines of a process, counted by what they have in common.

use crate::target::Target;
use anyhow::Context as _;
use binary::layout::RuntimeLayouts;
use inspect::{Goroutine, Options, Snapshot};
use process::Process;
use std::collections::HashMap;
use top::{Group, GroupBy};

/// Groups kept; goroutines of further ones are counted together.
const MAX_GROUPS: usize = 10_000;

/// The groups, largest first.
pub fn groups(pid: u32, by: GroupBy) -> anyhow::Result<Vec<Group>> {
    let process = Process::open(pid)?;
    let target = Target::of_process(&process, None)?;
    let executable = &target.executable;
    let version = executable.go_version();
    let known = RuntimeLayouts::new(version, None).field("runtime.g", "startpc").is_ok();
    let debug = if known { None } else { target.debug_info()? };
    let layouts = RuntimeLayouts::new(version, debug.as_ref());
    let memory = process.memory()?;
    let bias = process.bias(executable.image().base())?;
    let snapshot = Snapshot::open(executable, &layouts, &memory, bias)
        .with_context(|| target.shown.display().to_string())?;
    let mut counts: HashMap<String, u64> = HashMap::new();
    snapshot.walk(Options { stacks: false }, &mut |goroutine| {
        let mut key = key_of(&goroutine, by);
        if counts.len() >= MAX_GROUPS && !counts.contains_key(&key) {
            "others".clone_into(&mut key);
        }
        *counts.entry(key).or_default() += 1;
    })?;
    let mut groups: Vec<Group> =
        counts.into_iter().map(|(key, count)| Group { key, count }).collect();
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
    Ok(groups)
}

fn key_of(of: &Goroutine, by: GroupBy) -> String {
    let state = of.state.name();
    match by {
        GroupBy::State => state.to_owned(),
        GroupBy::Reason => of.reason.as_deref().unwrap_or(state).to_owned(),
        GroupBy::Site => match (&of.created_by, &of.start) {
            (Some(site), _) => format!("{} {}:{}", site.func, short(&site.file), site.line),
            (None, Some(start)) => start.to_string(),
            (None, None) => "unknown".to_owned(),
        },
    }
}

/// The file and its directory: what is before them is much the same for all.
fn short(path: &str) -> &str {
    let start = path.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    path.get(start..).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_keep_their_last_directory() {
        assert_eq!(short("/srv/shop/main.go"), "shop/main.go");
        assert_eq!(short("main.go"), "main.go");
        assert_eq!(short("/main.go"), "/main.go");
    }
}
