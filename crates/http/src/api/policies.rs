//! The policy of a queue, and the keys of its jobs.

use axum::Json;
use windlass_engine::{Cursor, KeyRow, PolicyRow, Query, Refusal, Reply, Thing};

use super::view::{of_one, view};
use crate::app::{App, Now};
use crate::name::Name;
use crate::problem::{Outcome, Problem};

/// Keys that an answer has.
const KEYS_MAX: usize = 20;

view! {
    /// The policy of a queue, and its keys with the longest backlog.
    QueueKeys(policy: &PolicyRow, found: (u64, Vec<KeyRow>), now: Now) {
        /// Starts per time that its rate allows, like `100 per 60000 ms, burst 20`.
        rate: Option<String> = policy.policy.rate.map(rate_text),
        /// Jobs that may start now by the rate.
        tokens: Option<u32> = policy.tokens,
        /// After how many milliseconds the next job may start, if the rate allows none now.
        next_start_ms: Option<u64> = policy.next_start_at.map(|at| at.ms_since(now.engine)),
        /// Jobs of one key that may run at once.
        running_max: Option<u32> = policy.policy.key_running_max.or(policy.policy.ordered.then_some(1)),
        /// Starts per time of one key.
        key_rate: Option<String> = policy.policy.key_rate.map(rate_text),
        /// Jobs of one key that may wait.
        waiting_max: Option<u32> = policy.policy.key_waiting_max,
        /// Whether keys take turns.
        fair: bool = policy.policy.fair,
        /// Whether jobs of one key run one after the other.
        ordered: bool = policy.policy.ordered,
        /// How many keys have jobs that wait or run.
        count: u64 = found.0,
        /// Those with the most waiting jobs; 20 at most.
        keys: Vec<QueueKey> = found.1.iter().map(|row| QueueKey::of(row, policy)).collect(),
    }
}

view! {
    /// A key of a queue.
    QueueKey(row: &KeyRow, policy: &PolicyRow) {
        /// The key; empty for all jobs that have none.
        key: Name = Name(row.key.clone()),
        /// Its jobs that are ready, scheduled or retrying.
        waiting: u32 = row.waiting,
        /// Its jobs that workers have; in order, those that wait for a retry, too.
        running: u32 = row.running,
        /// Turns that it gets for each turn of a key without a weight.
        weight: u32 = policy.policy.weights.get(&row.key).copied().unwrap_or(1),
    }
}

of_one! {
    /// The policy of a queue, and its keys with the longest backlog
    get "/api/v1/queues/{queue}/keys" "queues" "get_queue_keys" 200 QueueKeys, 404;
    pub(crate) fn get(app, queue: Name) -> Json<QueueKeys> { Ok(Json(of_queue(&app, &queue).await?.ok_or(Refusal::NotFound(Thing::Queue))?)) }
}

/// The policy of a queue, if it has one.
pub(crate) async fn of_queue(app: &App, queue: &Name) -> Outcome<Option<QueueKeys>> {
    let (mut found, mut after, mut all) = (Vec::new(), Some(Cursor::default()), 0);
    let mut last = None;
    while let Some(page) = after {
        let query = Query::Keys { queue: queue.0.clone(), after: page, limit: u32::MAX };
        let Reply::Keys { policy, rows, next } = app.ask(query).await? else { return Err(Problem::unexpected()) };
        all += rows.len() as u64;
        found.extend(rows);
        found.sort_by(|one: &KeyRow, other: &KeyRow| (other.waiting, &one.key).cmp(&(one.waiting, &other.key)));
        found.truncate(KEYS_MAX);
        (last, after) = (policy, next);
    }
    Ok(last.map(|policy| QueueKeys::of(&policy, (all, found), app.now())))
}

fn rate_text(rate: windlass_engine::Rate) -> String {
    format!("{} per {} ms, burst {}", rate.jobs, rate.per_ms, rate.burst)
}
