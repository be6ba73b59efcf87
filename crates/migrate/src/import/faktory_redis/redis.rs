//! A Redis client that reads a page at a time.
//!
//! Not here: which keys exist and what they mean (`layout`), and the protocol (`resp`).

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use windlass_config::Failure;

use crate::import::report::lasting;

use super::resp::{Address, Commands, Connection, Error, Reply};

/// The longest time for one answer. Redis processes one command at a time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A page holds as many entries as add up to about this many bytes, and at most `PAGE_ENTRIES`.
const PAGE_BYTES: usize = 1 << 20;
const PAGE_ENTRIES: usize = 1_000;

/// One connection, and the server's name in messages.
pub(in crate::import) struct Redis {
    connection: Connection,
    name: PathBuf,
}

/// The entries of a sorted set: member and score.
pub(super) type Scored = (Vec<u8>, f64);

impl Redis {
    /// Connects to a URL (`redis://`, `unix://`), a path, or a host with a port. If the address has no password, the
    /// variable `REDISCLI_AUTH` may have one.
    ///
    /// # Errors
    /// [`Failure::Source`]: the address is invalid, no server answers there, or the server is not a Redis.
    pub(in crate::import) fn connect(address: &str) -> Result<Self, Failure> {
        let name = PathBuf::from(without_secret(address));
        let refuse = |reason: String| Failure::unusable(&name, reason);
        let place = Address::parse(address)
            .map_err(|why| refuse(format!("not an address of a Redis: {why}")))?;
        let password = env::var("REDISCLI_AUTH")
            .ok()
            .filter(|password| !password.is_empty());
        let place = place.or_password(password.as_deref());
        let open = || {
            let mut connection = Connection::open(&place, PATIENCE)?;
            connection.ask(&[b"PING"])?;
            Ok(connection)
        };
        let connection = open().map_err(|why: Error| refuse(format!("cannot connect: {why}")))?;
        Ok(Self { connection, name })
    }

    pub(super) fn refuse(&self, reason: impl std::fmt::Display) -> Failure {
        Failure::unusable(&self.name, reason)
    }

    fn ask<T>(
        &mut self,
        words: &[&[u8]],
        read: impl FnOnce(Reply) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        self.connection
            .ask(words)
            .and_then(read)
            .map_err(|why| self.refuse(why))
    }

    /// Sends many commands at once.
    fn ask_all<T>(
        &mut self,
        commands: &Commands,
        read: impl FnMut(Reply) -> Result<T, Error>,
    ) -> Result<Vec<T>, Failure> {
        let replies = self.connection.ask_all(commands);
        replies
            .and_then(|replies| replies.into_iter().map(read).collect())
            .map_err(|why| self.refuse(why))
    }

