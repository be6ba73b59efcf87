//! The engine's refusals in Faktory's words.
//!
//! Rules: the texts of deployed servers where they have the same refusal, otherwise the code `ERR`.

use bytes::BytesMut;
use windlass_engine::Refusal;

use crate::wire::reply;

/// The error reply for a refused command.
pub(super) fn write(why: Refusal, out: &mut BytesMut) {
    let (code, text) = words(why);
    reply::coded_error(code, text, out);
}

/// The same text inside another reply, without the code `ERR`.
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
