//! What a client has asked and got no answer to.

use windlass_engine::{Command, Take, TakeCommand, Wait};

use super::Held;

/// A question that has no answer yet.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) command: Command,
    pub(super) serial: Option<u64>,
    /// The job that the client has given up with it.
    pub(super) held: Option<Held>,
    /// Look-ups: what must be found.
    pub(super) expects: Option<bool>,
    /// There may be no answer any more.
    pub(super) is_withdrawn: bool,
}

impl Question {
    /// Whether it is a take that may wait for a job.
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
