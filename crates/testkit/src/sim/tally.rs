//! The events of a life: counts by name, to check coverage, and a fingerprint, to check that a life repeats exactly.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};

use windlass_engine::{Change, ClientId, Command, Event, Notice, Reply};

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
        self.count(if clean { "Daemon::Restarted" } else { "Daemon::Crashed" }.into());
    }

    pub(crate) fn note_seen(&mut self, what: &str, count: u64) {
        *self.counts.entry(what.into()).or_default() += count;
    }

    pub(crate) fn note_command(&mut self, command: &Command) {
        self.count(format!("Command::{}", variant(command)));
    }

    pub(crate) fn note_events(&mut self, fingerprint: bool, events: &[(ClientId, Event)]) {
        for (client, event) in events {
            self.count(format!("Event::{}", variant(event)));
            match event {
                Event::Reply(_, Reply::Refused(why)) => self.count(format!("Refusal::{}", variant(why))),
                Event::Notice(Notice::Ended { end, .. }) => self.count(format!("End::{}", variant(end))),
                Event::Reply(_, Reply::Failed { fate, .. }) => self.count(format!("Fate::{}", variant(fate))),
                Event::Reply(_, Reply::Pushed { how, .. }) => self.count(format!("Pushed::{}", variant(how))),
                _ => {}
            }
            if fingerprint {
                self.stamp(&(client, event));
            }
        }
    }

    pub(crate) fn note_changes(&mut self, fingerprint: bool, changes: &[Change]) {
        changes.iter().for_each(|change| self.count(format!("Change::{}", variant(change))));
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
    let mut name = FirstWord(String::new());
    // The writer fails after the first word, which saves formatting the rest.
    let _ = write!(name, "{what:?}");
    name.0
}

struct FirstWord(String);

impl Write for FirstWord {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let word: String = text.chars().take_while(|c| c.is_alphanumeric()).collect();
        self.0.push_str(&word);
        if word.len() == text.len() { Ok(()) } else { Err(std::fmt::Error) }
    }
}
