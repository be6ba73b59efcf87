//! When the cluster is idle, a leader and its edges agree on the clients' state.

use std::collections::BTreeSet;

use windlass_engine::ClientId;

use super::super::client::Client;
use super::super::ledger;
use super::World;

impl World {
    /// Clients with unlimited waits must be waiting at the leader.
    pub(super) fn find_waits(&mut self) {
        let Self {
            around, daemons, ..
        } = self;
        let Some(at) = daemons.iter().position(|daemon| daemon.leads().is_some()) else {
            return;
        };
        let (now, own) = (around.now, daemons[at].run());
        let has = daemons[at].on(now, |leader| {
            leader.leads().map(|room| ledger::engine_has(&room.hub))
        });
        let waiting = has.iter().flat_map(ledger::ClientStates::waiting);
        let waiting: BTreeSet<_> = waiting.filter_map(|it| around.whose(own, it)).collect();
        let must_wait = around
            .clients
            .values()
            .filter(|client| client.is_open() && client.waits_forever());
        let (must_wait, lost): (Vec<_>, Vec<_>) = must_wait
            .map(Client::who)
            .partition(|who| waiting.contains(who));
        around
            .tally
            .note_many("a client waits for ever", must_wait.len() as u64);
        if !lost.is_empty() {
            around.laws.is_broken(|| {
                format!("{lost:?} wait for ever, and the leader knows nothing of it")
            });
        }
    }

    /// The ledger of each edge must equal the leader's list of that edge's clients.
    pub(super) fn compare_ledgers(&mut self) {
        let Self {
            around, daemons, ..
        } = self;
        let Some(at) = daemons.iter().position(|daemon| daemon.leads().is_some()) else {
            return;
        };
        let now = around.now;
        let engine = daemons[at].on(now, |leader| {
            leader.leads().map(|room| ledger::engine_has(&room.hub))
        });
        for (index, daemon) in daemons
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| *index != at)
        {
            let edge = daemon.broker().edge();
            let Some(number) = edge.known().map(|known| known.edge) else {
                continue;
            };
            let has = ledger::ledger_has(&edge.claims());
            let run = daemon.run();
            let own = |client: ClientId| (run, ClientId(client.0 ^ number.first_client().0));
            let may_err = |client, job| around.laws.may_err(own(client), job);
            let story = |job| around.laws.story_of(job);
            let differs = engine
                .as_ref()
                .and_then(|engine| engine.of(number).difference(&has, may_err, story));
            if let Some(how) = differs {
                around.laws.is_broken(|| {
                    format!("the ledger of {index} is not what the leader has: {how}")
                });
            }
            around.tally.note("a ledger is compared");
        }
    }
}
