//! The way of each command to the rule for it.

use windlass_engine::{
    BatchCommand, BulkCommand, ClientCommand, ClientId, Command, JobCommand, LeaseCommand, Query,
    QueueCommand, Reply, ScheduleCommand, Tag, TakeCommand, WorkerCommand,
};

use super::{Answer, Oracle};

impl Oracle {
    pub(super) fn ask(&mut self, client: ClientId, tag: Tag, command: &Command) -> Answer {
        match command {
            Command::Client(ClientCommand::Open(info)) => self.open(client, info),
            Command::Client(ClientCommand::Close) => self.close(client),
            Command::Client(ClientCommand::SetName(label)) => self.label(client, label),
            Command::Client(ClientCommand::Serve(subscription)) => {
                self.serve_queue(client, subscription)
            }
            Command::Client(ClientCommand::Unserve { queue, requeue }) => {
                self.unserve(client, Some(queue), *requeue)
            }
            Command::Client(ClientCommand::UnserveAll { requeue }) => {
                self.unserve(client, None, *requeue)
            }
            Command::Job(JobCommand::Push(new)) => self.push(client, new),
            Command::Take(TakeCommand::Take(take)) => self.take(client, tag, take),
            Command::Take(TakeCommand::WaitForWork) => self.sleep(client),
            Command::Take(TakeCommand::Credit { credits, select }) => {
                self.credit(client, *credits, *select)
            }
            Command::Take(TakeCommand::Unwait) => self.unwait(client),
            Command::Lease(LeaseCommand::Finish { job, proof, result }) => {
                self.finish(client, (job, *proof), result)
            }
            Command::Lease(LeaseCommand::Fail {
                job,
                proof,
                failure,
            }) => self.fail(client, (job, *proof), failure),
            Command::Lease(LeaseCommand::Unconvertible { job, proof, why }) => {
                self.misfit(client, (job, *proof), why)
            }
            Command::Lease(LeaseCommand::Release { job, proof, front }) => {
                self.release(client, (job, *proof), *front)
            }
            Command::Lease(LeaseCommand::Extend {
                job,
                proof,
                until,
                only_later,
            }) => self.extend(client, (job, *proof), *until, *only_later),
            Command::Lease(LeaseCommand::Repay {
                job,
                proof,
                body,
                to,
            }) => self.repay(client, (job, *proof), body, *to),
            Command::Lease(LeaseCommand::Progress { job, proof, note }) => {
                self.tell(client, (job, *proof), note)
            }
            Command::Job(JobCommand::Track {
                job,
                progress,
                text,
                until,
            }) => self.track(client, job, (*progress, text.as_ref()), *until),
            Command::Job(JobCommand::Replace { job, body }) => self.replace(client, job, body),
            Command::Job(JobCommand::Cancel(job)) => self.cancel(client, job),
            Command::Job(JobCommand::Collect { name, from }) => self.collect(client, name, *from),
            Command::Queue(_) | Command::Schedule(_) | Command::Batch(_) | Command::Worker(_) => {
                self.ask_of_things(client, command)
            }
            _ => self.ask_about(client, command),
        }
    }

    /// Queues, schedules, batches and workers.
    fn ask_of_things(&mut self, client: ClientId, command: &Command) -> Answer {
        match command {
            Command::Queue(QueueCommand::Create { queue, kind }) => {
                self.create_queue(client, queue, *kind)
            }
            Command::Queue(QueueCommand::Remove { queue, only_idle }) => {
                self.remove_queue(client, queue, *only_idle)
            }
            Command::Queue(QueueCommand::Pause { queue, paused }) => {
                self.pause_queue(client, queue, *paused)
            }
            Command::Queue(QueueCommand::Limit { queue, jobs_max }) => {
                self.limit_queue(client, queue, jobs_max)
            }
            Command::Queue(QueueCommand::Throttle { queue, throttle }) => {
                self.throttle_queue(client, queue, *throttle)
            }
            Command::Queue(QueueCommand::Bridge(bridge)) => self.bridge(bridge),
            Command::Queue(QueueCommand::SetRules { queue, rules }) => {
                self.rule_queue(client, queue, **rules)
            }
            Command::Queue(QueueCommand::SetPatterns(patterns)) => self.rule_patterns(patterns),
            Command::Schedule(ScheduleCommand::Set(new)) => self.set_schedule(new),
            Command::Schedule(ScheduleCommand::Remove(which)) => {
                self.remove_schedule(client, which)
            }
            Command::Schedule(ScheduleCommand::Run(which)) => self.run_now(client, which),
            Command::Schedule(ScheduleCommand::Pause { schedule, paused }) => {
                self.pause_schedule(client, schedule, *paused)
            }
            Command::Batch(BatchCommand::New(new)) => self.new_batch(new),
            Command::Batch(BatchCommand::Open { batch, hold_ms }) => {
                self.open_batch(client, batch, *hold_ms)
            }
            Command::Batch(BatchCommand::Commit { batch }) => self.commit_batch(client, batch),
            Command::Worker(WorkerCommand::Register { worker, about }) => {
                self.enlist(client, worker, about)
            }
            Command::Worker(WorkerCommand::Beat {
                worker,
                state,
                memory_bytes,
            }) => self.beat(worker, (*state, *memory_bytes)),
            Command::Worker(WorkerCommand::SetState { worker, state }) => {
                self.signal(worker, *state)
            }
            Command::Worker(WorkerCommand::Drain) => {
                unreachable!("only the daemon itself sends this")
            }
            _ => unreachable!("{command:?} is of another family"),
        }
    }

    /// Queries, and what the script has none of.
    fn ask_about(&mut self, client: ClientId, command: &Command) -> Answer {
        match command {
            Command::Query(Query::Job(job)) => self.look(client, job),
            Command::Query(Query::Attempts(job)) => self.list_attempts(client, job),
            Command::Query(Query::Schedules {
                protocol,
                after,
                limit,
            }) => self.list_schedules(client, *protocol, (*after, *limit)),
            Command::Query(Query::Batch { batch }) => self.look_batch(client, batch),
            Command::Query(Query::Queue { queue }) => self.look_queue(client, queue),
            Command::Query(Query::Queues { after, limit }) => {
                self.list_queues(client, *after, *limit)
            }
            Command::Query(Query::Workers { after, limit }) => self.list_workers(*after, *limit),
            Command::Query(Query::Clients { after, limit }) => {
                self.list_clients(client, *after, *limit)
            }
            Command::Query(Query::Stats) => self.stats(client),
            Command::Query(Query::Days) => self.count_days(),
            // The script has none of these: a reply would be a difference.
            Command::Client(ClientCommand::Disconnect(_) | ClientCommand::Watch { .. })
            | Command::Query(
                Query::Why(_)
                | Query::Figures { .. }
                | Query::Kinds { .. }
                | Query::Batches { .. }
                | Query::Throttles { .. }
                | Query::Keys { .. },
            ) => Ok(None),
            Command::Barrier => Ok(Some(Reply::Settled)),
            Command::Query(Query::Configured { .. } | Query::WorkLeft) | Command::Claim(_) => {
                unreachable!("only the daemon itself sends this")
            }
            Command::Query(Query::Jobs { .. } | Query::JobsBy { .. } | Query::Preview { .. })
            | Command::Bulk(BulkCommand::Mutate { .. })
            | Command::Bulk(BulkCommand::Flush { .. }) => {
                unreachable!("the simulator walks listings itself")
            }
            _ => unreachable!("{command:?} is of another family"),
        }
    }
}