    /// What `SCAN` or `SSCAN` finds, a page at a time.
    fn scan(
        &mut self,
        command: &[&[u8]],
        mut each: impl FnMut(&mut Self, Vec<Vec<u8>>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut cursor = 0_u64;
        loop {
            let (at, count) = (word(cursor), word(PAGE_ENTRIES));
            let found = self.ask(&[command, &[&at, b"COUNT", &count]].concat(), |reply| {
                let [next, found] =
                    <[Reply; 2]>::try_from(reply.list()?).map_err(|_| Error::Reply)?;
                cursor = next.number()?;
                found.texts()
            })?;
            each(self, found)?;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Another client of the same database, if one stays connected: its address and its last command. `None` also if the
    /// server does not list its clients.
    pub(super) fn other_client(&mut self) -> Option<String> {
        lasting(|| self.other_client_now())
    }

    fn other_client_now(&mut self) -> Option<String> {
        let own: u64 = self
            .connection
            .ask(&[b"CLIENT", b"ID"])
            .and_then(Reply::number)
            .ok()?;
        let list = self
            .connection
            .ask(&[b"CLIENT", b"LIST"])
            .and_then(Reply::text)
            .ok()?;
        let field = |line: &str, key: &str| {
            line.split(' ')
                .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
                .map(str::to_owned)
        };
        let own_db = list
            .lines()
            .find(|line| field(line, "id") == Some(own.to_string()))
            .and_then(|l| field(l, "db"));
        let mut others = list.lines().filter(|line| {
            // Replicas and monitors do not take jobs.
            let takes = field(line, "flags").is_none_or(|flags| !flags.contains(['S', 'M', 'O']));
            field(line, "id") != Some(own.to_string()) && field(line, "db") == own_db && takes
        });
        let other = others.next()?;
        let say = |key| field(other, key).unwrap_or_else(|| "?".to_owned());
        Some(format!("{} ({})", say("addr"), say("cmd")))
    }

    /// Visits every key with its type, possibly more than once.
    pub(super) fn each_key(
        &mut self,
        each: &mut dyn FnMut(Vec<u8>, String),
    ) -> Result<(), Failure> {
        self.scan(&[b"SCAN"], |redis, keys| {
            let mut ask = Commands::default();
            keys.iter().for_each(|key| ask.add(&[b"TYPE", key]));
            let kinds = redis.ask_all(&ask, Reply::text)?;
            keys.into_iter()
                .zip(kinds)
                .for_each(|(key, kind)| each(key, kind));
            Ok(())
        })
    }

    /// Visits the members of a set, possibly more than once.
    pub(super) fn each_member(
        &mut self,
        key: &[u8],
        each: &mut dyn FnMut(Vec<u8>),
    ) -> Result<(), Failure> {
        self.scan(&[b"SSCAN", key], |_, members| {
            members.into_iter().for_each(&mut *each);
            Ok(())
        })
    }

    /// The entries of a list after the first `skip`, counted from its end: new entries come in at its beginning.
    pub(in crate::import) fn list_page(
        &mut self,
        key: &[u8],
        skip: usize,
        page: &mut Page,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let (skip, count) = (to_index(skip), to_index(page.entries));
        let (first, last) = (word(-(skip + count)), word(-(skip + 1)));
        let mut entries = self.ask(&[b"LRANGE", key, &first, &last], Reply::texts)?;
        entries.reverse();
        page.adapt(entries.iter().map(Vec::len).sum());
        Ok(entries)
    }

    /// The texts of these keys, if they exist.
    pub(in crate::import) fn texts(
        &mut self,
        keys: &[Vec<u8>],
    ) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        let mut ask = Commands::default();
        keys.iter().for_each(|key| ask.add(&[b"GET", key]));
        self.ask_all(&ask, |reply| {
            if reply == Reply::Null {
                Ok(None)
            } else {
                reply.bytes().map(Some)
            }
        })
    }

    /// The entries of a sorted set after the first `skip`.
    pub(super) fn set_page(
        &mut self,
        key: &[u8],
        skip: usize,
        page: &mut Page,
    ) -> Result<Vec<Scored>, Failure> {
        let (skip, count) = (to_index(skip), to_index(page.entries));
        let (first, last) = (word(skip), word(skip + count - 1));
        let entries = self.ask(&[b"ZRANGE", key, &first, &last, b"WITHSCORES"], |reply| {
            let mut words = reply.texts()?.into_iter();
            let scored = std::iter::from_fn(|| Some((words.next()?, words.next())));
            scored
                .map(|(entry, score)| {
                    score_of(score)
                        .map(|score| (entry, score))
                        .ok_or(Error::Reply)
                })
                .collect()
        })?;
        let entries: Vec<Scored> = entries;
        page.adapt(entries.iter().map(|(entry, _)| entry.len()).sum());
        Ok(entries)
    }

    /// Removes entries of a list, each once, searching from its end. Returns how many existed.
    pub(super) fn remove_from_list(
        &mut self,
        key: &[u8],
        entries: &[Vec<u8>],
    ) -> Result<u64, Failure> {
        let mut ask = Commands::default();
        entries
            .iter()
            .for_each(|entry| ask.add(&[b"LREM", key, b"-1", entry]));
        Ok(self.ask_all(&ask, Reply::number::<u64>)?.iter().sum())
    }

    /// Removes entries of a sorted set. Returns how many existed.
    pub(super) fn remove_from_set(
        &mut self,
        key: &[u8],
        entries: &[Vec<u8>],
    ) -> Result<u64, Failure> {
        if entries.is_empty() {
            return Ok(0);
        }
        let words: Vec<&[u8]> = [b"ZREM", key]
            .into_iter()
            .chain(entries.iter().map(Vec::as_slice))
            .collect();
        self.ask(&words, Reply::number)
    }
}

/// The number of entries requested at once. Entry sizes are unknown in advance, so it starts small and grows.
#[derive(Debug)]
pub(in crate::import) struct Page {
    entries: usize,
}

impl Page {
    pub(in crate::import) const fn new() -> Self {
        Self { entries: 1 }
    }

    fn adapt(&mut self, bytes: usize) {
        self.entries = if bytes > PAGE_BYTES {
            self.entries / 2
        } else {
            self.entries * 2
        }
        .clamp(1, PAGE_ENTRIES);
    }
}

fn to_index(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX / 4)
}

fn word(number: impl std::fmt::Display) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn score_of(text: Option<Vec<u8>>) -> Option<f64> {
    String::from_utf8(text?).ok()?.parse().ok()
}

/// For messages: an address without user and password.
fn without_secret(address: &str) -> String {
    match (address.split_once("://"), address.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => format!("{scheme}://{place}"),
        _ => address.split("?").next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_messages_have_no_password() {
        assert_eq!(
            without_secret("redis://user:p@ss@host:1/2"),
            "redis://host:1/2"
        );
        assert_eq!(without_secret("unix:///run/r?pass=x"), "unix:///run/r");
        assert_eq!(without_secret("h:1"), "h:1");
    }

    #[test]
    fn pages_grow_until_they_are_heavy() {
        let mut page = Page::new();
        (0..20).for_each(|_| page.adapt(10));
        assert_eq!(page.entries, PAGE_ENTRIES);
        page.adapt(PAGE_BYTES + 1);
        assert_eq!(page.entries, PAGE_ENTRIES / 2);
        (0..20).for_each(|_| page.adapt(usize::MAX));
        assert_eq!(page.entries, 1);
    }
}
