//! All connections of a run together: when they may submit, their counts, when the measured window opens and closes. No bytes.

use std::time::Duration;

use crate::error::Error;
use crate::load::client::{Load, Next};
use crate::load::stamp::{Random, Stamp};
use crate::metric::{Metric, Sample};
use crate::process::{self, CpuTimes};
use crate::stats::Histogram;

/// The event that completes a job, up to which its latency is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The server has acknowledged the job.
    Acknowledged,
    /// A worker has received the job.
    Worked,
    /// The answer to a request has arrived: an echo, a result, the acknowledgement of a worker's report.
    Answered,
}

/// What a load counts, and its limit of outstanding jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The event that completes a job.
    pub ending: Ending,
    /// Most jobs submitted and not yet worked; submitting pauses there and resumes at half of it.
    pub backlog_max: u64,
    /// Every job must be acknowledged before the run ends.
    pub acknowledged: bool,
    /// Every job must be worked before the run ends.
    pub worked: bool,
}

/// The role of one connection. State shared with other connections is in the [`Tally`].
pub trait Part {
    /// Writes as much as is allowed now.
    fn on_wake(&mut self, out: &mut Vec<u8>, tally: &mut Tally);
    /// Answers the whole packets at the start of `bytes` and returns their length.
    ///
    /// # Errors
    /// [`Error::Protocol`] for an unexpected packet, [`Error::Mismatch`] for one about another job.
    fn on_bytes(&mut self, bytes: &[u8], out: &mut Vec<u8>, tally: &mut Tally) -> Result<usize, Error>;
}

/// The length of a run: an unmeasured part, then the measured window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// By time.
    Timed {
        /// Before the window.
        warm: Duration,
        /// The window.
        window: Duration,
    },
    /// By jobs; this also limits the jobs submitted.
    Counted {
        /// Before the window.
        warm: u64,
        /// In the window.
        window: u64,
    },
}

impl Plan {
    fn is_warm(&self, nanos: u64, done: u64) -> bool {
        match self {
            Plan::Timed { warm, .. } => u128::from(nanos) >= warm.as_nanos(),
            Plan::Counted { warm, .. } => done >= *warm,
        }
    }

    /// Whether the window has lasted long enough, or the run has completed enough jobs.
    fn is_over(&self, nanos: u64, done: u64) -> bool {
        match self {
            Plan::Timed { window, .. } => u128::from(nanos) >= window.as_nanos(),
            Plan::Counted { .. } => done >= self.jobs_max(),
        }
    }

    fn jobs_max(&self) -> u64 {
        match self {
            Plan::Timed { .. } => u64::MAX,
            Plan::Counted { warm, window } => warm.saturating_add(*window),
        }
    }
}

/// The common counters of a run's connections, and the only way to start a job.
#[derive(Debug)]
pub struct Tally {
    now_nanos: u64,
    rules: Rules,
    jobs_max: u64,
    /// The backlog was full and is not yet half empty.
    paused: bool,
    /// Paused producers may resume.
    resume: bool,
    stopping: bool,
    submitted: u64,
    acknowledged: u64,
    worked: u64,
    done: u64,
    wakes: u64,
    seen: Seen,
    latency: Histogram,
    rng: Random,
}

impl Tally {
    fn new(rules: Rules, plan: &Plan) -> Self {
        Self {
            now_nanos: 0,
            rules,
            jobs_max: plan.jobs_max(),
            paused: false,
            resume: false,
            stopping: false,
            submitted: 0,
            acknowledged: 0,
            worked: 0,
            done: 0,
            wakes: 0,
            seen: Seen::default(),
            latency: Histogram::default(),
            rng: Random::new(1),
        }
    }

    /// The stamp of the next job, if submitting is allowed now.
    #[inline]
    pub fn next_stamp(&mut self) -> Option<Stamp> {
        if self.stopping || self.paused || self.submitted >= self.jobs_max {
            return None;
        }
        let stamp = Stamp { number: self.submitted, sent_nanos: self.now_nanos };
        self.submitted += 1;
        self.paused = self.submitted - self.worked >= self.rules.backlog_max;
        Some(stamp)
    }

    /// The time, ns since the run began.
    pub fn now_nanos(&self) -> u64 {
        self.now_nanos
    }

    /// The random generator for unique ids.
    pub fn rng(&mut self) -> &mut Random {
        &mut self.rng
    }

    /// The server has acknowledged a job.
    #[inline]
    pub fn acknowledged(&mut self, sent: Stamp) {
        self.acknowledged += 1;
        self.end(Ending::Acknowledged, sent);
    }

    /// The answer to a request has arrived.
    #[inline]
    pub fn answered(&mut self, sent: Stamp) {
        self.end(Ending::Answered, sent);
    }

