//! Every limit the engine keeps, with its default. The server fills it from the configuration.

/// Limits and periods. Everything has one, judged before anything is allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Jobs in all places together. Dead ones make way.
    pub jobs_max: u64,
    /// Bytes they may be counted as ([`crate::Job::weight_bytes`]), schedules included. Dead ones make way.
    pub jobs_bytes_max: u64,
    /// Schedules.
    pub schedules_max: u32,
    /// Batches. For one more, that which has been at rest for longest is forgotten.
    pub batches_max: u32,
    /// How often a batch may be in a batch that is in another.
    pub batch_depth_max: u32,
    /// How long a batch is known once nothing of it waits or is worked on, in milliseconds. Jobs in the dead set do not
    /// count: they live on without it.
    pub batch_keep_ms: u64,
    /// Queues known.
    pub queues_max: u32,
    /// Queues one client may serve, repetitions included.
    pub abilities_max: u32,
    /// Bytes of a queue's name, a job's public name or a coalescing key.
    pub name_bytes_max: u32,
    /// Clients that listen to one job.
    pub listeners_max: u32,
    /// The longest lease, in milliseconds.
    pub lease_ms_max: u64,
    /// How long the dead set keeps a job, in milliseconds.
    pub dead_ms: u64,
    /// Dead jobs. For one more, the one that would be forgotten first is dropped.
    pub dead_max: u64,
    /// Bytes that dead jobs may be counted as, in the same way.
    pub dead_bytes_max: u64,
    /// How long a woken sleeper may take to ask for work before another is woken in its stead, in milliseconds.
    pub wake_ms: u64,
    /// How long a named worker may be silent, in milliseconds.
    pub beat_ms: u64,
    /// Give back what a dead named worker held, instead of letting the leases run out.
    pub requeue_dead_workers: bool,
    /// Workers that may be lost with a job that has no limit of its own to that, before it goes to the dead set; 0 = any
    /// number.
    pub losses_max: u32,
    /// How long such a job waits at least after the second loss, in milliseconds, and less than twice that; twice as long
    /// after each further one. An hour at least is the most.
    pub loss_pause_ms: u64,
    /// Rows of one page of a listing, and jobs changed in one step of a bulk command. What is looked at on the way is a
    /// small multiple of it.
    pub page_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        const DAY_MS: u64 = 86_400_000;
        Self {
            jobs_max: 50_000_000,
            jobs_bytes_max: u64::MAX,
            schedules_max: 10_000,
            batches_max: 100_000,
            batch_depth_max: 100,
            batch_keep_ms: 7 * DAY_MS,
            queues_max: 1_000_000,
            abilities_max: 10_000,
            name_bytes_max: 8_192,
            listeners_max: 10_000,
            lease_ms_max: 365 * DAY_MS,
            dead_ms: 180 * DAY_MS,
            dead_max: 1_000_000,
            dead_bytes_max: u64::MAX,
            wake_ms: 1_000,
            beat_ms: 60_000,
            requeue_dead_workers: false,
            losses_max: 5,
            loss_pause_ms: 1_000,
            page_max: 200,
        }
    }
}
