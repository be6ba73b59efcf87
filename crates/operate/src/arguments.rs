//! The options of the commands for operators.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand, ValueEnum};
use windlass_config::Period;

use crate::bounds::{Limit, Throttle};
use crate::settings::Settings;

/// Settings that have no effect on a client. Commands accept them, so that they can be given the
/// options of a service, but their help does not list them.
const OF_SERVE: [&str; 4] = ["only", "durability", "log_level", "log_format"];

/// The display order of output options: after a command's own.
const SHOWN: usize = 1_000;

/// How to reach the daemon, and the output format.
#[derive(Debug, Args)]
#[command(next_help_heading = "The daemon")]
pub struct Ask {
    /// Where its configuration is.
    #[command(flatten)]
    pub settings: Settings,
    /// Connect to the daemon at this address (http://HOST:PORT, or https://HOST/PATH of a proxy) instead of the one on the
    /// data directory.
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<String>,
    /// With --url: a file with a token, or with NAME:PASSWORD.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(super) login: Option<PathBuf>,
    /// With --url https://…: CA certificates to trust (PEM) [default: the system's].
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(super) ca: Option<PathBuf>,
    /// With --url https://…: client certificate (PEM), if the proxy requires one.
    #[arg(long, value_name = "FILE", requires_all = ["url", "client_key"])]
    pub(super) client_certificate: Option<PathBuf>,
    /// Private key of the client certificate (PEM, not encrypted).
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    pub(super) client_key: Option<PathBuf>,
    /// Ask about this namespace only, and look names up there; '' is the one without a name [default: all of the login].
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
    /// Print JSON: one object, or one object per row.
    #[arg(long, help_heading = None, display_order = SHOWN)]
    pub(super) json: bool,
    /// Do not fit tables to the terminal; print exact times.
    #[arg(long, conflicts_with = "json", help_heading = None, display_order = SHOWN)]
    pub(super) wide: bool,
}

/// A command, and the daemon to which it is sent.
#[derive(Debug)]
pub struct Operate {
    pub(super) command: Command,
    pub(super) ask: Ask,
}

