//! A minimal blocking FWP peer, for exact control over requests.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use sha2::{Digest as _, Sha256};

/// A connection after its handshake.
#[derive(Debug)]
pub(crate) struct Fwp(BufReader<TcpStream>);

impl Fwp {
    /// Sends HELLO as a worker.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let (fwp, said) = Self::hello(address, "");
        assert_eq!(said, "+OK");
        fwp
    }

    /// Sends HELLO; the daemon may close the connection before.
    pub(crate) fn try_hello(address: SocketAddr) -> io::Result<Self> {
        let mut fwp = Self(BufReader::new(super::socket(address)?));
        fwp.read()?;
        fwp.try_ask("HELLO {\"v\":2}")?;
        Ok(fwp)
    }

    /// Sends HELLO as the worker of this name; the daemon may be gone.
    pub(crate) fn try_worker(address: SocketAddr, wid: &str) -> io::Result<Self> {
        let mut fwp = Self(BufReader::new(super::socket(address)?));
        fwp.read()?;
        fwp.try_ask(&format!(
            "HELLO {{\"v\":2,\"wid\":\"{wid}\",\"hostname\":\"h\",\"pid\":1,\"labels\":[]}}"
        ))?;
        Ok(fwp)
    }

    /// Sends HELLO with a password, and returns the answer.
    pub(crate) fn hello(address: SocketAddr, password: &str) -> (Self, String) {
        let mut fwp = Self(BufReader::new(super::socket(address).unwrap()));
        let hi = fwp.read().unwrap();
        let mut hello =
            String::from("{\"v\":2,\"wid\":\"wid-1\",\"hostname\":\"h\",\"pid\":1,\"labels\":[]");
        if let Some((_, salt)) = hi.split_once("\"s\":\"") {
            let salt = salt.split('"').next().unwrap();
            let times: u32 = hi
                .split_once("\"i\":")
                .unwrap()
                .1
                .split(',')
                .next()
                .unwrap()
                .parse()
                .unwrap();
            let first = Sha256::digest(format!("{password}{salt}"));
            let hash = (1..times).fold(first, |hash, _| Sha256::digest(hash));
            write!(hello, ",\"pwdhash\":\"{}\"", hex::encode(hash)).unwrap();
        }
        let said = fwp.ask(&format!("HELLO {hello}}}"));
        (fwp, said)
    }

    /// Sends a line and returns its answer: the text of a bulk string, other answers with their first byte, and `null`.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.try_ask(line).unwrap()
    }

    /// Sends a line and does not wait for its answer.
    pub(crate) fn say(&mut self, line: &str) {
        self.0
            .get_mut()
            .write_all(format!("{line}\r\n").as_bytes())
            .unwrap();
    }

    /// The same, for a daemon that may crash at any time.
    pub(crate) fn try_ask(&mut self, line: &str) -> io::Result<String> {
        self.0
            .get_mut()
            .write_all(format!("{line}\r\n").as_bytes())?;
        self.read()
    }

    /// The answer to a line that was only sent.
    pub(crate) fn hear(&mut self) -> io::Result<String> {
        self.read()
    }

    fn read(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        // An incomplete line is not an answer.
        let line = line
            .strip_suffix("\r\n")
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(match line.strip_prefix('$') {
            Some("-1") => "null".to_owned(),
            Some(length) => {
                let mut bytes = vec![0; length.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                String::from_utf8(bytes).unwrap()
            }
            None => line.to_owned(),
        })
    }
}
