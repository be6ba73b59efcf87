//! What a client has, and how commands and events change it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use windlass_engine::{
    Claim, ClientCommand, ClientId, ClientInfo, Command, Held, JobId, JobRef, NewJob, Notice,
    Proof, Pushed, Refusal, Reply, Select, Subscription, Tag, Take, TakeCommand, Taken, Thing,
    Token, Wait, WorkerCommand, WorkerState,
};

use super::effect::{Effect, FIXED_BYTES, Push, new_weight, take_weight, weight};
use super::waits::{Waits, command};
use crate::to_leader::ToLeader;

/// What a client has.
#[derive(Clone, Debug, Default)]
pub(super) struct Has {
    /// `None` until its first command takes effect.
    info: Option<ClientInfo>,
    name: Bytes,
    /// In the order of registration, with repetitions.
    subscriptions: Vec<Subscription>,
    worker: Option<Worker>,
    watch: Option<Watch>,
    /// Takes that wait, with their turns.
    takes: VecDeque<(u64, Tag, Take)>,
    /// Takes that got a lease by time which is not in the store yet: without the leader they wait again.
    granted: Vec<Granted>,
    /// It sleeps, with this turn.
    asleep: Option<u64>,
    credit: Credit,
    held: BTreeMap<JobId, Held>,
    /// Jobs whose ends took effect last: a refusal returns them.
    ending: Vec<(Tag, JobId, Held)>,
    heard: BTreeMap<JobId, Heard>,
    /// Pushes that took effect and have not been answered.
    pushes: VecDeque<Push>,
    /// Jobs that ended since commands last took effect and that the client did not listen to: the answer to a push may
    /// come after the end of its job.
    ended: Vec<JobId>,
    /// Bytes of all these.
    bytes: usize,
}

/// A take that got a lease, once this commit is durable.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    gate: u64,
    take: (u64, Tag, Take),
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
    text: Bytes,
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

/// Whether a report may be about this lease. One with the token of an earlier lease of the job is not.
fn is_of(proof: Proof, held: &Held) -> bool {
    match proof {
        Proof::Token(token) => token == held.token,
        Proof::Connection | Proof::AnyLease | Proof::Late => true,
    }
}

/// What a lease counts as.
fn held_weight(held: &Held) -> usize {
    weight([&held.queue, &held.name, &held.key])
}

impl Has {
    /// Bytes that it counts as.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Nothing that took effect before is refused any more, and pushes before are answered. Commits up to `durable` are in
    /// the store.
    pub(super) fn settle(&mut self, durable: u64) {
        for Granted {
            take: (_, _, take), ..
        } in self
            .granted
            .extract_if(.., |granted| granted.gate <= durable)
        {
            self.bytes = self.bytes.saturating_sub(take_weight(&take));
        }
        for (_, _, held) in self.ending.drain(..) {
            self.bytes = self.bytes.saturating_sub(held_weight(&held));
        }
        self.ended.clear();
    }

    pub(super) fn apply(&mut self, effect: Effect, turn: &mut u64) {
        match effect {
            Effect::None => {}
            Effect::Client(command) => self.client(command),
            Effect::Register { worker, about } => {
                if self.worker.is_none() && !worker.is_empty() {
                    self.bytes += weight([&worker, &about]);
                    self.worker = Some(Worker {
                        name: worker,
                        about,
                        state: WorkerState::Running,
                    });
                }
            }
            Effect::SetState { worker, state } => {
                if let Some(own) = self.worker.as_mut().filter(|own| own.name == worker) {
                    own.state = own.state.max(state);
                }
            }
            Effect::Take(tag, command) => self.wait(tag, command, turn),
            Effect::Push(push) => {
                self.bytes += new_weight(push.new.as_deref());
                self.pushes.push_back(push);
            }
            Effect::End(tag, job, proof) => self.end(tag, &job, proof),
            Effect::Extend {
                job,
                proof,
                until,
                only_later,
            } => {
                let held = self.named(&job).and_then(|job| self.held.get_mut(&job));
                if let Some(held) = held.filter(|held| is_of(proof, held)) {
                    held.until = if only_later {
                        held.until.max(until)
                    } else {
                        until
                    };
                }
            }
        }
    }

