//! Which calls are shown, by their values.

use clap::{Args, ValueHint};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct ConditionArgs {
    /// Show only calls for which this holds at their entry: 'len(s) > 100 && user.ID != 0'
    #[arg(long = "if", value_name = "COND")]
    pub if_entry: Option<String>,
    /// Show only calls for which this holds at their return: 'err != nil'
    #[arg(long = "if-result", value_name = "COND")]
    pub if_result: Option<String>,
    /// Show only calls whose duration is so: '> 10ms'
    #[arg(long = "if-duration", value_name = "COND")]
    pub if_duration: Option<String>,
    /// Split the table of --stat by a value
    #[arg(long, value_name = "EXPR", requires = "stat")]
    pub by: Option<String>,
    /// File with a RULE a line
    #[arg(long = "rules", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub rules_file: Option<PathBuf>,
}
