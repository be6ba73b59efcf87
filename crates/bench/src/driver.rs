//! All connections of a run together: their speakers, and when the measured window opens and closes.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::error::Error;
use crate::metric::{Metric, Sample};
use crate::process::{self, CpuTimes};
use crate::tally::Tally;

/// Where a connection's bytes go, and the counters that all connections share.
pub(crate) struct Context<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) tally: &'a mut Tally,
}

impl Context<'_> {
    /// Sends these bytes.
    #[inline]
    pub(crate) fn put<const PARTS: usize>(&mut self, parts: [&[u8]; PARTS]) {
        parts
            .iter()
            .for_each(|part| self.out.extend_from_slice(part));
    }
}

/// One connection's side of a protocol. State shared with other connections is in the [`Tally`].
pub(crate) trait Speaker {
    /// Writes as much as is allowed now: called once at the start, and when producers may resume.
    fn on_wake(&mut self, cx: &mut Context<'_>);

    /// Answers the whole messages at the start of `bytes` and returns their length.
    /// [`Error::Protocol`] for an unexpected message, [`Error::Mismatch`] for one about another job.
    fn on_bytes(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Result<usize, Error>;
}

/// The length of a run: an unmeasured part, then the measured window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// By time.
    Timed { warm: Duration, window: Duration },
    /// By jobs; this also limits the requests.
    Counted { warm: u64, window: u64 },
}

/// The unmeasured beginning of a timed run, as a share of the window, and its least length.
const WARM_SHARE: f64 = 0.2;
const WARM_SECONDS_MIN: f64 = 0.2;
/// More than an hour per run must be a typing error.
const SECONDS_MAX: f64 = 3600.0;

impl Plan {
    /// A steady load of this number of jobs, or else of this length. [`Error::Usage`] for a time out of range.
    pub(crate) fn asked(jobs: Option<u64>, seconds: f64) -> Result<Self, Error> {
        if let Some(window) = jobs {
            return Ok(Self::Counted {
                warm: window / 10,
                window,
            });
        }
        if !(0.05..=SECONDS_MAX).contains(&seconds) {
            return Err(Error::Usage(format!(
                "{seconds} seconds are too few or too many"
            )));
        }
        let warm = (seconds * WARM_SHARE).max(WARM_SECONDS_MIN);
        Ok(Self::Timed {
            warm: Duration::from_secs_f64(warm),
            window: Duration::from_secs_f64(seconds),
        })
    }

    /// A window of this number of jobs, without a warm-up.
    pub(crate) const fn counted(window: u64) -> Self {
        Self::Counted { warm: 0, window }
    }

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

    /// The most requests.
    pub(crate) fn jobs_max(&self) -> u64 {
        match self {
            Plan::Timed { .. } => u64::MAX,
            Plan::Counted { warm, window } => warm.saturating_add(*window),
        }
    }
}

/// What to do after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for more.
    Wait,
    /// Call [`Driver::on_wake`] on every connection, then wait.
    Wake,
    /// The run is over.
    Done,
}

#[derive(Debug)]
enum Phase {
    Warming,
    Measuring {
        since_nanos: u64,
        done: u64,
        wakes: u64,
        cpu: CpuTimes,
    },
    Closing(Box<Measured>),
}

/// The speakers and the tally of one run.
pub(crate) struct Driver {
    plan: Plan,
    server_pid: Option<u32>,
    speakers: Vec<Box<dyn Speaker>>,
    tally: Tally,
    phase: Phase,
    tenths: Vec<u64>,
}

impl Driver {
    /// A driver with one speaker per connection, for the server with this process id, if that is known.
    pub(crate) fn new(
        speakers: Vec<Box<dyn Speaker>>,
        tally: Tally,
        plan: &Plan,
        server_pid: Option<u32>,
    ) -> Self {
        Self {
            plan: *plan,
            server_pid,
            speakers,
            tally,
            phase: Phase::Warming,
            tenths: Vec::new(),
        }
    }

    /// Sets the current time, ns since the run began.
    #[inline]
    pub(crate) fn at(&mut self, now_nanos: u64) {
        self.tally.now_nanos = now_nanos;
    }

