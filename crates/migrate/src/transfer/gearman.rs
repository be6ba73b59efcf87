//! Gearman's both sides: a worker of the old job server, a client of the daemon.
//!
//! Spec: gearmand's `PROTOCOL`, "Worker Requests", "Client Requests", "Administrative Protocol" (`status`).

use std::fmt;
use std::mem;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::timeout;
use windlass_gearman::wire::{
    AssignForm, ErrorReply, FUNCTION_BYTES_MAX, Frames, Limits, Message, Packet, Priority,
    Report as Work, Request, Response, Submission,
};

use super::functions::{Functions, function_of};
use super::lane::{Answer, New, Old, Outcome, Report, Reports};
use super::link::{JOB_BYTES_MAX, Link, PATIENCE, Trouble, within};
use super::tally::Tally;

/// How long a lane sleeps before it asks for a job although no NOOP came: functions may be new.
const SLEEP: Duration = Duration::from_secs(1);

/// Silence after which the daemon is asked for a sign of life while a job runs there.
const SILENCE: Duration = Duration::from_secs(15);

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
        let limits = Limits {
            line_bytes_max: LINE_BYTES_MAX,
            ..Limits::new(FRAME_BYTES_MAX)
        };
        let mut peer = Self {
            link: Link::connect(place).await?,
            frames: Frames::new(limits),
        };
        // A program that accepts connections may be no job server, or one in trouble.
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
        let echo = Request::Echo {
            data: Bytes::from_static(MARK),
        };
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
            match self
                .frames
                .decode(&mut self.link.input)
                .map_err(Trouble::lost)?
            {
                Some(message) => return Ok(message),
                None => self.link.more().await?,
            }
        }
    }

    async fn answer(&mut self) -> Result<Message, Trouble> {
        within(PATIENCE, "no answer", self.message()).await
    }

    async fn packet(&mut self) -> Result<Packet, Trouble> {
        packet(self.answer().await?)
    }
}

fn packet(message: Message) -> Result<Packet, Trouble> {
    match message {
        Message::Packet(packet) => Ok(packet),
        Message::Line(line) => Err(Trouble::strange(&line)),
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
        let Self {
            handle,
            function,
            unique,
            ..
        } = self;
        let (handle, function, unique) = (
            handle.escape_ascii(),
            function.escape_ascii(),
            unique.escape_ascii(),
        );
        write!(
            f,
            "job {handle} of function \"{function}\", unique id \"{unique}\""
        )
    }
}

/// A worker.
#[derive(Debug)]
pub(super) struct OldGearman {
    peer: Peer,
    functions: Rc<Functions>,
    /// How many of them are registered.
    registered: usize,
    /// Asks for reducers too, unless the job server does not know how.
    form: AssignForm,
}

impl Old for OldGearman {
    type Job = Job;
    type Crew = Functions;
    const OUTLIVES_CONNECTION: bool = false;

    fn crew(tally: &Tally) -> Result<Functions, Trouble> {
        Functions::new(&tally.queues)
    }

    async fn connect(tally: &Rc<Tally>, crew: &Rc<Functions>) -> Result<Self, Trouble> {
        let peer = Peer::connect(&tally.from).await?;
        let mut worker = Self {
            peer,
            functions: Rc::clone(crew),
            registered: 0,
            form: AssignForm::All,
        };
        let id = Bytes::from_static(b"windlass-bridge");
        worker.peer.send(&[Request::SetClientId { id }]).await?;
        Ok(worker)
    }

    async fn take(&mut self) -> Result<Option<Job>, Trouble> {
        if self.functions.is_stale() {
            self.look().await?;
        }
        self.register().await?;
        if let Some(job) = self.grab().await? {
            return Ok(Some(job));
        }
        self.peer.send(&[Request::PreSleep]).await?;
        let Ok(message) = timeout(SLEEP, self.peer.message()).await else {
            return Ok(None);
        };
        let packet = packet(message?)?;
        if Response::parse(&packet) == Ok(Response::Noop) {
            self.grab().await
        } else {
            Err(unexpected(&packet))
        }
    }

