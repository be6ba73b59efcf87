//! Plays every transcript in `tests/transcripts` in memory, with a clock that jumps. It begins at 1700000000.000, a
//! Tuesday, 22:13:20.

use std::sync::Arc;

use windlass_engine::{Limits, Select, Timestamp};
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
    let transcript = Transcript::read(&folder().join(name).with_extension("txt")).unwrap_or_else(|e| panic!("{e}"));
    assert!(!transcript.scenes.is_empty());
    for scene in &transcript.scenes {
        let mut wire = ZmtpWire::new(wire(scene), Framing::Whole);
        scene.play(&mut wire, &crate::speech::Emqp).unwrap_or_else(|failure| panic!("{}: {failure}", scene.name));
        wire.inner().hub().engine().check();
    }
}

fn wire(scene: &Scene) -> MemoryWire<'_> {
    let settings = Arc::new(settings(scene));
    let hub = MemoryHub::new(Limits::default(), Timestamp(1_700_000_000_000), 7);
    let registry = ConnectionRegistry::new(9);
    MemoryWire::new(hub, move |info| {
        let registration = registry.enter(Arc::new(|_| ()));
        Box::new(EventmqSpeaker::session(Arc::clone(&settings), info, registration, 7))
    })
    .for_scene(scene)
}

/// Keys and values as in the daemon's configuration; times are in milliseconds. Unless a scene sets a time-out, no peer
/// counts as dead.
fn settings(scene: &Scene) -> Settings {
    let mut settings = Settings { heartbeat_timeout_ms: 0, nudge_ms: 0, ..Settings::new() };
    for (key, value) in &scene.settings {
        let number = || value.parse().unwrap();
        match (key.as_str(), value.as_str()) {
            ("binary_workers", on) => settings.binary_workers = on.parse().unwrap(),
            ("disconnect", on) => settings.disconnect = on.parse().unwrap(),
            ("heartbeat_timeout", _) => settings.heartbeat_timeout_ms = number(),
            ("nudge", _) => settings.nudge_ms = number(),
            ("lease", _) => settings.lease_ms = number(),
            ("timeout_grace", _) => settings.timeout_grace_ms = number(),
            ("dedup", _) => settings.dedup_ms = number(),
            ("jobs_max", jobs) => settings.jobs_max = jobs.parse().unwrap(),
            ("losses_max", losses) => settings.losses_max = losses.parse().unwrap(),
            ("order", "inform") => settings.select = Select::ListOrder,
            ("fallback", name) => settings.fallback = name.trim_matches('"').to_owned().into(),
            ("keep_failed", on) => settings.keep_failed = on.parse().unwrap(),
            ("rights", _) => {}
            other => panic!("{}: no setting {other:?}", scene.name),
        }
    }
    settings
}
