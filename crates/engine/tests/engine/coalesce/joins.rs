//! Submits of different kinds that meet.

use super::*;

/// With any clash rule for the unique ID, and without one.
#[test]
fn a_background_submit_that_becomes_a_foreground_job_outlasts_its_client_and_all_clients_get_the_end()
 {
    let policy = Policy {
        key: Some(KeySource::Prefix(b'|')),
        ..Policy::default()
    };
    let rows = [(
        name("q"),
        QueueSettings {
            policy,
            ..QueueSettings::default()
        },
    )];
    for unique in [
        None,
        Some(Clash::Attach),
        Some(Clash::Refuse),
        Some(Clash::Keep),
    ] {
        let mut broker = Broker::new();
        broker.hear(
            1,
            Command::Queue(QueueCommand::SetPatterns(Box::new(
                rows.clone().into_iter().collect(),
            ))),
        );
        broker.hear(
            1,
            rule(Coalesce {
                by_key: true,
                ..RULE
            }),
        );
        let unique_of = |key| {
            unique.map(|clash| Unique {
                key: name(key),
                clash,
                until: KeyUntil::End,
            })
        };
        let waits = |key, text| {
            foreground("", text)
                .with(|job| job.unique = unique_of(key))
                .retry(0, Backoff::None)
        };
        broker.says(1, waits("a", "acme|1"), ["1 new j1"]);
        broker.says(2, waits("b", "acme|2"), ["2 attached j1"]);
        let background = submit("", "acme|3")
            .retry(-1, Backoff::None)
            .with(|job| job.unique = unique_of("c"));
        broker.says(3, background, ["3 attached j1"]);
        broker.hear(1, Command::Client(ClientCommand::Close));
        broker.at(1_100, []);
        assert_eq!(
            taken(&mut broker),
            Some((1, b"acme|3".to_vec())),
            "{unique:?}"
        );
        // Such a job must be in the dead-letter queue after a failure.
        broker.says(
            4,
            fail(1),
            [
                "2 ended j1 failed oops",
                "4 failed j1, buried until 15552001100",
            ],
        );
    }
}

#[test]
fn a_submit_with_a_time_of_its_own_is_a_job_of_its_own() {
    let mut broker = coalescing(RULE);
    let timed =
        |text: &'static str, at| submit("u", text).with(|job| job.not_before = Some(Timestamp(at)));
    broker.says(1, submit("u", "one"), ["1 new j1"]);
    broker.says(1, timed("later", 9_000), ["1 new j2"]);
    broker.says(1, submit("u", "two"), ["1 attached j1"]);
    // Such submits are merged by unique ID, as they are without the rule.
    broker.says(1, timed("again", 8_000), ["1 attached j2"]);
    assert_eq!(
        (broker.place(1), broker.place(2)),
        ("scheduled 1100".into(), "scheduled 9000".into())
    );
    broker.says(1, timed("past", 1_000), ["1 attached j1"]);
    broker.at(1_100, []);
    assert_eq!(taken(&mut broker), Some((1, b"past".to_vec())));
    broker.says(1, submit("u", "three"), ["1 new j3"]);
    broker.restart(Limits::default());
    broker.at(9_000, []);
    assert_eq!(
        (broker.place(2), body(&broker, 2)),
        ("ready".into(), b"later".to_vec())
    );
}

/// The leading job was retained only for a client, so it is not in the journal.
#[test]
fn a_part_whose_leading_job_is_gone_with_the_daemon_waits_for_its_quiet_time() {
    let mut broker = coalescing(Coalesce {
        latest: false,
        ..RULE
    });
    broker.hear(1, foreground("u", "one"));
    broker.at(1_100, []);
    taken(&mut broker);
    broker.says(1, submit("u", "two"), ["1 new j2"]);
    broker.hear(4, ClientCommand::Close);
    assert_eq!(
        (broker.place(1), broker.place(2)),
        ("scheduled 1200".into(), "shelved".into())
    );
    broker.at(1_150, []);
    recover(&mut broker);
    // The start of the quiet time is not stored.
    assert_eq!(broker.place(2), "scheduled 1250");
    broker.at(1_249, []);
    assert_eq!(taken(&mut broker), None);
    broker.at(1_250, []);
    assert_eq!(taken(&mut broker), Some((2, b"two".to_vec())));
}

/// The time is not known while jobs are recovered.
#[test]
fn a_part_that_a_restart_makes_a_part_of_another_one_has_not_changed_in_the_year_1970() {
    let mut broker = coalescing(Coalesce {
        latest: false,
        ..RULE
    });
    broker.hear(1, foreground("u", "one").retry(9, Backoff::Fixed(50)));
    for (now, text) in [(1_100, "two"), (1_200, "three")] {
        broker.at(now, []);
        assert_eq!(taken(&mut broker).map(|(job, _)| job), Some(1));
        broker.hear(1, submit("u", text).track(9_000));
        broker.hear(4, fail(1));
    }
    broker.at(1_250, []);
    recover(&mut broker);
    let changed_at = |job| {
        broker
            .engine
            .job(JobId(job))?
            .extra
            .as_deref()?
            .track
            .map(|track| track.updated_at.0)
    };
    assert_eq!(
        (broker.place(2), changed_at(2)),
        ("shelved".into(), Some(1_100))
    );
    assert_eq!(
        (broker.place(3), changed_at(3)),
        ("scheduled 1350".into(), Some(1_250))
    );
}

#[test]
fn a_submit_that_becomes_a_job_is_refused_only_for_room_that_it_takes() {
    for latest in [true, false] {
        let mut broker = Broker::limited(|limits| limits.jobs_bytes_max = 100);
        broker.hear(1, rule(Coalesce { latest, ..RULE }));
        broker.says(1, submit("u", "three"), ["1 new j1"]);
        assert!(
            words(&broker.hear(1, submit("v", "")))[0].starts_with("1 refused: daemon is full")
        );
        broker.says(1, submit("u", "one"), ["1 attached j1"]);
        let said = words(&broker.hear(1, submit("u", "seven")));
        assert_eq!(
            said[0].starts_with("1 refused: daemon is full"),
            latest,
            "{said:?}"
        );
        assert_eq!(
            body(&broker, 1),
            if latest { &b"one"[..] } else { b"three" }
        );
    }
}
