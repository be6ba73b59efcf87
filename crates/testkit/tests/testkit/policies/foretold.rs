//! What people are told before it happens: the list of the next jobs is the list of the starts that follow if nothing
//! happens but that a worker takes jobs, and no job starts before the time that is named for it.

use windlass_engine::{
    Cursor, Event, Filter, From, JobId, JobRef, JobState, JobStateKind, Order, Query, Reply,
    Select, Take, TakeCommand, Timestamp, Wait, Why,
};

use super::{Life, PRODUCER, QUEUE};

/// A client that takes jobs at once, and keeps them as long as its connection lives.
const TAKER: u64 = 4;

/// Starts that are compared.
const STARTS: usize = 6;

impl Life {
    pub(super) fn foretell(&mut self) {
        self.tick();
        for client in std::mem::take(&mut self.waiting) {
            self.ask(client, TakeCommand::Unwait);
        }
        let next = self.next_jobs();
        // What else is about to happen.
        let other = |state: &JobState| match state {
            JobState::Scheduled(at) | JobState::Retrying(at) => *at,
            JobState::Leased(lease) => lease.until,
            JobState::Ready | JobState::Dead(_) | JobState::Parked | JobState::Done(_) => {
                Timestamp::NEVER
            }
        };
        let others_at = self
            .engine
            .jobs()
            .map(|job| other(&job.state))
            .min()
            .unwrap_or(Timestamp::NEVER);
        let told: Vec<(JobId, u64)> = next
            .iter()
            .zip(0..)
            .map(|(job, before)| (*job, self.told(*job, before)))
            .take(STARTS)
            .collect();
        for (job, at) in told {
            if at >= others_at.0 {
                return;
            }
            if at > self.now {
                self.tally.note("Policy::ForetoldLater");
                self.now = self.now.max(at - 1);
                assert_eq!(self.taken(), None, "{job:?} starts at {at}");
            }
            self.now = self.now.max(at);
            assert_eq!(self.taken(), Some(job), "at {at}");
            self.tally.note("Policy::Foretold");
        }
        if next.len() <= STARTS && self.engine.next_deadline().is_none() {
            assert_eq!(self.taken(), None, "no other job may start");
        }
    }

    /// The next jobs, as a page shows them.
    fn next_jobs(&mut self) -> Vec<JobId> {
        let filter = Filter {
            state: Some(JobStateKind::Ready),
            queue: Some(QUEUE.into()),
            ..Filter::default()
        };
        let (mut jobs, mut after) = (Vec::new(), Some(Cursor::default()));
        while let Some(from) = after {
            let limit = self.rng.one_of([1, 3, 100]);
            let query = Query::JobsBy {
                order: Order::Next,
                filter: Box::new(filter.clone()),
                after: from,
                limit,
            };
            let events = self.ask(PRODUCER, query);
            let [Event::Reply(_, Reply::Jobs { rows, next })] = &events[..] else {
                panic!("{events:?}")
            };
            jobs.extend(rows.iter().map(|row| row.job.id));
            after = *next;
        }
        jobs
    }

    /// The earliest time that is named for a job, which has this many before it.
    fn told(&mut self, job: JobId, before: u32) -> u64 {
        let events = self.ask(PRODUCER, Query::Why(JobRef::Id(job)));
        let [Event::Reply(_, Reply::Why(Why::Turn(turn)))] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((turn.jobs, turn.more), (before, false), "{turn:?}");
        turn.at
            .unwrap_or_else(|| panic!("{job:?} is about to start: {turn:?}"))
            .0
    }

    fn taken(&mut self) -> Option<JobId> {
        self.tick();
        let take = Take {
            from: From::Subscriptions,
            select: Select::ListOrder,
            wait: Wait::No,
            worker: "".into(),
        };
        let events = self.ask(TAKER, TakeCommand::Take(take));
        match &events[..] {
            [Event::Reply(_, Reply::Taken(taken))] => Some(taken.id),
            [Event::Reply(_, Reply::Empty)] => None,
            _ => panic!("{events:?}"),
        }
    }
}
