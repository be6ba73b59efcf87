//! The leader's side of a link.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use windlass_link::{
    Edge as EdgeNumber, FRAME_BYTES_MAX, Hello, Known as KnownBefore, Linked, Rejection, ToEdge,
    ToLeader, Welcome,
};

use super::{BEAT, LinkError, OPEN_MAX, SILENCE_MAX, Socket, Terms, Wire, to_link, to_view};
use crate::leader::EdgeClients;
use crate::relay::{OpenRoute, Relay, Route};
use windlass_hub::{Edge, Hub, View, clock};

#[cfg(test)]
mod numbers;
#[cfg(test)]
mod served;

/// Maximum bytes buffered for an edge that does not read.
const UNSENT_MAX: usize = 256 << 20;

/// Maximum items that a leader reads from one edge before it visits the engine.
const ITEMS_MAX: usize = 4 << 10;

/// Maximum number of edges per epoch.
const LINKS_MAX: u32 = 1 << 10;

/// How often a leader that is not certain of its lease checks it again.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The parts that a leader needs to serve its edges.
#[derive(Debug)]
pub struct Leading {
    /// The engine room.
    pub hub: Arc<Hub>,
    /// The settings that both sides must agree on.
    pub terms: Arc<Terms>,
    /// Status for operators.
    pub view: Arc<View>,
    /// Routes for protocol messages between daemons.
    pub relay: Arc<Relay>,
    /// The number of edge numbers assigned so far.
    pub numbered: AtomicU32,
    /// Clients of links that were cut.
    pub kept: Kept,
}

/// The clients of each link in this epoch while the leader keeps them: after a reconnect, the new
/// link takes over the clients of the old one.
#[derive(Debug, Default)]
pub struct Kept(Mutex<BTreeMap<EdgeNumber, EdgeClients>>);

impl Kept {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<EdgeNumber, EdgeClients>> {
        // No holder of this lock can panic halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, number: EdgeNumber) -> bool {
        self.lock().contains_key(&number)
    }

    /// Returns once the link has closed.
    async fn has_ended(&self, number: EdgeNumber) {
        while self
            .on(number, |clients| !clients.is_suspended())
            .unwrap_or(false)
        {
            sleep(LOOK_EVERY).await;
        }
    }

    fn take(&self, number: EdgeNumber) -> Option<EdgeClients> {
        self.lock().remove(&number)
    }

    /// Acts on the clients of a link, unless another link has taken them over.
    fn on<T>(&self, number: EdgeNumber, act: impl FnOnce(&mut EdgeClients) -> T) -> Option<T> {
        self.lock().get_mut(&number).map(act)
    }
}

impl Leading {
    /// Assigns a number that no connected edge has.
    fn number(&self) -> Option<EdgeNumber> {
        let next = || {
            number(
                self.hub.epoch(),
                self.numbered.fetch_add(1, Ordering::Relaxed),
            )
        };
        (0..LINKS_MAX).find_map(|_| {
            next().filter(|it| !self.view.is_linked(it.number()) && !self.kept.has(*it))
        })
    }
}

/// The number of an edge. It is unique within 2^14 epochs and 2^10 links of an epoch.
pub fn number(epoch: u64, link: u32) -> Option<EdgeNumber> {
    let epoch = u32::try_from(epoch % (u64::from(EdgeNumber::MAX) / u64::from(LINKS_MAX))).ok()?;
    EdgeNumber::new(epoch * LINKS_MAX + link % LINKS_MAX)
}

/// The edge's knowledge of an earlier leader.
fn earlier(hello: &Hello, epoch: u64) -> Option<KnownBefore> {
    hello.known.filter(|known| known.epoch < epoch)
}

/// The number of an edge at this leader. An edge of an earlier leader keeps its number and
/// therefore its clients; others get a new one. Returns `None` if no numbers are left.
pub fn numbered(
    hello: &Hello,
    hub: &Hub,
    new: impl FnOnce() -> Option<EdgeNumber>,
) -> Option<EdgeNumber> {
    earlier(hello, hub.epoch())
        .map(|known| known.edge)
        .or_else(new)
}

