//! Results: `{"value": …}`, and the bytes of other protocols.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use windlass_bridge::json;

/// A string's own bytes, nothing for `null`, the JSON text of any other value. Input other than `{"value": …}` stays as
/// it is.
pub(crate) fn unwrapped(result: &[u8]) -> Cow<'_, [u8]> {
    let Some(value) = value_of(result) else {
        return Cow::Borrowed(result);
    };
    match json::text(value) {
        Some(Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
        Some(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
        None if value.get() == "null" => Cow::Borrowed(b""),
        None => Cow::Borrowed(value.get().as_bytes()),
    }
}

fn value_of(result: &[u8]) -> Option<&RawValue> {
    let mut found = None;
    let each = |key: &str, value| {
        found = Some(value);
        if key == "value" {
            Ok(())
        } else {
            Err(json::Unexpected)
        }
    };
    json::members(json::value(result)?, each).ok()?;
    found
}

/// `{"value": …}` as Python writes it. Bytes that are not text are base64.
pub(super) fn wrapped(result: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + result.len());
    out.extend_from_slice(b"{\"value\": ");
    match std::str::from_utf8(result) {
        Ok("") => out.extend_from_slice(b"null"),
        Ok(text) => json::quote_ascii(text, &mut out),
        Err(_) => json::quote_ascii(&STANDARD.encode(result), &mut out),
    }
    out.push(b'}');
    out
}
