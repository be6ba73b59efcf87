//! A line and what it asks for. Whether its arguments make sense is for those to say who read them.
//!
//! Spec: "Client Commands". Verbs are upper case and end at the first blank; what stands behind `INFO`, `FLUSH` and `END`
//! is not looked at.

use bytes::Bytes;

/// Queues named in one line.
const WORDS_MAX: usize = 10_000;

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A job.
    Push(Bytes),
    /// A list of jobs.
    PushBulk(Bytes),
    /// One job from the first of these queues that has one; `None` if none was named, not even with a blank.
    Fetch(Option<Vec<Bytes>>),
    /// A job was done.
    Ack(Bytes),
    /// A job has failed.
    Fail(Bytes),
    /// A job is given back, unworked. Not specified.
    Requeue(Bytes),
    /// A worker is alive.
    Beat(Bytes),
    /// The figures.
    Info,
    /// Everything away.
    Flush,
    /// Queues.
    Queue(QueueRequest),
    /// Jobs in bulk; `None` if nothing was said of them, not even a blank.
    Mutate(Option<Bytes>),
    /// One job. Not specified.
    Job {
        /// What to do: `GET` or `CANCEL`.
        verb: Bytes,
        /// Which.
        jid: Bytes,
    },
    /// Batches: an operation and what follows it.
    Batch {
        /// `NEW`, `OPEN`, `COMMIT`, `STATUS`.
        verb: Bytes,
        /// A batch, or what it is to be.
        rest: Bytes,
    },
    /// Progress: an operation and what follows it.
    Track {
        /// `GET` or `SET`.
        verb: Bytes,
        /// A job, or what to say of it.
        rest: Bytes,
    },
    /// Goodbye.
    End,
    /// A verb without what it needs: what deployed servers call an internal error.
    Incomplete,
    /// More words than anybody has queues.
    TooManyWords,
    /// No such verb.
    Unknown(Bytes),
}

/// What to do to queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueRequest {
    /// Nothing is fetched from them.
    Pause(Vec<Bytes>),
    /// Again it is.
    Resume(Vec<Bytes>),
    /// They go, and what waits in them.
    Remove(Vec<Bytes>),
    /// How long the next job of each has waited.
    Latency(Vec<Bytes>),
    /// There is no such thing to do.
    Unknown(Bytes),
}

impl Request {
    /// Reads a line.
    #[must_use]
    pub fn parse(line: &Bytes) -> Self {
        let (verb, rest) = cut(line);
        let with = |make: fn(Bytes) -> Self| rest.clone().map_or(Self::Incomplete, make);
        match verb.as_ref() {
            b"PUSH" => with(Self::Push),
            b"PUSHB" => with(Self::PushBulk),
            b"FETCH" => match rest {
                None => Self::Fetch(None),
                Some(rest) => words(&rest).map_or(Self::TooManyWords, |queues| Self::Fetch(Some(queues))),
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
                Self::Job { verb, jid: jid.unwrap_or_default() }
            }),
            b"BATCH" => with(|rest| {
                let (verb, rest) = cut(&rest);
                Self::Batch { verb, rest: rest.unwrap_or_default() }
            }),
            b"TRACK" => with(|rest| {
                let (verb, rest) = cut(&rest);
                Self::Track { verb, rest: rest.unwrap_or_default() }
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
            // Of no queue at all, if none is named.
            b"LATENCY" => QueueRequest::Latency,
            _ => return Self::Queue(QueueRequest::Unknown(verb)),
        };
        match names {
            None if verb.eq_ignore_ascii_case(b"LATENCY") => Self::Queue(make(Vec::new())),
            None => Self::Incomplete,
            Some(names) => words(&names).map_or(Self::TooManyWords, |names| Self::Queue(make(names))),
        }
    }
}

/// What stands before the first blank, and what behind it, if there is one.
fn cut(line: &Bytes) -> (Bytes, Option<Bytes>) {
    match memchr::memchr(b' ', line) {
        None => (line.clone(), None),
        Some(at) => (line.slice(..at), Some(line.slice(at + 1..))),
    }
}

/// Names between blanks; two blanks have none between them. `None` if there are too many.
fn words(rest: &Bytes) -> Option<Vec<Bytes>> {
    let words = || rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    (words().count() <= WORDS_MAX).then(|| words().map(|word| rest.slice_ref(word)).collect())
}
