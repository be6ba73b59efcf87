//! What a command to the engine was for. A FWP command of several steps, or one that waits, passes its state from
//! question to question.

use bytes::Bytes;
use windlass_session::Question;

use super::{fetch, info, mutate, queues};

/// A command that the engine has not answered yet.
#[derive(Debug)]
pub enum Ask {
    /// Push a job.
    Push {
        /// The batch that the job joins.
        bid: Option<Bytes>,
    },
    /// Finish a job.
    Finish,
    /// Fail, release or cancel this job.
    Report(Bytes),
    /// Create, open or commit a batch.
    Batch {
        /// Its name.
        bid: Bytes,
        /// The reply on success; OK if absent.
        said: Option<Bytes>,
        /// Its parent batch.
        parent: Option<Bytes>,
    },
    /// Beat for this worker.
    Beat(Bytes),
    /// FETCH waits for a job.
    Fetch(fetch::Fetch),
    /// PUSHB pushes a job of its list.
    Listed {
        /// Its name.
        jid: Bytes,
        /// The batch that it joins.
        bid: Option<Bytes>,
    },
    /// INFO reads counters.
    Info(Box<info::Gathered>),
    /// INFO sends them.
    Leaving(info::Leaving),
    /// QUEUE PAUSE, RESUME or REMOVE lists queues.
    Queues(Box<queues::Queues>),
    /// QUEUE PAUSE or RESUME does one of several queues.
    Pause,
    /// QUEUE REMOVE removes this queue. Its jobs go a page at a time, the queue itself with the last page.
    Remove(Box<queues::Queues>, Bytes),
    /// QUEUE LATENCY looks at the first job of this queue.
    Age(Bytes),
    /// FLUSH removes a part.
    Flush,
    /// MUTATE changes some jobs.
    Mutate(Box<mutate::Mutating>),
    /// JOB GET.
    Look,
    /// TRACK GET of this job.
    Track(Bytes),
    /// BATCH STATUS of this batch.
    BatchStatus(Bytes),
}

impl Question for Ask {
    const WEIGHT_MAX: usize = 1;

    /// Nothing is read until a command of several steps, or one that waits, is done.
    fn weight(&self) -> usize {
        match self {
            Self::Push { .. } | Self::Finish | Self::Report(_) | Self::Batch { .. } | Self::Beat(_) => 0,
            Self::Fetch(_)
            | Self::Listed { .. }
            | Self::Info(_)
            | Self::Leaving(_)
            | Self::Queues(_)
            | Self::Pause
            | Self::Remove(..)
            | Self::Age(_)
            | Self::Flush
            | Self::Mutate(_)
            | Self::Look
            | Self::Track(_)
            | Self::BatchStatus(_) => 1,
        }
    }
}
