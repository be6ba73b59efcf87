//! Plays every conversation in `tests/transcripts` in memory: sessions on one engine, with a clock that jumps.
//!
//! The same files can be played against a daemon over TCP, except scenes that move the clock.

use std::sync::Arc;

use windlass_bridge::{Bridge, Side};
use windlass_engine::{Limits, Protocol, Timestamp};
use windlass_gearman::session::{GearmanSpeaker, Settings};
use windlass_gearman::wire::HandlePrefix;
use windlass_testkit::memory::MemoryHub;
use windlass_testkit::transcript::{MemoryWire, Scene, Transcript};

/// Epoch seconds at which every scene begins; transcripts with times rely on it.
const START_S: u64 = 1_700_000_000;

windlass_testkit::transcripts! {
    admin
    cancel
    coalescing
    dead
    disconnects
    echo
    epoch
    exceptions
    functions
    grab
    jobs
    malformed
    pipelining
    priorities
    rights
    schedules
    shutdown
    sleep
    subscriptions
    timeouts
    uniques
}

fn play(name: &str) {
    let transcript = Transcript::read(&folder().join(name).with_extension("txt"))
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(!transcript.scenes.is_empty());
    for scene in &transcript.scenes {
        let mut wire = wire(scene);
        scene
            .play(&mut wire, &crate::speech::Gearman)
            .unwrap_or_else(|failure| panic!("{}: {failure}", scene.name));
        wire.hub().engine().check();
    }
}

fn wire(scene: &Scene) -> MemoryWire<'_> {
    let settings = Arc::new(settings(scene));
    let limits = Limits {
        queues_max: 100,
        listeners_max: 100,
        ..Limits::default()
    };
    let hub = MemoryHub::new(limits, Timestamp(START_S * 1_000), 7);
    MemoryWire::new(hub, move |info| {
        Box::new(GearmanSpeaker::session(Arc::clone(&settings), info))
    })
    .for_scene(scene)
}

/// Keys and values as in the daemon's configuration.
fn settings(scene: &Scene) -> Settings {
    let mut settings = Settings::new(HandlePrefix::new(b"H:here").unwrap());
    let gearman = Side {
        protocol: Protocol::GEARMAN,
        name: "gearman",
        origin: None,
    };
    settings.bridge = Arc::new(Bridge::new(vec![gearman]));
    let keys = scene.settings.iter().filter(|(key, _)| key != "rights");
    let text: String = keys
        .map(|(key, value)| format!("{key} = {value}\n"))
        .collect();
    settings.section = toml::from_str(&text).unwrap_or_else(|why| panic!("{}: {why}", scene.name));
    settings
}
