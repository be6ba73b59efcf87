//! One message, and the meaning of its frames.
//!
//! Every message begins with an empty frame, the version, a command and the message's identifier. The frames of the
//! ROUTER's identity are not part of it. The version is not checked, as in the released router.
//!
//! Spec: "Global Frames" to "eMQP / Publisher". Where the released programs have other frames, both forms are read, and
//! theirs is written.

use std::{array, iter};

use windlass_zmtp::Message;

use super::headers::number;
use super::{Fault, Headers};

/// A message and its identifier, which may be any bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The sender's identifier of the message. A request keeps it on its whole way.
    pub id: &'a [u8],
    /// The command.
    pub command: Command<'a>,
}

/// A command with its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// A worker or a scheduler registers.
    Inform {
        /// A worker's queues, for [`super::queues`].
        queues: &'a [u8],
        /// Worker or scheduler.
        kind: PeerKind<'a>,
    },
    /// Confirms an `INFORM`.
    Ack {
        /// The identifier of the `INFORM`.
        of: &'a [u8],
    },
    /// A sign of life, in both directions.
    Heartbeat {
        /// The sender's clock in Unix seconds, as text. Empty if absent.
        time: &'a [u8],
    },
    /// A worker can take one more job.
    Ready,
    /// A job: from a client or scheduler, and on to a worker.
    Request(Request<'a>),
    /// From a worker: a job's result. From the daemon: the acceptance of a request, a result, or a report.
    Reply {
        /// A worker's result as JSON, `{"value": …}`; to a client the identifier of its request, or a result; to an
        /// administrator JSON.
        text: &'a [u8],
        /// The identifier of the request that the result belongs to.
        of: Option<&'a [u8]>,
    },
    /// Runs a job repeatedly. Replaces an earlier schedule of the same job.
    Schedule(Plan<'a>),
    /// Removes a job's schedule. All fields but the job are ignored.
    Unschedule(Plan<'a>),
    /// A message for all subscribers of its topic.
    Publish {
        /// Subscriptions match a prefix of it.
        topic: &'a [u8],
        /// The message.
        text: &'a [u8],
    },
    /// Asks the receiver to stop.
    Disconnect,
    /// The sender leaves. The specification calls it `KBAI`, which is also accepted.
    Kbye,
    /// An administrator requests counters: [`super::Status`].
    Status,
    /// An administrator requests the workers: [`super::Workers`].
    ShowWorkers,
    /// An administrator requests the schedulers: [`super::Schedulers`].
    ShowSchedulers,
    /// An administrator has connected. Gets no reply.
    Hello,
    /// An unknown command. Not an error: it is ignored.
    Unknown {
        /// The command.
        name: &'a [u8],
    },
}

/// The role in an `INFORM`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerKind<'a> {
    /// Takes jobs.
    Worker,
    /// Receives schedules, and sends their jobs when they are due.
    Scheduler,
    /// An unknown role, which gets no reply.
    Other(&'a [u8]),
}

/// A job and its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// Name of the queue.
    pub queue: &'a [u8],
    /// The headers, verbatim.
    pub headers: Headers<'a>,
    /// JSON, `["run", {…}]`. Passed on verbatim.
    pub job: &'a [u8],
}

/// A job and its schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan<'a> {
    /// Name of the queue of its runs.
    pub queue: &'a [u8],
    /// The headers, verbatim.
    pub headers: Headers<'a>,
    /// Seconds as text; if negative, `cron` counts.
    pub interval: &'a [u8],
    /// JSON, `["run", {…}]`. [`super::identity`] identifies the job.
    pub job: &'a [u8],
    /// A cron expression of five fields, in UTC, or empty.
    pub cron: &'a [u8],
}

/// The times of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When<'a> {
    /// At this interval from the time of scheduling. 0 is possible; its meaning is up to the scheduler.
    Every {
        /// Seconds between two runs.
        secs: u64,
    },
    /// By this cron expression, which was not parsed.
    Cron(&'a [u8]),
}

/// A message's frames in order, as [`windlass_zmtp::Peer::send`] takes them.
pub type Frames<'a> = iter::Take<array::IntoIter<&'a [u8], FRAMES_MAX>>;

