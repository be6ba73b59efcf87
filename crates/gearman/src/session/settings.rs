//! What all connections of Gearman share: the section of the configuration, and the facts of this daemon.

use std::sync::Arc;

use windlass_bridge::Bridge;

use crate::config::Gearman;
use crate::wire::{HandlePrefix, Limits};

/// The settings that all connections of a listener share.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `[gearman]`
    pub section: Gearman,
    /// The prefix of this daemon's job handles. Changing it changes the handles of existing jobs.
    pub handle_prefix: HandlePrefix,
    /// The answer to `verbose`, after `OK`: the name of the log level.
    pub verbosity_text: String,
    /// The answer to `getpid`, after `OK`.
    pub pid: u32,
    /// All protocols, for jobs that cross.
    pub bridge: Arc<Bridge>,
}

impl Settings {
    /// The default settings for a daemon with this prefix of handles.
    pub fn new(handle_prefix: HandlePrefix) -> Self {
        let (section, bridge) = (Gearman::default(), Arc::default());
        Self {
            section,
            handle_prefix,
            verbosity_text: "INFO".to_owned(),
            pid: std::process::id(),
            bridge,
        }
    }

    pub(super) fn limits(&self) -> Limits {
        let Gearman {
            frame_bytes_max,
            line_bytes_max,
            ..
        } = &self.section;
        Limits {
            frame_bytes_max: frame_bytes_max.bytes(),
            line_bytes_max: line_bytes_max.bytes(),
        }
    }
}
