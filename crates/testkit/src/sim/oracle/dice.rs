//! What the engine rolls dice for: the oracle learns the outcome, and judges whether the engine may choose it.

use windlass_engine::{Engine, Job, JobId, JobState, Timestamp};

use super::Oracle;

/// Until when the engine lets a job wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    /// As its state says. After a failure, a submit that the job took in may have moved that.
    state: Option<Timestamp>,
    /// As its last failure says, whenever that was.
    failure: Option<Timestamp>,
}

/// What a job waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Failure,
    /// Of a worker. It leaves the last failure as it was, which may be of the same millisecond.
    Loss,
}

impl Oracle {
    /// Learns what the engine has chosen by dice. Whether it may choose that is for [`Self::wait_ms`].
    pub(crate) fn learn(&mut self, engine: &Engine) {
        let chosen = |job: &Job| {
            let failure = job
                .extra
                .as_deref()
                .and_then(|extra| extra.failure.as_ref());
            let state = if let JobState::Retrying(at) = job.state {
                Some(at)
            } else {
                None
            };
            Chosen {
                state,
                failure: failure
                    .and_then(|last| last.next_at)
                    .map(|at| self.by_engine(at)),
            }
        };
        self.chosen = engine.jobs().map(|job| (job.id, chosen(job))).collect();
    }

    /// The wait that the engine has chosen for a job, if it is one of these; otherwise the shortest of these. A job that
    /// gave way may be gone, or has no time of its own: the one that followed it waits in its place.
    pub(super) fn wait_ms(
        &self,
        id: JobId,
        after: After,
        (least, step, steps): (u64, u64, u64),
    ) -> u64 {
        let is_allowed = |ms: &u64| {
            let more = ms.checked_sub(least);
            more.is_some_and(|more| more.is_multiple_of(step) && more / step < steps)
        };
        let own = self.chosen.get(&id);
        let said = own
            .filter(|_| after == After::Failure)
            .and_then(|it| it.failure);
        let follower = self.follower_of(id).and_then(|id| self.chosen.get(&id));
        let states = [own, follower]
            .into_iter()
            .flatten()
            .filter_map(|it| it.state);
        let mut waits = said
            .into_iter()
            .chain(states)
            .map(|at| at.ms_since(self.now));
        waits.find(is_allowed).unwrap_or(least)
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::{
        Backoff, Clash, ClientCommand, ClientId, ClientInfo, Coalesce, Command, Context, Engine,
        From, HistoryRules, JobCommand, JobRef, KeyUntil, LeaseCommand, LeaseTerms, Limits, NewJob,
        Proof, Protocol, QueueCommand, QueueRules, Retry, Select, Tag, Take, TakeCommand, Unique,
        Wait,
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
            let limits = Limits {
                losses_max: 0,
                loss_pause_ms: 1_000,
                history: HistoryRules {
                    keep_ms: 1,
                    ..HistoryRules::default()
                },
                ..Limits::default()
            };
            let (mut engine, oracle) = (Engine::new(limits.clone(), 1), Oracle::new(limits));
            engine.keep_history(true);
            let mut both = Self {
                now: 1_000_000,
                engine,
                oracle,
            };
            let latest = Coalesce {
                by_key: false,
                latest: true,
                quiet_ms: 0,
                at_most_ms: None,
                once_more: true,
            };
            let rules = QueueRules {
                coalesce: Some(latest),
                ..QueueRules::default()
            };
            both.ask(1, ClientCommand::Open(ClientInfo::default()));
            both.ask(
                1,
                QueueCommand::SetRules {
                    queue: "q".into(),
                    rules: rules.into(),
                },
            );
            both
        }

        fn ask(&mut self, client: u64, command: impl Into<Command>) {
            self.now += 1;
            self.ask_at_once(client, command);
        }

        /// In the same millisecond as the last one.
        fn ask_at_once(&mut self, client: u64, command: impl Into<Command>) {
            let (client, command) = (ClientId(client), command.into());
            let mut context = Context::new(Timestamp(self.now), self.now);
            self.oracle.begin(context.now, context.clock);
            self.engine
                .apply(client, Tag(1), command.clone(), &mut context);
            self.oracle.learn(&self.engine);
            self.oracle.apply(client, Tag(1), &command);
            self.oracle.compare(&self.engine);
        }

        fn submit(&mut self) {
            let unique = Unique {
                key: "k".into(),
                clash: Clash::Attach,
                until: KeyUntil::End,
            };
            let new = NewJob {
                unique: Some(unique),
                ..NewJob::new(Protocol::GEARMAN, "q".into(), "body".into())
            };
            self.ask(1, JobCommand::Push(Box::new(new)));
        }

        fn take(&mut self) {
            self.ask(2, ClientCommand::Open(ClientInfo::default()));
            self.now += 1;
            self.take_at_once();
        }

        fn take_at_once(&mut self) {
            let from = From::Listed {
                queues: vec!["q".into()],
                lease: LeaseTerms::CONNECTION,
            };
            let take = Take {
                from,
                select: Select::ListOrder,
                wait: Wait::No,
                worker: "w".into(),
            };
            self.ask_at_once(2, TakeCommand::Take(take));
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
        assert!(
            matches!(
                jobs[..],
                [Job {
                    state: JobState::Retrying(_),
                    attempts: 0,
                    ..
                }]
            ),
            "{jobs:?}"
        );
    }

    /// The pause after the loss has nothing to do with the wait after the failure. (Seed 11328.)
    #[test]
    fn a_worker_may_be_lost_in_the_millisecond_of_a_failure() {
        for now in 0..20 {
            let mut both = Both::new();
            both.now += now;
            let retry = Retry {
                failures_max: 9,
                losses_max: 0,
                backoff: Backoff::None,
            };
            let new = NewJob {
                retry,
                ..NewJob::new(Protocol::GEARMAN, "q".into(), "body".into())
            };
            both.ask(1, JobCommand::Push(Box::new(new)));
            both.take();
            both.ask(2, ClientCommand::Close);
            both.take();
            let (job, proof) = (JobRef::Id(JobId(1)), Proof::Connection);
            both.ask_at_once(
                2,
                LeaseCommand::Fail {
                    job,
                    proof,
                    failure: Box::default(),
                },
            );
            both.take_at_once();
            both.ask_at_once(2, ClientCommand::Close);
            let jobs: Vec<&Job> = both.engine.jobs().collect();
            assert!(
                matches!(
                    jobs[..],
                    [Job {
                        state: JobState::Retrying(_),
                        failures: 1,
                        ..
                    }]
                ),
                "{jobs:?}"
            );
        }
    }
}
