//! The layout of Faktory's data in Redis.
//!
//! ```text
//! queues                            set     the names of queues
//! paused                            set     the names of paused queues
//! NAME                              list    a queue's jobs, up to Faktory 1.9.4; new ones come in at the left
//! q:NAME                            list    the same, later
//! scheduled, retries, dead          zset    jobs, by when they are due or forgotten, in seconds since 1970
//! working                           zset    reservations (a job with its worker and its times), by when they end
//! v                                 string  the version of this layout
//! processed, failures, …:YYYY-MM-DD string  counters
//! ```
//!
//! An updated Faktory may have left jobs under the old name of a queue. A flushed Faktory has forgotten the names of
//! queues that have jobs. The import finds both by looking at every key.

use std::collections::{BTreeMap, BTreeSet};

use windlass_config::Failure;
use windlass_engine::Timestamp;
use windlass_faktory::session::Standing;
use windlass_faktory::wire::Unit;

use super::redis::{Page, Redis};

const PREFIX: &[u8] = b"q:";

/// How many foreign keys are named.
const EXAMPLES: usize = 5;

/// A key that holds jobs.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) key: Vec<u8>,
    pub(super) holds: Holds,
}

/// The state of all jobs of a key.
#[derive(Clone, Debug)]
pub(super) enum Holds {
    /// They are ready in this queue.
    Queue(Vec<u8>),
    /// What the time of a job in this sorted set means.
    Sorted(Sorted),
}

/// One job of a key.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) source: &'a Source,
    /// Its position in its key, from 1; a queue's next job comes first.
    pub(super) number: u64,
    pub(super) text: &'a [u8],
    /// Seconds since 1970, in a sorted set.
    pub(super) score: f64,
}

/// The contents of the database.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// In the order of the import.
    pub(super) sources: Vec<Source>,
    /// Queues, and whether each is paused.
    pub(super) queues: BTreeMap<Vec<u8>, bool>,
    /// Faktory's keys with an unexpected type, with their type.
    pub(super) odd: BTreeMap<Vec<u8>, String>,
    /// Keys of other programs: the first few, and how many more there are.
    pub(super) others: BTreeSet<Vec<u8>>,
    pub(super) more_others: u64,
    /// Whether there are counters; they are not imported.
    pub(super) counters: bool,
}

/// The meaning of the times in a sorted set of jobs.
type Sorted = fn(Timestamp) -> Standing;

/// The type of a key of Faktory's own, and the meaning of its times if it holds jobs.
fn known(key: &[u8]) -> Option<(&'static str, Option<Sorted>)> {
    match key {
        b"queues" | b"paused" => Some(("set", None)),
        b"scheduled" => Some(("zset", Some(Standing::Scheduled))),
        b"retries" => Some(("zset", Some(Standing::Retrying))),
        b"dead" => Some(("zset", Some(Standing::Dead))),
        b"working" => Some(("zset", Some(Standing::Reserved))),
        b"v" => Some(("string", None)),
        _ => is_counter(key).then_some(("string", None)),
    }
}

fn is_counter(key: &[u8]) -> bool {
    let is = |name: &[u8]| {
        key.strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b":"))
    };
    is(b"processed") || is(b"failures")
}

impl Layout {
    /// Scans all keys.
    pub(super) fn explore(redis: &mut Redis) -> Result<Self, Failure> {
        let mut layout = Self::default();
        let mut lists = BTreeSet::new();
        let mut sets = BTreeMap::new();
        redis.each_key(&mut |key, kind| {
            match known(&key) {
                // The key no longer exists.
                _ if kind == "none" => {}
                Some((expected, _)) if expected != kind => {
                    layout
                        .odd
                        .insert(key, format!("is a {kind}, but a {expected} expected"));
                }
                Some((_, Some(standing))) => drop(sets.insert(key, Holds::Sorted(standing))),
                Some((_, None)) => layout.counters |= is_counter(&key),
                None if kind == "list" => drop(lists.insert(key)),
                None => layout.is_other(key),
            }
        })?;
        layout.name_queues(redis)?;
        for key in lists {
            match layout.queue_of(redis, &key)? {
                Some(queue) => {
                    layout.queues.entry(queue.clone()).or_default();
                    layout.sources.push(Source {
                        key,
                        holds: Holds::Queue(queue),
                    });
                }
                None => layout.is_other(key),
            }
        }
        // A queue's old jobs come before its new ones; the old name is the shorter one.
        layout
            .sources
            .sort_by_cached_key(|source| match &source.holds {
                Holds::Queue(name) => (name.clone(), source.key.len()),
                Holds::Sorted(_) => Default::default(),
            });
        for key in [&b"scheduled"[..], b"retries", b"dead", b"working"] {
            layout.sources.extend(sets.remove(key).map(|holds| Source {
                key: key.to_vec(),
                holds,
            }));
        }
        Ok(layout)
    }

