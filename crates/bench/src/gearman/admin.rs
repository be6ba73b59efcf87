//! Queries a server's own count of jobs, as a check of the generator's. One blocking request per connection; only the caller
//! measures time.
//!
//! Spec: the Gearman protocol, "Administrative Protocol", `status`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::count;
use crate::error::Error;
use crate::gearman::shapes::FUNCTION;
use crate::interrupt::Interrupt;

/// A server that replays or frees a million jobs answers late.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// A longer answer is invalid, because only one function is in use.
const LINES_MAX: usize = 1000;

/// The server's count of jobs, queued and running, of [`FUNCTION`]; 0 if the server does not list the function.
///
/// # Errors
/// [`Error::Io`], [`Error::Protocol`].
pub fn jobs(addr: SocketAddr) -> Result<u64, Error> {
    let mut stream = TcpStream::connect(addr).map_err(Error::io("connect for status"))?;
    stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(Error::io("set a timeout"))?;
    stream.write_all(b"status\n").map_err(Error::io("ask for status"))?;
    let mut found = 0;
    for line in BufReader::new(stream).split(b'\n').take(LINES_MAX) {
        let line = line.map_err(Error::io("read status"))?;
        if line == b"." {
            return Ok(found);
        }
        if let Some(rest) = line.strip_prefix(FUNCTION).and_then(|rest| rest.strip_prefix(b"\t")) {
            found = total(rest).ok_or_else(|| Error::Protocol(format!("status line {}", line.escape_ascii())))?;
        }
    }
    Err(Error::Protocol("status without an end".to_owned()))
}

/// Waits until the server counts exactly `expected` jobs.
///
/// # Errors
/// [`Error::Mismatch`] if it still does not after two minutes; the errors of [`jobs`]; [`Error::Interrupted`].
pub fn await_jobs(addr: SocketAddr, expected: u64, interrupt: &Interrupt) -> Result<(), Error> {
    count::settled(expected, interrupt, || jobs(addr))
}

/// The first column: queued and running jobs together.
fn total(columns: &[u8]) -> Option<u64> {
    let digits = columns.split(|byte| *byte == b'\t').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpListener;

    /// A server that sends `answer` to one request and hangs up.
    fn answering(answer: &'static [u8]) -> (SocketAddr, std::thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = vec![0; 7];
            stream.read_exact(&mut question).unwrap();
            stream.write_all(answer).unwrap();
            question
        });
        (addr, served)
    }

    #[test]
    fn status_answers() {
        let cases: [(&str, &[u8], Option<u64>); 5] = [
            ("ours among others", b"bench2\t9\t0\t0\nbench\t12\t3\t8\nother\t1\t1\t1\n.\n", Some(12)),
            ("unknown function", b".\n", Some(0)),
            ("no end", b"bench\t1\t0\t0\n", None),
            ("no number", b"bench\tx\t0\t0\n.\n", None),
            ("an error", b"ERR UNKNOWN_COMMAND x\r\n", None),
        ];
        for (name, answer, expected) in cases {
            let (addr, served) = answering(answer);
            assert_eq!(jobs(addr).ok(), expected, "{name}");
            assert_eq!(served.join().unwrap(), b"status\n");
        }
    }
}
