//! A toy protocol of one byte per message shows the life of a connection.

use bytes::{Buf, Bytes};
use windlass_engine::{ClientCommand, ClientId, Command, JobId, Protocol, Query, Thing};

use super::*;
use crate::talk::RECIPIENTS_MAX;
use crate::{Item, Question};

const NOW: Timestamp = Timestamp(5);

/// `q` asks; `w` asks without holding up reading, as a command that waits does; `s` sends without a question; `p`
/// publishes to half the recipients that may be open; `x` ends the connection; `!` is an error; `L` and four bytes
/// announce a large body, which is kept. `e` is the login of a peer that has one, to the namespace `b`. Other bytes come
/// back.
#[derive(Debug, Default)]
struct Toy {
    kept: Option<Bytes>,
    due: Option<Timestamp>,
    body_bytes: Option<usize>,
    awaits_login: bool,
    /// Whether bytes were taken, each time reading paused.
    took: Vec<bool>,
    resets: u32,
    ended: u32,
    transport: Option<Beating>,
}

/// A transport that is due at this time, and does nothing to messages.
#[derive(Debug)]
struct Beating {
    due: Timestamp,
    resets: u32,
}

impl Transport for Beating {
    fn messages(&self) -> u64 {
        7
    }

    fn held_bytes(&self) -> usize {
        3
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        Some(self.due)
    }

    fn tick(&mut self, now: Timestamp, out: &mut BytesMut) -> Result<(), Reason> {
        out.extend_from_slice(b"beat ");
        if now > self.due {
            Err(Reason::TimedOut("beat"))
        } else {
            Ok(())
        }
    }

    fn reset_liveness(&mut self, _: Timestamp) {
        self.resets += 1;
    }

    fn seal(&mut self, bytes: &[u8]) -> Option<BytesMut> {
        Some([b"[", bytes, b"]"].concat().as_slice().into())
    }
}

#[derive(Debug)]
struct Asked(u8);

impl Question for Asked {
    const WEIGHT_MAX: usize = 2;

    fn weight(&self) -> usize {
        usize::from(self.0 == b'q')
    }
}

impl Speaker for Toy {
    const PROTOCOL: Protocol = Protocol::GEARMAN;

    type Question = Asked;

    fn read(&mut self, input: &mut BytesMut, talk: &mut Talk<'_, Asked>) -> Result<Read, Reason> {
        let Some(first) = input.first().copied() else {
            return Ok(Read::Needs(0));
        };
        if first == b'L' && self.body_bytes.is_none() {
            let Some(mut length) = input.get(1..5) else {
                return Ok(Read::Needs(5 - input.len()));
            };
            self.body_bytes = Some(5 + length.get_u32() as usize);
        }
        let bytes = self.body_bytes.unwrap_or(1);
        if input.len() < bytes {
            return Ok(Read::Needs(bytes - input.len()));
        }
        let message = input.split_to(bytes).freeze();
        match first {
            b'L' => {
                self.body_bytes = None;
                self.kept = Some(talk.keep(&message));
            }
            b'q' | b'w' => talk.ask(Asked(first), Query::Stats),
            b's' => talk.send_as(7, Query::Stats),
            b'p' => talk.publish(&[ClientId(9); RECIPIENTS_MAX / 2], message),
            b'x' => talk.end(Reason::Ended),
            b'e' => talk.enter(Some("b")),
            b'!' => return Err(Reason::Protocol("no such message".to_owned())),
            other => talk.bytes().extend_from_slice(&[other]),
        }
        Ok(Read::Message)
    }

    fn awaits_login(&self) -> bool {
        self.awaits_login
    }

    fn turned_away(&mut self, why: Refusal, talk: &mut Talk<'_, Asked>) {
        talk.bytes().extend_from_slice(why.to_string().as_bytes());
    }

    fn reply(&mut self, question: Asked, _: Reply, talk: &mut Talk<'_, Asked>) {
        talk.bytes()
            .extend_from_slice(&[question.0.to_ascii_uppercase()]);
    }

    fn refused(&mut self, code: u64, _: Refusal, talk: &mut Talk<'_, Asked>) {
        talk.bytes()
            .extend_from_slice(format!("refused {code}").as_bytes());
    }

