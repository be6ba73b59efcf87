//! `[queues.NAME]`: rules for the jobs of one queue, independent of their protocol.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_faktory::wire::is_queue_name;
use windlass_session::alias::Aliases;

use super::error::Error;
use super::quantity::{ByteSize, Period};
use super::throttle::{self, Throttle};

/// One queue's rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// How a job's body is converted for a worker of another protocol.
    pub codec: Codec,
    /// Whether workers of all protocols share the queue's jobs (`true`) or each protocol has its own jobs under this name
    /// (`false`). `None`: the patterns of `[bridge]` decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<bool>,
    /// Retries for jobs whose producer sets none, or cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The longest body of a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_bytes_max: Option<ByteSize>,
    /// How many of its jobs may be worked on at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Throttle>,
    /// Patterns of the answers by which EventMQ's workers report a failed job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failure_values: Vec<String>,
    /// Names in protocols that cannot express the queue's name, or use another.
    pub aliases: Names,
}

/// How a body is converted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// One string, in base64 if the body is not text.
    #[default]
    Text,
    /// JSON; a body that is not JSON is an error.
    Json,
    /// One string in base64.
    Base64,
}

/// What a failure does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Retries before the job goes to the dead-letter queue. 0: the first failure removes the job; -1: the first failure
    /// moves it to the dead-letter queue.
    pub count: i32,
    /// The wait after the first failure; it doubles with each further one, up to an hour.
    #[serde(default = "at_once")]
    pub backoff: Period,
}

const fn at_once() -> Period {
    Period::from_ms(0)
}

/// A queue's aliases, by protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Names {
    /// In FWP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faktory: Option<String>,
    /// In Gearman: a function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gearman: Option<String>,
    /// In EventMQ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eventmq: Option<String>,
}

/// Selects a protocol's name.
type NameOf = fn(&Names) -> Option<&String>;

/// The protocols that can have aliases, and the fields with them.
const PROTOCOLS: [(&str, NameOf); 3] = [
    ("faktory", |names| names.faktory.as_ref()),
    ("gearman", |names| names.gearman.as_ref()),
    ("eventmq", |names| names.eventmq.as_ref()),
];

impl Default for Queue {
    fn default() -> Self {
        Self {
            codec: Codec::Text,
            bridge: None,
            retry: None,
            body_bytes_max: None,
            throttle: None,
            failure_values: Vec::new(),
            aliases: Names::default(),
        }
    }
}

/// The aliases of FWP, Gearman and EventMQ, in this order.
///
/// # Errors
///
/// [`Error::Senseless`]: one alias names two queues.
pub fn aliases(queues: &BTreeMap<String, Queue>) -> Result<[Aliases; 3], Error> {
    let mut all = <[Aliases; 3]>::default();
    for (names, (protocol, name_of)) in all.iter_mut().zip(PROTOCOLS) {
        for (queue, rules) in queues {
            let Some(name) = name_of(&rules.aliases) else { continue };
            if !names.insert(name.clone().into(), queue.clone().into()) {
                return Err(senseless(
                    queue,
                    &format!("aliases.{protocol}: {} is already an alias of another queue", name.escape_debug()),
                ));
            }
        }
    }
    Ok(all)
}

/// Checks the rules of all queues. `also` are throttles from another section.
///
/// # Errors
///
/// [`Error::Senseless`], with the queue.
pub(super) fn check(queues: &BTreeMap<String, Queue>, also: &BTreeMap<String, Throttle>) -> Result<(), Error> {
    for (queue, rules) in queues {
        if queue.is_empty() {
            return Err(senseless(queue, "a queue must have a name"));
        }
        if rules.body_bytes_max.is_some_and(|max| u32::try_from(max.0).is_err()) {
            return Err(senseless(queue, "body_bytes_max must be less than 4GiB"));
        }
        if rules.retry.is_some_and(|retry| u32::try_from(retry.backoff.as_ms()).is_err()) {
            return Err(senseless(queue, "retry.backoff is too long"));
        }
        if let Some(throttle) = rules.throttle {
            if also.contains_key(queue) {
                return Err(senseless(queue, "faktory.throttles has a throttle for it as well"));
            }
            throttle::check(&BTreeMap::from([(queue.clone(), throttle)]))
                .map_err(|reason| Error::Senseless { key: "queues", reason })?;
        }
        if let Some(name) = rules.aliases.faktory.as_ref().filter(|name| !is_queue_name(name.as_bytes())) {
            let reason = format!("aliases.faktory: {} is not a valid queue name", name.escape_debug());
            return Err(senseless(queue, &reason));
        }
    }
    aliases(queues).map(drop)
}

fn senseless(queue: &str, reason: &str) -> Error {
    Error::Senseless { key: "queues", reason: format!("{}: {reason}", queue.escape_debug()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(text: &str) -> BTreeMap<String, Queue> {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_queue_without_keys_is_text_and_follows_the_bridge() {
        let queues = queues("[a]\n[b]\ncodec = 'base64'\nbridge = false\n");
        assert_eq!(queues["a"], Queue::default());
        assert_eq!(queues["b"], Queue { codec: Codec::Base64, bridge: Some(false), ..Queue::default() });
    }

    #[test]
    fn errors_name_their_queue() {
        let also = BTreeMap::from([("t".to_owned(), Throttle { worker: Some(1), ..Throttle::default() })]);
        let table = [
            ("[\"\"]", "a queue must have a name"),
            ("[q]\nbody_bytes_max = '5GiB'", "q: body_bytes_max"),
            ("[q]\nretry = { count = 1, backoff = '2000h' }", "q: retry.backoff"),
            ("[t]\nthrottle = { worker = 2 }", "t: faktory.throttles"),
            ("[q]\nthrottle = { worker = 0 }", "q: worker must be more than 0"),
            ("[q]\naliases = { faktory = 'not this' }", "q: aliases.faktory: not this is not a valid queue name"),
            (
                "[a]\naliases.gearman = 'x'\n[b]\naliases.gearman = 'x'",
                "b: aliases.gearman: x is already an alias of another queue",
            ),
        ];
        for (text, expected) in table {
            let error = check(&queues(text), &also).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        check(&queues("[a]\naliases = { faktory = 'x', gearman = 'x' }\nretry.count = 3"), &also).unwrap();
    }

    #[test]
    fn each_protocol_has_its_own_names() {
        let [faktory, gearman, eventmq] =
            aliases(&queues("[\"a b\"]\naliases = { faktory = 'a-b', gearman = 'ab' }")).unwrap();
        let with = |said: &'static str| {
            let mut names = Aliases::default();
            assert!(names.insert(said.into(), "a b".into()));
            names
        };
        assert_eq!((faktory, gearman, eventmq), (with("a-b"), with("ab"), Aliases::default()));
    }
}
