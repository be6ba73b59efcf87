//! Queue aliases for a protocol that cannot express some queues' own names: wraps any session and translates names.
//!
//! The wrapped session is unaware of it. Its commands reach the engine under the queues' own names; events reach it
//! under the protocol's names. A producer's body is not translated: the same protocol gets back what it sent.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use windlass_engine::{Event, Timestamp};

use crate::{Item, Outbox, Session};

/// The aliases of one protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aliases {
    /// From the protocol's name to the queue's own.
    inward: HashMap<Bytes, Bytes>,
    /// From the queue's own name to the protocol's.
    outward: HashMap<Bytes, Bytes>,
}

/// A session with aliases.
#[derive(Debug)]
pub struct Aliased<S> {
    inner: S,
    aliases: std::sync::Arc<Aliases>,
}

impl Aliases {
    /// Adds an alias. `false` means that `theirs` already stands for another queue, or that the queue has another alias.
    pub fn insert(&mut self, theirs: Bytes, ours: Bytes) -> bool {
        if self.inward.contains_key(&theirs) || self.outward.contains_key(&ours) {
            return false;
        }
        self.outward.insert(ours.clone(), theirs.clone());
        self.inward.insert(theirs, ours);
        true
    }

    /// Whether there are no aliases.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inward.is_empty()
    }

    fn inward(&self, name: &mut Bytes) {
        if let Some(ours) = self.inward.get(name) {
            *name = ours.clone();
        }
    }

    fn outward(&self, name: &mut Bytes) {
        if let Some(theirs) = self.outward.get(name) {
            *name = theirs.clone();
        }
    }
}

impl<S> Aliased<S> {
    /// Wraps a session.
    pub const fn new(inner: S, aliases: std::sync::Arc<Aliases>) -> Self {
        Self { inner, aliases }
    }

    /// Runs the session and translates the names in its new commands.
    fn run(&mut self, out: &mut Outbox, run: impl FnOnce(&mut S, &mut Outbox)) {
        // Items from earlier calls are translated already.
        let before = out.items.len();
        run(&mut self.inner, out);
        for item in out.items.iter_mut().skip(before) {
            if let Item::Command(_, command) = item {
                command.queue_names_mut(|name| self.aliases.inward(name));
            }
        }
    }
}

impl<S: Session> Session for Aliased<S> {
    fn on_open(&mut self, now: Timestamp, out: &mut Outbox) {
        self.run(out, |inner, out| inner.on_open(now, out));
    }

    fn on_bytes(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        self.run(out, |inner, out| inner.on_bytes(now, input, out));
    }

    fn on_event(&mut self, now: Timestamp, mut event: Event, out: &mut Outbox) {
        event.queue_names_mut(|name| self.aliases.outward(name));
        self.run(out, |inner, out| inner.on_event(now, event, out));
    }

    fn on_tick(&mut self, now: Timestamp, out: &mut Outbox) {
        self.run(out, |inner, out| inner.on_tick(now, out));
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.inner.next_deadline()
    }

    fn needs_bytes(&self) -> usize {
        self.inner.needs_bytes()
    }

    fn messages(&self) -> u64 {
        self.inner.messages()
    }

    fn held_bytes(&self) -> usize {
        self.inner.held_bytes()
    }

    fn reset_liveness(&mut self, now: Timestamp) {
        self.inner.reset_liveness(now);
    }

    fn seal(&mut self, bytes: &[u8]) -> Option<BytesMut> {
        self.inner.seal(bytes)
    }

    fn on_eof(&mut self, now: Timestamp, out: &mut Outbox) {
        self.run(out, |inner, out| inner.on_eof(now, out));
    }

