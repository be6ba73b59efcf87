//! BATCH and TRACK: what they carry and what they answer.
//!
//! Rules: the commercial edition's, as its clients' tests know them.

use std::borrow::Cow;

use super::go::{self, Type};
use super::json::{self, Unexpected};
use super::time::{parse_time, time_text};
use super::unit::{Unit, UnitError};

/// A batch to be.
#[derive(Debug, Clone, PartialEq)]
pub struct NewBatch<'a> {
    /// The batch it is part of; empty if it is part of none.
    pub parent_bid: String,
    /// A sentence.
    pub description: String,
    /// Pushed when all jobs have succeeded.
    pub success: Option<Unit<'a>>,
    /// Pushed when all jobs were worked on.
    pub complete: Option<Unit<'a>>,
}

impl<'a> NewBatch<'a> {
    /// Reads what stands behind `BATCH NEW`.
    ///
    /// # Errors
    /// It is not understood.
    pub fn parse(text: &'a str) -> Result<Self, UnitError> {
        let fields = json::members(text, &["parent_bid", "description", "success", "complete"]);
        let [parent_bid, description, success, complete] = fields.map_err(|Unexpected| wrong(text))?;
        let string = |value: Option<&_>| match value.map(json::text) {
            None => Ok(String::new()),
            Some(Ok(text)) => Ok(text.into_owned()),
            Some(Err(Unexpected)) => Err(UnitError::Json("parent_bid and description must be strings".to_owned())),
        };
        let unit = |value: Option<&'a serde_json::value::RawValue>| value.map(|it| Unit::parse(it.get())).transpose();
        Ok(Self {
            parent_bid: string(parent_bid)?,
            description: string(description)?,
            success: unit(success)?,
            complete: unit(complete)?,
        })
    }
}

fn wrong(text: &str) -> UnitError {
    UnitError::Json(go::explain(text, Type::Any).unwrap_or_else(|| "a batch is an object".to_owned()))
}

/// The `custom` of a job that is pushed when its batch has come to it: what its producer said, and which batch that was.
/// That comes last, because the last of two equal keys counts.
#[must_use]
pub fn callback_custom(custom: Option<&str>, bid: &str, role: &str) -> String {
    let mut out = b"{".to_vec();
    let inner = custom.and_then(|custom| custom.strip_prefix('{')?.strip_suffix('}')).unwrap_or_default();
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

/// What `BATCH STATUS` says.
#[derive(Debug, Clone)]
pub struct BatchText<'a> {
    /// The batch.
    pub bid: Cow<'a, str>,
    /// The batch it is part of.
    pub parent_bid: Option<Cow<'a, str>>,
    /// A sentence; empty for none.
    pub description: Cow<'a, str>,
    /// When it was made, in RFC 3339.
    pub created_at: String,
    /// Jobs in it.
    pub total: u64,
    /// Those that have not succeeded.
    pub pending: u64,
    /// Those that have failed.
    pub failed: u64,
    /// Its `complete` callback: `""`, `"1"` for pushed, `"2"` for succeeded.
    pub complete_st: &'static str,
    /// Its `success` callback.
    pub success_st: &'static str,
}

impl BatchText<'_> {
    /// The object.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = b"{\"bid\":".to_vec();
        json::escape_into(&self.bid, &mut out);
        if let Some(parent) = &self.parent_bid {
            out.extend_from_slice(b",\"parent_bid\":");
            json::escape_into(parent, &mut out);
        }
        if !self.description.is_empty() {
            out.extend_from_slice(b",\"description\":");
            json::escape_into(&self.description, &mut out);
        }
        let Self { created_at, total, pending, failed, complete_st, success_st, .. } = self;
        let rest = format!(
            ",\"created_at\":\"{created_at}\",\"total\":{total},\"pending\":{pending},\"failed\":{failed},\
             \"complete_st\":\"{complete_st}\",\"success_st\":\"{success_st}\"}}"
        );
        out.extend_from_slice(rest.as_bytes());
        out
    }
}

/// What `TRACK SET` carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackSet {
    /// Which job.
    pub jid: String,
    /// How far it is, of a hundred.
    pub percent: Option<u32>,
    /// A sentence.
    pub desc: Option<String>,
    /// Its worker wants time until then, in milliseconds since the epoch.
    pub reserve_until_ms: Option<u64>,
}

/// Bytes that are kept of a sentence.
const DESC_BYTES_MAX: usize = 1_000;

impl TrackSet {
    /// `None` for anything that is no such object.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let [jid, percent, desc, until] = json::members(text, &["jid", "percent", "desc", "reserve_until"]).ok()?;
        let percent = percent.map(|value| json::number(value).ok().filter(|percent| (0.0..=100.0).contains(percent)));
        let desc = desc.map(|value| json::text(value).ok());
        let until = until.map(|value| json::text(value).ok().and_then(|text| parse_time(&text).ok()));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 100")]
        let whole = |percent: f64| percent as u32;
        Some(Self {
            jid: json::text(jid?).ok()?.into_owned(),
            percent: match percent {
                Some(percent) => Some(whole(percent?)),
                None => None,
            },
            desc: match desc {
                Some(desc) => Some(super::report::cut(desc?.into_owned(), DESC_BYTES_MAX)),
                None => None,
            },
            reserve_until_ms: match until {
                Some(until) => Some(until?),
                None => None,
            },
        })
    }
}

/// What `TRACK GET` says.
#[derive(Debug, Clone)]
pub struct TrackText<'a> {
    /// The job.
    pub jid: Cow<'a, str>,
    /// How far it is, of a hundred.
    pub percent: Option<u32>,
    /// A sentence; empty for none.
    pub desc: Cow<'a, str>,
    /// Where it is.
    pub state: &'static str,
    /// When anything about it changed.
    pub updated_at_ms: Option<u64>,
}

impl TrackText<'_> {
    /// The object.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = b"{\"jid\":".to_vec();
        json::escape_into(&self.jid, &mut out);
        if let Some(percent) = self.percent {
            out.extend_from_slice(format!(",\"percent\":{percent}").as_bytes());
        }
        if !self.desc.is_empty() {
            out.extend_from_slice(b",\"desc\":");
            json::escape_into(&self.desc, &mut out);
        }
        let updated_at = self.updated_at_ms.map(time_text).unwrap_or_default();
        out.extend_from_slice(format!(",\"state\":\"{}\",\"updated_at\":\"{updated_at}\"}}", self.state).as_bytes());
        out
    }
}

/// A name for a batch, of twelve bytes nobody can foresee.
#[must_use]
pub fn batch_name(dice: &[u8; 12]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut name = String::from("b-");
    for chunk in dice.chunks(3) {
        let group = chunk.iter().fold(0_usize, |group, byte| group << 8 | usize::from(*byte));
        let letter = |n: usize| LETTERS.get(group >> (18 - 6 * n) & 63).map_or('-', |letter| char::from(*letter));
        name.extend((0..4).map(letter));
    }
    name
}
