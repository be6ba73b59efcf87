//! The data directory: opening it, and offline work on it (verify, salvage, compact, accept a
//! loss). Only this part of the daemon uses the store's functions for directories.

use std::fs::DirBuilder;
use std::io::{BufWriter, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::Access;
use windlass_config::{Failure, counted_all};
use windlass_store::{
    About, Checkpointer, Error as StoreError, Guard, Log, MemoryLog, MemoryTable, OpenError,
    Opened, Recovered, Remote, Report, Restore, Salvage, State, StoreConfig, StoreLimits,
};
use windlass_table_sled::SledTables;

use crate::config::Config;
use crate::history;
use crate::operator_port::OperatorPort;
use crate::progress::Progress;
use crate::protocols;
use crate::random::random_seed;
use crate::retry::{Retry, TRY_EVERY};
use windlass_hub::clock;

#[cfg(test)]
mod tests;

/// Memory for jobs while an unused store is read: as much as a daemon with 256 MiB has.
const TOOL_BYTES: u64 = 32 << 20;

/// Maximum number of unreadable places that are listed.
const NAMED_MAX: usize = 20;

/// The store's settings from the configuration.
fn store_config(config: &Config) -> StoreConfig {
    let limits = StoreLimits::default();
    let (log_bytes, table_floor_bytes) = (
        config.store.checkpoint.into(),
        config.store.compact_floor.into(),
    );
    let keep_bytes = limits.keep_bytes.min(log_bytes / 4);
    let overflow = Some(config.overflow());
    let checkpoints = StoreLimits {
        log_bytes,
        table_floor_bytes,
        keep_bytes,
        overflow,
        keep_from: history::keep_from(config),
        ..limits
    };
    StoreConfig {
        checkpoints,
        ..StoreConfig::new(&config.data_dir, tables(config))
    }
}

/// The settings for offline work on a store. It must not use more memory than the smallest daemon,
/// whatever the store contains, so bodies stay in files.
fn at_rest(config: &Config) -> StoreConfig {
    let mut store = store_config(config);
    store
        .checkpoints
        .overflow
        .iter_mut()
        .for_each(|overflow| overflow.memory = overflow.memory.min(TOOL_BYTES));
    // The log may contain unread rows for a history, even if these settings enable none.
    store.checkpoints.keep_from = Some(0);
    store
}

fn tables(config: &Config) -> SledTables {
    SledTables {
        cache_bytes: config.store.cache.into(),
        ..SledTables::default()
    }
}

/// The daemon's store.
pub(crate) struct Store {
    pub(crate) log: Box<dyn Log>,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) recovered: Recovered,
    /// Locks the directory, if there is one, against other processes.
    pub(crate) guard: Option<Guard>,
}

impl Store {
    /// A new store that is lost when the process exits.
    pub(crate) fn in_memory(config: &Config) -> Result<Self, Failure> {
        let (log, table) = (MemoryLog::new(), Box::new(MemoryTable::new()));
        let checkpoints = StoreLimits {
            overflow: None,
            keep_from: None,
            ..store_config(config).checkpoints
        };
        let limits = config.engine_limits();
        let opened = windlass_store::open_parts(&log, table, &checkpoints, limits, random_seed());
        let (checkpointer, recovered) =
            opened.map_err(|error| Failure::Runtime(error.to_string()))?;
        clock::start(&recovered.engine.meta().clock, None);
        Ok(Self {
            log: Box::new(log),
            checkpointer,
            recovered,
            guard: None,
        })
    }
}

impl From<Opened> for Store {
    fn from(
        Opened {
            log,
            checkpointer,
            recovered,
            guard,
        }: Opened,
    ) -> Self {
        Self {
            log,
            checkpointer,
            recovered,
            guard: Some(guard),
        }
    }
}

/// Creates the data directory of a daemon whose store is elsewhere, because the sockets for
/// commands are in it.
pub(crate) fn make_directory(data_dir: &Path) -> Result<(), Failure> {
    const OWNER_ONLY: u32 = 0o700;
    if data_dir.join("store").exists() {
        tracing::warn!(data_dir = %data_dir.display(), "the store in this directory is not used: the configuration names a database");
    }
    let made = DirBuilder::new()
        .recursive(true)
        .mode(OWNER_ONLY)
        .create(data_dir);
    made.map_err(|why| Failure::data(data_dir, why))
}

