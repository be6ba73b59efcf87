//! Scenes with a stalled store. For every reply that acknowledges something, a scene shows that it
//! is not sent before its commit is durable; for every other reply, that it is not delayed.
//!
//! HTTP's responses are replies to clients within the daemon: one test here shows that these wait
//! too.
//!
//! There is a file per protocol and a scene per request. `set waits` names the events that wait for
//! the store when it resumes. The lines between `stall` and `resume` happen while the store is
//! blocked. `resume` fails if a client has received anything not listed above it, if nothing waits
//! for the store, or if other events do.
//!
//! Reading order: this file (which scenes exist, and that every event has one) · `wire` (what
//! `stall` and `resume` do) · `daemon` · `events`.

#[path = "../../../spiderq/tests/spiderq/client.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod client;
mod daemon;
#[path = "../../../eventmq/tests/eventmq/speech.rs"]
#[allow(dead_code, reason = "transcripts in memory need all of it")]
mod eventmq_speech;
mod events;
#[path = "../../../faktory/tests/faktory/speech.rs"]
mod faktory_speech;
#[path = "../../../gearman/tests/gearman/speech.rs"]
mod gearman_speech;
#[path = "../../../spiderq/tests/spiderq/speech.rs"]
mod spiderq_speech;
mod wire;

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;

use bytes::{Bytes, BytesMut};
use tokio::runtime::Builder;
use windlass_engine::{
    ClientInfo, Command, Event, JobCommand, JobId, JobRef, LeaseCommand, NewJob, Proof, Protocol,
    QueueCommand, Tag,
};
use windlass_testkit::transcript::{Framing, Heard, Scene, Speech, Transcript, Wire, ZmtpWire};

use daemon::Daemon;
use eventmq_speech::Emqp;
use faktory_speech::{Faktory, Greeting};
use gearman_speech::Gearman;
use spiderq_speech::Spiderq;
use wire::StallWire;

const GEARMAN: (&str, &str) = ("gearman.txt", include_str!("gearman.txt"));
const FAKTORY: (&str, &str) = ("faktory.txt", include_str!("faktory.txt"));
const SPIDERQ: (&str, &str) = ("spiderq.txt", include_str!("spiderq.txt"));
const EVENTMQ: (&str, &str) = ("eventmq.txt", include_str!("eventmq.txt"));

/// Settings of scenes that are not passed to the daemon.
const WAITS: &str = "waits";
const ZMTP_ONLY: &str = "zmtp_only";

#[test]
fn gearman() {
    play_all(&scenes(GEARMAN), &Gearman, |scene| wire(scene, "gearman"));
}

#[test]
fn faktory() {
    play_all(&scenes(FAKTORY), &Faktory, |scene| {
        Greeting(wire(scene, "faktory"))
    });
}

#[test]
fn spiderq_bare() {
    let mut scenes = scenes(SPIDERQ);
    scenes.retain(|scene| !scene.settings.iter().any(|(key, _)| key == ZMTP_ONLY));
    play_all(&scenes, &Spiderq, |scene| wire(scene, "spiderq"));
}

#[test]
fn spiderq_over_zmtp() {
    play_all(&scenes(SPIDERQ), &Spiderq, |scene| {
        ZmtpWire::new(wire(scene, "spiderq"), Framing::Enveloped)
    });
}

#[test]
fn eventmq() {
    play_all(&scenes(EVENTMQ), &Emqp, |scene| {
        ZmtpWire::new(wire(scene, "eventmq"), Framing::Whole)
    });
}

#[test]
fn every_event_that_acknowledges_has_a_scene() {
    let shown: BTreeSet<String> = [GEARMAN, FAKTORY, SPIDERQ, EVENTMQ]
        .into_iter()
        .flat_map(scenes)
        .flat_map(|scene| waits(&scene))
        .collect();
    let acknowledging = events::all()
        .into_iter()
        .filter(|(_, acknowledges, _)| *acknowledges);
    // Also a job, with `hand_out_after_commit`: it shows that the previous one has ended.
    let expected = acknowledging
        .map(|(name, ..)| name)
        .chain(["Taken", "Delivered"]);
    assert_eq!(shown, expected.map(str::to_owned).collect());
}

#[test]
fn events_acknowledge_as_listed() {
    for (name, acknowledges, event) in events::all() {
        assert_eq!(
            (events::name(&event), event.acknowledges()),
            (name, acknowledges)
        );
    }
}

