//! The common counters of a run's connections: when they may submit, and what has happened to the jobs. No bytes, no clock.

use std::collections::VecDeque;

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
    /// Every job must be acknowledged before the run ends.
    pub(crate) acknowledged: bool,
    /// Every job must be worked before the run ends.
    pub(crate) worked: bool,
}

/// The counters, and the only way to start a job.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) rules: Rules,
    /// The time, ns since the run began.
    pub(crate) now_nanos: u64,
    /// For unique ids.
    pub(crate) rng: Random,
    pub(crate) submitted: u64,
    pub(crate) done: u64,
    /// Sleeping workers that were woken.
    pub(crate) wakes: u64,
    /// No further jobs.
    pub(crate) stopping: bool,
    /// Within 1 %, ns.
    pub(crate) latency: Histogram<u64>,
    jobs_max: u64,
    acknowledged: u64,
    worked: u64,
    /// The backlog was full and is not yet half empty.
    paused: bool,
    /// Paused producers may resume.
    resume: bool,
    seen: Seen,
}

impl Tally {
    /// Counters for at most `jobs_max` jobs, of which the first `queued` are acknowledged already.
    pub(crate) fn new(rules: Rules, jobs_max: u64, queued: u64) -> Result<Self, Error> {
        let latency = Histogram::new(2).map_err(|error| Error::Usage(error.to_string()))?;
        Ok(Self {
            rules,
            now_nanos: 0,
            rng: Random::new(1),
            submitted: queued,
            done: 0,
            wakes: 0,
            stopping: false,
            latency,
            jobs_max,
            acknowledged: queued,
            worked: 0,
            paused: false,
            resume: false,
            seen: Seen::default(),
        })
    }

    /// The stamp of the next job, if submitting is allowed now.
    #[inline]
    pub(crate) fn next_stamp(&mut self) -> Option<Stamp> {
        if self.stopping || self.paused || self.submitted >= self.jobs_max {
            return None;
        }
        let stamp = Stamp { number: self.submitted, sent_nanos: self.now_nanos };
        self.submitted += 1;
        self.paused = self.submitted - self.worked >= self.rules.backlog_max;
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

    /// A worker has received a job. [`Error::Mismatch`] if it was never submitted or has been worked before.
    #[inline]
    pub(crate) fn worked(&mut self, sent: Stamp) -> Result<(), Error> {
        if sent.number >= self.submitted {
            return Err(Error::Mismatch(format!("job {} was never submitted", sent.number)));
        }
        if !self.seen.insert(sent.number) {
            return Err(Error::Mismatch(format!("job {} was worked twice", sent.number)));
        }
        self.worked += 1;
        let half_empty = self.paused && self.submitted - self.worked <= self.rules.backlog_max / 2;
        if half_empty || self.is_forgotten() {
            self.paused = false;
            self.resume = true;
        }
        self.end(Ending::Worked, sent);
        Ok(())
    }

    #[inline]
    fn end(&mut self, ending: Ending, sent: Stamp) {
        if ending == self.rules.ending {
            self.done += 1;
            // It grows as needed, so every value has a place.
            let _ = self.latency.record(self.now_nanos.saturating_sub(sent.sent_nanos));
        }
    }

    /// Nothing is outstanding, and no acknowledgement will ever make a producer submit. This can happen below a full backlog, if
    /// the first jobs were worked before the last producer had connected.
    fn is_forgotten(&self) -> bool {
        self.rules.ending == Ending::Worked && !self.rules.acknowledged && self.worked == self.submitted
    }

    /// Whether producers may resume; true once per pause.
    pub(crate) fn take_resume(&mut self) -> bool {
        std::mem::take(&mut self.resume)
    }

    /// Every submitted job is complete, and nothing is outstanding.
    pub(crate) fn is_settled(&self) -> bool {
        let acknowledged = !self.rules.acknowledged || self.acknowledged == self.submitted;
        let worked = !self.rules.worked || self.worked == self.submitted;
        acknowledged && worked && self.done == self.submitted
    }

    /// What is outstanding, for the message about a stalled run.
    pub(crate) fn state(&self) -> String {
        let Self { submitted, acknowledged, worked, done, .. } = self;
        format!("submitted {submitted}, acknowledged {acknowledged}, worked {worked}, done {done}")
    }
}

/// A set of numbers, one bit each.
#[derive(Debug, Default)]
struct Seen(Vec<u64>);

impl Seen {
    /// Adds a number; returns whether it is new. The caller bounds it.
    #[inline]
    fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = (usize::try_from(number / 64).unwrap_or(usize::MAX), 1_u64 << (number % 64));
        if word >= self.0.len() {
            self.0.resize((word + 1).next_power_of_two(), 0);
        }
        let Some(bits) = self.0.get_mut(word) else {
            return false;
        };
        let new = *bits & bit == 0;
        *bits |= bit;
        new
    }
}

