//! Redis's protocol: addresses, commands and replies over one blocking connection.
//!
//! Spec: RESP2, the Redis serialization protocol. Replies nest at most `DEPTH_MAX` deep, a text has at most `TEXT_MAX`
//! bytes, and memory grows with the bytes that have arrived, not with the length that a reply announces.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use percent_encoding::percent_decode_str;
use thiserror::Error;

/// Redis's own limit (`proto-max-bulk-len`).
const TEXT_MAX: u64 = 512 << 20;
const LINE_MAX: u64 = 64 << 10;
/// The replies that an import asks for nest twice.
const DEPTH_MAX: u8 = 4;
const DEFAULT_PORT: u16 = 6379;

/// Where a Redis is, and its login and database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) place: Place,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl From<Place> for Address {
    fn from(place: Place) -> Self {
        Self {
            place,
            user: None,
            password: None,
            database: None,
        }
    }
}

impl Address {
    /// Reads a URL (`redis://[user][:password@]host[:port][/database]`, `unix:///path?db=…&user=…&pass=…`), a path, or
    /// a host with a port.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.starts_with("rediss:") || text.starts_with("valkeys:") {
            return Err(
                "TLS to Redis is not supported: use a tunnel, or start a Redis on a copy of the files",
            );
        }
        if text.starts_with('/') {
            return Ok(Place::Unix(text.into()).into());
        }
        let (scheme, rest) = text
            .split_once(':')
            .ok_or("a URL, a path or host:port expected")?;
        match scheme {
            "unix" | "redis+unix" | "valkey+unix" => Self::of_socket(rest),
            "redis" | "valkey" if rest.starts_with("//") => Self::of_url(text),
            _ if rest.starts_with("//") => {
                Err("the URL of a Redis begins with redis:// or unix://")
            }
            _ => {
                let place = text
                    .rsplit_once(':')
                    .and_then(|(host, port)| Some((host, port.parse().ok()?)));
                let (host, port) = place.ok_or("a URL, a path or host:port expected")?;
                Ok(Place::Tcp(bare(host).to_owned(), port).into())
            }
        }
    }

    /// The same, with this password if the address has none.
    pub(super) fn or_password(mut self, password: Option<&str>) -> Self {
        self.password = self.password.or_else(|| password.map(str::to_owned));
        self
    }

    fn of_socket(rest: &str) -> Result<Self, &'static str> {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = path.strip_prefix("//").unwrap_or(path);
        if !path.starts_with('/') {
            return Err("unix: needs the whole path of a socket");
        }
        let mut address = Self::from(Place::Unix(decoded(path)?.into_owned().into()));
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = Some(decoded(value)?.into_owned());
            match key {
                "db" => address.database = value,
                "user" => address.user = value,
                "pass" => address.password = value,
                _ => return Err("a socket's URL takes db, user and pass"),
            }
        }
        Ok(address)
    }

    fn of_url(text: &str) -> Result<Self, &'static str> {
        let url: Uri = text.parse().map_err(|_| "not a URL")?;
        let authority = url.authority().ok_or("the URL has no host")?;
        let login = authority
            .as_str()
            .rsplit_once('@')
            .map_or("", |(login, _)| login);
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let part = |text: &str| match text {
            "" => Ok(None),
            text => decoded(text).map(|text| Some(text.into_owned())),
        };
        let place = authority.as_str().rsplit('@').next().unwrap_or_default();
        let port = match place
            .strip_prefix(authority.host())
            .unwrap_or_default()
            .strip_prefix(':')
        {
            Some(port) => port.parse().map_err(|_| "the port is not a number")?,
            None => DEFAULT_PORT,
        };
        let mut address = Self::from(Place::Tcp(bare(authority.host()).to_owned(), port));
        (address.user, address.password) = (part(user)?, part(password)?);
        address.database = part(url.path().trim_matches('/'))?;
        Ok(address)
    }
}

/// An IPv6 address without its brackets.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

fn decoded(text: &str) -> Result<Cow<'_, str>, &'static str> {
    percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| "the URL is not UTF-8")
}

/// Why a command has no reply.
#[derive(Debug, Error)]
pub(super) enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server's own text.
    #[error("{0}")]
    Refused(String),
    #[error("unexpected reply from Redis")]
    Reply,
}

