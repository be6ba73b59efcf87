//! Clients that watch jobs, queues and workers. Without watchers, a change costs a single comparison.
//!
//! A watcher has credit for a number of notices. Further changes are only counted, and the count is sent
//! first when the watcher has given more credit, so that the memory for notices is bounded and every gap is
//! marked.

use bytes::Bytes;
use memchr::memmem;

use crate::context::Context;
use crate::event::{JobChange, Notice, Watched};
use crate::held::{Held, Share, heap};
use crate::ids::{ClientId, Namespace};

/// The watchers.
#[derive(Debug)]
pub(crate) struct Watchers {
    all: Vec<Watcher>,
    /// Notices of this visit.
    noted: Vec<(ClientId, Watched)>,
    held: Held,
}

#[derive(Debug)]
struct Watcher {
    client: ClientId,
    /// Only changes in this namespace; `None` = in all.
    namespace: Option<Namespace>,
    /// Only changes in this queue; `None` = in all queues.
    queue: Option<Bytes>,
    /// Only jobs with this text in the body; empty = all changes.
    text: Bytes,
    room: u32,
    missed: u64,
    /// Subtracted from the sum when the watcher is removed.
    _held: Share,
}

/// The memory of a watcher with these filters.
pub(crate) fn watcher_bytes(queue: Option<&Bytes>, text: &[u8]) -> u64 {
    heap(size_of::<Watcher>()) + heap(queue.map_or(0, Bytes::len)) + heap(text.len())
}

impl Watchers {
    pub(crate) const fn new(held: Held) -> Self {
        Self {
            all: Vec::new(),
            noted: Vec::new(),
            held,
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Registers a watcher, or gives it more credit.
    pub(crate) fn watch(
        &mut self,
        client: ClientId,
        namespace: Option<Namespace>,
        queue: Option<Bytes>,
        text: Bytes,
        room: u32,
    ) {
        let Some(watcher) = self.all.iter_mut().find(|watcher| watcher.client == client) else {
            let mut held = self.held.share();
            held.set(watcher_bytes(queue.as_ref(), &text));
            self.all.push(Watcher {
                client,
                namespace,
                queue,
                text,
                room,
                missed: 0,
                _held: held,
            });
            return;
        };
        watcher.room = watcher.room.saturating_add(room);
        if watcher.missed > 0 && watcher.room > 0 {
            watcher.room -= 1;
            self.noted
                .push((client, Watched::Missed(std::mem::take(&mut watcher.missed))));
        }
    }

    /// Asserts that the memory is accounted for.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(crate) fn check(&self) {
        for watcher in &self.all {
            let bytes = watcher_bytes(watcher.queue.as_ref(), &watcher.text);
            assert_eq!(
                watcher._held.bytes(),
                bytes,
                "bytes of what {:?} watches",
                watcher.client
            );
        }
    }

    pub(crate) fn forget(&mut self, client: ClientId) {
        self.all.retain(|watcher| watcher.client != client);
    }

    /// Reports a change of a queue, or of a worker, which belongs to no queue.
    pub(crate) fn note(
        &mut self,
        namespace: Namespace,
        queue: Option<&Bytes>,
        change: impl Fn() -> Watched,
    ) {
        let Self { all, noted, .. } = self;
        let seeing = all
            .iter_mut()
            .filter(|watcher| watcher.text.is_empty() && watcher.watches(namespace, queue));
        seeing.for_each(|watcher| noted.extend(watcher.take(&change)));
    }

    /// Reports a change of a job in this queue. `change` receives the body if the watcher is to see it. A
    /// body that is not in memory is not searched.
    pub(crate) fn note_job(
        &mut self,
        namespace: Namespace,
        queue: &Bytes,
        body: Option<&[u8]>,
        change: impl Fn(Bytes) -> JobChange,
    ) {
        let Self { all, noted, .. } = self;
        for watcher in all
            .iter_mut()
            .filter(|watcher| watcher.watches(namespace, Some(queue)))
        {
            let has_text = !watcher.text.is_empty();
            if has_text && body.is_some_and(|body| memmem::find(body, &watcher.text).is_none()) {
                continue;
            }
            if has_text && body.is_none() {
                watcher.missed += 1;
                continue;
            }
            let body = || {
                body.filter(|_| has_text)
                    .map_or_else(Bytes::new, Bytes::copy_from_slice)
            };
            noted.extend(watcher.take(|| Watched::Changed(Box::new(change(body())))));
        }
    }

    /// Returns true if this visit has notices. Checked first because there are rarely any, and draining an
    /// empty collection takes longer than the check.
    pub(crate) const fn have_noted(&self) -> bool {
        !self.noted.is_empty()
    }

    /// Sends the notices of this visit.
    pub(crate) fn notify(&mut self, context: &mut Context) {
        self.noted
            .drain(..)
            .for_each(|(client, watched)| context.notify(client, Notice::Watched(watched)));
    }
}

impl Watcher {
    fn watches(&self, namespace: Namespace, queue: Option<&Bytes>) -> bool {
        self.namespace.is_none_or(|own| own == namespace)
            && (self.queue.is_none() || self.queue.as_ref() == queue)
    }

    /// The notice of a change, if the watcher has credit.
    fn take(&mut self, change: impl FnOnce() -> Watched) -> Option<(ClientId, Watched)> {
        if self.room == 0 {
            self.missed += 1;
            return None;
        }
        self.room -= 1;
        Some((self.client, change()))
    }
}
