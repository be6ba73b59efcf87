//! What administrators are told: JSON in a `REPLY`. Not in the specification; the keys are the released router's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

/// Counters by queue, or by worker. Latencies are in milliseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Requests that workers have and have not answered.
    pub inflight: Members,
    /// How long the last request took.
    pub latency_ms: BTreeMap<String, u64>,
    /// How long the slowest took.
    pub latency_ms_max: BTreeMap<String, u64>,
    /// Requests that wait for a worker.
    pub waiting: Members,
    /// Requests that are done, by queue.
    pub processed: BTreeMap<String, u64>,
    /// Requests that are done, by worker.
    pub processed_by_worker: BTreeMap<String, u64>,
}

/// Counters by name, written one by one: there may be very many. No name may come twice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Members(String);

impl Members {
    /// One more.
    pub fn add(&mut self, name: &str, count: u64) {
        let Self(text) = self;
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&json(name));
        // Writing to a string cannot fail.
        let _ = write!(text, ":{count}");
    }
}

/// All workers, and who serves which queue.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Workers {
    /// By identity.
    #[serde(rename = "connected_workers")]
    pub workers: BTreeMap<String, Worker>,
    /// By queue: weight and identity of those that serve it, the next one first.
    #[serde(rename = "connected_queues")]
    pub queues: BTreeMap<String, Vec<(i64, String)>>,
}

/// One worker.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Worker {
    /// Weight and name of its queues, as it informed of them.
    pub queues: Vec<(i64, String)>,
    /// When it was heard last, in Unix seconds.
    #[serde(rename = "hb")]
    pub heard: f64,
    /// Jobs it can take at once.
    pub available_slots: u64,
}

/// All schedulers.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Schedulers {
    /// By identity: when each was heard last, in Unix seconds.
    #[serde(rename = "connected_schedulers", serialize_with = "heard")]
    pub schedulers: BTreeMap<String, f64>,
}

/// Each an object of its own, as that of a worker.
fn heard<S: serde::Serializer>(schedulers: &BTreeMap<String, f64>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(schedulers.iter().map(|(identity, heard)| (identity, BTreeMap::from([("hb", heard)]))))
}

impl Status {
    /// The text of the answer to `STATUS`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let Self { inflight, latency_ms, latency_ms_max, waiting, processed, processed_by_worker } = self;
        let maps = [latency_ms, latency_ms_max, processed, processed_by_worker].map(json);
        let [latency_ms, latency_ms_max, processed, processed_by_worker] = maps;
        [
            "{\"inflight_messages_by_queue\":{",
            &inflight.0,
            "},\"latency_messages_by_queue\":",
            &latency_ms,
            ",\"max_latency_messages_by_queue\":",
            &latency_ms_max,
            ",\"waiting_messages_by_queue\":{",
            &waiting.0,
            "},\"processed_messages_by_queue\":",
            &processed,
            ",\"processed_messages_by_worker\":",
            &processed_by_worker,
            "}",
        ]
        .concat()
    }
}

impl Workers {
    /// The text of the answer to `ROUTER_SHOW_WORKERS`.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }
}

impl Schedulers {
    /// The text of the answer to `ROUTER_SHOW_SCHEDULERS`.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }
}

/// Maps with names for keys, numbers and lists can always be written.
fn json(report: impl Serialize) -> String {
    serde_json::to_string(&report).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_released_router() {
        let count = |name: &str, count| BTreeMap::from([(name.to_owned(), count)]);
        let members = |names: &[(&str, u64)]| {
            let mut members = Members::default();
            names.iter().for_each(|(name, count)| members.add(name, *count));
            members
        };
        let status = Status {
            inflight: members(&[("q", 1), ("\"", 7)]),
            latency_ms: count("q", 2),
            latency_ms_max: count("q", 3),
            waiting: members(&[("q", 4)]),
            processed: count("q", 5),
            processed_by_worker: count("w", 6),
        };
        let expected = concat!(
            r#"{"inflight_messages_by_queue":{"q":1,"\"":7},"latency_messages_by_queue":{"q":2},"#,
            r#""max_latency_messages_by_queue":{"q":3},"waiting_messages_by_queue":{"q":4},"#,
            r#""processed_messages_by_queue":{"q":5},"processed_messages_by_worker":{"w":6}}"#
        );
        assert_eq!(status.to_json(), expected);

        let worker = Worker { queues: vec![(10, "default".into())], heard: 1_795_234_453.5, available_slots: 2 };
        let workers = Workers {
            workers: BTreeMap::from([("id".into(), worker)]),
            queues: BTreeMap::from([("default".into(), vec![(10, "id".into())])]),
        };
        let expected = concat!(
            r#"{"connected_workers":{"id":{"queues":[[10,"default"]],"hb":1795234453.5,"available_slots":2}},"#,
            r#""connected_queues":{"default":[[10,"id"]]}}"#
        );
        assert_eq!(workers.to_json(), expected);

        let schedulers = Schedulers { schedulers: BTreeMap::from([("id".into(), 0.5)]) };
        assert_eq!(schedulers.to_json(), r#"{"connected_schedulers":{"id":{"hb":0.5}}}"#);
        assert_eq!(Schedulers::default().to_json(), r#"{"connected_schedulers":{}}"#);
    }
}
