//! Clients: their requests, as engine commands, and the replies. Each connection has its own delay:
//! what the daemon sends arrives later.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{
    BatchCommand, Clash, ClientCommand, ClientId, ClientInfo, Command, Event, Failure, Fate, From,
    JobCommand, JobId, JobRef, KeyUntil, LeaseCommand, LeaseTerms, Listen, NewBatch, NewJob,
    NewSchedule, Note, Notice, OnExpiry, Proof, Protocol, Pushed, Query, Recurrence, Refusal,
    Reply, Retry, ScheduleCommand, Select, Subscription, Tag, Take, TakeCommand, Taken, Timestamp,
    Token, Unique, Wait,
};
use windlass_session::Item;
use windlass_testkit::rng::Rng;
use windlass_testkit::sim::Tally;

use self::question::Question;
use super::database::Run;
use super::laws::Laws;
use windlass_hub::{Mail, Mailbox};

/// A client: the run of its daemon, and its number there.
pub(super) type Who = (Run, ClientId);

mod question;

pub(super) const QUEUES: [&str; 3] = ["a", "b", "c"];

/// Coalescing keys, or none.
const KEYS: [Option<&str>; 5] = [Some("k"), Some("l"), None, None, None];

/// A body that needs more buffer space than usual.
const LARGE: usize = 40_000;

#[derive(Clone, Copy, Debug)]
struct Held {
    serial: u64,
    job: JobId,
    token: Token,
    is_bound: bool,
}

/// An event at the client.
#[derive(Debug)]
enum Arrival {
    Mail(Mail),
    Closed,
}

#[derive(Debug)]
pub(super) struct Client {
    who: Who,
    pub(super) mailbox: Arc<Mailbox>,
    /// Sent to the daemon, but not yet received.
    pub(super) items: VecDeque<Item>,
    /// Whether its items wait until the mailbox wakes it.
    pub(super) waits: bool,
    /// Whether the daemon has the connection.
    pub(super) is_served: bool,
    /// Whether the client has closed the connection.
    pub(super) has_left: bool,
    inbox: VecDeque<(u64, Arrival)>,
    asked: BTreeMap<u64, Question>,
    tags: u64,
    words: VecDeque<Bytes>,
    held: Vec<Held>,
    /// Whether the engine knows the client.
    has_opened: bool,
}

fn job_of(queue: &'static str, body: String) -> NewJob {
    NewJob::new(Protocol::GEARMAN, queue.into(), body.into())
}

