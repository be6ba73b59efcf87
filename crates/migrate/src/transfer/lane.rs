//! The way of a job: taken there, pushed here, acknowledged there. A lane has one job at a time, and a connection to
//! either side.
//!
//! A lane takes no job while it has no connection to the daemon. From then on it holds the job until the daemon has it
//! on its disk, whatever happens to the connections meanwhile. With `--results` the lane also waits for the job's end
//! here, and the old broker gets what the worker here reports.

use std::fmt::Display;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::link::{PATIENCE, Trouble};
use super::place::Place;
use super::tally::Tally;

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Time between two signs of life for the old broker while a job waits here.
const BEAT_EVERY: Duration = Duration::from_secs(1);

/// How long the old broker may take for a sign of life.
const BEAT_WITHIN: Duration = Duration::from_secs(5);

/// A connection to the daemon that was not used for this long may have been given up on the other side, or on the way.
const UNUSED_MAX: Duration = Duration::from_secs(20);

/// How often the daemon may end the connection at the same job. It is well, because connections to it succeed: the job
/// is too large for it.
const HANG_UPS_MAX: u32 = 10;

/// Reports on their way from one connection to the other.
const REPORTS: usize = 16;

/// How a job ended here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is durable, and its result does not matter.
    Moved,
    /// A worker has done it, with this result.
    Done(Bytes),
    /// It has failed.
    Failed,
    /// It has failed with this exception.
    Exception(Bytes),
}

/// What a worker here reports about a job that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Report {
    Data(Bytes),
    Warning(Bytes),
    Status {
        numerator: Bytes,
        denominator: Bytes,
    },
}

/// The way of reports to the old broker.
pub(super) type Reports = mpsc::Sender<Report>;

/// A connection to the old broker, as its worker.
#[allow(async_fn_in_trait, reason = "one thread runs all lanes")]
pub(super) trait Old: Sized {
    /// A job as it was taken. Its text names it for people.
    type Job: Display;

    /// What the connections of all lanes share.
    type Crew;

    /// Once, before the first connection.
    fn crew(tally: &Tally) -> Result<Self::Crew, Trouble>;

    async fn connect(tally: &Rc<Tally>, crew: &Rc<Self::Crew>) -> Result<Self, Trouble>;

    /// The next job; `None` if there is none within a second or two.
    async fn take(&mut self) -> Result<Option<Self::Job>, Trouble>;

    /// Lets the old broker know that the worker lives.
    async fn beat(&mut self) -> Result<(), Trouble>;

    /// Passes on what a worker here reports.
    async fn relay(&mut self, _: &Self::Job, _: Report) -> Result<(), Trouble> {
        Ok(())
    }

    /// Acknowledges a job.
    async fn finish(&mut self, job: &Self::Job, outcome: &Outcome) -> Result<(), Trouble>;

    /// Takes leave. Returns jobs that were handed out meanwhile.
    async fn leave(&mut self) -> Vec<Self::Job>;

    /// Whether a new connection may acknowledge the jobs of an old one.
    const OUTLIVES_CONNECTION: bool;

    /// Keeps for the operator a job that the old broker no longer has. Does nothing if the old broker still has it.
    fn rescue(_: &Self::Job) {}
}

/// A connection to the daemon, as a producer.
#[allow(async_fn_in_trait, reason = "one thread runs all lanes")]
pub(super) trait New: Sized {
    type Job;

    async fn connect(tally: &Rc<Tally>) -> Result<Self, Trouble>;

    /// Pushes a job and waits for the answer, and with `--results` for its end.
    async fn push(&mut self, job: &Self::Job, reports: Reports) -> Result<Answer, Trouble>;
}

/// The daemon's answer to a push.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The job is durable, or has ended.
    Accepted(Outcome),
    /// The job is durable, and was before.
    Known,
    /// Not now, but it may accept the job later.
    NotNow(String),
    /// It never accepts the job.
    Never(String),
}

/// Runs one lane until the bridge stops.
pub(super) async fn work<O: Old, N: New<Job = O::Job>>(tally: Rc<Tally>, crew: Rc<O::Crew>) {
    let mut lane = Lane::<O, N> {
        tally,
        crew,
        old: None,
        new: None,
        used_at: Instant::now(),
        pause: PAUSE_MIN,
    };
    while !lane.tally.is_stopping() {
        if lane.reach_new().await && lane.reach_old().await {
            lane.step().await;
        }
    }
    let Some(old) = &mut lane.old else { return };
    for job in old.leave().await {
        lane.tally.took();
        lane.carry(&job).await;
    }
}

struct Lane<O: Old, N> {
    tally: Rc<Tally>,
    crew: Rc<O::Crew>,
    old: Option<O>,
    new: Option<N>,
    /// When the daemon last answered.
    used_at: Instant,
    pause: Duration,
}

impl<O: Old, N: New<Job = O::Job>> Lane<O, N> {
    async fn step(&mut self) {
        let Some(old) = &mut self.old else { return };
        match old.take().await {
            Ok(Some(job)) => {
                self.pause = PAUSE_MIN;
                self.tally.took();
                self.carry(&job).await;
            }
            Ok(None) => {
                self.pause = PAUSE_MIN;
                self.tally.found_none();
            }
            Err(why) => self.lost_old(why).await,
        }
    }

    async fn carry(&mut self, job: &O::Job) {
        match self.push(job).await {
            Ok((outcome, is_new)) => {
                self.tally.landed(is_new);
                self.finish(job, &outcome).await;
            }
            Err(why) => {
                O::rescue(job);
                self.tally.leave(&job.to_string(), &why);
            }
        }
        self.tally.released();
    }

