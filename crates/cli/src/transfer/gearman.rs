//! Gearman's both sides: a worker of the old job server, a client of the daemon.
//!
//! Spec: gearmand's `PROTOCOL`, "Worker Requests", "Client Requests", "Administrative Protocol" (`status`).

use std::fmt;
use std::mem;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::time::timeout;
use windlass_gearman::wire::{
    AssignForm, ErrorReply, FUNCTION_BYTES_MAX, Frames, Limits, Message, Packet, Priority, Request, Response,
    Submission,
};

use super::lane::{Answer, New, Old};
use super::link::{JOB_BYTES_MAX, Link, PATIENCE, Trouble, within};
use super::tally::Tally;

/// How long a lane sleeps before it asks for a job although no NOOP came: functions may be new.
const SLEEP: Duration = Duration::from_secs(1);

/// Time between two looks for new functions.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Functions of one lane.
const FUNCTIONS_MAX: usize = 65_536;

/// A packet of the old job server: the largest job, and room for its names.
const FRAME_BYTES_MAX: usize = JOB_BYTES_MAX + (64 << 10);

/// A row of `status`: a name and three numbers.
const LINE_BYTES_MAX: usize = FUNCTION_BYTES_MAX + 256;

/// What both sides have: packets over a connection.
#[derive(Debug)]
struct Peer {
    link: Link,
    frames: Frames,
}

impl Peer {
    async fn connect(place: &super::Place) -> Result<Self, Trouble> {
        let limits = Limits { line_bytes_max: LINE_BYTES_MAX, ..Limits::new(FRAME_BYTES_MAX) };
        let mut peer = Self { link: Link::connect(place).await?, frames: Frames::new(limits) };
        // What accepts connections may not be a job server, or not be well.
        peer.echo(&[]).await?;
        Ok(peer)
    }

    async fn send(&mut self, requests: &[Request]) -> Result<(), Trouble> {
        let mut out = BytesMut::new();
        requests.iter().for_each(|request| request.encode(&mut out));
        self.link.send(&out).await
    }

    /// Sends these requests and waits until the job server has read them. Returns its errors.
    async fn echo(&mut self, requests: &[Request]) -> Result<Vec<String>, Trouble> {
        const MARK: &[u8] = b"windlass bridge";
        let echo = Request::Echo { data: Bytes::from_static(MARK) };
        self.send(&[requests, &[echo]].concat()).await?;
        let mut errors = Vec::new();
        loop {
            let packet = self.packet().await?;
            match Response::parse(&packet).map_err(Trouble::lost)? {
                Response::EchoRes { data } if data == MARK => return Ok(errors),
                Response::Error { code, text } => errors.push(shown(code, text)),
                Response::Noop => {}
                _ => return Err(unexpected(&packet)),
            }
        }
    }

    /// The next message, however long it takes. Cancelling loses nothing.
    async fn message(&mut self) -> Result<Message, Trouble> {
        loop {
            match self.frames.decode(&mut self.link.input).map_err(Trouble::lost)? {
                Some(message) => return Ok(message),
                None => self.link.more().await?,
            }
        }
    }

    async fn answer(&mut self) -> Result<Message, Trouble> {
        within(PATIENCE, "no answer", self.message()).await
    }

    async fn packet(&mut self) -> Result<Packet, Trouble> {
        match self.answer().await? {
            Message::Packet(packet) => Ok(packet),
            Message::Line(line) => Err(Trouble::strange(&line)),
        }
    }
}

fn unexpected(packet: &Packet) -> Trouble {
    Trouble::Lost(format!("unexpected {}", packet.kind))
}

fn shown(code: &[u8], text: &[u8]) -> String {
    format!("{} ({})", code.escape_ascii(), text.escape_ascii())
}

// ---- the old job server ----------------------------------------------------------------------------------------------

/// A job as assigned. A NUL ends each of its names on the wire, so none contains one.
#[derive(Debug)]
pub(super) struct Job {
    handle: Bytes,
    function: Bytes,
    unique: Bytes,
    reducer: Bytes,
    workload: Bytes,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handle, function, unique, .. } = self;
        let (handle, function, unique) = (handle.escape_ascii(), function.escape_ascii(), unique.escape_ascii());
        write!(f, "job {handle} of function \"{function}\", unique id \"{unique}\"")
    }
}

/// A worker.
#[derive(Debug)]
pub(super) struct OldGearman {
    peer: Peer,
    /// The registered functions, if all are wanted, and when the next look for others is due.
    functions: Vec<Bytes>,
    look_at: Option<Instant>,
    /// Asks for reducers too, unless the job server does not know how.
    form: AssignForm,
}

impl Old for OldGearman {
    type Job = Job;
    type Crew = ();
    const OUTLIVES_CONNECTION: bool = false;

