//! Laws that hold independently of the oracle: they look only at the commands and the events.
//!
//! - A lease of a job is granted with a greater token than every one before it.
//! - A listener receives each note, and the end, once for each of its subscriptions.
//! - A closed connection receives no events.
//! - The engine's time never goes back while the machine runs.
//! - No lease ends early for its holder: physical time counts, less the pauses of the daemon.
//! - A push wakes one sleeper at most, and hands out one job at most.
//! - A client gets a job of another protocol only from a bridged queue.
//! - A client gets no job that its protocol cannot express, until that may have changed.

use std::collections::{BTreeMap, BTreeSet};

use windlass_engine::{
    Bridge, BulkCommand, ClientCommand, ClientId, Command, Engine, Event, Holder, JobCommand, JobId, JobRef,
    LeaseCommand, Notice, Protocol, Pushed, QueueCommand, Reading, Reply, Timestamp, Token,
};

use super::oracle::{Oracle, id_of};
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
    leases: BTreeMap<(JobId, Token), Promised>,
    now: Timestamp,
}

/// How long a client was promised a lease.
#[derive(Debug)]
struct Promised {
    /// By the engine's clock.
    until: Timestamp,
    /// By physical time, in milliseconds.
    until_ms: u64,
}

impl Laws {
    /// Checks events after a command, or after time has passed.
    pub(crate) fn watch(&mut self, asked: Option<(ClientId, &Command)>, said: &[(ClientId, Event)], engine: &Engine) {
        let asker = asked.map(|(client, _)| client);
        let strangers = said.iter().any(|(told, _)| Some(*told) != asker && !self.open.contains(told));
        assert!(!strangers, "an event for a closed connection: {said:?}");
        self.watch_tokens(said);
        self.watch_words(asked, said, engine);
        self.watch_listeners(asked, said);
        let Some((client, command)) = asked else { return };
        match command {
            Command::Client(ClientCommand::Open(info)) if !self.open.contains(&client) => {
                self.open.push(client);
                self.speak.extend(info.protocol.map(|protocol| (client, protocol)));
            }
            Command::Client(ClientCommand::Close) => {
                self.open.retain(|open| *open != client);
                self.speak.remove(&client);
                self.listening.retain(|(listener, _), _| *listener != client);
            }
            _ => {}
        }
    }

    /// Checks the events of a push while nothing was due.
    pub(crate) fn watch_push(said: &[(ClientId, Event)]) {
        let count = |is: fn(&Event) -> bool| said.iter().filter(|(_, event)| is(event)).count();
        assert!(
            count(|event| matches!(event, Event::Notice(Notice::WorkAvailable))) <= 1,
            "one push, one woken: {said:?}"
        );
        assert!(count(|event| event.handed_out().is_some()) <= 1, "one push, one taken: {said:?}");
    }

    /// After a restart all connections are gone, and the deliveries that ended with the daemon may be forgotten.
    pub(crate) fn survive(&mut self) {
        self.tokens.values_mut().for_each(|token| token.0 = token.0.saturating_sub(1));
        (self.listening, self.open) = (BTreeMap::new(), Vec::new());
        (self.speak, self.bridge, self.wordless) = (BTreeMap::new(), Bridge::default(), BTreeSet::new());
    }

    fn watch_words(&mut self, asked: Option<(ClientId, &Command)>, said: &[(ClientId, Event)], engine: &Engine) {
        let refused = said.iter().any(|(_, event)| matches!(event, Event::Reply(_, Reply::Refused(_))));
        match asked {
            Some((_, Command::Queue(QueueCommand::Bridge(bridge)))) => {
                self.bridge = (**bridge).clone();
                self.wordless.clear();
            }
            // A new body, another codec or another try after the end may have changed it. A mark from when the queue was shared
            // is tried once more when the queue is isolated again.
            Some((
                _,
                Command::Job(JobCommand::Replace { .. })
                | Command::Queue(QueueCommand::SetRules { .. })
                | Command::Bulk(BulkCommand::Mutate { .. }),
            )) => {
                self.wordless.clear();
            }
            _ => {}
        }
        for (client, event) in said {
            let (Some(job), Some(own)) = (event.handed_out(), self.speak.get(client)) else { continue };
            // Entries of `cycle` queues are shared by all protocols.
            let is_work = engine.job(job.id).is_some_and(|job| job.cycle().is_none());
            if is_work && job.protocol != *own {
                assert!(self.bridge.includes(&job.queue), "{own:?} was handed a job of an isolated queue: {job:?}");
            }
            assert!(!self.wordless.contains(&(job.id, *own)), "{own:?} has no words for {job:?}");
        }
        // A job that fell due earlier was still handed out earlier.
        if let Some((client, Command::Lease(LeaseCommand::Unconvertible { job: JobRef::Id(job), .. }))) = asked
            && !refused
        {
            let holder = engine.job(*job).and_then(|job| job.lease()).map(|lease| &lease.holder);
            assert_ne!(holder, Some(&Holder::Connection(client)), "{client:?} got {job:?} back");
            self.wordless.extend(self.speak.get(&client).map(|protocol| (*job, *protocol)));
        }
    }