/// The store fails instead of being slow. Each waiting client learns immediately that the outcome
/// is unknown.
#[test]
fn clients_do_not_wait_for_a_failed_store() {
    let mut wire = StallWire::new(Daemon::start([]), "gearman", BTreeSet::new());
    let mut heard = BytesMut::new();
    for who in ["C", "D"] {
        wire.open(who).unwrap();
    }
    wire.stall().unwrap();
    for who in ["C", "D"] {
        wire.send(who, b"\0REQ\0\0\0\x12\0\0\0\x04f\0\0w");
        assert_eq!(wire.receive(who, &mut heard), Heard::Nothing);
    }
    wire.daemon.hub.set_failed(true);
    wire.settle();
    for who in ["C", "D"] {
        heard.clear();
        assert_eq!(wire.receive(who, &mut heard), Heard::Bytes);
        assert!(
            heard.starts_with(b"\0RES\0\0\0\x13"),
            "an ERROR: {}",
            heard.escape_ascii()
        );
    }
}

/// The HTTP port is such a client for each request: it responds to a change with the reply that
/// `ask` returned.
#[test]
fn a_client_within_the_daemon_gets_its_reply_after_the_commit() {
    let body = || {
        Box::new(NewJob::new(
            Protocol::GEARMAN,
            Bytes::from_static(b"f"),
            Bytes::from_static(b"w"),
        ))
    };
    let job = JobRef::Id(JobId(1));
    let finish = LeaseCommand::Finish {
        job: job.clone(),
        proof: Proof::AnyLease,
        result: Bytes::new(),
    };
    let fail = LeaseCommand::Fail {
        job,
        proof: Proof::AnyLease,
        failure: Box::default(),
    };
    let pause = QueueCommand::Pause {
        queue: Bytes::from_static(b"f"),
        paused: true,
    };
    let table: [(&str, Command); 4] = [
        ("Pushed", JobCommand::Push(body()).into()),
        ("Finished", finish.into()),
        ("Failed", fail.into()),
        ("Done", pause.into()),
    ];
    for (waits, command) in table {
        let mut wire = StallWire::new(
            Daemon::start([]),
            "gearman",
            BTreeSet::from([waits.to_owned()]),
        );
        wire.open("W").unwrap();
        wire.send(
            "W",
            b"\0REQ\0\0\0\x12\0\0\0\x04f\0\0w\0REQ\0\0\0\x01\0\0\0\x01f\0REQ\0\0\0\x09\0\0\0\0",
        );
        wire.stall().unwrap();
        let (mut client, (answered, answer)) = (
            wire.daemon.clients.open(ClientInfo::default()),
            mpsc::channel(),
        );
        let asking = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_time().build().unwrap();
            answered
                .send(runtime.block_on(client.ask(command)))
                .unwrap();
        });
        while wire.daemon.is_durable() {
            assert!(!asking.is_finished(), "{waits}: it does not wait");
            thread::yield_now();
        }
        wire.settle();
        assert!(answer.try_recv().is_err(), "{waits}: it does not wait");
        wire.resume().unwrap();
        let reply = answer
            .recv()
            .unwrap()
            .unwrap_or_else(|why| panic!("{waits}: {why:?}"));
        assert_eq!(events::name(&Event::Reply(Tag(1), reply)), waits);
        asking.join().unwrap();
    }
}

fn scenes((file, text): (&str, &str)) -> Vec<Scene> {
    let transcript = Transcript::parse(file, text).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(!transcript.scenes.is_empty());
    transcript.scenes
}

/// The events of a scene.
fn waits(scene: &Scene) -> BTreeSet<String> {
    let names = scene.settings.iter().filter(|(key, _)| key == WAITS);
    names
        .flat_map(|(_, names)| names.split(' '))
        .map(str::to_owned)
        .collect()
}

fn wire(scene: &Scene, protocol: &'static str) -> StallWire {
    let settings = scene
        .settings
        .iter()
        .filter(|(key, _)| key != WAITS && key != ZMTP_ONLY);
    let daemon = Daemon::start(settings.map(|(key, value)| (key.as_str(), value.as_str())));
    StallWire::new(daemon, protocol, waits(scene))
}

/// Runs every scene with a new daemon.
fn play_all<W: Wire>(scenes: &[Scene], speech: &dyn Speech, wire: impl Fn(&Scene) -> W) {
    let fails = |scene: &Scene| {
        assert!(!waits(scene).is_empty(), "{}: nothing waits", scene.name);
        let failure = scene.play(&mut wire(scene), speech).err()?;
        Some(format!("{}: {failure}", scene.name))
    };
    let failures: Vec<String> = scenes.iter().filter_map(fails).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
