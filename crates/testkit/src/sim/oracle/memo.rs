//! The oracle's records of jobs, queues, clients and workers: plain values in plain lists.

use bytes::Bytes;
use windlass_engine::{
    ClientId, ClientInfo, Expiry, Extra, Holder, Job, JobId, JobState, KeyUntil, Lease, LeaseTerms,
    Priority, Protocol, Protocols, QueueId, QueueKind, QueueRules, Select, Tag, Throttle,
    Timestamp, WorkerState,
};

/// The end of a job is kept so long for a client that is away.
pub(crate) const COLLECTED_WITHIN_MS: u64 = 60_000;

/// A job. Its `queue` is the oracle's own queue number, its `rank` the oracle's own rank.
#[derive(Clone, Debug)]
pub(crate) struct JobMemo {
    pub(crate) job: Job,
    /// Whether it holds its coalescing key now.
    pub(crate) holds_key: bool,
    /// When its lease ends: the lease's own time, but never before the lease was granted.
    pub(crate) lease_due: Timestamp,
    /// The number of the named worker that took the job, if there was one.
    pub(crate) lease_worker: Option<u64>,
    /// Whether it counts against its queue's throttle.
    pub(crate) has_slot: bool,
}

impl JobMemo {
    pub(crate) const fn new(job: Job) -> Self {
        Self {
            job,
            holds_key: false,
            lease_due: Timestamp::NEVER,
            lease_worker: None,
            has_slot: false,
        }
    }

    pub(crate) fn extra(&mut self) -> &mut Extra {
        self.job.extra.get_or_insert_default()
    }

    /// Records a visible change.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        if let Some(track) = self
            .job
            .extra
            .as_deref_mut()
            .and_then(|extra| extra.track.as_mut())
        {
            track.updated_at = now;
        }
    }

    /// The connection that holds it, if one does.
    pub(crate) fn connection(&self) -> Option<ClientId> {
        match self.job.lease().map(|lease| &lease.holder) {
            Some(Holder::Connection(client)) => Some(*client),
            Some(Holder::Named(_) | Holder::Away(_)) | None => None,
        }
    }

    /// Whether a worker of the daemon's earlier life may come back and report on it.
    pub(crate) fn is_away(&self) -> bool {
        self.job
            .lease()
            .is_some_and(|lease| matches!(lease.holder, Holder::Away(_)))
    }

    /// Whether it lived for its listeners, and they are gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.job.durable && self.job.listeners().is_empty()
    }

    /// The name under which its end is collected, empty if it has none.
    pub(crate) fn collector(&self) -> &[u8] {
        self.job
            .extra
            .as_deref()
            .map_or(&[], |extra| &extra.collector)
    }

    /// How long its end is kept for that.
    pub(crate) fn uncollected_ms(&self) -> u64 {
        if self.collector().is_empty() {
            0
        } else {
            COLLECTED_WITHIN_MS
        }
    }

    pub(crate) fn expires(&self) -> Expiry {
        self.job
            .extra
            .as_deref()
            .map(|extra| extra.expires)
            .unwrap_or_default()
    }

    fn key_until(&self) -> KeyUntil {
        self.job
            .extra
            .as_deref()
            .map(|extra| extra.key_until)
            .unwrap_or_default()
    }

    /// The latest time at which its key is released.
    pub(crate) fn key_limit(&self) -> Timestamp {
        match self.key_until() {
            KeyUntil::EndOr(at) | KeyUntil::StartOr(at) => at,
            KeyUntil::End | KeyUntil::Start | KeyUntil::Gone => Timestamp::NEVER,
        }
    }

    /// Whether it has a key, and is in a state in which keys are held.
    pub(crate) fn wants_key(&self) -> bool {
        let started = matches!(self.key_until(), KeyUntil::Start | KeyUntil::StartOr(_))
            && self.job.attempts > 0;
        let over = match self.job.state {
            JobState::Dead(_) => true,
            JobState::Done(_) => self.key_until() != KeyUntil::Gone,
            _ => false,
        };
        self.job.key().is_some() && !started && !over && !self.joined()
    }

    /// The order of ready jobs: entries of `cycle` queues by their own number, jobs by priority, then by rank.
    pub(crate) fn sort_key(&self) -> (usize, bool, u64, u64) {
        match self.job.cycle() {
            Some(cycle) => (0, false, cycle.priority, self.job.rank),
            None => (self.job.priority.lane(), true, self.job.rank, 0),
        }
    }

    /// The lane that a choice between queues looks at.
    pub(crate) fn lane(&self) -> usize {
        self.sort_key().0
    }
}

/// A job without fields that differ between engine and oracle: ranks, queue numbers, the engine's own alarm.
pub(crate) fn plain(job: &Job) -> Job {
    let mut job = job.clone();
    (job.rank, job.queue) = (0, QueueId(0));
    if let JobState::Leased(lease) = &mut job.state {
        **lease = Lease::new(
            lease.holder.clone(),
            lease.token,
            lease.taken_at,
            lease.until,
            lease.on_expiry,
        );
    }
    if let Some(origin) = job.extra.as_mut().and_then(|extra| extra.origin.as_mut()) {
        origin.schedule = None;
    }
    job
}

/// A queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueMemo {
    /// The oracle's own number, never used twice.
    pub(crate) number: QueueId,
    /// The engine's number, once it has been seen.
    pub(crate) id: Option<QueueId>,
    /// Its last use, by the count of all uses.
    pub(crate) used: u64,
    pub(crate) name: Bytes,
    pub(crate) kind: QueueKind,
    /// In whose listings it is.
    pub(crate) known: Protocols,
    /// Whose jobs it does not hand out.
    pub(crate) paused: Protocols,
    /// Since when (wall clock).
    pub(crate) paused_at: Option<Timestamp>,
    pub(crate) jobs_max: [Option<u32>; Priority::COUNT],
    /// Whose jobs are limited, if not all.
    pub(crate) jobs_max_of: Option<Protocol>,
    pub(crate) throttle: Option<Throttle>,
    pub(crate) rules: QueueRules,
    /// Whether all protocols share its jobs.
    pub(crate) bridged: bool,
    pub(crate) serial: u64,
}