/// The options of [`Ask`] are listed after those of each command.
impl Subcommand for Operate {
    fn augment_subcommands(grammar: clap::Command) -> clap::Command {
        // The display order is that of the whole grammar.
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
    /// Show a summary of the daemon: jobs by state, queues, connections.
    Status,
    /// Watch queues and workers on the terminal, with rates; press keys to pause and resume queues.
    #[cfg(feature = "top")]
    Top {
        /// How often to refresh.
        #[arg(long, value_name = "TIME", default_value = "1s")]
        every: Period,
    },
    /// List queues with their jobs, age and workers.
    Queues(Sort),
    /// List jobs. Default order: newest first; for a queue's ready jobs, execution order; for dead jobs, most recent death.
    Jobs(Jobs),
    /// Group dead jobs by error and kind; with `--state retrying`, failed jobs that will be retried.
    ///
    /// `retry`, `kill` and `delete` with `--state`, `--error-group` and `--exact-kind` change the jobs of a group.
    Dead(Conditions),
    /// Show statistics per kind of job: outcomes, waiting and running times.
    ///
    /// A job's kind is what it calls: FWP's job type, Gearman's function, EventMQ's callable.
    Kinds(Kinds),
    /// List jobs that have ended, most recent first, from the history (`history.keep`).
    ///
    /// `export` writes all of them, one JSON object per line. `again` pushes those once more whose whole body was kept.
    History(History),
    /// Show all details of a job, and why it is not running; of an ended job, what the history keeps.
    #[command(visible_alias = "why")]
    Job {
        /// Job number, FWP jid, Gearman handle or unique id, spiderq key, or EventMQ message id.
        id: String,
        /// Write only the body, unmodified.
        #[arg(long)]
        body: bool,
    },
    /// Make dead, scheduled or failed jobs ready immediately.
    Retry(RetriedJobs),
    /// Move jobs to the dead-letter queue, except jobs held by workers.
    Kill(SomeJobs),
    /// Take jobs back from their workers and requeue them.
    Requeue(SomeJobs),
    /// Remove jobs, except jobs held by workers.
    Delete(LosingJobs),
    /// Remove jobs in any state. Later reports of their workers are rejected.
    Cancel(LosingJobs),
    /// Remove all waiting jobs of a queue, or of one of its keys.
    Clear {
        #[command(flatten)]
        queue: LosingQueue,
        /// Only jobs with this key; an empty key selects jobs without one.
        #[arg(long)]
        key: Option<String>,
    },
    /// Remove a queue, with its pause and limits. It must have no workers, and no jobs except dead ones.
    Remove(LosingQueue),
    /// Stop handing out jobs of these queues, or of one key. The queues need not exist yet.
    Pause(SomeQueues),
    /// Resume handing out jobs of these queues, or of one key.
    Resume(SomeQueues),
    /// Show or set the maximum number of concurrent jobs of a queue. Applies until its section in the file changes.
    Throttle(Throttle),
    /// Show a queue's policy and the keys with the longest backlogs.
    Keys {
        /// Its name.
        queue: String,
    },
    /// Show or set the policy of a queue, which limits when its jobs start. Applies until its section in the file changes.
    Policy {
        /// Its name.
        queue: String,
        /// The new policy in JSON, with the keys of [queues.NAME]: '{"rate": {"jobs": 100, "per": "1m"}}'.
        policy: Option<String>,
        /// Restore the configured value.
        #[arg(long, conflicts_with = "policy")]
        off: bool,
    },
    /// Show or set the maximum number of jobs in a queue.
    Limit(Limit),
    /// List schedules: recurring jobs.
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
    /// List batches: groups of jobs with common callbacks.
    Batches(Sort),
    /// Show one batch.
    Batch {
        /// Its name.
        batch: String,
    },
    /// List connections of all protocols.
    Connections(Sort),
    /// Close connections. Their jobs return to their queues.
    Disconnect {
        /// Their numbers.
        #[arg(required = true)]
        ids: Vec<u64>,
        /// Do not ask first.
        #[arg(long)]
        yes: bool,
    },
    /// List named workers.
    Workers(Sort),
    /// Ask one worker, or all, to stop taking jobs.
    Quiet(Worker),
    /// Ask one worker, or all, to finish their jobs and exit.
    Stop(Worker),
    /// Stop handing out jobs, wait for connected workers to finish theirs, then exit. A second drain exits immediately.
    Drain {
        /// Return without waiting for the daemon to stop.
        #[arg(long)]
        no_wait: bool,
    },
    /// Reload the configuration and report which changed keys apply.
    Reload,
    /// Show this daemon's role, or hand leadership over.
    Cluster {
        /// `status`: the leader, since when, and the connected daemons. `yield`: give up leadership.
        #[arg(value_enum)]
        what: ClusterAction,
    },
    /// List namespaces: parts of the daemon whose clients see nothing of each other, with what each uses.
    Namespaces(Sort),
    /// Create, limit, remove, pause, resume or empty a namespace, or move a queue of it to another one.
    Namespace(Namespace),
    /// Push a job.
    Push(Push),
    /// Take a job and print it; `done` and `fail` report the outcome.
    Take(Take),
    /// Report success of a job that `take` printed.
    Done {
        /// The lease that `take` printed.
        lease: String,
        /// The result.
        result: Option<String>,
    },
    /// Report failure of a job that `take` printed.
    Fail {
        /// The lease that `take` printed.
        lease: String,
        /// The error message.
        message: Option<String>,
    },
}

/// Options that are also parameters of the API.
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
    /// With this kind: FWP's jobtype, EventMQ's path and callable, otherwise the queue. A * matches any text.
    kind: String,
    /// With exactly this kind, as `dead` shows it; an empty one selects jobs whose bodies do not show a kind.
    #[arg(value_name = "KIND")]
    exact_kind: String,
    /// With this coalescing key.
    key: String,
    /// With this policy key (docs/policies.md); an empty one selects jobs without a key.
    #[arg(value_name = "KEY")]
    policy_key: String,
    /// With this name (FWP's jid, EventMQ's message id).
    name: String,
    /// In this batch, as a job or as one of its callbacks.
    batch: String,
    /// Held by this worker under a time-bound lease (Faktory's and HTTP's workers).
    worker: String,
    /// Held by this connection under a connection-bound lease (Gearman's and EventMQ's workers).
    #[arg(value_name = "NUMBER")]
    connection: String,
    /// Ready, or created, at least this long ago: 90s, 1h30m, 2d.
    #[arg(value_name = "TIME")]
    older_than: String,
    /// Ready, or created, at most this long ago.
    #[arg(value_name = "TIME")]
    newer_than: String,
    /// With this text in the body, ignoring case.
    text: String,
    /// With this text in the class or message of the last failure, ignoring case; a pattern with * must match all of it.
    error: String,
    /// Whose last failure is of this group, as `dead` shows it; an empty one selects jobs without a failure.
    #[arg(value_name = "ERROR")]
    error_group: String,
}

