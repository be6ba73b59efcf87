//! Finding things in the oracle's state.

use windlass_engine::{
    ClientId, Job, JobId, JobRef, JobState, JobStateKind, Protocol, Protocols, QueueId, Refusal,
    Thing,
};

use super::{ClientMemo, JobMemo, Oracle, QueueMemo, id_of};

impl Oracle {
    pub(crate) fn job(&self, id: JobId) -> Option<&JobMemo> {
        self.jobs.iter().find(|memo| memo.job.id == id)
    }

    pub(super) fn job_mut(&mut self, id: JobId) -> &mut JobMemo {
        self.jobs
            .iter_mut()
            .find(|memo| memo.job.id == id)
            .expect("the oracle asked for this job")
    }

    pub(crate) fn queue(&self, number: QueueId) -> &QueueMemo {
        self.queues
            .iter()
            .find(|queue| queue.number == number)
            .expect("the oracle asked for this queue")
    }

    pub(super) fn queue_mut(&mut self, number: QueueId) -> &mut QueueMemo {
        self.queues
            .iter_mut()
            .find(|queue| queue.number == number)
            .expect("the oracle asked for this queue")
    }

    pub(super) fn queue_named(&self, name: &[u8]) -> Option<&QueueMemo> {
        self.queues.iter().find(|queue| queue.name == name)
    }

    pub(crate) fn client(&self, id: ClientId) -> Option<&ClientMemo> {
        self.clients.iter().find(|client| client.id == id)
    }

    pub(super) fn open_client(&mut self, id: ClientId) -> Result<&mut ClientMemo, Refusal> {
        self.clients
            .iter_mut()
            .find(|client| client.id == id)
            .ok_or(Refusal::OutOfPlace)
    }

    /// Finds a job by a producer's name: the job leased first, else the oldest job that has not ended, else the
    /// youngest.
    pub(super) fn named(&self, name: &[u8], accepts: impl Fn(&JobMemo) -> bool) -> Option<JobId> {
        let is_it = |memo: &&JobMemo| !name.is_empty() && memo.job.name() == name && accepts(memo);
        let named = || self.jobs.iter().filter(is_it);
        let leased = named()
            .filter_map(|memo| Some((memo.job.lease()?.taken_at, memo)))
            .min_by_key(|(at, _)| *at);
        let over =
            |memo: &&JobMemo| matches!(memo.job.state, JobState::Dead(_) | JobState::Done(_));
        let found = leased
            .map(|(_, memo)| memo)
            .or_else(|| named().find(|memo| !over(memo)));
        found.or_else(|| named().next_back()).map(id_of)
    }

    /// The job that holds a coalescing key.
    pub(super) fn keyed(
        &self,
        queue: QueueId,
        protocol: windlass_engine::Protocol,
        key: &[u8],
    ) -> Option<JobId> {
        let holds =
            |job: &Job| job.queue == queue && job.protocol == protocol && job.key() == Some(key);
        self.jobs
            .iter()
            .find(|memo| memo.holds_key && holds(&memo.job))
            .map(id_of)
    }

    /// The jobs that hold a key, each with its queue.
    pub(crate) fn holders(&self, protocol: Protocol, key: &[u8]) -> Vec<(JobId, QueueId)> {
        let holds = |memo: &&JobMemo| {
            memo.holds_key && memo.job.protocol == protocol && memo.job.key() == Some(key)
        };
        self.jobs
            .iter()
            .filter(holds)
            .map(|memo| (memo.job.id, memo.job.queue))
            .collect()
    }

    /// The job, if the client may name it.
    pub(super) fn find(&self, client: ClientId, job: &JobRef) -> Result<JobId, Refusal> {
        self.find_where(job, |memo| self.may_name(client, memo))
    }

    pub(super) fn find_where(
        &self,
        job: &JobRef,
        accepts: impl Fn(&JobMemo) -> bool,
    ) -> Result<JobId, Refusal> {
        let id = match job {
            JobRef::Id(id) => self.job(*id).map(id_of),
            JobRef::Name(name) => self.named(name, &accepts),
            JobRef::Key(key) => self
                .queue_named(&key.queue)
                .and_then(|queue| self.keyed(queue.number, key.protocol, &key.key)),
            JobRef::KeyAnywhere { .. } => unreachable!("the simulator looks for these itself"),
        };
        let accepted = id.filter(|id| self.job(*id).is_some_and(&accepts));
        accepted.ok_or(Refusal::NotFound(Thing::Job))
    }

    /// A queue's ready jobs, the next to be taken first.
    pub(crate) fn ready_queue(&self, queue: QueueId) -> Vec<JobId> {
        let ready = |memo: &&JobMemo| memo.job.queue == queue && memo.job.state == JobState::Ready;
        let mut line: Vec<&JobMemo> = self.jobs.iter().filter(ready).collect();
        line.sort_by_key(|memo| memo.sort_key());
        line.into_iter().map(id_of).collect()
    }

    /// The jobs in a state: of one protocol, or all.
    pub(super) fn count(&self, queue: QueueId, of: Option<Protocol>, state: JobStateKind) -> u32 {
        let counts = |job: &Job| of.is_none_or(|of| of == job.protocol);
        let there = |memo: &&JobMemo| {
            memo.job.queue == queue && memo.job.state.kind() == state && counts(&memo.job)
        };
        u32::try_from(self.jobs.iter().filter(there).count()).unwrap_or(u32::MAX)
    }

    /// The jobs that wait, are leased, or will become ready.
    pub(super) fn count_live(&self, queue: QueueId, of: Option<Protocol>) -> u32 {
        let live = [
            JobStateKind::Ready,
            JobStateKind::Leased,
            JobStateKind::Scheduled,
            JobStateKind::Retrying,
        ];
        live.into_iter()
            .map(|state| self.count(queue, of, state))
            .sum()
    }

    pub(super) fn protocol_of(&self, client: ClientId) -> Option<Protocol> {
        self.client(client).and_then(|client| client.info.protocol)
    }

    /// From now on the queue is in the listings of a protocol, or of all.
    pub(super) fn make_known(&mut self, queue: QueueId, to: Option<Protocol>) {
        let known = &mut self.queue_mut(queue).known;
        *known = known.and(Protocols::of(to));
    }
}
