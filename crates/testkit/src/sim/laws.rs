//! Laws that hold independently of the oracle: they look only at the commands and the events.
//!
//! - A lease of a job is granted with a greater token than every one before it.
//! - A listener receives each note, and the end, once for each of its subscriptions.
//! - A closed connection receives no events.
//! - The engine's time never goes back while the machine runs.
//! - No lease ends early for its holder, and no worker that beats in time is lost: physical time counts, less the
//!   pauses of the daemon.
//! - A job whose end was acknowledged is not handed out again, by no run of the daemon.
//! - A report ends or fails no job that no worker had, unless an earlier run may have handed it out.
//! - A push wakes one sleeper at most, and hands out one job at most.
//! - A client gets a job of another protocol only from a bridged queue.
//! - A client gets no job that its protocol cannot express, until that may have changed.
//! - A key leads to one of the jobs that hold it in any queue, and to the same one while these jobs stay where they are.

use std::collections::{BTreeMap, BTreeSet};

use windlass_engine::{
    Bridge, BulkCommand, ClientCommand, ClientId, Command, Engine, Event, Holder, JobCommand,
    JobId, JobRef, LeaseCommand, Notice, Protocol, Pushed, QueueCommand, QueueId, Reading, Reply,
    Timestamp, Token,
};

use super::oracle::{Oracle, id_of};
use super::promises::Promises;
use crate::clock::Machine;

/// The state that the laws need.
#[derive(Debug, Default)]
pub(crate) struct Laws {
    tokens: BTreeMap<JobId, Token>,
    listening: BTreeMap<(ClientId, JobId), usize>,
    open: Vec<ClientId>,
    /// The protocols of clients that have declared one.
    speak: BTreeMap<ClientId, Protocol>,
    bridge: Bridge,
    /// Protocols that cannot express these jobs.
    wordless: BTreeSet<(JobId, Protocol)>,
    /// The job to which a key led that these jobs held, each in this queue: the first queue that has one decides.
    anywhere: BTreeMap<Vec<(JobId, QueueId)>, JobId>,
    /// Jobs whose end was acknowledged.
    ended: BTreeSet<JobId>,
    /// Jobs pushed in this run that were not handed out.
    untouched: BTreeSet<JobId>,
    leases: Promises<Leased>,
    /// By the number of the worker: its life without another beat.
    beats: Promises<u64>,
    now: Timestamp,
}

/// A lease, and the number of the named worker that has it, if there is one.
type Leased = (JobId, Token, Option<u64>);

impl Laws {
    /// Checks events after a command, or after time has passed.
    pub(crate) fn watch(
        &mut self,
        asked: Option<(ClientId, &Command)>,
        said: &[(ClientId, Event)],
        engine: &Engine,
    ) {
        let asker = asked.map(|(client, _)| client);
        let strangers = said
            .iter()
            .any(|(told, _)| Some(*told) != asker && !self.open.contains(told));
        assert!(!strangers, "an event for a closed connection: {said:?}");
        self.watch_tokens(said);
        self.watch_ends(said);
        self.watch_words(asked, said, engine);
        self.watch_listeners(asked, said);
        let Some((client, command)) = asked else {
            return;
        };
        match command {
            Command::Client(ClientCommand::Open(info)) if !self.open.contains(&client) => {
                self.open.push(client);
                self.speak
                    .extend(info.protocol.map(|protocol| (client, protocol)));
            }
            Command::Client(ClientCommand::Close) => {
                self.open.retain(|open| *open != client);
                self.speak.remove(&client);
                self.listening
                    .retain(|(listener, _), _| *listener != client);
            }
            _ => {}
        }
    }

    /// Checks the events of a push while nothing was due. Where a sleeper was woken for an earlier job, a client that serves
    /// the queue may take that one, and then one that takes the unclaimed gets the new one.
    pub(crate) fn watch_push(said: &[(ClientId, Event)], takes_unclaimed: bool) {
        let count = |is: fn(&Event) -> bool| said.iter().filter(|(_, event)| is(event)).count();
        assert!(
            count(|event| matches!(event, Event::Notice(Notice::WorkAvailable))) <= 1,
            "one push, one woken: {said:?}"
        );
        let most = 1 + usize::from(takes_unclaimed);
        assert!(
            count(|event| event.handed_out().is_some()) <= most,
            "one push, one taken: {said:?}"
        );
    }

    /// After a restart all connections are gone, and the deliveries that ended with the daemon may be forgotten.
    pub(crate) fn survive(&mut self) {
        self.tokens
            .values_mut()
            .for_each(|token| token.0 = token.0.saturating_sub(1));
        (self.listening, self.open) = (BTreeMap::new(), Vec::new());
        (self.speak, self.bridge, self.wordless) =
            (BTreeMap::new(), Bridge::default(), BTreeSet::new());
        self.untouched.clear();
    }

