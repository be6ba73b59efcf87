//! The common counters of a run's connections: when they may start a request, and what has happened to the jobs. No bytes, no
//! clock.

use hdrhistogram::Histogram;

use crate::error::Error;
use crate::stamp::{Random, Stamp};

/// The event that completes a job, up to which its latency is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The server has acknowledged the job.
    Acknowledged,
    /// A worker has received the job.
    Worked,
    /// The answer to a request has arrived: an echo, a result, the acknowledgement of a worker's report.
    Answered,
}

/// What a load counts, and its limit of outstanding jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) ending: Ending,
    /// Most jobs submitted and not yet worked; submitting pauses there and resumes at half of it.
    pub(crate) backlog_max: u64,
    /// Every request of a client makes a job.
    pub(crate) submits: bool,
    /// Every submitted job must be acknowledged before the run ends.
    pub(crate) acknowledged: bool,
    /// Every job must be worked before the run ends.
    pub(crate) worked: bool,
}

/// The counters, and the only way to start a request.
#[derive(Debug)]
pub(crate) struct Tally {
    rules: Rules,
    /// The time, ns since the run began.
    pub(crate) now_nanos: u64,
    /// For unique ids.
    pub(crate) rng: Random,
    /// Requests that clients have started.
    pub(crate) started: u64,
    pub(crate) done: u64,
    /// Sleeping workers that were woken.
    pub(crate) wakes: u64,
    /// No further requests.
    pub(crate) stopping: bool,
    /// Within 1 %, ns.
    pub(crate) latency: Histogram<u64>,
    started_max: u64,
    /// Jobs in the queue before the run: those with the lowest numbers.
    queued: u64,
    acknowledged: u64,
    worked: u64,
    /// The backlog was full and is not yet half empty.
    paused: bool,
    /// Paused producers may resume.
    resume: bool,
    taken: Taken,
}

impl Tally {
    /// Counters for at most `started_max` requests. Jobs 0 to `queued` are queued already.
    pub(crate) fn new(rules: Rules, started_max: u64, queued: u64) -> Result<Self, Error> {
        let latency = Histogram::new(2).map_err(|error| Error::Usage(error.to_string()))?;
        Ok(Self {
            rules,
            now_nanos: 0,
            rng: Random::new(1),
            started: 0,
            done: 0,
            wakes: 0,
            stopping: false,
            latency,
            started_max,
            queued,
            acknowledged: 0,
            worked: 0,
            paused: false,
            resume: false,
            taken: Taken::default(),
        })
    }

    /// The stamp of a client's next request, and of the job it makes, if one is allowed now.
    #[inline]
    pub(crate) fn next_stamp(&mut self) -> Option<Stamp> {
        if self.stopping || self.paused || self.started >= self.started_max {
            return None;
        }
        let stamp = Stamp { number: self.queued + self.started, sent_nanos: self.now_nanos };
        self.started += 1;
        self.paused = self.jobs() - self.worked >= self.rules.backlog_max;
        Some(stamp)
    }

    /// The server has acknowledged a job.
    #[inline]
    pub(crate) fn acknowledged(&mut self, sent: Stamp) {
        self.acknowledged += 1;
        self.end(Ending::Acknowledged, sent);
    }

    /// The answer to a request has arrived.
    #[inline]
    pub(crate) fn answered(&mut self, sent: Stamp) {
        self.end(Ending::Answered, sent);
    }

    /// A connection has received a job. [`Error::Mismatch`] if it was never submitted or has been taken before.
    #[inline]
    pub(crate) fn worked(&mut self, job: Stamp) -> Result<(), Error> {
        if job.number >= self.jobs() {
            return Err(Error::Mismatch(format!("job {} was never submitted", job.number)));
        }
        if !self.taken.insert(job.number) {
            return Err(Error::Mismatch(format!("job {} was worked twice", job.number)));
        }
        self.worked += 1;
        let half_empty = self.paused && self.jobs() - self.worked <= self.rules.backlog_max / 2;
        if half_empty || self.is_forgotten() {
            self.paused = false;
            self.resume = true;
        }
        self.end(Ending::Worked, job);
        Ok(())
    }

    /// A job goes back to the queue.
    #[inline]
    pub(crate) fn put_back(&mut self, job: Stamp) {
        self.worked -= u64::from(self.taken.remove(job.number));
    }