pub(crate) fn try_open(config: &Config) -> Result<Opened, OpenError> {
    open_with(config, &store_config(config))
}

fn open_with(config: &Config, store: &StoreConfig) -> Result<Opened, OpenError> {
    let started = Instant::now();
    let opened = if let Some(remote) = &config.remote {
        remote.open(&store.checkpoints, config.engine_limits(), random_seed())?
    } else {
        let _progress = Progress::of(&config.data_dir);
        windlass_store::open(store, config.engine_limits(), random_seed())?
    };
    let wall_ahead_ms = opened
        .guard
        .tenure()
        .and_then(|tenure| tenure.wall_ahead_ms());
    clock::start(&opened.recovered.engine.meta().clock, wall_ahead_ms);
    let (ms, report) = (started.elapsed().as_millis(), &opened.recovered.report);
    let (jobs, schedules) = (report.jobs, report.schedules);
    let state = match report {
        _ if report.last_seq == 0 => "new",
        report if report.clean => "stopped cleanly",
        _ => "not stopped cleanly",
    };
    match &config.remote {
        None => {
            tracing::info!(jobs, schedules, state, ms, data_dir = %config.data_dir.display(), "opened")
        }
        Some(remote) => tracing::info!(
            jobs,
            schedules,
            state,
            ms,
            database = remote.name(),
            "opened"
        ),
    }
    Ok(opened)
}

/// Opens the store. If another process uses it, waits for `server.in_use_timeout`.
///
/// # Errors
///
/// [`Failure::Data`]: another process uses the store, it is damaged, or access is denied.
pub fn open(config: &Config) -> Result<Opened, Failure> {
    if config.remote.is_some() {
        make_directory(&config.data_dir)?;
    }
    patiently(config, || {
        config.remote.iter().try_for_each(|remote| remote.admit())?;
        try_open(config)
    })
}

/// Opens the store for offline work, without creating other directories.
fn open_now(config: &Config) -> Result<Opened, Failure> {
    patiently(config, || open_with(config, &at_rest(config)))
}

/// Opens the store briefly to add jobs.
///
/// # Errors
///
/// As [`open`].
pub fn open_to_add(config: &Config) -> Result<Opened, Failure> {
    if config.remote.is_some() {
        make_directory(&config.data_dir)?;
    }
    open_now(config)
}

/// Memory for jobs while jobs are added, in bytes.
pub fn bytes_to_add(config: &Config) -> u64 {
    config.overflow().memory.min(TOOL_BYTES)
}

/// Locks the data directory to restore an export into it. Returns `None` if it contains a store or
/// the remains of one, and for a database: exports are imported there instead.
///
/// # Errors
///
/// [`Failure::Data`]: another process uses the directory, or access is denied.
pub fn restore(config: &Config) -> Result<Option<Restore>, Failure> {
    if config.remote.is_some() {
        return Ok(None);
    }
    patiently(config, || Restore::begin(&at_rest(config)))
}

/// Retries for `server.in_use_timeout` while another process uses the store.
fn patiently<T>(config: &Config, attempt: impl Fn() -> Result<T, OpenError>) -> Result<T, Failure> {
    let mut trying = Retry::new(config);
    loop {
        match attempt() {
            Err(OpenError::Store(error @ StoreError::InUse { .. })) if trying.goes_on(&error) => {
                std::thread::sleep(TRY_EVERY);
            }
            outcome => return outcome.map_err(|error| cannot_open(config, &error)),
        }
    }
}

