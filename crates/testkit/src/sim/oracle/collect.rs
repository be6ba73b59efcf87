//! Ends of jobs for clients that come back.

use bytes::Bytes;
use windlass_engine::{
    ClientId, Cursor, End, Failure, JobId, JobState, LOSSES, Notice, Refusal, Reply,
};

use super::memo::COLLECTED_WITHIN_MS;
use super::{Answer, JobMemo, Oracle};

impl JobMemo {
    /// How it ended, if it is dead or done.
    pub(super) fn end(&self) -> End {
        let (is_dead, by) = (
            matches!(self.job.state, JobState::Dead(_)),
            self.job.protocol,
        );
        let extra = self.job.extra.as_deref().cloned().unwrap_or_default();
        match (extra.result, extra.failure) {
            (Some(result), _) => End::Succeeded {
                result,
                by: extra.result_by.or(Some(by)),
            },
            (None, Some(failure)) if failure.kind == "ReservationExpired" => End::TimedOut,
            (None, Some(failure)) if failure.kind == LOSSES => End::Lost,
            (None, Some(failure)) => End::Failed(failure),
            (None, None) if extra.losses > 0 => End::Lost,
            (None, None) if is_dead => End::Cancelled,
            (None, None) => End::Expired,
        }
    }
}

impl Oracle {
    /// A client collects the ends of the jobs that have its name.
    pub(super) fn collect(&mut self, client: ClientId, name: &[u8], from: JobId) -> Answer {
        self.open_client(client)?;
        let own = self.protocol_of(client).ok_or(Refusal::OutOfPlace)?;
        let is_its = |memo: &&JobMemo| {
            memo.job.protocol == own && !name.is_empty() && memo.collector() == name
        };
        let mut found: Vec<_> = self
            .jobs
            .iter()
            .filter(is_its)
            .map(|memo| memo.job.id)
            .collect();
        found.retain(|id| *id >= from);
        found.sort_unstable();
        let page = self.page(u32::MAX);
        let next = found.get(page).map(|id| Cursor(id.0, 0));
        found.truncate(page);
        found.iter().for_each(|id| self.collect_one(client, *id));
        Ok(Some(Reply::Counted {
            jobs: u32::try_from(found.len()).unwrap_or(u32::MAX),
            next,
        }))
    }

    fn collect_one(&mut self, client: ClientId, id: JobId) {
        let queue = self.job_mut(id).job.queue;
        let since = self
            .now
            .after_ms(self.dead_ms(queue).saturating_sub(COLLECTED_WITHIN_MS));
        let memo = self.job_mut(id);
        let key = Bytes::copy_from_slice(memo.job.key().unwrap_or_default());
        let (listens, state) = (
            memo.job.listeners().contains(&client),
            memo.job.state.clone(),
        );
        let end = match state {
            JobState::Dead(until) if until <= since => return self.see("Collect::TooLate"),
            JobState::Dead(_) | JobState::Done(_) => Some(Box::new(self.hand_over(id))),
            _ if listens || self.listen(client, id).is_err() => return,
            _ => None,
        };
        self.see(if end.is_some() {
            "Collect::Ended"
        } else {
            "Collect::Lives"
        });
        self.notify(client, Notice::Collected { job: id, key, end });
    }

    /// The end of a job, which is not kept for its client any more.
    fn hand_over(&mut self, id: JobId) -> End {
        let memo = self.job_mut(id);
        let (is_dead, end) = (matches!(memo.job.state, JobState::Dead(_)), memo.end());
        let extra = memo.extra();
        extra.collector = Bytes::new();
        let stays = is_dead || extra.result_keep_ms > 0 || extra.track.is_some();
        if !stays {
            self.remove(id);
        }
        end
    }

    /// Whether there is room for the end of one more job: an eighth of what all jobs may have.
    pub(super) fn may_keep(&self, end: &End) -> bool {
        let kept = self
            .jobs
            .iter()
            .filter(|memo| matches!(memo.job.state, JobState::Done(_)));
        let kept: u64 = kept
            .filter(|memo| !memo.collector().is_empty())
            .map(|memo| memo.job.weight_bytes())
            .sum();
        let bytes = match end {
            End::Succeeded { result, .. } => result.len(),
            End::Failed(failure) => size(failure),
            End::Lost | End::TimedOut | End::Expired | End::Cancelled => 0,
        };
        bytes as u64 <= (self.limits.jobs_bytes_max / 8).saturating_sub(kept)
    }
}

fn size(failure: &Failure) -> usize {
    let lines: usize = failure
        .backtrace
        .iter()
        .map(|line| size_of::<Bytes>() + line.len())
        .sum();
    failure.kind.len() + failure.message.len() + lines
}