    /// A job server does not expect any.
    async fn beat(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    async fn relay(&mut self, job: &Job, report: Report) -> Result<(), Trouble> {
        let handle = job.handle.clone();
        let report = match report {
            Report::Data(data) => Work::Data(data),
            Report::Warning(data) => Work::Warning(data),
            Report::Status {
                numerator,
                denominator,
            } => Work::Status {
                numerator,
                denominator,
            },
        };
        self.peer.send(&[Request::Work { handle, report }]).await
    }

    async fn finish(&mut self, job: &Job, outcome: &Outcome) -> Result<(), Trouble> {
        let errors = self.peer.echo(&ends(&job.handle, outcome)).await?;
        errors
            .into_iter()
            .next()
            .map_or(Ok(()), |why| Err(Trouble::Lost(why)))
    }

    /// Jobs are only handed out on request.
    async fn leave(&mut self) -> Vec<Job> {
        Vec::new()
    }
}

impl OldGearman {
    /// Registers the functions that other lanes have found, too.
    async fn register(&mut self) -> Result<(), Trouble> {
        let can_do = |name: &Bytes| Request::CanDo {
            function: name.clone(),
        };
        let new: Vec<_> = self
            .functions
            .names()
            .iter()
            .skip(self.registered)
            .map(can_do)
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        self.registered += new.len();
        self.peer.send(&new).await
    }

    /// Asks for functions.
    async fn look(&mut self) -> Result<(), Trouble> {
        self.peer.link.send(b"status\n").await?;
        loop {
            match self.peer.answer().await? {
                Message::Line(line) if &line[..] == b"." => return Ok(()),
                Message::Line(line) => {
                    self.functions
                        .add(function_of(&line).ok_or_else(|| Trouble::strange(&line))?)?;
                }
                Message::Packet(packet) if Response::parse(&packet) == Ok(Response::Noop) => {}
                Message::Packet(packet) => return Err(unexpected(&packet)),
            }
        }
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

/// What a worker sends at the end of a job. Its exception is not yet the end.
fn ends(handle: &Bytes, outcome: &Outcome) -> Vec<Request> {
    let reports = match outcome {
        Outcome::Moved => vec![Work::Complete(Bytes::new())],
        Outcome::Done(data) => vec![Work::Complete(data.clone())],
        Outcome::Failed => vec![Work::Fail],
        Outcome::Exception(data) => vec![Work::Exception(data.clone()), Work::Fail],
    };
    reports
        .into_iter()
        .map(|report| Request::Work {
            handle: handle.clone(),
            report,
        })
        .collect()
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
        Job {
            handle: name(handle),
            function: name(function),
            unique: name(unique),
            reducer: name(reducer),
            workload,
        }
    };
    match Response::parse(packet).map_err(Trouble::lost)? {
        Response::JobAssignAll {
            handle,
            function,
            unique,
            reducer,
            workload,
        } => Ok(Grabbed::Job(job(
            handle, function, unique, reducer, workload,
        ))),
        Response::JobAssignUniq {
            handle,
            function,
            unique,
            workload,
        } => Ok(Grabbed::Job(job(handle, function, unique, b"", workload))),
        Response::NoJob => Ok(Grabbed::None),
        Response::Error { code, text } => Ok(Grabbed::Refused(shown(code, text))),
        _ => Err(unexpected(packet)),
    }
}

// ---- the daemon ------------------------------------------------------------------------------------------------------

/// A client.
#[derive(Debug)]
pub(super) struct NewGearman {
    peer: Peer,
    /// Waits for results.
    waits: bool,
}

impl New for NewGearman {
    type Job = Job;

    async fn connect(tally: &Rc<Tally>) -> Result<Self, Trouble> {
        let mut peer = Peer::connect(&tally.to).await?;
        if tally.results {
            peer.expect_exceptions().await?;
        }
        Ok(Self {
            peer,
            waits: tally.results,
        })
    }

    async fn push(&mut self, job: &Job, reports: Reports) -> Result<Answer, Trouble> {
        self.peer.send(&[submission(job, !self.waits)]).await?;
        let packet = self.peer.packet().await?;
        match Response::parse(&packet).map_err(Trouble::lost)? {
            Response::JobCreated { .. } if self.waits => {
                self.peer.outcome(reports).await.map(Answer::Accepted)
            }
            Response::JobCreated { .. } => Ok(Answer::Accepted(Outcome::Moved)),
            Response::Error { code, text } => Ok(refusal(code, text)),
            _ => Err(unexpected(&packet)),
        }
    }
}

impl Peer {
    /// Asks for WORK_EXCEPTION.
    async fn expect_exceptions(&mut self) -> Result<(), Trouble> {
        self.send(&[Request::SetOption {
            name: Bytes::from_static(b"exceptions"),
        }])
        .await?;
        let packet = self.packet().await?;
        match Response::parse(&packet).map_err(Trouble::lost)? {
            Response::OptionRes { .. } => Ok(()),
            _ => Err(unexpected(&packet)),
        }
    }

