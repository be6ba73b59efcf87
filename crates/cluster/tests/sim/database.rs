//! The database: the lease and the log of commits, with its own clock. Statements and replies take
//! time. After a fail-over, statements in flight may or may not have been executed, and no reply
//! shows which.

use windlass_testkit::rng::Rng;

/// How long a lease lasts unless renewed, in milliseconds.
pub(super) const LEASE_MS: u64 = 2_000;

/// The wall clocks begin after 1970, in milliseconds.
pub(super) const YEARS_MS: u64 = 1_700_000_000_000;

/// A run of a daemon: the daemon's index, and how often it had started before.
pub(super) type Run = (usize, u32);

/// A statement.
#[derive(Clone, Debug)]
pub(super) enum Statement {
    /// Take the lease, if it is free.
    Take,
    /// Read the log.
    Read,
    Renew {
        epoch: u64,
        edges: Option<Vec<u32>>,
    },
    /// Release the lease.
    GiveBack {
        epoch: u64,
    },
    Commit {
        epoch: u64,
        seq: u64,
        records: Vec<u8>,
    },
    /// Which daemon has the lease.
    Holder,
}

/// A reply of the database.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Taken {
        epoch: u64,
        clock_ms: u64,
        /// The edges that the previous holder recorded.
        edges: Option<Vec<u32>>,
    },
    InUse,
    /// The records of all commits, from the first.
    Log(Vec<Vec<u8>>),
    Done,
    /// The lease is renewed.
    Renewed {
        clock_ms: u64,
    },
    /// Another epoch has begun.
    Deposed,
    Holder(Option<usize>),
    /// It is unknown whether the statement was done.
    Failed,
}

#[derive(Debug)]
struct Sent {
    at: u64,
    number: u64,
    from: Run,
    statement: Statement,
}

#[derive(Debug)]
struct Answered {
    at: u64,
    number: u64,
    to: Run,
    answer: Answer,
}

/// How often the database is in trouble, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    /// A statement, or its answer, is slow.
    pub(super) slow: u64,
    /// An answer is lost.
    pub(super) lost: u64,
}

#[derive(Debug)]
pub(super) struct Database {
    /// Whether it rejects commits of an earlier epoch.
    is_fenced: bool,
    pub(super) trouble: Trouble,
    epoch: u64,
    holder: Option<usize>,
    /// The edges of the holder, with its epoch.
    edges: (u64, Option<Vec<u32>>),
    /// When the lease expires, by this clock.
    until_ms: u64,
    /// The offset of this clock from the world's.
    ahead_ms: u64,
    /// When it was last set forward.
    forward_at: u64,
    log: Vec<(u64, Vec<u8>)>,
    sent: Vec<Sent>,
    answered: Vec<Answered>,
    next: u64,
    down_until: u64,
    /// Daemons that cannot reach it until then.
    apart: [u64; super::DAEMONS],
    /// Commits refused because their epoch was over.
    pub(super) refused: u64,
}

impl Database {
    pub(super) fn new(is_fenced: bool, rng: &mut Rng) -> Self {
        Self {
            is_fenced,
            trouble: Trouble::default(),
            epoch: 0,
            holder: None,
            edges: (0, None),
            until_ms: 0,
            ahead_ms: YEARS_MS + rng.between(10_000_000, 20_000_000),
            forward_at: 0,
            log: Vec::new(),
            sent: Vec::new(),
            answered: Vec::new(),
            next: 0,
            down_until: 0,
            apart: [0; super::DAEMONS],
            refused: 0,
        }
    }

    /// The newest epoch.
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// This clock, in milliseconds since 1970.
    pub(super) const fn clock_ms(&self, now: u64) -> u64 {
        now + self.ahead_ms
    }

    /// Called when a daemon sends a statement. Returns its number, which the reply carries.
    pub(super) fn send(&mut self, now: u64, rng: &mut Rng, from: Run, statement: Statement) -> u64 {
        self.next += 1;
        let number = self.next;
        if now < self.apart[from.0] {
            let at = now + rng.between(100, 2_000);
            self.answered.push(Answered {
                at,
                number,
                to: from,
                answer: Answer::Failed,
            });
        } else {
            let at = now + self.delay(rng);
            self.sent.push(Sent {
                at,
                number,
                from,
                statement,
            });
        }
        number
    }

    fn delay(&self, rng: &mut Rng) -> u64 {
        if rng.chance(self.trouble.slow) {
            rng.between(20, 4_000)
        } else {
            rng.between(0, 5)
        }
    }

