//! How an edge joins a leader: the leader's successor must know of it before its clients can hold
//! anything.

use std::sync::Arc;

use tokio::sync::Notify;
use windlass_link::{Edge as EdgeNumber, Hello, ToEdge};

use super::{OUTBOUND_MAX, Room, SETTINGS};
use crate::world::Around;
use windlass_cluster::leader::EdgeClients;
use windlass_cluster::link::{number, numbered, welcome};

/// An edge that waits to be accepted.
#[derive(Debug)]
pub(super) struct Greeting {
    hello: Hello,
    number: EdgeNumber,
    /// The record that contains it.
    added: u64,
}

impl Room {
    pub(super) fn greet(&mut self, at: usize, hello: Hello) {
        self.links += 1;
        let number = numbered(&hello, &self.hub, || number(self.hub.epoch(), self.links)).unwrap();
        let added = self.hub.add_edge(number.number());
        let served = &mut self.served[at];
        (served.number, served.greeted) = (
            Some(number),
            Some(Greeting {
                hello,
                number,
                added,
            }),
        );
    }

    pub(super) fn welcome(&mut self, at: usize, around: &mut Around) {
        let is_known = |it: &mut Greeting| self.hub.knows_edges(it.added);
        let Some(Greeting { hello, number, .. }) = self.served[at].greeted.take_if(is_known) else {
            return;
        };
        let again = hello.known.filter(|known| known.epoch == self.hub.epoch());
        let before = again.and_then(|known| self.take_kept(known.edge));
        let welcome = welcome(&hello, number, &self.hub, SETTINGS, before.is_some());
        let served = &mut self.served[at];
        around.numbers.insert(number.number(), served.edge);
        let mut clients = EdgeClients::new(
            Arc::clone(&self.hub),
            number,
            OUTBOUND_MAX,
            Arc::new(Notify::new()),
        );
        if let Some(before) = before {
            around.tally.note("a link is made again in one epoch");
            clients.succeed(before);
        }
        served.clients = Some(clients);
        served.to_edge.push(ToEdge::Welcome(Box::new(welcome)));
    }
}
