//! Errors in messages, for the log and for counters: eMQP has no error reply.

/// Why a message, or one of its frames, is invalid. The session ignores such a message and goes on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub(crate) String);

impl From<&str> for Fault {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}
