//! How many of a queue's jobs may be worked on at once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Period;

/// A queue's throttle. `None` means no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Throttle {
    /// The most jobs in all.
    pub concurrency: Option<u32>,
    /// The most jobs of one worker.
    pub worker: Option<u32>,
    /// How long a leased job counts.
    pub timeout: Option<Period>,
}

/// Throttles by queue.
pub type Throttles = BTreeMap<String, Throttle>;

impl Throttle {
    /// Checks the throttle of a queue.
    ///
    /// # Errors
    ///
    /// The queue, and what is wrong with its throttle.
    pub fn check(&self, queue: &str) -> Result<(), String> {
        let Self {
            concurrency,
            worker,
            timeout,
        } = self;
        let queue = queue.escape_debug();
        if queue.clone().next().is_none() {
            return Err("a queue must have a name".to_owned());
        }
        if concurrency.or(*worker).is_none() {
            return Err(format!("{queue}: concurrency or worker must be given"));
        }
        let zeros = [
            ("concurrency", *concurrency == Some(0)),
            ("worker", *worker == Some(0)),
            (
                "timeout",
                timeout.is_some_and(|timeout| timeout.as_ms() == 0),
            ),
        ];
        if let Some((key, _)) = zeros.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(format!("{queue}: {key} must be more than 0"));
        }
        Ok(())
    }
}