/// Accepts an edge with this number ([`numbered`]), which a successor of the leader must wait for
/// ([`Hub::knows_edges`]). An edge with a new number claims its clients again if they are `kept`
/// here.
pub fn welcome(
    hello: &Hello,
    edge: EdgeNumber,
    hub: &Hub,
    settings: [u8; 32],
    kept: bool,
) -> Welcome {
    let epoch = hub.epoch();
    let earlier = earlier(hello, epoch);
    let reaches = if kept { hub.durable() } else { 0 };
    Welcome {
        epoch,
        edge,
        reaches: earlier
            .filter(|known| known.epoch + 1 == epoch)
            .map_or(reaches, |_| hub.recovered()),
        durable: hub.durable(),
        same_settings: hello.settings == settings,
        clock: clock::read(),
        frame_bytes_max: FRAME_BYTES_MAX as u64,
    }
}

/// A link whose edge has sent its greeting.
pub struct Opened {
    wire: Wire<ToLeader, ToEdge>,
    hello: Hello,
}

/// Performs the TLS handshake and receives the edge's greeting.
///
/// # Errors
///
/// The peer has no valid certificate, belongs to another cluster, or sends no greeting.
pub async fn accept(socket: TcpStream, leading: &Leading) -> Result<Opened, LinkError> {
    let terms = &leading.terms;
    let open = async {
        let socket = match &terms.tls {
            Some(tls) => tls.accept(socket).await?,
            None => Box::new(socket) as Box<dyn Socket>,
        };
        let mut wire = Wire::<ToLeader, ToEdge>::new(socket);
        let hello = loop {
            match wire.next()? {
                Some(ToLeader::Hello(hello)) => break hello,
                Some(_) => {
                    return Err(LinkError::Malformed("no greeting".to_owned()));
                }
                None => wire.step(std::future::pending()).await?,
            };
        };
        Ok((wire, hello))
    };
    let (mut wire, hello) = timeout(OPEN_MAX, open)
        .await
        .map_err(|_| LinkError::Slow)??;
    if hello.cluster != terms.cluster {
        wire.push(&ToEdge::Refused(Rejection::Cluster(terms.cluster.clone())))?;
        wire.step(sleep(BEAT)).await?;
        return Err(LinkError::Stranger(hello.cluster));
    }
    Ok(Opened {
        wire,
        hello: *hello,
    })
}

/// Serves one edge until its link closes or this daemon's link task changes. After a cut its
/// clients are kept for a while, because the edge may reconnect.
pub async fn serve<T>(
    opened: Opened,
    leading: &Leading,
    mut ends: watch::Receiver<T>,
) -> Result<(), LinkError> {
    let Leading {
        hub,
        terms,
        view,
        relay,
        kept,
        ..
    } = leading;
    let Opened { mut wire, hello } = opened;
    let again = hello
        .known
        .filter(|known| known.epoch == hub.epoch())
        .map(|known| known.edge);
    if let Some(number) = again {
        // Items that the edge sent over the previous link may still be unread.
        let _ = timeout(BEAT, kept.has_ended(number)).await;
    }
    let number = numbered(&hello, hub, || leading.number()).ok_or(LinkError::TooMany)?;
    let _added = Added::new(hub, number).await?;
    let before = again.and_then(|number| kept.take(number));
    let welcome = welcome(&hello, number, hub, terms.settings, before.is_some());
    let name = &*hello.name;
    tracing::info!(
        edge = name,
        number = number.number(),
        again = before.is_some(),
        "edge connected"
    );
    if !welcome.same_settings {
        tracing::error!(
            edge = name,
            "the edge's limits, queues or schedules differ from this daemon's, which count"
        );
    }
    wire.push(&ToEdge::Welcome(Box::new(welcome)))?;
    let known = Known::new(view, number, name);
    let rung = Arc::new(Notify::new());
    let mut clients = EdgeClients::new(
        Arc::clone(hub),
        number,
        terms.outbound_bytes_max,
        Arc::clone(&rung),
    );
    before
        .into_iter()
        .for_each(|before| clients.succeed(before));
    kept.lock().insert(number, clients);
    let published = relay.open(Route::to(number), Arc::clone(&rung));
    let ended = go_on(&mut wire, leading, number, &published, &rung, &mut ends).await;
    drop((published, known));
    if !matches!(ended, Ok(()) | Err(LinkError::Ours | LinkError::Replaced)) {
        drop(wire);
        keep(kept, number, ends).await;
    }
    kept.take(number);
    ended
}

/// Keeps the clients of a link that was cut until a new link takes them over, or until an edge
/// would no longer try to reconnect.
async fn keep<T>(kept: &Kept, number: EdgeNumber, mut ends: watch::Receiver<T>) {
    let until = Instant::now() + SILENCE_MAX;
    let mut is_here = kept.on(number, EdgeClients::suspend).is_some();
    while is_here && Instant::now() < until {
        is_here = kept
            .on(number, |clients| clients.turn(&mut Vec::new()))
            .is_some();
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            _ = ends.changed() => return,
        }
    }
}

