//! `coalesce` of `[queues.NAME]`: merges several submits into one job.

use serde::{Deserialize, Serialize};
use windlass_config::Period;

use super::Queue;

/// Merges submits into one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Coalesce {
    /// The identity by which submits are merged.
    pub by: By,
    /// Whether each submit replaces the body of the waiting job.
    pub latest: bool,
    /// How long the job waits after its last submit.
    pub quiet: Period,
    /// The maximum wait after its first submit.
    pub at_most: Option<Period>,
    /// The effect of a submit while the job runs.
    pub while_running: WhileRunning,
}

impl Default for Coalesce {
    fn default() -> Self {
        let (by, while_running) = (By::Unique, WhileRunning::OnceMore);
        Self {
            by,
            latest: true,
            quiet: Period::from_ms(0),
            at_most: None,
            while_running,
        }
    }
}

/// The identity by which submits are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The unique id.
    Unique,
    /// The key that the queue's section reads.
    Key,
}

/// The effect of a submit while the job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhileRunning {
    /// The job runs once more, for all submits until then.
    OnceMore,
    /// The submit joins the running job.
    Join,
}

/// Checks the rule of a queue.
///
/// # Errors
///
/// The reason why it is invalid.
pub(super) fn check(queue: &Queue) -> Result<(), &'static str> {
    let Some(rule) = queue.coalesce else {
        return Ok(());
    };
    if queue.dedup.is_some() {
        return Err("dedup and coalesce exclude each other");
    }
    if rule.at_most.is_some_and(|most| most < rule.quiet) {
        return Err("coalesce.at_most must not be less than quiet");
    }
    match (rule.by, &queue.key) {
        (By::Key, None) => Err("coalesce.by = \"key\" requires key"),
        (By::Key, Some(key)) if key.unique => {
            Err("coalesce.by = \"key\" requires a key in the body of a job")
        }
        (By::Key, Some(_)) | (By::Unique, _) => Ok(()),
    }
}

impl From<Coalesce> for windlass_engine::Coalesce {
    fn from(rule: Coalesce) -> Self {
        Self {
            by_key: rule.by == By::Key,
            latest: rule.latest,
            quiet_ms: rule.quiet.as_ms(),
            at_most_ms: rule.at_most.map(Period::as_ms),
            once_more: rule.while_running == WhileRunning::OnceMore,
        }
    }
}
