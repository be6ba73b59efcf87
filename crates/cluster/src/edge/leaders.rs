//! How an edge switches from one leader to the next, or becomes the leader.

use super::tests::{done, edge, mail, open, there, to_leader, visit, welcome};
use windlass_hub::Visited;
use windlass_link::Edge as EdgeNumber;
use windlass_session::Item;

use super::*;

/// Connects to the same leader, or to one that assigns the edge another number.
fn open_link(edge: &Edge, number: u32) {
    edge.open_link(&Welcome {
        edge: EdgeNumber::new(number).unwrap(),
        ..welcome()
    });
}

fn is_closed(mailbox: &Mailbox) -> bool {
    mailbox.close_reason().is_some()
}

#[test]
fn an_edge_knows_its_number_and_the_newest_commit_of_its_leader() {
    let (edge, _) = edge(0);
    let known = Known {
        edge: welcome().edge,
        epoch: 1,
        commit: 5,
    };
    assert_eq!(edge.known(), Some(known));
    edge.receive([ToEdge::Durable { commit: 6 }]);
    edge.close_link();
    assert_eq!(edge.known(), Some(Known { commit: 6, ..known }));
    assert_eq!(Edge::new(Arc::default()).known(), None);
}

#[test]
fn clients_that_have_spoken_are_closed_if_the_edge_gets_another_number() {
    for (number, closed) in [(7, false), (8, true)] {
        let (edge, mailboxes) = edge(2);
        visit(&edge, 1, &mut [open()].into());
        edge.close_link();
        open_link(&edge, number);
        assert_eq!(
            mailboxes.iter().map(|it| is_closed(it)).collect::<Vec<_>>(),
            [closed, false]
        );
    }
}

/// The link was cut, but the leader has kept the clients.
#[test]
fn clients_go_on_under_another_number_at_the_same_leader() {
    let (edge, mailboxes) = edge(1);
    visit(&edge, 1, &mut [open(), open()].into());
    edge.receive([
        ToEdge::Applied {
            client: there(1),
            count: 1,
        },
        done(1, 6),
        done(1, 7),
    ]);
    edge.close_link();
    to_leader(&edge);
    let number = EdgeNumber::new(8).unwrap();
    edge.open_link(&Welcome {
        edge: number,
        reaches: 6,
        durable: 6,
        ..welcome()
    });
    assert!(!is_closed(&mailboxes[0]));
    let anew = ClientId(number.first_client().0 | 1);
    assert!(
        to_leader(&edge)
            .iter()
            .filter_map(ToLeader::client)
            .all(|client| client == anew)
    );
    assert_eq!(
        mail(&edge, &mailboxes[0]),
        1,
        "the numbers of commits go on"
    );
    edge.receive([ToEdge::Durable { commit: 7 }]);
    assert_eq!(mail(&edge, &mailboxes[0]), 1);
}

#[test]
fn an_edge_whose_leader_is_not_certain_is_not_ready() {
    let (edge, _) = edge(0);
    assert_eq!(edge.health(), Health::Serving);
    edge.note_doubt();
    assert_eq!(edge.health(), Health::StoreFailed);
    edge.receive([ToEdge::Clock(clock::read())]);
    assert_eq!(edge.health(), Health::Serving);
}

/// The client's next bytes must be ordered after this.
#[test]
fn what_a_new_leader_gets_of_a_client_is_on_its_way_until_it_is_applied() {
    let (edge, mailboxes) = edge(1);
    visit(&edge, 1, &mut [open()].into());
    edge.receive([ToEdge::Applied {
        client: there(1),
        count: 1,
    }]);
    edge.close_link();
    assert_eq!(mailboxes[0].unanswered(), 0);
    open_link(&edge, 7);
    assert_eq!(mailboxes[0].unanswered(), 1);
    edge.receive([ToEdge::Applied {
        client: there(1),
        count: 1,
    }]);
    assert_eq!(mailboxes[0].unanswered(), 0);
}

