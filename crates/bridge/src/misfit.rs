//! Why a job cannot go to a worker of another protocol.

use std::fmt;

use thiserror::Error;
use windlass_engine::Origin;

use crate::Codec;
use crate::json::DEPTH_MAX;

/// A job that a worker of another protocol cannot be given. It displays as the rule it breaks:
/// `conversion: gearman to faktory, codec json: the body is no JSON`. Nothing of the job itself is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub struct Misfit {
    /// The protocol the job was born in.
    pub from: Origin,
    /// The worker's.
    pub to: Origin,
    /// The queue's codec, where it decides.
    pub codec: Option<Codec>,
    /// The rule.
    #[source]
    pub why: Why,
}

/// The rule that a job breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Why {
    /// No protocol's jobs, or spiderq's entries, which are no jobs.
    #[error("these two do not share jobs")]
    Apart,
    /// The table has no line for it.
    #[error("this codec has no rule for it")]
    NoRule,
    /// Not JSON of at most [`DEPTH_MAX`] levels.
    #[error("the body is no JSON of at most {DEPTH_MAX} levels")]
    NotJson,
    /// Arguments that are more or less than one string of base64 (RFC 4648, section 4).
    #[error("the arguments are not exactly one string in base64")]
    NotBase64,
    /// What is kept of an FWP job, but has no jobtype, or arguments that are no list.
    #[error("the body is no FWP job")]
    NotAUnit,
    /// A queue whose name cannot be a jobtype.
    #[error("the queue's name is not UTF-8")]
    NameNotText,
    /// What EventMQ's stock workers read as text.
    #[error("the body is not UTF-8")]
    NotText,
    /// Anything but `["run", {"path", "callable", "args", …}]`.
    #[error("the body is no EventMQ job")]
    NotACall,
    /// A jobtype that does not say what is to be called, and where.
    #[error("the jobtype is not path.callable")]
    NotACallable,
    /// `custom` has one of the words that go to an EventMQ worker with a value of the wrong kind.
    #[error("custom has no {0}")]
    Custom(&'static str),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conversion: {} to {}", name(self.from), name(self.to))?;
        if let Some(codec) = self.codec {
            let codec = match codec {
                Codec::Text => "text",
                Codec::Json => "json",
                Codec::Base64 => "base64",
            };
            write!(f, ", codec {codec}")?;
        }
        write!(f, ": {}", self.why)
    }
}

/// How a protocol is called, in these texts and in `custom._origin`.
/// What a protocol is called.
#[must_use]
pub const fn name(origin: Origin) -> &'static str {
    match origin {
        Origin::FAKTORY => "faktory",
        Origin::GEARMAN => "gearman",
        Origin::SPIDERQ => "spiderq",
        Origin::EVENTMQ => "eventmq",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_the_text() {
        let (from, to) = (Origin::GEARMAN, Origin::FAKTORY);
        let table = [
            (
                Misfit { from, to, codec: Some(Codec::Json), why: Why::NotJson },
                "conversion: gearman to faktory, codec json: the body is no JSON of at most 128 levels",
            ),
            (
                Misfit { from, to: Origin::EVENTMQ, codec: None, why: Why::NotACall },
                "conversion: gearman to eventmq: the body is no EventMQ job",
            ),
            (
                Misfit { from: to, to: Origin::EVENTMQ, codec: None, why: Why::Custom("kwargs that are an object") },
                "conversion: faktory to eventmq: custom has no kwargs that are an object",
            ),
            (
                Misfit { from: Origin(0), to: Origin::SPIDERQ, codec: None, why: Why::Apart },
                "conversion: unknown to spiderq: these two do not share jobs",
            ),
        ];
        for (misfit, expected) in table {
            assert_eq!(misfit.to_string(), expected);
        }
    }
}
