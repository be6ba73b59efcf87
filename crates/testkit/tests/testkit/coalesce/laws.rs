//! The laws.

use std::collections::BTreeMap;

use windlass_engine::{Context, Event, Job, JobId, JobState, Notice, Reply};

use super::{Life, PAUSE_MS, Submit, ends_with, identity_of, is_over};

impl Life {
    pub(super) fn judge(&mut self, context: &Context) {
        self.engine.check();
        self.hand_over();
        for (client, event) in &context.events {
            match event {
                Event::Reply(_, Reply::Taken(taken)) | Event::Notice(Notice::Delivered(taken)) => {
                    self.leases.push((taken.id, taken.token));
                    self.started(taken.id, &taken.body);
                }
                Event::Notice(Notice::Ended { job, .. }) => {
                    let left = self
                        .awaited
                        .get_mut(&(client.0, *job))
                        .filter(|left| **left > 0);
                    *left.unwrap_or_else(|| {
                        panic!("{client:?} hears once more of the end of {job:?}")
                    }) -= 1;
                    self.tally.note("Coalesce::Heard");
                }
                Event::Reply(..) | Event::Notice(_) => {}
            }
        }
    }

    /// A job that went without a run has left its submits to another one.
    fn hand_over(&mut self) {
        let gone: Vec<JobId> = self
            .jobs
            .keys()
            .filter(|job| self.engine.job(**job).is_none())
            .copied()
            .collect();
        for job in gone {
            let Some(submits) = self.jobs.remove(&job) else {
                continue;
            };
            let left: Vec<Submit> = submits.into_iter().filter(|submit| !submit.ran).collect();
            let Some(first) = left.first() else { continue };
            let identity = identity_of(first.body.as_bytes()).to_vec();
            let takes_in = |id: &JobId| {
                let job = self
                    .engine
                    .job(*id)
                    .filter(|job| !is_over(job) && ends_with(job).is_none());
                job.is_some_and(|job| identity_of(job.body()) == identity)
            };
            let lead = self.jobs.keys().find(|id| takes_in(id)).copied();
            let lead = lead.unwrap_or_else(|| {
                panic!(
                    "{job:?} went without a run, and no job took in {}",
                    first.body
                )
            });
            self.tally.note("Coalesce::TakenIn");
            let all = self.jobs.entry(lead).or_default();
            all.extend(left);
            all.sort_by_key(|submit| submit.number);
        }
    }

    /// This job and those that end with it.
    pub(super) fn with_parts(&self, job: JobId) -> Vec<JobId> {
        let mut found = vec![job];
        let mut at = 0;
        while let Some(&lead) = found.get(at) {
            let is_part = |id: &&JobId| {
                self.engine
                    .job(**id)
                    .is_some_and(|job| ends_with(job) == Some(lead))
            };
            found.extend(self.jobs.keys().filter(is_part));
            at += 1;
        }
        found
    }

    /// How the jobs stand after what happened.
    pub(super) fn look(&self) {
        let mut live = BTreeMap::<&[u8], Vec<JobId>>::new();
        for job in self
            .engine
            .jobs()
            .filter(|job| !is_over(job) && ends_with(job).is_none())
        {
            if !self.plain.contains_key(&job.id) {
                live.entry(identity_of(job.body()))
                    .or_default()
                    .push(job.id);
            }
        }
        for (identity, mut jobs) in live {
            jobs.sort();
            assert!(jobs.len() <= 2, "{identity:?} has {jobs:?}");
            let first = self.engine.job(jobs[0]).unwrap();
            if let JobState::Scheduled(_) | JobState::Parked = first.state {
                let (_, due, first_at) = self.due(first.id).unwrap_or_default();
                let failed_at = self
                    .failed_at
                    .get(identity)
                    .map_or(0, |at| at + u64::from(PAUSE_MS));
                let left_at = self
                    .left_at
                    .get(identity)
                    .map_or(0, |at| at + self.rule.quiet_ms);
                let due = due.max(first_at + 1).max(failed_at).max(left_at);
                let is_due = self
                    .engine
                    .next_deadline()
                    .is_some_and(|at| at.0 <= self.now);
                assert!(
                    self.now < due || is_due,
                    "{first:?} could have started at {due}, now {}: {:?}, {:?}",
                    self.now,
                    self.rule,
                    self.jobs.get(&first.id),
                );
            }
        }
    }