    /// See [`Speaker::on_wake`].
    pub(crate) fn on_wake(&mut self, connection: usize, out: &mut Vec<u8>) {
        if let Some(speaker) = self.speakers.get_mut(connection) {
            speaker.on_wake(&mut Context {
                out,
                tally: &mut self.tally,
            });
        }
    }

    /// See [`Speaker::on_bytes`]. The bytes that it does not consume come again with those that follow.
    #[inline]
    pub(crate) fn on_bytes(
        &mut self,
        connection: usize,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize, Error> {
        match self.speakers.get_mut(connection) {
            Some(speaker) => speaker.on_bytes(
                bytes,
                &mut Context {
                    out,
                    tally: &mut self.tally,
                },
            ),
            None => Ok(bytes.len()),
        }
    }

    /// Called when all available bytes have been handled. Opens and closes the window.
    pub(crate) fn on_batch(&mut self) -> Result<Next, Error> {
        match self.phase {
            Phase::Warming => {
                if self.plan.is_warm(self.tally.now_nanos, self.tally.done) {
                    self.open_window()?;
                }
            }
            Phase::Measuring {
                since_nanos,
                done,
                wakes,
                cpu,
            } => self.watch_window(since_nanos, done, wakes, cpu)?,
            Phase::Closing(_) if self.tally.is_settled() => return Ok(Next::Done),
            Phase::Closing(_) => {}
        }
        Ok(if self.tally.take_resume() {
            Next::Wake
        } else {
            Next::Wait
        })
    }

    /// What is outstanding.
    pub(crate) fn state(&self) -> String {
        self.tally.state()
    }

    /// The window, after the run. [`Error::Mismatch`] if it never closed or no job was completed in it.
    pub(crate) fn measured(self) -> Result<Measured, Error> {
        match self.phase {
            Phase::Closing(measured) if measured.jobs > 0 => {
                let (left, Tally { replies, last, .. }) = (self.tally.left(), self.tally);
                Ok(Measured {
                    left,
                    replies,
                    last,
                    tenths: self.tenths,
                    ..*measured
                })
            }
            Phase::Closing(_) => Err(Error::Mismatch(
                "no job was done in the window; make it longer".to_owned(),
            )),
            Phase::Warming | Phase::Measuring { .. } => {
                Err(Error::Mismatch("the window never closed".to_owned()))
            }
        }
    }

    fn open_window(&mut self) -> Result<(), Error> {
        self.tally.latency.clear();
        self.tally.pushed.clear();
        let Tally {
            now_nanos,
            done,
            wakes,
            ..
        } = self.tally;
        self.phase = Phase::Measuring {
            since_nanos: now_nanos,
            done,
            wakes,
            cpu: CpuTimes::now(self.server_pid)?,
        };
        Ok(())
    }

    /// Counts the open window's tenths, and closes it when it is over.
    fn watch_window(
        &mut self,
        since_nanos: u64,
        done: u64,
        wakes: u64,
        cpu: CpuTimes,
    ) -> Result<(), Error> {
        let (nanos, jobs) = (self.tally.now_nanos - since_nanos, self.tally.done - done);
        if let Plan::Counted { window, .. } = self.plan {
            let passed = usize::try_from(jobs.saturating_mul(10) / window.max(1)).unwrap_or(0);
            self.tenths
                .resize(passed.max(self.tenths.len()).min(10), nanos);
        }
        if self.plan.is_over(nanos, self.tally.done) {
            self.tally.stopping = true;
            self.phase = Phase::Closing(Box::new(Measured {
                nanos,
                jobs,
                latency: self.tally.latency.clone(),
                pushed: self.tally.pushed.clone(),
                cpu: CpuTimes::now(self.server_pid)?.since(&cpu),
                wakes: self.tally.wakes - wakes,
                resident_mib: self.server_pid.map_or(Ok(0.0), process::resident_mib)?,
                tenths: Vec::new(),
                left: 0,
                replies: 0,
                last: Vec::new(),
            }));
        }
        Ok(())
    }
}

/// A finished window.
#[derive(Debug)]
pub(crate) struct Measured {
    nanos: u64,
    /// Jobs completed in it.
    pub(crate) jobs: u64,
    pub(crate) latency: Histogram<u64>,
    /// See [`Tally::pushed`].
    pub(crate) pushed: Histogram<u64>,
    cpu: CpuTimes,
    wakes: u64,
    /// The server's resident memory at its end.
    resident_mib: f64,
    /// When each tenth of a counted window was complete, ns since its start.
    tenths: Vec<u64>,
    /// Jobs that the server must still have.
    pub(crate) left: u64,
    /// See [`Tally::replies`].
    pub(crate) replies: u64,
    /// See [`Tally::last`].
    pub(crate) last: Vec<u64>,
}

impl Measured {
    /// The server's share of one core, %.
    pub(crate) fn server_busy_percent(&self) -> f64 {
        self.percent(self.cpu.server)
    }

