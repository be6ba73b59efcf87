//! `windlass import faktory-redis`: the jobs of a Faktory that has been stopped, from its Redis.
//!
//! Reading order: `layout` (what is where in Redis) · `redis` (asking for it) · here, what becomes of it · `report`.
//! What a job's text comes to is for `windlass-faktory` to say.

mod layout;
mod redis;
mod report;

use std::env;
use std::io::{self, BufWriter, Write};

use bytes::Bytes;
use clap::Args;
use sha2::{Digest, Sha256};
use windlass_engine::{NewJob, Refusal, Timestamp};
use windlass_faktory::session::{Settings as Faktory, Standing};
use windlass_server::Failure;
use windlass_server::import::{self, Importer, Outcome};

use self::layout::{Entry, Holds, Layout};
use self::redis::Redis;
use self::report::Report;
use super::report::{cannot_say, log_aside};
use crate::settings::Settings;

const HELP: &str = "\
ADDRESS is a URL (redis://:password@host:port/database, unix:///path), the path
of a socket, or host:port. A password may also be in the variable REDISCLI_AUTH.

Stop Faktory first: what it still hands out would be run twice. The Redis that
it started stops with it; start one on its files by hand:
  redis-server --port 0 --unixsocket /tmp/faktory.sock \\
      --dir /var/lib/faktory/db --dbfilename faktory.rdb
Run this as the user the daemon runs as, and with its configuration: limits and
faktory.* keys count as they do for PUSH. The daemon must not run.

Taken are the queues, paused or not, and all jobs in them, scheduled, in
retries, dead, and those that are worked on: their workers may end them here as
long as their reservations last. Jobs keep their jid, arguments, custom values,
times, failures and retries. Both layouts are known (lists called NAME, as up to
Faktory 1.9.4, and q:NAME), and so are queues that Faktory has lost sight of.
Not taken: counters, and what the commercial edition keeps of batches and locks.
Jobs of batches (custom.bid) are left, for no callback would wait for them; with
--without-batches they are taken as jobs that are in none, and told how many.

Nothing in Redis is changed; with --remove the jobs that were taken are removed
from it, once they are on the disk here.

A second time does nothing: the data directory remembers (in imports/) what it
has taken of which contents. If they have changed meanwhile, all jobs are looked
at again, and those whose jid is here still are not taken. Jobs that were left
are tried again.

Exit codes:
  0   every job is taken, or was before
  1   the data directory could not be written to; do it again
  2   bad usage or configuration, or ADDRESS is no Redis that answers
  4   the data directory cannot be opened, for instance because of a daemon
  5   jobs are left, each named with its reason";

/// Take over the jobs in a Faktory's Redis.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct FaktoryRedis {
    /// Where Redis listens.
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Say what would be taken into an empty data directory, and take nothing.
    #[arg(long)]
    dry_run: bool,
    /// Take jobs that an earlier import took once more.
    #[arg(long)]
    again: bool,
    /// Remove from Redis what is taken, once it is safe here.
    #[arg(long, conflicts_with = "dry_run")]
    remove: bool,
    /// Take jobs of batches that are not here outside of them: their batches' callbacks never come.
    #[arg(long)]
    without_batches: bool,
    /// Go on although other clients are connected to Redis; none of them may be a Faktory.
    #[arg(long)]
    shared: bool,
    #[command(flatten)]
    settings: Settings,
}

impl FaktoryRedis {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut config = self.settings.resolve(env::vars_os())?;
        let password = env::var("REDISCLI_AUTH").ok().filter(|password| !password.is_empty());
        let mut redis = Redis::connect(&self.address, password.as_deref())?;
        if !self.dry_run
            && !self.shared
            && let Some(other) = redis.other_client()
        {
            let reason = format!(
                "{other} is connected to it: stop Faktory first, or its jobs run twice; --shared if that is no Faktory"
            );
            return Err(redis.refuse(reason));
        }
        log_aside(&mut config)?;
        let faktory = import::faktory(&config)?;
        let layout = Layout::explore(&mut redis)?;
        let digest = digest(&layout, &mut redis)?;
        let mut importer = if self.dry_run {
            Importer::rehearse(&config)
        } else {
            let source = import::Source { kind: "faktory-redis", digest: digest.clone() };
            Importer::open(&config, &source, self.again)?
        };
        let mut out = BufWriter::new(io::stdout().lock());
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
        report.write(&mut out, self.dry_run).and_then(|()| out.flush()).map_err(|why| cannot_say(&why))?;
        if !unchanged {
            return Err(redis.refuse("it has changed meanwhile: stop whoever uses it, and do it again"));
        }
        report.outcome()
    }
}

/// One entry, one job.
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
                Outcome::Refused(Refusal::UnknownBatch) => {
                    (jid, "it is in a batch that is not here; --without-batches takes it outside of it".to_owned())
                }
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

/// Takes a job, outside of its batch if that is not here and nobody minds.
fn take_in(place: u64, job: NewJob, importer: &mut Importer, report: &mut Report) -> Result<Outcome, Failure> {
    let outside = job.batch.is_some().then(|| NewJob { batch: None, ..job.clone() });
    match (importer.take(place, job)?, outside.filter(|_| report.without_batches)) {
        (Outcome::Refused(Refusal::UnknownBatch), Some(job)) => {
            let outcome = importer.take(place, job)?;
            report.outside += u64::from(outcome == Outcome::Taken);
            Ok(outcome)
        }
        (outcome, _) => Ok(outcome),
    }
}

/// The job an entry is; or its name, if it has one, and why it is none.
fn job(entry: &Entry<'_>, faktory: &Faktory) -> Result<NewJob, (Option<Bytes>, String)> {
    let at = timestamp(entry.score);
    let (standing, queue) = match &entry.source.holds {
        Holds::Queue(name) => (Standing::Queued, Some(name)),
        Holds::Scheduled => (Standing::Scheduled(at), None),
        Holds::Retries => (Standing::Retrying(at), None),
        Holds::Dead => (Standing::Dead(at), None),
        Holds::Working => (Standing::Reserved(at), None),
    };
    let job = faktory.adopt(import::now(), &entry.text, standing).map_err(|why| (None, why.to_string()))?;
    match queue {
        Some(queue) if *queue != job.queue => {
            let why = format!("it says its queue is \"{}\"", job.queue.escape_ascii());
            Err((job.name, why))
        }
        Some(_) | None => Ok(job),
    }
}

/// Seconds since 1970, which may be none, to a time.
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

/// All of an entry, so that two different ones never look alike.
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
