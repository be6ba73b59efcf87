//! The policy of a queue, and the keys of jobs.

use axum::{Extension, Json};
use bytes::Bytes;
use windlass_config::Period;
use windlass_daemon::config::{policy_as_json, policy_of_json};
use windlass_engine::{
    BulkCommand, Cursor, KeyRow, Policy, PolicyRow, Query, QueueCommand, Reply, is_pattern,
};

use super::queues::{Set, one, set};
use super::views::Queue;
use crate::access::Visitor;
use crate::app::{App, Now, Shared};
use crate::name::Name;
use crate::params::{Body, Segments};
use crate::problem::{Outcome, Problem};
use crate::time::moment_text;
use crate::view::{of_one, view};

/// The longest policy, in bytes.
const POLICY_BYTES_MAX: usize = 64 << 10;

/// The limit of keys in a response.
const KEYS_MAX: usize = 20;

view! {
    /// The policy of a queue.
    QueuePolicy(policy: &PolicyRow, now: Now) {
        /// The policy in words.
        in_words: String = in_words(policy, now),
        /// Starts per time that its rate allows, like `100 per 1m, burst 20`.
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
        /// Keys of its jobs, in any state.
        keys_known: u32 = policy.keys,
        /// Keys that are paused.
        keys_paused: u32 = policy.keys_paused,
        /// Times at which a token of the rate came while jobs waited for it.
        rate_waits: u64 = policy.rate_waits,
        /// New jobs in which no key could be read.
        keyless: u64 = policy.keyless,
        /// The operator who has set it, in place of what is configured; null: it is configured.
        set_by: Option<Name> = policy.set.as_ref().map(|(by, _)| Name(by.clone())),
        /// When.
        set_at: Option<String> = policy.set.as_ref().and_then(|(_, at)| moment_text(*at)),
    }
}

view! {
    /// The policy of a queue, and its keys with the longest backlog.
    QueueKeys(policy: &PolicyRow, found: (u64, Vec<KeyRow>), now: Now) {
        /// The policy.
        #[serde(flatten)]
        policy: QueuePolicy = QueuePolicy::of(policy, now),
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
        /// Whether it is paused.
        paused: bool = row.paused,
        /// Turns that it gets for each turn of a key without a weight.
        weight: u32 = policy.policy.weights.get(&row.key).copied().unwrap_or(1),
    }
}

view! {
    /// The policy of a queue as it can be set again, and where it comes from.
    PolicyInForce(row: Option<&PolicyRow>, app: &App) {
        /// The policy, with the keys of `[queues.NAME]`; without any if all jobs may start.
        #[schema(value_type = Object)]
        policy: serde_json::Value = policy_as_json(&row.map(|row| row.policy.clone()).unwrap_or_default()),
        /// The operator who has set it, in place of what is configured; null: it is configured.
        set_by: Option<Name> = row.and_then(|row| row.set.as_ref()).map(|(by, _)| Name(by.clone())),
        /// When.
        set_at: Option<String> = row.and_then(|row| row.set.as_ref()).and_then(|(_, at)| moment_text(*at)),
        /// The name or the pattern of the section of the configuration that holds for the queue, if it has one.
        section: Option<Name> = row.and_then(|row| row.section.clone()).map(Name),
        /// Where it comes from, in words.
        origin: String = origin(row, app),
    }
}

/// The origin of a policy, in words.
fn origin(row: Option<&PolicyRow>, app: &App) -> String {
    let set = row.and_then(|row| row.set.as_ref());
    match (set, row.and_then(|row| row.section.clone())) {
        (Some((by, at)), _) => format!(
            "set by {} at {}",
            Name(by.clone()),
            moment_text(*at).unwrap_or_default()
        ),
        (None, Some(section)) => {
            let section = Name(section).to_string();
            let at = app
                .control
                .place_of(&section)
                .map(|place| format!(", {place}"))
                .unwrap_or_default();
            format!("from the section [queues.{section:?}] of the configuration{at}")
        }
        (None, None) => "neither configured nor set".to_owned(),
    }
}

