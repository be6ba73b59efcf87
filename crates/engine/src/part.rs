//! What would be too much for one visit is done in parts: the end of a connection that serves very many queues, or holds or
//! follows very many jobs.
//!
//! A part leaves everything as if that much had been asked for by itself, so anybody may have a turn behind it.

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use crate::client::Waiting;
use crate::command::Command;
use crate::engine::Engine;
use crate::ids::{ClientId, JobId, QueueId};
use crate::turn::Turn;
use crate::work::{CHANGE, STEP};

impl Engine {
    /// Does a part of what a command means, a page of it, if all of it is more than that. Says whether it did: then this is
    /// to be asked again, and at last the command itself, before anything else of this client. Whatever is due is for
    /// [`Engine::tick`], which is to be called before.
    pub fn apply_in_part(&mut self, client: ClientId, command: &Command, turn: &mut Turn) -> bool {
        let limit = self.page(u32::MAX);
        let ends = matches!(command, Command::Close);
        let gives_back = ends || matches!(command, Command::UnserveAll { requeue: true });
        if !ends && !matches!(command, Command::UnserveAll { .. }) {
            return false;
        }
        let Some(known) = self.clients.get(&client) else { return false };
        if ends && known.blocked().is_some_and(|takes| takes.len() > limit) {
            self.stop_waiting_in_part(client, limit);
        } else if known.abilities.len() > limit {
            // Whoever sleeps leaves its queues one by one; anybody else might be given something meanwhile.
            if ends && (known.credit.left > 0 || !matches!(known.waiting, Waiting::Wake { .. })) {
                self.unwait(client, turn);
            }
            self.forget_last_abilities(client, limit, turn);
        } else if ends && known.hears.len() > limit {
            self.unwait(client, turn);
            self.stop_hearing_in_part(client, limit, turn);
        } else if gives_back && known.held.len() > limit {
            if ends {
                self.unwait(client, turn);
            }
            self.forget_last_abilities(client, limit, turn);
            let held =
                self.clients.get(&client).map(|known| known.held.iter().copied().take(limit).collect::<Vec<_>>());
            held.unwrap_or_default().into_iter().for_each(|job| self.lose_job(job, turn));
        } else {
            return false;
        }
        self.spend(CHANGE * limit as u64);
        true
    }

    /// The last of its blocked takes wait no more.
    fn stop_waiting_in_part(&mut self, id: ClientId, limit: usize) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Waiting::Jobs(takes) = &mut client.waiting else { return };
        let gone = takes.split_off(takes.len().saturating_sub(limit));
        gone.iter().for_each(|blocked| self.unblock(id, blocked));
    }

    fn stop_hearing_in_part(&mut self, id: ClientId, limit: usize, turn: &mut Turn) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let jobs: Vec<JobId> = client.hears.keys().copied().take(limit).collect();
        for job in &jobs {
            client.hears.remove(job);
        }
        jobs.into_iter().for_each(|job| self.stop_hearing(job, id, turn));
    }

    /// Takes away the abilities that were declared last. Whoever sleeps or has credits still waits at what is left, which may
    /// be a queue that was declared twice.
    fn forget_last_abilities(&mut self, id: ClientId, limit: usize, turn: &mut Turn) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let gone = client.abilities.split_off(client.abilities.len().saturating_sub(limit));
        let kept = client.abilities.iter().map(|served| (served.queue, served.weight));
        let (queues, kept): (HashSet<QueueId, FixedState>, HashSet<(QueueId, u32), FixedState>) =
            kept.map(|(queue, weight)| (queue, (queue, weight))).unzip();
        let origin = client.info.origin;
        self.spend(STEP * kept.len() as u64);
        for served in &gone {
            match kept.contains(&(served.queue, served.weight)) {
                true => self.take_strays_no_more(id, *served),
                false => self.wait_no_more_at(id, *served),
            }
        }
        let (still, gone): (Vec<_>, Vec<_>) = gone.into_iter().partition(|served| queues.contains(&served.queue));
        for served in still {
            if let Some(queue) = self.queues.at_mut(served.queue) {
                queue.count_workers(origin, -1);
            }
        }
        self.forget_served(id, gone, turn);
    }
}
