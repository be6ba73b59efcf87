//! A Redis client that reads a page at a time.
//!
//! Not here: which keys exist and what they mean (`layout`).

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use redis::{Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo, Pipeline, RedisError};
use windlass_server::Failure;

/// The longest time for one answer. Redis processes one command at a time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A page holds as many entries as add up to about this many bytes, and at most `PAGE_ENTRIES`.
const PAGE_BYTES: usize = 1 << 20;
const PAGE_ENTRIES: usize = 1_000;

/// One connection, and the server's name in messages.
pub(in crate::import) struct Redis {
    connection: redis::Connection,
    name: PathBuf,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The entries of a sorted set: member and score.
pub(super) type Scored = (Vec<u8>, f64);

impl Redis {
    /// Connects to a URL (`redis://`, `unix://`), a path, or a host with a port. `password` is used if the address has
    /// none.
    ///
    /// # Errors
    /// [`Failure::Source`]: the address is invalid, no server answers there, or the server is not a Redis.
    pub(in crate::import) fn connect(address: &str, password: Option<&str>) -> Result<Self, Failure> {
        let name = PathBuf::from(without_secret(address));
        let refuse = |reason: String| Failure::Source { file: name.clone(), reason };
        let info = locate(address, password).map_err(&refuse)?;
        let open = || {
            let connection = redis::Client::open(info)?.get_connection_with_timeout(PATIENCE)?;
            connection.set_read_timeout(Some(PATIENCE))?;
            connection.set_write_timeout(Some(PATIENCE))?;
            Ok(connection)
        };
        let connection = open().map_err(|why: RedisError| refuse(format!("cannot connect: {why}")))?;
        let mut redis = Self { connection, name };
        let () = redis.ask(&redis::cmd("PING"))?;
        Ok(redis)
    }

    pub(super) fn refuse(&self, reason: impl std::fmt::Display) -> Failure {
        Failure::Source { file: self.name.clone(), reason: reason.to_string() }
    }

    fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Failure> {
        command.query(&mut self.connection).map_err(|why| self.refuse(why))
    }

    /// Sends many commands at once. An empty pipeline cannot be sent, so it returns no answers.
    fn ask_all<T: FromRedisValue>(&mut self, commands: &Pipeline) -> Result<Vec<T>, Failure> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        commands.query(&mut self.connection).map_err(|why| self.refuse(why))
    }

    /// Another client of the same database, if one stays connected: its address and its last command. A connection that
    /// is just ending does not count.
    pub(super) fn other_client(&mut self) -> Option<String> {
        const TRIES: u32 = 10;
        const PAUSE: Duration = Duration::from_millis(20);
        for _ in 0..TRIES {
            self.other_client_now()?;
            thread::sleep(PAUSE);
        }
        self.other_client_now()
    }