    pub(crate) fn watch_clock(&mut self, reading: &Reading) {
        assert!(self.now <= reading.now, "the engine's time went back from {:?} to {:?}", self.now, reading.now);
        self.now = reading.now;
        if let Some(pause_ms) = reading.pause_ms {
            self.leases.values_mut().for_each(|promised| promised.until_ms += pause_ms);
        }
    }

    /// Records the leases from their holders' view.
    pub(crate) fn watch_leases(&mut self, oracle: &Oracle, machine: &Machine) {
        let leases = leases(oracle);
        self.leases.retain(|which, promised| leases.get(which) == Some(&promised.until));
        for (which, until) in leases {
            let left_ms = until.ms_since(self.now);
            let until_ms = machine.passed_ms().saturating_add(left_ms);
            self.leases.entry(which).or_insert(Promised { until, until_ms });
        }
    }

    /// Checks after time has passed and nothing else has happened: a holder that lost its lease has had its full time.
    pub(crate) fn judge_leases(&self, oracle: &Oracle, machine: &Machine) {
        let left = leases(oracle);
        for (which, promised) in self.leases.iter().filter(|(which, _)| !left.contains_key(which)) {
            let now_ms = machine.passed_ms();
            assert!(promised.until_ms <= now_ms, "{which:?} ended at {now_ms}, before the promised time: {promised:?}");
        }
    }

    /// The machine boots: from here on time is the wall clock's, except for time that the journal has not recorded.
    pub(crate) fn boot(&mut self) {
        self.now = Timestamp(0);
        self.leases.values_mut().for_each(|promised| promised.until_ms = promised.until_ms.saturating_sub(1_001));
    }

    /// The elapsed time is unknown.
    pub(crate) fn forget_leases(&mut self) {
        self.leases.clear();
    }

    fn watch_tokens(&mut self, said: &[(ClientId, Event)]) {
        for (_, event) in said {
            if let Some(job) = event.handed_out() {
                let before = self.tokens.insert(job.id, job.token);
                assert!(before < Some(job.token), "{:?} was leased with {before:?} before", job);
            }
        }
    }

    fn watch_listeners(&mut self, asked: Option<(ClientId, &Command)>, said: &[(ClientId, Event)]) {
        let mut told: BTreeMap<(ClientId, JobId), usize> = BTreeMap::new();
        let mut ended: BTreeMap<(ClientId, JobId), usize> = BTreeMap::new();
        for (listener, event) in said {
            match event {
                Event::Notice(Notice::Progress { job, .. }) => *told.entry((*listener, *job)).or_default() += 1,
                Event::Notice(Notice::Ended { job, .. }) => *ended.entry((*listener, *job)).or_default() += 1,
                // A client that attaches to a job that has just ended, and keeps its key, receives nothing more of it.
                Event::Reply(_, Reply::Pushed { job, how: Pushed::Attached, .. })
                    if ended.keys().any(|(_, over)| over == job) => {}
                Event::Reply(_, Reply::Pushed { job, how: Pushed::New | Pushed::Attached, .. }) if listens(asked) => {
                    *self.listening.entry((*listener, *job)).or_default() += 1;
                }
                _ => {}
            }
        }
        for (whom, times) in &told {
            assert_eq!(self.listening.get(whom), Some(times), "{whom:?} receives a note");
        }
        // A closing client may have received events that were due before.
        let leaving = asked
            .filter(|(_, command)| matches!(command, Command::Client(ClientCommand::Close)))
            .map(|(client, _)| client);
        for (_, job) in told.keys().chain(ended.keys()) {
            let stays = |whom: &&(ClientId, JobId)| whom.1 == *job && Some(whom.0) != leaving;
            let listeners = self.listening.keys().filter(stays).count();
            let heard = [&told, &ended].map(|map| map.keys().filter(stays).count());
            assert!(heard.contains(&listeners), "a listener of {job:?} was left out: {said:?}");
        }
        for (whom, times) in &ended {
            assert_eq!(self.listening.remove(whom).as_ref(), Some(times), "{whom:?} receives the end");
        }
    }
}

/// Time-bound leases and when they end: the others may end when a worker misses its heartbeat.
fn leases(oracle: &Oracle) -> BTreeMap<(JobId, Token), Timestamp> {
    let alone = |memo: &&super::oracle::JobMemo| memo.lease_worker.is_none() && memo.connection().is_none();
    let timed = oracle.jobs.iter().filter(alone).filter_map(|memo| Some((memo, memo.job.lease()?)));
    timed.map(|(memo, lease)| ((id_of(memo), lease.token), lease.until)).collect()
}

fn listens(asked: Option<(ClientId, &Command)>) -> bool {
    matches!(asked, Some((_, Command::Job(JobCommand::Push(new)))) if new.listen)
}
