//! The clients' state according to the edge's ledger and to the leader's engine. When the cluster
//! is idle, both are equal.

use std::collections::{BTreeMap, BTreeSet};

use windlass_engine::{
    Claim, ClientCommand, ClientId, Command, Cursor, Holder, JobId, Query, Reply,
};
use windlass_link::{Edge as EdgeNumber, ToLeader};

use windlass_hub::{Broker as _, Hub};

/// The state of clients, in lines.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientStates {
    clients: BTreeMap<ClientId, BTreeSet<String>>,
    /// Connection-bound leases. A ledger may contain more: jobs that another client has ended.
    held: BTreeSet<(ClientId, JobId)>,
    /// The jobs of the engine.
    jobs: BTreeSet<JobId>,
}

impl ClientStates {
    fn add(&mut self, client: ClientId, line: String) {
        self.clients.entry(client).or_default().insert(line);
    }

    /// The clients that wait for work.
    pub(super) fn waiting(&self) -> impl Iterator<Item = ClientId> {
        let waits = |has: &BTreeSet<String>| has.contains("waits: true");
        self.clients
            .iter()
            .filter(move |(_, has)| waits(has))
            .map(|(client, _)| *client)
    }

    /// The part that concerns an edge's clients.
    pub(super) fn of(&self, edge: EdgeNumber) -> Self {
        let clients = self
            .clients
            .iter()
            .filter(|(client, _)| edge.owns(**client));
        let held = self.held.iter().filter(|(client, _)| edge.owns(*client));
        Self {
            clients: clients
                .map(|(client, has)| (*client, has.clone()))
                .collect(),
            held: held.copied().collect(),
            jobs: self.jobs.clone(),
        }
    }

    /// The differences between a ledger and this state of an engine. A client `may_err` about a
    /// job.
    pub(super) fn difference(
        &self,
        ledger: &Self,
        may_err: impl Fn(ClientId, JobId) -> bool,
        story: impl Fn(JobId) -> String,
    ) -> Option<String> {
        let is_here = |held: &&(ClientId, JobId)| self.jobs.contains(&held.1);
        let errs = |held: &&(ClientId, JobId)| !self.held.contains(held) && may_err(held.0, held.1);
        let held: BTreeSet<_> = ledger
            .held
            .iter()
            .filter(is_here)
            .filter(|held| !errs(held))
            .copied()
            .collect();
        let more: Vec<_> = held.difference(&self.held).copied().collect();
        let less: Vec<_> = self.held.difference(&held).copied().collect();
        let clients: BTreeSet<_> = self.clients.keys().chain(ledger.clients.keys()).collect();
        let other = clients
            .into_iter()
            .find(|client| self.clients.get(client) != ledger.clients.get(client));
        let other =
            other.map(|client| (client, self.clients.get(client), ledger.clients.get(client)));
        let same = more.is_empty() && less.is_empty() && other.is_none();
        let stories: Vec<_> = more
            .iter()
            .chain(&less)
            .map(|(_, job)| story(*job))
            .collect();
        let stories = stories.join("\n    ");
        (!same).then(|| {
            format!("more: {more:?}, less: {less:?}; engine and ledger: {other:?}\n    {stories}")
        })
    }
}

/// The state of clients in the engine.
pub(super) fn engine_has(hub: &Hub) -> ClientStates {
    let (mut has, mut after) = (ClientStates::default(), Some(Cursor::default()));
    while let Some(from) = after.take() {
        let asked = hub.ask(
            Query::Clients {
                after: from,
                limit: 100,
            }
            .into(),
        );
        let Ok(Reply::Clients { rows, next }) = asked else {
            panic!("no list of clients: {asked:?}")
        };
        after = next;
        for row in rows {
            for (at, queue) in row.subscriptions.iter().enumerate() {
                has.add(row.id, format!("{at} serves {}", queue.escape_ascii()));
            }
            has.add(row.id, format!("waits: {}", row.waits));
        }
    }
    hub.with_journal(|engine, _| {
        for job in engine.jobs() {
            has.jobs.insert(job.id);
            if let Some(lease) = job.lease()
                && let Holder::Connection(client) = lease.holder
            {
                has.held.insert((client, job.id));
            }
            for client in job.listeners() {
                has.add(*client, format!("hears {}", job.id.0));
            }
        }
    });
    has
}

/// The state of clients that a ledger claims.
pub(super) fn ledger_has(to_leader: &[ToLeader]) -> ClientStates {
    let mut has = ClientStates::default();
    let mut served: BTreeMap<ClientId, usize> = BTreeMap::new();
    let mut waits: BTreeMap<ClientId, bool> = BTreeMap::new();
    for item in to_leader {
        let Some(client) = item.client() else {
            continue;
        };
        match item {
            ToLeader::Command {
                command: Command::Client(ClientCommand::Open(_)),
                ..
            } => {
                waits.entry(client).or_default();
            }
            ToLeader::Command {
                command: Command::Client(ClientCommand::Serve(subscription)),
                ..
            } => {
                let at = served.entry(client).or_default();
                has.add(
                    client,
                    format!("{at} serves {}", subscription.queue.escape_ascii()),
                );
                *at += 1;
            }
            ToLeader::Command {
                command: Command::Take(_),
                ..
            } => drop(waits.insert(client, true)),
            ToLeader::Claim {
                claim: Claim::Holds { job, .. },
                ..
            } => drop(has.held.insert((client, *job))),
            ToLeader::Claim {
                claim: Claim::Hears { job } | Claim::Pushed { job, .. },
                ..
            } => {
                has.add(client, format!("hears {}", job.0));
            }
            _ => {}
        }
    }
    waits
        .into_iter()
        .for_each(|(client, waits)| has.add(client, format!("waits: {waits}")));
    has
}
