//! A line as a command. The handler of the command checks its arguments.
//!
//! Spec: "Client Commands". Verbs are upper case and end at the first blank. Arguments of `INFO`, `FLUSH` and `END` are
//! ignored.

use bytes::Bytes;

/// Queues in one line.
const WORDS_MAX: usize = 10_000;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// One job.
    Push(Bytes),
    /// A list of jobs.
    PushBulk(Bytes),
    /// Queues in order of preference; `None` if the line has no blank behind the verb.
    Fetch(Option<Vec<Bytes>>),
    /// A job succeeded.
    Ack(Bytes),
    /// A job failed.
    Fail(Bytes),
    /// A worker returns a job unfinished. Not specified.
    Requeue(Bytes),
    /// A worker is alive.
    Beat(Bytes),
    /// The server's counters.
    Info,
    /// Remove everything.
    Flush,
    /// An operation on queues.
    Queue(QueueRequest),
    /// An operation on many jobs; `None` if the line has no blank behind the verb.
    Mutate(Option<Bytes>),
    /// An operation on one job. Not specified.
    Job {
        /// `GET` or `CANCEL`.
        verb: Bytes,
        /// The job's name.
        jid: Bytes,
    },
    /// An operation on a batch.
    Batch {
        /// `NEW`, `OPEN`, `COMMIT`, `STATUS`.
        verb: Bytes,
        /// The batch's name, or its definition.
        rest: Bytes,
    },
    /// An operation on progress.
    Track {
        /// `GET` or `SET`.
        verb: Bytes,
        /// The job's name, or its progress.
        rest: Bytes,
    },
    /// The client ends the connection.
    End,
    /// A verb without its argument. Deployed servers reply with an internal error.
    Incomplete,
    /// Too many words.
    TooManyWords,
    /// Unknown verb.
    Unknown(Bytes),
}

/// An operation on queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueRequest {
    /// Workers get no jobs from them.
    Pause(Vec<Bytes>),
    /// Workers get jobs again.
    Resume(Vec<Bytes>),
    /// Delete the queues and their jobs.
    Remove(Vec<Bytes>),
    /// Report how long the next job of each has waited.
    Latency(Vec<Bytes>),
    /// Unknown operation.
    Unknown(Bytes),
}

impl Request {
    /// Parses a line.
    pub fn parse(line: &Bytes) -> Self {
        let (verb, rest) = cut(line);
        let with = |make: fn(Bytes) -> Self| rest.clone().map_or(Self::Incomplete, make);
        match verb.as_ref() {
            b"PUSH" => with(Self::Push),
            b"PUSHB" => with(Self::PushBulk),
            b"FETCH" => match rest {
                None => Self::Fetch(None),
                Some(rest) => {
                    words(&rest).map_or(Self::TooManyWords, |queues| Self::Fetch(Some(queues)))
                }
            },
            b"ACK" => with(Self::Ack),
            b"FAIL" => with(Self::Fail),
            b"REQUEUE" => with(Self::Requeue),
            b"BEAT" => with(Self::Beat),
            b"INFO" => Self::Info,
            b"FLUSH" => Self::Flush,
            b"QUEUE" => rest.map_or(Self::Incomplete, |rest| Self::queue(&rest)),
            b"MUTATE" => Self::Mutate(rest),
            b"JOB" => with(|rest| {
                let (verb, jid) = cut(&rest);
                Self::Job {
                    verb,
                    jid: jid.unwrap_or_default(),
                }
            }),
            b"BATCH" => with(|rest| {
                let (verb, rest) = cut(&rest);
                Self::Batch {
                    verb,
                    rest: rest.unwrap_or_default(),
                }
            }),
            b"TRACK" => with(|rest| {
                let (verb, rest) = cut(&rest);
                Self::Track {
                    verb,
                    rest: rest.unwrap_or_default(),
                }
            }),
            b"END" => Self::End,
            _ => Self::Unknown(verb),
        }
    }

    fn queue(rest: &Bytes) -> Self {
        let (verb, names) = cut(rest);
        let make: fn(Vec<Bytes>) -> QueueRequest = match verb.to_ascii_uppercase().as_slice() {
            b"PAUSE" => QueueRequest::Pause,
            b"RESUME" => QueueRequest::Resume,
            b"REMOVE" => QueueRequest::Remove,
            // May be without names: then the reply is empty.
            b"LATENCY" => QueueRequest::Latency,
            _ => return Self::Queue(QueueRequest::Unknown(verb)),
        };
        match names {
            None if verb.eq_ignore_ascii_case(b"LATENCY") => Self::Queue(make(Vec::new())),
            None => Self::Incomplete,
            Some(names) => {
                words(&names).map_or(Self::TooManyWords, |names| Self::Queue(make(names)))
            }
        }
    }
}

/// The text before the first blank, and the text behind it, if there is a blank.
fn cut(line: &Bytes) -> (Bytes, Option<Bytes>) {
    match memchr::memchr(b' ', line) {
        None => (line.clone(), None),
        Some(at) => (line.slice(..at), Some(line.slice(at + 1..))),
    }
}

/// Words between blanks, without empty ones. `None` if there are too many.
fn words(rest: &Bytes) -> Option<Vec<Bytes>> {
    let words = || {
        rest.split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty())
    };
    (words().count() <= WORDS_MAX).then(|| words().map(|word| rest.slice_ref(word)).collect())
}
