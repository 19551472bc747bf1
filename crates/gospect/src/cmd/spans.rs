//! `gospect spans`: requests, on the machinery of `gospect trace`.

use crate::args::{Cli, Command, Format, SpanChoice, SpansArgs, SpansFormat, TraceArgs};
use crate::failure::{Outcome, usage};
use clap::Parser as _;
use std::path::{Path, PathBuf};

/// Bytes captured of a path or another text: with more of each a request's record has no room for the
/// header.
pub(crate) const TEXT_BYTES: u16 = 128;

/// Watches as asked.
pub fn run(args: SpansArgs) -> anyhow::Result<Outcome> {
    let SpansArgs {
        capture,
        queries,
        headers,
        sql,
        time,
        functions,
        exclude,
        arguments,
        results,
        otlp,
        otlp_protocol,
        format,
        tell,
        binary,
        command,
    } = args;
    let Command::Trace(mut trace) = Cli::try_parse_from(["gospect", "trace"])?.command else {
        unreachable!("the line above names `trace`")
    };
    let as_text = |path: std::path::PathBuf| {
        path.into_os_string()
            .into_string()
            .map_err(|path| usage(format!("`{}` is not UTF-8: use --exe", path.display())))
    };
    trace.capture = capture;
    trace.select.max_string = TEXT_BYTES;
    (trace.select.arguments, trace.select.results) = (arguments, results);
    trace.show.tell = tell;
    trace.show.format = if format == SpansFormat::Json { Format::Json } else { Format::Text };
    trace.rules = binary.map(as_text).transpose()?.into_iter().collect();
    trace.command = command;
    let service = service(&trace);
    let collector = otlp
        .map(|url| collector(url.as_deref(), otlp_protocol.as_deref(), &service))
        .transpose()?;
    let (statements, times, timeline) = (sql, time, format == SpansFormat::Perfetto);
    trace.spans = Some(SpanChoice {
        queries,
        headers,
        statements,
        times,
        functions,
        exclude,
        timeline,
        collector,
        taker: None,
    });
    super::trace::run(*trace)
}

/// Where spans are sent, by what is given and by the environment. What is wrong is told before anything is
/// watched.
fn collector(
    url: Option<&str>,
    protocol: Option<&str>,
    service: &str,
) -> anyhow::Result<Box<otlp::Settings>> {
    let wrong = |error: otlp::Error| usage(format!("--otlp: {error}"));
    let protocol = protocol.map(str::parse).transpose().map_err(wrong)?;
    let variable = |name: &str| std::env::var(name).ok();
    let settings = otlp::Settings::new(url, protocol, service, &variable).map_err(wrong)?;
    otlp::Exporter::check(&settings)?;
    for warning in &settings.warnings {
        crate::sink::say(warning);
    }
    Ok(Box::new(settings))
}

/// The name of what is watched, where no variable has one: that of its file.
fn service(args: &TraceArgs) -> String {
    let command = args.command.as_ref().and_then(|argv| argv.first()).map(PathBuf::from);
    let path = command
        .or_else(|| args.capture.exe.clone())
        .or_else(|| args.rules.first().map(PathBuf::from))
        .or_else(|| args.capture.pids.first().map(|pid| format!("/proc/{pid}/exe").into()))
        .map(|path| std::fs::read_link(&path).unwrap_or(path));
    let name = path.as_deref().and_then(Path::file_name);
    name.map_or("unknown_service".to_owned(), |name| name.to_string_lossy().into_owned())
}