    fn notice(&mut self, _: Notice, talk: &mut Talk<'_, Asked>) {
        talk.bytes().extend_from_slice(b"notice");
    }

    fn leave(&mut self, talk: &mut Talk<'_, Asked>) {
        talk.send_as(9, Query::Stats);
    }

    fn ended(&mut self) {
        self.ended += 1;
    }

    fn has_read(&mut self, took: bool, _: &mut Talk<'_, Asked>) {
        self.took.push(took);
    }

    fn tick(&mut self, talk: &mut Talk<'_, Asked>) {
        talk.bytes().extend_from_slice(b"tick ");
    }

    fn reset_liveness(&mut self, _: Timestamp) {
        self.resets += 1;
    }

    fn shutdown(&mut self, talk: &mut Talk<'_, Asked>) {
        talk.bytes().extend_from_slice(b"bye");
    }

    fn transport(&self) -> Option<&dyn Transport> {
        self.transport
            .as_ref()
            .map(|transport| -> &dyn Transport { transport })
    }

    fn transport_mut(&mut self) -> Option<&mut dyn Transport> {
        self.transport
            .as_mut()
            .map(|transport| -> &mut dyn Transport { transport })
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.due
    }

    fn held_bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, Bytes::len)
    }
}

struct Bench {
    session: Conversation<Toy>,
    input: BytesMut,
    out: Outbox,
}

/// What happens to a connection.
#[derive(Debug, Clone, Copy)]
enum Step {
    Bytes(&'static str),
    Done(u64),
    Refused(u64),
    Notice(bool),
    Eof,
}
use Step::{Bytes as In, Done, Eof};

/// Each with its output.
type Steps = &'static [(Step, &'static str)];

impl Bench {
    fn new() -> Self {
        let mut bench = Self {
            session: Conversation::new(Toy::default(), ClientInfo::default()),
            input: BytesMut::new(),
            out: Outbox::default(),
        };
        bench.session.on_open(NOW, &mut bench.out);
        let opened: Vec<_> = bench.out.drain().collect();
        let [Item::Command(Tag::NONE, Command::Client(ClientCommand::Open(info)))] =
            opened.as_slice()
        else {
            panic!("{opened:?}");
        };
        assert_eq!(info.protocol, Some(Protocol::GEARMAN));
        bench
    }

    /// What the step puts out, and why the connection ends.
    fn step(&mut self, step: Step) -> String {
        let Self {
            session,
            input,
            out,
        } = self;
        match step {
            In(bytes) => {
                input.extend_from_slice(bytes.as_bytes());
                session.on_bytes(NOW, input, out);
            }
            Done(tag) => session.on_event(NOW, Event::Reply(Tag(tag), Reply::Done), out),
            Step::Refused(code) => {
                let why = Reply::Refused(Refusal::NotFound(Thing::Job));
                session.on_event(NOW, Event::Reply(Tag::silent(code), why), out);
            }
            Step::Notice(true) => session.on_event(NOW, Event::Notice(Notice::Close), out),
            Step::Notice(false) => session.on_event(NOW, Event::Notice(Notice::WorkAvailable), out),
            Eof => session.on_eof(NOW, out),
        }
        let reason = out.take_reason().map(|reason| format!("({reason})"));
        let item = |item| match item {
            Item::Command(tag, _) if tag.wants_answer() => format!("#{}", tag.0),
            Item::Command(tag, _) => format!("-{}", tag.number()),
            Item::Forbidden(tag) => format!("!{}", tag.number()),
            Item::Bytes(bytes) | Item::Publish(_, bytes) => {
                String::from_utf8_lossy(&bytes).into_owned()
            }
        };
        let items: Vec<_> = out.drain().map(item).chain(reason).collect();
        items.join(" ")
    }
}

