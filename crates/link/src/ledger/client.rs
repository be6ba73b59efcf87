//! What one client has at the engine.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use windlass_engine::{
    ClientCommand, ClientId, ClientInfo, Command, Event, From, JobCommand, JobId, JobRef, LeaseCommand, NewJob, Notice,
    Pushed, Refusal, Reply, Select, Subscription, Tag, Take, TakeCommand, Taken, Thing, Timestamp, WorkerCommand,
    WorkerState,
};

use super::command;
use crate::ask::{Ask, Claim, Held};

/// Counted for each thing beside its names and bodies.
const FIXED_BYTES: usize = 128;

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    /// Bytes of answers that have room.
    room: u64,
    has: Has,
    /// Commands that take effect later, in order.
    on_their_way: VecDeque<Effect>,
    /// Commands with an answer that has not come, in order. Takes are not among them.
    unanswered: VecDeque<Tag>,
    /// Bytes of both.
    bytes: usize,
}

/// What a client has.
#[derive(Clone, Debug, Default)]
struct Has {
    /// `None` until its first command takes effect.
    info: Option<ClientInfo>,
    name: Bytes,
    /// In the order of registration, with repetitions.
    subscriptions: Vec<Subscription>,
    worker: Option<Worker>,
    watch: Option<Watch>,
    /// Takes that wait, with their turns.
    takes: VecDeque<(u64, Tag, Take)>,
    /// It sleeps, with this turn.
    asleep: Option<u64>,
    credit: Credit,
    held: BTreeMap<JobId, Held>,
    /// Jobs whose ends took effect last: a refusal returns them.
    ending: Vec<(Tag, JobId, Held)>,
    heard: BTreeMap<JobId, Heard>,
    /// Pushes that took effect and have not been answered.
    pushes: VecDeque<Push>,
    /// Jobs that ended since commands last took effect and that the client did not listen to: the answer to a push may come after
    /// the end of its job.
    ended: Vec<JobId>,
    /// Bytes of all these.
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Worker {
    name: Bytes,
    about: Bytes,
    state: WorkerState,
}

#[derive(Clone, Debug)]
struct Watch {
    queue: Option<Bytes>,
    room: u32,
}

#[derive(Clone, Debug, Default)]
struct Credit {
    left: u32,
    select: Option<Select>,
    turn: u64,
}

/// A job that the client listens to.
#[derive(Clone, Debug, Default)]
struct Heard {
    times: u32,
    /// The job, if it lives only while clients listen.
    new: Option<Box<NewJob>>,
}

/// A push with a listener.
#[derive(Clone, Debug)]
struct Push {
    tag: Tag,
    /// The job, if it lives only while clients listen.
    new: Option<Box<NewJob>>,
}

/// What a command changes here.
#[derive(Clone, Debug)]
enum Effect {
    /// Nothing.
    None,
    Open(ClientInfo),
    SetName(Bytes),
    Serve(Subscription),
    Unserve {
        queue: Bytes,
        requeue: bool,
    },
    UnserveAll {
        requeue: bool,
    },
    Watch {
        queue: Option<Bytes>,
        room: u32,
    },
    SetState {
        worker: Bytes,
        state: WorkerState,
    },
    Register {
        worker: Bytes,
        about: Bytes,
    },
    Take(Tag, Box<Take>),
    WaitForWork,
    Credit {
        credits: u32,
        select: Select,
    },
    Unwait,
    Push(Push),
    End(Tag, JobRef),
    Extend {
        job: JobRef,
        until: Timestamp,
        only_later: bool,
    },
}

impl Effect {
    fn of(tag: Tag, command: &Command) -> Self {
        match command {
            Command::Client(command) => Self::of_client(command),
            Command::Take(command) => match command {
                TakeCommand::Take(take) => Self::Take(tag, Box::new(take.clone())),
                TakeCommand::WaitForWork => Self::WaitForWork,
                TakeCommand::Credit { credits, select } => Self::Credit { credits: *credits, select: *select },
                TakeCommand::Unwait => Self::Unwait,
            },
            // Without an answer the job's number is not known.
            Command::Job(JobCommand::Push(job)) if job.listen && tag.wants_answer() => {
                Self::Push(Push { tag, new: (!job.durable).then(|| job.clone()) })
            }
            Command::Lease(command) => Self::of_lease(tag, command),
            Command::Worker(WorkerCommand::Register { worker, about }) => {
                Self::Register { worker: worker.clone(), about: about.clone() }
            }
            Command::Worker(WorkerCommand::SetState { worker, state }) => {
                Self::SetState { worker: worker.clone(), state: *state }
            }
            Command::Job(_)
            | Command::Worker(_)
            | Command::Query(_)
            | Command::Queue(_)
            | Command::Schedule(_)
            | Command::Batch(_)
            | Command::Bulk(_)
            | Command::Barrier => Self::None,
        }
    }