    /// Workers woken per job.
    pub(crate) fn wakes_per_job(&self) -> f64 {
        self.wakes as f64 / self.jobs.max(1) as f64
    }

    /// The columns every load has.
    pub(crate) fn sample(&self) -> Sample {
        let mut sample = Sample::from([
            (Metric::JobsPerSecond, self.jobs as f64 / self.seconds()),
            (Metric::ServerMicrosPerJob, self.per_job(self.cpu.server)),
            (Metric::ClientMicrosPerJob, self.per_job(self.cpu.client)),
            (Metric::ClientBusyPercent, self.percent(self.cpu.client)),
            (
                Metric::OthersBusyPercent,
                self.percent(self.cpu.others()) / process::cores() as f64,
            ),
            (Metric::RssMib, self.resident_mib),
        ]);
        let quantile = |share| self.latency.value_at_quantile(share) as f64 / 1e3;
        sample.extend([
            (Metric::P50Micros, quantile(0.5)),
            (Metric::P99Micros, quantile(0.99)),
        ]);
        sample
    }

    /// The rates of the first and the last tenth of a counted window: they show how depth affects a submit.
    pub(crate) fn tenth_rates(&self) -> Vec<(Metric, f64)> {
        let rate = |nanos: u64| self.jobs as f64 / 10.0 * 1e9 / nanos.max(1) as f64;
        match self.tenths.as_slice() {
            [first, .., before_last, last] => vec![
                (Metric::FirstTenthPerSecond, rate(*first)),
                (
                    Metric::LastTenthPerSecond,
                    rate(last.saturating_sub(*before_last)),
                ),
            ],
            _ => Vec::new(),
        }
    }

    fn seconds(&self) -> f64 {
        self.nanos.max(1) as f64 / 1e9
    }

    fn percent(&self, used: Duration) -> f64 {
        100.0 * used.as_secs_f64() / self.seconds()
    }

    fn per_job(&self, used: Duration) -> f64 {
        used.as_secs_f64() * 1e6 / self.jobs.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenths_become_rates() {
        let measured = |tenths| Measured {
            nanos: 4_000_000_000,
            jobs: 1000,
            latency: Histogram::new(2).unwrap(),
            pushed: Histogram::new(2).unwrap(),
            cpu: CpuTimes {
                server: Duration::from_secs(1),
                ..CpuTimes::default()
            },
            wakes: 500,
            resident_mib: 0.0,
            tenths,
            left: 0,
            replies: 0,
            last: Vec::new(),
        };
        let found = measured(vec![1_000_000_000, 2_000_000_000, 4_000_000_000]);
        let expected = [
            (Metric::FirstTenthPerSecond, 100.0),
            (Metric::LastTenthPerSecond, 50.0),
        ];
        assert_eq!(found.tenth_rates(), expected);
        assert!(measured(Vec::new()).tenth_rates().is_empty());
        let sample = found.sample();
        let figures = (
            sample[&Metric::JobsPerSecond],
            sample[&Metric::ServerMicrosPerJob],
            found.wakes_per_job(),
        );
        assert_eq!(figures, (250.0, 1000.0, 0.5));
    }
}