#[test]
fn the_life_of_a_connection() {
    let many = "a question holds up nothing until there are two";
    let table: [(&str, Steps, &str); 15] = [
        (
            "an idle peer leaves",
            &[(In("a"), "a"), (Eof, "-9 (peer closed)")],
            "",
        ),
        (
            many,
            &[
                (In("qaqb"), "#1 a #2"),
                (Done(1), "Q"),
                (In(""), "b"),
                (Done(2), "Q"),
            ],
            "",
        ),
        (
            "replies pass by",
            &[
                (In("wwqa"), "#1 #2 #3 a"),
                (Done(3), "Q"),
                (Done(2), "W"),
                (Done(1), "W"),
            ],
            "",
        ),
        (
            "end of input does not wait for what holds up nothing",
            &[(In("q"), "#1"), (Eof, "-9 (peer closed)"), (Done(1), "Q")],
            "",
        ),
        (
            "reading pauses for publications",
            &[(In("apaapa"), "a p aa p"), (In(""), "a"), (In("pa"), "p a")],
            "",
        ),
        (
            "the rest comes before the end",
            &[
                (In("ppa"), "p p"),
                (Eof, ""),
                (In(""), "a -9 (peer closed)"),
            ],
            "",
        ),
        (
            "publications alone do not hold up the end",
            &[(In("pp"), "p p"), (Eof, "-9 (peer closed)")],
            "",
        ),
        (
            "end of input waits where reading does",
            &[
                (In("qq"), "#1 #2"),
                (Eof, ""),
                (Done(1), "Q -9 (peer closed)"),
            ],
            "",
        ),
        (
            "unread bytes come first",
            &[
                (In("qqab"), "#1 #2"),
                (Eof, ""),
                (Done(2), "Q"),
                (In(""), "ab -9 (peer closed)"),
            ],
            "",
        ),
        (
            "they may ask again",
            &[
                (In("qqqq"), "#1 #2"),
                (Eof, ""),
                (Done(1), "Q"),
                (In(""), "#3"),
                (Done(2), "Q"),
                (In(""), "#4"),
            ],
            "",
        ),
        (
            "a message cut short is dropped",
            &[
                (In("qqL"), "#1 #2"),
                (Eof, ""),
                (Done(2), "Q"),
                (In(""), "-9 (peer closed)"),
            ],
            "",
        ),
        (
            "nothing after the end is read",
            &[(In("xab"), "(session ended)"), (In("c"), ""), (Eof, "")],
            "",
        ),
        (
            "an error ends",
            &[
                (In("aq!b"), "a #1 (protocol error: no such message)"),
                (Done(1), "Q"),
            ],
            "",
        ),
        (
            "a refusal has a code",
            &[
                (In("s"), "-7"),
                (Step::Refused(7), "refused 7"),
                (Step::Notice(false), "notice"),
            ],
            "",
        ),
        (
            "the engine closes",
            &[
                (In("q"), "#1"),
                (Step::Notice(true), "(closed by the server)"),
                (In("a"), ""),
            ],
            "",
        ),
    ];
    for (name, steps, left) in table {
        let mut bench = Bench::new();
        for (step, expected) in steps {
            assert_eq!(bench.step(*step), *expected, "{name}: {step:?}");
        }
        assert_eq!(bench.input, left, "{name}: left in the buffer");
        assert_eq!(
            bench.session.speaker.ended,
            u32::from(bench.session.state.over),
            "{name}: ended once"
        );
    }
}

#[test]
fn a_large_body_is_read_into_a_buffer_of_its_own() {
    let table = [(LARGE_BYTES, true), (LARGE_BYTES - 6, false)];
    for (bytes, own) in table {
        let mut bench = Bench::new();
        bench.input.extend_from_slice(b"ab");
        bench.input.reserve(1 << 20);
        bench.input.extend_from_slice(b"L");
        bench
            .input
            .extend_from_slice(&u32::try_from(bytes).unwrap().to_be_bytes());
        assert_eq!(bench.step(In("")), "ab");
        assert_eq!(
            (bench.session.needs_bytes(), bench.session.messages()),
            (bytes, 2)
        );
        let (body, before) = (vec![7; bytes], bench.input.capacity());
        assert_eq!(before < 1 << 20, own, "{bytes} bytes: the buffer is new");
        bench.input.extend_from_slice(&body);
        let at = bench.input.as_ptr();
        assert_eq!(bench.step(In("c")), "c");
        let kept = bench.session.speaker.kept.take().unwrap();
        assert_eq!(
            (kept.len(), kept.as_ptr() == at),
            (5 + bytes, own),
            "{bytes} bytes: kept without a copy"
        );
        assert_eq!(
            (bench.session.needs_bytes(), bench.session.messages()),
            (0, 4)
        );
        assert!(!bench.session.state.dedicated);
    }
}