    fn of_client(command: &ClientCommand) -> Self {
        match command {
            ClientCommand::Open(info) => Self::Open(info.clone()),
            ClientCommand::SetName(name) => Self::SetName(name.clone()),
            ClientCommand::Serve(subscription) => Self::Serve(subscription.clone()),
            ClientCommand::Unserve { queue, requeue } => Self::Unserve { queue: queue.clone(), requeue: *requeue },
            ClientCommand::UnserveAll { requeue } => Self::UnserveAll { requeue: *requeue },
            ClientCommand::Watch { queue, room } => Self::Watch { queue: queue.clone(), room: *room },
            ClientCommand::Close | ClientCommand::Disconnect(_) => Self::None,
        }
    }

    fn of_lease(tag: Tag, command: &LeaseCommand) -> Self {
        match command {
            LeaseCommand::Finish { job, .. }
            | LeaseCommand::Fail { job, .. }
            | LeaseCommand::Unconvertible { job, .. }
            | LeaseCommand::Release { job, .. }
            | LeaseCommand::Repay { job, .. } => Self::End(tag, job.clone()),
            LeaseCommand::Extend { job, until, only_later, .. } => {
                Self::Extend { job: job.clone(), until: *until, only_later: *only_later }
            }
            LeaseCommand::Progress { .. } => Self::None,
        }
    }

    fn weight(&self) -> usize {
        match self {
            Self::Open(info) => FIXED_BYTES + info.address.len(),
            Self::SetName(text)
            | Self::Serve(Subscription { queue: text, .. })
            | Self::Unserve { queue: text, .. }
            | Self::SetState { worker: text, .. }
            | Self::End(_, JobRef::Name(text) | JobRef::KeyAnywhere { key: text, .. }) => weight([text]),
            Self::Watch { queue, .. } => weight(queue),
            Self::Register { worker, about } => weight([worker, about]),
            Self::Take(_, take) => take_weight(take),
            Self::Push(push) => new_weight(push.new.as_deref()),
            Self::None
            | Self::UnserveAll { .. }
            | Self::WaitForWork
            | Self::Credit { .. }
            | Self::Unwait
            | Self::End(..)
            | Self::Extend { .. } => FIXED_BYTES,
        }
    }
}

/// What a thing with these texts counts as.
fn weight<'a>(texts: impl IntoIterator<Item = &'a Bytes>) -> usize {
    FIXED_BYTES + texts.into_iter().map(Bytes::len).sum::<usize>()
}

fn take_weight(take: &Take) -> usize {
    let queues: usize = match &take.from {
        From::Subscriptions => 0,
        From::Listed { queues, .. } => queues.iter().map(|queue| weight([queue])).sum(),
        From::Cycle { queue, .. } => queue.len(),
    };
    FIXED_BYTES + queues + take.worker.len()
}

fn new_weight(new: Option<&NewJob>) -> usize {
    let Some(new) = new else { return FIXED_BYTES };
    let key = new.unique.as_ref().map_or(0, |unique| unique.key.len());
    3 * FIXED_BYTES + key + weight([&new.queue, &new.body, &new.meta].into_iter().chain(&new.name))
}

impl Held {
    fn weight(&self) -> usize {
        weight([&self.queue, &self.name, &self.key])
    }

