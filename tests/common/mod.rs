//! Shared by the end-to-end tests: the daemon under test, and a blocking Gearman peer that uses our own codec, for
//! exact control over requests. Stock clients have their own tests (`interop`).
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part of this"
)]

pub mod authority;
pub mod backlog;
pub mod bystander;
pub mod ended;
pub mod eventmq;
pub mod fake_redis;
pub mod faktory;
pub mod history;
pub mod http;
pub mod in_order;
pub mod ledger;
pub mod load;
pub mod namespaces;
pub mod pair;
pub mod postgres;
pub mod spiderq;
pub mod zmtp;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use windlass_gearman::wire::{
    AssignForm, Frames, Kind, Limits, Message, Packet, Priority, Report, Request, Response,
    Submission,
};
use windlass_testkit::daemon::{Daemon, Plan};

/// The daemon just built, with its data in `dir`.
pub fn daemon(dir: &Path) -> Plan {
    Plan::new(env!("CARGO_BIN_EXE_windlass"), dir)
}

/// The longest wait for a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `is_so` returns true, as long as a loaded machine may need.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not within a minute: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the daemon has logged `text`.
pub fn wait_for_log(daemon: &Daemon, text: &str) {
    let end = Instant::now() + PATIENCE;
    while !daemon.log_text().contains(text) {
        assert!(
            Instant::now() < end,
            "not logged within a minute: {text}\n{}",
            daemon.log_text()
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// A number from the environment, for longer runs.
pub fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// A transport: a socket, or TLS over one.
pub trait Stream: Read + Write + Debug {}
impl<T: Read + Write + Debug> Stream for T {}

/// A socket with a timeout that suits a loaded machine.
pub fn socket(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(stream)
}

/// A Gearman connection.
#[derive(Debug)]
pub struct Peer {
    stream: Box<dyn Stream + Send>,
    frames: Frames,
    input: BytesMut,
    ready: VecDeque<Message>,
}

/// A job as assigned to a worker.
#[derive(Debug, Clone)]
pub struct Assigned {
    pub handle: Bytes,
    pub workload: Bytes,
}

impl Peer {
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::over(socket(address)?))
    }

    pub fn over(stream: impl Stream + Send + 'static) -> Self {
        let frames = Frames::new(Limits::new(1 << 29));
        Self {
            stream: Box::new(stream),
            frames,
            input: BytesMut::new(),
            ready: VecDeque::new(),
        }
    }

    pub fn send(&mut self, request: &Request) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        request.encode(&mut bytes);
        self.stream.write_all(&bytes)
    }

    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next message, or an error at the end of the stream.
    pub fn receive(&mut self) -> io::Result<Message> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(message);
            }
            while let Some(message) = self
                .frames
                .decode(&mut self.input)
                .map_err(io::Error::other)?
            {
                self.ready.push_back(message);
            }
            if self.ready.is_empty() {
                let mut chunk = [0; 65536];
                // A process that was stopped for a while goes on with an interrupted call.
                let read = match self.stream.read(&mut chunk) {
                    Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                    read => read?,
                };
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.input.extend_from_slice(&chunk[..read]);
            }
        }
    }

    pub fn packet(&mut self) -> io::Result<Packet> {
        match self.receive()? {
            Message::Packet(packet) => Ok(packet),
            Message::Line(line) => Err(io::Error::other(format!("a line, not a packet: {line:?}"))),
        }
    }

    /// Submits a background job and waits for its handle; an ERROR packet is an error.
    pub fn submit(
        &mut self,
        function: &str,
        unique: &str,
        workload: impl Into<Bytes>,
    ) -> io::Result<Bytes> {
        self.send(&submission(function, unique, workload, true))?;
        let packet = self.packet()?;
        match Response::parse(&packet) {
            Ok(Response::JobCreated { handle }) => Ok(Bytes::copy_from_slice(handle)),
            Ok(Response::Error { code, text }) => Err(io::Error::other(format!(
                "{}: {}",
                String::from_utf8_lossy(code),
                String::from_utf8_lossy(text)
            ))),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }

    pub fn can_do(&mut self, function: &str) -> io::Result<()> {
        self.send(&Request::CanDo {
            function: Bytes::copy_from_slice(function.as_bytes()),
        })
    }

    /// Asks for a job; `None` if there is none.
    pub fn grab(&mut self) -> io::Result<Option<Assigned>> {
        self.send(&Request::Grab(AssignForm::Plain))?;
        loop {
            let packet = self.packet()?;
            match Response::parse(&packet) {
                Ok(Response::Noop) => {}
                Ok(Response::NoJob) => return Ok(None),
                Ok(Response::JobAssign {
                    handle, workload, ..
                }) => {
                    let (handle, workload) = (
                        Bytes::copy_from_slice(handle),
                        Bytes::copy_from_slice(workload),
                    );
                    return Ok(Some(Assigned { handle, workload }));
                }
                other => return Err(io::Error::other(format!("{other:?}"))),
            }
        }
    }

    pub fn complete(&mut self, handle: &Bytes) -> io::Result<()> {
        self.send(&Request::Work {
            handle: handle.clone(),
            report: Report::Complete(Bytes::new()),
        })
    }

    /// Sends an admin command whose answer ends in a dot, and returns all lines.
    pub fn listing(&mut self, command: &str) -> io::Result<Vec<String>> {
        self.send_raw(format!("{command}\n").as_bytes())?;
        let mut lines = Vec::new();
        loop {
            match self.receive()? {
                Message::Line(line) if &line[..] == b"." => return Ok(lines),
                Message::Line(line) => lines.push(String::from_utf8_lossy(&line).into_owned()),
                Message::Packet(packet) => {
                    return Err(io::Error::other(format!(
                        "a packet, not a line: {packet:?}"
                    )));
                }
            }
        }
    }

    /// Sends an admin command with a one-line answer, and returns the line.
    pub fn line(&mut self, command: &str) -> io::Result<String> {
        self.send_raw(format!("{command}\n").as_bytes())?;
        match self.receive()? {
            Message::Line(line) => Ok(String::from_utf8_lossy(&line).into_owned()),
            Message::Packet(packet) => Err(io::Error::other(format!(
                "a packet, not a line: {packet:?}"
            ))),
        }
    }
}

pub fn submission(
    function: &str,
    unique: &str,
    workload: impl Into<Bytes>,
    background: bool,
) -> Request {
    let job = Submission {
        function: Bytes::copy_from_slice(function.as_bytes()),
        unique: Bytes::copy_from_slice(unique.as_bytes()),
        workload: workload.into(),
    };
    Request::Submit {
        job,
        priority: Priority::Normal,
        background,
    }
}

/// The kind of a packet, for readable assertions.
pub fn kind(packet: &Packet) -> Kind {
    packet.kind
}
