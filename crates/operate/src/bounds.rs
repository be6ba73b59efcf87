//! Limits of a queue, given as options or, as for a policy, in JSON.

use clap::Args;
use serde_json::{Map, Value};
use windlass_config::{Failure, Period};

/// The limits on concurrent jobs of a queue.
#[derive(Debug, Args)]
pub(crate) struct Throttle {
    /// Its name.
    pub(super) queue: String,
    /// The throttle in JSON, with the keys of [queues.NAME]: '{"concurrency": 8, "worker": 2, "timeout": "1h"}'.
    #[arg(conflicts_with_all = ["concurrency", "per_worker", "timeout"])]
    throttle: Option<String>,
    /// Maximum jobs of all workers together.
    #[arg(long, value_name = "JOBS")]
    concurrency: Option<u32>,
    /// Maximum jobs of one worker.
    #[arg(long, value_name = "JOBS")]
    per_worker: Option<u32>,
    /// How long a job counts at most while a worker holds it.
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Remove the limit.
    #[arg(long, conflicts_with_all = ["throttle", "concurrency", "per_worker", "timeout"])]
    pub(super) off: bool,
}

/// The limit on the number of jobs in a queue.
#[derive(Debug, Args)]
pub(crate) struct Limit {
    /// Its name.
    pub(super) queue: String,
    /// The limit in JSON: '{"jobs": 1000}'.
    #[arg(conflicts_with = "jobs")]
    limit: Option<String>,
    /// Reject pushes while the queue has this many waiting or running jobs.
    #[arg(long, conflicts_with = "off")]
    jobs: Option<u32>,
    /// Remove the limit.
    #[arg(long, conflicts_with_all = ["jobs", "limit"])]
    pub(super) off: bool,
}

/// Parameters of the API.
type Parameters = Vec<(String, Option<String>)>;

impl Throttle {
    /// Whether no value is given, so that the current throttle is shown.
    pub(super) const fn is_question(&self) -> bool {
        let Self {
            throttle,
            concurrency,
            per_worker,
            timeout,
            off,
            ..
        } = self;
        throttle.is_none()
            && concurrency.is_none()
            && per_worker.is_none()
            && timeout.is_none()
            && !*off
    }

    pub(super) fn parameters(&self) -> Result<Parameters, Failure> {
        let Some(throttle) = &self.throttle else {
            let number = |number: Option<u32>| number.map(|number| number.to_string());
            return Ok(vec![
                ("concurrency".to_owned(), number(self.concurrency)),
                ("per_worker".to_owned(), number(self.per_worker)),
                ("timeout".to_owned(), self.timeout.clone()),
            ]);
        };
        // The API uses one name for what the file calls `worker`.
        let named = |key: String| {
            if key == "worker" {
                "per_worker".to_owned()
            } else {
                key
            }
        };
        Ok(parsed(throttle)?
            .into_iter()
            .map(|(key, value)| (named(key), value))
            .collect())
    }
}

impl Limit {
    /// Whether no value is given, so that the current limit is shown.
    pub(super) const fn is_question(&self) -> bool {
        self.limit.is_none() && self.jobs.is_none() && !self.off
    }

    pub(super) fn parameters(&self) -> Result<Parameters, Failure> {
        let jobs = || vec![("jobs".to_owned(), self.jobs.map(|jobs| jobs.to_string()))];
        self.limit.as_deref().map_or_else(|| Ok(jobs()), parsed)
    }
}

/// The throttle of a queue in the form of the option; `None`: it has none.
pub(super) fn throttle_of(queue: &Value) -> Option<Value> {
    let throttle = queue.get("throttle")?.as_object()?;
    let timeout = throttle
        .get("timeout_ms")
        .and_then(Value::as_u64)
        .map(|ms| Period::from_ms(ms).to_string().into());
    let part = |name: &str| throttle.get(name).cloned().filter(|value| !value.is_null());
    let parts = [
        ("concurrency", part("concurrency")),
        ("worker", part("per_worker")),
        ("timeout", timeout),
    ];
    Some(Value::Object(
        parts
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect(),
    ))
}

/// The limit of a queue in the form of the option; `None`: it has none.
pub(super) fn limit_of(queue: &Value) -> Option<Value> {
    let least = queue
        .get("jobs_max")?
        .as_object()?
        .values()
        .filter_map(Value::as_u64)
        .min()?;
    Some(Value::Object(
        [("jobs".to_owned(), least.into())].into_iter().collect(),
    ))
}

/// Parses the keys of a JSON object.
fn parsed(text: &str) -> Result<Parameters, Failure> {
    let object: Map<String, Value> = windlass_config::json(text.as_bytes())
        .map_err(|why| Failure::Runtime(format!("an object of JSON expected: {why}")))?;
    let parameter = |(key, value): (String, Value)| match value {
        Value::Null => (key, None),
        Value::String(text) => (key, Some(text)),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            (key, Some(other.to_string()))
        }
    };
    Ok(object.into_iter().map(parameter).collect())
}
