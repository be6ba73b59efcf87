//! ZMTP with a login: PLAIN or CURVE in front of a peer that knows neither.
//!
//! The guard shakes hands with the broker, and then shows our [`windlass_zmtp::Peer`] a broker without a mechanism. With
//! CURVE it puts the peer's frames into boxes, and takes the broker's out of theirs.
//!
//! Spec: RFC 37, "Framing"; RFC 24 (PLAIN); RFC 26 (CURVE).

use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use windlass_config::{Failure, Secret};
use windlass_zmtp::curve::{CurveClient, CurvePublicKey, CurveSecretKey};
use windlass_zmtp::wire::{Command, GREETING_BYTES, Greeting, Header, Metadata, SocketType};

use super::link::{JOB_BYTES_MAX, Link, Trouble, random, within};

/// Bytes by which a frame in a box may be longer than the longest frame.
const BOX_BYTES_MAX: u64 = 64;

/// How long a broker may take for its next step of the handshake.
const STEP: Duration = Duration::from_secs(10);

/// What a side of EventMQ demands.
#[derive(Clone, Debug)]
pub(super) enum Login {
    /// A user and a password, which travel in the clear.
    Plain { user: String, password: Secret },
    /// Keys: the broker's public one, and our secret one as text, if the broker knows its clients by their keys.
    Curve {
        broker: CurvePublicKey,
        own: Option<Secret>,
    },
}

impl Login {
    /// CURVE with the broker of this key, and with the secret key in this file, whose blanks at either end do not count.
    ///
    /// # Errors
    ///
    /// [`Failure::Source`]: the file has no key.
    pub(super) fn curve(broker: CurvePublicKey, own: Option<&Path>) -> Result<Self, Failure> {
        let Some(file) = own else {
            return Ok(Self::Curve { broker, own: None });
        };
        let source = |reason: String| Failure::unusable(file, reason);
        let text = fs::read_to_string(file)
            .map_err(|why| source(format!("cannot read the key: {why}")))?;
        let text = text.trim().to_owned();
        text.parse::<CurveSecretKey>()
            .map_err(|why| source(why.to_string()))?;
        Ok(Self::Curve {
            broker,
            own: Some(text.into()),
        })
    }

    const fn mechanism(&self) -> &'static [u8] {
        match self {
            Self::Plain { .. } => b"PLAIN",
            Self::Curve { .. } => b"CURVE",
        }
    }
}

/// What stands between a connection and our peer.
#[derive(Debug)]
pub(super) struct Guard {
    /// Present with CURVE.
    curve: Option<CurveClient>,
    /// What our peer reads.
    plain: BytesMut,
}

impl Guard {
    /// Shakes hands as a DEALER of this identity.
    pub(super) async fn open(
        login: &Login,
        identity: Bytes,
        link: &mut Link,
    ) -> Result<Self, Trouble> {
        let ours = Greeting::new(login.mechanism(), false);
        let mut out = BytesMut::new();
        ours.encode(&mut out);
        link.send(&out).await?;
        let theirs = greeting(link).await?;
        if theirs.mechanism != ours.mechanism {
            return Err(demanded(&theirs.mechanism_text(), &ours.mechanism_text()));
        }
        let metadata = Metadata {
            socket_type: Some(SocketType::Dealer),
            identity,
            others: Vec::new(),
        };
        let (curve, metadata) = match login {
            Login::Plain { user, password } => {
                (None, log_in(user, password.expose(), metadata, link).await?)
            }
            Login::Curve { broker, own } => {
                let mut client =
                    CurveClient::new(secret_key(own.as_ref())?, *broker, random()?, random()?);
                let metadata = exchange_keys(&mut client, &metadata, link).await?;
                (Some(client), metadata)
            }
        };
        let mut plain = BytesMut::new();
        Greeting::new(b"NULL", false).encode(&mut plain);
        Command::Ready(metadata).encode(&mut plain);
        Ok(Self { curve, plain })
    }

    /// The bytes to send in place of these frames of our peer, which are whole.
    pub(super) fn seal(&mut self, frames: BytesMut) -> BytesMut {
        match &mut self.curve {
            Some(curve) => curve.seal(&frames),
            None => frames,
        }
    }

    /// Takes what the broker has sent out of its boxes. Returns what our peer reads, always the same buffer.
    pub(super) fn unseal(&mut self, input: &mut BytesMut) -> Result<&mut BytesMut, Trouble> {
        match &mut self.curve {
            Some(curve) => {
                while let Some(body) = next_frame(input)? {
                    let frame = curve.open(&body).map_err(Trouble::lost)?;
                    self.plain.extend_from_slice(&frame);
                }
            }
            None => self.plain.unsplit(input.split()),
        }
        Ok(&mut self.plain)
    }
}

