//! Errors in messages, for the log and for counters: eMQP has no error reply.

/// Why a message, or one of its frames, is invalid. The session ignores such a message and goes on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// The first frame is not empty.
    #[error("the first frame is not empty: this is not eMQP")]
    NoDelimiter,
    /// The message lacks a delimiter, a version, a command or an identifier.
    #[error("{given} frames: a message has at least 4")]
    NoCommand {
        /// Frames of the message.
        given: usize,
    },
    /// The command needs more frames.
    #[error("{command} has {given} frames: at least {required} are needed")]
    Short {
        /// The command.
        command: &'static str,
        /// Frames it needs, the head included.
        required: usize,
        /// Frames of the message.
        given: usize,
    },
    /// `SCHEDULE` in the specification's form, which lacks the interval.
    #[error("SCHEDULE has {given} frames: the interval is missing")]
    NoInterval {
        /// Frames of the message.
        given: usize,
    },
    /// The interval is not a number of seconds.
    #[error("the interval is not a whole number of seconds")]
    Interval,
    /// The interval requires a cron expression, and there is none.
    #[error("an interval below 0 stands for a cron expression, and there is none")]
    NoCron,
    /// `INFORM` with queues that are not a list of weights and names.
    #[error("the queues are not a list of [weight, \"name\"], from byte {at}")]
    Queues {
        /// Offset of the error in bytes.
        at: usize,
    },
    /// `INFORM` with more queues than [`super::QUEUES_MAX`].
    #[error("more than {max} queues")]
    TooManyQueues {
        /// The limit.
        max: usize,
    },
    /// The body is not JSON, or nested too deep.
    #[error("the body is not JSON, or nested deeper than {depth_max}, from byte {at}")]
    Json {
        /// Offset of the error in bytes.
        at: usize,
        /// The limit of nesting.
        depth_max: usize,
    },
    /// The body is too long to be parsed.
    #[error("a scheduled job has {given} bytes: the limit is {max}")]
    JobTooLong {
        /// The limit in bytes.
        max: usize,
        /// Its length in bytes.
        given: usize,
    },
    /// The body is JSON, but not `["run", {…}]`.
    #[error("the body is not a list with a job in its second place")]
    NotAJob,
}
