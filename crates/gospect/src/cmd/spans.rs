//! `gospect spans`: requests, on the machinery of `gospect trace`.

use crate::args::{Cli, Command, SpanChoice, SpansArgs};
use crate::failure::{Outcome, usage};
use clap::Parser as _;

/// Bytes captured of a path or another text: with more of each a request's record has no room for the
/// header.
const TEXT_BYTES: u16 = 128;

/// Watches as asked.
pub fn run(args: SpansArgs) -> anyhow::Result<Outcome> {
    let SpansArgs { capture, queries, sql, format, tell, binary, command } = args;
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
    (trace.show.format, trace.show.tell) = (format, tell);
    trace.rules = binary.map(as_text).transpose()?.into_iter().collect();
    trace.command = command;
    trace.spans = Some(SpanChoice { queries, statements: sql });
    super::trace::run(*trace)
}
