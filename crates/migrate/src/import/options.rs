//! The options that all imports share, and their beginning and end.

use std::path::PathBuf;

use clap::Args;
use windlass_config::Failure;
use windlass_daemon::logging;
use windlass_operate::Settings;

use crate::configured::Configured;
use crate::intake::{Importer, Source};

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

/// How the binary makes the configuration of these options.
pub(super) type Configure<'a> = &'a dyn Fn(&Settings) -> Result<Configured, Failure>;

/// The configuration. From here on the store logs warnings to standard error, not to the daemon's log; an import's own
/// output goes elsewhere.
pub(super) fn configured(
    configure: Configure<'_>,
    settings: &Settings,
) -> Result<Configured, Failure> {
    let mut config = configure(settings)?;
    config.server.log.level = "warn".to_owned();
    config.server.log.file = PathBuf::new();
    logging::init(&config.server.log)?;
    Ok(config)
}

impl Options {
    /// Begins the import of a source, which a dry run does not ask for.
    pub(super) fn begin(
        &self,
        config: &Configured,
        source: impl FnOnce() -> Result<Source, Failure>,
    ) -> Result<Importer, Failure> {
        if self.dry_run {
            Ok(Importer::rehearse(&config.server))
        } else {
            Importer::open(&config.server, &source()?, self.again)
        }
    }
}
