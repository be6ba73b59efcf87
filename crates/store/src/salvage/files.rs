//! Reads as much as possible of a data directory.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use windlass_engine::{Limits, QueueImage};

use super::pages::Pages;
use super::{Salvage, records_of};
use crate::body_file::Overflow;
use crate::damage::OpenError;
use crate::directory::{self, LOG, Read, STORE, StoreConfig};
use crate::files::{Lock, Look};
use crate::load::{Loaded, load};
use crate::log::entry::LogId;
use crate::log::scan::scan_loosely;
use crate::recover::{Report, repaired};
use crate::store::{Error, Scan, UNVERIFIED};

/// Reads a store as a start of the daemon would, without modifying it.
///
/// # Errors
///
/// The reason why the daemon would not start.
pub fn verify(config: &StoreConfig, limits: Limits) -> Result<Report, OpenError> {
    let lock = Lock::look(&config.path)?;
    if !is_begun(config, &lock) {
        return Ok(Report::default());
    }
    let Read { found, scanned, .. } = directory::read(config, &config.path.join(STORE))?;
    let mut report = found.replay.build(limits, 0, scanned.last.0)?.report;
    (report.table_seq, report.torn, report.harmless) =
        (found.point.seq, scanned.torn, scanned.harmless);
    Ok(report)
}

/// The queues of a store, as a start of the daemon would find them; empty if no store exists yet.
///
/// # Errors
///
/// The reason why the daemon would not start.
pub fn queues(config: &StoreConfig) -> Result<Vec<QueueImage>, OpenError> {
    let lock = Lock::look(&config.path)?;
    if !is_begun(config, &lock) {
        return Ok(Vec::new());
    }
    Ok(directory::read(config, &config.path.join(STORE))?
        .found
        .replay
        .into_queues())
}

/// Returns true if a store exists, or existed. Otherwise a start creates a new store, whatever remains of a
/// previous attempt after a power cut, because nothing was acknowledged.
fn is_begun(config: &StoreConfig, lock: &Look) -> bool {
    lock.had_store || config.path.join(STORE).exists()
}

/// Reads a store as a start of the daemon would.
fn read_strictly(config: &StoreConfig, store: &Path) -> Result<(), OpenError> {
    let Read { found, scanned, .. } = directory::read(config, store)?;
    found.replay.build(Limits::default(), 0, scanned.last.0)?;
    Ok(())
}

/// Reads as much as possible of a data directory, without modifying it.
///
/// # Errors
///
/// A daemon has the directory open, or it contains no store.
pub fn salvage(config: &StoreConfig) -> Result<Salvage, Error> {
    let lock = Lock::look(&config.path)?;
    Ok(if is_begun(config, &lock) {
        Salvage::of(config)
    } else {
        Salvage::default()
    })
}

/// Creates a store from the readable part of this one, which is renamed. Returns the salvaged data, and the
/// path of the old store.
///
/// # Errors
///
/// A daemon has the directory open, or the new store cannot be created.
pub fn accept_loss(
    config: &StoreConfig,
    limits: Limits,
    seed: u64,
) -> Result<(Salvage, PathBuf), OpenError> {
    let mut lock = Lock::take(&config.path)?;
    let mut found = Salvage::of(config);
    let (mut engine, bodies) = repaired(&mut found, limits, seed)?;
    let aside = directory::replace(config, (&mut engine, bodies.as_ref()), seed)?;
    lock.has_store()?;
    Ok((found, aside))
}

/// The place for bodies that do not fit into memory.
fn overflow_of(config: &StoreConfig) -> Option<&Overflow> {
    config.checkpoints.overflow.as_ref()
}

/// The position of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reached {
    /// The table contains all commits up to this one.
    Whole(u64),
    /// The table is damaged. The readable pages are of this commit of this log, or of later ones.
    AtLeast { seq: u64, log: u64 },
    /// Unknown.
    Unknown,
}

impl Salvage {
    fn of(config: &StoreConfig) -> Self {
        let store = config.path.join(STORE);
        let mut found = Self::new(overflow_of(config));
        let refusal = read_strictly(config, &store).err();
        let (table, log) = (
            found.take_table(config, &store, refusal.is_none()),
            store.join(LOG),
        );
        found.take_log(&log, table);
        found.settle();
        // Reported even if everything could be read, because the daemon does not start.
        found.unreadable.extend(refusal.map(|why| why.to_string()));
        found
    }

