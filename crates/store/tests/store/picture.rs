//! Pictures of a store that is in use: they do not change, and equal a salvage of the same commit.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;

use windlass_engine::Timestamp;
use windlass_store::{About, Picture, StoreConfig, StoreLimits, salvage};

use crate::files::{Daemon, home, small};
use crate::rng::Rng;

const ABOUT: About<'static> = About {
    daemon: "0.1.0",
    written_at: Timestamp(1),
    namespace: None,
};

fn written(picture: &Picture) -> String {
    let mut out = Vec::new();
    picture.export(ABOUT, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn config(path: &Path) -> StoreConfig {
    let checkpoints = StoreLimits {
        log_bytes: 1,
        keep_bytes: 0,
        ..StoreLimits::default()
    };
    StoreConfig {
        checkpoints,
        ..small(path)
    }
}

fn work(daemon: &mut Daemon, rng: &mut Rng, visits: u32) {
    for _ in 0..visits {
        daemon.work(rng, 200);
        daemon.commit();
    }
}

#[test]
fn a_picture_stays_as_it_is_and_costs_one_table() {
    for seed in 0..6 {
        let home = home();
        let mut rng = Rng(seed);
        let mut daemon = Daemon::start(
            &config(&home.path().join("data")),
            seed,
            Timestamp(1_000_000),
        )
        .unwrap();
        daemon.open_clients();
        work(&mut daemon, &mut rng, 200);
        let figures = daemon.checkpointer.figures();
        let rebuilds = || figures.rebuilds.load(Ordering::Relaxed);
        let picture = daemon.checkpointer.picture().unwrap();
        let (first, before) = (written(&picture), rebuilds());
        let mut checkpoint = |daemon: &mut Daemon| {
            work(daemon, &mut rng, 30);
            assert!(daemon.checkpointer.run(true).unwrap());
            rebuilds()
        };
        assert_eq!(
            checkpoint(&mut daemon),
            before + 1,
            "seed {seed}: the table of the picture is left alone"
        );
        assert_eq!(
            checkpoint(&mut daemon),
            before + 1,
            "seed {seed}: the new table is changed in place"
        );
        assert!(written(&picture) == first, "seed {seed}");
        let second = daemon.checkpointer.picture().unwrap();
        assert!(second.commit() > picture.commit() && written(&second) != first);
        drop(second);
        assert_eq!(
            checkpoint(&mut daemon),
            before + 1,
            "seed {seed}: nothing reads the table any more"
        );
        assert!(written(&picture) == first, "seed {seed}");
    }
}

#[test]
fn a_picture_shows_what_a_salvage_shows() {
    for seed in 0..6 {
        let home = home();
        let path = home.path().join("data");
        let mut rng = Rng(seed);
        let mut daemon = Daemon::start(&config(&path), seed, Timestamp(1_000_000)).unwrap();
        daemon.open_clients();
        work(&mut daemon, &mut rng, 200);
        let (picture, exported) = (
            daemon.checkpointer.picture().unwrap(),
            daemon.durable.clone(),
        );
        let mut out = Vec::new();
        let counts = picture.export(ABOUT, &mut out).unwrap();
        assert_eq!(
            (counts.jobs, counts.queues),
            (exported.jobs.len() as u64, exported.queues.len() as u64)
        );
        drop((daemon, picture));
        let (mut found, mut lines) = (salvage(&config(&path)).unwrap(), Vec::new());
        assert!(found.is_whole());
        assert_eq!(found.export(ABOUT, &mut lines).unwrap(), counts);
        // Queues are in the order of numbers here, and of names there.
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let sorted = |text: &str| {
            let lines = text
                .lines()
                .filter(|line| !line.starts_with("{\"export_end\":"));
            lines.map(str::to_owned).collect::<BTreeSet<String>>()
        };
        assert_eq!(sorted(&text(lines)), sorted(&text(out)), "seed {seed}");
    }
}
