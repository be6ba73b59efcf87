//! Workers known by name: they span connections, send heartbeats, and can be asked to go quiet or to terminate.

use bytes::Bytes;

use crate::alarm::Alarm;
use crate::client::Worker;
use crate::context::Context;
use crate::engine::Engine;
use crate::event::{Notice, Reply};
use crate::ids::{ClientId, JobId, Protocol, QueueId, Tag, Timestamp};
use crate::refusal::{Refusal, Thing};
use crate::request::WorkerState;

impl Engine {
    pub(crate) fn enlist(
        &mut self,
        client: ClientId,
        tag: Tag,
        name: &Bytes,
        about: Bytes,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        self.check_name(name)?;
        // Connections that give no name do not form one worker.
        if name.is_empty() {
            return Err(Refusal::NotFound(Thing::Worker));
        }
        if self.client(client)?.worker.is_some() {
            return Err(Refusal::OutOfPlace);
        }
        let number = match self.worker_names.get(name.as_ref()) {
            Some(number) => *number,
            None => self.new_worker(name, self.protocol_of(client)),
        };
        if let Some(worker) = self.workers.get_mut(&number) {
            worker.about = about;
            worker.clients.insert(client);
        }
        self.client(client)?.worker = Some(number);
        if self.is_quiet(client, name) {
            self.hush(&[client], context);
        }
        self.tell_done(client, tag, context);
        Ok(())
    }

    fn new_worker(&mut self, name: &[u8], protocol: Option<Protocol>) -> u64 {
        let number = self.next_worker;
        self.next_worker += 1;
        let alarm_at = self.now.after_ms(self.limits.beat_ms);
        let worker = Worker {
            name: name.into(),
            about: Bytes::new(),
            state: WorkerState::Running,
            beat_at: self.now,
            alarm_at,
            clients: std::collections::BTreeSet::new(),
            protocol,
            held: std::collections::BTreeSet::new(),
        };
        self.worker_names.insert(name.into(), number);
        self.workers.insert(number, worker);
        self.alarms.set(alarm_at, Alarm::Beat(number));
        number
    }

    pub(crate) fn beat(
        &mut self,
        client: ClientId,
        tag: Tag,
        name: &Bytes,
        state: Option<WorkerState>,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let number = *self.worker_names.get(name.as_ref()).ok_or(Refusal::NotFound(Thing::Worker))?;
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&number) else { return Err(Refusal::NotFound(Thing::Worker)) };
        worker.beat_at = now;
        if let Some(state) = state {
            self.move_worker(number, state, context);
        }
        let state = self.workers.get(&number).map_or(WorkerState::Running, |worker| worker.state);
        context.reply(client, tag, Reply::Beaten(state));
        Ok(())
    }

    pub(crate) fn signal(
        &mut self,
        client: ClientId,
        tag: Tag,
        name: &Bytes,
        state: WorkerState,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let numbers = match self.worker_names.get(name.as_ref()) {
            Some(number) => vec![*number],
            None if name.is_empty() => self.workers.keys().copied().collect(),
            None => return Err(Refusal::NotFound(Thing::Worker)),
        };
        numbers.into_iter().for_each(|number| self.move_worker(number, state, context));
        self.tell_done(client, tag, context);
        Ok(())
    }

    /// Moves a worker to a later state; never back. From quiet on, none of its connections is given work.
    fn move_worker(&mut self, number: u64, state: WorkerState, context: &mut Context) {
        let Some(worker) = self.workers.get_mut(&number).filter(|worker| worker.state < state) else { return };
        worker.state = state;
        let clients: Vec<ClientId> = worker.clients.iter().copied().collect();
        self.hush(&clients, context);
    }

    /// These clients take no more. Jobs for which they were woken go to other clients, but not to one of these.
    fn hush(&mut self, clients: &[ClientId], context: &mut Context) {
        let woken_for: Vec<QueueId> = clients.iter().filter_map(|client| self.wait_at_nothing(*client)).collect();
        woken_for.into_iter().for_each(|queue| self.serve(queue, context));
    }

    /// One of a worker's connections has closed. With its last connection the worker is forgotten.
    pub(crate) fn leave_worker(&mut self, number: u64, client: ClientId, context: &mut Context) {
        let Some(worker) = self.workers.get_mut(&number) else { return };
        worker.clients.remove(&client);
        if worker.clients.is_empty() {
            self.forget_worker(number, context);
        }
    }

    /// A worker may have missed its heartbeat. If so, its connections are dismissed; otherwise the alarm is set anew.
    pub(crate) fn miss_beat(&mut self, number: u64, at: Timestamp, context: &mut Context) {
        let Some(worker) = self.workers.get_mut(&number) else { return };
        let due = worker.beat_at.after_ms(self.limits.beat_ms);
        if due > at {
            worker.alarm_at = due;
            self.alarms.forget(at);
            return self.alarms.set(due, Alarm::Beat(number));
        }
        let clients = worker.clients.clone();
        let protocol = clients.first().and_then(|id| self.clients.get(id)?.info.protocol);
        match protocol {
            Some(protocol) => self.head.count(protocol, |totals| totals.dismissed += 1),
            None => self.head.totals.dismissed += 1,
        }
        // A worker that counts as dead is given no more jobs.
        let woken_for: Vec<QueueId> = clients.iter().filter_map(|client| self.stop_waiting(*client)).collect();
        for id in clients {
            context.notify(id, Notice::Dismissed);
            if let Some(client) = self.clients.get_mut(&id) {
                client.worker = None;
            }
        }
        woken_for.into_iter().for_each(|queue| self.serve(queue, context));
        self.forget_worker(number, context);
    }

    /// Forgets a worker. Its time-bound leases on jobs of its own protocol continue, unless the configuration requeues them at
    /// once. Jobs of other protocols are requeued: their clients do not know such leases.
    fn forget_worker(&mut self, number: u64, context: &mut Context) {
        let Some(worker) = self.workers.remove(&number) else { return };
        self.alarms.forget(worker.alarm_at);
        self.worker_names.remove(&worker.name);
        let is_foreign = |job: &JobId| {
            worker
                .protocol
                .is_some_and(|own| self.job(*job).is_some_and(|job| job.protocol != own && job.cycle().is_none()))
        };
        let all = self.limits.requeue_dead_workers;
        let back: Vec<JobId> = worker.held.iter().copied().filter(|job| all || is_foreign(job)).collect();
        back.into_iter().for_each(|job| self.lose_job(job, context));
    }
}
