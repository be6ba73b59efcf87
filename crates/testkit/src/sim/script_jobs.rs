//! Generates pushes and takes: jobs with every option, takes of every form.

use bytes::Bytes;
use windlass_engine::{
    Backoff, Bridge, Clash, Coalesce, Codec, Cron, Expiry, From, Job, JobCommand, JobId, KeySource,
    KeyUntil, LeaseTerms, Listen, NewBatch, NewJob, NewSchedule, OnExpiry, Patterns, Policy,
    Priority, QueueKind, QueueRules, QueueSettings, READ_KEY, Recurrence, Retry, ScheduleRef,
    Select, Subscription, Take, Timestamp, Unique, Wait, Zone,
};

use super::script::Script;

impl Script<'_> {
    pub(crate) fn job(&mut self) -> NewJob {
        let queue = self.queue();
        let longest = self.rng.one_of([20, 20, 20, 100]);
        let (protocol, body, kind) = (self.protocol(), self.bytes(longest), self.kind_of(&queue));
        let durable = self.rng.chance(80);
        let listen = match self.rng.chance(if durable { 45 } else { 97 }) {
            true if self.rng.chance(85) => Listen::As(self.collector()),
            true => Listen::Yes,
            false => Listen::No,
        };
        let joins = if self.oracle.live_batches().next().is_some() {
            35
        } else {
            2
        };
        let job = NewJob {
            kind,
            priority: Priority::clamped(self.rng.one_of([0, 1, 5, 5, 5, 6, 9, 200])),
            durable,
            listen,
            front: self.rng.chance(15),
            name: if self.rng.chance(40) {
                Some(self.name())
            } else {
                None
            },
            name_unique: self.rng.chance(15),
            meta: if self.rng.chance(20) {
                self.bytes(6)
            } else {
                bytes::Bytes::new()
            },
            unique: if self.rng.chance(40) {
                Some(self.unique())
            } else {
                None
            },
            not_before: if self.rng.chance(20) {
                Some(self.wall_time())
            } else {
                None
            },
            expires: match self.rng.below(14) {
                0 => Expiry::At(self.wall_time()),
                1 => Expiry::By(self.time()),
                _ => Expiry::Never,
            },
            retry: self.retry(),
            retry_default: self.rng.chance(40),
            track_ms: self.rng.one_of([0, 0, 0, 30, 5_000]),
            result_keep_ms: self.rng.one_of([0, 0, 30, 5_000, 50_000]),
            lease_ms: if self.rng.chance(20) {
                Some(self.rng.below(self.world.pace_ms))
            } else {
                None
            },
            batch: if self.rng.chance(joins) {
                Some(self.batch())
            } else {
                None
            },
            again_of: self.rng.chance(5).then(|| JobId(self.rng.below(50))),
            ..NewJob::new(protocol, queue, body)
        };
        if self.rng.chance(20) {
            self.submitted_again(job)
        } else {
            job
        }
    }

    /// One more submit of a job that submits have become, if there is such a job.
    fn submitted_again(&mut self, new: NewJob) -> NewJob {
        let jobs = self.oracle.jobs.iter().map(|memo| &memo.job);
        let submitted = jobs.filter(|job| {
            job.extra
                .as_deref()
                .is_some_and(|extra| extra.coalesced.is_some())
        });
        let submitted: Vec<&Job> = submitted.collect();
        let running: Vec<&Job> = submitted
            .iter()
            .copied()
            .filter(|job| job.lease().is_some())
            .collect();
        let some = if running.is_empty() || self.rng.chance(40) {
            &submitted
        } else {
            &running
        };
        let Some(job) = self.rng.pick(some).copied() else {
            return new;
        };
        let (queue, key) = (
            self.oracle.queue(job.queue).name.clone(),
            job.key().unwrap_or_default(),
        );
        let new = NewJob {
            protocol: job.protocol,
            queue,
            kind: QueueKind::Work,
            batch: None,
            ..new
        };
        match key.strip_prefix(READ_KEY) {
            Some(read) => NewJob {
                body: [read, b"b", &new.body].concat().into(),
                ..new
            },
            None => NewJob {
                unique: Some(Unique {
                    key: Bytes::copy_from_slice(key),
                    ..self.unique()
                }),
                ..new
            },
        }
    }

    pub(crate) fn collect(&mut self) -> JobCommand {
        let name = self.collector();
        let from = if self.rng.chance(80) {
            JobId(0)
        } else {
            JobId(self.rng.below(50))
        };
        JobCommand::Collect { name, from }
    }

    /// A name under which ends are collected.
    fn collector(&mut self) -> bytes::Bytes {
        bytes::Bytes::from_static(self.rng.one_of([&b"one"[..], b"two", b"three", b"four"]))
    }

    /// A batch: mostly with callbacks, sometimes inside another.
    pub(crate) fn new_batch(&mut self) -> NewBatch {
        let name = self
            .rng
            .pick(&self.world.batches)
            .cloned()
            .unwrap_or_default();
        let nested = self.rng.chance(40);
        let batches: Vec<_> = self.oracle.live_batches().collect();
        // The oldest that is over is the first to be forgotten for a new one, but not for its own child.
        let over = batches
            .iter()
            .find(|batch| batch.progress.committed && batch.progress.success.is_over());
        let parent = over
            .filter(|_| self.rng.chance(50))
            .or_else(|| self.rng.pick(&batches))
            .filter(|_| nested);
        let parent = parent.map(|batch| (batch.name.clone(), batch.protocol));
        let protocol = parent
            .as_ref()
            .map_or_else(|| self.protocol(), |(_, protocol)| *protocol);
        NewBatch {
            protocol,
            name,
            parent: parent.map(|(name, _)| name),
            about: self.bytes(5),
            meta: self.bytes(3),
            complete: self.callback(),
            success: self.callback(),
            expires_ms: self.rng.below(self.world.pace_ms * 20),
        }
    }

    fn callback(&mut self) -> Option<Box<NewJob>> {
        let mut job = self.job();
        if !self.rng.chance(3) {
            (job.durable, job.listen, job.batch) = (true, Listen::No, None);
        }
        Some(Box::new(job)).filter(|_| self.rng.chance(70))
    }

    /// A schedule: mostly soon and frequent, sometimes once in a leap year, sometimes never.
    pub(crate) fn schedule(&mut self) -> NewSchedule {
        let now = self.oracle.now;
        // A template's times are relative to each run.
        let span = |at: Timestamp| {
            if at == Timestamp::NEVER {
                at
            } else {
                Timestamp(at.ms_since(now))
            }
        };
        let mut job = self.job();
        if !self.rng.chance(4) {
            (job.durable, job.listen, job.batch) = (true, Listen::No, None);
        }
        let wall = now.shifted(self.oracle.skew_ms());
        let span_by_wall = |at: Timestamp| {
            if at == Timestamp::NEVER {
                at
            } else {
                Timestamp(at.ms_since(wall))
            }
        };
        job.not_before = job.not_before.map(span_by_wall);
        match &mut job.expires {
            Expiry::At(at) => *at = span_by_wall(*at),
            Expiry::By(at) => *at = span(*at),
            Expiry::Never => {}
        }
        if let Some(unique) = &mut job.unique {
            match &mut unique.until {
                KeyUntil::EndOr(at) | KeyUntil::StartOr(at) => *at = span(*at),
                KeyUntil::End | KeyUntil::Start | KeyUntil::Gone => {}
            }
        }
        NewSchedule {
            key: if self.rng.chance(70) {
                Some(self.name())
            } else {
                None
            },
            job,
            recurrence: self.recurrence(),
            at_once: self.rng.chance(25),
            keep_grid: self.rng.chance(50),
            runs: if self.rng.chance(30) {
                Some(self.rng.below(4))
            } else {
                None
            },
        }
    }

    fn recurrence(&mut self) -> Recurrence {
        let minutes = self.rng.throw() | self.rng.throw();
        let often = Cron {
            minutes,
            ..Cron::ALWAYS
        };
        match self.rng.below(10) {
            0 => Recurrence::Cron(Cron {
                days: self.rng.one_of([1 << 29, 1 << 30]),
                months: 1 << 2,
                ..often
            }),
            1 => Recurrence::Cron(Cron {
                hours: 1 << self.rng.below(24),
                weekdays: Cron::weekday(3),
                ..often
            }),
            2 | 3 => Recurrence::Cron(often),
            4 => {
                // Any hour, or all hours but one.
                let hours = Cron::ALWAYS.hours & !u32::from(often.minutes & 1 == 0);
                let zone = Zone::named("Europe/Berlin").unwrap_or(Zone::UNKNOWN);
                Recurrence::Zoned(Cron { hours, ..often }, zone)
            }
            5 => Recurrence::Every {
                interval_ms: self.rng.one_of([0, 1, 1 << 40]),
            },
            _ => Recurrence::Every {
                interval_ms: 1 + self.rng.below(self.world.pace_ms * 8),
            },
        }
    }

    pub(crate) fn schedule_ref(&mut self) -> ScheduleRef {
        let key = self.name();
        match self
            .rng
            .pick(&self.oracle.schedules)
            .map(|schedule| schedule.id)
        {
            Some(id) if self.rng.chance(60) => ScheduleRef::Id(id),
            Some(_) | None => ScheduleRef::Key {
                protocol: self.protocol(),
                key,
            },
        }
    }

    fn unique(&mut self) -> Unique {
        let key = self.rng.pick(&self.world.keys).cloned().unwrap_or_default();
        let clash = self
            .rng
            .one_of([Clash::Attach, Clash::Attach, Clash::Refuse, Clash::Keep]);
        let until = match self.rng.below(8) {
            0 => KeyUntil::Start,
            3..=6 => KeyUntil::Gone,
            1 => KeyUntil::EndOr(self.time()),
            2 => KeyUntil::StartOr(self.time()),
            _ => KeyUntil::End,
        };
        Unique { key, clash, until }
    }

    fn retry(&mut self) -> Retry {
        let ms = self.number(2_000);
        Retry {
            failures_max: self.rng.one_of([0, 0, 1, 3, 25, -1]),
            losses_max: self.rng.one_of([0, 0, 1, 3]),
            backoff: self.rng.one_of([
                Backoff::None,
                Backoff::Fixed(ms),
                Backoff::Doubling(ms),
                Backoff::Faktory,
            ]),
        }
    }

    /// Some queues by pattern, some by name; sometimes none, as by default.
    pub(crate) fn bridge(&mut self) -> Bridge {
        let pattern = self.rng.one_of(["work*", "*1", "w?rk0", "*"]);
        let patterns = if self.rng.chance(75) {
            vec![bytes::Bytes::from_static(pattern.as_bytes())]
        } else {
            Vec::new()
        };
        let named = (0..self.rng.below(3))
            .map(|_| (self.queue(), self.rng.chance(60)))
            .collect();
        Bridge { patterns, named }
    }

    /// Mostly some protocols, sometimes all, as by default.
    pub(crate) fn rules(&mut self) -> QueueRules {
        if self.rng.chance(25) {
            return QueueRules::default();
        }
        QueueRules {
            codec: self.rng.one_of([Codec::Text, Codec::Json, Codec::Base64]),
            retry: if self.rng.chance(40) {
                Some(self.retry())
            } else {
                None
            },
            body_bytes_max: if self.rng.chance(15) {
                Some(self.number(20))
            } else {
                None
            },
            ttl_ms: if self.rng.chance(15) {
                Some(self.rng.below(self.world.pace_ms * 20))
            } else {
                None
            },
            dead_ms: if self.rng.chance(20) {
                Some(self.rng.below(self.world.pace_ms * 50))
            } else {
                None
            },
            dead_max: if self.rng.chance(40) {
                Some(self.number(3))
            } else {
                None
            },
            dedup_ms: if self.rng.chance(30) {
                Some(self.rng.below(self.world.pace_ms * 50))
            } else {
                None
            },
            coalesce: self.coalesce(),
            history: None,
        }
    }

    /// `tests/testkit/coalesce.rs` has its laws.
    fn coalesce(&mut self) -> Option<Coalesce> {
        let pace = self.world.pace_ms;
        let rule = Coalesce {
            by_key: self.rng.chance(30),
            latest: self.rng.chance(70),
            quiet_ms: if self.rng.chance(60) {
                self.rng.below(pace * 2)
            } else {
                0
            },
            at_most_ms: if self.rng.chance(50) {
                Some(self.rng.below(pace * 6))
            } else {
                None
            },
            once_more: self.rng.chance(75),
        };
        Some(rule).filter(|_| self.rng.chance(50))
    }

    /// A policy that says where a job's key is, and limits nothing.
    fn policy(&mut self) -> Policy {
        let key = if self.rng.chance(60) {
            Some(KeySource::Prefix(b'b'))
        } else {
            None
        };
        Policy {
            key,
            ..Policy::default()
        }
    }

    /// Rules of some queues by pattern, more or less exact; sometimes none, as by default.
    pub(crate) fn patterns(&mut self) -> Patterns<QueueSettings> {
        let pattern = |script: &mut Self| match script.rng.one_of(["work*", "*1", "w?rk0", "*", ""])
        {
            "" => script.queue(),
            pattern => bytes::Bytes::from_static(pattern.as_bytes()),
        };
        let settings = |script: &mut Self| QueueSettings {
            rules: script.rules(),
            policy: script.policy(),
        };
        (0..self.rng.below(4))
            .map(|_| (pattern(self), settings(self)))
            .collect()
    }

    pub(crate) fn terms(&mut self) -> LeaseTerms {
        LeaseTerms {
            connection_bound: self.rng.chance(50),
            lease_ms: if self.rng.chance(70) {
                Some(self.rng.below(self.world.pace_ms * 3))
            } else {
                None
            },
            on_expiry: self.on_expiry(),
            wish: if self.rng.chance(60) {
                Some(self.on_expiry())
            } else {
                None
            },
        }
    }

    fn on_expiry(&mut self) -> OnExpiry {
        self.rng
            .one_of([OnExpiry::Fail, OnExpiry::Requeue, OnExpiry::Front])
    }

    pub(crate) fn subscription(&mut self) -> Subscription {
        let unclaimed = if self.rng.chance(30) {
            Some(self.protocol())
        } else {
            None
        };
        Subscription {
            queue: self.queue(),
            weight: self.number(2),
            lease: self.terms(),
            unclaimed,
        }
    }

    pub(crate) fn select(&mut self) -> Select {
        self.rng.one_of([
            Select::ListOrder,
            Select::BestPriority,
            Select::RoundRobin,
            Select::Weighted,
        ])
    }

    pub(crate) fn wish(&mut self) -> Take {
        let from = match self.rng.below(10) {
            0..4 => From::Subscriptions,
            4 | 5 => {
                let cycle = self
                    .rng
                    .pick(&self.world.cycles)
                    .filter(|_| self.rng.chance(90))
                    .cloned();
                From::Cycle {
                    queue: cycle.unwrap_or_else(|| self.queue()),
                    lease: self.terms(),
                }
            }
            _ => {
                let queues = (0..self.rng.below(4)).map(|_| self.queue()).collect();
                From::Listed {
                    queues,
                    lease: self.terms(),
                }
            }
        };
        let wait = match self.rng.below(4) {
            0 => Wait::Until(self.time()),
            1 => Wait::Forever,
            _ => Wait::No,
        };
        Take {
            from,
            select: self.select(),
            wait,
            worker: self.worker(),
        }
    }
}
