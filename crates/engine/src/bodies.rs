//! Bodies in events that are not in memory: an event names them, and they are inserted before it is
//! sent.

use bytes::Bytes;

use crate::event::{Event, Notice, Reply};
use crate::ids::JobId;
use crate::jobs::Stored;
use crate::query::JobView;
use crate::refusal::Refusal;

impl Event {
    /// The bodies that this event needs.
    pub fn bodies(&self) -> impl Iterator<Item = (JobId, Stored)> {
        let (taken, view, rows) = match self {
            Self::Reply(_, Reply::Taken(taken)) | Self::Notice(Notice::Delivered(taken)) => {
                (Some(taken), None, &[][..])
            }
            Self::Reply(_, Reply::Looked { job, .. }) => (None, job.as_deref(), &[][..]),
            Self::Reply(_, Reply::Jobs { rows, .. }) => (None, None, &rows[..]),
            Self::Reply(..) | Self::Notice(_) => (None, None, &[][..]),
        };
        let taken = taken.and_then(|taken| Some((taken.id, taken.stored?)));
        let views = view.into_iter().chain(rows);
        taken
            .into_iter()
            .chain(views.filter_map(|JobView { job, .. }| Some((job.id, job.payload.stored()?))))
    }

    /// Returns true if this event needs a body.
    #[inline]
    pub fn waits_for_body(&self) -> bool {
        match self {
            Self::Reply(_, Reply::Taken(taken)) | Self::Notice(Notice::Delivered(taken)) => {
                taken.stored.is_some()
            }
            Self::Reply(_, Reply::Looked { .. } | Reply::Jobs { .. }) => self.has_bodies(),
            Self::Reply(..) | Self::Notice(_) => false,
        }
    }

    #[inline(never)]
    fn has_bodies(&self) -> bool {
        self.bodies().next().is_some()
    }

    /// Inserts the bodies that `find` returns.
    pub fn supply(&mut self, find: impl Fn(JobId, Stored) -> Option<Bytes>) {
        let supply = |view: &mut JobView| {
            if let Some(body) = view
                .job
                .payload
                .stored()
                .and_then(|stored| find(view.job.id, stored))
            {
                view.job.payload = view.job.payload.with_body(&body);
            }
        };
        match self {
            Self::Reply(_, Reply::Taken(taken)) | Self::Notice(Notice::Delivered(taken)) => {
                if let Some(body) = taken.stored.and_then(|stored| find(taken.id, stored)) {
                    (taken.body, taken.stored) = (body, None);
                }
            }
            Self::Reply(_, Reply::Looked { job, .. }) => {
                job.iter_mut().for_each(|view| supply(view))
            }
            Self::Reply(_, Reply::Jobs { rows, .. }) => rows.iter_mut().for_each(supply),
            Self::Reply(..) | Self::Notice(_) => {}
        }
    }

    /// Replaces an event if the body of a job in it cannot be read. A listing contains the job without its
    /// body. A delivery has no replacement.
    #[must_use]
    pub fn without_body(&self, job: JobId) -> Option<Self> {
        match self {
            Self::Reply(tag, Reply::Taken(_)) => Some(Self::Reply(*tag, Reply::Empty)),
            Self::Reply(tag, Reply::Jobs { rows, next }) => {
                let mut rows = rows.clone();
                let bare = rows
                    .iter_mut()
                    .filter(|row| row.job.id == job && row.job.payload.stored().is_some());
                bare.for_each(|row| row.job.payload = row.job.payload.with_body(&Bytes::new()));
                Some(Self::Reply(*tag, Reply::Jobs { rows, next: *next }))
            }
            Self::Reply(tag, _) => Some(Self::Reply(*tag, Reply::Refused(Refusal::Unavailable))),
            Self::Notice(_) => None,
        }
    }
}