#[test]
fn waiting_clients_are_closed_when_an_edge_gives_up() {
    let (edge, mailboxes) = edge(2);
    edge.close_waiting();
    assert_eq!(
        visit(&edge, 1, &mut [open()].into()),
        Visited::All,
        "it has a way"
    );
    edge.close_link();
    assert_eq!(visit(&edge, 1, &mut [open()].into()), Visited::UntilRung);
    assert!(!is_closed(&mailboxes[0]));
    edge.close_waiting();
    assert_eq!(
        [&mailboxes[0], &mailboxes[1]].map(|it| is_closed(it)),
        [true, false]
    );
    assert_eq!(visit(&edge, 2, &mut [open()].into()), Visited::UntilRung);
    assert!(is_closed(&mailboxes[1]), "as are those that come later");
}

#[test]
fn a_daemon_that_begins_to_lead_takes_its_clients_over() {
    let (edge, mailboxes) = edge(3);
    visit(&edge, 1, &mut [open()].into());
    mailboxes[2].evict(Reason::ClosedByServer);
    let handover = edge.hand_over(2, 9);
    let mut clients: Vec<_> = handover
        .mailboxes
        .iter()
        .map(|(client, _)| client.0)
        .collect();
    clients.sort_unstable();
    assert_eq!(clients, [1, 2], "without the one that ends");
    assert!(matches!(
        handover.commands[..],
        [(
            ClientId(1),
            Tag::NONE,
            Command::Client(ClientCommand::Open(_))
        )]
    ));
    open_link(&edge, 7);
    assert_eq!(
        edge.health(),
        Health::StoreFailed,
        "a leader has no way to another one"
    );
    edge.begin();
    open_link(&edge, 7);
    assert_eq!(edge.health(), Health::Serving);
}

#[test]
fn answers_that_the_new_leaders_journal_has_are_acknowledged() {
    for (epoch, refused) in [(2, [false, true]), (1, [true, true]), (3, [true, true])] {
        let (edge, mailboxes) = edge(1);
        edge.receive([done(1, 8), done(1, 9)]);
        edge.hand_over(epoch, 8);
        let mut mail = Vec::new();
        mailboxes[0].take(0, false, usize::MAX, &mut mail);
        let is_refused = |mail: &Mail| {
            matches!(
                mail,
                Mail::Event(Event::Reply(_, Reply::Refused(Refusal::Unknown)))
            )
        };
        assert_eq!(
            mail.iter().map(is_refused).collect::<Vec<_>>(),
            refused,
            "{epoch}"
        );
    }
}

#[test]
fn publications_go_to_the_listed_clients() {
    let (edge, mailboxes) = edge(2);
    edge.publish_to(&[ClientId(2), ClientId(99)], Bytes::from_static(b"news"));
    assert_eq!(
        [&mailboxes[0], &mailboxes[1]].map(|it| mail(&edge, it)),
        [0, 1]
    );
    visit(
        &edge,
        1,
        &mut [Item::Publish(
            [ClientId(1)].into_iter().collect(),
            Bytes::from_static(b"news"),
        )]
        .into(),
    );
    assert_eq!(
        [&mailboxes[0], &mailboxes[1]].map(|it| mail(&edge, it)),
        [1, 0]
    );
}

#[test]
fn the_leader_learns_of_clients_that_go_unless_the_edge_stops() {
    let (edge, _) = edge(3);
    for client in [1, 2] {
        visit(&edge, client, &mut [open()].into());
    }
    to_leader(&edge);
    assert!(
        edge.close(ClientId(3)) && to_leader(&edge).is_empty(),
        "the leader does not know it"
    );
    assert!(edge.close(ClientId(1)));
    assert!(matches!(to_leader(&edge)[..], [ToLeader::Close { client }] if client == there(1)));
    edge.stop();
    assert!(edge.close(ClientId(2)) && to_leader(&edge).is_empty());
}
