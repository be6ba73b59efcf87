//! Jobs in flight to the peer. When the connection closes, jobs that the peer has certainly not
//! received are requeued without counting as lost.

use std::collections::VecDeque;
use std::sync::Arc;

use windlass_engine::{Event, JobId, Token};

use windlass_hub::{Budget, Hold};

/// The jobs in sending order. Positions count all output bytes since the connection opened.
#[derive(Debug, Default)]
pub(super) struct HandOuts {
    jobs: VecDeque<HandOut>,
    /// Bytes of their bodies, as far as the budget counts them.
    bytes: usize,
}

#[derive(Debug)]
struct HandOut {
    job: JobId,
    token: Token,
    begins_at: u64,
    /// `None` until the output contains all of it.
    ends_at: Option<u64>,
    hold: Option<Arc<Hold>>,
}

impl HandOuts {
    /// Called before an event is encoded at this position, where the previous one ends.
    pub(super) fn begin(&mut self, event: &Event, begins_at: u64, budget: &Arc<Budget>) {
        let Some(job) = event.handed_out() else {
            return;
        };
        self.end(begins_at);
        let hold = Hold::on(event, &mut None, budget);
        self.bytes += hold.as_deref().map_or(0, Hold::bytes);
        self.jobs.push_back(HandOut {
            job: job.id,
            token: job.token,
            begins_at,
            ends_at: None,
            hold,
        });
    }

    /// Called when the output contains everything begun and ends at this position.
    pub(super) fn end(&mut self, position: u64) {
        if let Some(HandOut {
            ends_at: end @ None,
            ..
        }) = self.jobs.back_mut()
        {
            *end = Some(position);
        }
    }

