//! `[queues.NAME]`: rules for the jobs of one queue, or of all queues that match a pattern, in any
//! protocol.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use windlass_bridge::json::tokens;
use windlass_config::{ByteSize, Error, Misplaced, Period, Throttle, Words};
use windlass_engine::{Codec, NewJob, QueueKind, is_pattern};
use windlass_session::alias::Aliases;
use windlass_session::protocol::Protocol;

use super::coalesce::{self, Coalesce};
use super::policy::{Key, PerKey, Rate, is_default, policy};

/// The rules of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// How a job's body is converted for a worker of another protocol.
    #[serde(skip_serializing_if = "is_default")]
    pub codec: Codec,
    /// Whether workers of all protocols share the queue's jobs (`true`) or each protocol has
    /// separate jobs under this name (`false`). `None`: the patterns of `[bridge]` decide.
    pub bridge: Option<bool>,
    /// Retries for jobs whose producer sets none, or cannot.
    pub retry: Option<Retry>,
    /// Maximum length of a job's body.
    pub body_bytes_max: Option<ByteSize>,
    /// Maximum number of running jobs.
    pub throttle: Option<Throttle>,
    /// Maximum rate of starts, over all workers.
    pub rate: Option<Rate>,
    /// The source of a job's key.
    pub key: Option<Key>,
    /// Limits for each key.
    pub per_key: PerKey,
    /// Whether keys are served in turn.
    #[serde(skip_serializing_if = "is_default")]
    pub fair: bool,
    /// The weights of keys that differ from 1.
    pub weights: BTreeMap<String, u32>,
    /// Whether jobs of one key run one at a time, in the order in which they were pushed.
    #[serde(skip_serializing_if = "is_default")]
    pub ordered: bool,
    /// The job that is pushed when a job of this queue dies.
    pub on_dead: Option<OnDead>,
    /// Maximum waiting time of a job.
    pub ttl: Option<Period>,
    /// The retention of dead jobs.
    pub dead: Option<Dead>,
    /// How long a repeated submit is treated as the same job.
    pub dedup: Option<Dedup>,
    /// How submits with one identity are merged into one job.
    pub coalesce: Option<Coalesce>,
    /// What the history keeps of its jobs.
    pub history: Option<History>,
    /// JSON pointers to arguments that readers without the role `operate` do not see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mask: Vec<String>,
    /// Patterns of replies by which workers report a failed job, in protocols without a message for
    /// it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failure_values: Vec<String>,
    /// The queue's name in each protocol that uses another name, or cannot express this one.
    pub aliases: BTreeMap<String, String>,
}

/// The retention of dead jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dead {
    /// Overrides `limits.dead_ttl`.
    pub ttl: Option<Period>,
    /// Maximum number of dead jobs.
    pub max: Option<u32>,
}

/// What the history keeps of the jobs of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct History {
    /// Overrides `history.keep`.
    pub keep: Option<Period>,
    /// Maximum number of bytes of a body.
    pub body: Option<ByteSize>,
    /// Maximum number of bytes of a result.
    pub result: Option<ByteSize>,
    /// Maximum number of bytes that a worker sends before the result.
    pub output: Option<ByteSize>,
}

/// Deduplication of repeated submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dedup {
    /// How long a job is remembered after success.
    pub window: Period,
    /// The identity by which submits are compared.
    #[serde(default)]
    pub by: Identity,
}

/// The identity by which submits are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Identity {
    /// The unique id; in protocols without one, the producer's name for the job.
    #[default]
    Unique,
}

/// The job that reports a dead job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnDead {
    /// Its queue.
    pub queue: String,
    /// Its type for FWP's workers.
    pub jobtype: String,
}

/// The effect of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Number of retries before the job goes to the dead-letter queue. With 0 the first failure
    /// removes the job; with -1 it moves the job to the dead-letter queue.
    pub count: i32,
    /// The delay after the first failure. It doubles with each further failure, up to an hour.
    #[serde(default = "at_once")]
    pub backoff: Period,
}

const fn at_once() -> Period {
    Period::from_ms(0)
}

