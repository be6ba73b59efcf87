//! The engine: applies commands to a state, and provides read access.
//!
//! `dispatch` maps each command to a function. Each function is in the file named after its topic; `state`
//! lists them.

mod adopt;
mod ahead;
mod attach;
mod attempts;
mod away;
mod batches;
mod beginning;
mod call;
#[cfg(any(test, debug_assertions, feature = "testing"))]
mod check;
mod checks;
mod claims;
mod coalesce;
mod collect;
mod deliver;
mod dispatch;
mod due;
mod edit;
mod ended;
mod ends;
mod failures;
mod flush;
mod followers;
mod give_way;
mod history;
mod identity;
mod joined;
mod leases;
mod list;
mod memory;
mod move_queue;
mod mutate;
mod namespaces;
mod part;
mod place;
mod policies;
mod push;
mod queues;
mod recall;
mod redrive;
mod requeue;
mod room;
mod schedules;
mod scope;
mod search;
mod serve;
mod serving;
mod state;
mod stats;
mod subscriptions;
mod take;
mod warnings;
mod why;
mod workers;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use self::call::Call;
use self::dispatch::{dispatch, is_turned_away};
use self::due::{catch_up, end_visit, remember_queues};
use self::state::State;
use crate::batches::Batch;
use crate::command::Command;
use crate::condition::JobReader;
use crate::context::Context;
use crate::days::DayBegin;
use crate::event::Reply;
use crate::ids::{ClientId, JobId, Namespace, Protocol, QueueId, Tag, Timestamp, Token};
use crate::jobs::{Job, Stored};
use crate::limits::Limits;
use crate::meta::EngineMeta;
use crate::namespaces::NamespaceImage;
use crate::on_dead::OnDead;
use crate::query::WorkLeft;
use crate::queues::Queue;
use crate::refusal::{Capacity, Refusal};
use crate::schedules::Schedule;
use crate::warning::WarningKind;
use crate::work::COMMAND;

pub use self::failures::{LOSSES, MISFIT, UNREADABLE};
pub use self::state::DeadDropped;

/// The queue engine.
#[derive(Debug)]
pub struct Engine {
    state: State,
    #[cfg(debug_assertions)]
    pace: check::Pace,
}