    fn client(&mut self, command: ClientCommand) {
        match command {
            ClientCommand::Open(info) => {
                self.bytes += info.address.len() + info.namespace.as_deref().map_or(0, str::len);
                self.info.get_or_insert(info);
            }
            ClientCommand::SetName(name) => {
                self.bytes = self.bytes.saturating_sub(self.name.len()) + name.len();
                self.name = name;
            }
            ClientCommand::Serve(subscription) => self.serve(subscription),
            ClientCommand::Unserve { queue, requeue } => {
                self.unserve(|served| *served == queue, requeue)
            }
            ClientCommand::UnserveAll { requeue } => self.unserve(|_| true, requeue),
            ClientCommand::Watch { queue, text, room } => match &mut self.watch {
                Some(watch) => watch.room = watch.room.saturating_add(room),
                None => {
                    self.bytes += weight(queue.iter().chain([&text]));
                    self.watch = Some(Watch { queue, text, room });
                }
            },
            ClientCommand::Close | ClientCommand::Disconnect(_) => {}
        }
    }

    // ---- what it serves --------------------------------------------------------------------------------------------

    /// A repetition replaces the terms of those before it, and counts up to a number of times.
    fn serve(&mut self, new: Subscription) {
        let mut times = 0;
        for served in self
            .subscriptions
            .iter_mut()
            .filter(|served| served.queue == new.queue)
        {
            served.lease = new.lease;
            times += 1;
        }
        if times < Subscription::TIMES_MAX {
            self.bytes += weight([&new.queue]);
            self.subscriptions.push(new);
        }
    }

    fn unserve(&mut self, which: impl Fn(&Bytes) -> bool, requeue: bool) {
        for gone in self
            .subscriptions
            .extract_if(.., |served| which(&served.queue))
        {
            self.bytes = self.bytes.saturating_sub(weight([&gone.queue]));
        }
        let given_back: Vec<_> = self
            .held
            .iter()
            .filter(|(_, held)| requeue && which(&held.queue))
            .map(|(job, _)| *job)
            .collect();
        given_back.iter().for_each(|job| drop(self.let_go(*job)));
    }

    // ---- what it waits for -----------------------------------------------------------------------------------------

    fn wait(&mut self, tag: Tag, command: TakeCommand, turn: &mut u64) {
        match command {
            TakeCommand::Take(take) => self.take(tag, take, turn),
            // Behind a take that waits it is refused. One that does not wait may not be answered yet.
            TakeCommand::WaitForWork => {
                if self.takes.iter().all(|(_, _, take)| take.wait == Wait::No) {
                    self.asleep = Some(next(turn));
                }
            }
            TakeCommand::Credit { credits, select } => {
                let had = self.credit.left;
                let since = if had == 0 {
                    next(turn)
                } else {
                    self.credit.turn
                };
                self.credit = Credit {
                    left: had.saturating_add(credits),
                    select: Some(select),
                    turn: since,
                };
            }
            TakeCommand::Unwait => {
                let granted = self.granted.drain(..).map(|granted| granted.take);
                self.takes
                    .drain(..)
                    .chain(granted)
                    .for_each(|(_, _, take)| {
                        self.bytes = self.bytes.saturating_sub(take_weight(&take));
                    });
                (self.asleep, self.credit.left) = (None, 0);
            }
        }
    }

    fn take(&mut self, tag: Tag, take: Take, turn: &mut u64) {
        self.asleep = None;
        self.bytes += take_weight(&take);
        self.takes.push_back((next(turn), tag, take));
    }

    /// A take is answered. With a `gate`, the answer counts once that commit is durable.
    fn end_take(&mut self, tag: Tag, gate: u64) {
        let at = self
            .takes
            .iter()
            .position(|(_, waiting, _)| *waiting == tag);
        let Some(take) = at.and_then(|at| self.takes.remove(at)) else {
            return;
        };
        if gate > 0 {
            self.granted.push(Granted { gate, take });
        } else {
            self.bytes = self.bytes.saturating_sub(take_weight(&take.2));
        }
    }

