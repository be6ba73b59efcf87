//! Directories with a store that was imported, replaced, or moved away.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use windlass_engine::{JobCommand, Limits, NewJob, Protocol, Timestamp};
use windlass_store::{
    Error, OpenError, Overflow, Recovered, Restore, accept_loss, fill, open, retire, watch_steps,
};

use crate::files::{Daemon, home, small};

/// A daemon with three jobs.
fn daemon(path: &Path) -> Daemon {
    let mut daemon = Daemon::start(&small(path), 1, Timestamp(1_000)).unwrap();
    daemon.open_clients();
    for n in 1..=3 {
        let job = NewJob::new(
            Protocol::FAKTORY,
            Bytes::from_static(b"q"),
            Bytes::from(vec![n; 100]),
        );
        daemon.apply(JobCommand::Push(Box::new(job)));
    }
    daemon.commit();
    daemon
}

#[test]
fn a_directory_is_filled_with_the_contents_of_an_engine_unless_it_has_a_store() {
    let home = home();
    let [from, to] = ["from", "to"].map(|name| home.path().join(name));
    let mut daemon = daemon(&from);
    fill(&small(&to), (&mut daemon.engine, None), 2).unwrap();
    let refused = fill(&small(&to), (&mut daemon.engine, None), 2);
    assert!(
        matches!(refused, Err(OpenError::Store(Error::NotEmpty { .. }))),
        "{refused:?}"
    );
    let filled = Daemon::start(&small(&to), 3, Timestamp(1_000)).unwrap();
    assert_eq!(filled.print().jobs, daemon.print().jobs);
}

#[test]
fn bodies_that_are_not_in_memory_are_filled_in() {
    let home = home();
    let [from, to] = ["from", "to"].map(|name| home.path().join(name));
    let before = daemon(&from).print();
    let mut config = small(&from);
    config.checkpoints.overflow = Some(Overflow {
        folder: from.clone(),
        memory: 0,
    });
    let Recovered {
        mut engine, bodies, ..
    } = open(&config, Limits::default(), 1).unwrap().recovered;
    assert_eq!(engine.stored().0, 3);
    fill(&small(&to), (&mut engine, bodies.as_ref()), 2).unwrap();
    let filled = Daemon::start(&small(&to), 3, Timestamp(1_000)).unwrap();
    assert_eq!(filled.print().jobs, before.jobs);
}

#[test]
fn a_store_that_has_moved_is_set_aside_and_not_begun_anew() {
    let home = home();
    let path = home.path().join("data");
    drop(daemon(&path));
    let aside = retire(&small(&path)).unwrap();
    assert!(
        aside.starts_with(&path) && aside.join("log").is_dir(),
        "{}",
        aside.display()
    );
    let refused = open(&small(&path), Limits::default(), 1);
    assert!(matches!(refused, Err(OpenError::Damaged(_))), "{refused:?}");
}

#[test]
fn a_store_is_there_at_every_step_of_its_replacement() {
    let home = home();
    let path = home.path().join("data");
    drop(daemon(&path));
    let store = path.join("store");
    watch_steps(Some(Box::new(move |step, at| {
        assert!(store.is_dir(), "{step:?} of {}", at.display());
        Ok(())
    })));
    let (found, _) = accept_loss(&small(&path), Limits::default(), 1).unwrap();
    watch_steps(None);
    assert_eq!(found.job_count, 3);
}

#[test]
fn an_export_is_restored_where_no_store_is_or_was() {
    type Change = fn(&Path);
    let table: [(&str, Change, bool); 4] = [
        (
            "an empty directory",
            |path| fs::remove_dir_all(path).unwrap(),
            true,
        ),
        ("a store", |_| {}, false),
        (
            "a store without its lock",
            |path| fs::remove_file(path.join("lock")).unwrap(),
            false,
        ),
        (
            "a lock without its store",
            |path| fs::remove_dir_all(path.join("store")).unwrap(),
            false,
        ),
    ];
    for (name, change, begins) in table {
        let home = home();
        let path = home.path().join("data");
        drop(daemon(&path));
        change(&path);
        assert_eq!(
            Restore::begin(&small(&path)).unwrap().is_some(),
            begins,
            "{name}"
        );
    }
}
