//! A load as data: the number of connections per role, and the event that completes a job.

use crate::load::driver::{Ending, Rules};

/// The function of all jobs.
pub const FUNCTION: &[u8] = b"bench";
/// The usual size of a job's body, bytes.
pub const BODY_BYTES: usize = 100;
/// Submits in flight where a case pipelines.
pub const PIPELINE: usize = 128;
/// Producers pause when this number of jobs waits for workers, and resume at half of it. The bound gives a steady state; without
/// it, the faster submitter would build the longer queue and so lose.
pub const BACKLOG_MAX: u64 = 4096;
/// The same where each job costs two disk writes, so that the rest is done in about a second.
pub const DURABLE_BACKLOG_MAX: u64 = 512;

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Connections that send ECHO_REQ, one at a time.
    pub echoers: usize,
    /// Connections that submit background jobs.
    pub producers: usize,
    /// Submits outstanding per producer.
    pub window: usize,
    /// Connections that submit foreground jobs, one at a time, and wait for the result.
    pub callers: usize,
    /// Connections that grab jobs, finish them at once, and sleep (PRE_SLEEP) when there are none.
    pub workers: usize,
    /// Random unique ids instead of empty ones.
    pub unique: bool,
    /// Most jobs submitted and not yet worked; producers pause there.
    pub backlog_max: u64,
    /// The event that completes a job.
    pub ending: Ending,
}

impl Shape {
    /// No connections: the base of the others.
    const NOBODY: Shape = Shape {
        echoers: 0,
        producers: 0,
        window: 1,
        callers: 0,
        workers: 0,
        unique: false,
        backlog_max: u64::MAX,
        ending: Ending::Acknowledged,
    };

    /// Echoes.
    pub const fn echo(echoers: usize) -> Self {
        Shape { echoers, ending: Ending::Answered, ..Self::NOBODY }
    }

    /// Background submits without workers.
    pub const fn background(producers: usize, window: usize) -> Self {
        Shape { producers, window, ..Self::NOBODY }
    }

    /// Background jobs from submit to worker.
    pub const fn flow(producers: usize, window: usize, workers: usize) -> Self {
        let backlog_max = BACKLOG_MAX;
        Shape { producers, window, workers, backlog_max, ending: Ending::Worked, ..Self::NOBODY }
    }

    /// Foreground jobs.
    pub const fn foreground(callers: usize, workers: usize) -> Self {
        Shape { callers, workers, ending: Ending::Answered, ..Self::NOBODY }
    }

    /// Workers alone, for a queue that is already full.
    pub const fn drain(workers: usize) -> Self {
        Shape { workers, ending: Ending::Worked, ..Self::NOBODY }
    }

    /// The same with random unique ids: a queue keyed by unique id needs them to keep every job.
    pub const fn with_unique_ids(self) -> Self {
        Shape { unique: true, ..self }
    }

    /// The same with another backlog.
    pub const fn with_backlog(self, backlog_max: u64) -> Self {
        Shape { backlog_max, ..self }
    }

    /// The counting rules of this shape.
    pub fn rules(&self) -> Rules {
        Rules {
            ending: self.ending,
            backlog_max: self.backlog_max,
            acknowledged: self.echoers == 0,
            worked: self.workers > 0,
        }
    }

    /// The number of connections.
    pub fn connections(&self) -> usize {
        self.echoers + self.producers + self.callers + self.workers
    }
}
