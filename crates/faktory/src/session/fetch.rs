//! FETCH: one job for a worker, at once or after a wait.
//!
//! Spec: "`FETCH` Command". As on deployed servers, FETCH waits for jobs of all queues of the list, not only of the
//! first.

use bytes::Bytes;
use windlass_bridge::{Bridge, Unconvertible};
use windlass_engine::{
    From, JobRef, LeaseCommand, LeaseTerms, OnExpiry, Proof, Reply, Select, Take, TakeCommand,
    Taken, Timestamp, Wait,
};

use super::ask::{Ask, Fetch};
use super::shown::{Source, failure_text};
use super::{FaktorySpeaker, Talk};
use crate::wire::{Text, is_queue_name, reply};

/// A worker's time for a job without `reserve_for`, in milliseconds.
const RESERVE_MS: u64 = 1_800_000;

/// Waits of FETCH end at common moments, one of this many parts of the wait apart. Then a turn of a thread answers many
/// idle workers, and each costs less of it.
const TOGETHER_PARTS: u64 = 40;

impl FaktorySpeaker {
    pub(super) fn fetch(&self, queues: Option<Vec<Bytes>>, talk: &mut Talk<'_>) {
        let Some(queues) = queues else {
            return reply::error("must call fetch with at least one queue", talk.bytes());
        };
        // Skip names that FWP does not allow, even if another protocol has such a queue.
        let queues = queues
            .into_iter()
            .filter(|name| is_queue_name(name))
            .collect();
        self.take(
            Fetch {
                queues,
                until: wait_until(talk.now(), self.settings.section.fetch_wait.as_ms()),
            },
            talk,
        );
    }

    fn take(&self, fetch: Fetch, talk: &mut Talk<'_>) {
        let on_expiry = OnExpiry::Fail;
        let lease = LeaseTerms {
            connection_bound: false,
            lease_ms: Some(RESERVE_MS),
            on_expiry,
            wish: Some(on_expiry),
        };
        let take = Take {
            from: From::Listed {
                queues: fetch.queues.clone(),
                lease,
            },
            select: Select::ListOrder,
            wait: Wait::Until(fetch.until),
            worker: self.wid.clone(),
        };
        talk.ask(Ask::Fetch(fetch), TakeCommand::Take(take));
    }

    pub(super) fn fetched(&self, fetch: Fetch, reply: &Reply, talk: &mut Talk<'_>) {
        let Reply::Taken(job) = reply else {
            return reply::null(talk.bytes());
        };
        if let Err(misfit) = deliver(&self.settings.bridge, job, talk) {
            // FWP cannot express this job: return it for workers of other protocols, and wait for another one.
            let (job, proof) = (JobRef::Id(job.id), Proof::Token(job.token));
            talk.send(LeaseCommand::Unconvertible {
                job,
                proof,
                why: misfit.to_string().into(),
            });
            self.take(fetch, talk);
        }
    }
}

/// The next common moment at which a wait of this length has passed.
fn wait_until(now: Timestamp, wait_ms: u64) -> Timestamp {
    let Timestamp(at) = now.after_ms(wait_ms);
    Timestamp(
        at.checked_next_multiple_of((wait_ms / TOGETHER_PARTS).max(1))
            .unwrap_or(at),
    )
}

fn deliver(bridge: &Bridge, job: &Taken, talk: &mut Talk<'_>) -> Result<(), Unconvertible> {
    let failure = failure_text(
        job.failure.as_deref(),
        job.failures,
        job.failures_max,
        job.ready_at,
    );
    let source = Source {
        id: job.id,
        protocol: job.protocol,
        named: !job.name.is_empty(),
        queue: &job.queue,
        body: &job.body,
        codec: job.codec,
        key: &job.key,
        priority: job.priority,
        retries: job.failures_max,
        since: job.ready_at,
    };
    let body = source.text(bridge)?;
    match Text::new(&body) {
        Some(text) => text.deliver(failure.as_ref(), Some(job.ready_at.0), talk.bytes()),
        None => reply::bulk(&body, talk.bytes()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_end_together_and_not_early() {
        let table = [
            (1_000, 2_000, 3_000),
            (1_001, 2_000, 3_050),
            (1_050, 2_000, 3_050),
            (1_051, 2_000, 3_100),
            (7, 1, 8),
            (7, 79, 86),
            (7, 80, 88),
            (u64::MAX - 1, 2_000, u64::MAX),
        ];
        for (now, wait_ms, expected) in table {
            assert_eq!(
                wait_until(Timestamp(now), wait_ms),
                Timestamp(expected),
                "{now} {wait_ms}"
            );
        }
    }
}
