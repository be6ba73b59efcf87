//! Policies of `[queues.NAME]`, which limit when jobs may start.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_config::Period;
use windlass_engine::{KeySource, Policy};

use super::Queue;
use super::coalesce::By;

/// A rate of starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Starts in each period.
    pub jobs: u32,
    /// The period.
    pub per: Period,
    /// Maximum unused starts that accumulate; default: `jobs`.
    pub burst: Option<u32>,
}

/// The source of a job's key: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Key {
    /// A JSON pointer into FWP's arguments, or into a JSON body.
    pub args: Option<String>,
    /// A JSON pointer into FWP's `custom`, or into a JSON body.
    pub custom: Option<String>,
    /// The coalescing key.
    #[serde(skip_serializing_if = "is_default")]
    pub unique: bool,
    /// With `unique`: only the part before this character.
    pub split: Option<char>,
    /// The part of the body before this character.
    pub prefix: Option<char>,
    /// The value of this header line of the body.
    pub header: Option<String>,
}

/// Limits for each key. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PerKey {
    /// Maximum running jobs.
    pub running: Option<u32>,
    /// Maximum rate of starts.
    pub rate: Option<Rate>,
    /// Maximum waiting jobs when another is submitted.
    pub waiting_max: Option<u32>,
}

/// Defaults are omitted, as in a file; otherwise a reload would list them as new keys.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The policy of a queue, or the default.
///
/// # Errors
///
/// The reason why it is invalid.
pub fn policy(queue: &Queue) -> Result<Policy, String> {
    let PerKey {
        running,
        rate: key_rate,
        waiting_max,
    } = queue.per_key;
    let policy = Policy {
        rate: queue.rate.map(|it| rate("rate", it)).transpose()?,
        key: queue.key.as_ref().map(source).transpose()?,
        key_running_max: positive("per_key.running", running)?,
        key_rate: key_rate.map(|it| rate("per_key.rate", it)).transpose()?,
        key_waiting_max: positive("per_key.waiting_max", waiting_max)?,
        fair: queue.fair,
        weights: weights(&queue.weights)?,
        ordered: queue.ordered,
    };
    if policy.has_keys() && policy.key.is_none() {
        return Err("per_key, fair and ordered require key".to_owned());
    }
    let coalesces = queue.coalesce.is_some_and(|rule| rule.by == By::Key);
    if policy.key.is_some() && !policy.has_keys() && !coalesces {
        return Err("key has no effect without per_key, fair, ordered or coalesce".to_owned());
    }
    if !policy.weights.is_empty() && !policy.fair {
        return Err("weights require fair = true".to_owned());
    }
    if policy.ordered && policy.key_running_max.is_some_and(|max| max > 1) {
        return Err("ordered requires per_key.running = 1".to_owned());
    }
    Ok(policy)
}

/// The keys of `[queues.NAME]` that form a policy.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Rules {
    rate: Option<Rate>,
    key: Option<Key>,
    per_key: PerKey,
    fair: bool,
    weights: BTreeMap<String, u32>,
    ordered: bool,
}

/// Parses a policy in JSON with the keys of `[queues.NAME]`.
///
/// # Errors
///
/// The reason why it is invalid.
pub fn policy_of_json(text: &[u8]) -> Result<Policy, String> {
    let Rules {
        rate,
        key,
        per_key,
        fair,
        weights,
        ordered,
    } = windlass_config::json(text)?;
    policy(&Queue {
        rate,
        key,
        per_key,
        fair,
        weights,
        ordered,
        ..Queue::default()
    })
}

/// Writes a policy as JSON that [`policy_of_json`] can read.
pub fn policy_as_json(policy: &Policy) -> serde_json::Value {
    let rate = |windlass_engine::Rate {
                    jobs,
                    per_ms,
                    burst,
                }: windlass_engine::Rate| Rate {
        jobs,
        per: Period::from_ms(per_ms.into()),
        burst: Some(burst).filter(|burst| *burst != jobs),
    };
    let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let key = |source: &KeySource| match source {
        KeySource::Args(at) => Key {
            args: Some(at.to_string()),
            ..Key::default()
        },
        KeySource::Custom(at) => Key {
            custom: Some(at.to_string()),
            ..Key::default()
        },
        KeySource::Unique(split) => Key {
            unique: true,
            split: split.map(char::from),
            ..Key::default()
        },
        KeySource::Prefix(end) => Key {
            prefix: Some(char::from(*end)),
            ..Key::default()
        },
        KeySource::Header(name) => Key {
            header: Some(name.to_string()),
            ..Key::default()
        },
    };
    let per_key = PerKey {
        running: policy.key_running_max,
        rate: policy.key_rate.map(rate),
        waiting_max: policy.key_waiting_max,
    };
    let section = Queue {
        rate: policy.rate.map(rate),
        key: policy.key.as_ref().map(key),
        per_key,
        fair: policy.fair,
        weights: policy
            .weights
            .iter()
            .map(|(key, weight)| (text(key), *weight))
            .collect(),
        ordered: policy.ordered,
        ..Queue::default()
    };
    let object = serde_json::to_value(section).ok().and_then(given);
    object.unwrap_or_else(|| serde_json::Value::Object(serde_json::Map::new()))
}