impl QueueMemo {
    /// Whose part of the queue a client of this protocol deals with; `None` for the whole queue.
    pub(crate) fn scope(&self, own: Option<Protocol>) -> Option<Protocol> {
        own.filter(|_| !self.bridged && self.kind == QueueKind::Work)
    }

    /// Whether a client of this protocol can have a part in it: only spiderq can in a `cycle` queue.
    pub(crate) fn is_open_to(&self, own: Option<Protocol>) -> bool {
        self.kind == QueueKind::Work || own.is_none() || own == Some(Protocol::SPIDERQ)
    }

    /// Whether it is in the listings of a client of this protocol.
    pub(crate) fn is_known_to(&self, own: Option<Protocol>) -> bool {
        self.is_open_to(own)
            && self
                .scope(own)
                .map_or(self.known != Protocols::NONE, |own| self.known.has(own))
    }

    /// Its limits for the jobs of one protocol, or all its limits.
    pub(crate) fn limits_for(&self, own: Option<Protocol>) -> [Option<u32>; Priority::COUNT] {
        match (own, self.jobs_max_of) {
            (Some(own), Some(of)) if own != of => [None; Priority::COUNT],
            (_, _) => self.jobs_max,
        }
    }

    /// Nothing is left of what these protocols have set.
    pub(crate) fn forget(&mut self, gone: Protocols) {
        (self.known, self.paused) = (self.known.but(gone), self.paused.but(gone));
        if self.paused == Protocols::NONE {
            self.paused_at = None;
        }
        if gone == Protocols::ALL || self.jobs_max_of.is_some_and(|of| gone.has(of)) {
            (self.jobs_max, self.jobs_max_of) = ([None; Priority::COUNT], None);
        }
    }
}

/// A queue and the terms on which a client takes from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) queue: QueueId,
    pub(crate) weight: u32,
    pub(crate) lease: LeaseTerms,
    pub(crate) unclaimed: Option<Protocol>,
}

/// A take that waits.
#[derive(Clone, Debug)]
pub(crate) struct Blocked {
    pub(crate) tag: Tag,
    pub(crate) from: Vec<Served>,
    pub(crate) worker: Bytes,
    pub(crate) until: Timestamp,
    pub(crate) since: u64,
}

/// What a client waits for.
#[derive(Clone, Debug)]
pub(crate) enum Waiting {
    Nothing,
    Jobs(Vec<Blocked>),
    Asleep { since: u64 },
    Awake { queue: QueueId, since: u64 },
}

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct ClientMemo {
    pub(crate) id: ClientId,
    pub(crate) info: ClientInfo,
    pub(crate) label: Bytes,
    pub(crate) subscriptions: Vec<Served>,
    pub(crate) waiting: Waiting,
    pub(crate) credits: u32,
    pub(crate) credit_since: u64,
    pub(crate) select: Select,
    pub(crate) worker: Option<u64>,
    pub(crate) last_queue: Option<QueueId>,
    /// The queues that it has taken from by name, and when; and when it last did.
    pub(crate) takes_from: (Vec<(QueueId, Timestamp)>, Timestamp),
}

impl ClientMemo {
    pub(crate) fn new(id: ClientId, info: ClientInfo) -> Self {
        Self {
            id,
            info,
            label: Bytes::new(),
            subscriptions: Vec::new(),
            waiting: Waiting::Nothing,
            credits: 0,
            credit_since: 0,
            select: Select::BestPriority,
            worker: None,
            last_queue: None,
            takes_from: (Vec::new(), Timestamp(0)),
        }
    }

    /// Whether it serves a queue, waits there, or was woken for it.
    pub(crate) fn is_at(&self, queue: QueueId) -> bool {
        let mut served = self
            .subscriptions
            .iter()
            .chain(self.blocked().iter().flat_map(|take| &take.from));
        served.any(|served| served.queue == queue) || self.woken_for() == Some(queue)
    }

    /// Its blocked takes.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.waiting, Waiting::Jobs(_) | Waiting::Asleep { .. }) || self.credits > 0
    }

    pub(crate) fn blocked(&self) -> &[Blocked] {
        if let Waiting::Jobs(takes) = &self.waiting {
            takes
        } else {
            &[]
        }
    }

    /// The queue it was woken for, if it has not asked for work since.
    pub(crate) const fn woken_for(&self) -> Option<QueueId> {
        match &self.waiting {
            Waiting::Awake { queue, .. } => Some(*queue),
            Waiting::Nothing | Waiting::Jobs(_) | Waiting::Asleep { .. } => None,
        }
    }
}

/// A worker known by name.
#[derive(Clone, Debug)]
pub(crate) struct WorkerMemo {
    pub(crate) number: u64,
    pub(crate) name: Bytes,
    pub(crate) about: Bytes,
    pub(crate) state: WorkerState,
    pub(crate) beat_at: Timestamp,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) protocol: Option<Protocol>,
}

/// A sleeper that was woken, and its deadline to ask for work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wakeup {
    pub(crate) until: Timestamp,
    pub(crate) client: ClientId,
    pub(crate) since: u64,
}

/// The number of a job.
pub(crate) const fn id_of(memo: &JobMemo) -> JobId {
    memo.job.id
}
