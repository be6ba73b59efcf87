//! The oracle: laws about what clients see, whichever daemon leads. It is no second engine. It knows what clients have
//! asked and what daemons have promised, in the order in which that happened.
//!
//! - One daemon begins an epoch, and nothing that a leader has decided leaves it when another one has begun.
//! - A job has one number, and a number one job. A push that was refused has no effect.
//! - A push that was acknowledged is there until the job has ended: look-ups find it, and at the end it is handed out.
//! - A job in the store whose end was acknowledged is not handed out, and not found. At most one client gets the
//!   answer that it has finished a job.
//! - While a client of a daemon that the leader serves has a job, no other client gets it. A client that claims its job
//!   during the grace does not find it with another one. If leaders have granted a job to several clients that claim it,
//!   the lease that was granted last counts.
//! - Of the jobs that hold a coalescing key, one is certain to be there. A push that finds it has no job of its own.
//! - A schedule pushes as many jobs as it was set to, and a batch one when all its jobs have ended. A leader whose last
//!   commits are lost pushes no more than that, and the next one begins where the store is.
//! - Each question has one answer, which fits. A listener learns once that its job has ended.
//! - A client that waits for a job without an end gets one, or waits at the leader.
//! - The edge's own bytes come back in their order.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use windlass_engine::{ClientId, JobId, Timestamp, Token};

use windlass_testkit::rng::Rng;

use super::client::Who;
use super::database::Run;

mod work;

/// The history of a job.
#[derive(Debug)]
struct Job {
    number: Option<JobId>,
    is_durable: bool,
    /// The job was pushed while a client listened, and a push that coalesced with it has made it
    /// durable. After its end, a client that still listens and reconnects late may bring it back.
    lives_on: bool,
    /// The push was acknowledged.
    is_pushed: bool,
    /// The push was refused.
    is_refused: bool,
    /// A client has asked for its end.
    may_have_ended: bool,
    /// Its end was acknowledged at this instant.
    ended_at: Option<u64>,
    finished_by: Option<Who>,
    holders: Vec<Holder>,
    /// Leases whose end their clients have asked for. They may be claimed meanwhile.
    given_up: Vec<(Who, Token)>,
    /// Clients that have repeated the end of a lease that they had given up, because its outcome
    /// was unknown. The request names only the job, so if they are handed the job first, it ends
    /// that newer lease.
    asked_again: Vec<Who>,
    /// Clients that report on the job's current lease, which may be another client's.
    on_any: Vec<Who>,
    /// The last lease that a leader has granted.
    latest: Token,
    /// The last lease that a client knows of and that outlives its connection, with its deadline.
    /// `None` also if a client has reported on the job since.
    lasting: Option<(Token, Timestamp)>,
    /// Its queue and its coalescing key.
    key: Option<(Bytes, &'static str)>,
    /// A job that certainly held the key when the push was sent.
    rival: Option<u64>,
    /// When it was asked for.
    asked_at: u64,
    /// It was seen at the end.
    is_left: bool,
    /// For a failure.
    story: Vec<String>,
}

impl Job {
    const fn new(is_durable: bool) -> Self {
        Self {
            number: None,
            is_durable,
            lives_on: false,
            is_pushed: false,
            is_refused: false,
            may_have_ended: false,
            ended_at: None,
            finished_by: None,
            holders: Vec::new(),
            given_up: Vec::new(),
            asked_again: Vec::new(),
            on_any: Vec::new(),
            latest: Token(0),
            lasting: None,
            key: None,
            rival: None,
            asked_at: 0,
            is_left: false,
            story: Vec::new(),
        }
    }

    const fn is_in_store(&self) -> bool {
        self.is_durable || self.lives_on
    }

