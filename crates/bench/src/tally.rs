//! The common counters of a run's connections: when they may start a request, and what has happened to the jobs. No
//! bytes, no clock.

use hdrhistogram::Histogram;

use crate::error::Error;
use crate::shape::{Ending, Shape};
use crate::stamp::Stamp;

/// The counters, and the only way to start a request.
#[derive(Debug)]
pub(crate) struct Tally {
    shape: Shape,
    /// Every submitted job must be acknowledged before the run ends.
    acknowledges: bool,
    /// The time, ns since the run began.
    pub(crate) now_nanos: u64,
    /// For unique ids: the same seed gives the same ids, so runs are repeatable.
    pub(crate) rng: fastrand::Rng,
    /// Requests that clients have started.
    pub(crate) started: u64,
    pub(crate) done: u64,
    /// Replies, where a server counts them, too.
    pub(crate) replies: u64,
    /// Sleeping workers that were woken.
    pub(crate) wakes: u64,
    /// No further requests.
    pub(crate) stopping: bool,
    /// Within 1 %, ns.
    pub(crate) latency: Histogram<u64>,
    /// From push to acknowledgement, in a load whose jobs end later.
    pub(crate) pushed: Histogram<u64>,
    started_max: u64,
    /// Jobs in the queue before the run: those with the lowest numbers.
    queued: u64,
    acknowledged: u64,
    worked: u64,
    /// The backlog was full and is not yet half empty.
    paused: bool,
    /// Paused producers may resume.
    resume: bool,
    taken: Vec<bool>,
    /// By number, the last stamps of jobs that were put back; 0 for other jobs.
    pub(crate) last: Vec<u64>,
}

impl Tally {
    /// Counters for at most `started_max` requests. Jobs 0 to `queued` are queued already. `acknowledges`: the server
    /// acknowledges every job.
    pub(crate) fn new(
        shape: &Shape,
        acknowledges: bool,
        started_max: u64,
        queued: u64,
    ) -> Result<Self, Error> {
        let latency = Histogram::<u64>::new(2).map_err(|error| Error::Usage(error.to_string()))?;
        Ok(Self {
            shape: *shape,
            acknowledges: acknowledges && shape.submits(),
            now_nanos: 0,
            rng: fastrand::Rng::with_seed(1),
            started: 0,
            done: 0,
            replies: 0,
            wakes: 0,
            stopping: false,
            pushed: latency.clone(),
            latency,
            started_max,
            queued,
            acknowledged: 0,
            worked: 0,
            paused: false,
            resume: false,
            taken: Vec::new(),
            last: Vec::new(),
        })
    }

    /// The stamp of a client's next request, and of the job it makes, if one is allowed now.
    #[inline]
    pub(crate) fn next_stamp(&mut self) -> Option<Stamp> {
        if self.stopping || self.paused || self.started >= self.started_max {
            return None;
        }
        let stamp = Stamp {
            number: self.queued + self.started,
            sent_nanos: self.now_nanos,
        };
        self.started += 1;
        self.paused = self.jobs() - self.worked >= self.shape.backlog_max;
        Some(stamp)
    }

    /// The server has acknowledged a job.
    #[inline]
    pub(crate) fn acknowledged(&mut self, sent: Stamp) {
        self.acknowledged += 1;
        if self.shape.workers > 0 {
            let _ = self
                .pushed
                .record(self.now_nanos.saturating_sub(sent.sent_nanos));
        }
        self.end(Ending::Acknowledged, sent);
    }

    /// The answer to a request has arrived.
    #[inline]
    pub(crate) fn answered(&mut self, sent: Stamp) {
        self.end(Ending::Answered, sent);
    }

    fn is_taken(&self, at: usize) -> bool {
        self.taken.get(at).is_some_and(|taken| *taken)
    }

