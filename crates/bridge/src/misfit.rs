//! Conversion errors: why a job cannot go to a worker of another protocol.

use std::fmt;

use thiserror::Error;
use windlass_engine::Protocol;

use crate::Codec;
use crate::json::DEPTH_MAX;

/// A job that cannot be converted for a worker of another protocol. Its text is the violated rule, as in
/// `conversion: gearman to eventmq: the body is no EventMQ job`, and contains nothing of the job itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub struct Unconvertible {
    /// The job's protocol.
    pub from: Protocol,
    /// The worker's protocol.
    pub to: Protocol,
    /// The queue's codec, where it matters.
    pub codec: Option<Codec>,
    /// The violated rule.
    #[source]
    pub why: Why,
}

/// The rule that a job violates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Why {
    /// An unknown protocol, or an entry of spiderq; neither crosses protocols.
    #[error("these two do not share jobs")]
    Apart,
    /// The codec does not support this direction.
    #[error("this codec has no rule for it")]
    NoRule,
    /// Not JSON of at most [`DEPTH_MAX`] levels.
    #[error("the body is no JSON of at most {DEPTH_MAX} levels")]
    NotJson,
    /// Arguments other than exactly one string in base64 (RFC 4648, section 4).
    #[error("the arguments are not exactly one string in base64")]
    NotBase64,
    /// The text kept of an FWP job has no jobtype, or arguments that are not a list.
    #[error("the body is no FWP job")]
    NotAUnit,
    /// A queue whose name is not valid as a jobtype.
    #[error("the queue's name is not UTF-8")]
    NameNotText,
    /// A body that stock EventMQ workers cannot read as text.
    #[error("the body is not UTF-8")]
    NotText,
    /// Anything but `["run", {"path", "callable", "args", …}]`.
    #[error("the body is no EventMQ job")]
    NotACall,
    /// A jobtype without a path or a callable.
    #[error("the jobtype is not path.callable")]
    NotACallable,
    /// A member of `custom` for EventMQ workers has a value of the wrong kind.
    #[error("custom has no {0}")]
    Custom(&'static str),
}

impl fmt::Display for Unconvertible {
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

/// The name of a protocol in these texts and in `custom._origin`.
#[must_use]
pub const fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::FAKTORY => "faktory",
        Protocol::GEARMAN => "gearman",
        Protocol::SPIDERQ => "spiderq",
        Protocol::EVENTMQ => "eventmq",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_the_text() {
        let (from, to) = (Protocol::GEARMAN, Protocol::FAKTORY);
        let table = [
            (
                Unconvertible { from, to, codec: Some(Codec::Json), why: Why::NotJson },
                "conversion: gearman to faktory, codec json: the body is no JSON of at most 128 levels",
            ),
            (
                Unconvertible { from, to: Protocol::EVENTMQ, codec: None, why: Why::NotACall },
                "conversion: gearman to eventmq: the body is no EventMQ job",
            ),
            (
                Unconvertible {
                    from: to,
                    to: Protocol::EVENTMQ,
                    codec: None,
                    why: Why::Custom("kwargs that are an object"),
                },
                "conversion: faktory to eventmq: custom has no kwargs that are an object",
            ),
            (
                Unconvertible { from: Protocol(0), to: Protocol::SPIDERQ, codec: None, why: Why::Apart },
                "conversion: unknown to spiderq: these two do not share jobs",
            ),
        ];
        for (misfit, expected) in table {
            assert_eq!(misfit.to_string(), expected);
        }
    }
}