    /// Other clients that hold the job according to the leader of this epoch, and whose leases no
    /// one else can have ended.
    fn others(&mut self, who: Who, epoch: u64) -> impl Iterator<Item = &mut Holder> {
        let Self {
            holders,
            on_any,
            asked_again,
            ..
        } = self;
        let has = move |it: &&mut Holder| {
            it.who != who && it.known_to == Some(epoch) && !asked_again.contains(&it.who)
        };
        holders
            .iter_mut()
            .filter(has)
            .filter(|it| on_any.iter().all(|other| *other == it.who))
    }
}

/// A source of jobs: a schedule, or a batch. Its number is in their bodies.
#[derive(Debug)]
struct Template {
    /// How many jobs it pushes.
    most: u64,
    /// It was acknowledged.
    is_promised: bool,
    /// Jobs that must have ended before.
    members: Vec<u64>,
    /// The serials of its jobs.
    runs: BTreeMap<JobId, u64>,
    /// How many of them each leader has handed out first.
    by_epoch: BTreeMap<u64, u64>,
}

/// A token as the failure shows it: the run of the leader, and the delivery.
fn shown(token: Token) -> String {
    format!("{}.{}", token.0 >> 32, token.delivery())
}

/// A lease that ends with a connection.
#[derive(Debug)]
struct Holder {
    who: Who,
    token: Token,
    /// The epoch whose leader knows that the client holds the job.
    known_to: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Laws {
    /// The number of things that have happened.
    instant: u64,
    jobs: BTreeMap<u64, Job>,
    serials: BTreeMap<JobId, u64>,
    templates: BTreeMap<u64, Template>,
    began: BTreeMap<u64, Run>,
    /// When a leader has decided a lease last.
    decided: BTreeMap<(JobId, Token, Who), u64>,
    /// The leases in the engine of a leader, by its epoch.
    seen: BTreeMap<(u64, JobId), (Token, Who)>,
    /// Jobs that a leader has handed out, by its epoch.
    granted: BTreeMap<(u64, JobId), Who>,
    /// How often clients listen to jobs, and have learnt of their ends.
    listens: BTreeMap<(Who, JobId), (u32, u32)>,
    /// How many pushes of a client may have found a job that it listens to since.
    may_listen: BTreeMap<Who, u32>,
    /// Claims that were late, lost to a later lease, or were for jobs that the previous leader had
    /// ended.
    late: BTreeSet<(Who, JobId)>,
    /// Clients that have left.
    gone: BTreeSet<Who>,
    broken: Option<String>,
    /// The world's time, in milliseconds.
    pub(super) now: u64,
    /// The latest time of a leader.
    time: Timestamp,
}

impl Laws {
    /// The first law that was broken.
    pub(super) const fn broken(&self) -> Option<&String> {
        self.broken.as_ref()
    }

    pub(super) fn is_broken(&mut self, how: impl FnOnce() -> String) {
        self.broken.get_or_insert_with(how);
    }

    /// Records something to print on a failure.
    fn note(&mut self, serial: u64, what: impl FnOnce() -> String) {
        if let Some(job) = self.jobs.get_mut(&serial) {
            job.story.push(format!("{:>6} {}", self.now, what()));
        }
    }

    /// The history of a job.
    pub(super) fn story(&self, serial: u64) -> String {
        self.jobs
            .get(&serial)
            .map(|job| job.story.join("\n    "))
            .unwrap_or_default()
    }

    pub(super) fn story_of(&self, number: JobId) -> String {
        self.serials
            .get(&number)
            .map(|serial| self.story(*serial))
            .unwrap_or_default()
    }

    fn next(&mut self) -> u64 {
        self.instant += 1;
        self.instant
    }

    fn of(&mut self, number: JobId) -> Option<(u64, &mut Job)> {
        let serial = *self.serials.get(&number)?;
        Some((serial, self.jobs.get_mut(&serial)?))
    }

    // ---- leaders ---------------------------------------------------------------------------------------------------

    /// A daemon has the lease of a new epoch.
    pub(super) fn begins(&mut self, epoch: u64, run: Run) {
        if let Some(other) = self.began.insert(epoch, run) {
            self.is_broken(|| format!("epoch {epoch} has two holders, {other:?} and {run:?}"));
        }
    }

    /// Something that a leader has decided leaves it.
    pub(super) fn leaves(&mut self, epoch: u64, present: u64) {
        if epoch != present {
            self.is_broken(|| {
                format!("what was decided in epoch {epoch} leaves when epoch {present} has begun")
            });
        }
    }

    /// A leader finds a lease in the store.
    pub(super) fn recovers(&mut self, epoch: u64, (number, token): (JobId, Token), who: Who) {
        self.seen.insert((epoch, number), (token, who));
    }

    /// A leader's time is this.
    pub(super) fn leads_at(&mut self, time: Timestamp) {
        self.time = self.time.max(time);
    }

