//! Workers known by name.

use windlass_engine::{
    AttemptEnd, ClientId, Holder, JobId, JobState, Lease, LeaseTerms, Notice, OnExpiry, Protocol,
    Refusal, Reply, Thing, WorkerState,
};

use super::{Answer, JobMemo, Oracle, WorkerMemo, id_of};

impl Oracle {
    pub(super) fn worker_named(&self, name: &[u8]) -> Option<&WorkerMemo> {
        self.workers.iter().find(|worker| worker.name == name)
    }

    pub(super) fn enlist(
        &mut self,
        client: ClientId,
        name: &bytes::Bytes,
        about: &bytes::Bytes,
    ) -> Answer {
        self.check_name(name)?;
        if name.is_empty() {
            return Err(Refusal::NotFound(Thing::Worker));
        }
        if self.open_client(client)?.worker.is_some() {
            return Err(Refusal::OutOfPlace);
        }
        let number = match self.worker_named(name) {
            Some(worker) => worker.number,
            None => {
                let number = self.next_worker;
                self.next_worker += 1;
                let (name, state, beat_at) = (name.clone(), WorkerState::Running, self.now);
                let protocol = self.client(client).and_then(|client| client.info.protocol);
                let about = bytes::Bytes::new();
                self.workers.push(WorkerMemo {
                    number,
                    name,
                    about,
                    state,
                    beat_at,
                    memory_bytes: None,
                    protocol,
                });
                number
            }
        };
        if let Some(worker) = self
            .workers
            .iter_mut()
            .find(|worker| worker.number == number)
        {
            worker.about = about.clone();
        }
        self.open_client(client)?.worker = Some(number);
        if self.is_quiet(client) {
            self.fall_quiet(&[client]);
        }
        Ok(Some(Reply::Done))
    }

    pub(super) fn beat(
        &mut self,
        name: &[u8],
        (state, memory_bytes): (Option<WorkerState>, Option<u64>),
    ) -> Answer {
        let now = self.now;
        let worker = self
            .workers
            .iter_mut()
            .find(|w| w.name == name)
            .ok_or(Refusal::NotFound(Thing::Worker))?;
        worker.beat_at = now;
        worker.memory_bytes = memory_bytes.or(worker.memory_bytes);
        let number = worker.number;
        if let Some(state) = state {
            self.move_on(number, state);
        }
        let state = self
            .worker_named(name)
            .map_or(WorkerState::Running, |worker| worker.state);
        Ok(Some(Reply::Beaten(state)))
    }

    pub(super) fn signal(&mut self, name: &[u8], state: WorkerState) -> Answer {
        let meant = |worker: &&WorkerMemo| name.is_empty() || worker.name == name;
        let numbers: Vec<u64> = self
            .workers
            .iter()
            .filter(meant)
            .map(|worker| worker.number)
            .collect();
        if numbers.is_empty() && !name.is_empty() {
            return Err(Refusal::NotFound(Thing::Worker));
        }
        for number in numbers {
            self.move_on(number, state);
        }
        Ok(Some(Reply::Done))
    }

    /// The daemon begins: the workers that had reservations before may come back.
    pub(super) fn await_workers(&mut self) {
        for name in std::mem::take(&mut self.returning) {
            let number = self.next_worker;
            self.next_worker += 1;
            let about = bytes::Bytes::new();
            let (state, beat_at, protocol) =
                (WorkerState::Running, self.now, Some(Protocol::FAKTORY));
            for memo in &mut self.jobs {
                let is_its = |lease: &Lease| lease.holder == Holder::Named(name.clone());
                if memo
                    .job
                    .lease()
                    .is_some_and(|lease| is_its(lease) && lease.on_expiry == OnExpiry::Fail)
                {
                    memo.lease_worker = Some(number);
                }
            }
            let name = name.into_vec().into();
            self.workers.push(WorkerMemo {
                number,
                name,
                about,
                state,
                beat_at,
                memory_bytes: None,
                protocol,
            });
        }
    }