impl Engine {
    /// Creates an empty engine. `seed` protects the hash tables against crafted keys and does not affect any output.
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self {
            state: State::new(limits, seed),
            #[cfg(debug_assertions)]
            pace: check::Pace::default(),
        }
    }

    /// Does all due work, then executes the client's command. The direct reply repeats `tag`.
    pub fn apply(
        &mut self,
        client: ClientId,
        tag: Tag,
        command: impl Into<Command>,
        context: &mut Context,
    ) {
        self.apply_command(
            command.into(),
            Call {
                client,
                tag,
                context,
            },
        );
    }

    fn apply_command(&mut self, command: Command, mut call: Call<'_>) {
        let state = &mut self.state;
        state.work.spend(COMMAND);
        catch_up(state, call.context);
        state.queues.begin();
        let is_short = !call.context.unreadable.is_empty();
        if is_short {
            state.unreadable = std::mem::take(&mut call.context.unreadable);
        }
        let is_push = matches!(command, Command::Job(_));
        if is_turned_away(state, &command, call.client) {
            refuse(Refusal::OutOfPlace, is_push, &mut call);
        } else if let Err(why) = dispatch(state, command, &mut call) {
            refuse(why, is_push, &mut call);
        }
        if is_short {
            state.unreadable.clear();
        }
        end_visit(state, call.context);
        remember_queues(state, call.context);
        self.check_in_debug();
    }

    /// Does all work due at `context.now`. Call it at [`Engine::next_deadline`]. Optional, because `apply` does the
    /// same.
    pub fn tick(&mut self, context: &mut Context) {
        catch_up(&mut self.state, context);
        self.check_in_debug();
    }

    /// Handles a job that was delivered with this token, but not sent because of an unreadable body: the job
    /// dies, so that no other job is blocked behind it, and retains the place of the body. Returns `false` if
    /// the lease has ended, or the body is now in memory or in a different place.
    pub fn bury_unreadable(
        &mut self,
        job: JobId,
        token: Token,
        from: Stored,
        context: &mut Context,
    ) -> bool {
        let state = &mut self.state;
        catch_up(state, context);
        let is_so = |job: &Job| {
            job.payload.stored() == Some(from)
                && job.lease().is_some_and(|lease| lease.token == token)
        };
        let found = state
            .jobs
            .slot(job)
            .filter(|slot| state.jobs.at(*slot).is_some_and(is_so));
        if let Some(slot) = found {
            failures::bury_unreadable(state, slot, context);
        }
        end_visit(state, context);
        state.queues.remember_dropped(&mut context.changes);
        self.check_in_debug();
        found.is_some()
    }

    /// Returns the credit for a delivery that a client never received.
    pub fn return_credit(&mut self, client: ClientId, context: &mut Context) {
        take::return_credit(&mut self.state, client, context);
        end_visit(&mut self.state, context);
        self.check_in_debug();
    }

    /// Executes a page of a command that needs more than a page, and returns `true` if it did. In that case,
    /// repeat the call, and at last apply the command itself, before any other command of this client. Call
    /// [`Engine::tick`] first, because nothing due is executed here.
    pub fn apply_in_part(
        &mut self,
        client: ClientId,
        command: &Command,
        context: &mut Context,
    ) -> bool {
        part::apply_in_part(&mut self.state, client, command, context)
    }

    /// The jobs that clients have with connection-bound leases, in order of ID.
    pub fn held_over_connections(&self) -> Vec<JobId> {
        let mut held: Vec<JobId> = self.state.jobs.holders().of_connections().collect();
        held.sort_unstable();
        held
    }

    /// Called before an orderly stop, with jobs of [`Engine::held_over_connections`], a bounded number at a
    /// time: the workers may report on them to the engine that recovers from the journal, for
    /// [`Limits::return_ms`] from the first visit. Jobs that are not durable are lost with the daemon. Call
    /// [`Engine::tick`] before it; no command may follow.
    pub fn leave(&mut self, jobs: &[JobId], context: &mut Context) {
        for job in jobs {
            away::leave(&mut self.state, *job, context);
        }
    }

    /// Asserts every invariant that the crate's page lists.
    ///
    /// # Panics
    ///
    /// If an invariant is violated, which is a bug in the engine for any input.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub fn check(&self) {
        check::check(&self.state);
    }

    fn check_in_debug(&mut self) {
        #[cfg(debug_assertions)]
        if self.pace.check(&self.state) {
            // Pack the pages again that the check has read.
            self.state.jobs.visit(|_, _| {});
        }
    }

    // ---- read access
    // -----------------------------------------------------------------------------------------------

    /// The next time at which work is due (engine's time), if any. Setting the wall clock may move it.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        due::next_deadline(&self.state)
    }

    /// A job by ID, in any state.
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.state.jobs.get(id)
    }

    /// A job of a namespace by the producer's public name: the leased job with the oldest lease, else the oldest job that is
    /// neither dead nor done, else the youngest.
    pub fn job_named(&self, namespace: Namespace, name: &[u8]) -> Option<&Job> {
        let slot = self.state.jobs.named(namespace, name, |_| true)?;
        self.state.jobs.at(slot)
    }

    /// The queue of a name in a namespace.
    pub fn queue_named(&self, namespace: Namespace, name: &[u8]) -> Option<&Queue> {
        let queues = &self.state.queues;
        queues.at(queues.named(namespace, name)?)
    }

    /// Returns true if a job has the coalescing key it was pushed with.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub fn holds_key(&self, id: JobId) -> bool {
        let holder = |job: &Job| self.state.jobs.keyed(job.queue, job.protocol, job.key()?);
        self.job(id)
            .and_then(holder)
            .is_some_and(|slot| self.state.jobs.slot(id) == Some(slot))
    }

    /// All jobs, in arbitrary order.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.state.jobs.iter().map(|(_, job)| job)
    }

    /// The number of jobs in all states.
    pub fn job_count(&self) -> usize {
        self.state.jobs.len()
    }

    /// A namespace with a name, by number.
    pub fn namespace(&self, id: Namespace) -> Option<&NamespaceImage> {
        self.state.queues.namespaces().at(id)
    }

    /// All namespaces with names, by number.
    pub fn namespaces(&self) -> impl Iterator<Item = &NamespaceImage> {
        self.state.queues.namespaces().iter()
    }

    /// A queue by ID.
    pub fn queue(&self, id: QueueId) -> Option<&Queue> {
        // A queue of another namespace may have the index of one that was removed.
        let queue = self.state.queues.at(id);
        queue.filter(|queue| queue.image().id == id)
    }

    /// Unused queues removed to make space for new ones, since the engine was created.
    pub const fn queues_forgotten(&self) -> u64 {
        self.state.queues.forgotten()
    }

    /// All queues, by ID.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.state.queues.iter()
    }

    /// A schedule by ID.
    pub fn schedule(&self, id: JobId) -> Option<&Schedule> {
        self.state.schedules.at(id)
    }

    /// All schedules, by ID.
    pub fn schedules(&self) -> impl Iterator<Item = &Schedule> {
        self.state.schedules.from(JobId(0))
    }

    /// A batch by ID.
    pub fn batch(&self, id: JobId) -> Option<&Batch> {
        self.state.batches.at(id)
    }

    /// All batches, by ID.
    pub fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.state.batches.from(JobId(0))
    }

    /// The engine's persistent values for the journal.
    pub const fn meta(&self) -> &EngineMeta {
        self.state.meta.kept()
    }

    /// The totals at the start of each recent day, by number.
    pub fn days(&self) -> impl Iterator<Item = &DayBegin> {
        self.state.days.recorded()
    }

    /// The unfinished work of a daemon's clients.
    pub fn work_left(&self, daemon: u64) -> WorkLeft {
        workers::work_left(&self.state, daemon)
    }

    /// The limits.
    pub const fn limits(&self) -> &Limits {
        &self.state.limits
    }

    /// Replaces the limits. Existing jobs and names beyond a new limit stay, except dead jobs, which are dropped.
    pub fn set_limits(&mut self, limits: Limits) {
        self.state.limits = limits;
    }

    /// Sets the reader of jobs for conditions that depend on a protocol ([`crate::Condition`]). Without it
    /// they match no job. Every engine of a broker needs an equal reader.
    pub fn set_reader(&mut self, reader: Arc<dyn JobReader>) {
        self.state.reader = Some(reader);
    }

    /// Whether there is a history for the ends of jobs ([`crate::Change::Ended`]), as [`Limits::history`] and the rules of queues
    /// ask. Until this is called there is none.
    pub fn keep_history(&mut self, keeps: bool) {
        self.state.keeps_history = keeps;
    }

    /// Sets which jobs are pushed because others died. A death and the job that it causes are changes of one visit, so
    /// that the journal has both or none.
    pub fn set_on_dead(&mut self, on_dead: Option<Arc<dyn OnDead>>) {
        self.state.on_dead = on_dead;
    }

    /// Sets the names of schedules that skip occurrences missed before the engine's first visit. All other
    /// schedules make up for them with a single job.
    pub fn skip_missed(&mut self, schedules: BTreeSet<(Protocol, Bytes)>) {
        self.state.beginning.skip_missed = schedules;
    }

    /// The requested state of a named worker.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub fn worker_state(&self, name: &[u8]) -> Option<crate::request::WorkerState> {
        let worker = crate::ids::NameIn(Namespace::UNNAMED, name);
        self.state.workers.state(self.state.workers.named(worker)?)
    }

    /// Dead jobs dropped before the end of retention, since the engine was created.
    pub const fn dead_dropped(&self) -> DeadDropped {
        self.state.dead_dropped
    }

    /// Returns true if jobs that are over must be dropped, because they or all jobs together exceed a limit.
    pub fn has_past_to_drop(&self) -> bool {
        room::has_past_to_drop(&self.state)
    }

    /// Returns true if clients are blocked because visits had no space for more jobs
    /// ([`Context::room`]).
    pub const fn is_starved(&self) -> bool {
        self.state.starved.again_at().is_some()
    }

    /// Returns true if a client's request for work is blocked for lack of space, or until the end
    /// of the grace.
    pub fn defers_takes_of(&self, client: ClientId) -> bool {
        self.state.deferred.has_any_of(client)
    }

    /// The estimated cost of all commands since the engine was created, in units of about 25 ns. For callers
    /// that limit how long they block other threads.
    pub const fn work(&self) -> u64 {
        self.state.work.spent()
    }
}

/// Refuses a command. The operator is warned if the reason is lack of memory, except for a push, which has a
/// separate warning.
#[cold]
fn refuse(why: Refusal, is_push: bool, call: &mut Call<'_>) {
    if !is_push
        && matches!(
            why,
            Refusal::Limit {
                what: Capacity::JobBytes,
                ..
            }
        )
    {
        call.context
            .warn(WarningKind::NoRoom(why), Default::default);
    }
    call.reply(Reply::Refused(why));
}
