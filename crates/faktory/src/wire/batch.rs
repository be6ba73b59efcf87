//! BATCH and TRACK: arguments and replies.
//!
//! Rules: the commercial edition's, as its clients' tests show them.

use std::borrow::Cow;

use serde::Serialize;

use super::go::{self, Type};
use super::json::{self, Unexpected};
use super::report::cut;
use super::time::parse_time;
use super::unit::{Unit, invalid};

/// The argument of `BATCH NEW`.
#[derive(Debug, Clone, PartialEq)]
pub struct NewBatch<'a> {
    /// The parent batch; empty for none.
    pub parent_bid: String,
    /// A text for people.
    pub description: String,
    /// The callback for when all jobs have succeeded.
    pub success: Option<Unit<'a>>,
    /// The callback for when all jobs have run at least once.
    pub complete: Option<Unit<'a>>,
}

impl<'a> NewBatch<'a> {
    /// Parses the argument of `BATCH NEW`.
    ///
    /// # Errors
    /// Invalid JSON, or a value of a wrong kind.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let fields = json::members(text, &["parent_bid", "description", "success", "complete"]);
        let [parent_bid, description, success, complete] =
            fields.map_err(|Unexpected| wrong(text))?;
        let string = |value: Option<&_>| match value.map(json::text) {
            None => Ok(String::new()),
            Some(Ok(text)) => Ok(text.into_owned()),
            Some(Err(Unexpected)) => Err(invalid("parent_bid and description must be strings")),
        };
        let unit = |value: Option<&'a serde_json::value::RawValue>| {
            value.map(|it| Unit::parse(it.get())).transpose()
        };
        Ok(Self {
            parent_bid: string(parent_bid)?,
            description: string(description)?,
            success: unit(success)?,
            complete: unit(complete)?,
        })
    }
}

fn wrong(text: &str) -> String {
    invalid(&go::explain(text, Type::Any).unwrap_or_else(|| "a batch is an object".to_owned()))
}

/// The `custom` of a callback: the producer's own, and behind it the batch. The batch is last because the last of two
/// equal keys counts.
pub fn callback_custom(custom: Option<&str>, bid: &str, role: &str) -> String {
    let mut out = b"{".to_vec();
    let inner = custom
        .and_then(|custom| custom.strip_prefix('{')?.strip_suffix('}'))
        .unwrap_or_default();
    if !inner.trim().is_empty() {
        json::compact_into(inner, &mut out);
        out.push(b',');
    }
    out.extend_from_slice(b"\"_bid\":");
    json::escape_into(bid, &mut out);
    out.extend_from_slice(b",\"_cb\":");
    json::escape_into(role, &mut out);
    out.push(b'}');
    String::from_utf8_lossy(&out).into_owned()
}

/// The reply to `BATCH STATUS`.
#[derive(Debug, Clone, Serialize)]
pub struct BatchText<'a> {
    /// The batch's name.
    pub bid: Cow<'a, str>,
    /// The parent batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_bid: Option<Cow<'a, str>>,
    /// A text for people; empty for none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub description: Cow<'a, str>,
    /// Time of creation in RFC 3339.
    pub created_at: String,
    /// Jobs in the batch.
    pub total: u64,
    /// Jobs that have not succeeded.
    pub pending: u64,
    /// Jobs that have failed.
    pub failed: u64,
    /// State of the `complete` callback: `""` for none yet, `"1"` for pushed, `"2"` for succeeded.
    pub complete_st: &'static str,
    /// State of the `success` callback.
    pub success_st: &'static str,
}

/// The argument of `TRACK SET`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackSet {
    /// The job's name.
    pub jid: String,
    /// Progress in percent.
    pub percent: Option<u32>,
    /// A text for people.
    pub desc: Option<String>,
    /// Extends the reservation to this time, in milliseconds since the epoch.
    pub reserve_until_ms: Option<u64>,
}

/// Bytes kept of `desc`.
const DESC_BYTES_MAX: usize = 1_000;

impl TrackSet {
    /// Parses the JSON object. `None` if it is not valid.
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(text).ok()
    }

    fn read(text: &str) -> Result<Self, Unexpected> {
        let [jid, percent, desc, until] =
            json::members(text, &["jid", "percent", "desc", "reserve_until"])?;
        let percent = percent.map(json::number).transpose()?;
        if percent.is_some_and(|percent| !(0.0..=100.0).contains(&percent)) {
            return Err(Unexpected);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and 100"
        )]
        let whole = |percent: f64| percent as u32;
        let until = until.map(|value| parse_time(&json::text(value)?).map_err(|_| Unexpected));
        Ok(Self {
            jid: json::text(jid.ok_or(Unexpected)?)?.into_owned(),
            percent: percent.map(whole),
            desc: desc
                .map(json::text)
                .transpose()?
                .map(|desc| cut(desc.into_owned(), DESC_BYTES_MAX)),
            reserve_until_ms: until.transpose()?,
        })
    }
}

/// The reply to `TRACK GET`.
#[derive(Debug, Clone, Serialize)]
pub struct TrackText<'a> {
    /// The job's name.
    pub jid: Cow<'a, str>,
    /// Progress in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u32>,
    /// A text for people; empty for none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub desc: Cow<'a, str>,
    /// The job's state.
    pub state: &'static str,
    /// Time of the last change in RFC 3339; empty if unknown.
    pub updated_at: String,
}

/// The name of a batch, made of twelve unpredictable bytes.
pub fn batch_name(rng: &[u8; 12]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut name = String::from("b-");
    for chunk in rng.chunks(3) {
        let group = chunk
            .iter()
            .fold(0_usize, |group, byte| group << 8 | usize::from(*byte));
        let letter = |n: usize| {
            LETTERS
                .get(group >> (18 - 6 * n) & 63)
                .map_or('-', |letter| char::from(*letter))
        };
        name.extend((0..4).map(letter));
    }
    name
}