    fn is_other(&mut self, key: Vec<u8>) {
        if self.others.len() < EXAMPLES {
            self.others.insert(key);
        } else if !self.others.contains(&key) {
            self.more_others += 1;
        }
    }

    fn name_queues(&mut self, redis: &mut Redis) -> Result<(), Failure> {
        for (key, paused) in [(&b"queues"[..], false), (b"paused", true)] {
            if !self.odd.contains_key(key) {
                redis.each_member(key, &mut |name| {
                    *self.queues.entry(name).or_default() |= paused;
                })?;
            }
        }
        Ok(())
    }

    /// The queue whose jobs this list holds, if the list belongs to a queue.
    fn queue_of(&self, redis: &mut Redis, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        if self.queues.contains_key(key) {
            return Ok(Some(key.to_vec()));
        }
        let name = key.strip_prefix(PREFIX).unwrap_or(key);
        if name.len() < key.len() && self.queues.contains_key(name) {
            return Ok(Some(name.to_vec()));
        }
        // The queue is not in the set of names, but its jobs name it.
        let first = redis.list_page(key, 0, &mut Page::new())?;
        let text = first
            .first()
            .and_then(|entry| std::str::from_utf8(entry).ok());
        let job = text.and_then(|text| Unit::parse(text).ok());
        Ok(job
            .filter(|job| job.queue.as_bytes() == name)
            .map(|_| name.to_vec()))
    }

    /// Visits every job, page by page, always in the same order.
    pub(super) fn each(
        &self,
        redis: &mut Redis,
        each: &mut dyn FnMut(Entry<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.sift(redis, &mut |entry| each(entry).map(|()| true))
            .map(drop)
    }

    /// Removes every job for which `done` returns true; `done` gets the job's position among all jobs. Returns the
    /// number of removed jobs.
    pub(super) fn remove(
        &self,
        redis: &mut Redis,
        done: &dyn Fn(u64) -> bool,
    ) -> Result<u64, Failure> {
        let mut places = 0..;
        self.sift(redis, &mut |_| {
            Ok(places.next().is_none_or(|place| !done(place)))
        })
    }

    /// Visits every job, and removes those for which `keeps` returns false. Returns their number.
    fn sift(
        &self,
        redis: &mut Redis,
        keeps: &mut dyn FnMut(Entry<'_>) -> Result<bool, Failure>,
    ) -> Result<u64, Failure> {
        let mut removed = 0;
        for source in &self.sources {
            let (mut page, mut number, mut kept) = (Page::new(), 0, 0);
            loop {
                let entries = source.page(redis, kept, &mut page)?;
                if entries.is_empty() {
                    break;
                }
                let mut gone = Vec::new();
                for (text, score) in entries {
                    number += 1;
                    match keeps(Entry {
                        source,
                        number,
                        text: &text,
                        score,
                    })? {
                        true => kept += 1,
                        false => gone.push(text),
                    }
                }
                removed += match source.holds {
                    Holds::Queue(_) => redis.remove_from_list(&source.key, &gone)?,
                    Holds::Sorted(_) => redis.remove_from_set(&source.key, &gone)?,
                };
            }
        }
        Ok(removed)
    }
}

impl Source {
    fn page(
        &self,
        redis: &mut Redis,
        skip: usize,
        page: &mut Page,
    ) -> Result<Vec<(Vec<u8>, f64)>, Failure> {
        match self.holds {
            Holds::Queue(_) => {
                let entries = redis.list_page(&self.key, skip, page)?;
                Ok(entries.into_iter().map(|text| (text, 0.0)).collect())
            }
            Holds::Sorted(_) => redis.set_page(&self.key, skip, page),
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = self.key.escape_ascii();
        match self.holds {
            Holds::Queue(_) => write!(f, "queue \"{key}\""),
            Holds::Sorted(_) => write!(f, "{key}"),
        }
    }
}
