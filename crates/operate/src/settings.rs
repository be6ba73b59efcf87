//! The options that determine the configuration.

use std::path::PathBuf;

use clap::Args;

/// The sources of the configuration.
#[derive(Debug, Default, Args)]
pub struct Settings {
    /// Read the configuration from this file (TOML).
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Set one key, as in --set server.threads=4; may be repeated.
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
    /// Serve only these of gearman, faktory, spiderq and eventmq (and HTTP for operators); may be repeated.
    #[arg(long, value_name = "PROTOCOL", value_delimiter = ',', value_parser = ["gearman", "faktory", "spiderq", "eventmq"])]
    pub only: Vec<String>,
    /// Keep the data in this directory.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// When a change is acknowledged: once it is on disk, or up to commit_interval before that.
    #[arg(long, value_name = "WHEN", value_parser = ["sync", "interval"])]
    pub durability: Option<String>,
    /// The lowest level that is logged: off, error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// The format of log lines.
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    pub log_format: Option<String>,
}
