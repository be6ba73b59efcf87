//! Unanswered requests of a client.

use windlass_engine::{Command, Take, TakeCommand, Wait};

use super::Held;

/// A request without a reply yet.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) command: Command,
    pub(super) serial: Option<u64>,
    /// The job that the client gives up with it.
    pub(super) held: Option<Held>,
    /// For look-ups: the required result.
    pub(super) expects: Option<bool>,
    /// Whether the reply may be missing.
    pub(super) is_withdrawn: bool,
}

impl Question {
    /// Whether this is a take that may wait for a job.
    pub(super) const fn may_wait(&self) -> bool {
        let Command::Take(TakeCommand::Take(Take { wait, .. })) = &self.command else {
            return false;
        };
        !matches!(wait, Wait::No)
    }

    pub(super) const fn waits_forever(&self) -> bool {
        matches!(
            &self.command,
            Command::Take(TakeCommand::Take(Take {
                wait: Wait::Forever,
                ..
            }))
        )
    }
}