/// The aliases in one protocol.
///
/// # Errors
///
/// [`Error::Senseless`] if one alias names two queues.
pub fn aliases(queues: &BTreeMap<String, Queue>, protocol: &str) -> Result<Aliases, Error> {
    let mut names = Aliases::default();
    for (queue, rules) in queues {
        let Some(name) = rules.aliases.get(protocol) else {
            continue;
        };
        if !names.insert(name.clone().into(), queue.clone().into()) {
            let name = name.escape_debug();
            let reason = format!("aliases.{protocol}: {name} is already an alias of another queue");
            return Err(senseless(queue, &reason));
        }
    }
    Ok(names)
}

/// Rejects aliases of protocols that have none, while positions in the text are known.
///
/// # Errors
///
/// The position of the first such alias.
pub fn check_text(
    queues: &BTreeMap<String, Queue>,
    protocols: &[Arc<dyn Protocol>],
    text: &str,
) -> Result<(), Misplaced> {
    let known: Vec<&str> = protocols
        .iter()
        .filter(|it| it.alias_rule().is_some())
        .map(|protocol| protocol.name())
        .collect();
    let mut names = queues
        .iter()
        .flat_map(|(queue, rules)| rules.aliases.keys().map(move |name| (queue, name)));
    let Some((queue, name)) = names.find(|(_, name)| !known.contains(&name.as_str())) else {
        return Ok(());
    };
    let message = Words::TOML.of(&format!(
        "unknown field `{name}`, expected one of `{}`",
        known.join("`, `")
    ));
    Err(Misplaced {
        range: place_of_alias(text, queue, name),
        message,
    })
}

/// The position of the protocol's name in an alias.
fn place_of_alias(text: &str, queue: &str, protocol: &str) -> Range<usize> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct File {
        queues: BTreeMap<String, Rules>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Rules {
        aliases: BTreeMap<Spanned<String>, String>,
    }
    let file: File = toml::from_str(text).unwrap_or_default();
    let aliases = file.queues.get(queue).map(|rules| &rules.aliases);
    let name = aliases.and_then(|aliases| aliases.keys().find(|name| name.get_ref() == protocol));
    name.map(Spanned::span).unwrap_or_default()
}

/// Checks the rules of all queues.
///
/// # Errors
///
/// [`Error::Senseless`], with the queue.
pub(super) fn check(
    queues: &BTreeMap<String, Queue>,
    protocols: &[Arc<dyn Protocol>],
) -> Result<(), Error> {
    for (queue, rules) in queues {
        if queue.is_empty() {
            return Err(senseless(queue, "a queue must have a name"));
        }
        if is_pattern(queue.as_bytes()) && (rules.throttle.is_some() || !rules.aliases.is_empty()) {
            return Err(senseless(
                queue,
                "a throttle and aliases require a name without * and ?",
            ));
        }
        if rules
            .body_bytes_max
            .is_some_and(|max| u32::try_from(max.0).is_err())
        {
            return Err(senseless(queue, "body_bytes_max must be less than 4GiB"));
        }
        if rules.ttl.is_some_and(|ttl| ttl.as_ms() == 0) {
            return Err(senseless(queue, "ttl must be more than 0"));
        }
        if rules.dedup.is_some_and(|dedup| dedup.window.as_ms() == 0) {
            return Err(senseless(queue, "dedup.window must be more than 0"));
        }
        if rules
            .retry
            .is_some_and(|retry| u32::try_from(retry.backoff.as_ms()).is_err())
        {
            return Err(senseless(queue, "retry.backoff is too long"));
        }
        if let Some(throttle) = rules.throttle {
            throttle
                .check(queue)
                .map_err(|reason| Error::senseless("queues", reason))?;
        }
        policy(rules).map_err(|reason| senseless(queue, &reason))?;
        check_mask(rules).map_err(|reason| senseless(queue, &reason))?;
        coalesce::check(rules).map_err(|reason| senseless(queue, reason))?;
        if let Some(on_dead) = &rules.on_dead {
            reporter(protocols, on_dead, "{}")
                .map_err(|reason| senseless(queue, &format!("on_dead: {reason}")))?;
        }
        for protocol in protocols {
            check_beside(queue, rules, protocol.as_ref())?;
        }
    }
    protocols
        .iter()
        .try_for_each(|protocol| aliases(queues, protocol.name()).map(drop))
}

