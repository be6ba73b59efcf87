//! A line and what it asks for. Whether its arguments make sense is for those to say who read them.
//!
//! Spec: "Client Commands". Verbs are upper case and end at the first blank; what stands behind `INFO`, `FLUSH` and `END`
//! is not looked at.

use bytes::Bytes;

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
            b"FETCH" => Self::Fetch(rest.map(|rest| words(&rest))),
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
            b"LATENCY" => return Self::Queue(QueueRequest::Latency(names.map_or_else(Vec::new, |it| words(&it)))),
            _ => return Self::Queue(QueueRequest::Unknown(verb)),
        };
        names.map_or(Self::Incomplete, |names| Self::Queue(make(words(&names))))
    }
}

/// What stands before the first blank, and what behind it, if there is one.
fn cut(line: &Bytes) -> (Bytes, Option<Bytes>) {
    match memchr::memchr(b' ', line) {
        None => (line.clone(), None),
        Some(at) => (line.slice(..at), Some(line.slice(at + 1..))),
    }
}

/// Names between blanks; two blanks have none between them.
fn words(rest: &Bytes) -> Vec<Bytes> {
    rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).map(|word| rest.slice_ref(word)).collect()
}
