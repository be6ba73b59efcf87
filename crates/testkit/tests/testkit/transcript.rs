//! Tests the player and its wires with a minimal protocol of lines. The real protocols play their own transcripts.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use bytes::{Bytes, BytesMut};
use windlass_engine::{
    ClientCommand, ClientInfo, Event, JobCommand, Limits, NewJob, Protocol, Reply, Tag, Timestamp,
};
use windlass_session::{Outbox, Reason, Session};
use windlass_testkit::memory::MemoryHub;
use windlass_testkit::transcript::{
    MemoryWire, Said, Scene, Speech, Spoken, TcpWire, Transcript, Wire,
};

/// A message is a line; the first word is its verb.
struct Lines;

impl Speech for Lines {
    fn encode(&self, verb: &str, arguments: &[Bytes]) -> Result<Said, String> {
        let words: Vec<&[u8]> = std::iter::once(verb.as_bytes())
            .chain(arguments.iter().map(|a| &**a))
            .collect();
        Ok(Said {
            bytes: [&*words.join(&b' '), b"\n"].concat().into(),
            whole: true,
        })
    }

    fn decode(&self, input: &mut BytesMut) -> Result<Option<Spoken>, String> {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        let line = String::from_utf8(input.split_to(end + 1).to_vec())
            .map_err(|error| error.to_string())?;
        let mut words = line.trim_end().split(' ').map(str::to_owned);
        let verb = words.next().unwrap_or_default();
        Ok(Some(Spoken {
            verb,
            arguments: words.map(Bytes::from).collect(),
        }))
    }

    fn barrier(&self, number: u64) -> (Bytes, Spoken) {
        let word = format!("barrier{number}");
        let answer = Spoken {
            verb: "said".to_owned(),
            arguments: vec![Bytes::from(word.clone())],
        };
        (format!("say {word}\n").into(), answer)
    }
}

/// `say X` is answered by `said X`, `push` by `pushed N`, `one` takes no more until it is answered, `alarm MS` rings
/// once, `bye` ends.
#[derive(Debug, Default)]
struct Toy {
    alarm_at: Option<Timestamp>,
    waits: bool,
}

impl Toy {
    fn line(&mut self, now: Timestamp, line: &str, out: &mut Outbox) {
        let job = || {
            Box::new(NewJob::new(
                Protocol(9),
                Bytes::from_static(b"q"),
                Bytes::new(),
            ))
        };
        match line.split_once(' ').unwrap_or((line, "")) {
            ("say", what) => out
                .bytes()
                .extend_from_slice(format!("said {what}\n").as_bytes()),
            ("push", _) => out.command(Tag(1), JobCommand::Push(job())),
            ("one", _) => {
                self.waits = true;
                out.command(Tag(1), JobCommand::Push(job()));
            }
            ("alarm", ms) => self.alarm_at = Some(now.after_ms(ms.parse().unwrap())),
            _ => out.hang_up(Reason::Ended),
        }
    }
}

impl Session for Toy {
    fn on_open(&mut self, _now: Timestamp, out: &mut Outbox) {
        out.command(Tag::NONE, ClientCommand::Open(ClientInfo::default()));
    }

    fn on_bytes(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        while !self.waits
            && let Some(end) = input.iter().position(|byte| *byte == b'\n')
        {
            let line = input.split_to(end + 1);
            self.line(now, std::str::from_utf8(&line).unwrap().trim_end(), out);
        }
    }

    fn on_event(&mut self, _now: Timestamp, event: Event, out: &mut Outbox) {
        if let Event::Reply(_, Reply::Pushed { job, .. }) = event {
            self.waits = false;
            out.bytes()
                .extend_from_slice(format!("pushed {}\n", job.0).as_bytes());
        }
    }

    fn on_tick(&mut self, now: Timestamp, out: &mut Outbox) {
        if self.alarm_at.take().is_some_and(|at| at <= now) {
            out.bytes()
                .extend_from_slice(format!("rang {}\n", now.0).as_bytes());
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.alarm_at
    }
}

fn scene(lines: &str) -> Scene {
    Transcript::parse("toy", &format!("== toy\n{lines}"))
        .unwrap()
        .scenes
        .remove(0)
}

fn in_memory() -> MemoryWire<'static> {
    MemoryWire::new(
        MemoryHub::new(Limits::default(), Timestamp(1_000), 1),
        |_| Box::new(Toy::default()),
    )
}

fn play_in_memory(lines: &str) -> Result<(), String> {
    scene(lines)
        .play(&mut in_memory(), &Lines)
        .map_err(|failure| failure.to_string())
}

