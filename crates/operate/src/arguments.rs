//! The options of the commands for operators.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand, ValueEnum};
use windlass_config::Period;

use crate::bounds::{Limit, Throttle};
use crate::settings::Settings;

/// Settings of a daemon that change no answer: a command takes them, so that it may have the options of a service, and its
/// help does not show them.
const OF_SERVE: [&str; 4] = ["only", "durability", "log_level", "log_format"];

/// The place of the options for answers: behind a command's own.
const SHOWN: usize = 1_000;

/// Where the daemon is, and how answers are shown.
#[derive(Debug, Args)]
#[command(next_help_heading = "The daemon")]
pub struct Ask {
    /// Where its configuration is.
    #[command(flatten)]
    pub settings: Settings,
    /// Ask the daemon at this address (http://HOST:PORT, or https://HOST/PATH of a proxy) instead of the one on the
    /// data directory.
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<String>,
    /// With --url: a file with a token, or with NAME:PASSWORD.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(super) login: Option<PathBuf>,
    /// With --url https://…: the authorities that may have signed the certificate (PEM) [default: the system's].
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(super) ca: Option<PathBuf>,
    /// With --url https://…: a certificate (PEM), if the proxy demands one.
    #[arg(long, value_name = "FILE", requires_all = ["url", "client_key"])]
    pub(super) client_certificate: Option<PathBuf>,
    /// The key of that certificate (PEM, not encrypted).
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    pub(super) client_key: Option<PathBuf>,
    /// Print JSON: one object, or one for each row.
    #[arg(long, help_heading = None, display_order = SHOWN)]
    pub(super) json: bool,
    /// Print whole tables, however wide the terminal is, with exact times.
    #[arg(long, conflicts_with = "json", help_heading = None, display_order = SHOWN)]
    pub(super) wide: bool,
}

/// A command, and where the daemon is that it asks.
#[derive(Debug)]
pub struct Operate {
    pub(super) command: Command,
    pub(super) ask: Ask,
}

/// The options of [`Ask`] stand behind those of each command.
impl Subcommand for Operate {
    fn augment_subcommands(grammar: clap::Command) -> clap::Command {
        // Their places are those in the whole grammar.
        let empty = || clap::Command::new("").next_display_order(None);
        let (commands, options) = (
            Command::augment_subcommands(empty()),
            Ask::augment_args(empty()),
        );
        let options = OF_SERVE.iter().fold(options, |options, name| {
            options.mut_arg(name, |option| option.hide(true))
        });
        grammar.subcommands(
            commands
                .get_subcommands()
                .map(|command| command.clone().args(options.get_arguments())),
        )
    }

    fn augment_subcommands_for_update(grammar: clap::Command) -> clap::Command {
        Self::augment_subcommands(grammar)
    }

    fn has_subcommand(name: &str) -> bool {
        Command::has_subcommand(name)
    }
}