    fn crew(_: &Tally) -> Result<(), Trouble> {
        Ok(())
    }

    async fn connect(tally: &Rc<Tally>, _: &Rc<()>) -> Result<Self, Trouble> {
        let peer = Peer::connect(&tally.from).await?;
        let look_at = tally.queues.is_empty().then(Instant::now);
        let mut worker = Self { peer, functions: Vec::new(), look_at, form: AssignForm::All };
        let id = Bytes::from_static(b"windlass-bridge");
        let functions = tally.queues.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect();
        worker.peer.send(&[Request::SetClientId { id }]).await?;
        worker.register(functions).await?;
        Ok(worker)
    }

    async fn take(&mut self) -> Result<Option<Job>, Trouble> {
        self.look().await?;
        if let Some(job) = self.grab().await? {
            return Ok(Some(job));
        }
        self.peer.send(&[Request::PreSleep]).await?;
        match timeout(SLEEP, self.peer.message()).await {
            Ok(Ok(Message::Packet(packet))) if Response::parse(&packet) == Ok(Response::Noop) => self.grab().await,
            Ok(Ok(Message::Packet(packet))) => Err(unexpected(&packet)),
            Ok(Ok(Message::Line(line))) => Err(Trouble::strange(&line)),
            Ok(Err(why)) => Err(why),
            Err(_) => Ok(None),
        }
    }

    /// A job server does not expect any.
    async fn beat(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    async fn finish(&mut self, job: &Job) -> Result<(), Trouble> {
        let done = Request::WorkComplete { handle: job.handle.clone(), data: Bytes::new() };
        let errors = self.peer.echo(&[done]).await?;
        errors.into_iter().next().map_or(Ok(()), |why| Err(Trouble::Lost(why)))
    }

    /// Jobs are only handed out on request.
    async fn leave(&mut self) -> Vec<Job> {
        Vec::new()
    }
}

impl OldGearman {
    async fn register(&mut self, functions: Vec<Bytes>) -> Result<(), Trouble> {
        let requests: Vec<_> = functions.into_iter().map(|function| Request::CanDo { function }).collect();
        self.peer.send(&requests).await
    }

    /// Asks for functions, if it is time, and registers those that are new.
    async fn look(&mut self) -> Result<(), Trouble> {
        let Some(look_at) = self.look_at.filter(|at| *at <= Instant::now()) else { return Ok(()) };
        self.look_at = Some(look_at.max(Instant::now()) + LOOK_EVERY);
        self.peer.link.send(b"status\n").await?;
        let mut new = Vec::new();
        loop {
            match self.peer.answer().await? {
                Message::Line(line) if &line[..] == b"." => break,
                Message::Line(line) => new.extend(self.new_function(&line)?),
                Message::Packet(packet) if Response::parse(&packet) == Ok(Response::Noop) => {}
                Message::Packet(packet) => return Err(unexpected(&packet)),
            }
            if self.functions.len() + new.len() > FUNCTIONS_MAX {
                return Err(Trouble::Fatal(format!("more than {FUNCTIONS_MAX} functions: name some with --queue")));
            }
        }
        self.functions.extend(new.iter().cloned());
        self.functions.sort_unstable();
        self.register(new).await
    }

    /// The function in a row of `status`, if it is not registered yet.
    fn new_function(&self, row: &[u8]) -> Result<Option<Bytes>, Trouble> {
        let name = function_of(row).ok_or_else(|| Trouble::strange(row))?;
        let is_new = self.functions.binary_search_by(|known| known[..].cmp(name)).is_err();
        Ok(is_new.then(|| Bytes::copy_from_slice(name)))
    }

