//! Hubs whose daemon holds the store under a lease.

use std::sync::atomic::{AtomicBool, Ordering};

use windlass_store::Tenure;

use super::*;

/// A lease of the store that a test controls.
#[derive(Debug)]
struct Given {
    holds: AtomicBool,
    waiting: Mutex<BTreeSet<String>>,
    before: Option<Vec<u32>>,
    recorded: Mutex<Vec<u32>>,
}

impl Given {
    /// A valid lease, whose previous holder had these edges.
    fn after(before: Option<Vec<u32>>) -> Arc<Self> {
        let (holds, waiting, recorded) =
            (AtomicBool::new(true), Mutex::default(), Mutex::default());
        Arc::new(Self {
            holds,
            waiting,
            before,
            recorded,
        })
    }
}

impl Tenure for Given {
    fn holds(&self) -> bool {
        self.holds.load(Ordering::Acquire)
    }

    fn wait(&self, _: Duration) {
        self.waiting
            .lock()
            .unwrap()
            .insert(thread::current().name().unwrap().to_owned());
        thread::yield_now();
    }

    fn lost(&self) -> Option<windlass_store::Error> {
        None
    }

    fn epoch(&self) -> u64 {
        1
    }

    fn length(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn edges_before(&self) -> Option<Vec<u32>> {
        self.before.clone()
    }

    fn record(&self, edges: Vec<u32>) -> u64 {
        *self.recorded.lock().unwrap() = edges;
        7
    }

    fn recorded(&self) -> u64 {
        6
    }
}

#[test]
fn while_the_store_is_not_certainly_its_own_a_daemon_neither_visits_nor_sends() {
    let (hub, mailboxes) = hub(Durability::Soon, 1);
    let given = Given::after(None);
    let hub = hub.under(Some(Arc::clone(&given) as Arc<dyn Tenure>));
    acknowledged(&hub, &mailboxes[0]);
    visit(&hub, 1, &mut items([push(10)]));
    let jobs = || hub.with_journal(|engine, _| engine.job_count());
    given.holds.store(false, Ordering::Release);
    thread::scope(|scope| {
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let read = named("reads")
            .spawn_scoped(scope, || acknowledged(&hub, &mailboxes[0]))
            .unwrap();
        let visits = named("visits")
            .spawn_scoped(scope, || visit(&hub, 1, &mut items([push(10)])))
            .unwrap();
        while given.waiting.lock().unwrap().len() < 2 {
            thread::yield_now();
        }
        assert!(!read.is_finished() && !visits.is_finished());
        assert_eq!((jobs(), hub.may_act()), (1, false));
        assert!(hub.tick().is_some(), "the main thread does not wait");
        given.holds.store(true, Ordering::Release);
        assert!(read.join().unwrap() >= 1, "the mail was kept");
        visits.join().unwrap();
    });
    assert_eq!(jobs(), 2);
}

#[test]
fn a_run_has_begun_when_its_first_commit_is_on_the_disk() {
    let (hub, _) = hub(Durability::Durable, 1);
    assert_eq!(
        (hub.recovered(), hub.durable(), hub.has_begun()),
        (0, 0, false)
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::select! {
            biased;
            () = hub.first_commit() => panic!("nothing is on the disk"),
            () = tokio::task::yield_now() => {}
        }
        commit(&hub);
        hub.first_commit().await;
    });
    assert_eq!(
        (hub.recovered(), hub.durable(), hub.has_begun()),
        (0, 1, true)
    );
}

/// Another daemon need not know of connection-bound leases.
#[test]
fn a_lease_that_outlives_its_connection_waits_for_the_disk_if_another_daemon_may_succeed() {
    let (hub, mailboxes) = settled_hub(1);
    let given = Given::after(None);
    let hub = hub.under(Some(given as Arc<dyn Tenure>));
    visit(&hub, 1, &mut items([push(10), push(10)]));
    commit(&hub);
    acknowledged(&hub, &mailboxes[0]);
    let take = |connection_bound| {
        let lease = LeaseTerms {
            connection_bound,
            lease_ms: Some(60_000),
            on_expiry: OnExpiry::Fail,
            wish: None,
        };
        let from = From::Listed {
            queues: vec![Bytes::from_static(b"f")],
            lease,
        };
        let take = Take {
            from,
            select: Select::ListOrder,
            wait: Wait::No,
            worker: Bytes::new(),
        };
        visit(&hub, 1, &mut items([TakeCommand::Take(take).into()]));
        acknowledged(&hub, &mailboxes[0])
    };
    assert_eq!(take(true), 1);
    assert_eq!(take(false), 0);
    settle(&hub);
    assert_eq!(acknowledged(&hub, &mailboxes[0]), 1);
}

#[test]
fn the_grace_ends_when_all_edges_of_the_leader_before_have_claimed() {
    let begun = |edges: Option<&[u32]>, early: &[u32]| {
        let given = Given::after(edges.map(<[u32]>::to_vec));
        let hub = hub(Durability::Durable, 1)
            .0
            .under(Some(Arc::clone(&given) as Arc<dyn Tenure>));
        early.iter().for_each(|edge| hub.has_claimed(*edge));
        assert!(hub.is_in_grace(), "it has not begun");
        hub.begin_grace();
        (hub, given)
    };
    for (edges, early, lasts) in [
        (Some(&[][..]), &[][..], false),
        (Some(&[3]), &[3], false),
        (Some(&[3]), &[4], true),
        (None, &[3], true),
    ] {
        assert_eq!(
            begun(edges, early).0.is_in_grace(),
            lasts,
            "{edges:?} {early:?}"
        );
    }
    let (hub, given) = begun(Some(&[3, 4]), &[]);
    let in_grace = [3, 3, 5, 4].map(|edge| (hub.has_claimed(edge), hub.is_in_grace()).1);
    assert_eq!(in_grace, [true, true, true, false]);
    assert!(given.recorded.lock().unwrap().is_empty());
}

/// This daemon may stop before they have claimed.
#[test]
fn a_successor_waits_for_linked_edges_and_for_those_that_are_still_awaited() {
    let given = Given::after(Some(vec![3, 4]));
    let hub = hub(Durability::Durable, 1)
        .0
        .under(Some(Arc::clone(&given) as Arc<dyn Tenure>));
    hub.begin_grace();
    let recorded = || given.recorded.lock().unwrap().clone();
    assert!(
        !hub.knows_edges(hub.add_edge(9)),
        "the database has an older record"
    );
    assert!(hub.knows_edges(6));
    assert_eq!(recorded(), [3, 4, 9]);
    hub.has_claimed(3);
    let _ = hub.add_edge(9);
    assert_eq!(recorded(), [4, 9]);
    hub.remove_edge(9);
    assert_eq!(recorded(), [4, 9], "it has another link");
    hub.remove_edge(9);
    assert_eq!(recorded(), [4]);
    let _ = hub.add_edge(5);
    hub.step_down();
    hub.remove_edge(5);
    assert_eq!(
        recorded(),
        [4, 5],
        "a daemon that leads no more ends its links, and the edge comes to its successor"
    );
}
