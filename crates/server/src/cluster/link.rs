//! The link's socket, on both sides: frames in and out, TLS, and silence.
//!
//! While one batch is written the next one gathers. A leader never waits for an edge: an edge that does not read is cut
//! off.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use windlass_link::{Ask, Decoder, Edge as EdgeNumber, Encoder, FRAME_BYTES_MAX, Hello, Rejection, Say, Welcome};

use super::edge::Edge;
use super::leader::EdgeClients;
use super::relay::{Relay, Way};
use super::tls::Tls;
use super::view::View;
use crate::clock;
use crate::hub::Hub;
use windlass_store::Holder;

#[cfg(test)]
mod numbers;
#[cfg(test)]
mod served;

/// How often a leader says something, if only the time.
pub(super) const BEAT: Duration = Duration::from_millis(200);

/// An edge that hears nothing for this long looks for a leader again.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(2);

/// How long a connection and its greeting may take.
pub(super) const OPEN_MAX: Duration = Duration::from_secs(2);

/// Bytes that may wait for an edge that does not read.
const UNSENT_MAX: usize = 256 << 20;

/// How long the other machine may leave bytes unacknowledged.
pub(super) const UNANSWERED_MAX: Duration = Duration::from_secs(5);

/// Items that a leader takes of one edge before it visits the engine.
const ITEMS_MAX: usize = 4 << 10;

/// Edges of one epoch.
const LINKS_MAX: u32 = 1 << 10;

/// How often a leader that may not act looks whether it may again.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What both sides of a link must agree on, and how they encrypt it.
#[derive(Debug)]
pub(super) struct Terms {
    /// The name of the broker that all daemons form.
    pub(super) cluster: Box<str>,
    /// This daemon's name, for people.
    pub(super) name: Box<str>,
    /// A digest of the settings that must be the same.
    pub(super) settings: [u8; 32],
    pub(super) tls: Option<Tls>,
    /// The bytes that may wait for one client.
    pub(super) outbound_bytes_max: usize,
}

/// Why a link has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("closed by the other daemon")]
    Closed,
    #[error("silent for {} s", SILENCE_MAX.as_secs())]
    Silent,
    #[error("no greeting within {} s", OPEN_MAX.as_secs())]
    Slow,
    #[error("does not read what it is sent")]
    DoesNotRead,
    #[error("more than {LINKS_MAX} daemons are linked")]
    TooMany,
    #[error("a daemon of the broker {0:?}")]
    Stranger(Box<str>),
    #[error("the leader refuses this daemon: {0}")]
    Refused(Rejection),
    #[error("not a daemon's link: {0}")]
    Malformed(String),
}

/// A socket, encrypted or not.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Socket for T {}

/// A link that reads `I` and writes `O`.
struct Wire<I, O> {
    socket: Box<dyn Socket>,
    decoder: Decoder<I>,
    encoder: Encoder<O>,
    out: Vec<u8>,
    /// Bytes of `out` that the socket has taken.
    written: usize,
}

impl<I: DeserializeOwned, O: Serialize> Wire<I, O> {
    fn new(socket: Box<dyn Socket>) -> Self {
        let (decoder, encoder) = (Decoder::new(FRAME_BYTES_MAX), Encoder::new(FRAME_BYTES_MAX));
        Self { socket, decoder, encoder, out: Vec::new(), written: 0 }
    }

    /// Bytes that the socket has not taken.
    fn unsent(&self) -> usize {
        self.encoder.len() + self.out.len() - self.written
    }

    /// The next item that has arrived.
    fn next(&mut self) -> Result<Option<I>, LinkError> {
        self.decoder.next().map_err(|error| LinkError::Malformed(error.to_string()))
    }

