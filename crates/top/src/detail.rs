//! What is known of the picked process.

use crate::amount;
use crate::palette::Palette;
use crate::row::Row;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};

/// Lines it takes.
pub(crate) const HEIGHT: u16 = 11;

/// Columns of the names of figures.
const LABEL: usize = 12;

pub(crate) fn draw(row: &Row, frame: &mut Frame<'_>, area: Rect, palette: Palette) {
    let now = &row.now;
    let version = now.go_version.as_deref().unwrap_or("no Go");
    let head = format!("── {} {} ── {version} ── {} ", now.pid, now.service, now.exe);
    let rest = usize::from(area.width).saturating_sub(Span::raw(head.as_str()).width());
    let mut lines = vec![Line::styled(format!("{head}{}", "─".repeat(rest)), palette.title())];
    let trend = usize::from(area.width / 4).clamp(10, 60);
    let mut add = |label: &str, parts: Vec<Span<'static>>| {
        let mut spans = vec![Span::styled(format!("{label:>LABEL$}  "), palette.label())];
        spans.extend(parts);
        lines.push(Line::from(spans));
    };
    let bars = |text: String| Span::styled(format!("{text}  "), palette.bars());
    add("cpu", vec![bars(row.cpus.line(trend)), Span::raw(cpu(row))]);
    if let Some(why) = &now.restricted {
        add("not read", vec![Span::styled(why.clone(), palette.warning())]);
    }
    if now.go.is_some() {
        add("heap", vec![bars(row.heap.line(trend)), Span::raw(heap(row))]);
        add("memory", vec![Span::raw(memory(row))]);
        add("collector", vec![Span::raw(collector(row))]);
        add("pauses", vec![Span::raw(pauses(row))]);
        add("goroutines", vec![Span::raw(goroutines(row))]);
        add("waiting for", vec![Span::raw(reasons(row))]);
        add("scheduler", vec![Span::raw(scheduler(row))]);
        add("latency", vec![Span::raw(latency(row))]);
    }
    frame.render_widget(Text::from(lines), area);
}

fn cpu(row: &Row) -> String {
    let cpu = row.cpu.map_or_else(|| "-".to_owned(), amount::percent);
    let fds = row.now.open_fds.map_or_else(String::new, |fds| format!(", {fds} descriptors"));
    format!("{cpu}%, {} threads{fds}", row.now.threads)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn heap(row: &Row) -> String {
    let live = or_dash(row.go(|go| go.heap_live).map(amount::bytes));
    match row.go(|go| go.heap_goal) {
        Some(goal) => format!("{live} in use, goal {}", amount::bytes(goal)),
        None => format!("{live} in use, no goal"),
    }
}

fn memory(row: &Row) -> String {
    let sys = or_dash(row.go(|go| go.sys).map(amount::bytes));
    let limit = row
        .go(|go| go.memory_limit)
        .map_or_else(|| "no limit".to_owned(), |limit| format!("limit {}", amount::bytes(limit)));
    let rate = or_dash(row.alloc_rate.map(|rate| amount::bytes(rate as u64)));
    format!(
        "{sys} from the system, {limit}, {} resident, {rate}/s allocated",
        amount::bytes(row.now.resident)
    )
}

fn collector(row: &Row) -> String {
    let phase = row.go(|go| go.phase).unwrap_or("-");
    let cycles = or_dash(row.go(|go| go.cycles).map(amount::count));
    let rate = or_dash(row.gc_rate.map(amount::rate));
    let share = or_dash(row.go(|go| go.gc_cpu).map(|share| amount::percent(share * 100.0)));
    let gogc =
        row.go(|go| go.gogc_percent).map_or_else(|| "off".to_owned(), |gogc| gogc.to_string());
    format!("{phase}, {cycles} cycles, {rate}/s, {share}% of the CPU time so far, GOGC {gogc}")
}

fn pauses(row: &Row) -> String {
    let Some(go) = &row.now.go else { return "-".to_owned() };
    let Some(last) = go.pauses.first() else { return "none yet".to_owned() };
    let mut sorted = go.pauses.clone();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    let longest = sorted.last().copied().unwrap_or_default();
    format!(
        "last {}, median {}, longest {} of the last {}",
        amount::time(*last),
        amount::time(median),
        amount::time(longest),
        sorted.len()
    )
}

fn goroutines(row: &Row) -> String {
    let all = or_dash(row.go(|go| go.goroutines).map(amount::count));
    let Some(states) = row.now.go.as_ref().and_then(|go| go.states.as_ref()) else { return all };
    format!(
        "{all}: {} running, {} runnable, {} in system calls, {} waiting",
        states.running, states.runnable, states.syscall, states.waiting
    )
}

fn reasons(row: &Row) -> String {
    let Some(states) = row.now.go.as_ref().and_then(|go| go.states.as_ref()) else {
        return "not counted".to_owned();
    };
    let reasons: Vec<String> =
        states.reasons.iter().take(6).map(|(reason, count)| format!("{reason} {count}")).collect();
    if reasons.is_empty() { "nothing".to_owned() } else { reasons.join(", ") }
}

fn latency(row: &Row) -> String {
    match row.go(|go| go.latency) {
        Some((median, late)) => format!(
            "half of all goroutines ran within {}, 99% within {}",
            amount::time(median),
            amount::time(late)
        ),
        None => "-".to_owned(),
    }
}

fn scheduler(row: &Row) -> String {
    let queue = or_dash(row.go(|go| go.run_queue).map(amount::count));
    let running = or_dash(row.go(|go| go.processors_running).map(amount::count));
    let processors = or_dash(row.go(|go| go.processors).map(amount::count));
    let mut text = format!("{queue} in run queues, {running} of {processors} processors run");
    if let Some(idle) = row.go(|go| go.threads_idle) {
        text.push_str(&format!(", {idle} threads parked"));
    }
    text
}
