//! Queue aliases for a protocol that cannot express some queues' own names.
//!
//! The speaker is unaware of them. Its commands reach the engine under the queues' own names; events reach it under the
//! protocol's names. A producer's body is not translated: the same protocol gets back what it sent.

use std::collections::HashMap;

use bytes::Bytes;
use windlass_engine::Event;

use crate::Item;

/// The aliases of one protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aliases {
    /// From the protocol's name to the queue's own.
    inward: HashMap<Bytes, Bytes>,
    /// From the queue's own name to the protocol's.
    outward: HashMap<Bytes, Bytes>,
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
    pub fn is_empty(&self) -> bool {
        self.inward.is_empty()
    }

    /// Translates the names in commands.
    pub(crate) fn inward<'a>(&self, items: impl Iterator<Item = &'a mut Item>) {
        for item in items {
            if let Item::Command(_, command) = item {
                command.queue_names_mut(|name| translate(&self.inward, name));
            }
        }
    }

    /// Translates the names in an event.
    pub(crate) fn outward(&self, event: &mut Event) {
        event.queue_names_mut(|name| translate(&self.outward, name));
    }
}

fn translate(names: &HashMap<Bytes, Bytes>, name: &mut Bytes) {
    if let Some(other) = names.get(name) {
        *name = other.clone();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::BytesMut;
    use windlass_engine::{
        ClientInfo, JobCommand, JobRef, NewJob, Notice, Protocol, Query, QueueCommand, QueueKind,
        Reply, ScheduleCommand, Tag, Timestamp,
    };

    use super::*;
    use crate::{Conversation, Outbox, Question, Read, Reason, Session, Speaker, Talk};

    /// Sends commands for each call, and writes the names of its events.
    #[derive(Debug)]
    struct Parrot;

    #[derive(Debug)]
    struct Asked;

    impl Question for Asked {
        const WEIGHT_MAX: usize = 100;
    }

    /// A command about the queue that has an alias.
    fn pause(talk: &mut Talk<'_, Asked>) {
        talk.send(QueueCommand::Pause {
            queue: "image-resize".into(),
            paused: true,
        });
    }

    impl Speaker for Parrot {
        const PROTOCOL: Protocol = Protocol::GEARMAN;

        type Question = Asked;

        fn open(&mut self, talk: &mut Talk<'_, Asked>) {
            pause(talk);
        }

        fn read(
            &mut self,
            input: &mut BytesMut,
            talk: &mut Talk<'_, Asked>,
        ) -> Result<Read, Reason> {
            if input.is_empty() {
                return Ok(Read::Needs(0));
            }
            let queue = input.split().freeze();
            talk.send(QueueCommand::Create {
                queue: queue.clone(),
                kind: QueueKind::Work,
            });
            talk.send(JobCommand::Push(Box::new(NewJob::new(
                Protocol::GEARMAN,
                queue.clone(),
                Bytes::new(),
            ))));
            let key = JobRef::key(queue, Protocol::GEARMAN, "k".into());
            talk.ask(Asked, Query::Job(key));
            Ok(Read::Message)
        }

        fn reply(&mut self, _: Asked, reply: Reply, talk: &mut Talk<'_, Asked>) {
            if let Reply::Looked {
                schedule: Some(schedule),
                ..
            } = reply
            {
                talk.bytes().extend_from_slice(&schedule.job.queue);
            }
        }

        fn notice(&mut self, _: Notice, _: &mut Talk<'_, Asked>) {}

        fn tick(&mut self, talk: &mut Talk<'_, Asked>) {
            pause(talk);
        }

        fn on_eof(&mut self, talk: &mut Talk<'_, Asked>) {
            pause(talk);
        }

        fn shutdown(&mut self, talk: &mut Talk<'_, Asked>) {
            pause(talk);
        }
    }

    fn aliased() -> Conversation<Parrot> {
        let mut aliases = Aliases::default();
        assert!(aliases.insert("image-resize".into(), "image resize!".into()));
        assert!(aliases.insert("b".into(), "image-resize".into()));
        assert!(
            !aliases.insert("b".into(), "c".into()),
            "one name cannot stand for two queues"
        );
        assert!(
            !aliases.insert("other".into(), "image resize!".into()),
            "one queue cannot have two names"
        );
        assert!(!aliases.is_empty());
        Conversation::new(Parrot, ClientInfo::default()).under(&Arc::new(aliases))
    }

    #[test]
    fn commands_are_translated_to_the_queues_own_names_once() {
        let mut session = aliased();
        let mut out = Outbox::default();
        for (theirs, ours) in [
            ("image-resize", "image resize!"),
            ("b", "image-resize"),
            ("plain", "plain"),
        ] {
            session.on_bytes(Timestamp(0), &mut theirs.into(), &mut out);
            // Again, with the first commands still in the same outbox.
            session.on_bytes(Timestamp(0), &mut "x".into(), &mut out);
            assert_eq!(
                names(&mut out),
                [ours, ours, ours, "x", "x", "x"],
                "{theirs}"
            );
        }
    }

    /// The queues of the commands.
    fn names(out: &mut Outbox) -> Vec<Bytes> {
        let mut names = Vec::new();
        for item in out.drain() {
            if let Item::Command(_, mut command) = item {
                command.queue_names_mut(|name| names.push(name.clone()));
            }
        }
        names
    }

    #[test]
    fn the_commands_of_every_call_are_translated() {
        let mut session = aliased();
        let mut out = Outbox::default();
        session.on_open(Timestamp(6), &mut out);
        session.on_tick(Timestamp(7), &mut out);
        session.on_shutdown(Timestamp(9), &mut out);
        session.on_eof(Timestamp(8), &mut out);
        assert_eq!(names(&mut out), ["image resize!"; 4]);
    }

    #[test]
    fn without_aliases_names_stay() {
        let mut session = Conversation::new(Parrot, ClientInfo::default()).under(&Arc::default());
        let mut out = Outbox::default();
        session.on_open(Timestamp(6), &mut out);
        assert_eq!(names(&mut out), ["image-resize"]);
    }

    #[test]
    fn events_are_translated_to_the_protocols_names() {
        let mut session = aliased();
        let mut out = Outbox::default();
        for (ours, theirs) in [
            ("image resize!", "image-resize"),
            ("image-resize", "b"),
            ("plain", "plain"),
        ] {
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
            engine.apply(
                client,
                Tag::NONE,
                ScheduleCommand::Set(Box::new(schedule)),
                &mut context,
            );
            session.on_bytes(Timestamp(0), &mut "x".into(), &mut out);
            let asked = out.drain().find_map(|item| {
                if let Item::Command(tag, _) = item {
                    Some(tag).filter(|tag| tag.wants_answer())
                } else {
                    None
                }
            });
            let query = Query::Job(JobRef::Id(windlass_engine::JobId(1)));
            engine.apply(client, asked.expect("a question"), query, &mut context);
            for (_, event) in context.events.drain(..) {
                session.on_event(Timestamp(0), event, &mut out);
            }
            assert_eq!(out.take_bytes().as_deref(), Some(theirs.as_bytes()));
        }
    }
}