/// The number at the start of a body.
pub(super) fn serial(body: &[u8]) -> u64 {
    let text = body.split(|byte| *byte == b' ').next().unwrap_or_default();
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

/// The name by which a time-bound lease finds its worker again.
fn name(((daemon, starts), number): Who) -> Bytes {
    format!("{daemon}.{starts}.{}", number.0).into()
}

/// The worker of a time-bound lease.
pub(super) fn named(name: &[u8]) -> Option<Who> {
    let mut parts = std::str::from_utf8(name).ok()?.split('.');
    let mut next = || parts.next()?.parse::<u64>().ok();
    let (daemon, starts, number) = (next()?, next()?, next()?);
    Some((
        (usize::try_from(daemon).ok()?, u32::try_from(starts).ok()?),
        ClientId(number),
    ))
}

impl Client {
    pub(super) const fn new(who: Who, mailbox: Arc<Mailbox>) -> Self {
        Self {
            who,
            mailbox,
            items: VecDeque::new(),
            waits: false,
            is_served: true,
            has_left: false,
            inbox: VecDeque::new(),
            asked: BTreeMap::new(),
            tags: 0,
            words: VecDeque::new(),
            held: Vec::new(),
            has_opened: false,
        }
    }

    pub(super) const fn who(&self) -> Who {
        self.who
    }

    /// An unanswered request, except for unlimited waits.
    pub(super) fn unanswered(&self) -> Option<String> {
        let waits = |question: &&Question| !question.is_withdrawn && !question.waits_forever();
        let asked = self
            .asked
            .values()
            .find(waits)
            .map(|question| format!("{:?}", question.command));
        asked.or_else(|| (!self.words.is_empty()).then(|| format!("words {:?}", self.words)))
    }

    /// Whether it waits for a job without a time limit.
    pub(super) fn waits_forever(&self) -> bool {
        self.asked
            .values()
            .any(|question| !question.is_withdrawn && question.waits_forever())
    }

    // ---- replies
    // ----------------------------------------------------------------------------------------

    /// Called when the daemon has sent this. It arrives at this time, or after what was sent
    /// before.
    pub(super) fn sent(&mut self, at: u64, mail: Mail) {
        let at = self.inbox.back().map_or(at, |(last, _)| at.max(*last));
        self.inbox.push_back((at, Arrival::Mail(mail)));
    }

    /// Called when the daemon has closed the connection.
    pub(super) fn closed(&mut self, at: u64) {
        let at = self.inbox.back().map_or(at, |(last, _)| at.max(*last));
        self.inbox.push_back((at, Arrival::Closed));
    }

    /// Called when the daemon is gone. Bytes that have not left it never arrive.
    pub(super) fn cut(&mut self, now: u64) {
        self.inbox.retain(|(at, _)| *at <= now);
        self.inbox.push_back((now, Arrival::Closed));
    }

    /// Records the promises in mail that leaves the daemon for this client.
    pub(super) fn promise(&self, mail: &Mail, laws: &mut Laws) {
        let Mail::Event(Event::Reply(tag, reply)) = mail else {
            return;
        };
        let Some(question) = self.asked.get(&tag.0) else {
            return;
        };
        match (reply, &question.command) {
            (
                Reply::Pushed {
                    job,
                    how: Pushed::New,
                    ..
                },
                _,
            ) => laws.pushed(question.serial.unwrap(), *job),
            (Reply::Pushed { job, durable, .. }, _) => {
                laws.coalesced(question.serial.unwrap(), *job, *durable)
            }
            (Reply::ScheduleSet { .. }, _)
            | (Reply::Done, Command::Batch(BatchCommand::Commit { .. })) => {
                laws.promises_runs(question.serial.unwrap());
            }
            (Reply::Finished(job), _) => laws.ended(*job, Some(self.who)),
            (
                Reply::Failed {
                    job,
                    fate: Fate::Discarded,
                },
                _,
            ) => laws.ended(*job, None),
            (Reply::Done, Command::Job(JobCommand::Cancel(JobRef::Id(job)))) => {
                laws.ended(*job, None)
            }
            _ => {}
        }
    }

    /// Receives what has arrived. Returns whether the connection is still open.
    pub(super) fn receive(&mut self, now: u64, laws: &mut Laws, tally: &mut Tally) -> bool {
        while let Some((_, arrival)) = self.inbox.pop_front_if(|(at, _)| *at <= now) {
            if self.has_left {
                continue;
            }
            match arrival {
                Arrival::Mail(Mail::Event(Event::Reply(tag, reply))) => {
                    self.answered(tag, reply, laws, tally)
                }
                Arrival::Mail(Mail::Event(Event::Notice(notice))) => {
                    self.noticed(notice, laws, tally)
                }
                Arrival::Mail(Mail::Bytes(bytes)) => {
                    if self.words.pop_front().as_ref() != Some(&bytes) {
                        laws.is_broken(|| format!("{:?}: bytes out of order: {bytes:?}", self.who));
                    }
                }
                Arrival::Mail(Mail::Posted(_)) => {}
                Arrival::Closed => {
                    self.has_left = true;
                    tally.note("a client is closed");
                }
            }
        }
        !self.has_left || self.is_served
    }

    fn answered(&mut self, tag: Tag, reply: Reply, laws: &mut Laws, tally: &mut Tally) {
        let Some(question) = self.asked.remove(&tag.0) else {
            // A command without a reply was refused.
            if tag.wants_answer() {
                laws.is_broken(|| {
                    format!(
                        "{:?}: {tag:?} has an answer that it does not wait for: {reply:?}",
                        self.who
                    )
                });
            }
            return;
        };
        let waits_forever = question.waits_forever();
        let Question {
            command,
            serial: of,
            held,
            expects,
            ..
        } = question;
        if !windlass_testkit::answers::is_answered_by(&command, &reply) {
            laws.is_broken(|| format!("{command:?} is answered by {reply:?}"));
        }
        if waits_forever && matches!(reply, Reply::Empty | Reply::Refused(Refusal::Unknown)) {
            laws.is_broken(|| format!("{:?} waits for ever, and gets {reply:?}", self.who));
        }
        match reply {
            Reply::Taken(taken) => self.took(&taken, laws, tally),
            Reply::Pushed { job, how, .. } => {
                tally.note(if how == Pushed::New {
                    "a push is acknowledged"
                } else {
                    "a push finds another job"
                });
                if how != Pushed::Kept
                    && command.new_job().is_some_and(|new| new.listen.is_wanted())
                {
                    laws.listens(self.who, job);
                }
            }
            Reply::Finished(_) => tally.note("an end is acknowledged"),
            Reply::Refused(Refusal::Unknown) => {
                tally.note("an outcome is unknown");
                if command
                    .new_job()
                    .is_some_and(|new| new.listen.is_wanted() && new.unique.is_some())
                {
                    laws.may_listen(self.who);
                }
                self.held.extend(held);
            }
            Reply::Refused(why) => {
                tally.note(why.code());
                // It may retry.
                self.held
                    .extend(held.filter(|_| why == Refusal::Unavailable));
                of.into_iter().for_each(|serial| laws.refused(serial));
            }
            Reply::Looked { job, .. } => {
                if let Command::Query(Query::Job(JobRef::Id(number))) = command {
                    tally.note(if expects.is_some() {
                        "a look-up that the laws know"
                    } else {
                        "a look-up"
                    });
                    laws.found(number, expects, job.is_some());
                }
            }
            _ => {}
        }
    }

    fn noticed(&mut self, notice: Notice, laws: &mut Laws, tally: &mut Tally) {
        match notice {
            Notice::Delivered(taken) => self.took(&taken, laws, tally),
            Notice::WorkAvailable => self.ask(self.take(Wait::No, From::Subscriptions), None),
            Notice::Ended { job, end } => {
                tally.note("a listener hears the end");
                laws.gets_end(self.who, job, &end);
            }
            _ => {}
        }
    }

    fn took(&mut self, taken: &Taken, laws: &mut Laws, tally: &mut Tally) {
        tally.note("a job is handed out");
        let body = serial(&taken.body);
        if laws.is_template(body) {
            tally.note("a job of a batch or a schedule is handed out");
        }
        let (serial, is_bound) = (laws.serial(body, taken.id, None), taken.connection_bound);
        laws.took(self.who, serial, taken);
        self.held.push(Held {
            serial,
            job: taken.id,
            token: taken.token,
            is_bound,
        });
    }

    // ---- requests
    // ---------------------------------------------------------------------------------------

    /// Whether it can send a request.
    pub(super) const fn is_open(&self) -> bool {
        !self.has_left
    }

    fn ask(&mut self, command: impl Into<Command>, serial: Option<u64>) {
        self.ask_for(command.into(), serial, None, None);
    }

    fn ask_for(
        &mut self,
        command: Command,
        serial: Option<u64>,
        held: Option<Held>,
        expects: Option<bool>,
    ) {
        self.tags += 1;
        let tag = Tag(self.tags);
        if command.is_answered(tag) {
            let question = Question {
                command: command.clone(),
                serial,
                held,
                expects,
                is_withdrawn: false,
            };
            self.asked.insert(tag.0, question);
        }
        self.items.push_back(Item::Command(tag, command));
    }

    fn ask_silently(&mut self, command: impl Into<Command>) {
        self.items
            .push_back(Item::Command(Tag::NONE, command.into()));
    }

    /// Sends the first command.
    pub(super) fn open(&mut self, rng: &mut Rng) {
        self.has_opened = true;
        self.ask_silently(ClientCommand::Open(ClientInfo::default()));
        for queue in QUEUES {
            if rng.chance(60) {
                let lease = LeaseTerms::CONNECTION;
                self.ask_silently(ClientCommand::Serve(Subscription {
                    queue: queue.into(),
                    weight: 1,
                    lease,
                    unclaimed: None,
                }));
            }
        }
    }

    fn take(&self, wait: Wait, from: From) -> TakeCommand {
        TakeCommand::Take(Take {
            from,
            select: Select::ListOrder,
            wait,
            worker: name(self.who),
        })
    }

    /// Takes any ready job.
    pub(super) fn take_any(&mut self) {
        let queues = QUEUES
            .iter()
            .map(|queue| Bytes::from_static(queue.as_bytes()))
            .collect();
        self.ask(
            self.take(
                Wait::No,
                From::Listed {
                    queues,
                    lease: LeaseTerms::CONNECTION,
                },
            ),
            None,
        );
    }

    /// Withdraws pending waits.
    pub(super) fn unwait(&mut self) {
        self.ask_silently(TakeCommand::Unwait);
        let is_take = |question: &Question| matches!(question.command, Command::Take(_));
        self.asked
            .values_mut()
            .filter(|question| is_take(question))
            .for_each(|question| question.is_withdrawn = true);
    }

    /// Finishes all jobs that it holds. Returns their serials.
    pub(super) fn finish_all(&mut self, laws: &mut Laws) -> Vec<u64> {
        let finished: Vec<_> = std::mem::take(&mut self.held);
        for held in &finished {
            laws.asks_end(self.who, held.job, true);
            let proof = if held.is_bound {
                Proof::Connection
            } else {
                Proof::Token(held.token)
            };
            let finish = LeaseCommand::Finish {
                job: JobRef::Id(held.job),
                proof,
                result: Bytes::new(),
            };
            self.ask_for(finish.into(), None, Some(*held), None);
        }
        finished.into_iter().map(|held| held.serial).collect()
    }

    /// Closes the connection.
    pub(super) fn leave(&mut self, laws: &mut Laws) {
        self.has_left = true;
        laws.leaves_for_good(self.who);
    }

    /// Sends a request or a report. `now`: the engine's time as its daemon knows it.
    pub(super) fn act(&mut self, now: Timestamp, rng: &mut Rng, pushes: &mut u64, laws: &mut Laws) {
        if !self.has_opened {
            return self.open(rng);
        }
        match rng.below(26) {
            0..7 => drop(self.push(None, rng, pushes, laws)),
            7..11 => self.take_one(now, rng),
            11..17 => self.report(now, rng, laws),
            // No session sends both.
            17 if self.asked.values().any(Question::may_wait) => {}
            17 => self.ask_silently(TakeCommand::WaitForWork),
            18 => self.ask_silently(TakeCommand::Credit {
                credits: 1,
                select: Select::BestPriority,
            }),
            19 => self.unwait(),
            20 => self.ask(Command::Barrier, None),
            21 => {
                let words = Bytes::from(format!("words {}", rng.below(1_000)));
                self.words.push_back(words.clone());
                self.items.push_back(Item::Bytes(words));
            }
            22 => self.push_batch(rng, pushes, laws),
            23 => self.set_schedule(rng, pushes, laws),
            _ => self.look(rng, laws),
        }
    }

    /// Pushes a job, optionally into a batch. Returns its serial.
    fn push(
        &mut self,
        batch: Option<&Bytes>,
        rng: &mut Rng,
        pushes: &mut u64,
        laws: &mut Laws,
    ) -> u64 {
        *pushes += 1;
        let serial = *pushes;
        let filling = if rng.chance(3) {
            " ".repeat(LARGE)
        } else {
            String::new()
        };
        let (durable, listens) = (batch.is_some() || rng.chance(80), rng.chance(30));
        let key = rng
            .one_of(KEYS)
            .filter(|_| batch.is_none() && rng.chance(60));
        let clash = rng.one_of([Clash::Attach, Clash::Attach, Clash::Keep, Clash::Refuse]);
        let retry = Retry {
            failures_max: rng.one_of([0, 0, 100]),
            ..Retry::NONE
        };
        let job = NewJob {
            durable,
            listen: if listens || !durable {
                Listen::Yes
            } else {
                Listen::No
            },
            retry,
            batch: batch.cloned(),
            unique: key.map(|key| Unique {
                key: key.into(),
                clash,
                until: KeyUntil::End,
            }),
            ..job_of(rng.one_of(QUEUES), format!("{serial}{filling}"))
        };
        laws.asks_push(serial, durable, key.map(|key| (job.queue.clone(), key)));
        self.ask(JobCommand::Push(Box::new(job)), Some(serial));
        serial
    }

    /// Creates a batch of a few jobs, which pushes another job when they have ended.
    fn push_batch(&mut self, rng: &mut Rng, pushes: &mut u64, laws: &mut Laws) {
        *pushes += 1;
        let callback = *pushes;
        let name = Bytes::from(format!("batch {callback}"));
        let batch = NewBatch {
            protocol: Protocol::GEARMAN,
            name: name.clone(),
            parent: None,
            about: Bytes::new(),
            meta: Bytes::new(),
            complete: Some(Box::new(job_of(rng.one_of(QUEUES), callback.to_string()))),
            success: None,
            expires_ms: 3_600_000,
        };
        self.ask(BatchCommand::New(Box::new(batch)), None);
        let members = (0..rng.between(1, 3))
            .map(|_| self.push(Some(&name), rng, pushes, laws))
            .collect();
        self.ask(BatchCommand::Commit { batch: name }, Some(callback));
        laws.asks_runs(callback, 1, members);
    }

    /// Sets a schedule that runs a few times.
    fn set_schedule(&mut self, rng: &mut Rng, pushes: &mut u64, laws: &mut Laws) {
        *pushes += 1;
        let (template, runs) = (*pushes, rng.between(1, 3));
        let schedule = NewSchedule {
            key: Some(Bytes::from(format!("schedule {template}"))),
            job: job_of(rng.one_of(QUEUES), template.to_string()),
            recurrence: Recurrence::Every {
                interval_ms: rng.between(100, 3_000),
            },
            at_once: rng.chance(50),
            keep_grid: false,
            runs: Some(runs),
        };
        self.ask(ScheduleCommand::Set(Box::new(schedule)), Some(template));
        laws.asks_runs(template, runs, Vec::new());
    }

    fn take_one(&mut self, now: Timestamp, rng: &mut Rng) {
        let wait = match rng.below(4) {
            0 => Wait::Forever,
            1 => Wait::Until(now.after_ms(rng.below(3_000))),
            _ => Wait::No,
        };
        let from = match rng.below(3) {
            0 => From::Subscriptions,
            by_time => {
                let queues = vec![
                    Bytes::from_static(rng.one_of(QUEUES).as_bytes()),
                    Bytes::from_static(b"a"),
                ];
                let lease_ms = Some(rng.between(500, 4_000));
                let timed = LeaseTerms {
                    connection_bound: false,
                    lease_ms,
                    on_expiry: OnExpiry::Requeue,
                    wish: None,
                };
                From::Listed {
                    queues,
                    lease: if by_time == 1 {
                        timed
                    } else {
                        LeaseTerms::CONNECTION
                    },
                }
            }
        };
        self.ask(self.take(wait, from), None);
    }

    /// Reports on a job that it holds.
    fn report(&mut self, now: Timestamp, rng: &mut Rng, laws: &mut Laws) {
        if self.held.is_empty() {
            return self.take_one(now, rng);
        }
        let at = usize::try_from(rng.below(self.held.len() as u64)).unwrap();
        let held = self.held[at];
        let Held {
            job: number,
            token,
            is_bound,
            ..
        } = held;
        let what = rng.below(10);
        let proof = match is_bound {
            true => Proof::Connection,
            false if what < 5 && rng.chance(50) => Proof::AnyLease,
            false => Proof::Token(token),
        };
        if proof == Proof::AnyLease {
            laws.reports_on_any(self.who, number);
        }
        let job = JobRef::Id(number);
        if what < 7 {
            self.held.remove(at);
            laws.asks_end(self.who, number, what < 6);
        }
        let command = match what {
            0..5 => LeaseCommand::Finish {
                job,
                proof,
                result: Bytes::from_static(b"result"),
            },
            5 => LeaseCommand::Fail {
                job,
                proof,
                failure: Box::new(Failure::default()),
            },
            6 => LeaseCommand::Release {
                job,
                proof,
                front: rng.chance(50),
            },
            7 if !is_bound => {
                laws.moves_deadline(number);
                LeaseCommand::Extend {
                    job,
                    proof,
                    until: now.after_ms(rng.below(5_000)),
                    only_later: rng.chance(50),
                }
            }
            _ => LeaseCommand::Progress {
                job,
                proof,
                note: Note::Data(Bytes::from_static(b"data")),
            },
        };
        match rng.chance(25) {
            true => self.ask_silently(command),
            false => self.ask_for(command.into(), None, Some(held).filter(|_| what < 7), None),
        }
    }

    /// Looks up a job, or cancels one.
    fn look(&mut self, rng: &mut Rng, laws: &mut Laws) {
        let Some(job) = laws.any(rng) else { return };
        if rng.chance(20) {
            laws.asks_end(self.who, job, true);
            return self.ask(JobCommand::Cancel(JobRef::Id(job)), None);
        }
        self.ask_for(
            Query::Job(JobRef::Id(job)).into(),
            None,
            None,
            laws.is_there(job),
        );
    }
}