    /// Checks a leader's wall clock against the database's. A primary and its standby differ, and
    /// replies are late, but never by an hour.
    pub(super) fn has_wall(&mut self, epoch: u64, wall: Timestamp, database_ms: u64) {
        const FAR_MS: u64 = 60_000;
        if wall.0.abs_diff(database_ms) > FAR_MS {
            self.is_broken(|| {
                format!(
                    "the leader {epoch} releases what is due at {}, and it is {database_ms}",
                    wall.0
                )
            });
        }
    }

    /// Called when a leader has read the store: it must know the leases that outlive connections,
    /// unless a leader's time has passed their deadlines.
    pub(super) fn has_read(&mut self, epoch: u64) {
        let time = self.time;
        let lasts = |job: &Job| {
            let (lasting, until) = job.lasting.filter(|(_, until)| *until > time)?;
            let number = job
                .number
                .filter(|_| job.is_durable && job.on_any.is_empty())?;
            let found = self.seen.get(&(epoch, number));
            found
                .is_none_or(|(token, _)| *token < lasting)
                .then_some((lasting, until))
        };
        let lost = self
            .jobs
            .iter()
            .find_map(|(serial, job)| Some((*serial, lasts(job)?)));
        if let Some((serial, (token, until))) = lost {
            let story = self.story(serial);
            let shown = shown(token);
            self.is_broken(|| {
                format!(
                    "epoch {epoch} at {time:?} lacks the lease {shown} of job {serial} until {until:?}\n    {story}"
                )
            });
        }
    }

    /// A client holds a job in the engine of a leader. `present`: no later leader has begun.
    pub(super) fn leased(
        &mut self,
        (epoch, present): (u64, bool),
        serial: u64,
        lease: (JobId, Token),
        who: Who,
        is_bound: bool,
    ) {
        let (number, token) = lease;
        self.is_numbered(serial, number);
        if self.seen.get(&(epoch, number)) == Some(&(token, who)) {
            return;
        }
        self.seen.insert((epoch, number), (token, who));
        let instant = self.next();
        let Some(job) = self.jobs.get_mut(&serial) else {
            return;
        };
        if !is_bound {
            // An earlier lease never reached it.
            job.holders.retain(|holder| holder.who != who);
        }
        let own = job
            .holders
            .iter_mut()
            .find(|holder| holder.who == who && holder.token == token);
        let is_claimed = own.is_some() || job.given_up.contains(&(who, token));
        self.late.remove(&(who, number));
        own.into_iter().for_each(|own| own.known_to = Some(epoch));
        let what = if is_claimed { "leased again" } else { "leased" };
        job.story.push(format!(
            "{:>6} {what} to {who:?} under {} in epoch {epoch}",
            self.now,
            shown(token)
        ));
        // Of two claims, the later lease wins.
        let is_beaten = |other: &Holder| is_claimed && other.token < token;
        let other = job
            .others(who, epoch)
            .find(|other| !is_beaten(other))
            .map(|other| other.who)
            .filter(|_| present);
        for beaten in job.others(who, epoch).filter(|other| is_beaten(other)) {
            beaten.known_to = None;
            self.late.insert((beaten.who, number));
        }
        if !is_claimed {
            if is_bound && !self.gone.contains(&who) {
                job.holders.push(Holder {
                    who,
                    token,
                    known_to: Some(epoch),
                });
            }
            job.latest = job.latest.max(token);
            self.decided.insert((number, token, who), instant);
            self.granted.insert((epoch, number), who);
        }
        if let Some(other) = other {
            let story = self.story(serial);
            self.is_broken(|| {
                format!("job {serial} goes to {who:?} in epoch {epoch}, while {other:?} has it\n    {story}")
            });
        }
    }

    /// A leader requeues the jobs of an edge's clients because the link has closed. The clients
    /// keep these jobs.
    pub(super) fn edge_lost(&mut self, epoch: u64, run: Run, keeps: &BTreeSet<(JobId, ClientId)>) {
        for job in self.jobs.values_mut() {
            let keeps = |who: Who| {
                job.number
                    .is_some_and(|number| keeps.contains(&(number, who.1)))
            };
            let of_edge = job
                .holders
                .iter_mut()
                .filter(|it| it.who.0 == run && it.known_to == Some(epoch));
            of_edge
                .filter(|it| !keeps(it.who))
                .for_each(|it| it.known_to = None);
        }
    }

