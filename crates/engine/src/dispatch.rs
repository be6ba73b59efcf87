//! The way of each command to the part of the engine that carries it out: one match for each family.

use crate::command::{
    BatchCommand, BulkCommand, ClientCommand, Command, JobCommand, LeaseCommand, QueueCommand, ScheduleCommand,
    TakeCommand, WorkerCommand,
};
use crate::context::Context;
use crate::engine::Engine;
use crate::event::Reply;
use crate::ids::{ClientId, Tag};
use crate::refusal::Refusal;

#[expect(clippy::unit_arg, reason = "one line for each command is easiest to read")]
impl Engine {
    pub(crate) fn dispatch(
        &mut self,
        client: ClientId,
        tag: Tag,
        command: Command,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        match command {
            Command::Client(command) => self.client_command(client, command, context),
            Command::Job(command) => self.job_command(client, tag, command, context),
            Command::Take(command) => self.take_command(client, tag, command, context),
            Command::Lease(command) => self.lease_command(client, tag, command, context),
            Command::Query(query) => self.query(client, tag, query, context),
            Command::Queue(command) => self.queue_command(client, tag, command, context),
            Command::Schedule(command) => self.schedule_command(client, tag, command, context),
            Command::Batch(command) => self.batch_command(client, tag, command, context),
            Command::Barrier => Ok(context.reply(client, tag, Reply::Settled)),
            Command::Bulk(command) => Ok(self.bulk_command(client, tag, command, context)),
            Command::Worker(command) => self.worker_command(client, tag, command, context),
        }
    }

    // connections and what they can do: `clients`
    fn client_command(
        &mut self,
        client: ClientId,

        command: ClientCommand,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        match command {
            ClientCommand::Open(info) => self.open(client, info),
            ClientCommand::Close => Ok(self.close(client, context)),
            ClientCommand::SetName(label) => self.label(client, &label),
            ClientCommand::Serve(subscription) => self.serve_queue(client, subscription, context),
            ClientCommand::Unserve { queue, requeue } => self.unserve(client, &queue, requeue, context),
            ClientCommand::UnserveAll { requeue } => self.unserve_all(client, requeue, context),
        }
    }

    // one job, from outside: `push`, `edit`, `track`
    fn job_command(
        &mut self,
        client: ClientId,
        tag: Tag,
        command: JobCommand,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        match command {
            JobCommand::Push(job) => self.push(client, tag, &job, context),
            JobCommand::Track { job, progress, text, until } => {
                self.track(client, tag, &job, (progress, text), until, context)
            }
            JobCommand::Replace { job, body } => self.replace(client, tag, &job, &body, context),
            JobCommand::Cancel(job) => self.cancel(client, tag, &job, context),
        }
    }

    // jobs out: `take`, `wait`
    fn take_command(
        &mut self,
        client: ClientId,
        tag: Tag,
        command: TakeCommand,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        match command {
            TakeCommand::Take(take) => self.take(client, tag, take, context),
            TakeCommand::WaitForWork => self.sleep(client, context),
            TakeCommand::Credit { credits, select } => self.credit(client, credits, select, context),
            TakeCommand::Unwait => Ok(self.unwait(client, context)),
        }
    }

    // jobs done: `end`, `cycle`
    fn lease_command(
        &mut self,
        client: ClientId,
        tag: Tag,
        command: LeaseCommand,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        match command {
            LeaseCommand::Finish { job, proof, result } => self.finish(client, tag, &job, proof, result, context),
            LeaseCommand::Fail { job, proof, failure } => self.fail(client, tag, &job, proof, failure, context),
            LeaseCommand::Unconvertible { job, proof, why } => self.misfit(client, tag, &job, proof, &why, context),
            LeaseCommand::Release { job, proof, front } => self.release(client, tag, &job, proof, front, context),
            LeaseCommand::Extend { job, proof, until, only_later } => {
                self.extend(client, tag, &job, proof, (until, only_later), context)
            }
            LeaseCommand::Repay { job, proof, body, to } => self.repay(client, tag, &job, proof, (body, to), context),
            LeaseCommand::Progress { job, proof, note } => self.hear(client, tag, &job, proof, note, context),
        }
    }

    // queues: `edit`, `throttle`, `rules`, `isolation`
    fn queue_command(
        &mut self,
        client: ClientId,
        tag: Tag,
        command: QueueCommand,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        match command {
            QueueCommand::Create { queue, kind } => self.create_queue(client, tag, &queue, kind, context),
            QueueCommand::Remove { queue, only_idle } => self.remove_queue(client, tag, &queue, only_idle, context),
            QueueCommand::Pause { queue, paused } => Ok(self.pause_queue(client, tag, &queue, paused, context)),
            QueueCommand::Limit { queue, jobs_max } => self.limit_queue(client, tag, &queue, jobs_max, context),
            QueueCommand::Throttle { queue, throttle } => self.throttle_queue(client, tag, &queue, throttle, context),
            QueueCommand::Bridge(bridge) => Ok(self.bridge(client, tag, *bridge, context)),
            QueueCommand::SetRules { queue, rules } => self.rule_queue(client, tag, &queue, rules, context),
        }
    }

    // schedules: `recur`
    fn schedule_command(
        &mut self,
        client: ClientId,
        tag: Tag,
        command: ScheduleCommand,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        match command {
            ScheduleCommand::Set(new) => self.set_schedule(client, tag, *new, context),
            ScheduleCommand::Remove(which) => self.remove_schedule(client, tag, &which, context),
        }
    }

    // batches: `gather`
    fn batch_command(
        &mut self,
        client: ClientId,
        tag: Tag,
        command: BatchCommand,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        match command {
            BatchCommand::New(new) => self.new_batch(client, tag, *new, context),
            BatchCommand::Open { batch, hold_ms } => self.open_batch(client, tag, (&batch, hold_ms), context),
            BatchCommand::Commit { batch } => self.commit_batch(client, tag, &batch, context),
        }
    }

    // many jobs: `list`, `flush`
    fn bulk_command(&mut self, client: ClientId, tag: Tag, command: BulkCommand, context: &mut Context) {
        match command {
            BulkCommand::Mutate { filter, action, after, limit } => {
                self.mutate(client, tag, &filter, action, (after, limit), context)
            }
            BulkCommand::Flush { protocol, after, limit } => self.flush(client, tag, protocol, (after, limit), context),
        }
    }

    // workers by name: `workers`
    fn worker_command(
        &mut self,
        client: ClientId,
        tag: Tag,
        command: WorkerCommand,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        match command {
            WorkerCommand::Register { worker, about } => self.enlist(client, tag, &worker, about, context),
            WorkerCommand::Beat { worker, state } => self.beat(client, tag, &worker, state, context),
            WorkerCommand::SetState { worker, state } => self.signal(client, tag, &worker, state, context),
        }
    }
}