/// A reply without an error in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Null,
    Number(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
}

impl Reply {
    pub(super) fn number<T: TryFrom<i64>>(self) -> Result<T, Error> {
        let number = match self {
            Self::Number(number) => Some(number),
            Self::Text(text) => str::from_utf8(&text)
                .ok()
                .and_then(|text| text.parse().ok()),
            Self::Null | Self::List(_) => None,
        };
        number
            .and_then(|number| number.try_into().ok())
            .ok_or(Error::Reply)
    }

    pub(super) fn bytes(self) -> Result<Vec<u8>, Error> {
        if let Self::Text(text) = self {
            Ok(text)
        } else {
            Err(Error::Reply)
        }
    }

    pub(super) fn text(self) -> Result<String, Error> {
        String::from_utf8(self.bytes()?).map_err(|_| Error::Reply)
    }

    pub(super) fn list(self) -> Result<Vec<Self>, Error> {
        if let Self::List(replies) = self {
            Ok(replies)
        } else {
            Err(Error::Reply)
        }
    }

    /// A list of texts.
    pub(super) fn texts(self) -> Result<Vec<Vec<u8>>, Error> {
        self.list()?.into_iter().map(Self::bytes).collect()
    }
}

/// Commands as bytes, each with its words.
#[derive(Debug, Default)]
pub(super) struct Commands {
    bytes: Vec<u8>,
    count: usize,
}

impl Commands {
    pub(super) fn one(words: &[&[u8]]) -> Self {
        let mut commands = Self::default();
        commands.add(words);
        commands
    }

    pub(super) fn add(&mut self, words: &[&[u8]]) {
        self.bytes
            .extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.bytes
                .extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.bytes.extend_from_slice(word);
            self.bytes.extend_from_slice(b"\r\n");
        }
        self.count += 1;
    }
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One connection to a Redis.
pub(super) struct Connection(BufReader<Box<dyn Stream>>);

impl Connection {
    /// Connects and logs in. Each read and write has `patience`.
    pub(super) fn open(address: &Address, patience: Duration) -> Result<Self, Error> {
        let stream: Box<dyn Stream> = match &address.place {
            Place::Tcp(host, port) => {
                let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
                let mut addresses = (host.as_str(), *port).to_socket_addrs()?;
                let connected = addresses.find_map(|at| {
                    TcpStream::connect_timeout(&at, patience)
                        .inspect_err(|why| last = io::Error::new(why.kind(), why.to_string()))
                        .ok()
                });
                let stream = connected.ok_or(last)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                Box::new(stream)
            }
            Place::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                Box::new(stream)
            }
        };
        let mut connection = Self(BufReader::new(stream));
        match (&address.user, &address.password) {
            (Some(user), Some(password)) => {
                connection.ask(&[b"AUTH", user.as_bytes(), password.as_bytes()])?
            }
            (None, Some(password)) => connection.ask(&[b"AUTH", password.as_bytes()])?,
            (_, None) => Reply::Null,
        };
        if let Some(database) = &address.database {
            connection.ask(&[b"SELECT", database.as_bytes()])?;
        }
        Ok(connection)
    }

    pub(super) fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, Error> {
        self.ask_all(&Commands::one(words))?
            .pop()
            .ok_or(Error::Reply)
    }

    /// Sends many commands at once, and returns their replies in order.
    pub(super) fn ask_all(&mut self, commands: &Commands) -> Result<Vec<Reply>, Error> {
        self.0.get_mut().write_all(&commands.bytes)?;
        (0..commands.count)
            .map(|_| read(&mut self.0, DEPTH_MAX))
            .collect()
    }
}