    /// Checks which of the holders of a key was found.
    pub(crate) fn watch_anywhere(&mut self, holders: Vec<(JobId, QueueId)>, found: Option<JobId>) {
        let Some(found) = found else {
            return assert!(holders.is_empty(), "{holders:?} hold the key");
        };
        assert!(
            holders.iter().any(|(id, _)| *id == found),
            "{holders:?} hold the key, {found:?} was found"
        );
        let before = *self.anywhere.entry(holders).or_insert(found);
        assert_eq!(before, found, "left: found before, right: now");
    }

    fn watch_words(
        &mut self,
        asked: Option<(ClientId, &Command)>,
        said: &[(ClientId, Event)],
        engine: &Engine,
    ) {
        let refused = said
            .iter()
            .any(|(_, event)| matches!(event, Event::Reply(_, Reply::Refused(_))));
        match asked {
            Some((_, Command::Queue(QueueCommand::Bridge(bridge)))) => {
                self.bridge = (**bridge).clone();
                self.wordless.clear();
            }
            // A new body, another codec or another try after the end may have changed it. A mark from when the queue
            // was shared is tried once more when the queue is isolated again.
            Some((
                _,
                Command::Job(JobCommand::Replace { .. })
                | Command::Queue(QueueCommand::SetRules { .. } | QueueCommand::SetPatterns(_))
                | Command::Bulk(BulkCommand::Mutate { .. } | BulkCommand::Redrive { .. }),
            )) => {
                self.wordless.clear();
            }
            // So may a submit that became one of the jobs of submits in its queue.
            Some((_, Command::Job(JobCommand::Push(_)))) => self.wordless.retain(|(id, _)| {
                let extra = engine.job(*id).and_then(|job| job.extra.as_deref());
                extra.is_none_or(|extra| extra.coalesced.is_none())
            }),
            _ => {}
        }
        for (client, event) in said {
            let (Some(job), Some(own)) = (event.handed_out(), self.speak.get(client)) else {
                continue;
            };
            // Entries of `cycle` queues are shared by all protocols.
            let is_work = engine.job(job.id).is_some_and(|job| job.cycle().is_none());
            if is_work && job.protocol != *own {
                assert!(
                    self.bridge.includes(&job.queue),
                    "{own:?} was handed a job of an isolated queue: {job:?}"
                );
            }
            assert!(
                !self.wordless.contains(&(job.id, *own)),
                "{own:?} has no words for {job:?}"
            );
        }
        // A job that fell due earlier was still handed out earlier.
        if let Some((
            client,
            Command::Lease(LeaseCommand::Unconvertible {
                job: JobRef::Id(job),
                ..
            }),
        )) = asked
            && !refused
        {
            let holder = engine
                .job(*job)
                .and_then(|job| job.lease())
                .map(|lease| &lease.holder);
            assert_ne!(
                holder,
                Some(&Holder::Connection(client)),
                "{client:?} got {job:?} back"
            );
            self.wordless
                .extend(self.speak.get(&client).map(|protocol| (*job, *protocol)));
        }
    }

    pub(crate) fn watch_clock(&mut self, reading: &Reading) {
        assert!(
            self.now <= reading.now,
            "the engine's time went back from {:?} to {:?}",
            self.now,
            reading.now
        );
        self.now = reading.now;
        if let Some(pause_ms) = reading.pause_ms {
            self.shift_promises(pause_ms.cast_signed());
        }
    }

    /// Records the leases from their holders' view, and the lives of workers from theirs.
    pub(crate) fn watch_promises(&mut self, oracle: &Oracle, machine: &Machine) {
        self.leases
            .record(leases(oracle), self.now, machine.passed_ms());
        self.beats
            .record(beats(oracle), self.now, machine.passed_ms());
    }

    /// Checks after time has passed and nothing else has happened: a holder that lost its lease has had its full time,
    /// unless it is a worker that was lost itself.
    pub(crate) fn judge_promises(&self, oracle: &Oracle, machine: &Machine) {
        let (leases, beats) = (leases(oracle), beats(oracle));
        // The worker of a lease that is older than the daemon's life is known once the daemon's time goes on.
        let is_known_now = |(job, token): (JobId, Token)| {
            leases
                .range((job, token, Some(0))..=(job, token, Some(u64::MAX)))
                .next()
                .is_some()
        };
        let is_lost = |(job, token, worker): &Leased| match worker {
            Some(worker) => !beats.contains_key(worker),
            None => is_known_now((*job, *token)),
        };
        self.leases.judge(&leases, machine.passed_ms(), is_lost);
        self.beats.judge(&beats, machine.passed_ms(), |_| false);
    }

    /// The machine boots: from here on time is the wall clock's, except for time that the journal has not recorded.
    pub(crate) fn boot(&mut self) {
        self.now = Timestamp(0);
        self.shift_promises(-1_001);
    }

    /// The elapsed time is unknown.
    pub(crate) fn forget_promises(&mut self) {
        self.leases.forget();
        self.beats.forget();
    }

