//! Which protocols are spoken where: from the configuration to the session each listener greets with.

use std::sync::Arc;

use windlass_gearman::session::{GearmanSession, OnTimeout, Settings};

use crate::config::{self, Config, ListenAddress};
use crate::failure::Failure;
use crate::listen::Greeter;

/// A protocol: its name, where it listens, what it greets with.
pub(crate) type Served<'a> = (&'static str, &'a [ListenAddress], Greeter);

/// Every protocol that is on.
pub(crate) fn all(config: &Config) -> Result<Vec<Served<'_>>, Failure> {
    let settings = Arc::new(gearman(config)?);
    let greeter: Greeter = Arc::new(move |info| Box::new(GearmanSession::new(Arc::clone(&settings), info)));
    Ok(vec![("gearman", &config.gearman.listen, greeter)])
}

fn gearman(config: &Config) -> Result<Settings, Failure> {
    let gearman = &config.gearman;
    let prefix = gearman
        .prefix()
        .map_err(|error| config::Error::Senseless { key: "gearman.handle_prefix", reason: error.to_string() })?;
    Ok(Settings {
        frame_bytes_max: gearman.frame_bytes_max.bytes(),
        line_bytes_max: gearman.line_bytes_max.bytes(),
        version_text: gearman.version.clone(),
        verbosity_text: config.log.level.to_uppercase(),
        job_retries: gearman.job_retries,
        keep_failed: gearman.keep_failed,
        on_timeout: match gearman.on_timeout {
            config::OnTimeout::Fail => OnTimeout::Fail,
            config::OnTimeout::Requeue => OnTimeout::Requeue,
        },
        round_robin: gearman.round_robin,
        exceptions: gearman.exceptions,
        ..Settings::new(prefix)
    })
}