    /// Writes what there is to write, until something has arrived or `rung` is ready. Returns whether something has
    /// arrived.
    async fn step(&mut self, rung: impl Future<Output = ()>) -> Result<bool, LinkError> {
        let mut rung = pin!(rung);
        let Self { socket, decoder, encoder, out, written } = self;
        let (mut reader, mut writer) = tokio::io::split(socket);
        loop {
            if out.is_empty() {
                encoder.take_into(out);
            }
            let rest = out.get(*written..).unwrap_or_default();
            tokio::select! {
                read = reader.read_buf(decoder.input()) => {
                    return if read? == 0 { Err(LinkError::Closed) } else { Ok(true) };
                }
                wrote = writer.write(rest), if !rest.is_empty() => {
                    *written += wrote?;
                    if *written == out.len() {
                        out.clear();
                        *written = 0;
                        writer.flush().await?;
                    }
                }
                () = &mut rung => return Ok(false),
            }
        }
    }
}

// ---- the leader's side ----------------------------------------------------------------------------------------------

/// What a leader needs for its edges.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) hub: Arc<Hub>,
    pub(super) terms: Arc<Terms>,
    pub(super) view: Arc<View>,
    pub(super) relay: Arc<Relay>,
    /// Edges that have got a number.
    pub(super) numbered: AtomicU32,
}

impl Leading {
    /// A number for an edge, which no other edge has that is linked now.
    fn number(&self) -> Option<EdgeNumber> {
        let next = || number(self.hub.epoch(), self.numbered.fetch_add(1, Ordering::Relaxed));
        (0..LINKS_MAX).find_map(|_| next().filter(|number| !self.view.is_linked(number.number())))
    }
}

/// The number of an edge. No two edges have one within 2^14 epochs, and 2^10 links of an epoch.
pub(super) fn number(epoch: u64, link: u32) -> Option<EdgeNumber> {
    let epoch = u32::try_from(epoch % (u64::from(EdgeNumber::MAX) / u64::from(LINKS_MAX))).ok()?;
    EdgeNumber::new(epoch * LINKS_MAX + link % LINKS_MAX)
}

/// How a leader accepts an edge. An edge of an earlier leader keeps its number, and with it its clients; another one
/// gets a new number. `None`: there is none.
pub(super) fn welcome(
    hello: &Hello,
    new: impl FnOnce() -> Option<EdgeNumber>,
    hub: &Hub,
    settings: [u8; 32],
) -> Option<Welcome> {
    let epoch = hub.epoch();
    let earlier = hello.known.filter(|known| known.epoch < epoch);
    Some(Welcome {
        epoch,
        edge: earlier.map(|known| known.edge).or_else(new)?,
        reaches: earlier.filter(|known| known.epoch + 1 == epoch).map_or(0, |_| hub.recovered()),
        durable: hub.durable(),
        same_settings: hello.settings == settings,
        clock: clock::read(),
        frame_bytes_max: FRAME_BYTES_MAX as u64,
    })
}

/// The link of an edge that has greeted.
pub(super) struct Opened {
    wire: Wire<Ask, Say>,
    hello: Hello,
}

/// Shakes hands, and hears the edge's greeting.
///
/// # Errors
///
/// It is no daemon of this broker: it has no certificate of the authority, another broker's name, or no greeting.
pub(super) async fn accept(socket: TcpStream, leading: &Leading) -> Result<Opened, LinkError> {
    let terms = &leading.terms;
    let open = async {
        let socket = match &terms.tls {
            Some(tls) => tls.accept(socket).await?,
            None => Box::new(socket) as Box<dyn Socket>,
        };
        let mut wire = Wire::<Ask, Say>::new(socket);
        let hello = loop {
            match wire.next()? {
                Some(Ask::Hello(hello)) => break hello,
                Some(_) => return Err(LinkError::Malformed("it does not begin with a greeting".to_owned())),
                None => wire.step(std::future::pending()).await?,
            };
        };
        Ok((wire, hello))
    };
    let (mut wire, hello) = timeout(OPEN_MAX, open).await.map_err(|_| LinkError::Slow)??;
    if hello.cluster != terms.cluster {
        say(&mut wire, &Say::Refused(Rejection::Cluster(terms.cluster.clone())))?;
        wire.step(sleep(BEAT)).await?;
        return Err(LinkError::Stranger(hello.cluster));
    }
    Ok(Opened { wire, hello: *hello })
}

