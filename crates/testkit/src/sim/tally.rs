//! The events of a life: counts by name, to check coverage, and a fingerprint, to check that a life repeats exactly.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};

use windlass_engine::{Change, ClientId, Command, Event, Notice, Refusal, Reply};

/// Counts and a fingerprint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How often each happened, by name of the command, the event or the refusal.
    pub counts: BTreeMap<String, u64>,
    /// Of every event and every journalled change, byte for byte.
    pub fingerprint: u64,
}

impl Tally {
    /// Adds the counts of another life.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            *self.counts.entry(name.clone()).or_default() += count;
        }
    }

    pub(crate) fn note_restart(&mut self, clean: bool) {
        self.count(
            if clean {
                "Daemon::Restarted"
            } else {
                "Daemon::Crashed"
            }
            .into(),
        );
    }

    /// Something happened.
    pub fn note(&mut self, what: &str) {
        self.note_many(what, 1);
    }

    /// Something happened this many times.
    pub fn note_many(&mut self, what: &str, count: u64) {
        *self.counts.entry(what.into()).or_default() += count;
    }

    pub(crate) fn note_command(&mut self, command: &Command) {
        self.count(words(command, 2).replace('(', "::"));
    }

    pub(crate) fn note_events(&mut self, fingerprint: bool, events: &[(ClientId, Event)]) {
        for (client, event) in events {
            match event {
                Event::Reply(_, reply) => self.count(format!("Reply::{}", variant(reply))),
                Event::Notice(notice) => self.count(format!("Notice::{}", variant(notice))),
            }
            match event {
                Event::Reply(_, Reply::Refused(Refusal::Limit { what, .. })) => {
                    self.count(format!("Limit::{what:?}"))
                }
                Event::Reply(_, Reply::Refused(Refusal::NotFound(thing))) => {
                    self.count(format!("NotFound::{thing:?}"))
                }
                Event::Reply(_, Reply::Refused(why)) => {
                    self.count(format!("Refusal::{}", variant(why)))
                }
                Event::Notice(Notice::Ended { end, .. }) => {
                    self.count(format!("End::{}", variant(end)))
                }
                Event::Reply(_, Reply::Failed { fate, .. }) => {
                    self.count(format!("Fate::{}", variant(fate)))
                }
                Event::Reply(_, Reply::Pushed { how, .. }) => {
                    self.count(format!("Pushed::{}", variant(how)))
                }
                _ => {}
            }
            if fingerprint {
                self.stamp(&(client, event));
            }
        }
    }

    pub(crate) fn note_changes(&mut self, fingerprint: bool, changes: &[Change]) {
        changes
            .iter()
            .for_each(|change| self.count(format!("Change::{}", variant(change))));
        if fingerprint {
            self.stamp(&changes);
        }
    }

    fn count(&mut self, name: String) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// FNV-1a over the text.
    fn stamp(&mut self, what: &dyn Debug) {
        let mut hash = self.fingerprint ^ 0xcbf2_9ce4_8422_2325;
        for byte in format!("{what:?}").into_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.fingerprint = hash;
    }
}

/// An enum's variant, from how it prints.
fn variant(what: &dyn Debug) -> String {
    words(what, 1)
}

/// The first words of how it prints, up to this many, with the brackets between them.
fn words(what: &dyn Debug, count: usize) -> String {
    let mut words = FirstWords(String::new(), count);
    // The writer fails after these words, which saves formatting the rest.
    let _ = write!(words, "{what:?}");
    words.0
}

/// The text so far, and how many words may still end.
struct FirstWords(String, usize);

impl Write for FirstWords {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for c in text.chars() {
            self.1 -= usize::from(!c.is_alphanumeric());
            if self.1 == 0 {
                return Err(std::fmt::Error);
            }
            self.0.push(c);
        }
        Ok(())
    }
}