of_one! {
    /// The policy of a queue, and its keys with the longest backlog
    get "/api/v1/queues/{queue}/keys" "queues" "get_queue_keys" 200 QueueKeys, 404, 409;
    pub(crate) fn get(app, queue: Name) -> Json<QueueKeys> {
        match of_queue(&app, &queue).await? {
            Some(keys) => Ok(Json(keys)),
            None => {
                one(&app, queue.0.clone()).await?;
                Err(Problem::conflict(format!("{queue} has no policy")))
            }
        }
    }

    /// The policy of a queue, as it can be set again
    get "/api/v1/queues/{queue}/policy" "queues" "get_queue_policy" 200 PolicyInForce, 404;
    pub(crate) fn get_policy(app, queue: Name) -> Json<PolicyInForce> {
        let query = Query::Keys { queue: queue.0.clone(), after: Cursor::default(), limit: 1 };
        let Reply::Keys { policy, .. } = app.ask(query).await? else { return Err(Problem::unexpected()) };
        if policy.is_none() {
            one(&app, queue.0).await?;
        }
        Ok(Json(PolicyInForce::of(policy.as_deref(), &app)))
    }
}

/// The policy of a queue, if it has one.
pub(crate) async fn of_queue(app: &App, queue: &Name) -> Outcome<Option<QueueKeys>> {
    let (mut found, mut after, mut all) = (Vec::new(), Some(Cursor::default()), 0);
    let mut last = None;
    while let Some(page) = after {
        let query = Query::Keys {
            queue: queue.0.clone(),
            after: page,
            limit: u32::MAX,
        };
        let Reply::Keys { policy, rows, next } = app.ask(query).await? else {
            return Err(Problem::unexpected());
        };
        all += rows.len() as u64;
        found.extend(rows);
        found.sort_by(|one: &KeyRow, other: &KeyRow| {
            (other.waiting, &one.key).cmp(&(one.waiting, &other.key))
        });
        found.truncate(KEYS_MAX);
        (last, after) = (policy, next);
    }
    Ok(last.map(|policy| QueueKeys::of(&policy, (all, found), app.now())))
}

impl QueueKey {
    /// The conditions for the jobs of this key in a queue, as a query string.
    pub(crate) fn query(&self, queue: &Name) -> String {
        let pairs = [
            ("queue", queue.to_string()),
            ("policy_key", self.key.to_string()),
        ];
        form_urlencoded::Serializer::new(String::new())
            .extend_pairs(pairs)
            .finish()
    }
}