    /// The leader is gone, and the next one has the commits up to `reached`: takes whose leases are lost wait again.
    pub(super) fn lose_grants(&mut self, reached: u64) {
        let lost = self
            .granted
            .drain(..)
            .filter(|granted| granted.gate > reached);
        self.takes.extend(lost.map(|granted| granted.take));
    }

    /// Goes on at the same leader.
    pub(super) fn take_grants(&mut self) -> Vec<Granted> {
        std::mem::take(&mut self.granted)
    }

    pub(super) fn keep_grants(&mut self, granted: Vec<Granted>) {
        self.bytes += granted
            .iter()
            .map(|granted| take_weight(&granted.take.2))
            .sum::<usize>();
        self.granted = granted;
    }

    // ---- what it holds ---------------------------------------------------------------------------------------------

    /// It got a job. A lease that it had of the job is over.
    fn taken(&mut self, taken: &Taken) {
        drop(self.let_go(taken.id));
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

    pub(super) fn hold(&mut self, job: JobId, held: Held) {
        self.bytes += held_weight(&held);
        if let Some(before) = self.held.insert(job, held) {
            self.bytes = self.bytes.saturating_sub(held_weight(&before));
        }
    }

    fn let_go(&mut self, job: JobId) -> Option<Held> {
        let held = self.held.remove(&job)?;
        self.bytes = self.bytes.saturating_sub(held_weight(&held));
        Some(held)
    }

    fn named(&self, job: &JobRef) -> Option<JobId> {
        if let JobRef::Id(id) = job {
            return Some(*id);
        }
        self.held
            .iter()
            .find(|(id, held)| held.is_named(**id, job))
            .map(|(id, _)| *id)
    }

    /// The token of the lease of a job that the client holds.
    pub(super) fn token_of(&self, job: &JobRef) -> Option<Token> {
        Some(self.held.get(&self.named(job)?)?.token)
    }

    fn end(&mut self, tag: Tag, job: &JobRef, proof: Proof) {
        let Some(job) = self.named(job) else { return };
        if !self.held.get(&job).is_some_and(|held| is_of(proof, held)) {
            return;
        }
        if let Some(held) = self.held.remove(&job) {
            self.ending.push((tag, job, held));
        }
    }

    /// The end of a job was refused. It is held still, unless the refusal is that it is not, or the client has got the job
    /// again since.
    fn refused(&mut self, tag: Tag, why: Refusal) {
        let is_held =
            !matches!(why, Refusal::NotHeld | Refusal::NotFound(Thing::Job)) && tag.wants_answer();
        let at = self
            .ending
            .iter()
            .position(|(ending, ..)| *ending == tag)
            .filter(|_| is_held);
        if let Some(at) = at {
            let (_, job, held) = self.ending.remove(at);
            let weight = held_weight(&held);
            match self.held.entry(job) {
                Entry::Vacant(place) => drop(place.insert(held)),
                Entry::Occupied(_) => self.bytes = self.bytes.saturating_sub(weight),
            }
        }
    }

    // ---- what it listens to ----------------------------------------------------------------------------------------

    /// Its push was answered.
    fn pushed(&mut self, tag: Tag, reply: &Reply) {
        let at = self.pushes.iter().position(|push| push.tag == tag);
        let Some(Push { new, .. }) = at.and_then(|at| self.pushes.remove(at)) else {
            return;
        };
        self.bytes = self.bytes.saturating_sub(new_weight(new.as_deref()));
        let Reply::Pushed {
            job,
            how: Pushed::New | Pushed::Attached,
            durable,
        } = reply
        else {
            return;
        };
        match self.ended.iter().position(|ended| ended == job) {
            Some(at) => drop(self.ended.swap_remove(at)),
            None => self.listen(*job, new.filter(|_| !durable)),
        }
    }

    pub(super) fn listen(&mut self, job: JobId, new: Option<Box<NewJob>>) {
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

    /// `gate`: the commit that the reply waits for; 0 = none.
    pub(super) fn reply(&mut self, tag: Tag, reply: &Reply, gate: u64) {
        if let Reply::Taken(taken) = reply {
            self.end_take(tag, if taken.connection_bound { 0 } else { gate });
            self.taken(taken);
        } else if let Reply::Empty = reply {
            self.end_take(tag, 0);
        } else if let Reply::Pushed { .. } = reply {
            self.pushed(tag, reply);
        } else if let Reply::Refused(why) = reply {
            self.end_take(tag, 0);
            self.pushed(tag, reply);
            self.refused(tag, *why);
        } else if let (Reply::Beaten(state), Some(worker)) = (reply, &mut self.worker) {
            worker.state = worker.state.max(*state);
        }
    }

    pub(super) fn notice(&mut self, notice: &Notice, turn: &mut u64) {
        match notice {
            Notice::Delivered(taken) => {
                self.credit.left = self.credit.left.saturating_sub(1);
                // It goes behind its equals.
                self.credit.turn = next(turn);
                self.taken(taken);
            }
            Notice::WorkAvailable => self.asleep = None,
            Notice::Ended { job, .. }
            | Notice::Collected {
                job, end: Some(_), ..
            } => self.ended(*job),
            Notice::Collected { job, end: None, .. } => self.listen(*job, None),
            Notice::Watched(_) => {
                if let Some(watch) = &mut self.watch {
                    watch.room = watch.room.saturating_sub(1);
                }
            }
            Notice::Progress { .. } | Notice::Close => {}
        }
    }

    // ---- a new leader ----------------------------------------------------------------------------------------------

    /// Everything that it has, as items for the leader; its waits apart.
    pub(super) fn claims(self, client: ClientId, to_leader: &mut Vec<ToLeader>, waits: &mut Waits) {
        let mut add = |has: Command| to_leader.push(command(client, Tag::NONE, has));
        let Some(info) = self.info else { return };
        add(ClientCommand::Open(info).into());
        if !self.name.is_empty() {
            add(ClientCommand::SetName(self.name).into());
        }
        if let Some(Worker { name, about, state }) = self.worker {
            add(WorkerCommand::Register {
                worker: name.clone(),
                about,
            }
            .into());
            if state > WorkerState::Running {
                add(WorkerCommand::SetState {
                    worker: name,
                    state,
                }
                .into());
            }
        }
        self.subscriptions
            .into_iter()
            .for_each(|subscription| add(ClientCommand::Serve(subscription).into()));
        if let Some(Watch { queue, text, room }) = self.watch {
            add(ClientCommand::Watch { queue, text, room }.into());
        }
        let held = self
            .held
            .into_iter()
            .map(|(job, held)| Claim::Holds { job, held });
        let heard = self
            .heard
            .into_iter()
            .flat_map(|(job, Heard { times, new })| {
                let pushed = new.map(|new| Claim::Pushed { job, new });
                let more = times.saturating_sub(u32::from(pushed.is_some()));
                pushed
                    .into_iter()
                    .chain((0..more).map(move |_| Claim::Hears { job }))
            });
        to_leader.extend(
            held.chain(heard)
                .map(|claim| ToLeader::Claim { client, claim }),
        );
        self.takes
            .into_iter()
            .for_each(|(turn, tag, take)| waits.add(turn, client, tag, TakeCommand::Take(take)));
        if let Some(turn) = self.asleep {
            waits.add(turn, client, Tag::NONE, TakeCommand::WaitForWork);
        }
        if let Credit {
            left: credits @ 1..,
            select: Some(select),
            turn,
        } = self.credit
        {
            waits.add(
                turn,
                client,
                Tag::NONE,
                TakeCommand::Credit { credits, select },
            );
        }
    }
}

/// The next turn.
const fn next(turn: &mut u64) -> u64 {
    *turn += 1;
    *turn
}