/// The longest messages are `SCHEDULE` and `UNSCHEDULE`.
const FRAMES_MAX: usize = 9;
/// Frames of every message.
const HEAD: usize = 4;
const VERSION: &[u8] = b"eMQP/1.0";

const INFORM: &str = "INFORM";
const ACK: &str = "ACK";
const HEARTBEAT: &str = "HEARTBEAT";
const READY: &str = "READY";
const REQUEST: &str = "REQUEST";
const REPLY: &str = "REPLY";
const SCHEDULE: &str = "SCHEDULE";
const UNSCHEDULE: &str = "UNSCHEDULE";
const PUBLISH: &str = "PUBLISH";
const DISCONNECT: &str = "DISCONNECT";
const KBYE: &str = "KBYE";
const KBAI: &str = "KBAI";
const STATUS: &str = "STATUS";
const SHOW_WORKERS: &str = "ROUTER_SHOW_WORKERS";
const SHOW_SCHEDULERS: &str = "ROUTER_SHOW_SCHEDULERS";
const HELLO: &str = "HELLO";

/// The fewest frames of messages that need more than the head.
const FRAMES_MIN: [(&str, usize); 7] = [
    (INFORM, 6),
    (ACK, 5),
    (REQUEST, 7),
    (REPLY, 5),
    (SCHEDULE, 8),
    (UNSCHEDULE, 8),
    (PUBLISH, 6),
];

impl<'a> Packet<'a> {
    /// Parses a message. Extra frames are ignored.
    ///
    /// # Errors
    /// Missing frames; see [`Fault`]. The contents of frames are not checked.
    pub fn decode(message: &'a Message) -> Result<Self, Fault> {
        let mut parts = message.parts();
        let given = parts.len();
        let (Some(delimiter), Some(_version), Some(name), Some(id)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Fault(format!(
                "a message has at least 4 frames, not {given}"
            )));
        };
        if !delimiter.is_empty() {
            return Err("the first frame is not empty: this is not eMQP".into());
        }
        let mut frames = [&b""[..]; FRAMES_MAX - HEAD];
        frames
            .iter_mut()
            .zip(parts)
            .for_each(|(frame, part)| *frame = part);
        Ok(Self {
            id,
            command: Command::read(name, frames, given)?,
        })
    }

    /// All frames of the message, from the empty one on.
    pub fn frames(&self) -> Frames<'a> {
        let (name, body, count) = self.command.body();
        let [a, b, c, d, e] = body;
        [b"", VERSION, name, self.id, a, b, c, d, e]
            .into_iter()
            .take(HEAD + count)
    }
}