fn in_words(row: &PolicyRow, now: Now) -> String {
    let Policy {
        rate,
        key_rate,
        key_running_max,
        key_waiting_max,
        fair,
        ordered,
        ..
    } = &row.policy;
    let next = row.next_start_at.map(|at| {
        format!(
            ", next start in {}",
            Period::from_ms(at.ms_since(now.engine))
        )
    });
    let paused = if row.keys_paused == 0 {
        String::new()
    } else {
        format!(", {} paused", row.keys_paused)
    };
    let parts = [
        rate.map(|rate| rate_text(rate) + next.as_deref().unwrap_or_default()),
        key_running_max.map(|max| format!("{max} of a key at once")),
        key_rate.map(|rate| format!("{} of a key", rate_text(rate))),
        key_waiting_max.map(|max| format!("{max} of a key wait at most")),
        fair.then(|| "keys take turns".to_owned()),
        ordered.then(|| "in order".to_owned()),
        row.policy
            .has_keys()
            .then(|| format!("keys: {}{paused}", row.keys)),
        row.set.as_ref().map(|(by, at)| {
            format!(
                "set by {} at {}",
                Name(by.clone()),
                moment_text(*at).unwrap_or_default()
            )
        }),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Set which jobs of a queue may start when
///
/// In JSON with the keys of `[queues.NAME]`: `rate`, `key`, `per_key`, `fair`, `weights`, `ordered`; `{}` allows all jobs to
/// start. It holds in place of what is configured, over restarts and reloads, until the queue's own section of the file
/// changes. The queue need not be in use yet.
#[utoipa::path(put, path = "/api/v1/queues/{queue}/policy", tag = "queues", operation_id = "set_queue_policy",
    request_body(content = serde_json::Value, content_type = "application/json"),
    responses(
        (status = 200, body = Queue), (status = 201, body = Queue, description = "The queue is new"),
        (status = 400, body = Problem), (status = 409, body = Problem), (status = 429, body = Problem)
    )
)]
pub(super) async fn set_policy(
    app: Shared,
    Extension(visitor): Extension<Visitor>,
    Segments(Name(queue)): Segments<Name>,
    Body(body): Body,
) -> Outcome<Set> {
    if body.len() > POLICY_BYTES_MAX {
        return Err(Problem::bad_request(format!(
            "a policy has at most {POLICY_BYTES_MAX} bytes"
        )));
    }
    let policy = Some(Box::new(
        policy_of_json(&body).map_err(Problem::bad_request)?,
    ));
    if is_pattern(&queue) {
        let why = format!(
            "{} is a pattern: only the configuration has policies for patterns",
            Name(queue)
        );
        return Err(Problem::bad_request(why));
    }
    let is_new = app.queue(queue.clone()).await?.is_none();
    let by = Bytes::copy_from_slice(visitor.identity.name.as_bytes());
    let answer = set(
        &app,
        is_new,
        QueueCommand::SetPolicy {
            queue: queue.clone(),
            policy,
            by,
        },
        queue,
    )
    .await?;
    read_keys(&app).await?;
    Ok(answer)
}

of_one! {
    /// Let the configuration decide which jobs of a queue may start when
    delete "/api/v1/queues/{queue}/policy" "queues" "unset_queue_policy" 200 Queue, 404;
    pub(super) fn unset_policy(app, queue: Name) -> Json<Queue> {
        let before = one(&app, queue.0.clone()).await?;
        app.ask(QueueCommand::SetPolicy { queue: queue.0.clone(), policy: None, by: Bytes::new() }).await?;
        read_keys(&app).await?;
        // The queue existed only because of the policy, and is now removed.
        Ok(Json(one(&app, queue.0).await.unwrap_or(Queue { policy: None, ..before })))
    }
}

/// Lets the engine read the keys of jobs that are unread.
async fn read_keys(app: &App) -> Outcome<()> {
    // Keys are read of all jobs without them, whatever the namespace of the request.
    let (mut client, mut after) = (app.whole().client(), Some(Cursor::default()));
    while let Some(page) = after {
        let read = BulkCommand::ReadKeys {
            after: page,
            limit: u32::MAX,
        };
        let Reply::Mutated { next, .. } = client.ask(read).await? else {
            return Err(Problem::unexpected());
        };
        after = next;
    }
    Ok(())
}

/// Pauses or resumes a key of a queue.
pub(super) async fn pause_key(
    app: &App,
    queue: Bytes,
    Name(key): Name,
    paused: bool,
) -> Outcome<Queue> {
    let query = Query::Keys {
        queue: queue.clone(),
        after: Cursor::default(),
        limit: 1,
    };
    let Reply::Keys { policy, .. } = app.ask(query).await? else {
        return Err(Problem::unexpected());
    };
    if paused && !policy.is_some_and(|row| row.policy.has_keys()) {
        return Err(Problem::conflict(
            "the policy of the queue treats no jobs by key",
        ));
    }
    app.ask(QueueCommand::PauseKey {
        queue: queue.clone(),
        key,
        paused,
    })
    .await?;
    one(app, queue).await
}

fn rate_text(rate: windlass_engine::Rate) -> String {
    format!(
        "{} per {}, burst {}",
        rate.jobs,
        Period::from_ms(rate.per_ms.into()),
        rate.burst
    )
}
