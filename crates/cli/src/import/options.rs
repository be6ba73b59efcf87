//! The options that all imports share, and their beginning and end.

use std::env;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use windlass_server::import::{Importer, Source};
use windlass_server::{Failure, logging};

use super::report::cannot_say;
use crate::config::Config;
use crate::settings::{Settings, resolve};

/// An import names its items in the help of `--again`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Print what would be imported into an empty data directory, and import nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Import again what an earlier import took.
    #[arg(long)]
    again: bool,
}

/// The configuration. From here on the store logs warnings to standard error, not to the daemon's log; an import's own
/// output goes elsewhere.
pub(super) fn configure(settings: &Settings) -> Result<Config, Failure> {
    let mut config = resolve(settings, env::vars_os())?;
    config.log.level = "warn".to_owned();
    config.log.file = PathBuf::new();
    logging::init(&config.log)?;
    Ok(config)
}

impl Options {
    /// Begins the import of a source, which a dry run does not ask for.
    pub(super) fn begin(
        &self,
        config: &Config,
        source: impl FnOnce() -> Result<Source, Failure>,
    ) -> Result<Importer, Failure> {
        if self.dry_run {
            Ok(Importer::rehearse(&config.for_server()))
        } else {
            Importer::open(&config.for_server(), &source()?, self.again)
        }
    }
}

/// Standard output.
pub(super) fn output() -> BufWriter<io::StdoutLock<'static>> {
    BufWriter::new(io::stdout().lock())
}

/// Prints the report of an import that has ended.
pub(super) fn print<W: Write>(out: &mut W, report: impl FnOnce(&mut W) -> io::Result<()>) -> Result<(), Failure> {
    report(out).and_then(|()| out.flush()).map_err(|why| cannot_say(&why))
}
