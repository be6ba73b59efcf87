//! What a command to the engine was for. A FWP command of several steps, or one that waits, passes its state from
//! question to question.

use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};

use bytes::Bytes;
use windlass_engine::{Cursor, Filter, Mutation, Stats, Timestamp};
use windlass_session::Question;

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
        /// The batch that may be unknown: itself, or the parent of a new one.
        bid: Bytes,
        /// The reply on success; OK if absent.
        said: Option<Bytes>,
    },
    /// Beat for this worker.
    Beat(Bytes),
    /// FETCH waits for a job.
    Fetch(Fetch),
    /// PUSHB pushes a job of its list.
    Listed {
        /// Its name.
        jid: Bytes,
        /// The batch that it joins.
        bid: Option<Bytes>,
    },
    /// INFO reads counters.
    Info(Box<Gathered>),
    /// INFO sends them.
    Leaving(Leaving),
    /// QUEUE PAUSE, RESUME or REMOVE lists queues.
    Queues(Box<Queues>),
    /// QUEUE PAUSE or RESUME does one of several queues.
    Pause,
    /// QUEUE REMOVE removes this queue. Its jobs go a page at a time, the queue itself with the last page.
    Remove(Box<Queues>, Bytes),
    /// QUEUE LATENCY looks at the first job of this queue.
    Age(Bytes),
    /// FLUSH removes a part.
    Flush,
    /// MUTATE changes some jobs.
    Mutate(Box<Mutating>),
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
        let is_one_step = matches!(
            self,
            Self::Push { .. } | Self::Finish | Self::Report(_) | Self::Batch { .. } | Self::Beat(_)
        );
        usize::from(!is_one_step)
    }
}

/// The parameters of a FETCH.
#[derive(Debug)]
pub struct Fetch {
    /// Queues, in order of preference.
    pub(super) queues: Vec<Bytes>,
    /// When the wait ends.
    pub(super) until: Timestamp,
}

/// INFO's counters read so far.
#[derive(Debug, Default)]
pub struct Gathered {
    pub(super) stats: Stats,
    pub(super) queues: u64,
    pub(super) waiting: u64,
    pub(super) waiting_in_default: u64,
    /// The text of each queue read so far, sorted by name as on deployed servers.
    pub(super) members: BTreeMap<Bytes, Box<[u8]>>,
    /// Bytes of these texts, each with a comma.
    pub(super) bytes: usize,
}

/// A reply to INFO that is being sent.
#[derive(Debug)]
pub struct Leaving {
    pub(super) members: btree_map::IntoValues<Bytes, Box<[u8]>>,
    pub(super) end: String,
}

/// A MUTATE in progress.
#[derive(Debug)]
pub struct Mutating {
    pub(super) filter: Filter,
    pub(super) action: Mutation,
    /// Names that remain.
    pub(super) names: VecDeque<Bytes>,
    /// The numbers in names that the daemon gave, which come last, as far as they remain.
    pub(super) numbers: BTreeSet<u64>,
}

/// A QUEUE PAUSE, RESUME or REMOVE in progress.
#[derive(Debug)]
pub struct Queues {
    /// Pause or resume; `None`: remove.
    pub(super) paused: Option<bool>,
    /// Queues that remain.
    pub(super) names: VecDeque<Bytes>,
    /// The next page of the list of all queues.
    pub(super) next: Option<Cursor>,
}
