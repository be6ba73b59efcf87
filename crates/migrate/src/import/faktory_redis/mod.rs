//! `windlass import faktory-redis`: imports the jobs of a stopped Faktory from its Redis.
//!
//! Reading order: `layout` (what is where in Redis) · `redis` (queries) · `resp` (its protocol) · here, the import · `report`.
//! `windlass-faktory` interprets a job's text.

mod layout;
pub(super) mod redis;
mod report;
mod resp;

use std::env;
use std::io::Write;

use crate::intake::{self, Importer, Outcome};
use bytes::Bytes;
use clap::Args;
use sha2::{Digest, Sha256};
use windlass_engine::{NewJob, Refusal, Thing, Timestamp};
use windlass_faktory::session::{Settings as Faktory, Standing};
use windlass_server::Failure;

use self::layout::{Entry, Holds, Layout};
use self::redis::Redis;
use self::report::Report;
use super::options::{Configure, Options, configured, output, print};
use super::report::cannot_say;
use windlass_operate::Settings;

const HELP: &str = "\
ADDRESS is a URL (redis://:password@host:port/database, unix:///path), the path
of a socket, or host:port. A password may also be in the variable REDISCLI_AUTH.

Stop Faktory first: a job it still hands out would run twice. The Redis that
it started stops with it; start one on its files by hand:
  redis-server --port 0 --unixsocket /tmp/faktory.sock \\
      --dir /var/lib/faktory/db --dbfilename faktory.rdb
Run this as the user the daemon runs as, and with its configuration: limits and
faktory.* keys count as they do for PUSH. The daemon must not run.

The import includes the queues, paused or not, and all jobs: queued, scheduled,
in retries, dead, and reserved by workers, which may end them here until their
reservations expire. Jobs keep their jid, arguments, custom values, times,
failures and retries. It reads both layouts (lists called NAME, as up to
Faktory 1.9.4, and q:NAME), and queues missing from Faktory's set of queues.
Not imported: counters, and the commercial edition's batches and locks.
Jobs of batches (custom.bid) are left, because no callback would wait for them;
--without-batches imports them as jobs without a batch, and prints their number.

The import does not change Redis; with --remove it removes imported jobs from
Redis once they are on the disk here.

A second import does nothing: the data directory records (in imports/) which
jobs were imported. If the contents of Redis have changed meanwhile, all jobs
are examined again, and those whose jid still exists here are skipped. Jobs that
were left are tried again.

Exit codes:
  0   every job is imported, or was before
  1   the data directory could not be written to; import again
  2   bad usage or configuration, or no Redis answers at ADDRESS
  4   the data directory cannot be opened, for instance because a daemon runs
  5   some jobs are left; the output names each with its reason";

/// Import the jobs in a Faktory's Redis.
#[derive(Debug, Args)]
#[command(after_help = HELP, mut_arg("again", |it| it.help("Import jobs again that an earlier import took")))]
pub struct FaktoryRedis {
    /// The address of Redis.
    #[arg(value_name = "ADDRESS")]
    address: String,
    #[command(flatten)]
    options: Options,
    /// Remove imported jobs from Redis once they are on the disk here.
    #[arg(long, conflicts_with = "dry_run")]
    remove: bool,
    /// Import jobs of batches that do not exist here as jobs without a batch: the callbacks of their batches never run.
    #[arg(long)]
    without_batches: bool,
    /// Continue although other clients are connected to Redis; none of them may be a Faktory.
    #[arg(long)]
    shared: bool,
    #[command(flatten)]
    settings: Settings,
}

impl FaktoryRedis {
    pub(super) fn run(&self, configure: Configure<'_>) -> Result<(), Failure> {
        let config = configured(configure, &self.settings)?;
        let password = env::var("REDISCLI_AUTH").ok().filter(|password| !password.is_empty());
        let mut redis = Redis::connect(&self.address, password.as_deref())?;
        if !self.options.dry_run
            && !self.shared
            && let Some(other) = redis.other_client()
        {
            let reason = format!(
                "{other} is connected to it: stop Faktory first, or its jobs run twice; give --shared if that is not a Faktory"
            );
            return Err(redis.refuse(reason));
        }
        let faktory = config.faktory.settings(&config.daemon(&config.faktory)?)?;
        let layout = Layout::explore(&mut redis)?;
        let digest = digest(&layout, &mut redis)?;
        let source = || Ok(intake::Source { kind: "faktory-redis", digest: digest.clone() });
        let mut importer = self.options.begin(&config, source)?;
        let mut out = output();
        let mut report = Report::new(self.without_batches);
        report.survey(&mut out, &layout).map_err(|why| cannot_say(&why))?;
        for (queue, paused) in &layout.queues {
            if let Err(why) = importer.make_queue(queue.clone().into(), *paused) {
                report.leave_queue(&mut out, queue, &why.to_string()).map_err(|why| cannot_say(&why))?;
            }
        }
        let mut read = Sha256::new();
        layout.each(&mut redis, &mut |entry| {
            sum(&entry, &mut read);
            let place = report.jobs;
            report.jobs += 1;
            take(&entry, place, &faktory, &mut importer, &mut report, &mut out)
        })?;
        importer.flush()?;
        let unchanged = hex::encode(read.finalize()) == digest;
        if self.remove && unchanged {
            report.removed = Some(layout.remove(&mut redis, &|place| !importer.wants(place))?);
        }
        importer.finish()?;
        print(&mut out, |out| report.write(out, self.options.dry_run))?;
        if !unchanged {
            return Err(redis.refuse("it has changed meanwhile: stop its other clients, and run the import again"));
        }
        report.outcome()
    }
}