/// A broker that demands another login than the bridge has.
pub(super) fn demanded(theirs: &str, ours: &str) -> Trouble {
    Trouble::Fatal(format!(
        "the broker demands {theirs}, and the bridge is told of {ours}"
    ))
}

async fn log_in(
    user: &str,
    password: &str,
    own: Metadata,
    link: &mut Link,
) -> Result<Metadata, Trouble> {
    let mut out = BytesMut::new();
    Command::Hello {
        user: user.as_bytes(),
        password: password.as_bytes(),
    }
    .encode(&mut out);
    link.send(&out).await?;
    let body = command(link).await?;
    let Ok(Command::Welcome) = Command::parse(&body) else {
        return Err(Trouble::strange(&body));
    };
    out.clear();
    Command::Initiate(own).encode(&mut out);
    link.send(&out).await?;
    let body = command(link).await?;
    match Command::parse(&body) {
        Ok(Command::Ready(metadata)) => Ok(metadata),
        _ => Err(Trouble::strange(&body)),
    }
}

async fn exchange_keys(
    client: &mut CurveClient,
    own: &Metadata,
    link: &mut Link,
) -> Result<Metadata, Trouble> {
    let fatal = |why: windlass_zmtp::Close| Trouble::Fatal(format!("CURVE: {why}"));
    let mut out = BytesMut::new();
    client.hello(&mut out);
    link.send(&out).await?;
    let welcome = command(link).await?;
    out.clear();
    client.welcomed(&welcome, own, &mut out).map_err(fatal)?;
    link.send(&out).await?;
    client.ready(&command(link).await?).map_err(fatal)
}

fn secret_key(own: Option<&Secret>) -> Result<CurveSecretKey, Trouble> {
    match own {
        Some(text) => text
            .expose()
            .parse()
            .map_err(|why| Trouble::Fatal(format!("the secret key: {why}"))),
        None => Ok(CurveSecretKey::new(random()?)),
    }
}

async fn greeting(link: &mut Link) -> Result<Greeting, Trouble> {
    within(STEP, "the greeting", async {
        loop {
            Greeting::revision(&link.input).map_err(|why| Trouble::Fatal(why.to_string()))?;
            if let Some(greeting) = Greeting::decode(&link.input) {
                drop(link.input.split_to(GREETING_BYTES));
                return Ok(greeting);
            }
            link.more().await?;
        }
    })
    .await
}

/// The body of the next command. A broker's complaint is an error.
async fn command(link: &mut Link) -> Result<BytesMut, Trouble> {
    let body = within(STEP, "the handshake", async {
        loop {
            if let Some(body) = next_frame(&mut link.input)? {
                return Ok(body);
            }
            link.more().await?;
        }
    });
    let body = body.await?;
    match Command::parse(&body) {
        Ok(Command::Error(reason)) => Err(Trouble::Fatal(format!(
            "the broker refuses: {}",
            reason.escape_ascii()
        ))),
        _ => Ok(body),
    }
}

/// The body of the frame at the front, once all of it has come.
fn next_frame(input: &mut BytesMut) -> Result<Option<BytesMut>, Trouble> {
    let Some(Header {
        body_bytes,
        header_bytes,
        ..
    }) = Header::decode(input).map_err(Trouble::lost)?
    else {
        return Ok(None);
    };
    let body_bytes = usize::try_from(body_bytes)
        .ok()
        .filter(|bytes| *bytes as u64 <= JOB_BYTES_MAX as u64 + BOX_BYTES_MAX);
    let Some(body_bytes) = body_bytes else {
        return Err(Trouble::lost("a frame of more than 64 MiB"));
    };
    if input.len() < header_bytes + body_bytes {
        return Ok(None);
    }
    drop(input.split_to(header_bytes));
    Ok(Some(input.split_to(body_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_whole_and_are_bounded() {
        let mut all = BytesMut::new();
        Command::Welcome.encode(&mut all);
        for cut in 0..all.len() {
            let mut input = BytesMut::from(&all[..cut]);
            assert!(matches!(next_frame(&mut input), Ok(None)), "{cut}");
            assert_eq!(input, all[..cut], "nothing is taken");
        }
        assert_eq!(&next_frame(&mut all).unwrap().unwrap()[..], b"\x07WELCOME");
        assert!(all.is_empty());
        let mut large = BytesMut::from(&[2, 0, 0, 0, 1, 0, 0, 0, 0][..]);
        assert!(next_frame(&mut large).is_err());
    }

    #[test]
    fn a_key_is_read_from_its_file_and_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let secret = CurveSecretKey::new([7; 32]);
        fs::write(&file, format!("{}\n", secret.expose())).unwrap();
        let login = Login::curve(secret.public(), Some(&file)).unwrap();
        assert!(!format!("{login:?}").contains(&secret.expose()));
        fs::write(&file, "no key").unwrap();
        assert!(Login::curve(secret.public(), Some(&file)).is_err());
    }
}
