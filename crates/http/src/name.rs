//! Names of queues, jobs, keys and workers as text. The engine's names are bytes.
//!
//! A name is written unchanged if it is UTF-8, else as `base64:` and its bytes in the URL-safe alphabet
//! without padding. A name that starts with `base64:` is written in that form too, so that every name has
//! exactly one text.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use utoipa::ToSchema;

const PREFIX: &str = "base64:";

/// A name in an answer or a request.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String)]
pub(crate) struct Name(pub(crate) Bytes);

/// A text that is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what follows `{PREFIX}` must be base64 in the URL-safe alphabet, without padding")]
pub(crate) struct NameError;

impl Name {
    /// The name; `None` if it is empty.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self(Bytes::copy_from_slice(bytes)))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.starts_with(PREFIX) => f.write_str(text),
            Ok(_) | Err(_) => write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(&self.0)),
        }
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.strip_prefix(PREFIX) {
            Some(encoded) => Ok(Self(
                URL_SAFE_NO_PAD
                    .decode(encoded)
                    .map_err(|_| NameError)?
                    .into(),
            )),
            None => Ok(Self(Bytes::copy_from_slice(text.as_bytes()))),
        }
    }
}

windlass_config::as_text!(Name);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_text_is_in_base64() {
        let table: [(&[u8], &str); 4] = [
            (b"mails", "mails"),
            ("Größe/1 2".as_bytes(), "Größe/1 2"),
            (b"\xff\x00", "base64:_wA"),
            (b"base64:x", "base64:YmFzZTY0Ong"),
        ];
        for (bytes, text) in table {
            let name = Name(Bytes::from_static(bytes));
            assert_eq!(name.to_string(), text);
            assert_eq!(text.parse(), Ok(name));
        }
        assert_eq!("base64:_wA=".parse::<Name>(), Err(NameError));
    }

    proptest! {
        #[test]
        fn every_name_has_one_text(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let name = Name(bytes.into());
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }
    }
}