    /// A client claims a job of a leader that has begun.
    pub(super) fn claims(
        &mut self,
        epoch: u64,
        who: Who,
        (number, token): (JobId, Token),
        in_grace: bool,
    ) {
        // The claim of a client that has left loses to the holder's claim, which harms no one.
        let granted = self
            .granted
            .get(&(epoch, number))
            .copied()
            .filter(|other| !self.gone.contains(other));
        let Some((serial, job)) = self.of(number) else {
            return;
        };
        let own = job
            .holders
            .iter()
            .any(|it| it.who == who && it.token == token && it.known_to.is_some());
        let own = own && job.latest <= token;
        // The job of a producer that reconnects later is missing, or arrives too late.
        let is_there = job.is_durable;
        self.note(serial, || {
            format!(
                "claimed by {who:?} under {} in epoch {epoch}, in the grace: {in_grace}",
                shown(token)
            )
        });
        if !in_grace || !own || !is_there {
            self.late.insert((who, number));
        }
        if let Some(other) = granted.filter(|other| in_grace && own && *other != who) {
            let story = self.story(serial);
            self.is_broken(|| {
                format!(
                    "{who:?} claims job {serial} in the grace, but {other:?} got it\n    {story}"
                )
            });
        }
    }

    /// Whether a client may wrongly believe that it holds a job.
    pub(super) fn may_err(&self, who: Who, number: JobId) -> bool {
        let job = self
            .serials
            .get(&number)
            .and_then(|serial| self.jobs.get(serial));
        self.late.contains(&(who, number))
            || job.is_some_and(|job| job.on_any.iter().any(|other| *other != who))
    }

    // ---- pushes ----------------------------------------------------------------------------------------------------