    /// `None` also if the server does not list its clients.
    fn other_client_now(&mut self) -> Option<String> {
        let own: u64 = redis::cmd("CLIENT").arg("ID").query(&mut self.connection).ok()?;
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut self.connection).ok()?;
        let field = |line: &str, key: &str| {
            line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned)
        };
        let own_db = list.lines().find(|line| field(line, "id") == Some(own.to_string())).and_then(|l| field(l, "db"));
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
        each: &mut dyn FnMut(Vec<u8>, String) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut cursor = 0_u64;
        loop {
            let (next, keys): (u64, Vec<Vec<u8>>) =
                self.ask(redis::cmd("SCAN").arg(cursor).arg("COUNT").arg(PAGE_ENTRIES))?;
            let mut ask = redis::pipe();
            for key in &keys {
                ask.cmd("TYPE").arg(key);
            }
            let kinds: Vec<String> = self.ask_all(&ask)?;
            keys.into_iter().zip(kinds).try_for_each(|(key, kind)| each(key, kind))?;
            cursor = next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Visits the members of a set, possibly more than once.
    pub(super) fn each_member(&mut self, key: &[u8], each: &mut dyn FnMut(Vec<u8>)) -> Result<(), Failure> {
        let mut cursor = 0_u64;
        loop {
            let (next, members): (u64, Vec<Vec<u8>>) =
                self.ask(redis::cmd("SSCAN").arg(key).arg(cursor).arg("COUNT").arg(PAGE_ENTRIES))?;
            members.into_iter().for_each(&mut *each);
            cursor = next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// The entries of a list after the first `skip`, counted from its end: new entries come in at its beginning.
    pub(in crate::import) fn list_page(
        &mut self,
        key: &[u8],
        skip: usize,
        page: &mut Page,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let (skip, count) = (to_index(skip), to_index(page.entries));
        let mut entries: Vec<Vec<u8>> =
            self.ask(redis::cmd("LRANGE").arg(key).arg(-(skip + count)).arg(-(skip + 1)))?;
        entries.reverse();
        page.adapt(entries.iter().map(Vec::len).sum());
        Ok(entries)
    }

    /// The texts of these keys, if they exist.
    pub(in crate::import) fn texts(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        let mut ask = redis::pipe();
        for key in keys {
            ask.cmd("GET").arg(key);
        }
        self.ask_all(&ask)
    }

    /// The entries of a sorted set after the first `skip`.
    pub(super) fn set_page(&mut self, key: &[u8], skip: usize, page: &mut Page) -> Result<Vec<Scored>, Failure> {
        let (skip, count) = (to_index(skip), to_index(page.entries));
        let entries: Vec<Scored> =
            self.ask(redis::cmd("ZRANGE").arg(key).arg(skip).arg(skip + count - 1).arg("WITHSCORES"))?;
        page.adapt(entries.iter().map(|(entry, _)| entry.len()).sum());
        Ok(entries)
    }

    /// Removes entries of a list, each once, searching from its end. Returns how many existed.
    pub(super) fn remove_from_list(&mut self, key: &[u8], entries: &[Vec<u8>]) -> Result<u64, Failure> {
        let mut ask = redis::pipe();
        for entry in entries {
            ask.cmd("LREM").arg(key).arg(-1).arg(entry);
        }
        Ok(self.ask_all::<u64>(&ask)?.iter().sum())
    }

    /// Removes entries of a sorted set. Returns how many existed.
    pub(super) fn remove_from_set(&mut self, key: &[u8], entries: &[Vec<u8>]) -> Result<u64, Failure> {
        if entries.is_empty() {
            return Ok(0);
        }
        self.ask(redis::cmd("ZREM").arg(key).arg(entries))
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
        self.entries = if bytes > PAGE_BYTES { self.entries / 2 } else { self.entries * 2 }.clamp(1, PAGE_ENTRIES);
    }
}

fn to_index(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX / 4)
}

fn locate(address: &str, password: Option<&str>) -> Result<ConnectionInfo, String> {
    if address.starts_with("rediss:") || address.starts_with("valkeys:") {
        return Err("TLS to Redis is not supported: use a tunnel, or start a Redis on a copy of the files".to_owned());
    }
    let no_redis = |why: RedisError| format!("not an address of a Redis: {why}");
    let path = address.strip_prefix("unix:").filter(|rest| !rest.starts_with("//")).unwrap_or(address);
    let info = if path.starts_with('/') {
        ConnectionAddr::Unix(path.into()).into_connection_info().map_err(no_redis)?
    } else if address.contains("://") {
        address.into_connection_info().map_err(no_redis)?
    } else {
        let place = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let (host, port) = place.ok_or("not an address of a Redis: a URL, a path or host:port expected")?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (host, port).into_connection_info().map_err(no_redis)?
    };
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    match password {
        Some(password) if settings.password().is_none() => Ok(info.set_redis_settings(settings.set_password(password))),
        Some(_) | None => Ok(info.set_redis_settings(settings)),
    }
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
    fn addresses() {
        let tcp = |host: &str, port| ConnectionAddr::Tcp(host.to_owned(), port);
        let table = [
            ("redis://127.0.0.1", tcp("127.0.0.1", 6379)),
            ("redis://:secret@db:7000/3", tcp("db", 7000)),
            ("localhost:6379", tcp("localhost", 6379)),
            ("[::1]:6379", tcp("::1", 6379)),
            ("unix:///run/redis.sock?db=1", ConnectionAddr::Unix("/run/redis.sock".into())),
            ("unix:/run/redis.sock", ConnectionAddr::Unix("/run/redis.sock".into())),
            ("/run/redis.sock", ConnectionAddr::Unix("/run/redis.sock".into())),
        ];
        for (text, expected) in table {
            assert_eq!(locate(text, None).map(|info| info.addr().clone()), Ok(expected), "{text}");
        }
        for text in ["", "redis", "localhost", "http://x", "rediss://x", "localhost:x"] {
            assert!(locate(text, None).is_err(), "{text}");
        }
    }

    #[test]
    fn passwords() {
        let password =
            |address, beside| locate(address, beside).unwrap().redis_settings().password().map(str::to_owned);
        assert_eq!(password("redis://:in%20it@h", Some("beside")).as_deref(), Some("in it"));
        assert_eq!(password("h:1", Some("beside")).as_deref(), Some("beside"));
        assert_eq!(password("h:1", None), None);
        assert_eq!(without_secret("redis://user:p@ss@host:1/2"), "redis://host:1/2");
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
