use super::*;
use crate::status::{
    ConfigStatus, Decision, GroupStatus, PreloadStatus, ProcessStatus, RequestStatus, SensorState,
    SensorStatus, SeriesStatus, SpanStatus, TreeStatus,
};
use crate::window::Rates;
use std::collections::BTreeSet;

const HOSTILE: &str = r#"<script>alert("1")</script>'&amp;"#;

fn span(id: &str, parent: Option<&str>) -> SpanStatus {
    SpanStatus {
        name: HOSTILE.to_owned(),
        kind: "client",
        span_id: id.to_owned(),
        parent_span_id: parent.map(ToOwned::to_owned),
        duration_ns: 5,
        is_error: true,
        attributes: [(HOSTILE.to_owned(), HOSTILE.to_owned())].into(),
        time: Some([(HOSTILE.to_owned(), 5)].into()),
        ..SpanStatus::default()
    }
}

/// One in which every text is hostile.
fn process(pid: u32) -> ProcessStatus {
    let text = || HOSTILE.to_owned();
    let rates =
        Rates { count: 1234, errors: 1, per_second: 20.5, p50_ns: 1_500_000, ..Rates::default() };
    let tree = TreeStatus {
        trace_id: format!("{pid:032x}"),
        duration_ns: 10,
        spans: vec![span("1", None), span("2", Some("1"))],
        more: 7,
        ..TreeStatus::default()
    };
    ProcessStatus {
        pid,
        exe: text(),
        command: text(),
        service: text(),
        go_version: Some(text()),
        cgroup: text(),
        container: Some(text()),
        restricted: Some(text()),
        sensors: vec![SensorStatus {
            name: text(),
            kind: "function",
            state: SensorState::Dropped,
            reason: Some(text()),
            ..SensorStatus::default()
        }],
        requests: vec![RequestStatus { name: text(), kind: "server", rates }],
        slowest: vec![tree],
        goroutines: Some(vec![GroupStatus { state: text(), count: 3 }]),
        runtime: vec![SeriesStatus {
            name: text(),
            unit: text(),
            points: vec![(1, 2.0), (2, 3.0)],
        }],
        ..ProcessStatus::default()
    }
}

fn status() -> Status {
    let text = || HOSTILE.to_owned();
    Status {
        version: text(),
        config: ConfigStatus {
            path: Some(text()),
            error: Some(text()),
            services: vec![text()],
            ..ConfigStatus::default()
        },
        preload: PreloadStatus { socket: Some(text()), error: Some(text()), ..Default::default() },
        exports: vec![ExportStatus {
            what: text(),
            endpoint: text(),
            error: Some(text()),
            dropped: 12_345,
            ..ExportStatus::default()
        }],
        processes: vec![process(7), process(8)],
        decisions: vec![Decision {
            unix_ns: 0,
            pid: 7,
            service: text(),
            change: Change::Drop { unit: text(), percent: 12.5, total: 20.0, pause_s: 30 },
        }],
        decisions_made: 1,
        ..Status::default()
    }
}

/// The values of an attribute, wherever it stands.
fn values<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
    let begin = format!(" {attribute}=\"");
    page.split(&begin).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn what_a_program_says_of_itself_is_text() {
    let page = html(&status());
    let scripts: Vec<_> = page.match_indices("<script").collect();
    assert_eq!(scripts.len(), 1, "only the page's own");
    assert!(page.contains("<script src=\"page.js\" defer></script>"));
    assert!(!page.contains("alert(\"1\")"), "quotes end no attribute");
    // All but executable and control group are shown, of both processes.
    assert!(page.matches("&lt;script&gt;").count() > 40);
}

#[test]
fn what_the_policy_forbids_is_not_there() {
    let page = html(&status());
    for forbidden in [" style=", "<style", " onclick=", "http://", "https://", "javascript:"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
}

#[test]
fn ids_are_unique_and_links_lead_somewhere() {
    let page = html(&status());
    let all = values(&page, "id");
    let ids: BTreeSet<_> = all.iter().copied().collect();
    assert_eq!(ids.len(), all.len(), "{all:?}");
    let within = values(&page, "href").into_iter().filter_map(|to| to.strip_prefix('#'));
    let within: Vec<_> = within.collect();
    assert_eq!(within, ["p7", "p8"]);
    assert!(within.iter().all(|to| ids.contains(to)));
    // Those that the script asks for.
    for id in ["agent", "main", "theme", "fresh"] {
        assert!(ids.contains(id) && SCRIPT.contains(&format!("\"{id}\"")), "{id}");
    }
}

#[test]
fn what_somebody_should_look_at_stands_first() {
    let page = html(&status());
    let text = page.replace(&maud::html! { (HOSTILE) }.into_string(), "X");
    let troubles = text.split_once("<ul class=\"troubles\">").expect("there are troubles").1;
    let troubles = troubles.split_once("</ul>").expect("they end").0;
    assert_eq!(
        troubles,
        "<li>the configuration was not reloaded: X</li><li>preloaded programs are not served: X</li>\
         <li>X do not reach X: X</li>"
    );
    assert!(text.contains("X is given up for 30 s: it cost 12.5% of a CPU, all together 20.0%"));
    assert!(text.contains("<td class=\"number bad\">12,345</td>"));
    assert!(text.contains("Only what the kernel counts is known of it: X"));
    assert!(text.contains("<p>and 7 more</p>"));
}

#[test]
fn an_agent_without_processes_says_so() {
    let page = html(&Status::default());
    assert!(page.contains("No Go process is watched yet"));
    assert!(page.contains("None: what is watched stays within its budget."));
    assert!(!page.contains("class=\"troubles\""));
}

#[test]
fn depths_have_a_style() {
    for depth in 1..=12 {
        assert!(STYLE.contains(&format!(".depth-{depth} ")), "{depth}");
    }
    assert!(!STYLE.contains(".depth-13"));
}

#[test]
fn those_that_answer_something_stand_first_and_are_open() {
    let mut status = status();
    status.processes = vec![process(9), process(7), process(8)];
    for process in &mut status.processes {
        process.requests.retain(|_| process.pid == 8);
    }
    let page = html(&status);
    let sections: Vec<_> = page.match_indices("<details class=\"process\"").collect();
    let text = |at: usize| page.get(at..at + 45).unwrap_or_default();
    let texts: Vec<_> = sections.into_iter().map(|(at, _)| text(at)).collect();
    assert!(texts[0].starts_with("<details class=\"process\" id=\"p8\" open>"), "{texts:?}");
    assert!(texts[1].starts_with("<details class=\"process\" id=\"p7\">"), "{texts:?}");
    assert!(texts[2].starts_with("<details class=\"process\" id=\"p9\">"), "{texts:?}");
}
