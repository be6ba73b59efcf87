//! The waits of a claim, and its commands.

use windlass_engine::{ClientId, Command, Tag, TakeCommand};

use crate::to_leader::ToLeader;

/// A command of a claim.
pub(super) fn command(client: ClientId, tag: Tag, command: impl Into<Command>) -> ToLeader {
    ToLeader::Command {
        client,
        tag,
        command: command.into(),
    }
}

/// The waits of all clients.
#[derive(Debug, Default)]
pub(super) struct Waits(Vec<(u64, ClientId, Tag, TakeCommand)>);

impl Waits {
    /// Adds the wait that has this turn.
    pub(super) fn add(&mut self, turn: u64, client: ClientId, tag: Tag, wait: TakeCommand) {
        self.0.push((turn, client, tag, wait));
    }

    /// In the order of their turns.
    pub(super) fn into_asks(mut self) -> impl Iterator<Item = ToLeader> {
        self.0.sort_by_key(|(turn, ..)| *turn);
        self.0
            .into_iter()
            .map(|(_, client, tag, wait)| command(client, tag, wait))
    }
}