/// A store that cannot be opened, with advice in the case of a directory.
pub(crate) fn cannot_open(config: &Config, error: &OpenError) -> Failure {
    if let Some(remote) = &config.remote {
        return Failure::data_at(remote.name(), error);
    }
    let dir = config.data_dir.display();
    let advice = match error {
        OpenError::Store(_) => String::new(),
        OpenError::Damaged(_) => format!(
            "; nothing was changed. Restore a copy of it; or see what there is with `windlass verify {dir}` and \
             `windlass salvage {dir}`, and start without the rest with `windlass serve --accept-loss`"
        ),
    };
    Failure::data(&config.data_dir, format!("{error}{advice}"))
}

/// Writes every readable job, schedule and batch to `out` as a line of JSON, and returns a summary.
/// The store is not modified.
///
/// # Errors
///
/// The store does not exist, a daemon uses it, or `out` cannot be written; [`Failure::Incomplete`]
/// with the summary if anything is missing.
pub fn salvage(config: &Config, out: &mut dyn Write) -> Result<String, Failure> {
    let mut found = read(config)?;
    let mut out = BufWriter::new(out);
    found
        .export(about(None), &mut out)
        .and_then(|_| out.flush())
        .map_err(|error| Failure::Runtime(format!("cannot write: {error}")))?;
    let words = in_words(&found);
    if found.is_whole() {
        Ok(words)
    } else {
        Err(Failure::Incomplete(words))
    }
}

/// Reads everything readable in a store that no daemon uses.
pub(crate) fn read(config: &Config) -> Result<Salvage, Failure> {
    let Some(remote) = &config.remote else {
        is_there(&config.data_dir)?;
        let _progress = Progress::of(&config.data_dir);
        let found = windlass_store::salvage(&at_rest(config));
        return found.map_err(|error| Failure::data(&config.data_dir, error));
    };
    remote
        .salvage(at_rest(config).checkpoints.overflow.as_ref())
        .map_err(|error| Failure::data_at(remote.name(), error))
}

/// An export by this daemon, at this moment, of one namespace or all.
pub(crate) fn about(namespace: Option<&str>) -> About<'_> {
    About {
        daemon: env!("CARGO_PKG_VERSION"),
        written_at: clock::wall(),
        namespace,
    }
}

fn in_words(found: &Salvage) -> String {
    let (jobs, schedules, batches) = (
        found.job_count,
        found.schedules.len() as u64,
        found.batches.len() as u64,
    );
    let things = counted_all([(jobs, "job"), (schedules, "schedule"), (batches, "batch")]);
    let (commits, expected) = (found.commits, found.commits + found.commits_missing);
    let named = found
        .unreadable
        .iter()
        .take(NAMED_MAX)
        .map(|what| format!("\nunreadable: {what}"));
    let more = found.unreadable.len().saturating_sub(NAMED_MAX);
    let rest = if more > 0 {
        format!("\nand {more} more")
    } else {
        String::new()
    };
    let unreadable: String = named.chain([rest]).collect();
    format!("{things}; {commits} of {expected} commits of the log{unreadable}")
}

/// Checks that the daemon would start from a store without losing anything. Returns a summary. The
/// store is not modified.
///
/// # Errors
///
/// [`Failure::Data`], with the reason why it would not.
pub fn verify(config: &Config) -> Result<String, Failure> {
    let verdict = match &config.remote {
        Some(remote) => remote.verify(
            at_rest(config).checkpoints.overflow.as_ref(),
            config.engine_limits(),
        ),
        None => {
            is_there(&config.data_dir)?;
            let _progress = Progress::of(&config.data_dir);
            windlass_store::verify(&at_rest(config), config.engine_limits())
        }
    };
    let report = verdict.map_err(|error| cannot_open(config, &error))?;
    let things = in_it(&report);
    let Report {
        table_seq,
        last_seq,
        torn,
        harmless,
        ..
    } = report;
    let harmless: String = harmless
        .iter()
        .map(|damage| format!("\ndamaged, but the table holds its records: {damage}"))
        .collect();
    let torn = match torn {
        true => {
            "; a torn entry behind the last commit was never acknowledged, unless the disk has reported errors"
        }
        false => "",
    };
    let place = match table_seq {
        0 => format!("the log has {}", counted_all([(last_seq, "commit")])),
        _ => format!("the table holds commits 1 to {table_seq}, the log goes on to {last_seq}"),
    };
    Ok(format!("ok: {things}; {place}{torn}{harmless}"))
}

