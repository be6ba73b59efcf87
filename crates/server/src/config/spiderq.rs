//! `[spiderq]` and `[zmtp]`: cycle queues with their addresses, and the transport under them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::address::ListenAddress;
use super::quantity::{ByteSize, Period};
use super::sections::secret;

/// The port of the examples in spiderq's own documentation; it has no port of its own.
const PORT: u16 = 5555;

/// `[zmtp]`: ZeroMQ's transport, for every protocol that uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Zmtp {
    /// The largest message, the sum of its parts.
    pub message_bytes_max: ByteSize,
    /// The most parts of one message.
    pub parts_max: usize,
    /// How long a peer may take for greeting and handshake.
    pub handshake_timeout: Period,
    /// The most peers of one listener that may be in the handshake.
    pub handshakes_max: usize,
    /// Silence after which a peer is sent a ping; 0 = never.
    pub ping_idle: Period,
    /// How long a peer may take to answer a ping.
    pub ping_timeout: Period,
}

/// `[spiderq]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spiderq {
    /// Addresses of spiderq; empty for none.
    pub listen: Vec<ListenAddress>,
    /// The queue served there.
    pub queue: String,
    /// The dialect.
    pub dialect: Dialect,
    /// Let clients stop the daemon.
    pub terminate: bool,
    /// Return a connection's lent entries to the queue when it ends.
    pub release_on_disconnect: bool,
    /// The most blocking lends of one connection that may wait.
    pub lends_max: usize,
    /// The user that clients must send, with `password`; both empty for no login.
    pub user: String,
    /// The password that clients must send.
    pub password: String,
    /// A file with the password, surrounding blanks ignored; empty for none.
    pub password_file: PathBuf,
    /// More listeners, each with addresses of its own.
    pub more: Vec<SpiderqMore>,
}

/// `[[spiderq.more]]`: missing keys have the values of `[spiderq]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpiderqMore {
    /// Addresses.
    pub listen: Vec<ListenAddress>,
    /// The queue served there.
    pub queue: String,
    /// The dialect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Dialect>,
    /// Let clients stop the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminate: Option<bool>,
    /// Return a connection's lent entries to the queue when it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_on_disconnect: Option<bool>,
    /// The user. The three login keys belong together: if one is given, those of `[spiderq]` are not inherited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// A file with the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
}

/// The dialect of a spiderq listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dialect {
    /// Detected from each client's messages.
    #[serde(rename = "auto")]
    Auto,
    /// 1.3, and 1.4 for clients whose messages show it.
    #[serde(rename = "1.3")]
    V1_3,
    /// 1.4 from the first message.
    #[serde(rename = "1.4")]
    V1_4,
}

/// One cycle queue, its addresses, and all its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleListener<'a> {
    /// Addresses.
    pub listen: &'a [ListenAddress],
    /// The queue.
    pub queue: &'a str,
    /// The dialect.
    pub dialect: Dialect,
    /// Clients may stop the daemon.
    pub terminate: bool,
    /// A connection's lent entries return to the queue when it ends.
    pub release_on_disconnect: bool,
    /// The user that clients must send; empty for none.
    pub user: &'a str,
    /// The user's password.
    pub password: &'a str,
    /// A file with the password.
    pub password_file: &'a Path,
}

impl Spiderq {
    /// Every served cycle queue, with inherited values filled in.
    pub fn cycles(&self) -> impl Iterator<Item = CycleListener<'_>> {
        let first = CycleListener {
            listen: &self.listen,
            queue: &self.queue,
            dialect: self.dialect,
            terminate: self.terminate,
            release_on_disconnect: self.release_on_disconnect,
            user: &self.user,
            password: &self.password,
            password_file: &self.password_file,
        };
        let more = self.more.iter().map(move |more| more.over(first));
        std::iter::once(first).chain(more).filter(|cycle| !cycle.listen.is_empty())
    }
}

impl SpiderqMore {
    fn over<'a>(&'a self, first: CycleListener<'a>) -> CycleListener<'a> {
        let named = CycleListener {
            listen: &self.listen,
            queue: &self.queue,
            dialect: self.dialect.unwrap_or(first.dialect),
            terminate: self.terminate.unwrap_or(first.terminate),
            release_on_disconnect: self.release_on_disconnect.unwrap_or(first.release_on_disconnect),
            ..first
        };
        if self.user.is_none() && self.password.is_none() && self.password_file.is_none() {
            return named;
        }
        CycleListener {
            user: self.user.as_deref().unwrap_or_default(),
            password: self.password.as_deref().unwrap_or_default(),
            password_file: self.password_file.as_deref().unwrap_or_else(|| Path::new("")),
            ..named
        }
    }
}

impl CycleListener<'_> {
    /// The password that clients must send; empty for none.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn secret(&self) -> std::io::Result<String> {
        secret(self.password, self.password_file)
    }
}

impl Default for Zmtp {
    fn default() -> Self {
        Self {
            message_bytes_max: ByteSize(64 << 20),
            parts_max: 64,
            handshake_timeout: Period::from_secs(5),
            handshakes_max: 256,
            ping_idle: Period::from_secs(30),
            ping_timeout: Period::from_secs(30),
        }
    }
}

impl Default for Spiderq {
    fn default() -> Self {
        Self {
            listen: vec![ListenAddress::Tcp { host: "127.0.0.1".to_owned(), port: PORT }],
            queue: "spiderq".to_owned(),
            dialect: Dialect::Auto,
            terminate: false,
            release_on_disconnect: false,
            lends_max: 10_000,
            user: String::new(),
            password: String::new(),
            password_file: PathBuf::new(),
            more: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_cycles_inherit_from_the_first() {
        let text = "dialect = '1.4'\nterminate = true\nuser = 'u'\npassword = 'p'\n\
                    [[more]]\nlisten = ['ipc:///b']\nqueue = 'b'\n\
                    [[more]]\nlisten = ['ipc:///c']\nqueue = 'c'\ndialect = '1.3'\nterminate = false\n\
                    release_on_disconnect = true\nuser = 'v'\npassword_file = '/p'\n\
                    [[more]]\nlisten = []\nqueue = 'nowhere'\n";
        let spiderq: Spiderq = toml::from_str(text).unwrap();
        let cycles: Vec<_> = spiderq.cycles().collect();
        let first = cycles[0];
        assert_eq!((first.queue, first.dialect, first.user, first.password), ("spiderq", Dialect::V1_4, "u", "p"));
        let b = CycleListener { listen: &spiderq.more[0].listen, queue: "b", ..first };
        let c = CycleListener {
            listen: &spiderq.more[1].listen,
            queue: "c",
            dialect: Dialect::V1_3,
            terminate: false,
            release_on_disconnect: true,
            user: "v",
            password: "",
            password_file: Path::new("/p"),
        };
        assert_eq!(cycles[1..], [b, c]);
        let off = Spiderq { listen: Vec::new(), ..Spiderq::default() };
        assert_eq!(off.cycles().count(), 0);
    }
}
