//! The settings of a queue: a form with the present values, each of which can be modified
//! separately.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::shell::{Shell, page};
use crate::api::policies::{self, PolicyInForce};
use crate::api::queues;
use crate::api::views::Queue;
use crate::app::Shared;
use crate::name::Name;
use crate::params::Segments;
use crate::prefix::to_path;
use crate::problem::Outcome;

#[derive(Debug, Template)]
#[template(path = "settings.html")]
struct Settings {
    shell: Shell,
    queue: Queue,
    policy: PolicyInForce,
    /// Which place of the key is given, and the place.
    key: (String, String),
    /// A line for each key with a weight.
    weights: String,
}

/// The settings of a queue.
pub(super) async fn show(
    shell: Shell,
    app: Shared,
    Segments(name): Segments<Name>,
) -> Outcome<Response> {
    let queue = match queues::get(app.clone(), Segments(name.clone())).await {
        Ok(queue) => queue.0,
        // The queue was removed, on this page or by another client.
        Err(problem) if problem.status == StatusCode::NOT_FOUND => {
            return Ok(to_path(&shell.prefix, "/queues"));
        }
        Err(problem) => return Err(problem),
    };
    let policy = policies::get_policy(app, Segments(name)).await?.0;
    let key = policy
        .policy
        .get("key")
        .and_then(Value::as_object)
        .and_then(|key| key.iter().find(|(kind, _)| *kind != "split"));
    let key = key
        .map(|(kind, at)| (kind.clone(), at.as_str().unwrap_or_default().to_owned()))
        .unwrap_or_default();
    let weights = policy
        .policy
        .get("weights")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let weights = weights
        .map(|(key, weight)| format!("{key} = {weight}\n"))
        .collect();
    page(&Settings {
        shell,
        queue,
        policy,
        key,
        weights,
    })
    .map(IntoResponse::into_response)
}

impl Settings {
    /// A value of the policy at a place; empty if it is not given.
    fn of(&self, place: &str) -> String {
        match self.policy.policy.pointer(place) {
            None => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }

    /// Returns true if the policy has this.
    fn has(&self, place: &str) -> bool {
        self.policy.policy.pointer(place) == Some(&Value::Bool(true))
    }

    /// The timeout of the throttle.
    fn timeout(&self) -> String {
        let ms = self
            .queue
            .throttle
            .as_ref()
            .and_then(|throttle| throttle.timeout_ms);
        ms.map(|ms| windlass_config::Period::from_ms(ms).to_string())
            .unwrap_or_default()
    }
}