impl<'a> Command<'a> {
    /// `frames` are those behind the head, empty if absent; `given` counts all frames of the message.
    fn read(
        name: &'a [u8],
        frames: [&'a [u8]; FRAMES_MAX - HEAD],
        given: usize,
    ) -> Result<Self, Fault> {
        let [a, b, c, d, e] = frames;
        let plan = Plan {
            queue: a,
            headers: Headers(b),
            interval: c,
            job: d,
            cron: e,
        };
        let text = std::str::from_utf8(name).unwrap_or_default();
        let is_short = |(command, least): &(&str, usize)| *command == text && given < *least;
        Ok(match (text, FRAMES_MIN.into_iter().find(is_short)) {
            (SCHEDULE, Some(_)) if given == 7 => {
                return Err(Fault(format!(
                    "SCHEDULE has {given} frames: the interval is missing"
                )));
            }
            // The specification's form. It lacks the interval, which does not matter here.
            (UNSCHEDULE, Some(_)) if given == 7 => Self::Unschedule(Plan {
                interval: b"-1",
                job: c,
                cron: b"",
                ..plan
            }),
            (_, Some((command, required))) => {
                return Err(Fault(format!(
                    "{command} has at least {required} frames, not {given}"
                )));
            }
            (INFORM, _) => Self::Inform {
                queues: a,
                kind: PeerKind::read(b),
            },
            (ACK, _) => Self::Ack { of: a },
            (HEARTBEAT, _) => Self::Heartbeat { time: a },
            (READY, _) => Self::Ready,
            (REQUEST, _) => Self::Request(Request {
                queue: a,
                headers: Headers(b),
                job: c,
            }),
            (REPLY, _) => Self::Reply {
                text: a,
                of: (given > 5).then_some(b),
            },
            (SCHEDULE, _) => Self::Schedule(plan),
            (UNSCHEDULE, _) => Self::Unschedule(plan),
            // The client's form has headers; all of them are ignored.
            (PUBLISH, _) => Self::Publish {
                topic: a,
                text: if given == 6 { b } else { c },
            },
            (DISCONNECT, _) => Self::Disconnect,
            (KBYE | KBAI, _) => Self::Kbye,
            (STATUS, _) => Self::Status,
            (SHOW_WORKERS, _) => Self::ShowWorkers,
            (SHOW_SCHEDULERS, _) => Self::ShowSchedulers,
            (HELLO, _) => Self::Hello,
            _ => Self::Unknown { name },
        })
    }

    /// The command's name, the frames behind the head, and their number.
    fn body(self) -> (&'a [u8], [&'a [u8]; FRAMES_MAX - HEAD], usize) {
        let none: &[u8] = b"";
        let alone = |name: &'static str| (name.as_bytes(), [none; FRAMES_MAX - HEAD], 0);
        match self {
            Self::Inform { queues, kind } => (
                INFORM.as_bytes(),
                [queues, kind.name(), none, none, none],
                2,
            ),
            Self::Ack { of } => (ACK.as_bytes(), [of, none, none, none, none], 1),
            Self::Heartbeat { time } => (HEARTBEAT.as_bytes(), [time, none, none, none, none], 1),
            Self::Ready => alone(READY),
            Self::Request(Request {
                queue,
                headers,
                job,
            }) => (REQUEST.as_bytes(), [queue, headers.0, job, none, none], 3),
            Self::Reply { text, of: None } => (REPLY.as_bytes(), [text, none, none, none, none], 1),
            Self::Reply { text, of: Some(of) } => {
                (REPLY.as_bytes(), [text, of, none, none, none], 2)
            }
            Self::Schedule(plan) => (SCHEDULE.as_bytes(), plan.body(), 5),
            Self::Unschedule(plan) => (UNSCHEDULE.as_bytes(), plan.body(), 5),
            Self::Publish { topic, text } => {
                (PUBLISH.as_bytes(), [topic, text, none, none, none], 2)
            }
            Self::Disconnect => alone(DISCONNECT),
            Self::Kbye => alone(KBYE),
            Self::Status => alone(STATUS),
            Self::ShowWorkers => alone(SHOW_WORKERS),
            Self::ShowSchedulers => alone(SHOW_SCHEDULERS),
            Self::Hello => alone(HELLO),
            Self::Unknown { name } => (name, [none; FRAMES_MAX - HEAD], 0),
        }
    }
}

impl<'a> PeerKind<'a> {
    fn read(name: &'a [u8]) -> Self {
        match name {
            b"worker" => Self::Worker,
            b"scheduler" => Self::Scheduler,
            _ => Self::Other(name),
        }
    }

    const fn name(self) -> &'a [u8] {
        match self {
            Self::Worker => b"worker",
            Self::Scheduler => b"scheduler",
            Self::Other(name) => name,
        }
    }
}

impl<'a> Plan<'a> {
    /// The times of the schedule.
    ///
    /// # Errors
    /// The interval is not an integer, or negative without a cron expression.
    pub fn when(&self) -> Result<When<'a>, Fault> {
        let secs = number(self.interval).ok_or("the interval is not a whole number of seconds")?;
        match u64::try_from(secs) {
            Ok(secs) => Ok(When::Every { secs }),
            Err(_) if self.cron.trim_ascii().is_empty() => {
                Err("an interval below 0 stands for a cron expression, and there is none".into())
            }
            Err(_) => Ok(When::Cron(self.cron.trim_ascii())),
        }
    }

    const fn body(&self) -> [&'a [u8]; FRAMES_MAX - HEAD] {
        [
            self.queue,
            self.headers.0,
            self.interval,
            self.job,
            self.cron,
        ]
    }
}

