//! `[queues.NAME]`: what holds for the jobs of one queue, whatever protocol they come from.

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
    /// What a job's bytes become for a worker of another protocol.
    pub codec: Codec,
    /// Whether workers of all protocols share its jobs, or each protocol has its own under this name. Not said: it is up to the
    /// patterns of `[bridge]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<bool>,
    /// What failure means for jobs whose producer cannot say, or has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The longest body of a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_bytes_max: Option<ByteSize>,
    /// How much of it may be worked on at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Throttle>,
    /// Patterns of what EventMQ's workers answer when a job has failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failure_values: Vec<String>,
    /// What protocols call it that cannot, or are not to, say its name.
    pub aliases: Names,
}

/// What a job's bytes become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// One string, in base64 where they are no text.
    #[default]
    Text,
    /// JSON, which they must be.
    Json,
    /// One string in base64.
    Base64,
}

/// What failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Failures survived; then the job is in the dead set. 0: the first one ends it, and it is gone; -1: it is in the dead set.
    pub count: i32,
    /// The wait after the first of them; it doubles each time, up to an hour.
    #[serde(default = "at_once")]
    pub backoff: Period,
}

const fn at_once() -> Period {
    Period::from_ms(0)
}

/// A queue's other names, by protocol.
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

/// Chooses a protocol's name.
type NameOf = fn(&Names) -> Option<&String>;

/// The protocols that have other names, and where those stand.
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

/// What FWP, Gearman and EventMQ call queues whose own names they do not say, in this order.
///
/// # Errors
///
/// [`Error::Senseless`]: one name means two queues.
pub fn aliases(queues: &BTreeMap<String, Queue>) -> Result<[Aliases; 3], Error> {
    let mut all = <[Aliases; 3]>::default();
    for (names, (protocol, name_of)) in all.iter_mut().zip(PROTOCOLS) {
        for (queue, rules) in queues {
            let Some(name) = name_of(&rules.aliases) else { continue };
            if !names.insert(name.clone().into(), queue.clone().into()) {
                return Err(senseless(
                    queue,
                    &format!("aliases.{protocol}: {} is another's already", name.escape_debug()),
                ));
            }
        }
    }
    Ok(all)
}

/// Looks for what makes no sense. `also` are throttles that are set elsewhere.
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
            return Err(senseless(queue, "body_bytes_max: 4GiB and more cannot be"));
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
            return Err(senseless(queue, &format!("aliases.faktory: {} is no name there", name.escape_debug())));
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
    fn what_is_not_said_is_text_and_up_to_the_bridge() {
        let queues = queues("[a]\n[b]\ncodec = 'base64'\nbridge = false\n");
        assert_eq!(queues["a"], Queue::default());
        assert_eq!(queues["b"], Queue { codec: Codec::Base64, bridge: Some(false), ..Queue::default() });
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_queue() {
        let also = BTreeMap::from([("t".to_owned(), Throttle { worker: Some(1), ..Throttle::default() })]);
        let table = [
            ("[\"\"]", "a queue must have a name"),
            ("[q]\nbody_bytes_max = '5GiB'", "q: body_bytes_max"),
            ("[q]\nretry = { count = 1, backoff = '2000h' }", "q: retry.backoff"),
            ("[t]\nthrottle = { worker = 2 }", "t: faktory.throttles"),
            ("[q]\nthrottle = { worker = 0 }", "q: worker must be more than 0"),
            ("[q]\naliases = { faktory = 'not this' }", "q: aliases.faktory: not this is no name there"),
            ("[a]\naliases.gearman = 'x'\n[b]\naliases.gearman = 'x'", "b: aliases.gearman: x is another's already"),
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
