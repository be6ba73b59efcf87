//! The server's side of the handshake: a function for each command that a client sends.
//!
//! The cookie of RFC 26 lets a server forget a client between WELCOME and INITIATE. This server remembers its
//! connections, so the cookie is random and holds nothing.
//!
//! Spec: RFC 26, "The CurveZMQ Protocol".

use std::fmt;

use bytes::{BufMut, BytesMut};
use crypto_box::{PublicKey, SalsaBox, SecretKey};
use subtle::ConstantTimeEq as _;

use super::boxes::{self, Forged, TAG_BYTES};
use super::secured::{Direction, Secured};
use super::{
    COOKIE_BYTES, CurvePublicKey, CurveSecretKey, HELLO, INITIATE, KEY_BYTES, READY, VOUCH_BYTES,
    WELCOME,
};
use crate::peer::Close;
use crate::wire::{Flags, Header, Malformed, Metadata};

/// Bytes of HELLO behind its name: version, padding, the client's transient key, a nonce, and 64 zeros in a box.
const HELLO_BYTES: usize = 2 + 72 + KEY_BYTES + 8 + TAG_BYTES + 64;

/// The version of CurveZMQ.
const VERSION: &[u8] = &[1, 0];

/// What the connections of a listener share.
#[derive(Clone)]
pub struct CurveServer {
    secret: CurveSecretKey,
    /// Clients that may connect; all, if empty.
    clients: Vec<CurvePublicKey>,
    /// Makes bytes that outsiders cannot guess.
    random: fn() -> u64,
}

/// A client that has been welcomed.
pub(crate) struct Awaited {
    /// The server's transient key.
    secret: SecretKey,
    /// The client's transient key.
    client: [u8; KEY_BYTES],
    cookie: [u8; COOKIE_BYTES],
    /// The number in the client's last nonce.
    seen: u64,
}

impl CurveServer {
    /// A listener with this key. Without `clients`, every client that knows the server's public key may connect.
    pub const fn new(
        secret: CurveSecretKey,
        clients: Vec<CurvePublicKey>,
        random: fn() -> u64,
    ) -> Self {
        Self {
            secret,
            clients,
            random,
        }
    }

    /// The same listener for clients with these keys only.
    #[must_use]
    pub fn of(&self, clients: Vec<CurvePublicKey>) -> Self {
        Self {
            clients,
            ..self.clone()
        }
    }

    /// The same listener for the clients of another one, too.
    pub(crate) fn and_clients_of(&self, other: &Self) -> Self {
        let mut both = self.clone();
        if both.knows_clients() {
            both.clients.extend_from_slice(&other.clients);
        }
        both
    }

    /// Clients that may connect; all, if empty.
    pub(crate) fn clients(&self) -> &[CurvePublicKey] {
        &self.clients
    }