/// Removes keys without a value, as in a file.
fn given(value: serde_json::Value) -> Option<serde_json::Value> {
    let serde_json::Value::Object(object) = value else {
        return Some(value).filter(|value| !value.is_null());
    };
    let given: serde_json::Map<_, _> = object
        .into_iter()
        .filter_map(|(key, value)| Some((key, given(value)?)))
        .collect();
    (!given.is_empty()).then_some(serde_json::Value::Object(given))
}

fn rate(name: &str, Rate { jobs, per, burst }: Rate) -> Result<windlass_engine::Rate, String> {
    let per_ms = u32::try_from(per.as_ms()).map_err(|_| format!("{name}.per is too long"))?;
    let burst = burst.unwrap_or(jobs);
    if jobs == 0 || per_ms == 0 || burst == 0 {
        return Err(format!("{name}: jobs, per and burst must be more than 0"));
    }
    Ok(windlass_engine::Rate {
        jobs,
        per_ms,
        burst,
    })
}

fn positive(name: &str, value: Option<u32>) -> Result<Option<u32>, String> {
    if value == Some(0) {
        Err(format!("{name} must be more than 0"))
    } else {
        Ok(value)
    }
}

fn weights(weights: &BTreeMap<String, u32>) -> Result<BTreeMap<bytes::Bytes, u32>, String> {
    const WEIGHT_MAX: u32 = 1_000;
    match weights
        .iter()
        .find(|(_, weight)| !(1..=WEIGHT_MAX).contains(*weight))
    {
        Some((key, _)) => Err(format!(
            "weights.{}: must be from 1 to {WEIGHT_MAX}",
            key.escape_debug()
        )),
        None => Ok(weights
            .iter()
            .map(|(key, weight)| (key.clone().into(), *weight))
            .collect()),
    }
}

