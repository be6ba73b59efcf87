//! What the engine rolls dice for: the oracle learns the outcome, and judges whether the engine may choose it.

use windlass_engine::{Engine, Job, JobId, JobState};

use super::Oracle;

impl Oracle {
    /// Learns what the engine has chosen by dice. Whether it may choose that is for [`Self::wait_ms`].
    pub(crate) fn learn(&mut self, engine: &Engine) {
        let wait = |job: &Job| {
            let failure = job.extra.as_deref().and_then(|extra| extra.failure.as_ref());
            let next_at = failure.and_then(|last| Some((self.by_engine(last.at), self.by_engine(last.next_at?))));
            match job.state {
                // After a failure of this turn a submit that the job took in may have moved its state.
                JobState::Retrying(at) if next_at.is_none_or(|(failed_at, _)| failed_at != self.turn.0) => Some(at),
                _ => next_at.map(|(_, next_at)| next_at),
            }
        };
        self.chosen = engine.jobs().filter_map(|job| Some((job.id, wait(job)?))).collect();
    }

    /// The wait that the engine has chosen for a job, if it is one of these; otherwise the shortest of these. A job that
    /// gave way may be gone, or has no time of its own: the one that followed it waits in its place.
    pub(super) fn wait_ms(&self, id: JobId, (least, step, steps): (u64, u64, u64)) -> u64 {
        let is_allowed = |ms: &u64| {
            let more = ms.checked_sub(least);
            more.is_some_and(|more| more.is_multiple_of(step) && more / step < steps)
        };
        let who_waits = [Some(id), self.follower_of(id)].into_iter().flatten();
        let mut chosen = who_waits.filter_map(|id| self.chosen.get(&id)).map(|at| at.ms_since(self.now));
        chosen.find(is_allowed).unwrap_or(least)
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::{
        Clash, ClientCommand, ClientId, ClientInfo, Coalesce, Command, Context, Engine, From, JobCommand, KeyUntil,
        LeaseTerms, Limits, NewJob, Protocol, QueueCommand, QueueRules, Select, Tag, Take, TakeCommand, Timestamp,
        Unique, Wait,
    };

    use super::*;

    /// An engine and its oracle, which must agree.
    struct Both {
        now: u64,
        engine: Engine,
        oracle: Oracle,
    }

    impl Both {
        fn new() -> Self {
            let limits = Limits { losses_max: 0, loss_pause_ms: 1_000, ..Limits::default() };
            let (engine, oracle) = (Engine::new(limits.clone(), 1), Oracle::new(limits));
            let mut both = Self { now: 1_000_000, engine, oracle };
            let latest = Coalesce { by_key: false, latest: true, quiet_ms: 0, at_most_ms: None, once_more: true };
            let rules = QueueRules { coalesce: Some(latest), ..QueueRules::default() };
            both.ask(1, ClientCommand::Open(ClientInfo::default()));
            both.ask(1, QueueCommand::SetRules { queue: "q".into(), rules: rules.into() });
            both
        }

        fn ask(&mut self, client: u64, command: impl Into<Command>) {
            self.now += 1;
            let (client, command) = (ClientId(client), command.into());
            let mut context = Context::new(Timestamp(self.now), self.now);
            self.oracle.begin(context.now, context.clock);
            self.engine.apply(client, Tag(1), command.clone(), &mut context);
            self.oracle.learn(&self.engine);
            self.oracle.apply(client, Tag(1), &command);
            self.oracle.compare(&self.engine);
        }

        fn submit(&mut self) {
            let unique = Unique { key: "k".into(), clash: Clash::Attach, until: KeyUntil::End };
            let new = NewJob { unique: Some(unique), ..NewJob::new(Protocol::GEARMAN, "q".into(), "body".into()) };
            self.ask(1, JobCommand::Push(Box::new(new)));
        }

        fn take(&mut self) {
            let from = From::Listed { queues: vec!["q".into()], lease: LeaseTerms::CONNECTION };
            let take = Take { from, select: Select::ListOrder, wait: Wait::No, worker: "w".into() };
            self.ask(2, ClientCommand::Open(ClientInfo::default()));
            self.ask(2, TakeCommand::Take(take));
        }
    }

    /// The job that was lost is gone by then: the one that followed it waits for the pause. (Seeds 2816 and 3704.)
    #[test]
    fn the_pause_of_a_job_that_gave_way_is_that_of_its_follower() {
        let mut both = Both::new();
        both.submit();
        both.take();
        both.ask(2, ClientCommand::Close);
        both.take();
        both.submit();
        both.ask(2, ClientCommand::Close);
        let jobs: Vec<&Job> = both.engine.jobs().collect();
        assert!(matches!(jobs[..], [Job { state: JobState::Retrying(_), attempts: 0, .. }]), "{jobs:?}");
    }
}
