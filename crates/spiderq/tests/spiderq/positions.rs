//! Compares where entries go with a slow, literal version of the algorithm: more than 100,000 random requests over many
//! lives of a daemon. The daemon is stopped in order or killed again and again, and continues from its journal.
//!
//! Spec: `spiderq-protocol`, "Lend" and "Repay".

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client;
use bytes::BytesMut;
use windlass_engine::{
    ClientCommand, ClientId, ClientInfo, Context, Engine, Limits, Tag, Timestamp,
};
use windlass_session::{Item, Outbox, Session};
use windlass_spiderq::config::Spiderq;
use windlass_spiderq::session::{Settings, SpiderqSession, SpiderqSpeaker};
use windlass_spiderq::wire::{Patience, Reply, Request, Status};
use windlass_store::{Journal, Log as _, StoreLimits, open_parts};
use windlass_testkit::rng::Rng;
use windlass_testkit::store::{MemoryLog, MemoryTable};
use windlass_zmtp::ConnectionRegistry;

const REQUESTS: u32 = 120_000;
const KEYS: u64 = 60;

/// An entry, queued or lent. `came` keeps equal entries first in, first out.
#[derive(Clone, Debug)]
struct Entry {
    key: u64,
    priority: u64,
    boost: u32,
    came: u64,
}

#[derive(Debug)]
struct Lease {
    entry: Entry,
    lend_key: u64,
    until: u64,
    /// Of two leases that end together, the entry added first goes first.
    added: u64,
}

/// The algorithm as the specification states it. `values` holds every key, with the time it was added.
#[derive(Debug)]
struct Model {
    serial: u64,
    came: u64,
    queue: Vec<Entry>,
    lent: Vec<Lease>,
    values: BTreeMap<u64, (u64, u64)>,
}

impl Model {
    fn enter(&mut self, key: u64, priority: u64, boost: u32) {
        self.came += 1;
        self.queue.push(Entry {
            key,
            priority,
            boost,
            came: self.came,
        });
    }

    fn add(&mut self, key: u64, value: u64) -> Reply<'static> {
        if self.values.contains_key(&key) {
            return Reply::Kept;
        }
        self.serial += 1;
        self.enter(key, self.serial, 0);
        self.values.insert(key, (value, self.came));
        Reply::Added
    }

    fn first(&self) -> Option<usize> {
        (0..self.queue.len()).min_by_key(|at| {
            self.queue
                .get(*at)
                .map(|entry| (entry.priority, entry.came))
        })
    }

    /// The key of the next entry to lend.
    fn lend(&mut self) -> Option<u64> {
        Some(self.queue.get(self.first()?)?.key)
    }

    fn lent(&mut self, lend_key: u64, until: u64) {
        let entry = self.queue.remove(self.first().unwrap());
        let added = self.values.get(&entry.key).unwrap().1;
        self.lent.push(Lease {
            entry,
            lend_key,
            until,
            added,
        });
    }

    fn repay(&mut self, lend_key: u64, key: u64, value: u64, status: Status) -> Reply<'static> {
        let held = |lease: &Lease| lease.entry.key == key && lease.lend_key == lend_key;
        let Some(at) = self.lent.iter().position(held) else {
            return Reply::NotFound;
        };
        let Entry { boost, .. } = self.lent.remove(at).entry;
        self.values.get_mut(&key).unwrap().0 = value;
        let min = self
            .first()
            .and_then(|at| self.queue.get(at))
            .map_or(0, |head| head.priority);
        let region = self.serial + 1 - min;
        let boost = match status {
            Status::Penalty => boost.saturating_sub(1),
            Status::Reward if region >> (boost + 1) != 0 => boost + 1,
            Status::Reward | Status::Front => boost,
            Status::Drop => return Reply::Repaid,
        };
        self.serial += 1;
        let priority = if status == Status::Front {
            0
        } else {
            self.serial - (region - (region >> boost))
        };
        self.enter(key, priority, boost);
        Reply::Repaid
    }

    fn remove(&mut self, key: u64) -> Reply<'static> {
        self.queue.retain(|entry| entry.key != key);
        self.lent.retain(|lease| lease.entry.key != key);
        if self.values.remove(&key).is_some() {
            Reply::Removed
        } else {
            Reply::NotRemoved
        }
    }

    fn pass_time(&mut self, now: u64) {
        while let Some(at) =
            (0..self.lent.len()).min_by_key(|at| self.lent.get(*at).map(|l| (l.until, l.added)))
            && self.lent.get(at).is_some_and(|lease| lease.until <= now)
        {
            let entry = self.lent.remove(at).entry;
            self.serial += 1;
            self.enter(entry.key, 0, entry.boost);
        }
    }
}

