//! The edge's side of a link.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use windlass_link::{Hello, Linked, ToEdge, ToLeader, Welcome};
use windlass_store::Holder;

use super::{
    BEAT, LinkError, OPEN_MAX, SILENCE_MAX, Socket, Terms, Wire, set_up, to_link, to_view,
};
use crate::edge::Edge;
use crate::relay::{Relay, Route};
use windlass_hub::View;

/// Serves this daemon's clients over a link to the leader, until the link closes or this daemon's
/// link task changes. Returns why it closed.
///
/// # Errors
///
/// The link could not be established.
pub async fn follow<T>(
    edge: &Edge,
    leader: &Holder,
    terms: &Terms,
    view: &View,
    relay: &Relay,
    mut ends: watch::Receiver<T>,
) -> Result<LinkError, LinkError> {
    let (mut wire, welcome) = tokio::select! {
        opened = open(edge, leader, terms) => opened?,
        _ = ends.changed() => return Err(LinkError::Ours),
    };
    if !welcome.same_settings {
        tracing::error!("limits, queues or schedules differ from the leader's; the leader's apply");
    }
    edge.open_link(&welcome);
    view.follows(leader);
    let Err(why) = exchange(&mut wire, edge, view, relay, &mut ends).await;
    if matches!(why, LinkError::Ours) {
        wire.close(&ToLeader::Bye).await;
    }
    Ok(why)
}

/// Connects to the leader and exchanges greetings.
async fn open(
    edge: &Edge,
    leader: &Holder,
    terms: &Terms,
) -> Result<(Wire<ToEdge, ToLeader>, Box<Welcome>), LinkError> {
    let address = leader.link.as_str();
    let hello = Hello {
        cluster: terms.cluster.clone(),
        name: terms.name.clone(),
        settings: terms.settings,
        known: edge.known(),
    };
    let open = async {
        let socket = TcpStream::connect(address).await?;
        set_up(&socket)?;
        let socket = match &terms.tls {
            Some(tls) => tls.connect(socket, address).await?,
            None => Box::new(socket) as Box<dyn Socket>,
        };
        let mut wire = Wire::<ToEdge, ToLeader>::new(socket);
        wire.push(&ToLeader::Hello(Box::new(hello)))?;
        loop {
            match wire.next()? {
                Some(ToEdge::Welcome(welcome)) => return Ok((wire, welcome)),
                Some(ToEdge::Refused(why)) => return Err(LinkError::Refused(why)),
                Some(_) => {
                    return Err(LinkError::Malformed("no greeting".to_owned()));
                }
                None => wire.step(std::future::pending()).await?,
            };
        }
    };
    let (wire, welcome): (Wire<ToEdge, ToLeader>, Box<Welcome>) = timeout(OPEN_MAX, open)
        .await
        .map_err(|_| LinkError::Slow)??;
    tracing::info!(
        leader = address,
        epoch = welcome.epoch,
        number = welcome.edge.number(),
        "connected to the leader"
    );
    Ok((wire, welcome))
}

/// Publishes the leader's information about all daemons for operators.
fn show(view: &View, item: ToEdge) {
    if let ToEdge::Edges(edges) = item {
        let about = windlass_hub::About::default;
        let edge = |it: Linked| windlass_hub::Edge {
            link: it.link.into(),
            since: it.since,
            about: about(),
        };
        view.leader_has(edges.into_iter().map(edge));
    } else if let ToEdge::About(all) = item {
        view.leader_knows(all.into_iter().map(to_view));
    }
}

async fn exchange<T>(
    wire: &mut Wire<ToEdge, ToLeader>,
    edge: &Edge,
    view: &View,
    relay: &Relay,
    ends: &mut watch::Receiver<T>,
) -> Result<Infallible, LinkError> {
    let (mut to_leader, mut to_edge, mut received_at, mut is_over) =
        (Vec::new(), Vec::new(), Instant::now(), false);
    let mut about_sent = None;
    let rung = Arc::new(Notify::new());
    let published = relay.open(Route::Leader, Arc::clone(&rung));
    loop {
        while let Some(item) = wire.next()? {
            if matches!(item, ToEdge::Bye) {
                return Err(LinkError::Over);
            }
            if matches!(item, ToEdge::Beat) {
                edge.note_doubt();
                continue;
            }
            if matches!(item, ToEdge::Edges(_) | ToEdge::About(_)) {
                show(view, item);
                continue;
            }
            if let ToEdge::Published { protocol, message } = item {
                let (clients, bytes) = relay.receive(protocol, &message);
                edge.publish_to(&clients, bytes);
                continue;
            }
            // The last item of a unit.
            let ends = matches!(item, ToEdge::Clock(_));
            to_edge.push(item);
            if ends {
                edge.receive(to_edge.drain(..));
            }
        }
        edge.take_outgoing(&mut to_leader);
        let changes = Some(view.changes());
        if about_sent != changes {
            wire.push(&ToLeader::About(to_link(view.reasons().own)))?;
            about_sent = changes;
        }
        for item in to_leader.drain(..) {
            wire.push(&item)?;
        }
        for (protocol, message) in published.take() {
            wire.push(&ToLeader::Publish { protocol, message })?;
        }
        let rung = async {
            tokio::select! {
                () = edge.to_send.notified() => {}
                () = rung.notified() => {}
                () = sleep(BEAT) => {}
                _ = ends.changed() => is_over = true,
            }
        };
        if wire.step(rung).await? {
            received_at = Instant::now();
        } else if received_at.elapsed() > SILENCE_MAX {
            return Err(LinkError::Silent);
        }
        if is_over || ends.has_changed().unwrap_or(true) {
            return Err(LinkError::Ours);
        }
    }
}
