//! Plays every transcript in `tests/transcripts` in memory, with a clock that jumps. It begins at 1700000000.000, a
//! Tuesday, 22:13:20.

use std::sync::Arc;

use windlass_config::Period;
use windlass_engine::{Limits, Timestamp};
use windlass_eventmq::config::{Eventmq, Order};
use windlass_eventmq::session::{EventmqSpeaker, Settings};
use windlass_testkit::memory::MemoryHub;
use windlass_testkit::transcript::{Framing, MemoryWire, Scene, Transcript, ZmtpWire};
use windlass_zmtp::ConnectionRegistry;

windlass_testkit::transcripts! {
    admin
    flaws
    heartbeats
    jobs
    rights
    schedules
    unclaimed
    weights
}

fn play(name: &str) {
    let transcript = Transcript::read(&folder().join(name).with_extension("txt"))
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(!transcript.scenes.is_empty());
    for scene in &transcript.scenes {
        let mut wire = ZmtpWire::new(wire(scene), Framing::Whole);
        scene
            .play(&mut wire, &crate::speech::Emqp)
            .unwrap_or_else(|failure| panic!("{}: {failure}", scene.name));
        wire.inner().hub().engine().check();
    }
}

fn wire(scene: &Scene) -> MemoryWire<'_> {
    let settings = Arc::new(settings(scene));
    let hub = MemoryHub::new(Limits::default(), Timestamp(1_700_000_000_000), 7);
    let registry = Arc::<ConnectionRegistry>::default();
    MemoryWire::new(hub, move |info| {
        let registration = registry.enter(Arc::new(|_| ()));
        Box::new(EventmqSpeaker::session(
            Arc::clone(&settings),
            info,
            registration,
            7,
        ))
    })
    .for_scene(scene)
}

/// Keys and values as in the daemon's configuration; times are in milliseconds. Unless a scene sets a time-out, no peer
/// counts as dead.
fn settings(scene: &Scene) -> Settings {
    let none = Period::from_ms(0);
    let mut section = Eventmq {
        heartbeat_timeout: none,
        nudge: none,
        ..Eventmq::default()
    };
    for (key, value) in &scene.settings {
        let time = || Period::from_ms(value.parse().unwrap());
        match (key.as_str(), value.as_str()) {
            ("binary_workers", on) => section.binary_workers = on.parse().unwrap(),
            ("disconnect", on) => section.disconnect = on.parse().unwrap(),
            ("heartbeat_timeout", _) => section.heartbeat_timeout = time(),
            ("nudge", _) => section.nudge = time(),
            ("lease", _) => section.lease = time(),
            ("timeout_grace", _) => section.timeout_grace = time(),
            ("dedup", _) => section.dedup = time(),
            ("jobs_max", jobs) => section.jobs_max = jobs.parse().unwrap(),
            ("losses_max", losses) => section.losses_max = losses.parse().unwrap(),
            ("order", "inform") => section.order = Order::Inform,
            ("fallback", name) => name.trim_matches('"').clone_into(&mut section.fallback),
            ("keep_failed", on) => section.keep_failed = on.parse().unwrap(),
            ("rights", _) => {}
            other => panic!("{}: no setting {other:?}", scene.name),
        }
    }
    Settings::new(section)
}
