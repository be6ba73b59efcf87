//! `[spiderq]` and `[zmtp]`: cycles, where each is served, and the transport under them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::address::ListenAddress;
use super::quantity::{ByteSize, Period};
use super::sections::secret;

/// The port of the examples in spiderq's own documentation; it has no port of its own.
const PORT: u16 = 5555;

/// `[zmtp]`: ZeroMQ's transport, for every protocol that is spoken over it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Zmtp {
    /// The largest message, all its parts together.
    pub message_bytes_max: ByteSize,
    /// Parts of one message.
    pub parts_max: usize,
    /// How long a peer may take for greeting and handshake.
    pub handshake_timeout: Period,
    /// Peers of one listener that may be amid them.
    pub handshakes_max: usize,
    /// Silence after which a peer is asked for a sign of life; 0 = never.
    pub ping_idle: Period,
    /// How long it may take to give one.
    pub ping_timeout: Period,
}

/// `[spiderq]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spiderq {
    /// Where spiderq is served; nowhere if empty.
    pub listen: Vec<ListenAddress>,
    /// The queue that is served there.
    pub queue: String,
    /// What is spoken.
    pub dialect: Dialect,
    /// Let clients stop the daemon.
    pub terminate: bool,
    /// Give back what a connection was lent when it ends.
    pub release_on_disconnect: bool,
    /// Blocking lends of one connection that may wait.
    pub lends_max: usize,
    /// What every client must know; both empty for nothing.
    pub user: String,
    /// And with it.
    pub password: String,
    /// A file with the password, blanks around it left out; empty for none.
    pub password_file: PathBuf,
    /// More of the same, each with addresses of its own.
    pub more: Vec<SpiderqMore>,
}

/// `[[spiderq.more]]`: what is not said is as in `[spiderq]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpiderqMore {
    /// Where.
    pub listen: Vec<ListenAddress>,
    /// The queue that is served there.
    pub queue: String,
    /// What is spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Dialect>,
    /// Let clients stop the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminate: Option<bool>,
    /// Give back what a connection was lent when it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_on_disconnect: Option<bool>,
    /// What every client must know. All three keys go together: if one is given, the others of `[spiderq]` do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// And with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// A file with the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
}

/// What is spoken at a listener of spiderq's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dialect {
    /// What each client shows that it speaks.
    #[serde(rename = "auto")]
    Auto,
    /// 1.3, and 1.4 from clients that show that they speak it.
    #[serde(rename = "1.3")]
    V1_3,
    /// 1.4 from the beginning.
    #[serde(rename = "1.4")]
    V1_4,
}

/// One cycle and where it is served, with everything that counts for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleListener<'a> {
    /// Where.
    pub listen: &'a [ListenAddress],
    /// The queue.
    pub queue: &'a str,
    /// What is spoken.
    pub dialect: Dialect,
    /// Clients may stop the daemon.
    pub terminate: bool,
    /// What a connection was lent is given back when it ends.
    pub release_on_disconnect: bool,
    /// The user clients must be; empty for none.
    pub user: &'a str,
    /// Their password.
    pub password: &'a str,
    /// A file with it.
    pub password_file: &'a Path,
}

impl Spiderq {
    /// Every cycle that is served, as it is to be served.
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
    /// The password clients must know; empty for none.
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
    fn more_cycles_are_as_the_first_unless_they_say_otherwise() {
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