/// The next reply. An error anywhere in it is the reply's.
fn read(from: &mut impl BufRead, depth: u8) -> Result<Reply, Error> {
    let line = line(from)?;
    let (kind, rest) = line.split_at_checked(1).ok_or(Error::Reply)?;
    let number = || rest.parse::<i64>().map_err(|_| Error::Reply);
    match kind {
        "+" => Ok(Reply::Text(rest.as_bytes().to_vec())),
        "-" => Err(Error::Refused(rest.to_owned())),
        ":" => Ok(Reply::Number(number()?)),
        "$" | "*" if number()? == -1 => Ok(Reply::Null),
        "$" => {
            let length = u64::try_from(number()?)
                .ok()
                .filter(|length| *length <= TEXT_MAX)
                .ok_or(Error::Reply)?;
            let mut text = Vec::new();
            from.take(length + 2).read_to_end(&mut text)?;
            let whole = text.len() as u64 == length + 2 && text.ends_with(b"\r\n");
            if !whole {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            text.truncate(text.len() - 2);
            Ok(Reply::Text(text))
        }
        "*" => {
            let depth = depth.checked_sub(1).ok_or(Error::Reply)?;
            (0..number()?)
                .map(|_| read(from, depth))
                .collect::<Result<_, _>>()
                .map(Reply::List)
        }
        _ => Err(Error::Reply),
    }
}

fn line(from: &mut impl BufRead) -> Result<String, Error> {
    let mut line = Vec::new();
    from.take(LINE_MAX).read_until(b'\n', &mut line)?;
    let Some(line) = line.strip_suffix(b"\r\n") else {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    };
    String::from_utf8(line.to_vec()).map_err(|_| Error::Reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies() {
        let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
        let table = [
            ("+OK\r\n", Some(text("OK"))),
            (":-7\r\n", Some(Reply::Number(-7))),
            ("$5\r\na\r\nbc\r\n", Some(text("a\r\nbc"))),
            ("$0\r\n\r\n", Some(text(""))),
            ("$-1\r\n", Some(Reply::Null)),
            ("*-1\r\n", Some(Reply::Null)),
            (
                "*2\r\n$1\r\n0\r\n*1\r\n:3\r\n",
                Some(Reply::List(vec![
                    text("0"),
                    Reply::List(vec![Reply::Number(3)]),
                ])),
            ),
            ("-ERR no\r\n", None),
            ("*1\r\n-ERR no\r\n", None),
            ("$5\r\nabc", None),
            ("$3\r\nabcde", None),
            ("$9999999999\r\n", None),
            ("*9999999999\r\n", None),
            ("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", None),
            (":x\r\n", None),
            ("%1\r\n", None),
            ("OK", None),
            ("", None),
        ];
        for (bytes, expected) in table {
            assert_eq!(
                read(&mut bytes.as_bytes(), DEPTH_MAX).ok(),
                expected,
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn addresses() {
        let tcp = |host: &str, port| Address::from(Place::Tcp(host.to_owned(), port));
        let unix = || Address::from(Place::Unix("/run/redis.sock".into()));
        let some = |text: &str| Some(text.to_owned());
        let table = [
            ("redis://127.0.0.1", tcp("127.0.0.1", 6379)),
            ("valkey://h:1/", tcp("h", 1)),
            ("redis://[::1]:7", tcp("::1", 7)),
            (
                "redis://:secret@db:7000/3",
                Address {
                    password: some("secret"),
                    database: some("3"),
                    ..tcp("db", 7000)
                },
            ),
            (
                "redis://me:in%20it@h",
                Address {
                    user: some("me"),
                    password: some("in it"),
                    ..tcp("h", 6379)
                },
            ),
            ("localhost:6379", tcp("localhost", 6379)),
            ("[::1]:6379", tcp("::1", 6379)),
            (
                "unix:///run/redis.sock?db=1&pass=x",
                Address {
                    database: some("1"),
                    password: some("x"),
                    ..unix()
                },
            ),
            ("unix:/run/redis.sock", unix()),
            ("/run/redis.sock", unix()),
        ];
        for (text, expected) in table {
            assert_eq!(Address::parse(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "redis",
            "localhost",
            "http://x",
            "rediss://x",
            "localhost:x",
            "unix:x",
            "redis://",
            "redis://h:x",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn passwords() {
        let password = |address, beside| {
            Address::parse(address)
                .unwrap()
                .or_password(beside)
                .password
        };
        assert_eq!(
            password("redis://:in%20it@h", Some("beside")).as_deref(),
            Some("in it")
        );
        assert_eq!(password("h:1", Some("beside")).as_deref(), Some("beside"));
        assert_eq!(password("h:1", None), None);
    }
}
