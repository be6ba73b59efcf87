//! Plays every transcript in `tests/transcripts` in memory: sessions on one engine, with a clock that jumps.
//!
//! A daemon can play the same files over TCP, except scenes that move the clock or change a setting.

use std::cell::Cell;
use std::sync::Arc;

use bytes::BytesMut;
use windlass_bridge::{Bridge, Origin, Side};
use windlass_config::{ByteSize, Period};
use windlass_engine::{
    ClientCommand, ClientInfo, Command, Event, Limits, NewSchedule, Protocol, QueueCommand,
    Recurrence, ScheduleCommand, Tag, Throttle, Timestamp,
};
use windlass_faktory::bridge::FwpOrigin;
use windlass_faktory::config::Faktory;
use windlass_faktory::session::{FaktorySpeaker, Settings};
use windlass_session::{Outbox, Session};
use windlass_testkit::memory::MemoryHub;
use windlass_testkit::transcript::{MemoryWire, Scene, Transcript};

/// The time at which every scene begins, in milliseconds since the epoch: 2023-11-14T22:13:20Z. Transcripts rely on it.
const START: Timestamp = Timestamp(1_700_000_000_000);

windlass_testkit::transcripts! {
    batch
    beat
    cron
    defects
    expiring
    failures
    fetch
    flush
    framing
    handshake
    hostile
    info
    job
    limits
    mutate
    password
    push
    pushb
    queues
    rights
    scheduled
    throttles
    track
    unique
}

fn play(name: &str) {
    let transcript = Transcript::read(&folder().join(name).with_extension("txt"))
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(!transcript.scenes.is_empty());
    for scene in &transcript.scenes {
        let mut wire = crate::speech::Greeting(wire(scene));
        scene
            .play(&mut wire, &crate::speech::Faktory)
            .unwrap_or_else(|failure| panic!("{}: {failure}", scene.name));
        wire.0.hub().engine().check();
    }
}

fn wire(scene: &Scene) -> MemoryWire<'_> {
    let (settings, limits) = settings(scene);
    let settings = Arc::new(settings);
    // Predictable dice, because transcripts contain the salt.
    let rng = Cell::new(0);
    let greet = move |info| -> Box<dyn windlass_session::Session> {
        rng.set(rng.get() + 1);
        Box::new(FaktorySpeaker::session(
            Arc::clone(&settings),
            info,
            [(0x1111 * rng.get()) << 1, rng.get()],
        ))
    };
    let mut hub = MemoryHub::new(limits, START, 7).reading(reader());
    let commands = configured_schedules(scene)
        .map(|schedule| Command::from(ScheduleCommand::Set(Box::new(schedule))))
        .chain(configured_throttles(scene));
    let commands = commands.collect();
    hub.open(|info| Box::new(Operator(info, commands)));
    MemoryWire::new(hub, greet).for_scene(scene)
}

/// What reads FWP's jobs for MUTATE.
fn reader() -> Arc<Bridge> {
    let origin: Arc<dyn Origin> = Arc::new(FwpOrigin);
    Arc::new(Bridge::new(vec![Side {
        protocol: Protocol::FAKTORY,
        name: "faktory",
        origin: Some(origin),
    }]))
}

/// `set cron * * * * * {…}`: five fields, and the job.
fn configured_schedules(scene: &Scene) -> impl Iterator<Item = NewSchedule> + '_ {
    let cron = scene.settings.iter().filter(|(key, _)| key == "cron");
    let schedule = |(_, text): &(String, String)| {
        let (fields, job) = text.split_at(text.find('{').unwrap());
        NewSchedule {
            key: None,
            job: Settings::new(Faktory::default(), START)
                .template(job)
                .unwrap_or_else(|error| panic!("{text}: {error}")),
            recurrence: Recurrence::Cron(windlass_session::cron::parse(fields.as_bytes()).unwrap()),
            at_once: false,
            keep_grid: true,
            runs: None,
        }
    };
    cron.map(schedule)
}

/// `set throttle QUEUE concurrency=1 worker=2 timeout_ms=3`; each value is optional.
fn configured_throttles(scene: &Scene) -> impl Iterator<Item = Command> + '_ {
    scene
        .settings
        .iter()
        .filter(|(key, _)| key == "throttle")
        .map(|(_, text)| {
            let mut words = text.split(' ');
            let queue = words.next().unwrap().to_owned().into();
            let mut throttle = Throttle::default();
            for (key, value) in words.map(|word| word.split_once('=').unwrap()) {
                match key {
                    "concurrency" => throttle.leased_max = Some(value.parse().unwrap()),
                    "worker" => throttle.per_worker_max = Some(value.parse().unwrap()),
                    "timeout_ms" => throttle.timeout_ms = Some(value.parse().unwrap()),
                    other => panic!("{text}: no {other:?}"),
                }
            }
            QueueCommand::Throttle {
                queue,
                throttle: Some(throttle),
            }
            .into()
        })
}

/// An internal connection that applies the configuration.
#[derive(Debug)]
struct Operator(ClientInfo, Vec<Command>);

impl Session for Operator {
    fn on_open(&mut self, _now: Timestamp, out: &mut Outbox) {
        out.command(Tag::NONE, ClientCommand::Open(std::mem::take(&mut self.0)));
        self.1
            .drain(..)
            .for_each(|command| out.command(Tag::NONE, command));
    }

    fn on_bytes(&mut self, _now: Timestamp, _input: &mut BytesMut, _out: &mut Outbox) {}

    fn on_event(&mut self, _now: Timestamp, event: Event, _out: &mut Outbox) {
        panic!("{event:?}");
    }
}

/// Keys and values as in the daemon's configuration.
fn settings(scene: &Scene) -> (Settings, Limits) {
    let mut settings = Settings {
        memory_mb: || 12,
        ..Settings::new(Faktory::default(), START)
    };
    let mut limits = Limits {
        queues_max: 100,
        ..Limits::default()
    };
    for (key, value) in &scene.settings {
        match key.as_str() {
            "password" => settings.section.password = value.as_str().into(),
            "line_bytes_max" => settings.section.line_bytes_max = ByteSize(value.parse().unwrap()),
            "connections_max" => settings.section.connections_max = value.parse().unwrap(),
            "reserve_min_s" => {
                settings.section.reserve_min = Period::from_secs(value.parse().unwrap())
            }
            "reserve_max_s" => {
                settings.section.reserve_max = Period::from_secs(value.parse().unwrap())
            }
            "requeue_on_worker_death" => limits.requeue_dead_workers = value.parse().unwrap(),
            "clock_ns" => {
                assert_eq!(value, "1700000000123456789");
                settings.clock_ns = || 1_700_000_000_123_456_789;
            }
            "cron" | "throttle" | "rights" => {}
            "jobs_max" => limits.jobs_max = value.parse().unwrap(),
            "page_max" => limits.page_max = value.parse().unwrap(),
            other => panic!("{}: no setting {other:?}", scene.name),
        }
    }
    (settings, limits)
}