/// A time for a heartbeat: Unix seconds and three decimal places.
pub fn unix_seconds(unix_ms: u64) -> String {
    format!("{}.{:03}", unix_ms / 1_000, unix_ms % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames from words; `-` is an empty frame.
    fn message(text: &str) -> Message {
        Message::new(
            text.split(' ')
                .map(|frame| if frame == "-" { b"" } else { frame.as_bytes() }),
        )
    }

    fn shown(frames: Frames<'_>) -> String {
        let frames: Vec<_> = frames
            .map(|frame| {
                if frame.is_empty() {
                    "-".into()
                } else {
                    String::from_utf8_lossy(frame)
                }
            })
            .collect();
        frames.join(" ")
    }

    const fn plan(interval: &'static [u8], cron: &'static [u8]) -> Plan<'static> {
        Plan {
            queue: b"q",
            headers: Headers(b"nohaste"),
            interval,
            job: b"[job]",
            cron,
        }
    }

    #[test]
    fn every_message() {
        let request = Request {
            queue: b"q",
            headers: Headers(b"timeout:3"),
            job: b"[job]",
        };
        let table = [
            (
                "INFORM m [[10,\"q\"]] worker",
                Command::Inform {
                    queues: b"[[10,\"q\"]]",
                    kind: PeerKind::Worker,
                },
            ),
            (
                "INFORM m - scheduler",
                Command::Inform {
                    queues: b"",
                    kind: PeerKind::Scheduler,
                },
            ),
            (
                "INFORM m - spectator",
                Command::Inform {
                    queues: b"",
                    kind: PeerKind::Other(b"spectator"),
                },
            ),
            ("ACK m i", Command::Ack { of: b"i" }),
            (
                "HEARTBEAT m 1795234453.149",
                Command::Heartbeat {
                    time: b"1795234453.149",
                },
            ),
            ("READY m", Command::Ready),
            ("REQUEST m q timeout:3 [job]", Command::Request(request)),
            (
                "REQUEST m - - -",
                Command::Request(Request {
                    queue: b"",
                    headers: Headers(b""),
                    job: b"",
                }),
            ),
            (
                "REPLY m r",
                Command::Reply {
                    text: b"r",
                    of: None,
                },
            ),
            (
                "REPLY m {\"value\":1} r",
                Command::Reply {
                    text: b"{\"value\":1}",
                    of: Some(b"r"),
                },
            ),
            (
                "SCHEDULE m q nohaste 60 [job] -",
                Command::Schedule(plan(b"60", b"")),
            ),
            (
                "SCHEDULE m q nohaste -1 [job] @daily",
                Command::Schedule(plan(b"-1", b"@daily")),
            ),
            (
                "UNSCHEDULE m q nohaste 60 [job] -",
                Command::Unschedule(plan(b"60", b"")),
            ),
            (
                "PUBLISH m t [x]",
                Command::Publish {
                    topic: b"t",
                    text: b"[x]",
                },
            ),
            ("DISCONNECT m", Command::Disconnect),
            ("KBYE m", Command::Kbye),
            ("STATUS m", Command::Status),
            ("ROUTER_SHOW_WORKERS m", Command::ShowWorkers),
            ("ROUTER_SHOW_SCHEDULERS m", Command::ShowSchedulers),
            ("HELLO m", Command::Hello),
            ("ready m", Command::Unknown { name: b"ready" }),
            ("READY -", Command::Ready),
        ];
        for (text, command) in table {
            let text = format!("- eMQP/1.0 {text}");
            let message = message(&text);
            let packet = Packet::decode(&message).unwrap();
            assert_eq!(packet.command, command, "{text}");
            assert_eq!(shown(packet.frames()), text);
        }
    }

    #[test]
    fn other_forms_are_read_and_the_released_one_is_written() {
        let table = [
            ("- eMQP/1.0 KBAI m", "KBYE m"),
            ("- eMQP/9.9 READY m", "READY m"),
            ("- - READY m", "READY m"),
            ("- eMQP/1.0 READY m what is this", "READY m"),
            ("- eMQP/1.0 HEARTBEAT m", "HEARTBEAT m -"),
            ("- eMQP/1.0 PUBLISH m t headers [x]", "PUBLISH m t [x]"),
            ("- eMQP/1.0 PUBLISH m t headers [x] more", "PUBLISH m t [x]"),
            (
                "- eMQP/1.0 UNSCHEDULE m q - [job]",
                "UNSCHEDULE m q - -1 [job] -",
            ),
            (
                "- eMQP/1.0 SCHEDULE m q - 5 [job]",
                "SCHEDULE m q - 5 [job] -",
            ),
            (
                "- eMQP/1.0 SCHEDULE m q - 5 [job] - 1 2 3 4 5",
                "SCHEDULE m q - 5 [job] -",
            ),
        ];
        for (text, written) in table {
            let message = message(text);
            let packet = Packet::decode(&message).unwrap();
            assert_eq!(
                shown(packet.frames()),
                format!("- eMQP/1.0 {written}"),
                "{text}"
            );
        }
    }

    #[test]
    fn messages_with_missing_frames() {
        let short = |command, required, given| {
            format!("{command} has at least {required} frames, not {given}")
        };
        let no_command = |given| format!("a message has at least 4 frames, not {given}");
        let table = [
            ("-", no_command(1)),
            ("- eMQP/1.0 READY", no_command(3)),
            (
                "x eMQP/1.0 READY m",
                "the first frame is not empty: this is not eMQP".to_owned(),
            ),
            ("- eMQP/1.0 INFORM m -", short("INFORM", 6, 5)),
            ("- eMQP/1.0 ACK m", short("ACK", 5, 4)),
            ("- eMQP/1.0 REQUEST m q -", short("REQUEST", 7, 6)),
            ("- eMQP/1.0 REPLY m", short("REPLY", 5, 4)),
            ("- eMQP/1.0 SCHEDULE m q -", short("SCHEDULE", 8, 6)),
            (
                "- eMQP/1.0 SCHEDULE m q - [job]",
                "SCHEDULE has 7 frames: the interval is missing".to_owned(),
            ),
            ("- eMQP/1.0 UNSCHEDULE m q -", short("UNSCHEDULE", 8, 6)),
            ("- eMQP/1.0 PUBLISH m t", short("PUBLISH", 6, 5)),
        ];
        for (text, fault) in table {
            assert_eq!(Packet::decode(&message(text)), Err(Fault(fault)), "{text}");
        }
    }

    #[test]
    fn a_request_byte_for_byte() {
        let job = br#"["run", {}]"#;
        let request = Request {
            queue: b"default",
            headers: Headers(b""),
            job,
        };
        let packet = Packet {
            id: b"e5a6",
            command: Command::Request(request),
        };
        let frames = Message::new(packet.frames());
        let expected =
            b"\x01\x00\x01\x08eMQP/1.0\x01\x07REQUEST\x01\x04e5a6\x01\x07default\x01\x00\x00\x0b[\"run\", {}]";
        assert_eq!(frames.frames(), expected);
    }

    #[test]
    fn times_of_schedules() {
        type Case = (&'static [u8], &'static [u8], Result<When<'static>, Fault>);
        let no_cron =
            || Err("an interval below 0 stands for a cron expression, and there is none".into());
        let no_interval = || Err("the interval is not a whole number of seconds".into());
        let table: [Case; 9] = [
            (b"60", b"", Ok(When::Every { secs: 60 })),
            (b" 0 ", b"* * * * *", Ok(When::Every { secs: 0 })),
            (b"-1", b" */5 * * * * ", Ok(When::Cron(b"*/5 * * * *"))),
            (b"-7", b"@daily", Ok(When::Cron(b"@daily"))),
            (b"-1", b" ", no_cron()),
            (b"", b"* * * * *", no_interval()),
            (b"1.5", b"", no_interval()),
            (b"soon", b"", no_interval()),
            (
                b"99999999999999999999",
                b"",
                Ok(When::Every {
                    secs: i64::MAX as u64,
                }),
            ),
        ];
        for (interval, cron, expected) in table {
            assert_eq!(
                plan(interval, cron).when(),
                expected,
                "{}",
                interval.escape_ascii()
            );
        }
    }

    #[test]
    fn heartbeats_carry_the_time() {
        assert_eq!(unix_seconds(1_795_234_453_149), "1795234453.149");
        assert_eq!(unix_seconds(5), "0.005");
    }
}