    /// The daemon stops in order: the jobs that workers have over connections wait for them.
    pub(crate) fn leave(&mut self) {
        let until = self.now.after_ms(self.limits.return_ms);
        let left = |memo: &JobMemo| {
            let holder = Holder::Away(self.protocol_of(memo.connection()?)?);
            let Lease {
                token, taken_at, ..
            } = *memo.job.lease()?;
            let is_kept = memo.job.durable && memo.job.cycle().is_none();
            is_kept.then(|| {
                (
                    memo.job.id,
                    Lease::new(holder, token, taken_at, until, OnExpiry::Requeue),
                )
            })
        };
        let all: Vec<_> = self.jobs.iter().filter_map(left).collect();
        for (job, lease) in all {
            self.see("Away::Left");
            self.put(job, JobState::Leased(Box::new(lease)));
        }
        self.freed.clear();
    }

    /// A worker's report on a job that it had before the stop: it has the job over its connection again.
    pub(super) fn come_back(&mut self, client: ClientId, id: JobId) {
        let memo = self.job(id).expect("it was just found");
        let Some(Lease {
            token,
            taken_at,
            holder: Holder::Away(_),
            ..
        }) = memo.job.lease().cloned()
        else {
            return;
        };
        let mut served = self
            .client(client)
            .expect("it has sent a command")
            .subscriptions
            .iter();
        let served = served.find(|served| served.queue == memo.job.queue);
        let terms = served.map_or(LeaseTerms::CONNECTION, |served| served.lease);
        let (until, on_expiry) = self.lease_end(terms, memo);
        let lease = Lease::new(
            Holder::Connection(client),
            token,
            taken_at,
            until,
            on_expiry,
        );
        self.see("Away::Returns");
        self.put(id, JobState::Leased(Box::new(lease)));
    }

    /// The daemon begins: the workers that had jobs over connections before may come back.
    pub(super) fn await_return(&mut self) {
        let until = self.now.after_ms(self.limits.return_ms);
        let begins = std::mem::take(&mut self.begins);
        if begins {
            self.began = self.wall();
            self.await_quiet();
        }
        for memo in self.jobs.iter_mut().filter(|memo| begins && memo.is_away()) {
            if let JobState::Leased(lease) = &mut memo.job.state {
                (lease.until, memo.lease_due) = (until, until);
            }
        }
    }

    fn clients_of(&self, number: u64) -> Vec<ClientId> {
        self.clients
            .iter()
            .filter(|client| client.worker == Some(number))
            .map(|client| client.id)
            .collect()
    }

    /// States only advance. From quiet on, the worker's clients take no work.
    fn move_on(&mut self, number: u64, state: WorkerState) {
        let Some(worker) = self
            .workers
            .iter_mut()
            .find(|w| w.number == number && w.state < state)
        else {
            return;
        };
        worker.state = state;
        let clients = self.clients_of(number);
        self.fall_quiet(&clients);
    }

    /// One of its connections has closed; with the last connection the worker is forgotten.
    pub(super) fn leave_worker(&mut self, number: u64) {
        if self.clients_of(number).is_empty() {
            self.forget_worker(number);
        }
    }

    /// It missed its heartbeat.
    pub(super) fn miss_beat(&mut self, number: u64) {
        let clients = self.clients_of(number);
        let protocol = clients
            .first()
            .and_then(|id| self.client(*id)?.info.protocol);
        self.count_protocol(protocol, |totals| totals.workers_lost += 1);
        let mut woken_for = Vec::new();
        for id in clients {
            woken_for.extend(self.stop_waiting(id));
            self.notify(id, Notice::Close);
            if let Ok(client) = self.open_client(id) {
                client.worker = None;
            }
        }
        woken_for.into_iter().for_each(|queue| self.serve(queue));
        self.forget_worker(number);
    }

    fn forget_worker(&mut self, number: u64) {
        let Some(at) = self
            .workers
            .iter()
            .position(|worker| worker.number == number)
        else {
            return;
        };
        let own = self.workers.remove(at).protocol;
        let held = self
            .jobs
            .iter()
            .filter(|memo| memo.lease_worker == Some(number));
        let foreign = |memo: &JobMemo| {
            own.is_some_and(|own| memo.job.protocol != own && memo.job.cycle().is_none())
        };
        let others = held.clone().filter(|memo| foreign(memo)).count();
        let back: Vec<JobId> = held
            .filter(|memo| self.limits.requeue_dead_workers || foreign(memo))
            .map(id_of)
            .collect();
        if others > 0 {
            self.see("Worker::GivesBack");
        }
        for job in back {
            self.end_attempt(job, AttemptEnd::Lost);
            self.lose(job);
        }
    }
}