    #[inline]
    fn end(&mut self, ending: Ending, sent: Stamp) {
        if ending == self.rules.ending {
            self.done += 1;
            // It grows as needed, so every value has a place.
            let _ = self.latency.record(self.now_nanos.saturating_sub(sent.sent_nanos));
        }
    }

    /// All jobs so far.
    #[inline]
    fn jobs(&self) -> u64 {
        self.queued + if self.rules.submits { self.started } else { 0 }
    }

    /// Jobs that the server must still have.
    pub(crate) fn left(&self) -> u64 {
        self.jobs() - self.worked
    }

    /// Nothing is outstanding, and no acknowledgement will ever make a producer submit. This can happen below a full backlog, if
    /// the first jobs were worked before the last producer had connected.
    fn is_forgotten(&self) -> bool {
        self.rules.ending == Ending::Worked && !self.rules.acknowledged && self.left() == 0
    }

    /// Whether producers may resume; true once per pause.
    pub(crate) fn take_resume(&mut self) -> bool {
        std::mem::take(&mut self.resume)
    }

    /// Every request and every job is complete, and nothing is outstanding.
    pub(crate) fn is_settled(&self) -> bool {
        let acknowledged = !self.rules.acknowledged || self.acknowledged == self.started;
        let expected = self.started + if self.rules.worked { self.queued } else { 0 };
        acknowledged && self.done == expected && (!self.rules.worked || self.left() == 0)
    }

    /// What is outstanding, for the message about a stalled run.
    pub(crate) fn state(&self) -> String {
        let Self { started, acknowledged, worked, done, .. } = self;
        format!("started {started}, acknowledged {acknowledged}, worked {worked}, done {done}")
    }
}

/// A set of job numbers, one bit each.
#[derive(Debug, Default)]
struct Taken(Vec<u64>);

impl Taken {
    /// Adds a number; returns whether it is new. The caller bounds it.
    #[inline]
    fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        if word >= self.0.len() {
            self.0.resize((word + 1).next_power_of_two(), 0);
        }
        self.0.get_mut(word).is_some_and(|bits| std::mem::replace(bits, *bits | bit) & bit == 0)
    }

    /// Removes a number; returns whether it was there.
    #[inline]
    fn remove(&mut self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        self.0.get_mut(word).is_some_and(|bits| std::mem::replace(bits, *bits & !bit) & bit != 0)
    }

    #[inline]
    fn place(number: u64) -> (usize, u64) {
        (usize::try_from(number / 64).unwrap_or(usize::MAX), 1 << (number % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers_pause_at_a_full_backlog_and_resume_at_half_of_it() {
        let rules = Rules { ending: Ending::Worked, backlog_max: 4, submits: true, acknowledged: false, worked: true };
        let mut tally = Tally::new(rules, 5, 0).unwrap();
        let submit = |tally: &mut Tally| std::iter::from_fn(|| tally.next_stamp()).count();
        assert_eq!((submit(&mut tally), tally.take_resume()), (4, false));
        for (number, resumes) in [(3, false), (0, true)] {
            tally.worked(Stamp { number, sent_nanos: 0 }).unwrap();
            assert_eq!(tally.take_resume(), resumes, "{number}");
        }
        assert_eq!(submit(&mut tally), 1, "five in all");
        assert!(!tally.is_settled());
        for number in [1, 2, 4] {
            tally.worked(Stamp { number, sent_nanos: 0 }).unwrap();
        }
        assert!(tally.is_settled() && tally.latency.len() == 5, "{}", tally.state());
    }

    #[test]
    fn a_job_that_was_put_back_can_be_taken_again() {
        let rules =
            Rules { ending: Ending::Answered, backlog_max: 9, submits: false, acknowledged: false, worked: false };
        let mut tally = Tally::new(rules, 9, 2).unwrap();
        let job = |number| Stamp { number, sent_nanos: 0 };
        tally.worked(job(1)).unwrap();
        assert_eq!((tally.left(), tally.next_stamp()), (1, Some(job(2))));
        assert_eq!(tally.worked(job(1)).unwrap_err().to_string(), "count mismatch: job 1 was worked twice");
        assert_eq!(tally.worked(job(2)).unwrap_err().to_string(), "count mismatch: job 2 was never submitted");
        tally.put_back(job(1));
        tally.worked(job(1)).unwrap();
        assert_eq!(tally.left(), 1);
    }
}
