//! The engine's refusals in Faktory's words.
//!
//! Rules: deployed servers, where they have such a refusal; the code `ERR` otherwise.

use bytes::BytesMut;
use windlass_engine::Refusal;

use crate::wire::reply;

/// What to answer to a command that could not be granted.
pub(super) fn write(why: Refusal, out: &mut BytesMut) {
    let (code, text) = words(why);
    reply::coded_error(code, text, out);
}

/// The same inside of an answer that is not an error: only codes of their own are named.
pub(super) fn text(why: Refusal) -> String {
    match words(why) {
        ("ERR", text) => text,
        (code, text) => format!("{code} {text}"),
    }
}

fn words(why: Refusal) -> (&'static str, String) {
    if why == Refusal::NotUnique {
        return ("NOTUNIQUE", "Job not unique".to_owned());
    }
    ("ERR", why.to_string())
}
