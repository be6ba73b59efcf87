//! Boxes: bytes that only the holders of two keys can write and read, and the nonces that make each box another one.
//!
//! Spec: RFC 26, "Cryptographic Boxes"; NaCl's `crypto_box`, with the tag in front.

use bytes::{BufMut, BytesMut};
use crypto_box::SalsaBox;
use crypto_box::aead::AeadInPlace as _;

/// Bytes of the tag in front of what is in a box.
pub(super) const TAG_BYTES: usize = 16;

const NONCE_BYTES: usize = 24;

/// A number that no two boxes of two keys share.
pub(super) type Nonce = [u8; NONCE_BYTES];

/// A box that was not made with these keys and this nonce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Forged;

/// A prefix, and a number that counts up.
pub(super) fn numbered(prefix: &[u8; 16], number: u64) -> Nonce {
    joined(prefix, &number.to_be_bytes())
}

/// A prefix, and random bytes.
pub(super) fn random(prefix: &[u8; 8], bytes: &[u8; 16]) -> Nonce {
    joined(prefix, bytes)
}

fn joined(prefix: &[u8], rest: &[u8]) -> Nonce {
    let mut nonce = [0; NONCE_BYTES];
    nonce
        .iter_mut()
        .zip(prefix.iter().chain(rest))
        .for_each(|(to, from)| *to = *from);
    nonce
}

/// Appends a box with this text in it.
pub(super) fn put(crypto: &SalsaBox, nonce: &Nonce, text: &[&[u8]], out: &mut BytesMut) {
    let at = out.len();
    out.put_bytes(0, TAG_BYTES);
    text.iter().for_each(|piece| out.put_slice(piece));
    let Some((tag, text)) = out
        .get_mut(at..)
        .and_then(<[u8]>::split_first_chunk_mut::<TAG_BYTES>)
    else {
        return;
    };
    match crypto.encrypt_in_place_detached(nonce.into(), b"", text) {
        Ok(made) => *tag = made.into(),
        // Only associated data can fail, and there is none. Unencrypted text must not leave.
        Err(_) => text.fill(0),
    }
}

/// Opens a box in its place, and returns what is in it.
pub(super) fn open<'a>(
    crypto: &SalsaBox,
    nonce: &Nonce,
    sealed: &'a mut [u8],
) -> Result<&'a mut [u8], Forged> {
    let (tag, text) = sealed.split_first_chunk_mut::<TAG_BYTES>().ok_or(Forged)?;
    crypto
        .decrypt_in_place_detached(nonce.into(), b"", text, (&*tag).into())
        .map_err(|_| Forged)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use crypto_box::{PublicKey, SecretKey};

    use super::*;

    /// NaCl's own test, `tests/box.c`.
    const TEXT: &str = "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f4\
        1db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc76897040\
        e082f937763848645e0705";
    const BOX: &str = "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b\
        4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de\
        56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5";

    fn key(text: &str) -> [u8; 32] {
        hex::decode(text).unwrap().try_into().unwrap()
    }

    #[test]
    fn the_box_of_nacls_test() {
        let alice = SecretKey::from(key(
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
        ));
        let bob = PublicKey::from(key(
            "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
        ));
        let nonce = hex::decode("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
            .unwrap()
            .try_into()
            .unwrap();
        let (crypto, text, mut sealed) = (
            SalsaBox::new(&bob, &alice),
            hex::decode(TEXT).unwrap(),
            BytesMut::new(),
        );
        put(&crypto, &nonce, &[&text[..7], &text[7..]], &mut sealed);
        assert_eq!(hex::encode(&sealed), BOX);
        assert_eq!(
            open(&crypto, &nonce, &mut sealed.clone()),
            Ok(&mut text.clone()[..])
        );
        for at in [0, TAG_BYTES - 1, TAG_BYTES, sealed.len() - 1] {
            let mut forged = sealed.clone();
            forged[at] ^= 1;
            assert_eq!(open(&crypto, &nonce, &mut forged), Err(Forged), "byte {at}");
        }
        assert_eq!(
            open(&crypto, &numbered(b"CurveZMQHELLO---", 1), &mut sealed),
            Err(Forged),
            "another nonce"
        );
        assert_eq!(
            open(&crypto, &nonce, &mut [0; TAG_BYTES - 1]),
            Err(Forged),
            "cut short"
        );
    }

    #[test]
    fn nonces() {
        assert_eq!(
            &numbered(b"CurveZMQMESSAGEC", 258),
            b"CurveZMQMESSAGEC\0\0\0\0\0\0\x01\x02"
        );
        assert_eq!(
            &random(b"WELCOME-", b"0123456789abcdef"),
            b"WELCOME-0123456789abcdef"
        );
    }
}