/// Imports one entry as one job.
fn take(
    entry: &Entry<'_>,
    place: u64,
    faktory: &Faktory,
    importer: &mut Importer,
    report: &mut Report,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if !importer.wants(place) {
        report.before += 1;
        return Ok(());
    }
    let (jid, why) = match job(entry, faktory) {
        Ok(job) => {
            let jid = job.name.clone();
            match take_in(place, job, importer, report)? {
                Outcome::Taken => {
                    report.took(entry.source);
                    return Ok(());
                }
                Outcome::Known => {
                    report.known += 1;
                    return Ok(());
                }
                Outcome::Refused(Refusal::NotFound(Thing::Batch)) => (
                    jid,
                    "it is in a batch that does not exist here; --without-batches imports it without its batch"
                        .to_owned(),
                ),
                Outcome::Refused(why) => (jid, why.to_string()),
            }
        }
        Err(unfit) => {
            importer.leave(place);
            unfit
        }
    };
    report.leave(out, entry, jid.as_deref(), &why).map_err(|why| cannot_say(&why))
}

/// Imports a job; without its batch if the batch does not exist here and `--without-batches` is given.
fn take_in(place: u64, job: NewJob, importer: &mut Importer, report: &mut Report) -> Result<Outcome, Failure> {
    let outside = job.batch.is_some().then(|| NewJob { batch: None, ..job.clone() });
    match (importer.take(place, job)?, outside.filter(|_| report.without_batches)) {
        (Outcome::Refused(Refusal::NotFound(Thing::Batch)), Some(job)) => {
            let outcome = importer.take(place, job)?;
            report.outside += u64::from(outcome == Outcome::Taken);
            Ok(outcome)
        }
        (outcome, _) => Ok(outcome),
    }
}

/// The job of an entry; or, if the entry is invalid, its name, if any, and the reason.
fn job(entry: &Entry<'_>, faktory: &Faktory) -> Result<NewJob, (Option<Bytes>, String)> {
    let at = timestamp(entry.score);
    let (standing, queue) = match &entry.source.holds {
        Holds::Queue(name) => (Standing::Queued, Some(name)),
        Holds::Scheduled => (Standing::Scheduled(at), None),
        Holds::Retries => (Standing::Retrying(at), None),
        Holds::Dead => (Standing::Dead(at), None),
        Holds::Working => (Standing::Reserved(at), None),
    };
    let job = faktory.adopt(intake::now(), &entry.text, standing).map_err(|why| (None, why.to_string()))?;
    match queue {
        Some(queue) if *queue != job.queue => {
            let why = format!("its queue field is \"{}\"", job.queue.escape_ascii());
            Err((job.name, why))
        }
        Some(_) | None => Ok(job),
    }
}

/// Converts seconds since 1970 to a time. NaN and negative numbers give 0.
fn timestamp(seconds: f64) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates, and none is 0")]
    let ms = (seconds * 1_000.0).ceil() as u64;
    Timestamp(ms)
}

fn digest(layout: &Layout, redis: &mut Redis) -> Result<String, Failure> {
    let mut digest = Sha256::new();
    layout.each(redis, &mut |entry| {
        sum(&entry, &mut digest);
        Ok(())
    })?;
    Ok(hex::encode(digest.finalize()))
}

/// Hashes the whole entry, so that two different entries never look alike.
fn sum(entry: &Entry<'_>, into: &mut Sha256) {
    for bytes in [&entry.source.key, &entry.text] {
        into.update((bytes.len() as u64).to_be_bytes());
        into.update(bytes);
    }
    into.update(entry.score.to_bits().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_seconds() {
        let table = [(0.0, 0), (1.5, 1_500), (1_795_233_549.366_883, 1_795_233_549_367), (-3.0, 0), (f64::NAN, 0)];
        for (seconds, ms) in table {
            assert_eq!(timestamp(seconds), Timestamp(ms), "{seconds}");
        }
        assert_eq!(timestamp(f64::INFINITY), Timestamp(u64::MAX));
    }
}