/// The contents of a store.
fn in_it(report: &Report) -> String {
    let Report {
        jobs,
        queues,
        schedules,
        batches,
        ..
    } = *report;
    counted_all([
        (jobs, "job"),
        (queues, "queue"),
        (schedules, "schedule"),
        (batches, "batch"),
    ])
}

/// The location of the store, for messages.
pub(crate) fn place(config: &Config) -> String {
    config.remote.as_ref().map_or_else(
        || config.data_dir.display().to_string(),
        |remote| remote.name(),
    )
}

/// Fails if no daemon has used the database, so that nothing is created there.
fn is_kept(remote: &dyn Remote) -> Result<(), Failure> {
    match remote
        .look()
        .map_err(|error| Failure::data_at(remote.name(), error))?
    {
        State::New => Err(Failure::data_at(
            remote.name(),
            "there is no Windlass data in it",
        )),
        State::Kept | State::Held(_) => Ok(()),
    }
}

/// Rebuilds the table to its minimum size. Returns a summary.
///
/// # Errors
///
/// The directory cannot be opened, or the table cannot be built.
pub fn compact(config: &Config) -> Result<String, Failure> {
    match &config.remote {
        None => is_there(&config.data_dir)?,
        Some(remote) => is_kept(&**remote)?,
    }
    let failed = |error: &dyn std::fmt::Display| Failure::data_at(place(config), error);
    let Opened {
        mut log,
        mut checkpointer,
        recovered,
        guard,
    } = open_now(config)?;
    // The table is built from files alone, so free the memory.
    drop(recovered);
    let figures = checkpointer.figures();
    let bytes = || {
        figures
            .table_bytes
            .load(std::sync::atomic::Ordering::Relaxed)
    };
    let before = bytes();
    checkpointer.ask_for_rebuild();
    checkpointer.run(true).map_err(|error| failed(&error))?;
    log.close().map_err(|error| failed(&error))?;
    drop(guard);
    Ok(format!(
        "the table takes up {} bytes; before: {before}",
        bytes()
    ))
}

/// Moves the contents of a store to an empty place: from a directory to a database, or back. The
/// old store is kept, but daemons no longer start from it. Returns a summary.
///
/// # Errors
///
/// [`Failure::Data`]: a store cannot be opened, or the new place is not empty.
pub fn move_store(from: &Config, to: &Config) -> Result<String, Failure> {
    match &from.remote {
        None => is_there(&from.data_dir)?,
        Some(remote) => is_kept(&**remote)?,
    }
    let cannot_fill = |error: OpenError| Failure::data_at(place(to), error);
    let Opened {
        mut log,
        mut recovered,
        guard,
        ..
    } = open_now(from)?;
    let contents = (&mut recovered.engine, recovered.bodies.as_ref());
    match &to.remote {
        Some(remote) => remote.fill(contents).map_err(cannot_fill)?,
        None => windlass_store::fill(&at_rest(to), contents, random_seed()).map_err(cannot_fill)?,
    }
    let cannot_retire = |error: &dyn std::fmt::Display| {
        Failure::Runtime(format!(
            "the jobs are in {} now, but the old store cannot be marked, so start no daemon on {}: {error}",
            place(to),
            place(from)
        ))
    };
    log.close().map_err(|error| cannot_retire(&error))?;
    let old = match &from.remote {
        Some(remote) => {
            remote.retire().map_err(|error| cannot_retire(&error))?;
            "the old tables are kept: drop their schema when you no longer need them".to_owned()
        }
        None => {
            let aside = windlass_store::retire(&store_config(from))
                .map_err(|error| cannot_retire(&error))?;
            format!("the old store is kept in {}", aside.display())
        }
    };
    drop(guard);
    Ok(format!(
        "moved {} to {}; {old}",
        in_it(&recovered.report),
        place(to)
    ))
}

