use std::cell::RefCell;

use windlass_config::Period;
use windlass_engine::Limits;
use windlass_store::{Contents, Holder, Overflow};

use super::*;
use crate::config::fixture;
use windlass_hub::testing::captured;

fn config(dir: &Path) -> Config {
    Config {
        data_dir: dir.join("data"),
        ..fixture::config("")
    }
}

/// A database without a store.
#[derive(Debug)]
struct Empty;

impl Remote for Empty {
    fn name(&self) -> String {
        "the database".to_owned()
    }

    fn look(&self) -> Result<State, StoreError> {
        Ok(State::New)
    }

    fn holder(&self) -> Result<Option<Holder>, StoreError> {
        Ok(None)
    }

    fn open(&self, _: &StoreLimits, _: Limits, _: u64) -> Result<Opened, OpenError> {
        panic!("that makes a store")
    }

    fn fill(&self, _: Contents<'_>) -> Result<(), OpenError> {
        panic!("that makes a store")
    }

    fn retire(&self) -> Result<(), OpenError> {
        panic!("there is no store")
    }

    fn verify(&self, _: Option<&Overflow>, _: Limits) -> Result<Report, OpenError> {
        panic!("there is no store")
    }

    fn salvage(&self, _: Option<&Overflow>) -> Result<Salvage, StoreError> {
        panic!("there is no store")
    }
}

#[test]
fn nothing_is_created_where_no_daemon_has_been() {
    let dir = tempfile::tempdir().unwrap();
    let from = Config {
        remote: Some(Arc::new(Empty)),
        ..config(dir.path())
    };
    let to = config(dir.path());
    for done in [compact(&from), move_store(&from, &to)] {
        let failure = done.unwrap_err().to_string();
        assert_eq!(
            failure,
            "cannot open the database: there is no Windlass data in it"
        );
    }
    assert!(!to.data_dir.exists());
}

#[test]
fn an_open_says_how_the_daemon_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let opened = |state: &str| {
        let mut opened = None;
        let said = captured(|| opened = Some(open(&config).unwrap()));
        assert!(
            said.contains(&format!("state=\"{state}\"")),
            "{state}: {said}"
        );
        opened.unwrap()
    };
    let commit = |Opened {
                      mut log,
                      recovered,
                      guard,
                      ..
                  }: Opened,
                  in_order: bool| {
        let (mut engine, mut journal) = (recovered.engine, recovered.journal);
        if in_order {
            engine.finish_meta();
            journal.stop_in_order();
        }
        log.append(&journal.cut(&engine).unwrap()).unwrap();
        drop((log, guard));
    };
    commit(opened("new"), false);
    commit(opened("not stopped cleanly"), true);
    commit(opened("stopped cleanly"), true);
}

#[test]
fn a_store_in_use_is_tried_again_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    for (seconds, is_opened) in [(0, false), (3_600, true)] {
        config.server.in_use_timeout = Period::from_secs(seconds);
        let other = RefCell::new(Some(open(&config).unwrap()));
        let opened = patiently(&config, || {
            let opened = try_open(&config);
            other.take();
            opened
        });
        assert_eq!(opened.is_ok(), is_opened, "{opened:?}");
    }
}

#[test]
fn a_new_store_is_whole_and_its_commits_are_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    drop(open(&config).unwrap());
    let said = verify(&config).unwrap();
    assert_eq!(
        said,
        "ok: 0 jobs, 0 queues, 0 schedules, 0 batches; the log has 0 commits"
    );
}

#[test]
fn files_of_other_programs_are_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    std::fs::create_dir_all(config.data_dir.join("store")).unwrap();
    std::fs::write(config.data_dir.join("store/shop.db"), "x").unwrap();
    assert!(
        verify(&config)
            .unwrap_err()
            .to_string()
            .ends_with(": there is no Windlass data in it")
    );
    // The remains of a store count as damage.
    std::fs::create_dir(config.data_dir.join("store/log")).unwrap();
    assert!(
        verify(&config)
            .unwrap_err()
            .to_string()
            .contains("it is missing")
    );
}

#[test]
fn the_store_has_the_limits_of_the_configuration() {
    let mut config = fixture::config("");
    config.store.checkpoint.0 = 1 << 20;
    config.store.compact_floor.0 = 3 << 20;
    config.store.cache.0 = 5 << 20;
    assert_eq!(tables(&config).cache_bytes, 5 << 20);
    let StoreLimits {
        log_bytes,
        table_floor_bytes,
        keep_bytes,
        ..
    } = store_config(&config).checkpoints;
    assert_eq!(
        (log_bytes, table_floor_bytes, keep_bytes),
        (1 << 20, 3 << 20, 1 << 18)
    );
}

#[test]
fn a_salvage_lists_some_places_and_counts_the_rest() {
    for (unreadable, lines, rest) in [
        (0, 1, ""),
        (NAMED_MAX, NAMED_MAX + 1, ""),
        (NAMED_MAX + 2, NAMED_MAX + 2, "2"),
    ] {
        let place = |number| format!("place {number}");
        let mut found = Salvage::default();
        found.unreadable = (0..unreadable).map(place).collect();
        (found.commits, found.commits_missing) = (3, 4);
        let said = in_words(&found);
        assert!(said.contains("3 of 7 commits of the log"), "{said}");
        assert_eq!(said.lines().count(), lines, "{said}");
        assert_eq!(
            said.ends_with(&format!("and {rest} more")),
            !rest.is_empty(),
            "{said}"
        );
    }
}