    /// Whether a command names this job.
    fn is_named(&self, id: JobId, job: &JobRef) -> bool {
        match job {
            JobRef::Id(named) => *named == id,
            JobRef::Name(name) => self.name == *name,
            JobRef::Key(key) => self.queue == key.queue && self.protocol == key.protocol && self.key == key.key,
            JobRef::KeyAnywhere { protocol, key } => self.protocol == *protocol && self.key == *key,
        }
    }
}

impl Client {
    pub(super) fn new(room: u64) -> Self {
        let (has, on_their_way, unanswered) = (Has::default(), VecDeque::new(), VecDeque::new());
        Self { room, has, on_their_way, unanswered, bytes: FIXED_BYTES }
    }

    /// Bytes that it counts as.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes + self.has.bytes
    }

    pub(super) const fn add_room(&mut self, bytes: u64) {
        self.room = self.room.saturating_add(bytes);
    }

    // ---- from the client -------------------------------------------------------------------------------------------

    pub(super) fn asked(&mut self, tag: Tag, command: &Command) {
        let effect = Effect::of(tag, command);
        if command.is_answered(tag) && !matches!(effect, Effect::Take(..)) {
            self.expect(tag);
        }
        self.bytes += effect.weight();
        self.on_their_way.push_back(effect);
    }

    pub(super) fn forbidden(&mut self, tag: Tag) {
        self.expect(tag);
        self.bytes += Effect::None.weight();
        self.on_their_way.push_back(Effect::None);
    }

    fn expect(&mut self, tag: Tag) {
        self.unanswered.push_back(tag);
        self.bytes += size_of::<Tag>();
    }

    /// A claim takes effect at once.
    pub(super) fn claim(&mut self, claim: &Claim) {
        match claim {
            Claim::Holds { job, held } => self.has.hold(*job, held.clone()),
            Claim::Hears { job } => self.has.listen(*job, None),
            Claim::Pushed { job, new } => self.has.listen(*job, Some(new.clone())),
        }
    }

    // ---- from the leader -------------------------------------------------------------------------------------------

    /// So many commands take effect.
    pub(super) fn applied(&mut self, count: u32, turn: &mut u64) {
        self.has.settle();
        for _ in 0..count {
            let Some(effect) = self.on_their_way.pop_front() else { return };
            self.bytes = self.bytes.saturating_sub(effect.weight());
            self.has.apply(effect, turn);
        }
    }

    pub(super) fn event(&mut self, event: &Event, turn: &mut u64) {
        self.room = self.room.saturating_sub(event.bytes() as u64);
        match event {
            Event::Reply(tag, reply) => {
                // Answers come in the order of their commands, but for a few.
                if let Some(at) = self.unanswered.iter().position(|unanswered| unanswered == tag) {
                    self.unanswered.remove(at);
                    self.bytes = self.bytes.saturating_sub(size_of::<Tag>());
                }
                self.has.reply(*tag, reply);
            }
            Event::Notice(notice) => self.has.notice(notice, turn),
        }
    }

    // ---- a new leader ----------------------------------------------------------------------------------------------

    pub(super) fn take_unanswered(&mut self) -> impl Iterator<Item = Tag> + '_ {
        self.bytes = self.bytes.saturating_sub(self.unanswered.len() * size_of::<Tag>());
        self.unanswered.drain(..)
    }

    /// Everything that it has, as asks; its waits apart. It has taken nothing out of `asks` if it never opened.
    pub(super) fn claims(self, client: ClientId, turn: &mut u64, asks: &mut Vec<Ask>, waits: &mut Waits) {
        let Self { room, mut has, on_their_way, .. } = self;
        has.settle();
        on_their_way.into_iter().for_each(|effect| has.apply(effect, turn));
        asks.push(Ask::Open { client, room });
        let mut say = |said: Command| asks.push(command(client, Tag::NONE, said));
        let Some(info) = has.info else { return };
        say(ClientCommand::Open(info).into());
        if !has.name.is_empty() {
            say(ClientCommand::SetName(has.name).into());
        }
        if let Some(Worker { name, about, state }) = has.worker {
            say(WorkerCommand::Register { worker: name.clone(), about }.into());
            if state > WorkerState::Running {
                say(WorkerCommand::SetState { worker: name, state }.into());
            }
        }
        has.subscriptions.into_iter().for_each(|subscription| say(ClientCommand::Serve(subscription).into()));
        if let Some(Watch { queue, room }) = has.watch {
            say(ClientCommand::Watch { queue, room }.into());
        }
        let held = has.held.into_iter().map(|(job, held)| Claim::Holds { job, held });
        let heard = has.heard.into_iter().flat_map(|(job, Heard { times, new })| {
            let pushed = new.map(|new| Claim::Pushed { job, new });
            let more = times.saturating_sub(u32::from(pushed.is_some()));
            pushed.into_iter().chain((0..more).map(move |_| Claim::Hears { job }))
        });
        asks.extend(held.chain(heard).map(|claim| Ask::Claim { client, claim }));
        has.takes.into_iter().for_each(|(turn, tag, take)| waits.add(turn, client, tag, TakeCommand::Take(take)));
        if let Some(turn) = has.asleep {
            waits.add(turn, client, Tag::NONE, TakeCommand::WaitForWork);
        }
        if let Credit { left: credits @ 1.., select: Some(select), turn } = has.credit {
            waits.add(turn, client, Tag::NONE, TakeCommand::Credit { credits, select });
        }
    }
}