    /// Waits for the end of the one job that this client has, however long its worker takes.
    async fn outcome(&mut self, reports: Reports) -> Result<Outcome, Trouble> {
        loop {
            let packet = self.next_sign().await?;
            let own = |data: &[u8]| packet.body.slice_ref(data);
            let report = match Response::parse(&packet).map_err(Trouble::lost)? {
                Response::Work { report, .. } => report,
                Response::EchoRes { .. } => continue,
                _ => return Err(unexpected(&packet)),
            };
            let report = match report {
                Work::Complete(data) => return Ok(Outcome::Done(own(data))),
                Work::Exception(data) => return Ok(Outcome::Exception(own(data))),
                Work::Fail => return Ok(Outcome::Failed),
                Work::Data(data) => Report::Data(own(data)),
                Work::Warning(data) => Report::Warning(own(data)),
                Work::Status {
                    numerator,
                    denominator,
                } => Report::Status {
                    numerator: own(numerator),
                    denominator: own(denominator),
                },
            };
            // The lane reads reports as long as it waits for this.
            reports.send(report).await.map_err(Trouble::lost)?;
        }
    }

    /// The next packet. A daemon that is silent for long is asked whether it is there.
    async fn next_sign(&mut self) -> Result<Packet, Trouble> {
        match timeout(SILENCE, self.message()).await {
            Ok(message) => packet(message?),
            Err(_) => {
                self.send(&[Request::Echo { data: Bytes::new() }]).await?;
                self.packet().await
            }
        }
    }
}

fn submission(job: &Job, background: bool) -> Request {
    let Job {
        function,
        unique,
        reducer,
        workload,
        ..
    } = job;
    let job = Submission {
        function: function.clone(),
        unique: unique.clone(),
        workload: workload.clone(),
    };
    if reducer.is_empty() {
        return Request::Submit {
            job,
            priority: Priority::Normal,
            background,
        };
    }
    // As libgearman sends it.
    Request::SubmitReduce {
        job,
        reducer: reducer.clone(),
        aggregate: Some(Bytes::new()),
        background,
    }
}

/// A daemon that is full, cannot write or does not permit it may accept the job later. A job that exceeds its limits
/// for one job never fits.
fn refusal(code: &[u8], text: &[u8]) -> Answer {
    let is_hopeless = [
        ErrorReply::UNIQUE_TOO_LARGE,
        ErrorReply::TOO_FEW_ARGUMENTS,
        ErrorReply::INVALID_COMMAND,
    ]
    .iter()
    .any(|reply| reply.code.as_bytes() == code);
    if is_hopeless {
        Answer::Never(shown(code, text))
    } else {
        Answer::NotNow(shown(code, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(
                matches!(answer, Answer::Never(_)),
                is_hopeless,
                "{answer:?}"
            );
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
        assert!(
            matches!(submission(&job, true), Request::SubmitReduce { reducer, background: true, .. } if reducer == "r")
        );
        job.reducer = Bytes::new();
        assert!(matches!(
            submission(&job, true),
            Request::Submit {
                background: true,
                ..
            }
        ));
        assert_eq!(
            job.to_string(),
            "job H:1 of function \"f\", unique id \"u\""
        );
    }

    #[test]
    fn a_job_ends_there_as_it_ended_here() {
        let table = [
            (Outcome::Moved, vec![Work::Complete(Bytes::new())]),
            (
                Outcome::Done("result".into()),
                vec![Work::Complete("result".into())],
            ),
            (Outcome::Failed, vec![Work::Fail]),
            (
                Outcome::Exception("why".into()),
                vec![Work::Exception("why".into()), Work::Fail],
            ),
        ];
        let handle = Bytes::from_static(b"H:old:1");
        for (outcome, reports) in table {
            let expected = reports.into_iter().map(|report| Request::Work {
                handle: handle.clone(),
                report,
            });
            assert_eq!(
                ends(&handle, &outcome),
                expected.collect::<Vec<_>>(),
                "{outcome:?}"
            );
        }
    }
}