/// An engine, its journal and one bare connection.
struct Daemon {
    engine: Engine,
    journal: Journal,
    log: MemoryLog,
    table: MemoryTable,
    session: SpiderqSession,
    settings: Arc<Settings>,
    now: u64,
}

const CLIENT: ClientId = ClientId(1);

fn session(settings: &Arc<Settings>) -> SpiderqSession {
    SpiderqSpeaker::session(
        Arc::clone(settings),
        ClientInfo::default(),
        Arc::<ConnectionRegistry>::default().enter(Arc::new(|_| ())),
    )
}

impl Daemon {
    fn new() -> Self {
        let settings = Arc::new(Settings::new(Spiderq {
            queue: "tasks".to_owned(),
            ..Spiderq::default()
        }));
        let (engine, journal) = (Engine::new(Limits::default(), 1), Journal::new());
        let session = session(&settings);
        let (log, table) = (MemoryLog::new(), MemoryTable::new());
        let mut daemon = Self {
            engine,
            journal,
            log,
            table,
            session,
            settings,
            now: 1_000_000,
        };
        daemon.greet();
        daemon
    }

    fn greet(&mut self) {
        let mut out = Outbox::default();
        self.session.on_open(Timestamp(self.now), &mut out);
        assert!(self.visit(&mut out).is_empty());
    }

    /// The reply to a request.
    fn ask(&mut self, request: Request<'_>) -> BytesMut {
        let (mut input, mut out) = (BytesMut::new(), Outbox::default());
        client::encode(&request, &mut input);
        self.session
            .on_bytes(Timestamp(self.now), &mut input, &mut out);
        self.visit(&mut out)
    }

    fn visit(&mut self, out: &mut Outbox) -> BytesMut {
        let (mut context, mut said) =
            (Context::new(Timestamp(self.now), self.now), BytesMut::new());
        for item in out.drain() {
            match item {
                Item::Command(tag, command) => {
                    self.engine.apply(CLIENT, tag, command, &mut context)
                }
                Item::Bytes(bytes) => said.extend_from_slice(&bytes),
                Item::Forbidden(_) | Item::Publish(..) => panic!("unexpected {item:?}"),
            }
        }
        self.journal.append(&self.engine, &context.changes);
        for (_, event) in context.events {
            self.session.on_event(Timestamp(self.now), event, out);
        }
        out.take_bytes()
            .into_iter()
            .for_each(|bytes| said.extend_from_slice(&bytes));
        said
    }

    fn commit(&mut self) {
        while let Some(commit) = self.journal.cut(&self.engine) {
            self.log.append(&commit).unwrap();
            self.journal.committed(commit.seq());
        }
    }

    fn restart(&mut self, clean: bool) {
        if clean {
            let mut context = Context::new(Timestamp(self.now), 0);
            self.engine
                .apply(CLIENT, Tag::NONE, ClientCommand::Close, &mut context);
            self.journal.append(&self.engine, &context.changes);
            self.engine.finish_meta();
            self.journal.stop_in_order();
        }
        self.commit();
        let (table, checkpoints) = (Box::new(self.table.clone()), StoreLimits::default());
        let (mut checkpointer, found) =
            open_parts(&self.log, table, &checkpoints, Limits::default(), 2).unwrap();
        (self.engine, self.journal) = (found.engine, found.journal);
        checkpointer.run(true).unwrap();
        self.engine.check();
        self.session = session(&self.settings);
        self.greet();
    }
}

