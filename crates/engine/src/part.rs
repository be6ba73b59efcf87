//! Commands that are too long for one visit run in parts: the end of a connection that serves very many queues, or that holds
//! or follows very many jobs.
//!
//! A part leaves everything consistent, as if a client had asked for that much, so other clients can have a turn after it.

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use crate::client::Waiting;
use crate::command::{ClientCommand, Command};
use crate::context::Context;
use crate::engine::Engine;
use crate::ids::{ClientId, JobId, QueueId};
use crate::work::{CHANGE, STEP};

impl Engine {
    /// Runs one page of a command that needs more than a page, and returns whether it did. If it did, call this again, and at
    /// last apply the command itself, before any other command of this client. Call [`Engine::tick`] first: nothing due runs
    /// here.
    pub fn apply_in_part(&mut self, client: ClientId, command: &Command, context: &mut Context) -> bool {
        let limit = self.page(u32::MAX);
        let ends = matches!(command, Command::Client(ClientCommand::Close));
        let gives_back = ends || matches!(command, Command::Client(ClientCommand::UnserveAll { requeue: true }));
        if !ends && !matches!(command, Command::Client(ClientCommand::UnserveAll { .. })) {
            return false;
        }
        let Some(known) = self.clients.get(&client) else { return false };
        if ends && known.blocked().is_some_and(|takes| takes.len() > limit) {
            self.stop_waiting_in_part(client, limit);
        } else if known.subscriptions.len() > limit {
            // A sleeper leaves its queues one by one. Any other client could be given a job meanwhile.
            if ends && (known.credit.left > 0 || !matches!(known.waiting, Waiting::Wake { .. })) {
                self.unwait(client, context);
            }
            self.forget_last_subscriptions(client, limit, context);
        } else if ends && known.hears.len() > limit {
            self.unwait(client, context);
            self.stop_hearing_in_part(client, limit, context);
        } else if gives_back && known.held.len() > limit && (ends || known.blocked().is_none()) {
            // A take that still waits may get such a job, and the next part would give that back, too.
            if ends {
                self.unwait(client, context);
            }
            self.forget_last_subscriptions(client, limit, context);
            let held =
                self.clients.get(&client).map(|known| known.held.iter().copied().take(limit).collect::<Vec<_>>());
            held.unwrap_or_default().into_iter().for_each(|job| self.lose_job(job, context));
        } else {
            return false;
        }
        self.spend(CHANGE * limit as u64);
        true
    }

    /// Ends the last `limit` blocked takes of a client.
    fn stop_waiting_in_part(&mut self, id: ClientId, limit: usize) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Waiting::Jobs(takes) = &mut client.waiting else { return };
        let gone = takes.split_off(takes.len().saturating_sub(limit));
        gone.iter().for_each(|blocked| self.unblock(id, blocked));
    }

    fn stop_hearing_in_part(&mut self, id: ClientId, limit: usize, context: &mut Context) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let jobs: Vec<JobId> = client.hears.keys().copied().take(limit).collect();
        for job in &jobs {
            client.hears.remove(job);
        }
        jobs.into_iter().for_each(|job| self.stop_hearing(job, id, context));
    }

    /// Removes the last `limit` abilities. A client that sleeps or has credits still waits at its other queues, which may
    /// include one that was registered twice.
    fn forget_last_subscriptions(&mut self, id: ClientId, limit: usize, context: &mut Context) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let gone = client.subscriptions.split_off(client.subscriptions.len().saturating_sub(limit));
        let kept = client.subscriptions.iter().map(|served| (served.queue, served.weight));
        let (queues, kept): (HashSet<QueueId, FixedState>, HashSet<(QueueId, u32), FixedState>) =
            kept.map(|(queue, weight)| (queue, (queue, weight))).unzip();
        let protocol = client.info.protocol;
        self.spend(STEP * kept.len() as u64);
        for served in &gone {
            match kept.contains(&(served.queue, served.weight)) {
                true => self.take_unclaimed_no_more(id, *served),
                false => self.wait_no_more_at(id, *served),
            }
        }
        let (still, gone): (Vec<_>, Vec<_>) = gone.into_iter().partition(|served| queues.contains(&served.queue));
        for served in still {
            if let Some(queue) = self.queues.at_mut(served.queue) {
                queue.count_workers(protocol, -1);
            }
        }
        self.forget_served(id, gone, context);
    }
}