    /// A client pushes a job.
    pub(super) fn asks_push(
        &mut self,
        serial: u64,
        is_durable: bool,
        key: Option<(Bytes, &'static str)>,
    ) {
        let holds =
            |job: &Job| job.key == key && job.is_pushed && job.is_durable && !job.may_have_ended;
        let rival = key
            .as_ref()
            .and_then(|_| self.jobs.iter().find(|(_, job)| holds(job)))
            .map(|(serial, _)| *serial);
        let asked_at = self.next();
        self.jobs.insert(
            serial,
            Job {
                key,
                rival,
                asked_at,
                ..Job::new(is_durable)
            },
        );
    }

    fn is_numbered(&mut self, serial: u64, number: JobId) {
        let Some(job) = self.jobs.get_mut(&serial) else {
            return self.is_broken(|| format!("job {serial} was never pushed"));
        };
        let before = job.number.replace(number);
        let other = self.serials.insert(number, serial);
        if before.is_some_and(|before| before != number)
            || other.is_some_and(|other| other != serial)
        {
            self.is_broken(|| {
                format!("job {serial} has the number {number:?}, and had {before:?}; {other:?} has it too")
            });
        }
    }

    /// The acknowledgement of a push leaves.
    pub(super) fn pushed(&mut self, serial: u64, number: JobId) {
        let serial = self.serial(serial, number, None);
        self.is_numbered(serial, number);
        self.note(serial, || format!("acknowledged as {}", number.0));
        let Some(job) = self.jobs.get_mut(&serial) else {
            return;
        };
        job.is_pushed = true;
        let rival = job.rival.filter(|rival| {
            self.jobs
                .get(rival)
                .is_some_and(|rival| !rival.may_have_ended)
        });
        if let Some(rival) = rival {
            let stories = [self.story(rival), self.story(serial)].join("\n    ");
            self.is_broken(|| format!("jobs {rival} and {serial} have one key\n    {stories}"));
        }
    }

    /// A push has found another job, which holds its key. `durable`: that job is in the store.
    pub(super) fn coalesced(&mut self, serial: u64, number: JobId, durable: bool) {
        self.note(serial, || format!("finds {}", number.0));
        let Some(job) = self.jobs.get_mut(&serial) else {
            return;
        };
        // A listening client may claim a job that only listeners keep, with its own bytes, because
        // it found that job.
        job.is_refused = job.is_durable;
        let asked_at = job.asked_at;
        let Some((found, job)) = self.of(number).filter(|(found, _)| *found != serial) else {
            return;
        };
        (job.lives_on, job.is_pushed) = (job.lives_on || durable, job.is_pushed || durable);
        if job.ended_at.is_some_and(|ended_at| ended_at < asked_at) {
            let story = self.story(found);
            self.is_broken(|| {
                format!("the push of {serial} finds a job that had ended\n    {story}")
            });
        }
    }

    // ---- schedules and batches -------------------------------------------------------------------------------------

    /// A client requests a source of jobs, which starts after others have ended.
    pub(super) fn asks_runs(&mut self, template: u64, most: u64, members: Vec<u64>) {
        let (runs, by_epoch) = Default::default();
        self.templates.insert(
            template,
            Template {
                most,
                is_promised: false,
                members,
                runs,
                by_epoch,
            },
        );
    }

    /// Its acknowledgement leaves.
    pub(super) fn promises_runs(&mut self, template: u64) {
        self.templates
            .get_mut(&template)
            .into_iter()
            .for_each(|template| template.is_promised = true);
    }

    /// Whether jobs with this serial in their bodies are pushed by a schedule or a batch.
    pub(super) fn is_template(&self, body: u64) -> bool {
        self.templates.contains_key(&body)
    }

    /// The serial of the other job with this number, if both were pushed with one key while clients
    /// listened. A leader learns of such a job from the daemons of all listeners, each of which has
    /// its own body.
    fn same(&self, body: u64, number: JobId) -> Option<u64> {
        let other = *self.serials.get(&number)?;
        let (one, two) = (self.jobs.get(&body)?, self.jobs.get(&other)?);
        (!one.is_durable && one.key.is_some() && one.key == two.key).then_some(other)
    }

    /// The serial of a job with this serial in its body. Jobs pushed by the leader itself get one
    /// when they are handed out.
    pub(super) fn serial(&mut self, body: u64, number: JobId, epoch: Option<u64>) -> u64 {
        const RUNS: u64 = 1 << 20;
        let Some(template) = self.templates.get_mut(&body) else {
            return self.same(body, number).unwrap_or(body);
        };
        if let Some(serial) = template.runs.get(&number) {
            return *serial;
        }
        let serial = body * RUNS + template.runs.len() as u64;
        template.runs.insert(number, serial);
        let runs = template
            .by_epoch
            .entry(epoch.unwrap_or_default())
            .or_default();
        *runs += 1;
        let (is_too_often, most) = (*runs > template.most, template.most);
        let job = |serial: &&u64| self.jobs.get(serial);
        let lives = |job: &Job| job.is_pushed && job.is_durable && !job.may_have_ended;
        let waits = template
            .members
            .iter()
            .find(|serial| job(serial).is_some_and(lives))
            .copied();
        self.jobs.insert(serial, Job::new(true));
        if is_too_often {
            self.is_broken(|| format!("{body} runs more than {most} times in epoch {epoch:?}"));
        }
        if let Some(waits) = waits {
            let story = self.story(waits);
            self.is_broken(|| {
                format!("the callback of batch {body} runs before {waits} has ended\n    {story}")
            });
        }
        serial
    }

    /// A template that has not pushed all its jobs.
    pub(super) fn lacks_runs(&self) -> Option<String> {
        let lacks = |template: &Template| {
            template.is_promised && (template.runs.len() as u64) < template.most
        };
        let mut templates = self
            .templates
            .iter()
            .filter(|(_, template)| lacks(template));
        templates
            .next()
            .map(|(serial, template)| format!("{serial} lacks runs: {template:?}"))
    }

    /// A push is refused: it has no effect.
    pub(super) fn refused(&mut self, serial: u64) {
        if let Some(job) = self.jobs.get_mut(&serial) {
            job.is_refused = true;
        }
    }

    /// Whether later look-ups find the job; `None` if both are possible.
    pub(super) fn is_there(&self, number: JobId) -> Option<bool> {
        let job = self.jobs.get(self.serials.get(&number)?)?;
        match (job.ended_at, job.may_have_ended) {
            (Some(_), _) => Some(false),
            (None, false) if job.is_pushed && job.is_in_store() => Some(true),
            (None, _) => None,
        }
    }

    /// A look-up has this answer.
    pub(super) fn found(&mut self, number: JobId, asked: Option<bool>, is_there: bool) {
        let may_have_ended = self.of(number).is_some_and(|(_, job)| job.may_have_ended);
        match asked {
            Some(true) if !is_there && !may_have_ended => {}
            Some(false) if is_there => {}
            _ => return,
        }
        let story = self.story_of(number);
        self.is_broken(|| format!("a look-up finds {number:?}: {is_there}\n    {story}"));
    }

    /// Any job that was pushed.
    pub(super) fn any(&self, rng: &mut Rng) -> Option<JobId> {
        let at = usize::try_from(rng.below(self.serials.len() as u64)).unwrap();
        self.serials.keys().nth(at).copied()
    }
}
