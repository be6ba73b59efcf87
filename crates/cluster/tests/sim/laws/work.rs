//! Laws about work and its ends.

use windlass_engine::{End, JobId, Taken};

use super::super::client::Who;
use super::{Laws, shown};

impl Laws {
    // ---- work ------------------------------------------------------------------------------------------------------

    /// A client gets a job. Returns its serial.
    pub(crate) fn took(&mut self, who: Who, serial: u64, taken: &Taken) {
        self.is_numbered(serial, taken.id);
        let decided = self.decided.get(&(taken.id, taken.token, who)).copied();
        self.note(serial, || {
            format!("with {who:?} under {}", shown(taken.token))
        });
        let Some(job) = self.jobs.get_mut(&serial) else {
            return;
        };
        if !taken.connection_bound && !job.may_have_ended {
            job.lasting = Some((taken.token, taken.until));
        }
        let (is_refused, ended_at) = (job.is_refused, job.ended_at);
        if is_refused {
            let story = self.story(serial);
            self.is_broken(|| format!("job {serial} was refused, and is handed out\n    {story}"));
        }
        if let (Some(ended_at), Some(decided)) = (ended_at, decided)
            && ended_at < decided
        {
            let story = self.story(serial);
            self.is_broken(|| {
                format!("job {serial} has ended, and goes to {who:?} afterwards\n    {story}")
            });
        }
    }

    /// A client asks for the end of a job, or lets go of it.
    pub(crate) fn asks_end(&mut self, who: Who, number: JobId, for_good: bool) {
        let Some((serial, job)) = self.of(number) else {
            return;
        };
        job.may_have_ended |= for_good;
        job.lasting = None;
        if job.given_up.iter().any(|(before, _)| *before == who)
            && !job.holders.iter().any(|it| it.who == who)
        {
            job.asked_again.push(who);
        }
        let given_up = job.holders.extract_if(.., |holder| holder.who == who);
        job.given_up
            .extend(given_up.map(|holder| (holder.who, holder.token)));
        self.note(serial, || {
            format!("{who:?} to_leader for its end: {for_good}")
        });
    }

    /// A client reports on whichever lease the job has.
    pub(crate) fn reports_on_any(&mut self, who: Who, number: JobId) {
        let Some((serial, job)) = self.of(number) else {
            return;
        };
        job.on_any.push(who);
        self.note(serial, || format!("{who:?} reports on any lease"));
    }

    /// A client moves the end of a lease.
    pub(crate) fn moves_deadline(&mut self, number: JobId) {
        if let Some((_, job)) = self.of(number) {
            job.lasting = None;
        }
    }

    /// The acknowledgement of a job's end leaves.
    pub(crate) fn ended(&mut self, number: JobId, finished_by: Option<Who>) {
        let instant = self.next();
        // The end of a foreground job may be lost with its leader, and the job runs again.
        let Some((serial, job)) = self.of(number).filter(|(_, job)| job.is_durable) else {
            return;
        };
        job.ended_at.get_or_insert(instant);
        let other = finished_by.and_then(|who| job.finished_by.replace(who));
        self.note(serial, || format!("ended, by {finished_by:?}"));
        if let Some(other) = other {
            let story = self.story(serial);
            self.is_broken(|| {
                format!(
                    "{finished_by:?} and {other:?} have both finished job {serial}\n    {story}"
                )
            });
        }
    }

    /// A client is gone.
    pub(crate) fn leaves_for_good(&mut self, who: Who) {
        self.gone.insert(who);
        self.jobs
            .values_mut()
            .for_each(|job| job.holders.retain(|holder| holder.who != who));
        self.listens.retain(|(listener, _), _| *listener != who);
    }

    // ---- listeners -------------------------------------------------------------------------------------------------

    /// A client listens to a job.
    pub(crate) fn listens(&mut self, who: Who, number: JobId) {
        if self.gone.contains(&who) {
            return;
        }
        self.listens.entry((who, number)).or_default().0 += 1;
    }

    /// A client may listen once more to a job that holds a key.
    pub(crate) fn may_listen(&mut self, who: Who) {
        *self.may_listen.entry(who).or_default() += 1;
    }

    /// A listener learns that its job has ended.
    pub(crate) fn gets_end(&mut self, who: Who, number: JobId, end: &End) {
        if self.gone.contains(&who) {
            return;
        }
        let more = self.may_listen.get(&who).copied().unwrap_or_default();
        let heard = self.listens.entry((who, number)).or_default();
        heard.1 += 1;
        let (listens, ends) = *heard;
        if ends > listens.max(1) + more {
            self.is_broken(|| format!("{who:?} hears {ends} times that {number:?} has ended"));
        }
        let Some((serial, job)) = self.of(number) else {
            return;
        };
        let is_lost = *end == End::Lost && listens > 0 && job.is_pushed && !job.may_have_ended;
        self.note(serial, || {
            format!("{who:?} hears that it has ended: {end:?}")
        });
        if is_lost {
            let story = self.story(serial);
            self.is_broken(|| {
                format!("job {serial} was lost, and no client has ended it\n    {story}")
            });
        }
    }

    // ---- the end ---------------------------------------------------------------------------------------------------

    /// The job was there at the end, when all others had left.
    pub(crate) fn is_left(&mut self, serial: u64) {
        if let Some(job) = self.jobs.get_mut(&serial) {
            job.is_left = true;
        }
    }

    /// Nothing more happens.
    pub(crate) fn judge_the_end(&mut self) {
        let lost = self.jobs.iter().find(|(_, job)| {
            job.is_pushed
                && job.is_in_store()
                && !job.may_have_ended
                && !job.is_left
                && job.ended_at.is_none()
        });
        if let Some(serial) = lost.map(|(serial, _)| *serial) {
            let story = self.story(serial);
            self.is_broken(|| format!("job {serial} was acknowledged, and is lost\n    {story}"));
        }
        let unheard = self
            .listens
            .iter()
            .find(|(_, (listens, ends))| listens > ends)
            .map(|(key, times)| (*key, *times));
        if let Some(unheard) = unheard {
            self.is_broken(|| format!("a listener never hears the end of its job: {unheard:?}"));
        }
    }

    /// How many pushes and ends were acknowledged.
    pub(crate) fn promises(&self) -> (usize, usize) {
        let jobs = || self.jobs.values();
        (
            jobs().filter(|job| job.is_pushed).count(),
            jobs().filter(|job| job.ended_at.is_some()).count(),
        )
    }
}