    async fn grab(&mut self) -> Result<Option<Job>, Trouble> {
        loop {
            self.peer.send(&[Request::Grab(self.form)]).await?;
            let packet = loop {
                let packet = self.peer.packet().await?;
                if Response::parse(&packet) != Ok(Response::Noop) {
                    break packet;
                }
            };
            match assigned(&packet)? {
                Grabbed::Job(job) => return Ok(Some(job)),
                Grabbed::None => return Ok(None),
                Grabbed::Refused(why) => match mem::replace(&mut self.form, AssignForm::Unique) {
                    AssignForm::All => {}
                    AssignForm::Unique | AssignForm::Plain => return Err(Trouble::Lost(why)),
                },
            }
        }
    }
}

/// The name in a row of `status`, which may itself contain tabs.
fn function_of(row: &[u8]) -> Option<&[u8]> {
    let mut fields = row.rsplitn(4, |byte| *byte == b'\t');
    let is_number = |field: &[u8]| !field.is_empty() && field.iter().all(u8::is_ascii_digit);
    let numbers = [fields.next()?, fields.next()?, fields.next()?];
    if numbers.into_iter().all(is_number) { fields.next() } else { None }
}

enum Grabbed {
    Job(Job),
    None,
    Refused(String),
}

fn assigned(packet: &Packet) -> Result<Grabbed, Trouble> {
    // A small part of a read buffer must not keep all of it; the workload is most of it.
    let name = Bytes::copy_from_slice;
    let job = |handle, function, unique, reducer, workload: &[u8]| {
        let workload = packet.body.slice_ref(workload);
        Job { handle: name(handle), function: name(function), unique: name(unique), reducer: name(reducer), workload }
    };
    match Response::parse(packet).map_err(Trouble::lost)? {
        Response::JobAssignAll { handle, function, unique, reducer, workload } => {
            Ok(Grabbed::Job(job(handle, function, unique, reducer, workload)))
        }
        Response::JobAssignUniq { handle, function, unique, workload } => {
            Ok(Grabbed::Job(job(handle, function, unique, b"", workload)))
        }
        Response::NoJob => Ok(Grabbed::None),
        Response::Error { code, text } => Ok(Grabbed::Refused(shown(code, text))),
        _ => Err(unexpected(packet)),
    }
}

// ---- the daemon ------------------------------------------------------------------------------------------------------

/// A client.
#[derive(Debug)]
pub(super) struct NewGearman(Peer);

impl New for NewGearman {
    type Job = Job;

    async fn connect(tally: &Rc<Tally>) -> Result<Self, Trouble> {
        Peer::connect(&tally.to).await.map(Self)
    }

    async fn push(&mut self, job: &Job) -> Result<Answer, Trouble> {
        self.0.send(&[submission(job)]).await?;
        let packet = self.0.packet().await?;
        match Response::parse(&packet).map_err(Trouble::lost)? {
            Response::JobCreated { .. } => Ok(Answer::Accepted),
            Response::Error { code, text } => Ok(refusal(code, text)),
            _ => Err(unexpected(&packet)),
        }
    }
}

fn submission(job: &Job) -> Request {
    let Job { function, unique, reducer, workload, .. } = job;
    let job = Submission { function: function.clone(), unique: unique.clone(), workload: workload.clone() };
    if reducer.is_empty() {
        return Request::Submit { job, priority: Priority::Normal, background: true };
    }
    // As libgearman sends it.
    Request::SubmitReduce { job, reducer: reducer.clone(), aggregate: Some(Bytes::new()), background: true }
}

/// A daemon that is full, cannot write or does not permit it may accept the job later. A job that exceeds its limits for one job
/// never fits.
fn refusal(code: &[u8], text: &[u8]) -> Answer {
    let is_hopeless = [ErrorReply::UNIQUE_TOO_LARGE, ErrorReply::TOO_FEW_ARGUMENTS, ErrorReply::INVALID_COMMAND]
        .iter()
        .any(|reply| reply.code.as_bytes() == code);
    if is_hopeless { Answer::Never(shown(code, text)) } else { Answer::NotNow(shown(code, text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_in_rows_of_status() {
        let table: [(&[u8], Option<&[u8]>); 7] = [
            (b"mail\t3\t1\t2", Some(b"mail")),
            (b"a\tb\t3\t1\t2", Some(b"a\tb")),
            (b"\t0\t0\t0", Some(b"")),
            (b"\xff\t0\t0\t0", Some(b"\xff")),
            (b"", None),
            (b"mail\t3\t1", None),
            (b"ERR unknown_command Unknown+server+command", None),
        ];
        for (row, name) in table {
            assert_eq!(function_of(row), name, "{}", row.escape_ascii());
        }
    }

    #[test]
    fn refusals_for_now_and_for_good() {
        let table = [
            (ErrorReply::QUEUE_FULL, false),
            (ErrorReply::QUEUE_ERROR, false),
            (ErrorReply::NOT_PERMITTED, false),
            (ErrorReply::FUNCTION_TOO_LARGE, true),
            (ErrorReply::TOO_FEW_ARGUMENTS, true),
        ];
        for (reply, is_hopeless) in table {
            let answer = refusal(reply.code.as_bytes(), reply.text.as_bytes());
            assert_eq!(matches!(answer, Answer::Never(_)), is_hopeless, "{answer:?}");
        }
    }

    #[test]
    fn a_job_with_a_reducer_keeps_it() {
        let bytes = Bytes::from_static;
        let mut job = Job {
            handle: bytes(b"H:1"),
            function: bytes(b"f"),
            unique: bytes(b"u"),
            reducer: bytes(b"r"),
            workload: bytes(b"w"),
        };
        assert!(matches!(submission(&job), Request::SubmitReduce { reducer, background: true, .. } if reducer == "r"));
        job.reducer = Bytes::new();
        assert!(matches!(submission(&job), Request::Submit { background: true, .. }));
        assert_eq!(job.to_string(), "job H:1 of function \"f\", unique id \"u\"");
    }
}
