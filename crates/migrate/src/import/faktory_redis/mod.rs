//! `windlass import faktory-redis`: imports the jobs of a stopped Faktory from its Redis.
//!
//! Reading order: `layout` (what is where in Redis) · `redis` (queries) · `resp` (its protocol) · here, the import.
//! `windlass-faktory` interprets a job's text.

mod layout;
pub(super) mod redis;
mod resp;

use std::collections::BTreeMap;

use crate::intake::{self, Line, Outcome};
use bytes::Bytes;
use clap::Args;
use sha2::{Digest, Sha256};
use windlass_config::Failure;
use windlass_daemon::clock;
use windlass_engine::{NamespaceLimits, NewJob, Refusal, Thing, Timestamp};
use windlass_faktory::session::{Settings as Faktory, Standing};

use self::layout::{Entry, Holds, Layout};
use self::redis::Redis;
use super::options::{Configure, Options, configured};
use super::report::{Nouns, Report};
use windlass_operate::Settings;

const HELP: &str = include_str!("../../help/faktory_redis.txt").trim_ascii_end();

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

const NOUNS: Nouns = Nouns {
    reason: |why| {
        if why == Refusal::NotFound(Thing::Batch) {
            "it is in a batch that does not exist here; --without-batches imports it without its batch".to_owned()
        } else {
            why.to_string()
        }
    },
    ..Nouns::new("job", "here already, with the same jid", "jobs")
};

/// How many bytes are shown of a job without a name.
const SHOWN_BYTES: usize = 60;

impl FaktoryRedis {
    pub(super) fn run(&self, configure: Configure<'_>) -> Result<(), Failure> {
        let config = configured(configure, &self.settings)?;
        let mut redis = Redis::connect(&self.address)?;
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
        let source = || {
            Ok(intake::Source {
                kind: "faktory-redis",
                digest: digest.clone(),
            })
        };
        let mut importer = self
            .options
            .begin(&config, NamespaceLimits::default(), source)?;
        importer.without_batches(self.without_batches);
        let mut report = Report::to_stdout(&NOUNS, self.options.dry_run);
        survey(&mut report, &layout)?;
        for (queue, paused) in &layout.queues {
            if let Err(why) = importer.make_queue(queue.clone().into(), *paused) {
                report.leave(&format_args!(
                    "queue \"{}\" left: {why}",
                    queue.escape_ascii()
                ))?;
            }
        }
        let (mut read, mut keys) = (Sha256::new(), BTreeMap::new());
        layout.each(&mut redis, &mut |entry| {
            sum(&entry, &mut read);
            let Entry {
                source,
                number,
                text,
                ..
            } = &entry;
            let (jid, job) = job(&entry, &faktory);
            let shown = match jid {
                Some(jid) => format!("jid \"{}\": ", jid.escape_ascii()),
                None => format!(
                    "`{}`: ",
                    text.get(..SHOWN_BYTES).unwrap_or(text).escape_ascii()
                ),
            };
            let name = format_args!("{source}, job {number}").to_string();
            if report.take(&mut importer, job.map(Line::from), &name, &shown)?
                == Some(Outcome::Taken)
            {
                *keys.entry(source.to_string()).or_insert(0) += 1;
            }
            Ok(())
        })?;
        importer.commit()?;
        let unchanged = hex::encode(read.finalize()) == digest;
        let removed = match self.remove && unchanged {
            true => Some(layout.remove(&mut redis, &|place| !importer.wants(place))?),
            false => None,
        };
        let (taken, verb, outside) = (report.taken, report.taken_word, importer.outside());
        importer.finish()?;
        let mut all = format!("{taken} {verb}");
        if outside > 0 {
            all += &format!(
                "\n{outside} of these {verb} without their batches, which do not exist here"
            );
        }
        report.write(
            keys.iter()
                .map(|(key, count): (_, &u64)| format!("{count} {verb}: {key}\n")),
            &all,
        )?;
        if let Some(removed) = removed {
            report.print(&format_args!("{removed} removed from Redis"))?;
        }
        if !unchanged {
            return Err(redis.refuse(
                "it has changed meanwhile: stop its other clients, and run the import again",
            ));
        }
        report.outcome()
    }
}

/// Prints which parts of the database are not imported.
fn survey(report: &mut Report, layout: &Layout) -> Result<(), Failure> {
    for (key, is) in &layout.odd {
        report.leave(&format_args!(
            "key \"{}\" left: it {is}",
            key.escape_ascii()
        ))?;
    }
    if layout.counters {
        report.print(
            &"not imported: Faktory's counters of jobs processed and failed; they begin anew",
        )?;
    }
    for key in &layout.others {
        let key = key.escape_ascii();
        report.print(&format_args!(
            "not imported: key \"{key}\", which does not hold jobs of a Faktory"
        ))?;
    }
    match layout.more_others {
        0 => Ok(()),
        more => report.print(&format_args!("not imported: {more} more such keys")),
    }
}

/// The name of an entry's job, if it has one, and the job, or the reason why the entry is invalid.
fn job(entry: &Entry<'_>, faktory: &Faktory) -> (Option<Bytes>, Result<NewJob, String>) {
    let at = timestamp(entry.score);
    let (standing, queue) = match &entry.source.holds {
        Holds::Queue(name) => (Standing::Queued, Some(name)),
        Holds::Sorted(standing) => (standing(at), None),
    };
    let job = match faktory.adopt(clock::wall(), entry.text, standing) {
        Ok(job) => job,
        Err(why) => return (None, Err(why)),
    };
    let (name, fits) = (
        job.name.clone(),
        queue.is_none_or(|queue| *queue == job.queue),
    );
    let wrong = format!("its queue field is \"{}\"", job.queue.escape_ascii());
    (name, if fits { Ok(job) } else { Err(wrong) })
}

/// Converts seconds since 1970 to a time. NaN and negative numbers give 0.
fn timestamp(seconds: f64) -> Timestamp {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it saturates, and none is 0"
    )]
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
    for bytes in [&*entry.source.key, entry.text] {
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
        let table = [
            (0.0, 0),
            (1.5, 1_500),
            (1_795_233_549.366_883, 1_795_233_549_367),
            (-3.0, 0),
            (f64::NAN, 0),
        ];
        for (seconds, ms) in table {
            assert_eq!(timestamp(seconds), Timestamp(ms), "{seconds}");
        }
        assert_eq!(timestamp(f64::INFINITY), Timestamp(u64::MAX));
    }
}
