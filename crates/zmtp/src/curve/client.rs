//! The client's side: for commands that are clients, tests, fuzzing and load generators.

use bytes::{BufMut, Bytes, BytesMut};
use crypto_box::{PublicKey, SalsaBox, SecretKey};

use super::boxes::{self, Forged, TAG_BYTES};
use super::secured::{Direction, Secured};
use super::server::data_of;
use super::{
    COOKIE_BYTES, CurvePublicKey, CurveSecretKey, HELLO, INITIATE, KEY_BYTES, READY, VOUCH_BYTES,
    WELCOME,
};
use crate::peer::Close;
use crate::wire::{Flags, Header, Malformed, Metadata};

/// A client of one connection. Call [`CurveClient::hello`], [`CurveClient::welcomed`] and [`CurveClient::ready`] in
/// this order, after both greetings.
#[derive(Debug)]
pub struct CurveClient {
    own: CurveSecretKey,
    server: CurvePublicKey,
    transient: SecretKey,
    vouch_nonce: [u8; 16],
    secured: Option<Secured>,
}

impl CurveClient {
    /// A client of the server with this key. `transient` and `vouch_nonce` are random.
    pub fn new(
        own: CurveSecretKey,
        server: CurvePublicKey,
        transient: [u8; KEY_BYTES],
        vouch_nonce: [u8; 16],
    ) -> Self {
        Self {
            own,
            server,
            transient: transient.into(),
            vouch_nonce,
            secured: None,
        }
    }

    /// Appends HELLO.
    pub fn hello(&self, out: &mut BytesMut) {
        let number = 1_u64;
        Header::encode(Flags::COMMAND, 200, out);
        out.put_slice(HELLO);
        out.put_slice(&[1, 0]);
        out.put_bytes(0, 72);
        out.put_slice(self.transient.public_key().as_bytes());
        out.put_u64(number);
        let crypto = SalsaBox::new(&self.server.key(), &self.transient);
        boxes::put(
            &crypto,
            &boxes::numbered(b"CurveZMQHELLO---", number),
            &[&[0; 64]],
            out,
        );
    }

    /// Answers the body of WELCOME with INITIATE.
    ///
    /// # Errors
    /// The server does not have its key.
    pub fn welcomed(
        &mut self,
        body: &[u8],
        metadata: &Metadata,
        out: &mut BytesMut,
    ) -> Result<(), Close> {
        const CUT: Malformed = Malformed { what: "WELCOME" };
        let mut body = body.to_vec();
        let data = data_of(&mut body, WELCOME).ok_or(CUT)?;
        let (nonce, sealed) = data.split_first_chunk_mut().ok_or(CUT)?;
        let crypto = SalsaBox::new(&self.server.key(), &self.transient);
        let inside = boxes::open(&crypto, &boxes::random(b"WELCOME-", nonce), sealed);
        let inside = inside.map_err(|Forged| Close::Forged { what: "WELCOME" })?;
        let (server, cookie) = inside.split_first_chunk::<KEY_BYTES>().ok_or(CUT)?;
        let server = PublicKey::from(*server);
        let mut text = BytesMut::new();
        text.put_slice(self.own.public().bytes());
        text.put_slice(&self.vouch_nonce);
        let vouch = SalsaBox::new(&server, self.own.key());
        let transient = self.transient.public_key();
        let vouched: [&[u8]; 2] = [transient.as_bytes(), self.server.bytes()];
        boxes::put(
            &vouch,
            &boxes::random(b"VOUCH---", &self.vouch_nonce),
            &vouched,
            &mut text,
        );
        debug_assert_eq!(text.len(), KEY_BYTES + VOUCH_BYTES);
        metadata.encode(&mut text);
        Header::encode(
            Flags::COMMAND,
            INITIATE.len() + COOKIE_BYTES + 8 + TAG_BYTES + text.len(),
            out,
        );
        out.put_slice(INITIATE);
        out.put_slice(cookie);
        let mut secured = Secured::new(
            SalsaBox::new(&server, &self.transient),
            Direction::TO_SERVER,
            0,
        )
        .after(1);
        secured.put_numbered(b"CurveZMQINITIATE", &[&text], out);
        self.secured = Some(secured);
        Ok(())
    }

    /// Reads the body of READY. Returns the server's metadata.
    ///
    /// # Errors
    /// It is not from the server.
    pub fn ready(&mut self, body: &[u8]) -> Result<Metadata, Close> {
        const FORGED: Close = Close::Forged { what: "READY" };
        let mut body = body.to_vec();
        let data = data_of(&mut body, READY).ok_or(Malformed { what: "READY" })?;
        let secured = self.secured.as_mut().ok_or(FORGED)?;
        let text = secured
            .open_numbered(b"CurveZMQREADY---", data)
            .map_err(|Forged| FORGED)?;
        Ok(Metadata::parse(text)?)
    }

    /// Puts whole frames in boxes.
    pub fn seal(&mut self, frames: &[u8]) -> BytesMut {
        let mut out = BytesMut::new();
        if let Some(secured) = &mut self.secured {
            secured.seal(frames, &mut out);
        }
        out
    }

    /// Takes a frame out of the body of a `MESSAGE`.
    ///
    /// # Errors
    /// It is not from the server.
    pub fn open(&mut self, body: &[u8]) -> Result<Bytes, Close> {
        let secured = self
            .secured
            .as_mut()
            .ok_or(Close::Forged { what: "MESSAGE" })?;
        Ok(secured.open(BytesMut::from(body))?.freeze())
    }
}
