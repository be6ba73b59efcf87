//! A data directory with any damage to its files. `salvage` and `verify` change nothing in it and never panic. A store
//! reported as whole is complete, no job has a body that it never had, and the salvaged data makes a store.
#![no_main]

mod directory;

use libfuzzer_sys::fuzz_target;
use windlass_engine::Timestamp;
use windlass_store::{About, accept_loss, open, salvage, verify};

use directory::{Input, contents, damaged, limits};

fuzz_target!(|input: Input| {
    let (directory, _home, config) = damaged(&input);
    let before = contents(&config);
    let mut found = salvage(&config).expect("no process holds it");
    found
        .export(
            About {
                daemon: "",
                written_at: Timestamp(0),
                namespace: None,
            },
            &mut std::io::sink(),
        )
        .expect("a sink takes all");
    let verdict = verify(&config, limits());
    assert!(contents(&config) == before, "reading changes nothing");
    let jobs = found.jobs();
    for (id, job) in &jobs {
        let known = directory
            .bodies
            .get(id)
            .is_some_and(|bodies| bodies.iter().any(|body| *body == job.body()));
        assert!(known, "{id:?} never had this body");
    }
    assert_eq!(
        found.is_whole(),
        verdict.is_ok(),
        "{:?}, {verdict:?}",
        found.unreadable
    );
    if verdict.is_ok() {
        assert!(
            jobs.keys().eq(directory.acknowledged.jobs.keys()),
            "a job is missing"
        );
        return;
    }
    let (again, _) = accept_loss(&config, limits(), 1).expect("there is room");
    assert_eq!(again.job_count, found.job_count);
    open(&config, limits(), 1)
        .expect("a new store")
        .recovered
        .engine
        .check();
});
