//! The load as data: how many connections do what, and the event that completes a job.

/// Submits in flight where a case pipelines.
pub(crate) const PIPELINE: usize = 128;
/// Jobs in FWP's large pushes.
pub(crate) const BATCH: usize = 1000;
/// Workers of EventMQ's first group.
pub(crate) const WORKERS: usize = 2;

/// The event that completes a job, up to which its latency is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The server has acknowledged the job.
    Acknowledged,
    /// A worker has received the job.
    Worked,
    /// The answer to a request has arrived: an echo, a result, the acknowledgement of a worker's report.
    Answered,
}

/// What a client's requests do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// Nothing: an echo, a ping, a fetch from an empty queue.
    Echo,
    /// Queue a job; the server acknowledges it.
    Submit,
    /// Queue a job and wait for its result.
    Call,
    /// Take a job and put it back.
    Cycle,
    /// Queue a job, take one, and finish it.
    Job,
}

/// A load: the number of connections per role, and the event that completes a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Connections that request.
    pub(crate) clients: usize,
    pub(crate) request: Request,
    /// Requests unanswered on each, or jobs in its one request.
    pub(crate) window: usize,
    /// Connections that work: they take jobs and finish them at once, as long as there are any.
    pub(crate) workers: usize,
    /// Workers send a report and the next request in one write, where the protocol allows a choice.
    pub(crate) eager: bool,
    /// Random unique ids, where they are optional: a queue keyed by unique id needs them to keep every job.
    pub(crate) unique: bool,
    /// Most jobs submitted and not yet worked; clients pause there.
    pub(crate) backlog_max: u64,
    pub(crate) ending: Ending,
    /// Jobs in the queue before the load begins.
    pub(crate) queued: u64,
}

impl Shape {
    /// Clients without workers.
    pub(crate) const fn clients(request: Request, clients: usize, window: usize) -> Self {
        let ending = match request {
            Request::Submit => Ending::Acknowledged,
            Request::Job => Ending::Worked,
            Request::Echo | Request::Call | Request::Cycle => Ending::Answered,
        };
        let (workers, eager, unique, backlog_max, queued) = (0, false, false, u64::MAX, 0);
        Shape {
            clients,
            request,
            window,
            workers,
            eager,
            unique,
            backlog_max,
            ending,
            queued,
        }
    }

    /// Jobs without workers.
    pub(crate) const fn submit(clients: usize, window: usize) -> Self {
        Self::clients(Request::Submit, clients, window)
    }

    /// Jobs from submit to worker.
    pub(crate) const fn flow(
        clients: usize,
        window: usize,
        workers: usize,
        backlog_max: u64,
    ) -> Self {
        Shape {
            workers,
            backlog_max,
            ending: Ending::Worked,
            ..Self::submit(clients, window)
        }
    }

    /// Workers alone, for a queue that is already full.
    pub(crate) const fn drain(workers: usize, ending: Ending) -> Self {
        Shape {
            workers,
            ending,
            ..Self::submit(0, 1)
        }
    }

    /// Whether every request of a client makes a job.
    pub(crate) const fn submits(&self) -> bool {
        matches!(self.request, Request::Submit | Request::Call | Request::Job) && self.clients > 0
    }

    /// Whether every job must be worked before the run ends.
    pub(crate) const fn works(&self) -> bool {
        self.workers > 0 || matches!(self.request, Request::Job)
    }
}

/// Foreground jobs.
pub(crate) const fn foreground(clients: usize, workers: usize) -> Shape {
    Shape {
        workers,
        ..Shape::clients(Request::Call, clients, 1)
    }
}

/// Fetches of jobs that are already queued. A job is done when its ACK is answered.
pub(crate) const fn fetch_ack(workers: usize, eager: bool, queued: u64) -> Shape {
    Shape {
        eager,
        queued,
        ..Shape::drain(workers, Ending::Answered)
    }
}

/// A request is in flight until a worker has received it.
pub(crate) fn delivered(clients: usize, in_flight: usize) -> Shape {
    let on_their_way = u64::try_from(clients.saturating_mul(in_flight)).unwrap_or(u64::MAX);
    Shape::flow(clients, in_flight, WORKERS, on_their_way)
}
