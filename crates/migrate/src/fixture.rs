//! Configurations for tests: defaults, with all protocols.

use std::path::Path;

use windlass_daemon::config::Config;
use windlass_eventmq::config::Eventmq;
use windlass_faktory::config::Faktory;
use windlass_gearman::config::Gearman;
use windlass_spiderq::config::Spiderq;

use crate::configured::Configured;

/// The configuration with this data directory.
pub(crate) fn config(data_dir: &Path) -> Config {
    configured(data_dir).server
}

pub(crate) fn configured(data_dir: &Path) -> Configured {
    let (faktory, gearman) = (Faktory::default(), Gearman::default());
    let (spiderq, eventmq) = (Spiderq::default(), Eventmq::default());
    let protocols: Vec<std::sync::Arc<dyn windlass_session::protocol::Protocol>> = vec![
        std::sync::Arc::new(faktory.clone()),
        std::sync::Arc::new(gearman.clone()),
        std::sync::Arc::new(spiderq.clone()),
        std::sync::Arc::new(eventmq),
    ];
    let server = Config {
        data_dir: data_dir.to_owned(),
        protocols,
        ..Config::default()
    };
    Configured {
        server,
        faktory,
        gearman,
        spiderq,
    }
}