/// The unanswered requests of one connection, oldest first.
#[derive(Debug)]
pub(crate) struct Window {
    size: usize,
    refill_at: usize,
    /// Under the key that the answer repeats: for most requests the job's number.
    pending: VecDeque<(u64, Stamp)>,
}

impl Window {
    /// Room for `size` requests. It is refilled when at most `refill_at` of them are unanswered.
    pub(crate) fn new(size: usize, refill_at: usize) -> Self {
        Self { size, refill_at, pending: VecDeque::with_capacity(size) }
    }

    /// The same, refilled when half is free, so that pipelined requests leave in large writes.
    pub(crate) fn by_halves(size: usize) -> Self {
        Self::new(size, size / 2)
    }

    /// Calls `put` for each job that may be submitted now.
    #[inline]
    pub(crate) fn refill(&mut self, tally: &mut Tally, mut put: impl FnMut(Stamp, &mut Random)) {
        if self.pending.len() > self.refill_at {
            return;
        }
        while self.pending.len() < self.size {
            let Some(stamp) = tally.next_stamp() else {
                return;
            };
            put(stamp, &mut tally.rng);
            self.hold(stamp.number, stamp);
        }
    }

    /// Adds a request.
    #[inline]
    pub(crate) fn hold(&mut self, key: u64, stamp: Stamp) {
        self.pending.push_back((key, stamp));
    }

    /// The oldest request.
    pub(crate) fn oldest(&self) -> Option<Stamp> {
        self.pending.front().map(|(_, stamp)| *stamp)
    }

    /// Removes the oldest request, where answers come in the order of requests.
    #[inline]
    pub(crate) fn take_oldest(&mut self) -> Option<Stamp> {
        self.pending.pop_front().map(|(_, stamp)| stamp)
    }

    /// Removes the request with this key, where answers come in any order.
    /// [`Error::Mismatch`] without such a request; `reply` is shown.
    #[inline]
    pub(crate) fn take(&mut self, key: Option<u64>, reply: &[u8]) -> Result<Stamp, Error> {
        let at = key.and_then(|key| self.pending.iter().position(|(pending, _)| *pending == key));
        at.and_then(|at| self.pending.remove(at))
            .map(|(_, stamp)| stamp)
            .ok_or_else(|| Error::Mismatch(format!("a reply to no request, or a second one: {}", reply.escape_ascii())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { ending: Ending::Worked, backlog_max: 4, acknowledged: false, worked: true };

    #[test]
    fn producers_pause_at_a_full_backlog_and_resume_at_half_of_it() {
        let mut tally = Tally::new(RULES, 5, 0).unwrap();
        let mut window = Window::by_halves(8);
        window.refill(&mut tally, |_, _| ());
        assert_eq!((tally.submitted, tally.take_resume()), (4, false));
        for (number, resumes) in [(3, false), (0, true)] {
            tally.worked(Stamp { number, sent_nanos: 0 }).unwrap();
            assert_eq!(tally.take_resume(), resumes, "{number}");
        }
        window.refill(&mut tally, |_, _| ());
        assert_eq!((tally.submitted, tally.next_stamp()), (5, None), "no more than five");
        assert!(!tally.is_settled());
        for number in [1, 2, 4] {
            tally.worked(Stamp { number, sent_nanos: 0 }).unwrap();
        }
        assert!(tally.is_settled() && tally.latency.len() == 5, "{}", tally.state());
    }

    #[test]
    fn a_window_is_refilled_when_half_of_it_is_free() {
        let rules = Rules { backlog_max: u64::MAX, ..RULES };
        let (mut tally, mut window) = (Tally::new(rules, u64::MAX, 0).unwrap(), Window::by_halves(4));
        let mut refill = |window: &mut Window| {
            let mut put = Vec::new();
            window.refill(&mut tally, |stamp, _| put.push(stamp.number));
            put
        };
        assert_eq!(refill(&mut window), [0, 1, 2, 3]);
        assert_eq!(window.take_oldest().map(|stamp| stamp.number), Some(0));
        assert!(refill(&mut window).is_empty());
        assert_eq!(window.take(Some(2), b"").unwrap().number, 2);
        assert_eq!(refill(&mut window), [4, 5]);
        for wrong in [Some(2), Some(6), None] {
            let error = window.take(wrong, b"x").unwrap_err().to_string();
            assert_eq!(error, "count mismatch: a reply to no request, or a second one: x");
        }
    }
}
