//! Keys, as operators write them: 40 characters of Z85 (RFC 32).

use std::fmt;
use std::str::FromStr;

use crypto_box::{PublicKey, SecretKey};

use super::{KEY_BYTES, z85};

/// A public key: of a client that may connect, or of the server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, derive_more::From)]
pub struct CurvePublicKey([u8; KEY_BYTES]);

/// The server's secret key. Its `Debug` text omits it.
#[derive(Clone)]
pub struct CurveSecretKey(SecretKey);

/// A text that is not a key. Does not contain the text, which may be a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a key is 40 characters of Z85, as `windlass curve-keypair` prints it")]
pub struct CurveKeyError;

fn decode(text: &str) -> Result<[u8; KEY_BYTES], CurveKeyError> {
    z85::decode(text)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or(CurveKeyError)
}

impl CurvePublicKey {
    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    pub(super) fn key(self) -> PublicKey {
        PublicKey::from(self.0)
    }
}

impl FromStr for CurvePublicKey {
    type Err = CurveKeyError;

    fn from_str(text: &str) -> Result<Self, CurveKeyError> {
        decode(text).map(Self)
    }
}

windlass_config::as_text!(CurvePublicKey);

impl fmt::Display for CurvePublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&z85::encode(&self.0))
    }
}

impl fmt::Debug for CurvePublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl CurveSecretKey {
    /// A key made of random bytes, which outsiders must not be able to guess.
    pub fn new(random: [u8; KEY_BYTES]) -> Self {
        Self(SecretKey::from(random))
    }

    /// The key that others need.
    pub fn public(&self) -> CurvePublicKey {
        CurvePublicKey(*self.0.public_key().as_bytes())
    }

    /// The key as text, for its owner.
    pub fn expose(&self) -> String {
        z85::encode(&self.0.to_bytes())
    }

    pub(super) const fn key(&self) -> &SecretKey {
        &self.0
    }
}

impl FromStr for CurveSecretKey {
    type Err = CurveKeyError;

    fn from_str(text: &str) -> Result<Self, CurveKeyError> {
        decode(text).map(Self::new)
    }
}

impl fmt::Debug for CurveSecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CurveSecretKey")
            .field("public", &self.public())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From libzmq's documentation of `zmq_curve`.
    const SERVER: [&str; 2] = [
        "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7",
        "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6",
    ];
    const CLIENT: [&str; 2] = [
        "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID",
        "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs",
    ];

    #[test]
    fn the_pairs_of_libzmqs_documentation() {
        for [public, secret] in [SERVER, CLIENT] {
            let key: CurveSecretKey = secret.parse().unwrap();
            assert_eq!(
                (key.public().to_string().as_str(), key.expose().as_str()),
                (public, secret)
            );
            assert_eq!(public.parse(), Ok(key.public()));
            assert!(!format!("{key:?}").contains(secret));
        }
    }

    #[test]
    fn other_texts_are_no_keys() {
        let long = [SERVER[0], "00000"].concat();
        for text in [
            "",
            "rq:rM",
            &SERVER[0][1..],
            &SERVER[0].replace('q', "~"),
            &long,
            "\u{e9}",
        ] {
            assert_eq!(text.parse::<CurvePublicKey>(), Err(CurveKeyError), "{text}");
        }
    }
}