async fn go_on<T>(
    wire: &mut Wire<ToLeader, ToEdge>,
    Leading {
        hub,
        relay,
        kept,
        view,
        ..
    }: &Leading,
    number: EdgeNumber,
    published: &OpenRoute<'_>,
    rung: &Notify,
    ends: &mut watch::Receiver<T>,
) -> Result<(), LinkError> {
    let (mut to_edge, mut has_unread, mut beat_at, mut is_over) =
        (Vec::new(), false, Instant::now(), false);
    let mut edges_sent = None;
    loop {
        let changes = Some(view.changes());
        if edges_sent != changes {
            let linked = |it: Edge| Linked {
                link: it.link.into(),
                since: it.since,
            };
            let edges = view.edges();
            let about: Vec<_> = std::iter::once(view.reasons().own)
                .chain(edges.iter().map(|it| it.about.clone()))
                .collect();
            wire.push(&ToEdge::Edges(edges.into_iter().map(linked).collect()))?;
            wire.push(&ToEdge::About(about.into_iter().map(to_link).collect()))?;
            edges_sent = changes;
        }
        let more = hub.may_act()
            && kept
                .on(number, |it| it.turn(&mut to_edge))
                .ok_or(LinkError::Replaced)?;
        // Items decided while the lease was valid may be sent only while it still is, because the
        // next leader may have decided otherwise.
        let may_act = hub.may_act();
        if may_act {
            for item in to_edge.drain(..) {
                wire.push(&item)?;
            }
        } else if beat_at <= Instant::now() {
            beat_at = Instant::now() + BEAT;
            wire.push(&ToEdge::Beat)?;
        }
        for (protocol, message) in published.take() {
            wire.push(&ToEdge::Published { protocol, message })?;
        }
        if wire.unsent() > UNSENT_MAX {
            return Err(LinkError::DoesNotRead);
        }
        let rung = async {
            if !more && !has_unread {
                tokio::select! {
                    () = rung.notified(), if may_act => {}
                    () = sleep(if may_act { BEAT } else { LOOK_EVERY }) => {}
                    _ = ends.changed() => is_over = true,
                }
            }
        };
        wire.step(rung).await?;
        if is_over || ends.has_changed().unwrap_or(true) {
            wire.close(&ToEdge::Bye).await;
            return Err(LinkError::Ours);
        }
        has_unread = true;
        for _ in 0..ITEMS_MAX {
            match wire.next()? {
                Some(ToLeader::Bye) => return Ok(()),
                Some(ToLeader::About(about)) => view.edge_is(number.number(), to_view(about)),
                Some(ToLeader::Publish { protocol, message }) => {
                    relay.send(Some(Route::to(number)), protocol, &message);
                    let (clients, bytes) = relay.receive(protocol, &message);
                    hub.publish(&clients, bytes);
                }
                Some(item) => {
                    let heard = kept
                        .on(number, |it| it.receive(item))
                        .ok_or(LinkError::Replaced)?;
                    heard.map_err(|why| LinkError::Malformed(why.to_owned()))?;
                }
                None => {
                    has_unread = false;
                    break;
                }
            }
        }
    }
}

/// Registers an edge that a successor of this daemon must wait for, until dropped.
struct Added<'a> {
    hub: &'a Hub,
    number: EdgeNumber,
}

impl<'a> Added<'a> {
    /// Returns once the database has recorded the edge.
    async fn new(hub: &'a Hub, number: EdgeNumber) -> Result<Self, LinkError> {
        let begun = Instant::now();
        let (at, added) = (hub.add_edge(number.number()), Self { hub, number });
        while !hub.knows_edges(at) {
            if begun.elapsed() > OPEN_MAX {
                return Err(LinkError::NotRecorded);
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(added)
    }
}

impl Drop for Added<'_> {
    fn drop(&mut self) {
        self.hub.remove_edge(self.number.number());
    }
}

/// Shows an edge to operators, until dropped.
struct Known<'a> {
    view: &'a View,
    number: EdgeNumber,
}

impl<'a> Known<'a> {
    fn new(view: &'a View, number: EdgeNumber, link: &str) -> Self {
        view.has_edge(number.number(), link);
        Self { view, number }
    }
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        self.view.lost_edge(self.number.number());
    }
}
