//! Queries a server's own count of jobs, as a check of the generator's. One blocking request per connection.
//!
//! Spec: Faktory Work Protocol, "INFO".

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::count;
use crate::error::Error;
use crate::faktory::wire::{self, Reply};
use crate::interrupt::Interrupt;

/// A server that replays or frees a million jobs answers late.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// The sets for jobs outside of queues.
const SETS: [&str; 4] = [
    "/faktory/tasks/Busy/size",
    "/faktory/tasks/Retries/size",
    "/faktory/tasks/Scheduled/size",
    "/faktory/tasks/Dead/size",
];

/// The server's count of jobs in all states.
///
/// # Errors
/// [`Error::Io`], [`Error::Protocol`].
pub fn jobs(addr: SocketAddr) -> Result<u64, Error> {
    let mut stream = TcpStream::connect(addr).map_err(Error::io("connect for INFO"))?;
    stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(Error::io("set a timeout"))?;
    wire::greet(&mut stream, None)?;
    stream.write_all(b"INFO\r\n").map_err(Error::io("ask for INFO"))?;
    let mut bytes = Vec::new();
    let mut scratch = [0; 4096];
    loop {
        let count = stream.read(&mut scratch).map_err(Error::io("read INFO"))?;
        if count == 0 {
            return Err(Error::Protocol("hung up at INFO".to_owned()));
        }
        bytes.extend_from_slice(scratch.get(..count).unwrap_or_default());
        match wire::split(&bytes)? {
            Some((Reply::Bulk(text), _)) => return total(text),
            Some((other, _)) => return Err(Error::Protocol(format!("INFO: {other:?}"))),
            None => {}
        }
    }
}

/// Waits until the server counts exactly `expected` jobs.
///
/// # Errors
/// [`Error::Mismatch`] if it still does not after two minutes; the errors of [`jobs`]; [`Error::Interrupted`].
pub fn await_jobs(addr: SocketAddr, expected: u64, interrupt: &Interrupt) -> Result<(), Error> {
    count::settled(expected, interrupt, || jobs(addr))
}

fn total(text: &[u8]) -> Result<u64, Error> {
    let wrong = || Error::Protocol(format!("INFO {}", text.escape_ascii()));
    let info: Value = serde_json::from_slice(text).map_err(|_| wrong())?;
    let queued = info.pointer("/faktory/queues").and_then(Value::as_object).ok_or_else(wrong)?;
    let queued: u64 = queued.values().filter_map(Value::as_u64).sum();
    let elsewhere = SETS.iter().map(|set| info.pointer(set).and_then(Value::as_u64).ok_or_else(wrong));
    Ok(queued + elsewhere.sum::<Result<u64, Error>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_in_all_states_are_counted() {
        let text = br#"{"faktory":{"queues":{"a":1,"bench":20},"tasks":{"Busy":{"size":300},"Retries":{"size":4000},
                        "Scheduled":{"size":50000},"Dead":{"size":600000}}},"server":{}}"#;
        assert_eq!(total(text).unwrap(), 654_321);
        for wrong in [&b"{}"[..], b"", br#"{"faktory":{"queues":{},"tasks":{}}}"#] {
            assert!(total(wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }
}
