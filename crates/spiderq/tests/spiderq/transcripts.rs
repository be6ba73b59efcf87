//! Plays every conversation in `tests/transcripts` in memory, with a clock that jumps: over ZMTP and bare, unless a
//! scene is marked as ZMTP only.

use std::sync::Arc;

use windlass_config::ByteSize;
use windlass_engine::{Limits, Timestamp};
use windlass_spiderq::config::{Dialect, Spiderq};
use windlass_spiderq::session::{Settings, SpiderqSpeaker};
use windlass_testkit::memory::MemoryHub;
use windlass_testkit::transcript::{Framing, MemoryWire, Scene, Transcript, ZmtpWire};
use windlass_zmtp::ConnectionRegistry;

windlass_testkit::transcripts! {
    basics
    blocking
    dialects
    flaws
    leases
    positions
    remove
    rights
    terminate
}

fn play(name: &str) {
    let transcript = Transcript::read(&folder().join(name).with_extension("txt"))
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(!transcript.scenes.is_empty());
    for scene in &transcript.scenes {
        let mut wire = ZmtpWire::new(wire(scene), Framing::Enveloped);
        scene
            .play(&mut wire, &crate::speech::Spiderq)
            .unwrap_or_else(|failure| panic!("{}, ZMTP: {failure}", scene.name));
        if !scene.settings.iter().any(|(key, _)| key == "zmtp_only") {
            let mut wire = self::wire(scene);
            scene
                .play(&mut wire, &crate::speech::Spiderq)
                .unwrap_or_else(|failure| panic!("{}, bare: {failure}", scene.name));
            wire.hub().engine().check();
        }
    }
}

fn wire(scene: &Scene) -> MemoryWire<'_> {
    let settings = Arc::new(settings(scene));
    let hub = MemoryHub::new(Limits::default(), Timestamp(1_700_000_000_000), 7);
    let registry = Arc::<ConnectionRegistry>::default();
    MemoryWire::new(hub, move |info| {
        Box::new(SpiderqSpeaker::session(
            Arc::clone(&settings),
            info,
            registry.enter(Arc::new(|_| ())),
        ))
    })
    .for_scene(scene)
}

/// Keys and values as in the daemon's configuration.
fn settings(scene: &Scene) -> Settings {
    let mut section = Spiderq {
        queue: "tasks".to_owned(),
        ..Spiderq::default()
    };
    for (key, value) in &scene.settings {
        match (key.as_str(), value.as_str()) {
            ("dialect", "\"1.4\"") => section.dialect = Dialect::V1_4,
            ("dialect", "\"1.3\"") => section.dialect = Dialect::V1_3,
            ("terminate", on) => section.terminate = on.parse().unwrap(),
            ("release_on_disconnect", on) => section.release_on_disconnect = on.parse().unwrap(),
            ("frame_bytes_max", bytes) => {
                section.zmtp.message_bytes_max = ByteSize(bytes.parse().unwrap())
            }
            ("lends_max", lends) => section.lends_max = lends.parse().unwrap(),
            ("zmtp_only", "true") | ("rights", _) => {}
            other => panic!("{}: unknown setting {other:?}", scene.name),
        }
    }
    Settings::new(section)
}