    fn shift_promises(&mut self, by_ms: i64) {
        self.leases.shift(by_ms);
        self.beats.shift(by_ms);
    }

    fn watch_ends(&mut self, said: &[(ClientId, Event)]) {
        // A job may be handed out before its producer is answered.
        self.untouched
            .extend(said.iter().filter_map(|(_, event)| match event {
                Event::Reply(
                    _,
                    Reply::Pushed {
                        job,
                        how: Pushed::New,
                        ..
                    },
                ) => Some(*job),
                _ => None,
            }));
        for (_, event) in said {
            if let Some(job) = event.handed_out() {
                assert!(
                    !self.ended.contains(&job.id),
                    "the end of {job:?} was acknowledged"
                );
                self.untouched.remove(&job.id);
            }
            if let Event::Reply(_, Reply::Finished(job) | Reply::Failed { job, .. }) = event {
                assert!(!self.untouched.contains(job), "no worker had {job:?}");
                if matches!(event, Event::Reply(_, Reply::Finished(_))) {
                    self.ended.insert(*job);
                }
            }
        }
    }

    fn watch_tokens(&mut self, said: &[(ClientId, Event)]) {
        for (_, event) in said {
            if let Some(job) = event.handed_out() {
                let before = self.tokens.insert(job.id, job.token);
                assert!(
                    before < Some(job.token),
                    "{:?} was leased with {before:?} before",
                    job
                );
            }
        }
    }

    fn watch_listeners(&mut self, asked: Option<(ClientId, &Command)>, said: &[(ClientId, Event)]) {
        let mut told: BTreeMap<(ClientId, JobId), usize> = BTreeMap::new();
        let mut ended: BTreeMap<(ClientId, JobId), usize> = BTreeMap::new();
        for (listener, event) in said {
            match event {
                Event::Notice(Notice::Progress { job, .. }) => {
                    *told.entry((*listener, *job)).or_default() += 1
                }
                Event::Notice(Notice::Ended { job, .. }) => {
                    *ended.entry((*listener, *job)).or_default() += 1
                }
                Event::Notice(Notice::Collected { job, end: None, .. }) => {
                    *self.listening.entry((*listener, *job)).or_default() += 1;
                }
                // A client that attaches to a job that has just ended, and keeps its key, receives that end or nothing.
                Event::Reply(
                    _,
                    Reply::Pushed {
                        job,
                        how: Pushed::Attached,
                        ..
                    },
                ) if ended.keys().any(|(_, over)| over == job)
                    && !said
                        .iter()
                        .any(|(to, event)| to == listener && is_end_of(event, *job)) => {}
                Event::Reply(
                    _,
                    Reply::Pushed {
                        job,
                        how: Pushed::New | Pushed::Attached,
                        ..
                    },
                ) if listens(asked) => {
                    *self.listening.entry((*listener, *job)).or_default() += 1;
                }
                _ => {}
            }
        }
        for (whom, times) in &told {
            assert_eq!(
                self.listening.get(whom),
                Some(times),
                "{whom:?} receives a note"
            );
        }
        // A closing client may have received events that were due before.
        let leaving = asked
            .filter(|(_, command)| matches!(command, Command::Client(ClientCommand::Close)))
            .map(|(client, _)| client);
        for (_, job) in told.keys().chain(ended.keys()) {
            let stays = |whom: &&(ClientId, JobId)| whom.1 == *job && Some(whom.0) != leaving;
            let listeners = self.listening.keys().filter(stays).count();
            let heard = [&told, &ended].map(|map| map.keys().filter(stays).count());
            assert!(
                heard.contains(&listeners),
                "a listener of {job:?} was left out: {said:?}"
            );
        }
        for (whom, times) in &ended {
            assert_eq!(
                self.listening.remove(whom).as_ref(),
                Some(times),
                "{whom:?} receives the end"
            );
        }
    }
}

fn is_end_of(event: &Event, job: JobId) -> bool {
    matches!(event, Event::Notice(Notice::Ended { job: ended, .. }) if *ended == job)
}

/// All leases and when they end.
fn leases(oracle: &Oracle) -> BTreeMap<Leased, Timestamp> {
    let leased = oracle
        .jobs
        .iter()
        .filter_map(|memo| Some((memo, memo.job.lease()?)));
    leased
        .map(|(memo, lease)| ((id_of(memo), lease.token, memo.lease_worker), lease.until))
        .collect()
}

/// All named workers, and when they are lost without another beat.
fn beats(oracle: &Oracle) -> BTreeMap<u64, Timestamp> {
    let beat_ms = oracle.limits.beat_ms;
    oracle
        .workers
        .iter()
        .map(|worker| (worker.number, worker.beat_at.after_ms(beat_ms)))
        .collect()
}

fn listens(asked: Option<(ClientId, &Command)>) -> bool {
    matches!(asked, Some((_, Command::Job(JobCommand::Push(new)))) if new.listen.is_wanted())
}