#[test]
fn entries_go_where_the_algorithm_puts_them_through_stops_and_crashes() {
    let mut rng = Rng::new(5);
    let mut daemon = Daemon::new();
    let mut model = Model {
        serial: 1,
        came: 0,
        queue: Vec::new(),
        lent: Vec::new(),
        values: BTreeMap::new(),
    };
    // Leases ever granted, as many as the test keeps: a stale lend key must never match.
    let mut leases: Vec<(u64, u64)> = Vec::new();
    let mut restarts = 0;
    for step in 0..REQUESTS {
        daemon.now += if rng.chance(20) { rng.below(400) } else { 0 };
        model.pass_time(daemon.now);
        if rng.below(500) == 0 {
            restarts += 1;
            daemon.restart(rng.chance(50));
        }
        let (key, value) = (rng.below(KEYS), rng.below(1 << 40));
        let (key_text, value_text) = (key.to_string(), value.to_string());
        let (key_bytes, value_bytes) = (key_text.as_bytes(), value_text.as_bytes());
        let at = format!("step {step} after {restarts} restarts");
        let (said, expected) = match rng.below(100) {
            0..25 => {
                let said = daemon.ask(Request::Add {
                    key: key_bytes,
                    value: value_bytes,
                    mode: None,
                });
                (said, model.add(key, value))
            }
            25..55 => {
                let timeout_ms = 1 + rng.below(2_000);
                let said = daemon.ask(Request::Lend {
                    timeout_ms,
                    patience: Patience::Poll,
                });
                match client::decode(&said) {
                    Ok((
                        Reply::Lent {
                            lend_key,
                            key,
                            value,
                        },
                        _,
                    )) => {
                        let key: u64 = std::str::from_utf8(key).unwrap().parse().unwrap();
                        assert_eq!(model.lend(), Some(key), "{at}");
                        assert_eq!(
                            model.values.get(&key).unwrap().0.to_string().as_bytes(),
                            value,
                            "{at}"
                        );
                        assert!(
                            !leases.contains(&(lend_key, key)),
                            "{at}: {lend_key} of {key} again"
                        );
                        model.lent(lend_key, daemon.now + timeout_ms);
                        leases.push((lend_key, key));
                    }
                    reply => assert_eq!(
                        (reply, model.lend()),
                        (Ok((Reply::QueueEmpty, 1)), None),
                        "{at}"
                    ),
                }
                continue;
            }
            55..92 => {
                let newest = usize::try_from(rng.below(40)).unwrap();
                let Some((lend_key, key)) = leases.iter().rev().nth(newest).copied() else {
                    continue;
                };
                let drop = if rng.chance(10) {
                    Status::Drop
                } else {
                    Status::Penalty
                };
                let status = rng.one_of([
                    drop,
                    Status::Penalty,
                    Status::Reward,
                    Status::Reward,
                    Status::Front,
                ]);
                let key_text = key.to_string();
                let said = daemon.ask(Request::Repay {
                    lend_key,
                    key: key_text.as_bytes(),
                    value: value_bytes,
                    status,
                });
                (said, model.repay(lend_key, key, value, status))
            }
            92..97 => (
                daemon.ask(Request::Remove { key: key_bytes }),
                model.remove(key),
            ),
            _ => {
                let count = u32::try_from(model.queue.len()).unwrap();
                (daemon.ask(Request::Count), Reply::Counted(count))
            }
        };
        assert_eq!(client::decode(&said), Ok((expected, said.len())), "{at}");
        // The oldest leases are dropped. Only a few leases are open at a time.
        if leases.len() > 4_000 {
            drop(leases.drain(..2_000));
        }
    }
    assert!(restarts > 100, "{restarts} restarts");
}