/// Pages show the key of each job, so a key must not be what the mask hides.
fn check_mask(rules: &Queue) -> Result<(), String> {
    let is_pointer = |text: &&String| text.is_empty() || text.starts_with('/');
    if let Some(wrong) = rules.mask.iter().find(|text| !is_pointer(text)) {
        let wrong = wrong.escape_debug();
        return Err(format!(
            "mask: {wrong} is not a JSON pointer: it must begin with /"
        ));
    }
    let key = rules.key.as_ref();
    let key = key.and_then(|key| key.args.as_ref().or(key.custom.as_ref()));
    // A mask that goes on behind the key hides the whole of a string there.
    let hides = |mask: &&String| {
        let is_same = |(masked, token): (&String, &String)| masked == "*" || masked == token;
        key.is_some_and(|key| tokens(mask).iter().zip(&tokens(key)).all(is_same))
    };
    match rules.mask.iter().find(hides) {
        Some(mask) => Err(format!(
            "mask: {} hides the key, which pages show",
            mask.escape_debug()
        )),
        None => Ok(()),
    }
}

/// Checks a queue's rules against one protocol's.
fn check_beside(queue: &str, rules: &Queue, protocol: &dyn Protocol) -> Result<(), Error> {
    let throttles = protocol
        .throttles()
        .filter(|(_, throttles)| throttles.contains_key(queue));
    if let Some((key, _)) = throttles.filter(|_| rules.throttle.is_some()) {
        return Err(senseless(
            queue,
            &format!("{key} also sets a throttle for it"),
        ));
    }
    let served = protocol
        .queues()
        .into_iter()
        .find(|served| served.name == queue);
    if let Some(cycle) =
        served.filter(|served| served.kind == QueueKind::Cycle && rules.key.is_some())
    {
        let what =
            "makes it a cycle queue, which supports neither key nor per_key, fair and ordered";
        return Err(senseless(queue, &format!("{} {what}", cycle.key)));
    }
    let (Some(is_alias), Some(name)) = (protocol.alias_rule(), rules.aliases.get(protocol.name()))
    else {
        return Ok(());
    };
    if is_alias(name.as_bytes()) {
        return Ok(());
    }
    let (protocol, name) = (protocol.name(), name.escape_debug());
    Err(senseless(
        queue,
        &format!("aliases.{protocol}: {name} is not a valid queue name"),
    ))
}

/// Makes the job that reports a dead job, with a JSON object.
///
/// # Errors
///
/// The reason why no client could push it.
pub(crate) fn reporter(
    protocols: &[Arc<dyn Protocol>],
    OnDead { queue, jobtype }: &OnDead,
    about: &str,
) -> Result<NewJob, String> {
    let job = protocols
        .iter()
        .find_map(|protocol| protocol.call(queue, jobtype, about));
    job.unwrap_or_else(|| Err("no protocol has jobs with types".to_owned()))
}