    /// Whether only known clients may connect.
    pub const fn knows_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(
                (self.random)()
                    .to_ne_bytes()
                    .get(..chunk.len())
                    .unwrap_or_default(),
            );
        }
        bytes
    }

    /// Answers HELLO, `data` behind its name, with WELCOME.
    pub(crate) fn hello(&self, data: &mut [u8], out: &mut BytesMut) -> Result<Awaited, Close> {
        let whole =
            <&mut [u8; HELLO_BYTES]>::try_from(data).map_err(|_| Malformed { what: "HELLO" })?;
        let (version, rest) = whole.split_at_mut(VERSION.len());
        let (client, rest) = rest
            .split_at_mut(72)
            .1
            .split_first_chunk_mut()
            .ok_or(Malformed { what: "HELLO" })?;
        let (number, sealed) = rest
            .split_first_chunk_mut()
            .ok_or(Malformed { what: "HELLO" })?;
        if version != VERSION {
            return Err(Malformed { what: "HELLO" }.into());
        }
        let (client, seen) = (*client, u64::from_be_bytes(*number));
        let crypto = SalsaBox::new(&PublicKey::from(client), self.secret.key());
        boxes::open(&crypto, &boxes::numbered(b"CurveZMQHELLO---", seen), sealed)
            .map_err(|Forged| Close::Forged { what: "HELLO" })?;
        let secret = SecretKey::from(self.random_bytes());
        let (cookie, nonce) = (self.random_bytes(), self.random_bytes());
        let public = secret.public_key();
        Header::encode(
            Flags::COMMAND,
            WELCOME.len() + 16 + TAG_BYTES + KEY_BYTES + COOKIE_BYTES,
            out,
        );
        out.put_slice(WELCOME);
        out.put_slice(&nonce);
        boxes::put(
            &crypto,
            &boxes::random(b"WELCOME-", &nonce),
            &[public.as_bytes(), &cookie],
            out,
        );
        Ok(Awaited {
            secret,
            client,
            cookie,
            seen,
        })
    }

    /// Reads INITIATE, `data` behind its name. Returns the client's key and metadata, and the connection's keys.
    pub(crate) fn initiate(
        &self,
        awaited: &Awaited,
        data: &mut [u8],
    ) -> Result<(CurvePublicKey, Metadata, Secured), Close> {
        const CUT: Malformed = Malformed { what: "INITIATE" };
        const FORGED: Close = Close::Forged { what: "INITIATE" };
        let (cookie, rest) = data.split_first_chunk_mut::<COOKIE_BYTES>().ok_or(CUT)?;
        let (number, sealed) = rest.split_first_chunk_mut().ok_or(CUT)?;
        let number = u64::from_be_bytes(*number);
        if !bool::from(cookie.ct_eq(&awaited.cookie)) || number <= awaited.seen {
            return Err(FORGED);
        }
        let crypto = SalsaBox::new(&PublicKey::from(awaited.client), &awaited.secret);
        let inside = boxes::open(
            &crypto,
            &boxes::numbered(b"CurveZMQINITIATE", number),
            sealed,
        )
        .map_err(|Forged| FORGED)?;
        let (client, rest) = inside.split_first_chunk_mut::<KEY_BYTES>().ok_or(CUT)?;
        let (vouch, metadata) = rest.split_first_chunk_mut::<VOUCH_BYTES>().ok_or(CUT)?;
        let client = CurvePublicKey::from(*client);
        self.check_vouch(awaited, client, vouch)
            .map_err(|Forged| FORGED)?;
        if self.knows_clients() && !self.clients.contains(&client) {
            return Err(Close::Credentials);
        }
        let metadata = Metadata::parse(metadata)?;
        Ok((
            client,
            metadata,
            Secured::new(crypto, Direction::TO_CLIENT, number),
        ))
    }

    /// The client's own key vouches that its transient key is for this server.
    fn check_vouch(
        &self,
        awaited: &Awaited,
        client: CurvePublicKey,
        vouch: &mut [u8; VOUCH_BYTES],
    ) -> Result<(), Forged> {
        let (nonce, sealed) = vouch.split_first_chunk_mut().ok_or(Forged)?;
        let crypto = SalsaBox::new(&client.key(), &awaited.secret);
        let inside = boxes::open(&crypto, &boxes::random(b"VOUCH---", nonce), sealed)?;
        let (transient, server) = inside.split_at_checked(KEY_BYTES).ok_or(Forged)?;
        let fits = transient.ct_eq(&awaited.client) & server.ct_eq(self.secret.public().bytes());
        bool::from(fits).then_some(()).ok_or(Forged)
    }
}

impl Secured {
    /// Answers INITIATE with the server's metadata.
    pub(crate) fn ready(&mut self, metadata: &Metadata, out: &mut BytesMut) {
        let mut text = BytesMut::new();
        metadata.encode(&mut text);
        Header::encode(
            Flags::COMMAND,
            READY.len() + 8 + TAG_BYTES + text.len(),
            out,
        );
        out.put_slice(READY);
        self.put_numbered(b"CurveZMQREADY---", &[&text], out);
    }
}

/// The data of a command with this name.
pub(super) fn data_of<'a>(body: &'a mut [u8], name: &[u8]) -> Option<&'a mut [u8]> {
    if body.starts_with(name) {
        body.get_mut(name.len()..)
    } else {
        None
    }
}

/// The data of a HELLO.
pub(crate) fn hello(body: &mut [u8]) -> Option<&mut [u8]> {
    data_of(body, HELLO)
}

/// The data of an INITIATE.
pub(crate) fn initiate(body: &mut [u8]) -> Option<&mut [u8]> {
    data_of(body, INITIATE)
}

impl PartialEq for CurveServer {
    fn eq(&self, other: &Self) -> bool {
        self.secret.public() == other.secret.public() && self.clients == other.clients
    }
}

impl Eq for CurveServer {}

impl fmt::Debug for CurveServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CurveServer")
            .field("secret", &self.secret)
            .field("clients", &self.clients)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaited").finish_non_exhaustive()
    }
}