#[test]
fn an_unknown_tag_is_ignored() {
    let mut bench = Bench::new();
    bench.session.on_event(
        NOW,
        Event::Reply(Tag(1), Reply::Finished(JobId(1))),
        &mut bench.out,
    );
    bench
        .session
        .on_event(NOW, Event::Reply(Tag::NONE, Reply::Done), &mut bench.out);
    assert!(bench.out.is_empty());
}

#[test]
fn the_driver_learns_what_the_speaker_holds_and_when_it_is_due() {
    let mut bench = Bench::new();
    assert_eq!(
        (bench.session.next_deadline(), bench.session.held_bytes()),
        (None, 0)
    );
    (bench.session.speaker.due, bench.session.speaker.kept) =
        (Some(NOW), Some(Bytes::from_static(b"body")));
    assert_eq!(
        (bench.session.next_deadline(), bench.session.held_bytes()),
        (Some(NOW), 4)
    );
    bench.session.state.over = true;
    assert_eq!(
        bench.session.next_deadline(),
        None,
        "an ending connection has no deadline"
    );
}

#[test]
fn ticks_and_the_shutdown_reach_the_transport_and_the_speaker() {
    let mut bench = Bench::new();
    (bench.session.speaker.due, bench.session.speaker.kept) =
        (Some(NOW), Some(Bytes::from_static(b"body")));
    assert_eq!(bench.session.seal(b"bare"), None);
    bench.session.speaker.transport = Some(Beating {
        due: Timestamp(3),
        resets: 0,
    });
    assert_eq!(
        bench.session.seal(b"framed").as_deref(),
        Some(&b"[framed]"[..])
    );
    let session = &bench.session;
    assert_eq!(
        (
            session.next_deadline(),
            session.held_bytes(),
            session.messages()
        ),
        (Some(Timestamp(3)), 7, 7)
    );
    bench.session.on_tick(Timestamp(3), &mut bench.out);
    bench.session.on_shutdown(NOW, &mut bench.out);
    assert_eq!(
        bench.out.take_bytes().as_deref(),
        Some(&b"beat tick bye"[..])
    );
    let resets = |bench: &Bench| {
        (
            bench.session.speaker.resets,
            bench.session.speaker.transport.as_ref().unwrap().resets,
        )
    };
    bench.session.reset_liveness(NOW);
    assert_eq!(resets(&bench), (1, 1));
    bench.step(In("qq"));
    bench.session.on_tick(Timestamp(3), &mut bench.out);
    assert_eq!(
        resets(&bench),
        (2, 2),
        "while reading is held up, silence does not count"
    );
    bench.session.on_tick(NOW, &mut bench.out);
    assert_eq!(bench.out.take_reason(), Some(Reason::TimedOut("beat")));
    assert_eq!(bench.session.speaker.ended, 1);
}

#[test]
fn the_speaker_learns_whether_bytes_were_taken() {
    let mut bench = Bench::new();
    for bytes in ["a", "L", "bcd"] {
        bench.step(In(bytes));
    }
    assert_eq!(bench.session.speaker.took, [true, false, false]);
}

/// Nothing but what every speaker must have.
#[derive(Debug)]
struct Mute;

impl Speaker for Mute {
    const PROTOCOL: Protocol = Protocol::GEARMAN;

    type Question = std::convert::Infallible;

    fn read(&mut self, _: &mut BytesMut, _: &mut Talk<'_, Self::Question>) -> Result<Read, Reason> {
        Ok(Read::Needs(0))
    }

    fn reply(&mut self, question: Self::Question, _: Reply, _: &mut Talk<'_, Self::Question>) {
        match question {}
    }

