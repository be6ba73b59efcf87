//! Assignment of numbers to edges.

use super::served::Lease;
use super::*;

#[test]
fn a_number_has_the_epoch_and_the_link() {
    const LAST: u64 = (EdgeNumber::MAX / LINKS_MAX) as u64;
    let table = [
        (0, 0, None),
        (0, 1, Some(1)),
        (3, 5, Some(3 * LINKS_MAX + 5)),
        (3, LINKS_MAX + 5, Some(3 * LINKS_MAX + 5)),
        (
            LAST - 1,
            5,
            Some((EdgeNumber::MAX / LINKS_MAX - 1) * LINKS_MAX + 5),
        ),
        (LAST, 5, Some(5)),
        (LAST + 3, 5, Some(3 * LINKS_MAX + 5)),
    ];
    for (epoch, link, expected) in table {
        assert_eq!(
            number(epoch, link).map(EdgeNumber::number),
            expected,
            "{epoch} {link}"
        );
    }
}

#[test]
fn an_edge_of_an_earlier_leader_keeps_its_number() {
    use windlass_engine::{Engine, Limits, QueueCommand, QueueKind};
    use windlass_store::{Journal, Log as _, StoreLimits, open_parts};
    use windlass_testkit::store::{MemoryLog, MemoryTable};

    use windlass_hub::{Broker as _, Durability};

    // A journal with commits.
    let mut log = MemoryLog::new();
    let before = Hub::new(
        Engine::new(Limits::default(), 7),
        Journal::new(),
        Durability::Durable,
        7,
    );
    let mut newest = 0;
    for queue in ["q", "r", "s"] {
        before
            .ask(
                QueueCommand::Create {
                    queue: queue.into(),
                    kind: QueueKind::Work,
                }
                .into(),
            )
            .unwrap();
        while let Some(cut) = before.cut() {
            log.append(&cut.commit).unwrap();
            newest = cut.commit.seq();
            before.committed(cut.commit);
        }
    }
    let (_, recovered) = open_parts(
        &log,
        Box::new(MemoryTable::new()),
        &StoreLimits::default(),
        Limits::default(),
        7,
    )
    .unwrap();
    let hub = Hub::new(recovered.engine, recovered.journal, Durability::Durable, 7);
    let hub = hub.under(Some(Arc::new(Lease {
        holds: true.into(),
        ..Lease::default()
    })));
    assert_eq!(hub.recovered(), newest);
    assert!(newest > 1);
    let [old, new] = [7, 8].map(|number| EdgeNumber::new(number).unwrap());
    let welcomed = |epoch: Option<u64>, kept: bool| {
        let known = epoch.map(|epoch| windlass_link::Known {
            edge: old,
            epoch,
            commit: 1,
        });
        let hello = Hello {
            cluster: "c".into(),
            name: "n".into(),
            settings: [7; 32],
            known,
        };
        let number = numbered(&hello, &hub, || Some(new)).unwrap();
        let welcome = welcome(&hello, number, &hub, [7; 32], kept);
        assert!(welcome.same_settings);
        (welcome.edge, welcome.reaches)
    };
    assert_eq!(welcomed(None, false), (new, 0));
    assert_eq!(
        welcomed(Some(4), false),
        (old, hub.recovered()),
        "of the leader before"
    );
    assert_eq!(welcomed(Some(3), false), (old, 0), "of one before that");
    assert_eq!(
        welcomed(Some(5), false),
        (new, 0),
        "of this one, which has forgotten it"
    );
    assert_eq!(
        welcomed(Some(5), true),
        (new, hub.durable()),
        "of this one, which has kept its clients"
    );
    let other = Hello {
        cluster: "c".into(),
        name: "n".into(),
        settings: [8; 32],
        known: None,
    };
    assert!(!welcome(&other, new, &hub, [7; 32], false).same_settings);
    assert!(numbered(&other, &hub, || None).is_none());
}

#[test]
fn links_of_one_epoch_and_of_the_next_have_different_numbers() {
    let of = |epoch| (1..100).map(move |link| number(epoch, link));
    let numbers: std::collections::BTreeSet<_> = (1..50)
        .flat_map(of)
        .map(|it| it.map(EdgeNumber::number))
        .collect();
    assert_eq!(numbers.len(), 49 * 99);
    assert!(numbers.iter().all(Option::is_some), "{numbers:?}");
}