impl FromArgMatches for Operate {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (_, own) = matches
            .subcommand()
            .ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
        Ok(Self {
            command: Command::from_arg_matches(matches)?,
            ask: Ask::from_arg_matches(own)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        Self::from_arg_matches(matches).map(|new| *self = new)
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the daemon as a whole: jobs by state, queues, connections.
    Status,
    /// Watch queues and workers on the terminal: figures, rates, and keys to pause and resume.
    #[cfg(feature = "top")]
    Top {
        /// How often to look at the daemon.
        #[arg(long, value_name = "TIME", default_value = "1s")]
        every: Period,
    },
    /// List queues with their jobs, age and workers.
    Queues(Sort),
    /// List jobs: the newest first, what runs next of the ready jobs of a queue, the last that died of dead ones.
    Jobs(Jobs),
    /// Show dead jobs by error and kind; with `--state retrying` those that have failed and are tried again.
    ///
    /// `retry`, `kill` and `delete` with `--state`, `--error-group` and `--exact-kind` change the jobs of a group.
    Dead(Conditions),
    /// Show what happened to the jobs of each kind: how they ended, and how long they waited and ran.
    ///
    /// The kind of a job is what it calls: FWP's job type, Gearman's function, EventMQ's callable.
    Kinds {
        /// Over how long; `start` is since the daemon has started.
        #[arg(long, default_value = "minutes", value_parser = ["minutes", "hour", "day", "start"])]
        span: String,
        #[command(flatten)]
        by: Sort,
    },
    /// Show everything about a job, and why it does not run.
    #[command(visible_alias = "why")]
    Job {
        /// Its number; or FWP's jid, Gearman's handle or unique id, spiderq's key, EventMQ's message id.
        id: String,
        /// Write only its body, as it is.
        #[arg(long)]
        body: bool,
    },
    /// Make dead, scheduled or failed jobs ready now.
    Retry(RetriedJobs),
    /// Move jobs to the dead-letter queue, except those that workers have.
    Kill(SomeJobs),
    /// Take jobs back from their workers.
    Requeue(SomeJobs),
    /// Remove jobs, except those that workers have.
    Delete(LosingJobs),
    /// Remove jobs, whatever their state. What their workers report afterwards is refused.
    Cancel(LosingJobs),
    /// Remove all jobs of a queue, or of one of its keys, that wait to be taken.
    Clear {
        #[command(flatten)]
        queue: LosingQueue,
        /// Only the jobs of this key; an empty one stands for jobs without a key.
        #[arg(long)]
        key: Option<String>,
    },
    /// Remove a queue that no worker serves and that has no jobs but dead ones, with its pause and its limits.
    Remove(LosingQueue),
    /// Hand out no jobs of these queues, which may be new, or of one of their keys.
    Pause(SomeQueues),
    /// Hand out jobs of these queues, or of one of their keys, again.
    Resume(SomeQueues),
    /// Print how many jobs of a queue may be worked on at once. Or limit it, until its section in the file changes.
    Throttle(Throttle),
    /// Show the policy of a queue, and its keys with the longest backlog.
    Keys {
        /// Its name.
        queue: String,
    },
    /// Print the policy of a queue: which of its jobs may start when. Or set another one, until its section in the file
    /// changes.
    Policy {
        /// Its name.
        queue: String,
        /// Another policy in JSON, with the keys of [queues.NAME]: '{"rate": {"jobs": 100, "per": "1m"}}'.
        policy: Option<String>,
        /// As configured.
        #[arg(long, conflicts_with = "policy")]
        off: bool,
    },
    /// Print how many jobs a queue may hold, or limit it.
    Limit(Limit),
    /// List schedules: jobs that are pushed again and again.
    #[command(visible_alias = "cron")]
    Schedules(Sort),
    /// Run, pause, resume or remove schedules.
    Schedule {
        /// What to do: run, pause, resume or remove.
        #[arg(value_enum)]
        action: ScheduleAction,
        /// Their numbers.
        #[arg(required = true)]
        ids: Vec<u64>,
        /// Do not ask before schedules are removed.
        #[arg(long)]
        yes: bool,
    },
    /// List batches: jobs that belong together.
    Batches(Sort),
    /// Show one batch.
    Batch {
        /// Its name.
        batch: String,
    },
    /// List connections of all protocols.
    Connections(Sort),
    /// Close connections. Jobs that they have return to their queues.
    Disconnect {
        /// Their numbers.
        #[arg(required = true)]
        ids: Vec<u64>,
        /// Do not ask first.
        #[arg(long)]
        yes: bool,
    },
    /// List the workers that are known by name.
    Workers(Sort),
    /// Ask a worker, or all, to take no more jobs.
    Quiet(Worker),
    /// Ask a worker, or all, to finish their jobs and to end.
    Stop(Worker),
    /// Hand out no more jobs, wait for those that connected workers have, and stop. A second drain stops at once.
    Drain {
        /// Do not wait until the daemon has stopped.
        #[arg(long)]
        no_wait: bool,
    },
    /// Read the configuration again, and report for each changed key whether it applies.
    Reload,
    /// Several daemons as one broker: what this one is, and having another one lead.
    Cluster {
        /// `status`: the leader, since when, and which daemons are linked. `yield`: have this daemon lead no more.
        #[arg(value_enum)]
        what: ClusterAction,
    },
    /// Push a job.
    Push(Push),
    /// Take a job and print it; `done` and `fail` report on it.
    Take(Take),
    /// Report that a job which `take` has printed is done.
    Done {
        /// The lease, as `take` has printed it.
        lease: String,
        /// The result.
        result: Option<String>,
    },
    /// Report that a job which `take` has printed has failed.
    Fail {
        /// The lease, as `take` has printed it.
        lease: String,
        /// The error's message.
        message: Option<String>,
    },
}

/// Options that are parameters of the API as well.
macro_rules! parameters {
    ($(#[$about:meta])* $Name:ident; $($(#[$option:meta])* $name:ident: $Type:ty,)+) => {
        $(#[$about])*
        #[derive(Debug, Args)]
        pub(crate) struct $Name {
            $($(#[$option])* #[arg(long)] pub(super) $name: Option<$Type>,)+
        }

        impl $Name {
            pub(super) fn parameters(&self) -> Vec<(&'static str, Option<String>)> {
                vec![$((stringify!($name), self.$name.as_ref().map(ToString::to_string))),+]
            }
        }
    };
}

parameters! {
    /// Which jobs; all conditions must hold.
    Conditions;
    /// In this queue.
    queue: String,
    /// In this state.
    #[arg(value_parser = ["ready", "leased", "scheduled", "retrying", "dead", "parked", "done"])]
    state: String,
    /// Of this protocol.
    #[arg(value_parser = ["faktory", "gearman", "spiderq", "eventmq", "http"])]
    protocol: String,
    /// With this kind: FWP's jobtype, EventMQ's path and callable, otherwise the queue. A * stands for any text.
    kind: String,
    /// With exactly this kind, as `dead` shows it; an empty one stands for jobs whose bodies do not show a kind.
    #[arg(value_name = "KIND")]
    exact_kind: String,
    /// With this coalescing key.
    key: String,
    /// That the policy of their queue treats by this key; an empty one stands for jobs without a key.
    #[arg(value_name = "KEY")]
    policy_key: String,
    /// With this name (FWP's jid, EventMQ's message id).
    name: String,
    /// In this batch, as a job or as one of its callbacks.
    batch: String,
    /// That this worker has, under a lease that outlasts its connections (Faktory's and HTTP's workers).
    worker: String,
    /// That this connection has, under a lease that ends with it (Gearman's and EventMQ's workers).
    #[arg(value_name = "NUMBER")]
    connection: String,
    /// Ready, or created, at least this long ago: 90s, 1h30m, 2d.
    #[arg(value_name = "TIME")]
    older_than: String,
    /// Ready, or created, at most this long ago.
    #[arg(value_name = "TIME")]
    newer_than: String,
    /// With this text in the body, whatever the case.
    text: String,
    /// With this text in the class or the message of the last failure, whatever the case; with a *, like all of it.
    error: String,
    /// Whose last failure is of this group, as `dead` shows it; an empty one stands for jobs without a failure.
    #[arg(value_name = "ERROR")]
    error_group: String,
}

/// The order of rows.
#[derive(Debug, Args)]
pub(crate) struct Sort {
    /// Sort by this column: the largest number, or the first text of the alphabet, comes first.
    #[arg(long, value_name = "COLUMN")]
    pub(super) sort: Option<String>,
}

/// How to list jobs.
#[derive(Debug, Args)]
pub(crate) struct Jobs {
    #[command(flatten)]
    pub(super) conditions: Conditions,
    /// The order [default: what runs next, where that is known; else the newest first].
    #[arg(long, value_parser = ["newest", "oldest", "next"])]
    pub(super) order: Option<String>,
    #[command(flatten)]
    pub(super) by: Sort,
    /// The most jobs to list; 0 = all.
    #[arg(long, default_value_t = 100)]
    pub(super) limit: usize,
}

/// Jobs: by their numbers, by conditions, or all.
#[derive(Debug, Args)]
pub(crate) struct SomeJobs {
    /// Their numbers.
    pub(super) ids: Vec<u64>,
    #[command(flatten)]
    pub(super) conditions: Conditions,
    /// All jobs, if there is no condition.
    #[arg(long)]
    pub(super) all: bool,
    /// Change nothing, and count the jobs that would change.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// The most jobs to change.
    #[arg(long)]
    pub(super) limit: Option<u64>,
}

/// Jobs that are tried again.
#[derive(Debug, Args)]
pub(crate) struct RetriedJobs {
    #[command(flatten)]
    pub(super) jobs: SomeJobs,
    /// Only dead jobs, of which this many become ready in a second.
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rate: Option<u32>,
    /// Only dead jobs, which move to this queue.
    #[arg(long, value_name = "QUEUE")]
    pub(super) to: Option<String>,
}

/// Jobs that are gone afterwards.
#[derive(Debug, Args)]
pub(crate) struct LosingJobs {
    #[command(flatten)]
    pub(super) jobs: SomeJobs,
    /// Do not ask first.
    #[arg(long, display_order = 100)]
    pub(super) yes: bool,
}

/// A queue that loses something.
#[derive(Debug, Args)]
pub(crate) struct LosingQueue {
    /// Its name.
    pub(super) queue: String,
    /// Do not ask first.
    #[arg(long)]
    pub(super) yes: bool,
}

/// Queues.
#[derive(Debug, Args)]
pub(crate) struct SomeQueues {
    /// Their names.
    #[arg(required = true)]
    pub(super) queues: Vec<String>,
    /// Only the jobs of this key; an empty one stands for jobs without a key.
    #[arg(long)]
    pub(super) key: Option<String>,
}

/// What to do with a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScheduleAction {
    /// Push its job now, besides its own runs.
    Run,
    /// Stop its runs.
    Pause,
    /// Let it run again, from its next time on.
    Resume,
    /// Remove it; the jobs that it has pushed stay.
    Remove,
}

/// A worker, or all.
#[derive(Debug, Args)]
pub(crate) struct Worker {
    /// Its name.
    #[arg(required_unless_present = "all")]
    pub(super) worker: Option<String>,
    /// All workers.
    #[arg(long, conflicts_with = "worker")]
    pub(super) all: bool,
}

/// What to check.
#[derive(Debug, Args)]
pub struct Check {
    /// Check the running daemon: exit code 0 = well, 1 = warning, 2 = critical (it does not answer, or its store has
    /// failed), 3 = unknown; with figures for Nagios.
    #[arg(long)]
    pub live: bool,
    /// With --live: warn if a job is ready for longer than this (90s, 1h30m).
    #[arg(long, value_name = "TIME", requires = "live")]
    pub(super) age_warning: Option<Period>,
    /// With --live: critical if a job is ready for longer than this.
    #[arg(long, value_name = "TIME", requires = "live")]
    pub(super) age_critical: Option<Period>,
    /// With --live: warn if there are more dead jobs than this.
    #[arg(long, value_name = "JOBS", requires = "live")]
    pub(super) dead_warning: Option<u64>,
    /// Which daemon.
    #[command(flatten)]
    pub ask: Ask,
}

/// What one of several daemons can be asked.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ClusterAction {
    /// The leader, since when, and which daemons are linked.
    Status,
    /// Have this daemon lead no more.
    Yield,
}

/// A job to push.
#[derive(Debug, Args)]
pub(crate) struct Push {
    /// The queue.
    pub(super) queue: String,
    /// The job's body; without it, standard input.
    pub(super) body: Option<String>,
    #[command(flatten)]
    pub(super) terms: PushTerms,
}

parameters! {
    /// How a job behaves.
    PushTerms;
    /// 1 to 9; 9 is taken first.
    priority: u8,
    /// Not before this much later: 90s, 1h30m, 2d.
    #[arg(value_name = "TIME")]
    delay: String,
    /// While a job of the queue has this key, another one is refused.
    key: String,
    /// Retries after failures: 0 discards the job at its first failure, -1 makes it dead.
    #[arg(allow_negative_numbers = true)]
    retries: i32,
    /// `faktory`: push a job of Faktory's clients. The body is a work unit in JSON, with all its terms.
    protocol: String,
}

/// How to take a job.
#[derive(Debug, Args)]
pub(crate) struct Take {
    /// The queue.
    pub(super) queue: String,
    #[command(flatten)]
    pub(super) terms: TakeTerms,
}

parameters! {
    /// How a worker takes a job.
    TakeTerms;
    /// How long to wait for a job.
    #[arg(value_name = "TIME")]
    wait: String,
    /// How long this worker may have the job.
    #[arg(value_name = "TIME")]
    lease: String,
    /// The worker's name.
    worker: String,
    /// Take a job that workers of this protocol see.
    protocol: String,
}