    /// Reads the table. Returns the position. If the store is damaged, a complete table may be an outdated
    /// one, exposed by damage to later writes. In that case only the readable pages are used.
    fn take_table(&mut self, config: &StoreConfig, store: &Path, is_in_order: bool) -> Reached {
        let table = match config.tables.open(store) {
            Ok(Some(table)) => table,
            Ok(None) => return self.cannot_read(store.join("table").display(), "it is missing"),
            Err(why) => return self.cannot_read(store.display(), why),
        };
        let place = table.place();
        let scan = match table.scan() {
            Ok(scan) => scan,
            Err(why) => return self.cannot_read(place, why),
        };
        let mut damage = None;
        // If a start can read the table, use the same candidate as the start.
        for candidate in is_in_order.then_some(UNVERIFIED).into_iter().chain(0..) {
            let mut found = Self::new(overflow_of(config));
            found.jobs.read_from(scan.file());
            let loaded = load(&*scan, candidate, &mut |record, at| {
                found.take_at(record, at)
            });
            match loaded {
                Ok(Loaded::Whole(point)) => {
                    let later = if is_in_order {
                        None
                    } else {
                        self.pages(config, &*scan, &place)
                    };
                    let last = later
                        .as_ref()
                        .and_then(|pages| pages.point)
                        .filter(|last| last.seq > point.seq);
                    if let Some((last, later)) = last.zip(later) {
                        self.take_all(later);
                        self.cannot_read(place, "its last contents are damaged");
                        return Reached::AtLeast {
                            seq: last.seq,
                            log: last.log,
                        };
                    }
                    *self = found;
                    return Reached::Whole(point.seq);
                }
                Ok(Loaded::Damaged(_) | Loaded::None) if candidate == UNVERIFIED => {}
                Ok(Loaded::Damaged(what)) => drop(damage.get_or_insert(what)),
                Ok(Loaded::None) => break,
                Err(why) => drop(damage.replace(why.to_string())),
            }
        }
        let pages = self.pages(config, &*scan, &place);
        let point = pages.as_ref().and_then(|pages| pages.point);
        pages.into_iter().for_each(|pages| self.take_all(pages));
        self.cannot_read(place, damage.unwrap_or_default());
        point.map_or(Reached::Unknown, |point| Reached::AtLeast {
            seq: point.seq,
            log: point.log,
        })
    }

    fn cannot_read(&mut self, place: impl Display, why: impl Display) -> Reached {
        self.unreadable.push(format!("{place}: {why}"));
        Reached::Unknown
    }

    /// The readable pages of a table.
    fn pages(&mut self, config: &StoreConfig, scan: &dyn Scan, place: &str) -> Option<Pages> {
        Pages::of(scan, overflow_of(config))
            .map_err(|why| self.cannot_read(place, why))
            .ok()
    }

    /// Adds the readable part of the log after the table. If the table is damaged, commits before the point
    /// are applied again from the start of the unbroken range that reaches it, because the last of them on
    /// each subject is what the table should contain. Before a gap this would not hold.
    fn take_log(&mut self, folder: &Path, table: Reached) {
        let (after, from) = match table {
            Reached::Whole(seq) => (seq, seq + 1),
            Reached::AtLeast { seq, log } => match scan_loosely(folder, &mut |_, _| {}) {
                Ok(loose) if loose.id == Some(LogId(log)) => (seq, loose.unbroken_to(seq)),
                Ok(_) | Err(_) => (0, 0),
            },
            Reached::Unknown => (0, 0),
        };
        let (mut taken, mut last) = (0, after);
        let scanned = scan_loosely(folder, &mut |entry, file| {
            if entry.seq >= from {
                last = last.max(entry.seq);
                taken += u64::from(entry.seq > after);
                self.jobs.read_from(Some(file.to_owned()));
                let begin = entry.place.0 & u64::from(u32::MAX);
                records_of(entry.records)
                    .for_each(|(end, record)| self.take_bytes(record, Some(begin + end as u64)));
            }
        });
        let Ok(loose) = scanned.map_err(|why| self.cannot_read(folder.display(), why)) else {
            return;
        };
        (self.commits, self.commit) = (taken, last);
        if loose.mark.is_none() {
            self.unreadable.push(format!(
                "{}: its mark is missing, damaged or of another store",
                folder.display()
            ));
        }
        for (path, why) in loose.unreadable {
            self.unreadable.push(format!("{}: {why}", path.display()));
        }
        let mut missing: BTreeSet<(u64, u64)> = loose
            .missing
            .into_iter()
            .filter(|(_, last)| *last > after)
            .collect();
        if let Some(first) = loose.first.filter(|first| *first > after + 1) {
            missing.insert((after + 1, first - 1));
        }
        for (first, last) in missing {
            let first = first.max(after + 1);
            self.commits_missing += last - first + 1;
            self.unreadable
                .push(format!("commits {first} to {last} of the log are missing"));
        }
    }
}

#[cfg(test)]
mod tests;