    fn notice(&mut self, _: Notice, _: &mut Talk<'_, Self::Question>) {}
}

#[test]
fn a_speaker_holds_nothing_by_default_and_is_never_due() {
    let session = Conversation::new(Mute, ClientInfo::default());
    assert_eq!(
        (
            session.next_deadline(),
            session.held_bytes(),
            session.messages()
        ),
        (None, 0, 0)
    );
}

/// A connection to an address with or without a namespace, and what it has put out when it opened.
fn opened(awaits_login: bool, namespace: Option<&str>) -> (Bench, String) {
    let toy = Toy {
        awaits_login,
        ..Toy::default()
    };
    let info = ClientInfo {
        namespace: namespace.map(Box::from),
        ..ClientInfo::default()
    };
    let mut bench = Bench {
        session: Conversation::new(toy, info),
        input: BytesMut::new(),
        out: Outbox::default(),
    };
    bench.session.on_open(NOW, &mut bench.out);
    let said = bench.commands();
    (bench, said)
}

impl Bench {
    /// The commands that were put out, and bytes.
    fn commands(&mut self) -> String {
        let item = |item| match item {
            Item::Command(tag, Command::Client(ClientCommand::Open(info))) => {
                assert_eq!((tag, info.protocol), (Tag::NONE, Some(Protocol::GEARMAN)));
                format!("open:{}", info.namespace.as_deref().unwrap_or("-"))
            }
            Item::Command(ENTERED, Command::Barrier) => "barrier".to_owned(),
            Item::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            other @ (Item::Command(..) | Item::Forbidden(_) | Item::Publish(..)) => {
                format!("{other:?}")
            }
        };
        let items: Vec<_> = self.out.drain().map(item).collect();
        items.join(" ")
    }

    fn read(&mut self, bytes: &str) -> String {
        let Self {
            session,
            input,
            out,
        } = self;
        input.extend_from_slice(bytes.as_bytes());
        session.on_bytes(NOW, input, out);
        self.commands()
    }

    fn event(&mut self, tag: Tag, reply: Reply) -> String {
        self.session
            .on_event(NOW, Event::Reply(tag, reply), &mut self.out);
        self.commands()
    }
}

#[test]
fn the_engine_is_told_of_a_connection_when_its_namespace_is_known() {
    for (awaits_login, namespace, opens, logs_in) in [
        (false, None, "open:-", ""),
        (false, Some("a"), "open:a barrier", ""),
        (true, None, "", "open:b barrier"),
        (true, Some("a"), "", "open:a barrier"),
    ] {
        let (mut bench, said) = opened(awaits_login, namespace);
        assert_eq!(said, opens, "{namespace:?}");
        if !opens.is_empty() {
            bench.event(ENTERED, Reply::Settled);
        }
        assert_eq!(bench.read("e"), logs_in, "{namespace:?}");
        bench.event(ENTERED, Reply::Settled);
        assert_eq!(bench.read("e-"), "-", "only once");
    }
}

#[test]
fn nothing_is_read_before_the_engine_has_let_a_connection_in() {
    let full = || Reply::Refused(Capacity::NamespaceClients.exceeded(1u32, 1u32));
    let (mut bench, _) = opened(false, Some("a"));
    assert_eq!(bench.read("-"), "");
    bench.session.on_eof(NOW, &mut bench.out);
    assert_eq!(bench.out.take_reason(), None, "a message is unread");
    assert_eq!(bench.event(ENTERED, Reply::Settled), "");
    assert!(bench.read("").starts_with('-'));

    let (mut bench, _) = opened(false, Some("a"));
    assert_eq!(bench.read("q"), "");
    let said = bench.event(Tag::NONE, full());
    assert_eq!(said, "limit of connections of the namespace reached: 1");
    let reason = bench.out.take_reason();
    assert_eq!(reason, Some(Reason::Limit("namespaces.connections")));
    bench.event(ENTERED, Reply::Settled);
    assert_eq!(bench.read(""), "", "the request is never made");

    let (mut bench, _) = opened(false, Some("a"));
    bench.event(ENTERED, Reply::Refused(Refusal::Unavailable));
    assert_eq!(bench.out.take_reason(), Some(Reason::ClosedByServer));
}
