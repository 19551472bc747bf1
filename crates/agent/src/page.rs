//! The status page: [`Status`] as HTML, made on the server. What a script adds is that it keeps up.
//!
//! Everything a program says of itself (names, paths, attributes) is text here, never markup; the policy that goes
//! with the page ([`CONTENT_SECURITY_POLICY`]) lets it load nothing but its own style and script. Widths
//! are attributes of SVG, since the policy has no inline styles.

mod chart;
mod process;
mod shown;
mod tree;

use crate::budget::{Change, percent};
use crate::status::{ExportStatus, Status};
use maud::{DOCTYPE, Markup, html};
use shown::{bytes, count, duration, since};

/// Goes with the page as its `Content-Security-Policy`.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// What the page asks for as `/page.css`.
pub const STYLE: &str = include_str!("page/page.css");
/// What the page asks for as `/page.js`.
pub const SCRIPT: &str = include_str!("page/page.js");

/// Decisions shown, the newest.
const DECISIONS: usize = 30;

/// The page.
pub fn html(status: &Status) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="dark light";
                title { "gospect agent" }
                link rel="stylesheet" href="page.css";
                script src="page.js" defer {}
            }
            body {
                header {
                    h1 { "gospect agent" }
                    p #agent { (agent(status)) }
                    button #theme type="button" { "dark / light" }
                }
                main #main { (main(status)) }
                footer {
                    "The same as JSON: " a href="status" { "/status" }
                    " · for Prometheus: " a href="metrics" { "/metrics" }
                    " · " span #fresh {}
                }
            }
        }
    };
    page.into_string()
}

fn agent(status: &Status) -> Markup {
    let up = status.now_unix_ns.saturating_sub(status.started_unix_ns);
    html! {
        span { "version " (status.version) } " · "
        span { "pid " (status.pid) } " · "
        span { "up " (duration(up)) } " · "
        @if let Some(percent) = status.own.cpu_percent {
            span { (format!("{percent:.1}")) "% of a CPU" } " · "
        }
        @if let Some(memory) = status.own.memory_bytes { span { (bytes(memory)) } }
    }
}

fn main(status: &Status) -> Markup {
    let mut processes: Vec<_> = status.processes.iter().collect();
    processes.sort_by(|a, b| process::order(a).cmp(&process::order(b)));
    html! {
        (troubles(status))
        section #processes {
            h2 { "Processes" }
            @if status.processes.is_empty() {
                p.empty { "No Go process is watched yet: services are matched as processes begin." }
            } @else {
                (process::table(&processes))
            }
        }
        @for process in &processes {
            (process::details(process, status.now_unix_ns))
        }
        section #decisions {
            h2 { "Decisions" }
            (decisions(status))
        }
        section #setup {
            h2 { "Set-up" }
            (setup(status))
        }
    }
}

/// What somebody should look at.
fn troubles(status: &Status) -> Markup {
    let mut all = Vec::new();
    if let Some(error) = &status.config.error {
        all.push(format!("the configuration was not reloaded: {error}"));
    }
    if let Some(error) = &status.preload.error {
        all.push(format!("preloaded programs are not served: {error}"));
    }
    for export in &status.exports {
        if let Some(error) = &export.error {
            all.push(format!("{} do not reach {}: {error}", export.what, export.endpoint));
        }
    }
    html! {
        @if !all.is_empty() {
            ul.troubles { @for trouble in &all { li { (trouble) } } }
        }
    }
}

fn decisions(status: &Status) -> Markup {
    let shown = status.decisions.iter().rev().take(DECISIONS);
    html! {
        @if status.decisions.is_empty() {
            p.empty { "None: what is watched stays within its budget." }
        } @else {
            p { (count(status.decisions_made)) " since the start, the newest first." }
            table {
                thead { tr { th { "when" } th { "service" } th { "process" } th { "what" } } }
                tbody {
                    @for decision in shown {
                        tr {
                            td { (since(decision.unix_ns, status.now_unix_ns)) }
                            td { (decision.service) }
                            td.number { (decision.pid) }
                            td { (what(&decision.change)) }
                        }
                    }
                }
            }
        }
    }
}

fn what(change: &Change) -> String {
    match change {
        Change::Drop { unit, percent: own, total, pause_s } => format!(
            "{unit} is given up for {pause_s} s: it cost {} of a CPU, all together {}",
            percent(*own),
            percent(*total)
        ),
        Change::Restore { unit } => format!("{unit} is watched again"),
    }
}

fn setup(status: &Status) -> Markup {
    let (config, discovery, preload) = (&status.config, &status.discovery, &status.preload);
    html! {
        dl {
            dt { "configuration" }
            dd {
                (config.path.as_deref().unwrap_or("none: the defaults"))
                ", read " (since(config.loaded_unix_ns, status.now_unix_ns))
            }
            dt { "services" }
            dd { @if config.services.is_empty() { "every Go program" } @else { (config.services.join(", ")) } }
            dt { "discovery" }
            dd {
                (discovery.way.replace('_', " ")) ", " (count(discovery.events)) " events"
                @if let Some(reason) = &discovery.reason { " (" (reason) ")" }
            }
            dt { "preload" }
            dd {
                @if let Some(socket) = &preload.socket {
                    (socket) ": " (count(preload.asked)) " asked, " (count(preload.served)) " served, "
                    (count(preload.refused)) " refused"
                } @else { "no socket" }
            }
        }
        (exports(&status.exports))
    }
}

fn exports(exports: &[ExportStatus]) -> Markup {
    html! {
        @if !exports.is_empty() {
            table #exports {
                thead {
                    tr {
                        th { "export" } th { "to" }
                        th.number { "delivered" } th.number { "unsampled" }
                        th.number { "dropped" } th.number { "failed" }
                    }
                }
                tbody {
                    @for export in exports {
                        tr {
                            td { (export.what) }
                            td { (export.endpoint) }
                            td.number { (count(export.delivered)) }
                            td.number { (count(export.unsampled)) }
                            td.number.bad[export.dropped > 0] { (count(export.dropped)) }
                            td.number.bad[export.failed > 0] { (count(export.failed)) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