#[test]
fn scenes_that_pass() {
    let table = [
        ("an answer", "A > say x\nA < said x"),
        (
            "two peers",
            "A > say x\nB > say y\nB < said y\nA < said x\nnothing A",
        ),
        (
            "what is heard is remembered",
            "A > push\nA < pushed $n\nB > say $n\nB < said $n",
        ),
        (
            "in one piece",
            "A > raw \"say a\\npush\\nsay b\\npu\"\nA < said a\nA < pushed 1\nA < said b\nA > raw \"sh\\n\"\nA < pushed 2",
        ),
        ("hex", "A > hex 73 61 79 20 78 0a\nA < said x"),
        ("repeated", "A > say \"ab\"*3\nA < said ababab"),
        ("hung up on", "A > bye\nclosed A"),
        (
            "hung up behind what is due",
            "A > raw \"push\\nbye\\nsay never\\n\"\nA < pushed 1\nclosed A",
        ),
        (
            "half closed",
            "A > push\nhalf-close A\nA < pushed 1\nclosed A",
        ),
        (
            "closed, and made again",
            "A > push\nclose A\nA > push\nA < pushed 2",
        ),
        (
            "input left behind",
            "A > raw \"one\\nsay a\\none\\nsay b\\n\"\nA < pushed 1\nA < said a\nA < pushed 2\nA < said b",
        ),
        (
            "the clock",
            "A > alarm 500\nadvance 499ms\nnothing A\nadvance 1s\nA < rang 1500",
        ),
        (
            "anything",
            "A > push\nA < pushed $_\nA > push\nA < pushed $_",
        ),
    ];
    for (name, lines) in table {
        assert_eq!(play_in_memory(lines), Ok(()), "{name}");
    }
}

#[test]
fn scenes_that_fail() {
    let table = [
        (
            "another verb",
            "A > say x\nA < heard x",
            "toy:3: came: said \"x\"",
        ),
        (
            "another argument",
            "A > say x\nA < said y",
            "toy:3: came: said \"x\"",
        ),
        (
            "more arguments",
            "A > say x\nA < said x y",
            "toy:3: came: said \"x\"",
        ),
        ("nothing", "A < said x", "toy:2: nothing came"),
        (
            "something",
            "A > say x\nnothing A",
            "toy:3: came: said \"x\"",
        ),
        (
            "something at the end",
            "A > say x\nB > say y\nB < said y",
            "toy:4: at the end, A: came: said \"x\"",
        ),
        (
            "not hung up",
            "A > say x\nA < said x\nclosed A",
            "toy:4: the server has not hung up",
        ),
        (
            "hung up too late",
            "A > raw \"say x\\nbye\\n\"\nclosed A",
            "toy:3: came: said \"x\"",
        ),
        (
            "hung up too soon",
            "A > bye\nA < said x",
            "toy:3: the server has hung up",
        ),
        ("not remembered", "A > say $x", "toy:2: $x has no value yet"),
        (
            "too long to be shown",
            "A > say \"x\"*201\nA < said x",
            SHORTENED,
        ),
        (
            "part of a message",
            "A > raw \"say x\\nsa\"\nA < said x\nA < said",
            "toy:4: nothing came",
        ),
        ("no hex", "A > hex 7", "toy:2: b\"7\" is not a hex byte"),
        ("no store", "stall", "toy:2: there is no store to stall"),
        (
            "something when the store goes on",
            "A > say x\nresume",
            "toy:3: A: came: said \"x\"",
        ),
        (
            "no store that goes on",
            "A > say x\nA < said x\nresume",
            "toy:4: there is no store to stall",
        ),
    ];
    for (name, lines, failure) in table {
        assert_eq!(play_in_memory(lines), Err(failure.to_owned()), "{name}");
    }
}

const SHORTENED: &str = "toy:3: came: said \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
    xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
    \"… (201 bytes)";

#[test]
fn only_memory_moves_the_clock() {
    let scene = scene("A > alarm 500\nadvance 1s");
    assert!(scene.moves_the_clock());
    let mut wire = TcpWire::new("127.0.0.1:1".parse().unwrap());
    assert_eq!(
        wire.advance_ms(1),
        Err("a daemon's clock cannot be moved".to_owned())
    );
    assert!(!self::scene("A > say x").moves_the_clock());
}

#[test]
fn over_tcp_as_in_memory() {
    let table = [
        (
            "an answer",
            "A > say x\nB > say y\nB < said y\nA < said x\nnothing A",
            None,
        ),
        (
            "hung up on",
            "A > say x\nA > bye\nA < said x\nclosed A",
            None,
        ),
        (
            "half closed",
            "A > say x\nhalf-close A\nA < said x\nclosed A",
            None,
        ),
        (
            "closed, and made again",
            "A > say x\nclose A\nA > say y\nA < said y",
            None,
        ),
        (
            "in pieces",
            "A > raw \"say \"\nA > raw \"x\\n\"\nA < said x",
            None,
        ),
        (
            "something at the end",
            "A > say x",
            Some("toy:2: at the end, A: came: said \"x\""),
        ),
    ];
    for (name, lines, failure) in table {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut wire = TcpWire::new(listener.local_addr().unwrap());
        let scene = scene(lines);
        // Each connection of the scene has a thread, which ends with it.
        let server = std::thread::spawn(move || {
            listener
                .incoming()
                .for_each(|stream| parrot(stream.unwrap()))
        });
        let played = scene
            .play(&mut wire, &Lines)
            .map_err(|failure| failure.to_string());
        assert_eq!(played.err().as_deref(), failure, "{name}");
        assert!(!server.is_finished());
    }
}

/// Answers `say` on a thread of its own until the peer stops or sends anything else.
fn parrot(stream: std::net::TcpStream) {
    std::thread::spawn(move || {
        let mut answers = stream.try_clone().unwrap();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            match line.strip_prefix("say ") {
                Some(what) => answers
                    .write_all(format!("said {what}\n").as_bytes())
                    .unwrap(),
                None => return,
            }
        }
    });
}