parameters! {
    /// Which ended jobs; all conditions must hold.
    Ended;
    /// Ended on this day (UTC), for example 2026-11-28.
    day: String,
    /// Ended within this time until now: 90s, 1h30m, 2d.
    #[arg(value_name = "TIME")]
    since: String,
    /// Ended at this time (RFC 3339) or later.
    #[arg(value_name = "TIME")]
    from: String,
    /// Ended before this time (RFC 3339).
    #[arg(value_name = "TIME")]
    until: String,
    /// From this queue.
    queue: String,
    /// With this kind: FWP's jobtype, EventMQ's path and callable, otherwise the queue.
    kind: String,
    /// Ended in these ways, separated by commas: done, failed, dead, cancelled, expired, deleted, replaced.
    outcome: String,
    /// With this policy key (docs/policies.md).
    key: String,
    /// Last run by the worker with this name or address.
    worker: String,
    /// With this name (FWP's jid, EventMQ's message id) or unique id.
    name: String,
    /// With this number.
    #[arg(value_name = "NUMBER")]
    job: String,
    /// Runs of the schedule with this number.
    #[arg(value_name = "NUMBER")]
    schedule: String,
    /// Other runs of the ended job with this number.
    #[arg(value_name = "NUMBER")]
    again_of: String,
    /// Members of the batch with this number.
    #[arg(value_name = "NUMBER")]
    batch: String,
    /// Whose last run took longer: 500ms, 5s.
    #[arg(value_name = "TIME")]
    slower_than: String,
    /// With this text in a name, an error, or the stored part of body, result or output, ignoring case.
    text: String,
}

/// Over which time to show statistics.
#[derive(Debug, Args)]
pub(crate) struct Kinds {
    /// The period to cover; `start` means since the daemon started.
    #[arg(long, default_value = "minutes", value_parser = ["minutes", "hour", "day", "start"])]
    pub(super) span: String,
    /// Cover this time until now from the history (`history.keep`) instead: 7d, 180d. Shows how jobs ended, by queue.
    #[arg(long, value_name = "TIME", conflicts_with = "span")]
    pub(super) since: Option<Period>,
    #[command(flatten)]
    pub(super) by: Sort,
}

/// How to list ended jobs.
#[derive(Debug, Args)]
pub(crate) struct History {
    /// `export`: write all matching rows as JSON lines. `again`: push all matching jobs once more.
    #[arg(value_enum)]
    pub(super) action: Option<HistoryAction>,
    #[command(flatten)]
    pub(super) conditions: Ended,
    /// Maximum number of rows.
    #[arg(long, default_value_t = 100, conflicts_with = "action")]
    pub(super) limit: usize,
    /// Only with `again`: this many become ready per second.
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rate: Option<u32>,
    /// Only with `again`: all jobs; required without conditions.
    #[arg(long)]
    pub(super) all: bool,
}

/// What to do with ended jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HistoryAction {
    /// Write them as JSON lines.
    Export,
    /// Push them once more.
    Again,
}

/// The order of rows.
#[derive(Debug, Args)]
pub(crate) struct Sort {
    /// Sort by this column: numbers in descending order, text in alphabetical order.
    #[arg(long, value_name = "COLUMN")]
    pub(super) sort: Option<String>,
}

/// How to list jobs.
#[derive(Debug, Args)]
pub(crate) struct Jobs {
    #[command(flatten)]
    pub(super) conditions: Conditions,
    /// The order [default: execution order where it is known, else newest first].
    #[arg(long, value_parser = ["newest", "oldest", "next"])]
    pub(super) order: Option<String>,
    #[command(flatten)]
    pub(super) by: Sort,
    /// Maximum number of jobs to list; 0 = all.
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
    /// All jobs; required without conditions.
    #[arg(long)]
    pub(super) all: bool,
    /// Only count the jobs that would change.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Maximum number of jobs to change.
    #[arg(long)]
    pub(super) limit: Option<u64>,
}

/// Jobs to retry.
#[derive(Debug, Args)]
pub(crate) struct RetriedJobs {
    #[command(flatten)]
    pub(super) jobs: SomeJobs,
    /// Only dead jobs; make this many ready per second.
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rate: Option<u32>,
    /// Only dead jobs; move them to this queue.
    #[arg(long, value_name = "QUEUE")]
    pub(super) to: Option<String>,
}

/// Jobs to remove.
#[derive(Debug, Args)]
pub(crate) struct LosingJobs {
    #[command(flatten)]
    pub(super) jobs: SomeJobs,
    /// Do not ask first.
    #[arg(long, display_order = 100)]
    pub(super) yes: bool,
}

