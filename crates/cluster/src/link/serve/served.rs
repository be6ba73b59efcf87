//! An edge and its leader over one link.

use std::sync::atomic::AtomicBool;

use windlass_engine::{Engine, Limits};
use windlass_store::{Journal, Tenure};

use super::*;
use windlass_hub::{Durability, Role};

fn hub() -> Hub {
    Hub::new(
        Engine::new(Limits::default(), 7),
        Journal::new(),
        Durability::Durable,
        7,
    )
}

fn leading(hub: Hub) -> Leading {
    let terms = Terms {
        cluster: "c".into(),
        name: "leader".into(),
        settings: [7; 32],
        tls: None,
        outbound_bytes_max: 1 << 20,
    };
    let view = View::alone();
    view.leads(1);
    Leading {
        hub: Arc::new(hub),
        terms: Arc::new(terms),
        view: Arc::new(view),
        relay: Relay::new(std::iter::empty()),
        numbered: AtomicU32::new(0),
        kept: Kept::default(),
    }
}

fn edges(leading: &Leading) -> Vec<String> {
    let Role::Leading { edges, .. } = leading.view.read() else {
        panic!("it leads")
    };
    edges.into_iter().map(|edge| edge.link).collect()
}

#[tokio::test]
async fn operators_see_an_edge_while_it_is_linked() {
    let leading = leading(hub());
    let (socket, far) = tokio::io::duplex(1 << 16);
    let hello = Hello {
        cluster: "c".into(),
        name: "edge:1".into(),
        settings: [7; 32],
        known: None,
    };
    let opened = Opened {
        wire: Wire::new(Box::new(socket)),
        hello,
    };
    let (_task, ends) = watch::channel(());
    let edge = async {
        let mut wire = Wire::<ToEdge, ToLeader>::new(Box::new(far));
        let welcome = loop {
            if let Some(ToEdge::Welcome(welcome)) = wire.next().unwrap() {
                break welcome;
            }
            wire.step(std::future::pending()).await.unwrap();
        };
        assert!(leading.view.is_linked(welcome.edge.number()));
        assert_eq!(edges(&leading), ["edge:1"]);
        // Operators of the edge see this, and see an update when another daemon connects.
        let mut sent = Vec::new();
        leading.view.has_edge(9, "edge:2");
        while sent.len() < 2 {
            match wire.next().unwrap() {
                Some(ToEdge::Edges(edges)) => {
                    sent = edges.into_iter().map(|edge| edge.link).collect()
                }
                Some(_) => {}
                None => drop(wire.step(std::future::pending()).await.unwrap()),
            }
        }
        assert_eq!(
            sent.iter().map(|link| &**link).collect::<Vec<_>>(),
            ["edge:1", "edge:2"]
        );
        leading.view.lost_edge(9);
        wire.push(&ToLeader::Bye).unwrap();
        while wire.step(std::future::pending()).await.is_ok() {}
    };
    let (served, ()) = tokio::join!(serve(opened, &leading, ends), edge);
    served.unwrap();
    assert_eq!(edges(&leading), [""; 0]);
    assert!(!leading.view.is_linked(1));
}

/// A successor that does not know the edge would hand the edge's jobs to others.
#[tokio::test]
async fn an_edge_is_welcomed_when_the_database_has_recorded_it() {
    let lease = Arc::new(Lease {
        holds: true.into(),
        is_unrecorded: true.into(),
    });
    let leading = leading(hub().under(Some(Arc::clone(&lease) as Arc<_>)));
    let (socket, far) = tokio::io::duplex(1 << 16);
    let hello = Hello {
        cluster: "c".into(),
        name: "edge:1".into(),
        settings: [7; 32],
        known: None,
    };
    let opened = Opened {
        wire: Wire::new(Box::new(socket)),
        hello,
    };
    let (_task, ends) = watch::channel(());
    let edge = async {
        let mut wire = Wire::<ToEdge, ToLeader>::new(Box::new(far));
        assert!(
            !wire.step(sleep(BEAT)).await.unwrap(),
            "the leader sends nothing before that"
        );
        lease.is_unrecorded.store(false, Ordering::Relaxed);
        let first = loop {
            wire.step(std::future::pending()).await.unwrap();
            if let Some(item) = wire.next().unwrap() {
                break item;
            }
        };
        assert!(matches!(first, ToEdge::Welcome(_)));
        wire.push(&ToLeader::Bye).unwrap();
        while wire.step(std::future::pending()).await.is_ok() {}
    };
    let (served, ()) = tokio::join!(serve(opened, &leading, ends), edge);
    served.unwrap();
}

/// A lease that is valid while this is set.
#[derive(Debug, Default)]
pub(super) struct Lease {
    pub(super) holds: AtomicBool,
    /// Whether the database has not recorded the edges yet.
    pub(super) is_unrecorded: AtomicBool,
}

impl Tenure for Lease {
    fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }

    fn wait(&self, _: Duration) {}

    fn lost(&self) -> Option<windlass_store::Error> {
        None
    }

    fn epoch(&self) -> u64 {
        5
    }

    fn length(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn record(&self, _: Vec<u32>) -> u64 {
        1
    }

    fn recorded(&self) -> u64 {
        (!self.is_unrecorded.load(Ordering::Relaxed)).into()
    }
}

#[tokio::test]
async fn a_leader_whose_lease_is_uncertain_says_that_it_lives() {
    {
        let lease = Arc::new(Lease::default());
        let leading = leading(hub().under(Some(Arc::clone(&lease) as Arc<_>)));
        let (socket, far) = tokio::io::duplex(1 << 16);
        let hello = Hello {
            cluster: "c".into(),
            name: "edge:1".into(),
            settings: [7; 32],
            known: None,
        };
        let opened = Opened {
            wire: Wire::new(Box::new(socket)),
            hello,
        };
        let (_task, ends) = watch::channel(());
        let edge = async {
            let mut wire = Wire::<ToEdge, ToLeader>::new(Box::new(far));
            let mut heard = Vec::new();
            while !matches!(heard.last(), Some(ToEdge::Clock(_))) {
                lease.holds.store(
                    heard.iter().any(|item| matches!(item, ToEdge::Beat)),
                    Ordering::Relaxed,
                );
                wire.step(sleep(2 * BEAT)).await.unwrap();
                while let Some(item) = wire.next().unwrap() {
                    heard.push(item);
                }
            }
            wire.push(&ToLeader::Bye).unwrap();
            while wire.step(std::future::pending()).await.is_ok() {}
            heard
        };
        let (served, heard) = tokio::join!(serve(opened, &leading, ends), edge);
        served.unwrap();
        assert!(
            matches!(heard.first(), Some(ToEdge::Welcome(_))),
            "{heard:?}"
        );
        assert!(
            heard.iter().any(|item| matches!(item, ToEdge::Beat)),
            "{heard:?}"
        );
    }
}
