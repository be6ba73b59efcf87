//! Clients that watch jobs, queues and workers change. While there are none, a change costs one comparison.
//!
//! A watcher has room for a number of notices. Changes beyond it are counted, and the count is the first notice once the watcher
//! has given more room: so notices are bounded, and every gap is marked.

use bytes::Bytes;

use crate::context::Context;
use crate::event::{Notice, Watched};
use crate::ids::ClientId;

/// The watchers.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    all: Vec<Watcher>,
    /// Notices of this visit.
    noted: Vec<(ClientId, Watched)>,
}

#[derive(Debug)]
struct Watcher {
    client: ClientId,
    /// Only changes in this queue; `None` = in all.
    queue: Option<Bytes>,
    room: u32,
    missed: u64,
}

impl Watchers {
    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Registers a watcher, or gives it more room.
    pub(crate) fn watch(&mut self, client: ClientId, queue: Option<Bytes>, room: u32) {
        let Some(watcher) = self.all.iter_mut().find(|watcher| watcher.client == client) else {
            self.all.push(Watcher { client, queue, room, missed: 0 });
            return;
        };
        watcher.room = watcher.room.saturating_add(room);
        if watcher.missed > 0 && watcher.room > 0 {
            watcher.room -= 1;
            self.noted.push((client, Watched::Missed(std::mem::take(&mut watcher.missed))));
        }
    }

    pub(crate) fn forget(&mut self, client: ClientId) {
        self.all.retain(|watcher| watcher.client != client);
    }

    /// A change in this queue; `None`: in none.
    pub(crate) fn note(&mut self, queue: Option<&Bytes>, change: impl Fn() -> Watched) {
        for watcher in self.all.iter_mut().filter(|watcher| watcher.queue.is_none() || watcher.queue.as_ref() == queue)
        {
            if watcher.room == 0 {
                watcher.missed += 1;
            } else {
                watcher.room -= 1;
                self.noted.push((watcher.client, change()));
            }
        }
    }

    /// Sends the notices of this visit.
    pub(crate) fn notify(&mut self, context: &mut Context) {
        self.noted.drain(..).for_each(|(client, watched)| context.notify(client, Notice::Watched(watched)));
    }
}
