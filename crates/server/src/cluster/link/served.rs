//! What an edge and its leader do over one link.

use windlass_engine::{Engine, Limits};
use windlass_store::Journal;

use super::super::view::Role;
use super::*;
use crate::hub::Durability;

fn leading() -> Leading {
    let hub = Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Durability::Durable, 7);
    let terms =
        Terms { cluster: "c".into(), name: "leader".into(), settings: [7; 32], tls: None, outbound_bytes_max: 1 << 20 };
    let view = View::alone();
    view.leads(1);
    Leading {
        hub: Arc::new(hub),
        terms: Arc::new(terms),
        view: Arc::new(view),
        relay: Relay::new(std::iter::empty()),
        numbered: AtomicU32::new(0),
    }
}

fn edges(leading: &Leading) -> Vec<String> {
    let Role::Leading { edges, .. } = leading.view.read() else { panic!("it leads") };
    edges.into_iter().map(|edge| edge.link).collect()
}

#[tokio::test]
async fn operators_see_an_edge_while_it_is_linked() {
    let leading = leading();
    let (socket, far) = tokio::io::duplex(1 << 16);
    let hello = Hello { cluster: "c".into(), name: "edge:1".into(), settings: [7; 32], known: None };
    let opened = Opened { wire: Wire::new(Box::new(socket)), hello };
    let edge = async {
        let mut wire = Wire::<Say, Ask>::new(Box::new(far));
        let welcome = loop {
            if let Some(Say::Welcome(welcome)) = wire.next().unwrap() {
                break welcome;
            }
            wire.step(std::future::pending()).await.unwrap();
        };
        assert!(leading.view.is_linked(welcome.edge.number()));
        assert_eq!(edges(&leading), ["edge:1"]);
        ask(&mut wire, &Ask::Bye).unwrap();
        while wire.step(std::future::pending()).await.is_ok() {}
    };
    let (served, ()) = tokio::join!(serve(opened, &leading), edge);
    served.unwrap();
    assert_eq!(edges(&leading), [""; 0]);
    assert!(!leading.view.is_linked(1));
}