/// Serves one edge until its link ends.
pub(super) async fn serve(opened: Opened, leading: &Leading) -> Result<(), LinkError> {
    let Leading { hub, terms, view, relay, .. } = leading;
    let Opened { mut wire, hello } = opened;
    let welcome = welcome(&hello, || leading.number(), hub, terms.settings).ok_or(LinkError::TooMany)?;
    let (name, number) = (&*hello.name, welcome.edge);
    tracing::info!(edge = name, number = number.number(), "an edge has linked");
    if !welcome.same_settings {
        tracing::error!(edge = name, "the edge's limits, queues or schedules differ from this daemon's, which count");
    }
    say(&mut wire, &Say::Welcome(Box::new(welcome)))?;
    let _known = Known::new(view, number, name);
    let rung = Arc::new(Notify::new());
    let mut clients = EdgeClients::new(Arc::clone(hub), number, terms.outbound_bytes_max, Arc::clone(&rung));
    let published = relay.open(Way::to(number), Arc::clone(&rung));
    let (mut says, mut has_unread) = (Vec::new(), false);
    loop {
        let more = clients.turn(&mut says);
        // What was decided while the lease held may leave only while it holds.
        while !hub.may_act() {
            sleep(LOOK_EVERY).await;
        }
        for item in says.drain(..) {
            say(&mut wire, &item)?;
        }
        for (protocol, message) in published.take() {
            say(&mut wire, &Say::Published { protocol, message })?;
        }
        if wire.unsent() > UNSENT_MAX {
            return Err(LinkError::DoesNotRead);
        }
        let rung = async {
            if !more && !has_unread {
                tokio::select! {
                    () = rung.notified() => {}
                    () = sleep(BEAT) => {}
                }
            }
        };
        wire.step(rung).await?;
        has_unread = true;
        for _ in 0..ITEMS_MAX {
            match wire.next()? {
                Some(Ask::Bye) => return Ok(()),
                Some(Ask::Publish { protocol, message }) => {
                    relay.send(Some(Way::to(number)), protocol, &message);
                    let (clients, bytes) = relay.receive(protocol, &message);
                    hub.publish(&clients, bytes);
                }
                Some(ask) => clients.hear(ask).map_err(|why| LinkError::Malformed(why.to_owned()))?,
                None => {
                    has_unread = false;
                    break;
                }
            }
        }
    }
}

/// An edge that operators see for as long as this lives.
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

fn say(wire: &mut Wire<Ask, Say>, say: &Say) -> Result<(), LinkError> {
    wire.encoder.push(say).map_err(|error| LinkError::Malformed(error.to_string()))
}

// ---- the edge's side ------------------------------------------------------------------------------------------------

/// Serves this daemon's clients over a link to the leader, until the link ends. Returns why it has ended.
pub(super) async fn follow(edge: &Edge, leader: &Holder, terms: &Terms, (view, relay): (&View, &Relay)) -> LinkError {
    let Err(why) = try_follow(edge, leader, terms, (view, relay)).await;
    edge.close_way();
    why
}