    fn on_shutdown(&mut self, now: Timestamp, out: &mut Outbox) {
        self.run(out, |inner, out| inner.on_shutdown(now, out));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_engine::{
        JobCommand, JobRef, NewJob, Protocol, Query, QueueCommand, QueueKind, Reply, ScheduleCommand, Tag,
    };

    use super::*;

    /// Sends commands for each call, and writes the names of its events.
    #[derive(Debug)]
    struct Parrot;

    /// A command about the queue that has an alias.
    fn pause(out: &mut Outbox, at: Timestamp) {
        out.command(Tag(at.0), QueueCommand::Pause { queue: "image-resize".into(), paused: true });
    }

    impl Session for Parrot {
        fn on_open(&mut self, now: Timestamp, out: &mut Outbox) {
            pause(out, now);
        }

        fn on_bytes(&mut self, _now: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
            let queue = input.split().freeze();
            out.command(Tag(1), QueueCommand::Create { queue: queue.clone(), kind: QueueKind::Work });
            out.command(
                Tag(2),
                JobCommand::Push(Box::new(NewJob::new(Protocol::GEARMAN, queue.clone(), Bytes::new()))),
            );
            let key = JobRef::key(queue, Protocol::GEARMAN, "k".into());
            out.command(Tag(3), Query::Job(key));
        }

        fn on_tick(&mut self, now: Timestamp, out: &mut Outbox) {
            pause(out, now);
        }

        fn next_deadline(&self) -> Option<Timestamp> {
            Some(Timestamp(2))
        }

        fn needs_bytes(&self) -> usize {
            3
        }

        fn messages(&self) -> u64 {
            4
        }

        fn held_bytes(&self) -> usize {
            5
        }

        fn seal(&mut self, bytes: &[u8]) -> Option<BytesMut> {
            Some([bytes, b" sealed"].concat().as_slice().into())
        }

        fn reset_liveness(&mut self, now: Timestamp) {
            panic!("liveness reset at {}", now.0);
        }

        fn on_eof(&mut self, now: Timestamp, out: &mut Outbox) {
            pause(out, now);
        }

        fn on_shutdown(&mut self, now: Timestamp, out: &mut Outbox) {
            pause(out, now);
        }

        fn on_event(&mut self, _now: Timestamp, event: Event, out: &mut Outbox) {
            if let Event::Reply(_, Reply::Looked { schedule: Some(schedule), .. }) = event {
                out.bytes().extend_from_slice(&schedule.job.queue);
            }
        }
    }

    fn aliased() -> Aliased<Parrot> {
        let mut aliases = Aliases::default();
        assert!(aliases.insert("image-resize".into(), "image resize!".into()));
        assert!(aliases.insert("b".into(), "image-resize".into()));
        assert!(!aliases.insert("b".into(), "c".into()), "one name cannot stand for two queues");
        assert!(!aliases.insert("other".into(), "image resize!".into()), "one queue cannot have two names");
        Aliased::new(Parrot, Arc::new(aliases))
    }

    #[test]
    fn commands_are_translated_to_the_queues_own_names_once() {
        let mut session = aliased();
        let mut out = Outbox::default();
        for (theirs, ours) in [("image-resize", "image resize!"), ("b", "image-resize"), ("plain", "plain")] {
            session.on_bytes(Timestamp(0), &mut theirs.into(), &mut out);
            // Again, with the first commands still in the same outbox.
            session.on_bytes(Timestamp(0), &mut "x".into(), &mut out);
            assert_eq!(names(&mut out), [ours, ours, ours, "x", "x", "x"], "{theirs}");
        }
    }

    /// The queues of the commands.
    fn names(out: &mut Outbox) -> Vec<Bytes> {
        let mut names = Vec::new();
        for item in out.drain() {
            let Item::Command(_, mut command) = item else { panic!("{item:?}") };
            command.queue_names_mut(|name| names.push(name.clone()));
        }
        names
    }

    #[test]
    fn every_call_reaches_the_session() {
        let mut session = aliased();
        let mut out = Outbox::default();
        session.on_open(Timestamp(6), &mut out);
        session.on_tick(Timestamp(7), &mut out);
        session.on_eof(Timestamp(8), &mut out);
        session.on_shutdown(Timestamp(9), &mut out);
        assert_eq!(names(&mut out), ["image resize!"; 4]);
        assert_eq!((session.next_deadline(), session.needs_bytes()), (Some(Timestamp(2)), 3));
        assert_eq!((session.messages(), session.held_bytes()), (4, 5));
        assert_eq!(session.seal(b"theirs").as_deref(), Some(&b"theirs sealed"[..]));
    }

    #[test]
    #[should_panic(expected = "liveness reset at 10")]
    fn liveness_is_reset() {
        aliased().reset_liveness(Timestamp(10));
    }

    #[test]
    fn without_aliases_there_is_nothing_to_wrap() {
        assert!(Aliases::default().is_empty());
        assert!(!aliased().aliases.is_empty());
    }

    #[test]
    fn events_are_translated_to_the_protocols_names() {
        let mut session = aliased();
        let mut out = Outbox::default();
        for (ours, theirs) in [("image resize!", "image-resize"), ("image-resize", "b"), ("plain", "plain")] {
            let mut engine = windlass_engine::Engine::new(windlass_engine::Limits::default(), 7);
            let mut context = windlass_engine::Context::new(Timestamp(0), 7);
            let client = windlass_engine::ClientId(1);
            engine.apply(
                client,
                Tag::NONE,
                windlass_engine::ClientCommand::Open(windlass_engine::ClientInfo::default()),
                &mut context,
            );
            let schedule = windlass_engine::NewSchedule {
                key: Some("s".into()),
                job: NewJob::new(Protocol::GEARMAN, ours.into(), Bytes::new()),
                recurrence: windlass_engine::Recurrence::Every { interval_ms: 1_000 },
                at_once: false,
                keep_grid: false,
                runs: None,
            };
            engine.apply(client, Tag::NONE, ScheduleCommand::Set(Box::new(schedule)), &mut context);
            engine.apply(client, Tag(1), Query::Job(JobRef::Id(windlass_engine::JobId(1))), &mut context);
            for (_, event) in context.events.drain(..) {
                session.on_event(Timestamp(0), event, &mut out);
            }
            assert_eq!(out.take_bytes().as_deref(), Some(theirs.as_bytes()));
        }
    }
}