impl Has {
    /// Nothing that took effect before is refused any more, and pushes before are answered.
    fn settle(&mut self) {
        for (_, _, held) in self.ending.drain(..) {
            self.bytes = self.bytes.saturating_sub(held.weight());
        }
        self.ended.clear();
    }

    fn apply(&mut self, effect: Effect, turn: &mut u64) {
        match effect {
            Effect::None => {}
            Effect::Open(info) => {
                self.bytes += info.address.len();
                self.info.get_or_insert(info);
            }
            Effect::SetName(name) => {
                self.bytes = self.bytes.saturating_sub(self.name.len()) + name.len();
                self.name = name;
            }
            Effect::Serve(subscription) => self.serve(subscription),
            Effect::Unserve { queue, requeue } => self.unserve(|served| *served == queue, requeue),
            Effect::UnserveAll { requeue } => self.unserve(|_| true, requeue),
            Effect::Watch { queue, room } => match &mut self.watch {
                Some(watch) => watch.room = watch.room.saturating_add(room),
                None => {
                    self.bytes += weight(&queue);
                    self.watch = Some(Watch { queue, room });
                }
            },
            Effect::Register { worker, about } => {
                if self.worker.is_none() && !worker.is_empty() {
                    self.bytes += weight([&worker, &about]);
                    self.worker = Some(Worker { name: worker, about, state: WorkerState::Running });
                }
            }
            Effect::SetState { worker, state } => {
                if let Some(own) = self.worker.as_mut().filter(|own| own.name == worker) {
                    own.state = own.state.max(state);
                }
            }
            Effect::Take(tag, take) => self.take(tag, *take, turn),
            Effect::WaitForWork => {
                if self.takes.is_empty() {
                    self.asleep = Some(next(turn));
                }
            }
            Effect::Credit { credits, select } => {
                let had = self.credit.left;
                let since = if had == 0 { next(turn) } else { self.credit.turn };
                self.credit = Credit { left: had.saturating_add(credits), select: Some(select), turn: since };
            }
            Effect::Unwait => {
                self.takes.drain(..).for_each(|(_, _, take)| {
                    self.bytes = self.bytes.saturating_sub(take_weight(&take));
                });
                (self.asleep, self.credit.left) = (None, 0);
            }
            Effect::Push(push) => {
                self.bytes += new_weight(push.new.as_deref());
                self.pushes.push_back(push);
            }
            Effect::End(tag, job) => self.end(tag, &job),
            Effect::Extend { job, until, only_later } => {
                if let Some(held) = self.named(&job).and_then(|job| self.held.get_mut(&job)) {
                    held.until = if only_later { held.until.max(until) } else { until };
                }
            }
        }
    }