    /// Pushes a job until the daemon has it. Returns how it ended there, and whether it is new there.
    ///
    /// # Errors
    /// Why the daemon will not have it: it refuses it for good, or still refuses it when the bridge stops.
    async fn push(&mut self, job: &O::Job) -> Result<(Outcome, bool), String> {
        let (mut pause, mut hang_ups) = (PAUSE_MIN, 0);
        loop {
            let why = match self.push_once(job).await {
                Ok(Answer::Accepted(outcome)) => return Ok((outcome, true)),
                Ok(Answer::Known) => return Ok((Outcome::Moved, false)),
                Ok(Answer::Never(why)) => return Err(why),
                Ok(Answer::NotNow(why)) => {
                    self.tally
                        .print(&format!("{} refuses a job for now: {why}", self.tally.to));
                    why
                }
                Err(why) => {
                    hang_ups += 1;
                    why
                }
            };
            if hang_ups >= HANG_UPS_MAX {
                return Err(format!("{} ends the connection: {why}", self.tally.to));
            }
            if self.tally.is_stopping() {
                return Err(why);
            }
            self.hold(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// One attempt. The old broker gets signs of life meanwhile.
    ///
    /// # Errors
    /// The daemon ended the connection.
    async fn push_once(&mut self, job: &O::Job) -> Result<Answer, String> {
        if self.used_at.elapsed() > UNUSED_MAX {
            self.new = None;
        }
        self.reach_new().await;
        let Self {
            old,
            new,
            tally,
            used_at,
            ..
        } = self;
        let Some(connection) = new else {
            return Ok(Answer::NotNow("no connection".to_owned()));
        };
        let (sender, reports) = mpsc::channel(REPORTS);
        match beside_job(old, connection.push(job, sender), job, reports).await {
            Ok(answer) => {
                *used_at = Instant::now();
                Ok(answer)
            }
            Err(why) => {
                *new = None;
                Err(tally.lost(&tally.to, why))
            }
        }
    }

    /// Waits. The old broker gets signs of life meanwhile.
    async fn hold(&mut self, time: Duration) {
        let Self { old, tally, .. } = self;
        beside(old, tally.pause(time)).await;
    }

    /// Acknowledges a job that is durable here. If that fails, the job comes again.
    async fn finish(&mut self, job: &O::Job, outcome: &Outcome) {
        for _ in 0..3 {
            if self.old.is_none() && O::OUTLIVES_CONNECTION {
                self.reach_old().await;
            }
            let Some(old) = &mut self.old else { continue };
            match old.finish(job, outcome).await {
                Ok(()) => return,
                Err(why) => self.lost_old(why).await,
            }
        }
        self.tally.print(&format!(
            "{}: jobs that are here could not be acknowledged there, and will come again",
            self.tally.from
        ));
    }

    /// Connects to the daemon if there is no connection. Returns whether there is one.
    async fn reach_new(&mut self) -> bool {
        if self.new.is_none() {
            match beside(&mut self.old, N::connect(&self.tally)).await {
                Ok(new) => (self.new, self.used_at) = (Some(new), Instant::now()),
                Err(why) => {
                    self.tally.cannot_ask();
                    self.complain(why, |tally| &tally.to).await;
                }
            }
        }
        self.new.is_some()
    }

    async fn reach_old(&mut self) -> bool {
        if self.old.is_none() {
            match O::connect(&self.tally, &self.crew).await {
                Ok(old) => self.old = Some(old),
                Err(why) => self.lost_old(why).await,
            }
        }
        self.old.is_some()
    }

    async fn lost_old(&mut self, why: Trouble) {
        self.old = None;
        self.tally.cannot_ask();
        self.complain(why, |tally| &tally.from).await;
    }

    async fn complain(&mut self, why: Trouble, at: impl Fn(&Tally) -> &Place) {
        self.tally.lost(at(&self.tally), why);
        self.hold(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

/// Waits for a future that reports about a job; the old broker gets the reports, and signs of life. A connection that
/// cannot take them is dropped.
async fn beside_job<O: Old, T>(
    old: &mut Option<O>,
    future: impl Future<Output = T>,
    job: &O::Job,
    mut reports: mpsc::Receiver<Report>,
) -> T {
    let mut future = std::pin::pin!(future);
    let done = loop {
        tokio::select! {
            done = beside(old, &mut future) => break done,
            Some(report) = reports.recv() => relay(old, job, report).await,
        }
    };
    // Reports that came together with the end are before it.
    while let Ok(report) = reports.try_recv() {
        relay(old, job, report).await;
    }
    done
}

async fn relay<O: Old>(old: &mut Option<O>, job: &O::Job, report: Report) {
    if let Some(connection) = old
        && !matches!(
            timeout(PATIENCE, connection.relay(job, report)).await,
            Ok(Ok(()))
        )
    {
        *old = None;
    }
}

/// Waits for a future; the old broker gets signs of life meanwhile. A connection that cannot take them is dropped.
async fn beside<O: Old, T>(old: &mut Option<O>, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut beats = interval(BEAT_EVERY);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beats.tick().await;
    loop {
        tokio::select! {
            done = &mut future => return done,
            _ = beats.tick() => {}
        }
        if let Some(connection) = old
            && !matches!(timeout(BEAT_WITHIN, connection.beat()).await, Ok(Ok(())))
        {
            *old = None;
        }
    }
}