    /// Executes what has arrived.
    pub(super) fn step(&mut self, now: u64, rng: &mut Rng) {
        let mut arrived: Vec<_> = self.sent.extract_if(.., |sent| sent.at <= now).collect();
        arrived.sort_by_key(|sent| (sent.at, sent.number));
        for Sent {
            number,
            from,
            statement,
            ..
        } in arrived
        {
            let (at, answer) = if now < self.down_until {
                (now + rng.between(50, 1_000), Answer::Failed)
            } else {
                let answer = self.run(now, from, statement);
                let is_lost = rng.chance(self.trouble.lost);
                if is_lost {
                    (now + rng.between(50, 3_000), Answer::Failed)
                } else {
                    (now + self.delay(rng), answer)
                }
            };
            self.answered.push(Answered {
                at,
                number,
                to: from,
                answer,
            });
        }
    }

    /// The replies that a daemon receives now, in order.
    pub(super) fn answers(&mut self, now: u64, to: Run) -> Vec<(u64, Answer)> {
        let mut all: Vec<_> = self
            .answered
            .extract_if(.., |answered| answered.to == to && answered.at <= now)
            .collect();
        all.sort_by_key(|answered| (answered.at, answered.number));
        all.into_iter()
            .map(|answered| (answered.number, answered.answer))
            .collect()
    }

    /// The primary is lost and its standby takes over. Acknowledged commits survive, and some of
    /// the others. The clock of the standby may be behind or slightly ahead.
    pub(super) fn fail_over(&mut self, now: u64, rng: &mut Rng) {
        self.down_until = now + rng.between(100, 3_000);
        self.ahead_ms -= rng.between(0, 3_000);
        if self.forward_at + 2 * LEASE_MS < now {
            self.forward_at = now;
            self.ahead_ms += rng.between(0, LEASE_MS / 8);
        }
        for Sent {
            number,
            from,
            statement,
            ..
        } in std::mem::take(&mut self.sent)
        {
            if rng.chance(50) {
                drop(self.run(now, from, statement));
            }
            let at = now + rng.between(50, 2_000);
            self.answered.push(Answered {
                at,
                number,
                to: from,
                answer: Answer::Failed,
            });
        }
        for answered in &mut self.answered {
            if rng.chance(50) {
                answered.answer = Answer::Failed;
            }
        }
    }

    /// Partitions a daemon from the database until then.
    pub(super) const fn part(&mut self, daemon: usize, until: u64) {
        self.apart[daemon] = until;
    }

    /// Ends all trouble.
    pub(super) fn heal(&mut self) {
        (self.down_until, self.trouble, self.apart) = (0, Trouble::default(), [0; super::DAEMONS]);
    }

    fn run(&mut self, now: u64, (daemon, _): Run, statement: Statement) -> Answer {
        let clock = self.clock_ms(now);
        let holds = |epoch| {
            if epoch == self.epoch {
                None
            } else {
                Some(Answer::Deposed)
            }
        };
        match statement {
            Statement::Take if self.until_ms >= clock => Answer::InUse,
            Statement::Take => {
                self.epoch += 1;
                (self.holder, self.until_ms) = (Some(daemon), clock + LEASE_MS);
                let edges = self
                    .edges
                    .1
                    .clone()
                    .filter(|_| self.edges.0 + 1 == self.epoch);
                Answer::Taken {
                    epoch: self.epoch,
                    clock_ms: clock,
                    edges,
                }
            }
            Statement::Read => Answer::Log(
                self.log
                    .iter()
                    .map(|(_, records)| records.clone())
                    .collect(),
            ),
            Statement::Renew { epoch, edges } => holds(epoch).unwrap_or_else(|| {
                self.edges = (epoch, edges);
                self.until_ms = clock + LEASE_MS;
                Answer::Renewed { clock_ms: clock }
            }),
            Statement::GiveBack { epoch } => holds(epoch).unwrap_or_else(|| {
                (self.holder, self.until_ms) = (None, 0);
                Answer::Done
            }),
            Statement::Commit {
                epoch,
                seq,
                records,
            } => self.commit(epoch, seq, records),
            Statement::Holder => Answer::Holder(self.holder.filter(|_| self.until_ms >= clock)),
        }
    }

    fn commit(&mut self, epoch: u64, seq: u64, records: Vec<u8>) -> Answer {
        if self.is_fenced && epoch != self.epoch {
            self.refused += 1;
            return Answer::Deposed;
        }
        let at = usize::try_from(seq - 1).unwrap();
        let length = self.log.len();
        match self.log.get_mut(at) {
            Some((of, there)) if *of == epoch && *there == records => Answer::Done,
            Some(_) if self.is_fenced => Answer::Failed,
            Some(there) => {
                *there = (epoch, records);
                Answer::Done
            }
            None if at == length => {
                self.log.push((epoch, records));
                Answer::Done
            }
            None => Answer::Failed,
        }
    }
}