async fn try_follow(
    edge: &Edge,
    leader: &Holder,
    terms: &Terms,
    (view, relay): (&View, &Relay),
) -> Result<Infallible, LinkError> {
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
        let mut wire = Wire::<Say, Ask>::new(socket);
        ask(&mut wire, &Ask::Hello(Box::new(hello)))?;
        loop {
            match wire.next()? {
                Some(Say::Welcome(welcome)) => return Ok((wire, welcome)),
                Some(Say::Refused(why)) => return Err(LinkError::Refused(why)),
                Some(_) => return Err(LinkError::Malformed("it does not begin with a greeting".to_owned())),
                None => wire.step(std::future::pending()).await?,
            };
        }
    };
    let (mut wire, welcome) = timeout(OPEN_MAX, open).await.map_err(|_| LinkError::Slow)??;
    let (epoch, number) = (welcome.epoch, welcome.edge.number());
    tracing::info!(leader = address, epoch, number, "linked to the leader");
    if !welcome.same_settings {
        tracing::error!("this daemon's limits, queues or schedules differ from the leader's, which count");
    }
    edge.open_way(&welcome);
    view.follows(leader);
    let (mut asks, mut says, mut heard_at) = (Vec::new(), Vec::new(), Instant::now());
    let rung = Arc::new(Notify::new());
    let published = relay.open(Way::Leader, Arc::clone(&rung));
    loop {
        while let Some(say) = wire.next()? {
            if matches!(say, Say::Bye) {
                return Err(LinkError::Closed);
            }
            if let Say::Published { protocol, message } = say {
                let (clients, bytes) = relay.receive(protocol, &message);
                edge.publish_to(&clients, bytes);
                continue;
            }
            // The last item of what belongs together.
            let ends = matches!(say, Say::Clock(_));
            says.push(say);
            if ends {
                edge.hear(says.drain(..));
            }
        }
        edge.take_asks(&mut asks);
        for item in asks.drain(..) {
            ask(&mut wire, &item)?;
        }
        for (protocol, message) in published.take() {
            ask(&mut wire, &Ask::Publish { protocol, message })?;
        }
        let rung = async {
            tokio::select! {
                () = edge.to_send.notified() => {}
                () = rung.notified() => {}
                () = sleep(BEAT) => {}
            }
        };
        if wire.step(rung).await? {
            heard_at = Instant::now();
        } else if heard_at.elapsed() > SILENCE_MAX {
            return Err(LinkError::Silent);
        }
    }
}

fn ask(wire: &mut Wire<Say, Ask>, ask: &Ask) -> Result<(), LinkError> {
    wire.encoder.push(ask).map_err(|error| LinkError::Malformed(error.to_string()))
}

/// Small pieces leave at once, and a machine that is gone is noticed.
pub(super) fn set_up(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    SockRef::from(socket).set_tcp_user_timeout(Some(UNANSWERED_MAX))
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn bytes_that_the_socket_has_not_taken_are_unsent() {
        const TAKES_BYTES: usize = 16;
        let (ours, _theirs) = tokio::io::duplex(TAKES_BYTES);
        let mut wire = Wire::<Ask, Say>::new(Box::new(ours));
        let more = |wire: &mut Wire<Ask, Say>| {
            let text = Box::from("a cluster's name that does not fit into the socket");
            say(wire, &Say::Refused(Rejection::Cluster(text))).unwrap();
            wire.encoder.len()
        };
        let first = more(&mut wire);
        assert_eq!(wire.unsent(), first);
        let step = pin!(wire.step(std::future::pending())).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!step, "the socket is full");
        assert_eq!(wire.unsent(), first - TAKES_BYTES);
        let second = more(&mut wire);
        assert_eq!(wire.unsent(), first - TAKES_BYTES + second);
    }

    #[test]
    fn a_links_socket_sends_small_pieces_at_once_and_notices_that_a_machine_is_gone() {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        runtime.block_on(async {
            let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            set_up(&socket).unwrap();
            assert!(socket.nodelay().unwrap());
            assert_eq!(SockRef::from(&socket).tcp_user_timeout().unwrap(), Some(UNANSWERED_MAX));
        });
    }

    #[test]
    fn links_of_one_epoch_and_of_the_next_have_different_numbers() {
        let of = |epoch| (1..100).map(move |link| number(epoch, link));
        let numbers: std::collections::BTreeSet<_> =
            (1..50).flat_map(of).map(|it| it.map(EdgeNumber::number)).collect();
        assert_eq!(numbers.len(), 49 * 99);
        assert!(numbers.iter().all(Option::is_some), "{numbers:?}");
    }
}