    fn set_taken(&mut self, at: usize, taken: bool) {
        self.taken
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|it| *it = taken);
    }

    /// A connection has received a job. [`Error::Mismatch`] if it was never submitted, has been taken before, or is not
    /// as it was put back.
    #[inline]
    pub(crate) fn worked(&mut self, job: Stamp) -> Result<(), Error> {
        if job.number >= self.jobs() {
            return Err(Error::Mismatch(format!(
                "job {} was never submitted",
                job.number
            )));
        }
        let at = usize::try_from(job.number).unwrap_or(usize::MAX);
        if self.is_taken(at) {
            return Err(Error::Mismatch(format!(
                "job {} was worked twice",
                job.number
            )));
        }
        if self
            .last
            .get(at)
            .is_some_and(|last| *last != 0 && *last != job.sent_nanos)
        {
            return Err(Error::Mismatch(format!(
                "job {} came with an earlier value",
                job.number
            )));
        }
        self.taken.resize(self.taken.len().max(at + 1), false);
        self.set_taken(at, true);
        self.worked += 1;
        let half_empty = self.paused && self.jobs() - self.worked <= self.shape.backlog_max / 2;
        if half_empty || self.is_forgotten() {
            self.paused = false;
            self.resume = true;
        }
        self.end(Ending::Worked, job);
        Ok(())
    }

    /// A job goes back to the queue, with another stamp in its body, which is returned.
    #[inline]
    pub(crate) fn put_back(&mut self, job: Stamp) -> Stamp {
        let at = usize::try_from(job.number).unwrap_or(usize::MAX);
        self.worked -= u64::from(self.is_taken(at));
        self.set_taken(at, false);
        let job = Stamp {
            sent_nanos: job.sent_nanos + 1,
            ..job
        };
        self.last.resize(self.last.len().max(at + 1), 0);
        self.last
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|last| *last = job.sent_nanos);
        job
    }

    #[inline]
    fn end(&mut self, ending: Ending, sent: Stamp) {
        if ending == self.shape.ending {
            self.done += 1;
            // It grows as needed, so every value has a place.
            let _ = self
                .latency
                .record(self.now_nanos.saturating_sub(sent.sent_nanos));
        }
    }

    /// All jobs so far.
    #[inline]
    fn jobs(&self) -> u64 {
        self.queued
            + if self.shape.submits() {
                self.started
            } else {
                0
            }
    }

    /// Jobs that the server must still have.
    pub(crate) fn left(&self) -> u64 {
        self.jobs() - self.worked
    }

    /// Nothing is outstanding, and no acknowledgement will ever make a producer submit. This can happen below a full
    /// backlog, if the first jobs were worked before the last producer had connected.
    fn is_forgotten(&self) -> bool {
        self.shape.ending == Ending::Worked && !self.acknowledges && self.left() == 0
    }

    /// Whether producers may resume; true once per pause.
    pub(crate) fn take_resume(&mut self) -> bool {
        std::mem::take(&mut self.resume)
    }

    /// Every request and every job is complete, and nothing is outstanding.
    pub(crate) fn is_settled(&self) -> bool {
        let acknowledged = !self.acknowledges || self.acknowledged == self.started;
        let expected = self.started + if self.shape.works() { self.queued } else { 0 };
        acknowledged && self.done == expected && (!self.shape.works() || self.left() == 0)
    }

    /// What is outstanding, for the message about a stalled run.
    pub(crate) fn state(&self) -> String {
        let Self {
            started,
            acknowledged,
            worked,
            done,
            ..
        } = self;
        format!("started {started}, acknowledged {acknowledged}, worked {worked}, done {done}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Request;

    #[test]
    fn producers_pause_at_a_full_backlog_and_resume_at_half_of_it() {
        let mut tally = Tally::new(&Shape::flow(1, 1, 1, 4), false, 5, 0).unwrap();
        let submit = |tally: &mut Tally| std::iter::from_fn(|| tally.next_stamp()).count();
        assert_eq!((submit(&mut tally), tally.take_resume()), (4, false));
        for (number, resumes) in [(3, false), (0, true)] {
            tally
                .worked(Stamp {
                    number,
                    sent_nanos: 0,
                })
                .unwrap();
            assert_eq!(tally.take_resume(), resumes, "{number}");
        }
        assert_eq!(submit(&mut tally), 1, "five in all");
        assert!(!tally.is_settled());
        for number in [1, 2, 4] {
            tally
                .worked(Stamp {
                    number,
                    sent_nanos: 0,
                })
                .unwrap();
        }
        assert!(
            tally.is_settled() && tally.latency.len() == 5,
            "{}",
            tally.state()
        );
    }

    #[test]
    fn a_job_that_was_put_back_can_be_taken_again() {
        let mut tally = Tally::new(&Shape::clients(Request::Cycle, 1, 1), true, 9, 2).unwrap();
        let job = |number| Stamp {
            number,
            sent_nanos: 0,
        };
        tally.worked(job(1)).unwrap();
        assert_eq!((tally.left(), tally.next_stamp()), (1, Some(job(2))));
        assert_eq!(
            tally.worked(job(1)).unwrap_err().to_string(),
            "count mismatch: job 1 was worked twice"
        );
        assert_eq!(
            tally.worked(job(2)).unwrap_err().to_string(),
            "count mismatch: job 2 was never submitted"
        );
        let again = tally.put_back(job(1));
        assert_eq!(
            tally.worked(job(1)).unwrap_err().to_string(),
            "count mismatch: job 1 came with an earlier value"
        );
        tally.worked(again).unwrap();
        assert_eq!(tally.left(), 1);
    }
}