    /// A worker has received a job.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if it was never submitted or has been worked before.
    #[inline]
    pub fn worked(&mut self, sent: Stamp) -> Result<(), Error> {
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

    /// A sleeping worker was woken.
    #[inline]
    pub fn woken(&mut self) {
        self.wakes += 1;
    }

    #[inline]
    fn end(&mut self, ending: Ending, sent: Stamp) {
        if ending == self.rules.ending {
            self.done += 1;
            self.latency.record(self.now_nanos.saturating_sub(sent.sent_nanos));
        }
    }

    /// Nothing is outstanding, and no acknowledgement will ever make a producer submit. This can happen below a full backlog, if
    /// the first jobs were worked before the last producer had connected.
    fn is_forgotten(&self) -> bool {
        self.rules.ending == Ending::Worked && !self.rules.acknowledged && self.worked == self.submitted
    }

    /// Every submitted job is complete, and nothing is outstanding.
    fn is_settled(&self) -> bool {
        let acknowledged = !self.rules.acknowledged || self.acknowledged == self.submitted;
        let worked = !self.rules.worked || self.worked == self.submitted;
        acknowledged && worked && self.done == self.submitted
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

/// A finished window.
#[derive(Debug)]
pub struct Measured {
    /// Its length, ns.
    pub nanos: u64,
    /// Jobs completed in it.
    pub jobs: u64,
    /// Their latencies.
    pub latency: Histogram,
    /// CPU time used in it.
    pub cpu: CpuTimes,
    /// Workers woken in it.
    pub wakes: u64,
    /// The server's resident memory at its end, KiB.
    pub resident_kib: u64,
    /// When each tenth of a counted window was complete, ns since its start.
    pub tenths: Vec<u64>,
    /// Jobs submitted in the whole run, warm-up and closing included.
    pub submitted: u64,
}

impl Measured {
    /// Jobs per second.
    pub fn rate(&self) -> f64 {
        self.jobs as f64 * 1e9 / self.nanos.max(1) as f64
    }

    /// Server CPU per job, µs.
    pub fn server_micros_per_job(&self) -> f64 {
        self.micros_per_job(self.cpu.server)
    }

    /// The server's share of one core, %.
    pub fn server_busy_percent(&self) -> f64 {
        100.0 * self.cpu.server.as_secs_f64() * 1e9 / self.nanos.max(1) as f64
    }

    /// The columns every load has.
    pub fn sample(&self) -> Sample {
        let seconds = self.nanos.max(1) as f64 / 1e9;
        let percent = |used: Duration, cores: f64| 100.0 * used.as_secs_f64() / (seconds * cores);
        let mut sample = Sample::from([
            (Metric::JobsPerSecond, self.rate()),
            (Metric::ServerMicrosPerJob, self.server_micros_per_job()),
            (Metric::ClientMicrosPerJob, self.micros_per_job(self.cpu.client)),
            (Metric::ClientBusyPercent, percent(self.cpu.client, 1.0)),
            (Metric::OthersBusyPercent, percent(self.cpu.others(), process::cores() as f64)),
            (Metric::RssMib, self.resident_kib as f64 / 1024.0),
        ]);
        for (metric, per_mille) in [(Metric::P50Micros, 500), (Metric::P99Micros, 990)] {
            let nanos = self.latency.quantile(per_mille);
            sample.extend(nanos.map(|nanos| (metric, nanos as f64 / 1e3)));
        }
        sample
    }

    /// Workers woken per job.
    pub fn wakes_per_job(&self) -> f64 {
        self.wakes as f64 / self.jobs.max(1) as f64
    }

    fn micros_per_job(&self, used: Duration) -> f64 {
        used.as_secs_f64() * 1e6 / self.jobs.max(1) as f64
    }
}

/// The rates of the first and the last tenth of `jobs`: they show how depth affects a submit.
pub fn tenth_rates(jobs: u64, tenths: &[u64]) -> Vec<(Metric, f64)> {
    let rate = |nanos: u64| jobs as f64 / 10.0 * 1e9 / nanos.max(1) as f64;
    match tenths {
        [first, .., before_last, last] => vec![
            (Metric::FirstTenthPerSecond, rate(*first)),
            (Metric::LastTenthPerSecond, rate(last.saturating_sub(*before_last))),
        ],
        _ => Vec::new(),
    }
}

#[derive(Debug)]
enum Phase {
    Warming,
    Measuring { since_nanos: u64, done: u64, wakes: u64, cpu: CpuTimes },
    Closing(Measured),
}

/// The parts and the tally of one run: the [`Load`] of the connections.
#[derive(Debug)]
pub struct Driver<P> {
    plan: Plan,
    server_pid: u32,
    parts: Vec<P>,
    tally: Tally,
    phase: Phase,
    tenths: Vec<u64>,
}

impl<P> Driver<P> {
    /// A driver with one part per connection, for the server with this process id.
    pub fn new(parts: Vec<P>, rules: Rules, plan: &Plan, server_pid: u32) -> Self {
        let tally = Tally::new(rules, plan);
        Self { plan: *plan, server_pid, parts, tally, phase: Phase::Warming, tenths: Vec::new() }
    }

    /// The number of connections.
    pub fn connections(&self) -> usize {
        self.parts.len()
    }

    /// The same for jobs that are already queued: numbers 0 to `queued`.
    pub fn for_queued(mut self, queued: u64) -> Self {
        self.tally.submitted = queued;
        self.tally.acknowledged = queued;
        self
    }

    /// The window, after the run.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if it never closed or no job was completed in it.
    pub fn measured(self) -> Result<Measured, Error> {
        match self.phase {
            Phase::Closing(measured) if measured.jobs > 0 => {
                Ok(Measured { submitted: self.tally.submitted, tenths: self.tenths, ..measured })
            }
            Phase::Closing(_) => Err(Error::Mismatch("no job was done in the window; make it longer".to_owned())),
            Phase::Warming | Phase::Measuring { .. } => Err(Error::Mismatch("the window never closed".to_owned())),
        }
    }

    fn open_window(&mut self) -> Result<(), Error> {
        self.tally.latency.clear();
        let Tally { now_nanos, done, wakes, .. } = self.tally;
        self.phase = Phase::Measuring { since_nanos: now_nanos, done, wakes, cpu: CpuTimes::now(self.server_pid)? };
        Ok(())
    }

    /// Counts the open window's tenths, and closes it when it is over.
    fn watch_window(&mut self, since_nanos: u64, done: u64, wakes: u64, cpu: CpuTimes) -> Result<(), Error> {
        let (nanos, jobs) = (self.tally.now_nanos - since_nanos, self.tally.done - done);
        if let Plan::Counted { window, .. } = self.plan {
            let passed = usize::try_from(jobs.saturating_mul(10) / window.max(1)).unwrap_or(0);
            self.tenths.resize(passed.max(self.tenths.len()).min(10), nanos);
        }
        if self.plan.is_over(nanos, self.tally.done) {
            self.tally.stopping = true;
            self.phase = Phase::Closing(Measured {
                nanos,
                jobs,
                latency: std::mem::take(&mut self.tally.latency),
                cpu: CpuTimes::now(self.server_pid)?.since(&cpu),
                wakes: self.tally.wakes - wakes,
                resident_kib: process::resident_kib(self.server_pid)?,
                tenths: Vec::new(),
                submitted: 0,
            });
        }
        Ok(())
    }
}

impl<P: Part> Load for Driver<P> {
    #[inline]
    fn at(&mut self, now_nanos: u64) {
        self.tally.now_nanos = now_nanos;
    }

    fn on_wake(&mut self, link: usize, out: &mut Vec<u8>) {
        if let Some(part) = self.parts.get_mut(link) {
            part.on_wake(out, &mut self.tally);
        }
    }

    #[inline]
    fn on_bytes(&mut self, link: usize, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Error> {
        match self.parts.get_mut(link) {
            Some(part) => part.on_bytes(bytes, out, &mut self.tally),
            None => Ok(bytes.len()),
        }
    }

    fn on_batch(&mut self) -> Result<Next, Error> {
        match self.phase {
            Phase::Warming => {
                if self.plan.is_warm(self.tally.now_nanos, self.tally.done) {
                    self.open_window()?;
                }
            }
            Phase::Measuring { since_nanos, done, wakes, cpu } => self.watch_window(since_nanos, done, wakes, cpu)?,
            Phase::Closing(_) => {
                if self.tally.is_settled() {
                    return Ok(Next::Done);
                }
            }
        }
        let resume = std::mem::take(&mut self.tally.resume);
        Ok(if resume { Next::Wake } else { Next::Wait })
    }

    fn state(&self) -> String {
        let Tally { submitted, acknowledged, worked, done, .. } = self.tally;
        format!("submitted {submitted}, acknowledged {acknowledged}, worked {worked}, done {done}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenths_become_rates() {
        let tenths = [1_000_000_000, 2_000_000_000, 4_000_000_000];
        let found = tenth_rates(1000, &tenths);
        assert_eq!(found, [(Metric::FirstTenthPerSecond, 100.0), (Metric::LastTenthPerSecond, 50.0)]);
        assert!(tenth_rates(1000, &[]).is_empty());
    }
}
