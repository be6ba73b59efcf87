//! Conversion errors: why a job cannot go to a worker of another protocol.

use std::fmt;

use thiserror::Error;

use crate::Codec;
use crate::json::DEPTH_MAX;

/// A job that cannot be converted for a worker of another protocol. Its text is the violated rule, as in
/// `conversion: ONE to OTHER: the queue's name is not UTF-8`, and contains nothing of the job itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub struct Unconvertible {
    /// The name of the job's protocol.
    pub from: &'static str,
    /// The name of the worker's protocol.
    pub to: &'static str,
    /// The queue's codec, where it matters.
    pub codec: Option<Codec>,
    /// The violated rule.
    #[source]
    pub why: Why,
}

/// Why a job has no such form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The violated rule.
    pub why: Why,
    /// The queue's codec matters.
    pub depends_on_codec: bool,
}

impl Fault {
    /// A rule that holds under every codec.
    pub const fn of(why: Why) -> Self {
        Self {
            why,
            depends_on_codec: false,
        }
    }

    /// A rule of the queue's codec.
    pub const fn under_codec(why: Why) -> Self {
        Self {
            why,
            depends_on_codec: true,
        }
    }
}

/// The rule that a job violates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Why {
    /// An unknown protocol, or one whose jobs never cross.
    #[error("these protocols do not share jobs")]
    Apart,
    /// The codec does not support this direction.
    #[error("the queue's codec cannot convert this body")]
    NoRule,
    /// Not JSON of at most [`DEPTH_MAX`] levels.
    #[error("invalid JSON, or nested deeper than {DEPTH_MAX} levels")]
    NotJson,
    /// A rule of one protocol.
    #[error("{0}")]
    Rule(&'static str),
}

impl fmt::Display for Unconvertible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conversion: {} to {}", self.from, self.to)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_the_text() {
        let table = [
            (
                Some(Codec::Json),
                Why::NotJson,
                ", codec json: invalid JSON, or nested deeper than 128 levels",
            ),
            (None, Why::Apart, ": these protocols do not share jobs"),
            (
                None,
                Why::Rule("the body is too blue"),
                ": the body is too blue",
            ),
        ];
        for (codec, why, expected) in table {
            let error = Unconvertible {
                from: "one",
                to: "other",
                codec,
                why,
            };
            assert_eq!(
                error.to_string(),
                format!("conversion: one to other{expected}")
            );
        }
    }
}