/// If the daemon would not start from the configured directory because data is lost, creates a new
/// store from the rest and sets the damaged one aside. Logs both. An intact directory is not
/// modified.
///
/// # Errors
///
/// [`Failure::Data`]: the directory cannot be read for another reason, or the new store cannot be
/// created.
pub fn accept_loss(config: &Config) -> Result<(), Failure> {
    if let Some(remote) = &config.remote {
        let what = "--accept-loss is for data directories: save the readable jobs with `windlass salvage`, and import them into \
                    another schema with `windlass import jsonl`";
        return Err(Failure::data_at(remote.name(), what));
    }
    let (store, limits) = (at_rest(config), config.engine_limits());
    let damage = match windlass_store::verify(&store, limits.clone()) {
        Err(OpenError::Damaged(damage)) if config.data_dir.is_dir() => damage,
        Ok(_) | Err(_) => return Ok(()),
    };
    tracing::error!(%damage, "the store is damaged; its loss is accepted because of --accept-loss");
    let (found, aside) = windlass_store::accept_loss(&store, limits, random_seed())
        .map_err(|error| Failure::data(&config.data_dir, error))?;
    tracing::warn!(aside = %aside.display(), "going on with {}", in_words(&found));
    Ok(())
}

/// The state that a daemon would find at startup: `new`, `kept`, or `a daemon runs on it`, with the daemon's
/// name where the store is in a database. Nothing is modified.
///
/// # Errors
///
/// The directory or the database cannot be used, or a queue in it has another kind than a listener
/// serves.
pub fn look(config: &Config) -> Result<String, Failure> {
    if let Some(remote) = &config.remote {
        let admitted = remote.admit().and_then(|()| remote.look());
        let state = admitted.map_err(|error| Failure::data_at(remote.name(), error))?;
        return Ok(match state {
            State::New => "new".to_owned(),
            State::Kept => "kept".to_owned(),
            State::Held(holder) => format!("a daemon runs on it: {holder}"),
        });
    }
    let directory = &config.data_dir;
    let refuse = |why: &dyn std::fmt::Display| Failure::data(directory, why);
    let mut nearest = std::path::absolute(directory).map_err(|error| refuse(&error))?;
    while !nearest.exists() && nearest.pop() {}
    if !nearest.is_dir() {
        return Err(refuse(&format_args!(
            "{} is not a directory",
            nearest.display()
        )));
    }
    if let Err(error) = rustix::fs::access(
        &nearest,
        Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK,
    ) {
        return Err(refuse(&format_args!("{}: {error}", nearest.display())));
    }
    let has_daemon = |port: &Arc<dyn OperatorPort>| {
        UnixStream::connect(directory.join(port.private_socket())).is_ok()
    };
    if config.ports.iter().any(has_daemon) {
        return Ok("a daemon runs on it".to_owned());
    }
    if std::fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none()) {
        return Ok("new".to_owned());
    }
    match windlass_store::queues(&at_rest(config)) {
        Ok(queues) => protocols::check_queues(&queues, config)?,
        Err(error @ OpenError::Damaged(_)) => return Err(cannot_open(config, &error)),
        // A daemon may be about to start, or to end.
        Err(OpenError::Store(_)) => {}
    }
    Ok("kept".to_owned())
}

/// Fails if no daemon has used the directory, so that nothing is created there, and another
/// program's files are not mistaken for damage.
fn is_there(data_dir: &Path) -> Result<(), Failure> {
    let refuse = |why: &dyn std::fmt::Display| Err(Failure::data(data_dir, why));
    let has = |folder: &Path, starts: &[&str]| {
        std::fs::read_dir(folder).map(|mut entries| {
            entries.any(|entry| {
                entry.is_ok_and(|it| {
                    starts
                        .iter()
                        .any(|start| it.file_name().to_string_lossy().starts_with(start))
                })
            })
        })
    };
    match has(data_dir, &["lock"]) {
        Ok(true) => Ok(()),
        // Someone has backed up the store alone.
        Ok(false) if has(&data_dir.join("store"), &["log", "table-"]).unwrap_or_default() => Ok(()),
        Ok(false) => refuse(&"there is no Windlass data in it"),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            refuse(&"there is no such directory")
        }
        Err(why) => refuse(&why),
    }
}