/// A queue to clear or remove.
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
    /// Only jobs with this key; an empty key selects jobs without one.
    #[arg(long)]
    pub(super) key: Option<String>,
}

/// An action on a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScheduleAction {
    /// Push its job now, in addition to its scheduled runs.
    Run,
    /// Suspend its runs.
    Pause,
    /// Resume its runs at its next scheduled time.
    Resume,
    /// Remove it; jobs that it has already pushed stay.
    Remove,
}

/// One worker, or all.
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
    /// Check the running daemon: exit code 0 = OK, 1 = warning, 2 = critical (it does not respond, or its store has
    /// failed), 3 = unknown; with figures for Nagios.
    #[arg(long)]
    pub live: bool,
    /// With --live: warn if a job has been ready for longer than this (90s, 1h30m).
    #[arg(long, value_name = "TIME", requires = "live")]
    pub(super) age_warning: Option<Period>,
    /// With --live: critical if a job has been ready for longer than this.
    #[arg(long, value_name = "TIME", requires = "live")]
    pub(super) age_critical: Option<Period>,
    /// With --live: warn if there are more dead jobs than this.
    #[arg(long, value_name = "JOBS", requires = "live")]
    pub(super) dead_warning: Option<u64>,
    /// The daemon to check.
    #[command(flatten)]
    pub ask: Ask,
}

/// An action on a cluster.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ClusterAction {
    /// The leader, since when, and the connected daemons.
    Status,
    /// Give up leadership.
    Yield,
}

/// A change of a namespace.
#[derive(Debug, Args)]
pub(crate) struct Namespace {
    /// What to do: set, remove, pause, resume, empty or move.
    #[arg(value_enum)]
    pub(super) action: NamespaceAction,
    /// Its name.
    #[arg(value_name = "NAME")]
    pub(super) named: String,
    #[command(flatten)]
    pub(super) quota: Quota,
    /// Only with `move`: the queue.
    #[arg(long)]
    pub(super) queue: Option<String>,
    /// Only with `move`: the other namespace; '' is the one without a name.
    #[arg(long, value_name = "NAME")]
    pub(super) to: Option<String>,
    /// Do not ask before a namespace is emptied or removed.
    #[arg(long, display_order = 100)]
    pub(super) yes: bool,
}

/// An action on a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NamespaceAction {
    /// Create it, or replace all its limits; what is beyond a new limit stays.
    Set,
    /// Remove it; it must have no queues, schedules, batches, workers or connections.
    Remove,
    /// Stop handing out jobs of all its queues; queues that appear later are not paused.
    Pause,
    /// Resume handing out jobs of all its queues.
    Resume,
    /// Remove all its jobs, whatever their state.
    Empty,
    /// Move a queue with its jobs to another namespace.
    Move,
}

parameters! {
    /// What a namespace may use; only with `set`. What is left out has no limit.
    Quota;
    /// Maximum number of jobs, in all states.
    #[arg(value_name = "JOBS")]
    jobs_max: u64,
    /// Maximum number of bytes of its jobs.
    #[arg(value_name = "BYTES")]
    job_bytes_max: u64,
    /// Maximum number of queues.
    #[arg(value_name = "QUEUES")]
    queues_max: u32,
    /// Maximum number of connections.
    #[arg(value_name = "CONNECTIONS")]
    connections_max: u32,
    /// Maximum number of pushes in each --pushes-per.
    #[arg(value_name = "JOBS")]
    pushes_max: u32,
    /// The period of --pushes-max [default: 1s].
    #[arg(value_name = "TIME")]
    pushes_per: String,
}

/// A job to push.
#[derive(Debug, Args)]
pub(crate) struct Push {
    /// The queue.
    pub(super) queue: String,
    /// The job's body [default: standard input].
    pub(super) body: Option<String>,
    #[command(flatten)]
    pub(super) terms: PushTerms,
}

parameters! {
    /// How a job behaves.
    PushTerms;
    /// 1 to 9; 9 is taken first.
    priority: u8,
    /// Delay before the job becomes ready: 90s, 1h30m, 2d.
    #[arg(value_name = "TIME")]
    delay: String,
    /// Reject the job if another job of the queue has this key.
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
    /// Lease time: how long the worker may hold the job.
    #[arg(value_name = "TIME")]
    lease: String,
    /// The worker's name.
    worker: String,
    /// Take a job visible to workers of this protocol.
    protocol: String,
}