    /// When a job may start at the earliest and at the latest, if there was a submit since it started last, and when the first
    /// one was.
    fn due(&self, job: JobId) -> Option<(u64, u64, u64)> {
        let parts = self.with_parts(job);
        let mut new: Vec<&Submit> = parts
            .iter()
            .filter_map(|part| self.jobs.get(part))
            .flatten()
            .collect();
        let identity = new
            .first()
            .map_or(&[][..], |submit| identity_of(submit.body.as_bytes()));
        let gone = self.let_go.get(identity).into_iter().flatten().copied();
        new.retain(|submit| !submit.ran);
        let first = new.iter().map(|it| it.at).min();
        let last = new.iter().map(|it| it.at).max();
        let due = |first: u64, last: u64| {
            self.rule
                .at_most_ms
                .map_or(u64::MAX, |ms| first + ms)
                .min(last + self.rule.quiet_ms)
        };
        let soonest = last.map(|last| due(gone.clone().chain(first).min().unwrap_or(last), last));
        let latest = gone
            .clone()
            .chain(last)
            .max()
            .map(|last| due(first.unwrap_or(last), last));
        Some((soonest.unwrap_or_default(), latest?, first.or(gone.max())?))
    }

    fn started(&mut self, job: JobId, body: &[u8]) {
        if let Some(ran) = self.plain.get_mut(&job) {
            *ran = true;
            return;
        }
        self.tally.note("Coalesce::Started");
        let others = self
            .engine
            .jobs()
            .filter(|other| !self.plain.contains_key(&other.id) && other.id != job);
        let same: Vec<&Job> = others
            .filter(|other| identity_of(other.body()) == identity_of(body))
            .collect();
        assert!(
            same.iter().all(|other| other.lease().is_none()),
            "{job:?} and {same:?} run at once"
        );
        if let Some((due, ..)) = self.due(job) {
            let parts = self.with_parts(job);
            let submits: Vec<_> = parts
                .iter()
                .filter_map(|part| self.jobs.get(part))
                .flatten()
                .collect();
            assert!(
                due <= self.now,
                "{job:?} starts before {due}, now {}: {:?}, {submits:?}",
                self.now,
                self.rule
            );
        }
        let own = self.jobs[&job].iter().filter(|submit| submit.job == job);
        let wins = if self.rule.latest {
            own.max_by_key(|submit| submit.number)
        } else {
            own.min_by_key(|submit| submit.number)
        };
        assert_eq!(
            wins.map(|submit| submit.body.as_bytes()),
            Some(body),
            "the body of {job:?}"
        );
        let covers = self.with_parts(job);
        let later = same
            .iter()
            .filter(|other| !is_over(other) && other.id > job && !covers.contains(&other.id));
        let waits = later
            .map(|other| other.id)
            .next()
            .filter(|_| self.rule.latest && self.rule.once_more);
        assert!(
            waits.is_none() || self.were_killed.contains(&job),
            "{job:?} starts again, and {waits:?} waits"
        );
        if covers.len() > 1 {
            self.tally.note("Coalesce::WithParts");
        }
        self.let_go.remove(identity_of(body));
        let mut new = 0;
        for submit in self
            .jobs
            .iter_mut()
            .filter(|(job, _)| covers.contains(job))
            .flat_map(|(_, submits)| submits)
        {
            new += u64::from(!submit.ran);
            submit.ran = true;
        }
        if new > 1 {
            self.tally.note("Coalesce::Several");
        }
    }
}
