//! The command line of `agent`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "Without a file every Go program is watched; with CMD and without a file only that one. SIGHUP reads the\n\
    file again. Metrics are at http://127.0.0.1:9463/metrics, the state at /status.\n\n\
    Examples:\n  \
    gospect agent\n  \
    gospect agent --config gospect.toml --check\n  \
    gospect agent -- ./server -addr :8080"
)]
pub struct AgentArgs {
    /// The configuration [default: /etc/gospect/gospect.toml, if it is there]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Say whether the configuration is right, and do nothing
    #[arg(long)]
    pub check: bool,
    /// Say nothing but failures
    #[arg(short, long)]
    pub quiet: bool,
    /// Command to start as a service; the agent ends with it
    #[arg(last = true, value_name = "CMD", num_args = 1.., allow_hyphen_values = true)]
    pub command: Option<Vec<std::ffi::OsString>>,
}