    // ---- what it serves --------------------------------------------------------------------------------------------

    /// A repetition replaces the terms of those before it, and counts up to a number of times.
    fn serve(&mut self, new: Subscription) {
        let mut times = 0;
        for served in self.subscriptions.iter_mut().filter(|served| served.queue == new.queue) {
            served.lease = new.lease;
            times += 1;
        }
        if times < Subscription::TIMES_MAX {
            self.bytes += weight([&new.queue]);
            self.subscriptions.push(new);
        }
    }

    fn unserve(&mut self, which: impl Fn(&Bytes) -> bool, requeue: bool) {
        for gone in self.subscriptions.extract_if(.., |served| which(&served.queue)) {
            self.bytes = self.bytes.saturating_sub(weight([&gone.queue]));
        }
        let given_back: Vec<_> =
            self.held.iter().filter(|(_, held)| requeue && which(&held.queue)).map(|(job, _)| *job).collect();
        given_back.iter().for_each(|job| drop(self.let_go(*job)));
    }

    // ---- what it waits for -----------------------------------------------------------------------------------------

    fn take(&mut self, tag: Tag, take: Take, turn: &mut u64) {
        self.asleep = None;
        self.bytes += take_weight(&take);
        self.takes.push_back((next(turn), tag, take));
    }

    fn end_take(&mut self, tag: Tag) {
        let at = self.takes.iter().position(|(_, waiting, _)| *waiting == tag);
        if let Some((_, _, take)) = at.and_then(|at| self.takes.remove(at)) {
            self.bytes = self.bytes.saturating_sub(take_weight(&take));
        }
    }

    // ---- what it holds ---------------------------------------------------------------------------------------------

    fn taken(&mut self, taken: &Taken) {
        if taken.connection_bound {
            let held = Held {
                token: taken.token,
                until: taken.until,
                protocol: taken.protocol,
                queue: taken.queue.clone(),
                name: taken.name.clone(),
                key: taken.key.clone(),
            };
            self.hold(taken.id, held);
        }
    }

    fn hold(&mut self, job: JobId, held: Held) {
        self.bytes += held.weight();
        if let Some(before) = self.held.insert(job, held) {
            self.bytes = self.bytes.saturating_sub(before.weight());
        }
    }

    fn let_go(&mut self, job: JobId) -> Option<Held> {
        let held = self.held.remove(&job)?;
        self.bytes = self.bytes.saturating_sub(held.weight());
        Some(held)
    }

    fn named(&self, job: &JobRef) -> Option<JobId> {
        match job {
            JobRef::Id(id) => Some(*id),
            JobRef::Name(_) | JobRef::Key(_) | JobRef::KeyAnywhere { .. } => {
                self.held.iter().find(|(id, held)| held.is_named(**id, job)).map(|(id, _)| *id)
            }
        }
    }

    fn end(&mut self, tag: Tag, job: &JobRef) {
        let Some(job) = self.named(job) else { return };
        if let Some(held) = self.held.remove(&job) {
            self.ending.push((tag, job, held));
        }
    }

    /// The end of a job was refused. It is held still, unless the refusal is that it is not.
    fn refused(&mut self, tag: Tag, why: Refusal) {
        let is_held = !matches!(why, Refusal::NotHeld | Refusal::NotFound(Thing::Job)) && tag.wants_answer();
        let at = self.ending.iter().position(|(ending, ..)| *ending == tag).filter(|_| is_held);
        if let Some(at) = at {
            let (_, job, held) = self.ending.remove(at);
            self.held.insert(job, held);
        }
    }

    // ---- what it listens to ----------------------------------------------------------------------------------------