fn source(key: &Key) -> Result<KeySource, String> {
    let Key {
        args,
        custom,
        unique,
        split,
        prefix,
        header,
    } = key;
    let pointer = |at: &String| match at.starts_with('/') {
        true => Ok(at.as_str().into()),
        false => Err(format!(
            "key: {} is not a JSON pointer: it must begin with /",
            at.escape_debug()
        )),
    };
    let byte = |end: char| match u8::try_from(end) {
        Ok(byte) if byte.is_ascii() => Ok(byte),
        Ok(_) | Err(_) => Err("key: split and prefix must be one ASCII character".to_owned()),
    };
    let split = split.map(byte).transpose()?;
    if split.is_some() && !unique {
        return Err("key.split requires unique = true".to_owned());
    }
    let mut sources = Vec::new();
    sources.extend(args.as_ref().map(pointer).transpose()?.map(KeySource::Args));
    sources.extend(
        custom
            .as_ref()
            .map(pointer)
            .transpose()?
            .map(KeySource::Custom),
    );
    sources.extend(unique.then_some(KeySource::Unique(split)));
    sources.extend(prefix.map(byte).transpose()?.map(KeySource::Prefix));
    if header
        .as_ref()
        .is_some_and(|name| name.is_empty() || name.contains([':', '\r', '\n']))
    {
        return Err("key.header must be the name of a header line, without the colon".to_owned());
    }
    sources.extend(
        header
            .as_ref()
            .map(|name| KeySource::Header(name.as_str().into())),
    );
    match (sources.pop(), sources.is_empty()) {
        (Some(only), true) => Ok(only),
        _ => Err("key must have exactly one of args, custom, unique, prefix and header".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy_of(text: &str) -> Result<Policy, String> {
        policy(&toml::from_str(text).unwrap())
    }

    #[test]
    fn every_key_of_a_policy_is_read() {
        let text = "rate = { jobs = 100, per = '1m', burst = 20 }\nkey = { args = '/0/tenant' }\nfair = true\n\
                    per_key = { running = 2, rate = { jobs = 10, per = '1s' }, waiting_max = 9 }\nweights = { gold = 5 }";
        let expected = Policy {
            rate: Some(windlass_engine::Rate {
                jobs: 100,
                per_ms: 60_000,
                burst: 20,
            }),
            key: Some(KeySource::Args("/0/tenant".into())),
            key_running_max: Some(2),
            key_rate: Some(windlass_engine::Rate {
                jobs: 10,
                per_ms: 1_000,
                burst: 10,
            }),
            key_waiting_max: Some(9),
            fair: true,
            weights: BTreeMap::from([("gold".into(), 5)]),
            ..Policy::default()
        };
        assert_eq!(policy_of(text), Ok(expected.clone()));
        let json = r#"{"rate": {"jobs": 100, "per": "1m", "burst": 20}, "key": {"args": "/0/tenant"}, "fair": true,
            "per_key": {"running": 2, "rate": {"jobs": 10, "per": "1s"}, "waiting_max": 9}, "weights": {"gold": 5}}"#;
        assert_eq!(policy_of_json(json.as_bytes()), Ok(expected.clone()));
        let back = serde_json::json!({"rate": {"jobs": 100, "per": "1m", "burst": 20}, "key": {"args": "/0/tenant"},
            "per_key": {"running": 2, "rate": {"jobs": 10, "per": "1s"}, "waiting_max": 9}, "fair": true,
            "weights": {"gold": 5}});
        assert_eq!(policy_as_json(&expected), back);
        assert_eq!(policy_as_json(&Policy::default()), serde_json::json!({}));
        let rules = "there are `rate`, `key`, `per_key`, `fair`, `weights` and `ordered`";
        let table = [
            (
                r#"{"codec": "json"}"#,
                format!("unknown key `codec`: {rules}"),
            ),
            (r#"{"rat": {}}"#, format!("unknown key `rat`: {rules}")),
            (
                r#"{"rate": 5}"#,
                "rate: expected an object, not the number 5".to_owned(),
            ),
            (
                r#"{"rate": {"jobs": 5}}"#,
                "rate: the key `per` is missing".to_owned(),
            ),
            (
                r#"{"per_key": {"running": -1}}"#,
                "per_key.running: expected a whole number below 2^32, not the number -1".to_owned(),
            ),
            ("rate=10", "invalid JSON at line 1, column 1".to_owned()),
            ("", "the JSON ends too early".to_owned()),
        ];
        for (json, expected) in table {
            assert_eq!(policy_of_json(json.as_bytes()), Err(expected), "{json}");
        }
        let sources = [
            ("custom = '/t'", KeySource::Custom("/t".into())),
            ("unique = true", KeySource::Unique(None)),
            ("unique = true, split = ':'", KeySource::Unique(Some(b':'))),
            ("prefix = '|'", KeySource::Prefix(b'|')),
            ("header = 'Tenant'", KeySource::Header("Tenant".into())),
        ];
        for (text, source) in sources {
            let policy = policy_of(&format!("key = {{ {text} }}\nordered = true")).unwrap();
            assert_eq!(
                policy_of_json(policy_as_json(&policy).to_string().as_bytes()),
                Ok(policy.clone())
            );
            assert_eq!((policy.key, policy.ordered), (Some(source), true));
        }
        assert_eq!(policy_of(""), Ok(Policy::default()));
    }

    #[test]
    fn a_policy_without_a_meaning_is_refused() {
        let table = [
            (
                "rate = { jobs = 0, per = '1s' }",
                "rate: jobs, per and burst",
            ),
            (
                "rate = { jobs = 1, per = '0s' }",
                "rate: jobs, per and burst",
            ),
            ("rate = { jobs = 1, per = '2000h' }", "rate.per is too long"),
            ("ordered = true", "ordered require key"),
            ("key = { args = '/0' }", "key has no effect"),
            (
                "key = { args = '0' }\nfair = true",
                "key: 0 is not a JSON pointer",
            ),
            (
                "key = { args = '/0', unique = true }\nfair = true",
                "key must have exactly one",
            ),
            ("key = {}\nfair = true", "key must have exactly one"),
            (
                "key = { args = '/0', split = ':' }\nfair = true",
                "key.split requires",
            ),
            ("key = { prefix = 'é' }\nfair = true", "one ASCII character"),
            (
                "key = { unique = true }\nordered = true\nweights = { a = 2 }",
                "weights require fair",
            ),
            (
                "key = { unique = true }\nfair = true\nweights = { a = 0 }",
                "weights.a: must be from 1",
            ),
            (
                "key = { unique = true }\nordered = true\nper_key = { running = 2 }",
                "ordered requires per_key",
            ),
            (
                "key = { header = 'Tenant:' }\nfair = true",
                "without the colon",
            ),
            (
                "key = { unique = true }\nper_key = { running = 0 }",
                "per_key.running must be",
            ),
        ];
        for (text, expected) in table {
            let error = policy_of(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
