//! eMQP messages, encoded independently of our own codec.

use std::io;
use std::net::SocketAddr;

use crate::common::zmtp::{Dealer, command, frame, message};

const VERSION: &[u8] = b"eMQP/1.0";

/// A client, worker, scheduler or administrator.
#[derive(Debug)]
pub struct Peer {
    pub dealer: Dealer,
}

/// The frames of a message behind its head: command, identifier and arguments, as text.
pub type Heard = Vec<String>;

impl Peer {
    pub fn connect(address: SocketAddr, identity: &str) -> Self {
        Self {
            dealer: Dealer::connect(address, identity.as_bytes()),
        }
    }

    /// The same, for a daemon that may crash at any time.
    pub fn try_connect(address: SocketAddr, identity: &str) -> io::Result<Self> {
        Ok(Self {
            dealer: Dealer::try_connect_as(address, "DEALER", identity.as_bytes())?,
        })
    }

    /// Connects a worker of these queues (JSON) and waits until it is acknowledged.
    pub fn worker(address: SocketAddr, identity: &str, queues: &str) -> Self {
        Self::try_worker(address, identity, queues).unwrap()
    }

    /// The same, for a daemon that may crash at any time.
    pub fn try_worker(address: SocketAddr, identity: &str, queues: &str) -> io::Result<Self> {
        let mut worker = Self::try_connect(address, identity)?;
        worker.inform(queues, "worker")?;
        Ok(worker)
    }

    pub fn scheduler(address: SocketAddr, identity: &str) -> Self {
        let mut scheduler = Self::connect(address, identity);
        scheduler.inform("", "scheduler").unwrap();
        scheduler
    }

    fn inform(&mut self, queues: &str, kind: &str) -> io::Result<()> {
        self.say(&["INFORM", "inform", queues, kind])?;
        let ack = self.hear_any()?;
        assert_eq!(
            (&ack[0][..], &ack[2..]),
            ("ACK", &["inform".to_owned()][..])
        );
        // The stock JobManager starts its processes at this message.
        assert_eq!(self.hear_any()?[0], "HEARTBEAT");
        Ok(())
    }

    pub fn ready(&mut self, credits: usize) {
        for _ in 0..credits {
            self.say(&["READY", "ready"]).unwrap();
        }
    }

    /// Sends a message with its head.
    pub fn say(&mut self, frames: &[&str]) -> io::Result<()> {
        let frames: Vec<&[u8]> = frames.iter().map(|frame| frame.as_bytes()).collect();
        self.say_bytes(&frames)
    }

    pub fn say_bytes(&mut self, frames: &[&[u8]]) -> io::Result<()> {
        self.dealer
            .say(&message(&[&[b"", VERSION], frames].concat()))
    }

    /// Requests a job and waits until it is on the disk.
    pub fn request(&mut self, id: &str, queue: &str, headers: &str, job: &str) {
        self.say(&["REQUEST", id, queue, headers, job]).unwrap();
        self.is_told(id);
    }

    /// Expects the acknowledgement of this request next.
    pub fn is_told(&mut self, id: &str) {
        let reply = self.hear().unwrap();
        assert_eq!(
            (&reply[0][..], &reply[2..]),
            ("REPLY", &[id.to_owned()][..])
        );
    }

    /// The next message that is not a heartbeat.
    pub fn hear(&mut self) -> io::Result<Heard> {
        loop {
            let heard = self.hear_any()?;
            if heard[0] != "HEARTBEAT" {
                return Ok(heard);
            }
        }
    }

    /// The next message.
    pub fn hear_any(&mut self) -> io::Result<Heard> {
        let parts = self.dealer.hear_message()?;
        let [delimiter, version, heard @ ..] = &parts[..] else {
            panic!("{parts:?}")
        };
        assert_eq!((&delimiter[..], &version[..]), (&b""[..], VERSION));
        Ok(heard
            .iter()
            .map(|part| String::from_utf8(part.clone()).unwrap())
            .collect())
    }
}

/// A SUB socket.
#[derive(Debug)]
pub struct Subscriber {
    pub dealer: Dealer,
}

impl Subscriber {
    pub fn connect(address: SocketAddr, topics: &[&str]) -> Self {
        let mut subscriber = Self {
            dealer: Dealer::connect_as(address, "SUB", b""),
        };
        for topic in topics {
            subscriber
                .dealer
                .say(&command("SUBSCRIBE", topic.as_bytes()))
                .unwrap();
        }
        subscriber
    }

    /// As peers of ZMTP 3.0 cancel a subscription.
    pub fn cancel(&mut self, topic: &str) {
        self.dealer
            .say(&frame(0, &[b"\0", topic.as_bytes()].concat()))
            .unwrap();
    }

    /// A topic, and the length of the message.
    pub fn hear(&mut self) -> (String, usize) {
        let parts = self.dealer.hear_message().unwrap();
        let [topic, text] = &parts[..] else {
            panic!("{parts:?}")
        };
        (String::from_utf8(topic.clone()).unwrap(), text.len())
    }
}