    /// Its push was answered.
    fn pushed(&mut self, tag: Tag, reply: &Reply) {
        let at = self.pushes.iter().position(|push| push.tag == tag);
        let Some(Push { new, .. }) = at.and_then(|at| self.pushes.remove(at)) else { return };
        self.bytes = self.bytes.saturating_sub(new_weight(new.as_deref()));
        let Reply::Pushed { job, how: Pushed::New | Pushed::Attached, durable } = reply else { return };
        match self.ended.iter().position(|ended| ended == job) {
            Some(at) => drop(self.ended.swap_remove(at)),
            None => self.listen(*job, new.filter(|_| !durable)),
        }
    }

    fn listen(&mut self, job: JobId, new: Option<Box<NewJob>>) {
        let heard = self.heard.entry(job).or_default();
        if heard.times == 0 {
            self.bytes += FIXED_BYTES;
        }
        heard.times = heard.times.saturating_add(1);
        if heard.new.is_none() && new.is_some() {
            self.bytes += new_weight(new.as_deref());
            heard.new = new;
        }
    }

    fn ended(&mut self, job: JobId) {
        let Some(heard) = self.heard.get_mut(&job) else {
            if !self.pushes.is_empty() {
                self.ended.push(job);
            }
            return;
        };
        heard.times -= 1;
        if heard.times == 0
            && let Some(Heard { new, .. }) = self.heard.remove(&job)
        {
            let new = new.as_deref().map_or(0, |new| new_weight(Some(new)));
            self.bytes = self.bytes.saturating_sub(FIXED_BYTES + new);
        }
    }

    // ---- events ----------------------------------------------------------------------------------------------------

    fn reply(&mut self, tag: Tag, reply: &Reply) {
        match reply {
            Reply::Taken(taken) => {
                self.end_take(tag);
                self.taken(taken);
            }
            Reply::Empty => self.end_take(tag),
            Reply::Pushed { .. } => self.pushed(tag, reply),
            Reply::Refused(why) => {
                self.end_take(tag);
                self.pushed(tag, reply);
                self.refused(tag, *why);
            }
            Reply::Beaten(state) => {
                if let Some(worker) = &mut self.worker {
                    worker.state = worker.state.max(*state);
                }
            }
            Reply::Finished(_)
            | Reply::Failed { .. }
            | Reply::Done
            | Reply::Settled
            | Reply::Looked { .. }
            | Reply::ScheduleSet { .. }
            | Reply::Schedules { .. }
            | Reply::Batch(_)
            | Reply::Batches { .. }
            | Reply::Queues { .. }
            | Reply::Jobs { .. }
            | Reply::Throttles { .. }
            | Reply::Workers { .. }
            | Reply::Clients { .. }
            | Reply::Why(_)
            | Reply::Figures { .. }
            | Reply::Stats(_)
            | Reply::Days(_)
            | Reply::Mutated { .. }
            | Reply::Counted { .. } => {}
        }
    }

    fn notice(&mut self, notice: &Notice, turn: &mut u64) {
        match notice {
            Notice::Delivered(taken) => {
                self.credit.left = self.credit.left.saturating_sub(1);
                // It goes behind its equals.
                self.credit.turn = next(turn);
                self.taken(taken);
            }
            Notice::WorkAvailable => self.asleep = None,
            Notice::Ended { job, .. } => self.ended(*job),
            Notice::Watched(_) => {
                if let Some(watch) = &mut self.watch {
                    watch.room = watch.room.saturating_sub(1);
                }
            }
            Notice::Progress { .. } | Notice::Close => {}
        }
    }
}

/// The waits of all clients.
#[derive(Debug, Default)]
pub(super) struct Waits(Vec<(u64, ClientId, Tag, TakeCommand)>);

impl Waits {
    fn add(&mut self, turn: u64, client: ClientId, tag: Tag, wait: TakeCommand) {
        self.0.push((turn, client, tag, wait));
    }

    /// In the order of their turns.
    pub(super) fn into_asks(mut self) -> impl Iterator<Item = Ask> {
        self.0.sort_by_key(|(turn, ..)| *turn);
        self.0.into_iter().map(|(_, client, tag, wait)| command(client, tag, wait))
    }
}

/// The next turn.
const fn next(turn: &mut u64) -> u64 {
    *turn += 1;
    *turn
}