    /// Called when the output is written up to this position. Returns the number of fully written
    /// jobs that the budget counts.
    pub(super) fn written(&mut self, position: u64) -> u32 {
        let mut left = 0;
        while self
            .jobs
            .front()
            .is_some_and(|job| job.ends_at.is_some_and(|end| end <= position))
            && let Some(job) = self.jobs.pop_front()
        {
            self.bytes -= job.hold.as_deref().map_or(0, Hold::bytes);
            left += u32::from(job.hold.is_some());
        }
        left
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Bytes of the output that the budget counts as jobs.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Called when the output was written up to this position and no further. Returns the jobs of
    /// which the peer has received nothing; with `and_parts`, also partially received ones.
    pub(super) fn unsent(
        &mut self,
        position: u64,
        and_parts: bool,
    ) -> impl Iterator<Item = (JobId, Token)> {
        self.bytes = 0;
        let jobs = std::mem::take(&mut self.jobs).into_iter();
        jobs.filter(move |job| and_parts || job.begins_at >= position)
            .map(|job| (job.job, job.token))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use bytes::Bytes;
    use windlass_engine::{Notice, Protocol, Taken, Timestamp};

    use super::*;
    use crate::connection::in_hand::{InHand, Script};
    use windlass_hub::{Mail, SMALL_BYTES, clock};

    pub(in crate::connection) fn job(number: u64, bytes: usize) -> Event {
        let name = Bytes::new;
        Event::Notice(Notice::Delivered(Box::new(Taken {
            id: JobId(number),
            token: Token(number),
            queue: name(),
            protocol: Protocol::GEARMAN,
            priority: Default::default(),
            body: Bytes::from(vec![7; bytes]),
            stored: None,
            codec: Default::default(),
            name: name(),
            meta: name(),
            key: name(),
            attempts: 1,
            failures: 0,
            failures_max: 0,
            failure: None,
            ready_at: Timestamp(0),
            until: Timestamp::NEVER,
            connection_bound: true,
            heard: false,
        })))
    }

    #[test]
    fn jobs_count_until_they_are_written_and_go_back_if_they_have_not_begun_to_leave() {
        for (written, and_parts, left, held) in [
            (0, false, &[1, 2, 3][..], 2 * SMALL_BYTES),
            (1, false, &[2, 3], 2 * SMALL_BYTES),
            (1, true, &[1, 2, 3], 2 * SMALL_BYTES),
            (100, false, &[2, 3], SMALL_BYTES),
            (150, false, &[3], SMALL_BYTES),
            (150, true, &[2, 3], SMALL_BYTES),
            (300, true, &[], 0),
        ] {
            let (budget, mut jobs) = (Arc::new(Budget::new(1 << 20)), HandOuts::default());
            let room = budget.room();
            for (number, bytes) in [(1, SMALL_BYTES), (2, SMALL_BYTES), (3, SMALL_BYTES - 1)] {
                jobs.begin(&job(number, bytes), 100 * (number - 1), &budget);
                jobs.end(100 * number);
            }
            jobs.written(written);
            let (counted, taken) = (jobs.bytes(), room - budget.room());
            assert_eq!((counted, taken), (held, held as u64), "{written}");
            let found: Vec<u64> = jobs
                .unsent(written, and_parts)
                .map(|(job, _)| job.0)
                .collect();
            assert_eq!(found, left, "{written} {and_parts}");
            assert_eq!(budget.room(), room);
        }
    }

    #[test]
    fn a_job_that_is_not_all_in_the_output_has_not_left() {
        let (budget, mut jobs) = (Arc::new(Budget::new(1 << 20)), HandOuts::default());
        jobs.begin(&job(1, 9), 0, &budget);
        jobs.written(50);
        assert!(!jobs.is_empty());
        jobs.end(60);
        jobs.written(60);
        assert!(jobs.is_empty());
    }

    /// A large job is in flight to the peer.
    fn gets_a_job(it: &mut InHand, at: u64) -> String {
        let event = job(1, SMALL_BYTES);
        let hold = Hold::on(&event, &mut None, &it.budget);
        it.desk.mailbox().push(0, Mail::Event(event), hold);
        it.turn(at)
    }

    /// The kernel reports a writable socket only when much of its buffer is free, but accepts bytes
    /// earlier. A turn may also be long.
    #[test]
    fn a_peer_that_takes_its_jobs_slowly_is_not_disconnected() {
        let mut it = InHand::open(Script::default());
        it.takes(0);
        gets_a_job(&mut it, 2000);
        it.budget.cut_stalled(Timestamp(4000));
        it.wire().takes = 1;
        assert_eq!(
            (it.turn(4000), &it.wire().written[..]),
            ("no time".to_owned(), &b"!"[..]),
            "the kernel has reported nothing"
        );
        // The thread stalls for ten seconds between the start of the turn and the write.
        let now = clock::now();
        it.takes(0);
        gets_a_job(&mut it, now.0 - 10_000);
        it.takes(1);
        gets_a_job(&mut it, now.0 - 10_000);
        it.budget.cut_stalled(clock::now());
        assert_eq!(it.turn(now.0), "no time", "it was offered bytes just now");
    }

    /// The thread may have been blocked, for example in a commit, and not the peer.
    #[test]
    fn a_peer_with_jobs_is_disconnected_if_it_takes_nothing_of_them_when_the_connection_tries_again()
     {
        let mut it = InHand::open(Script::default());
        it.takes(0);
        assert_eq!(gets_a_job(&mut it, 2000), "no time");
        it.budget.cut_stalled(Timestamp(4000));
        it.takes(1);
        assert_eq!(
            (it.turn(4000), &it.wire().written[..]),
            ("no time".to_owned(), &b"!"[..]),
            "it takes the job now"
        );
        it.takes(0);
        assert_eq!(gets_a_job(&mut it, 5000), "no time");
        it.budget.cut_stalled(Timestamp(6999));
        assert_eq!(
            it.turn(7000),
            "no time",
            "it was not too slow when others waited"
        );
        it.budget.cut_stalled(Timestamp(7000));
        assert_eq!(it.turn(7000), "limit exceeded: buffer_bytes_max");
    }
}
