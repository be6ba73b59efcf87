//! Reports for administrators: JSON in a `REPLY`. Not in the specification; the keys are the released router's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Counters by queue, or by worker. Latencies are in milliseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Status {
    /// Leased jobs.
    #[serde(rename = "inflight_messages_by_queue")]
    pub inflight: Members,
    /// Latency of the last request.
    #[serde(rename = "latency_messages_by_queue")]
    pub latency_ms: BTreeMap<String, u64>,
    /// Latency of the slowest request.
    #[serde(rename = "max_latency_messages_by_queue")]
    pub latency_ms_max: BTreeMap<String, u64>,
    /// Ready jobs.
    #[serde(rename = "waiting_messages_by_queue")]
    pub waiting: Members,
    /// Finished requests, by queue.
    #[serde(rename = "processed_messages_by_queue")]
    pub processed: BTreeMap<String, u64>,
    /// Finished requests, by worker.
    #[serde(rename = "processed_messages_by_worker")]
    pub processed_by_worker: BTreeMap<String, u64>,
}

/// Counters by name, written one by one because there may be very many. Names must be unique.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Members(String);

impl Members {
    /// Adds a counter.
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

/// All workers, and the workers of each queue.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Workers {
    /// By identity.
    #[serde(rename = "connected_workers")]
    pub workers: BTreeMap<String, Worker>,
    /// By queue: weight and identity of its workers; the greatest weight first.
    #[serde(rename = "connected_queues")]
    pub queues: BTreeMap<String, Vec<(i64, String)>>,
}

/// One worker.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Worker {
    /// Weight and name of its queues, as in its `INFORM`.
    pub queues: Vec<(i64, String)>,
    /// Time of its last message, in Unix seconds.
    #[serde(rename = "hb")]
    pub heard: f64,
    /// Jobs it can take at once.
    pub available_slots: u64,
}

/// All schedulers.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Schedulers {
    /// By identity: time of the last message, in Unix seconds.
    #[serde(rename = "connected_schedulers", serialize_with = "as_objects")]
    pub schedulers: BTreeMap<String, f64>,
}

/// Each as an object, like that of a worker.
fn as_objects<S: Serializer>(schedulers: &BTreeMap<String, f64>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(
        schedulers
            .iter()
            .map(|(identity, heard)| (identity, BTreeMap::from([("hb", heard)]))),
    )
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let object = RawValue::from_string(format!("{{{}}}", self.0));
        object.map_err(S::Error::custom)?.serialize(to)
    }
}

/// The text of a report. Serializing cannot fail: keys are strings, values are numbers and lists.
pub fn json(report: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(report).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_released_router() {
        let count = |name: &str, count| BTreeMap::from([(name.to_owned(), count)]);
        let members = |names: &[(&str, u64)]| {
            let mut members = Members::default();
            names
                .iter()
                .for_each(|(name, count)| members.add(name, *count));
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
        assert_eq!(json(&status), expected);

        let worker = Worker {
            queues: vec![(10, "default".into())],
            heard: 1_795_234_453.5,
            available_slots: 2,
        };
        let workers = Workers {
            workers: BTreeMap::from([("id".into(), worker)]),
            queues: BTreeMap::from([("default".into(), vec![(10, "id".into())])]),
        };
        let expected = concat!(
            r#"{"connected_workers":{"id":{"queues":[[10,"default"]],"hb":1795234453.5,"available_slots":2}},"#,
            r#""connected_queues":{"default":[[10,"id"]]}}"#
        );
        assert_eq!(json(&workers), expected);

        let schedulers = Schedulers {
            schedulers: BTreeMap::from([("id".into(), 0.5)]),
        };
        assert_eq!(
            json(&schedulers),
            r#"{"connected_schedulers":{"id":{"hb":0.5}}}"#
        );
        assert_eq!(
            json(&Schedulers::default()),
            r#"{"connected_schedulers":{}}"#
        );
    }
}
