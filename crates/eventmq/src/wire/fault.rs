//! What is wrong with a message. No peer is told: eMQP has no error. It is for the log, and for whoever counts.

/// Why a message, or one of its frames, cannot be read. Whoever reads it ignores the message; the connection lives on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// The first frame is to be empty, as that of every message.
    #[error("the first frame is not empty: this is not eMQP")]
    NoDelimiter,
    /// Every message has a delimiter, a version, a command and an identifier.
    #[error("{given} frames: a message has at least 4")]
    NoCommand {
        /// Frames that are there.
        given: usize,
    },
    /// A frame that the command needs is not there.
    #[error("{command} has {given} frames: at least {required} are needed")]
    Short {
        /// Which command.
        command: &'static str,
        /// Frames it needs, those of every message included.
        required: usize,
        /// Frames that are there.
        given: usize,
    },
    /// `SCHEDULE` as the specification has it, which says nowhere when the job is to run.
    #[error("SCHEDULE has {given} frames: without an interval nobody knows when the job is to run")]
    NoInterval {
        /// Frames that are there.
        given: usize,
    },
    /// An interval that is no number of seconds.
    #[error("the interval is not a whole number of seconds")]
    Interval,
    /// The interval says that there is a cron expression, and there is none.
    #[error("an interval below 0 stands for a cron expression, and there is none")]
    NoCron,
    /// `INFORM` with queues that are no list of weights and names.
    #[error("the queues are not a list of [weight, \"name\"], from byte {at}")]
    Queues {
        /// Where it ceases to be one, in bytes.
        at: usize,
    },
    /// `INFORM` with more queues than [`super::QUEUES_MAX`].
    #[error("more than {max} queues")]
    TooManyQueues {
        /// How many there may be.
        max: usize,
    },
    /// A body that is no JSON, or nested too deep.
    #[error("the body is not JSON, or nested deeper than {depth_max}, from byte {at}")]
    Json {
        /// Where it ceases to be, in bytes.
        at: usize,
        /// How deep it may be nested.
        depth_max: usize,
    },
    /// A body too long to be worked on.
    #[error("a job to be scheduled has {given} bytes: at most {max} are taken")]
    JobTooLong {
        /// How many there may be.
        max: usize,
        /// How many there are.
        given: usize,
    },
    /// A body that is JSON, but not `["run", {…}]`.
    #[error("the body is not a list of a word and a job")]
    NotAJob,
}
