//! The options that all imports share, and their beginning and end.

use std::path::PathBuf;

use clap::Args;
use sha2::{Digest as _, Sha256};
use windlass_config::Failure;
use windlass_daemon::logging;
use windlass_engine::{NamespaceLimits, is_valid_name};
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
    /// Import everything into this namespace, which is created if it is new; '' is the one without a name.
    #[arg(short, long, value_name = "NAME", value_parser = namespace)]
    pub(super) namespace: Option<String>,
}

/// The name of a namespace, or the empty one.
fn namespace(name: &str) -> Result<String, &'static str> {
    if name.is_empty() || is_valid_name(name.as_bytes()) {
        Ok(name.to_owned())
    } else {
        Err("expected 1 to 64 of the ASCII letters, digits, -, _ and ., a letter or a digit first")
    }
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
    /// Begins the import of a source, which a dry run does not ask for. A new namespace has these limits.
    pub(super) fn begin(
        &self,
        config: &Configured,
        limits: NamespaceLimits,
        source: impl FnOnce() -> Result<Source, Failure>,
    ) -> Result<Importer, Failure> {
        let mut importer = if self.dry_run {
            Importer::rehearse(&config.server)
        } else {
            Importer::open(&config.server, &self.to_namespace(source()?), self.again)?
        };
        if let Some(name) = &self.namespace {
            let refused = |why| Failure::Runtime(format!("namespace {name}: {why}"));
            importer.enter(name, limits).map_err(refused)?;
        }
        Ok(importer)
    }

    /// The same source is another one for each namespace that it is imported into.
    fn to_namespace(&self, source: Source) -> Source {
        let Some(name) = &self.namespace else {
            return source;
        };
        let digest = Sha256::digest(format!("{} {name}", source.digest));
        Source {
            digest: hex::encode(digest),
            ..source
        }
    }
}