pub(super) fn senseless(queue: &str, reason: &str) -> Error {
    Error::senseless("queues", format!("{}: {reason}", queue.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture::config;

    fn queues(text: &str) -> BTreeMap<String, Queue> {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_queue_without_keys_is_text_and_follows_the_bridge() {
        let queues = queues("[a]\n[b]\ncodec = 'base64'\nbridge = false\n");
        assert_eq!(queues["a"], Queue::default());
        assert_eq!(
            queues["b"],
            Queue {
                codec: Codec::Base64,
                bridge: Some(false),
                ..Queue::default()
            }
        );
    }

    #[test]
    fn errors_name_their_queue() {
        let protocols =
            config("faktory.throttles.t.worker = 1\nspiderq = { listen = ['tcp://127.0.0.1:0'], queue = 'c' }")
                .protocols;
        let table = [
            ("[\"\"]", "a queue must have a name"),
            ("[q]\nbody_bytes_max = '5GiB'", "q: body_bytes_max"),
            (
                "[q]\nretry = { count = 1, backoff = '2000h' }",
                "q: retry.backoff",
            ),
            ("[t]\nthrottle = { worker = 2 }", "t: faktory.throttles"),
            (
                "['m-*']\nthrottle = { worker = 1 }",
                "m-*: a throttle and aliases require a name",
            ),
            (
                "['m?']\naliases = { faktory = 'm' }",
                "m?: a throttle and aliases require a name",
            ),
            (
                "[q]\ndedup.window = '0s'",
                "q: dedup.window must be more than 0",
            ),
            (
                "[q]\ndedup.window = '1s'\ncoalesce.quiet = '1s'",
                "q: dedup and coalesce exclude each other",
            ),
            (
                "[q]\ncoalesce = { quiet = '2s', at_most = '1s' }",
                "q: coalesce.at_most must not be less than quiet",
            ),
            (
                "[q]\ncoalesce.by = 'key'",
                "q: coalesce.by = \"key\" requires key",
            ),
            (
                "[q]\nkey.unique = true\ncoalesce.by = 'key'",
                "q: coalesce.by = \"key\" requires a key in the body",
            ),
            (
                "[q]\nmask = ['/0', 'card']",
                "q: mask: card is not a JSON pointer: it must begin with /",
            ),
            (
                "[q]\nmask = ['/0']\nkey.args = '/0/customer'\nfair = true",
                "q: mask: /0 hides the key, which pages show",
            ),
            (
                "[q]\nmask = ['/1', '/*/customer']\nkey.args = '/0/customer'\nfair = true",
                "q: mask: /*/customer hides the key, which pages show",
            ),
            (
                "[q]\nmask = ['/0/customer/id']\nkey.custom = '/0/customer'\nfair = true",
                "q: mask: /0/customer/id hides the key, which pages show",
            ),
            ("[q]\nttl = '0s'", "q: ttl must be more than 0"),
            (
                "[c]\nkey = { prefix = '|' }\nfair = true",
                "c: spiderq.queue makes it a cycle queue",
            ),
            (
                "[q]\nthrottle = { worker = 0 }",
                "q: worker must be more than 0",
            ),
            (
                "[q]\non_dead = { queue = 'a b', jobtype = 'T' }",
                "q: on_dead: ",
            ),
            (
                "[q]\non_dead = { queue = 'a', jobtype = '' }",
                "q: on_dead: ",
            ),
            (
                "[q]\naliases = { faktory = 'not this' }",
                "q: aliases.faktory: not this is not a valid queue name",
            ),
            (
                "[a]\naliases.gearman = 'x'\n[b]\naliases.gearman = 'x'",
                "b: aliases.gearman: x is already an alias of another queue",
            ),
        ];
        for (text, expected) in table {
            let error = check(&queues(text), &protocols).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        check(&queues("[a]\naliases = { faktory = 'x', gearman = 'x' }\nretry.count = 3\non_dead = { queue = 'a', jobtype = 'T' }"), &protocols).unwrap();
        let rest =
            "['c*']\nkey = { prefix = '|' }\nfair = true\n[c]\nrate = { jobs = 1, per = '1s' }";
        check(&queues(rest), &protocols).unwrap();
    }

    #[test]
    fn each_protocol_has_its_own_names() {
        let queues = queues("[\"a b\"]\naliases = { faktory = 'a-b', gearman = 'ab' }");
        let [faktory, gearman, eventmq] =
            ["faktory", "gearman", "eventmq"].map(|protocol| aliases(&queues, protocol).unwrap());
        let with = |said: &'static str| {
            let mut names = Aliases::default();
            assert!(names.insert(said.into(), "a b".into()));
            names
        };
        assert_eq!(
            (faktory, gearman, eventmq),
            (with("a-b"), with("ab"), Aliases::default())
        );
    }

    #[test]
    fn an_alias_in_an_unknown_protocol_shows_where() {
        let protocols = config("").protocols;
        let text = "[queues.a]\naliases.gearman = 'x'\n[queues.b]\naliases = { spiderq = 'y' }\n";
        let misplaced = check_text(&config(text).queues, &protocols, text).unwrap_err();
        assert_eq!(
            misplaced.message,
            "unknown key `spiderq`: there are `faktory`, `gearman` and `eventmq`"
        );
        assert_eq!(&text[misplaced.range], "spiderq");
        let text = "[queues.a]\naliases = { faktory = 'x', gearman = 'x', eventmq = 'x' }\n";
        assert_eq!(check_text(&config(text).queues, &protocols, text), Ok(()));
    }
}
