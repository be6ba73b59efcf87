//! Workers' reports on jobs and on themselves: `ACK`, `FAIL`, `REQUEUE`, `BEAT`.
//!
//! Spec: "Consumer Commands". The limits of a failure are those of deployed servers.

use super::json::{self, Unexpected};

/// Limits of a failure: bytes of its class and message, lines of its backtrace.
const ERRTYPE_BYTES_MAX: usize = 100;
const MESSAGE_BYTES_MAX: usize = 1_000;
const BACKTRACE_LINES_MAX: usize = 50;
/// Bytes of each line of a backtrace. Deployed servers have no such limit.
const BACKTRACE_LINE_BYTES_MAX: usize = 2_000;

const UNKNOWN: &str = "unknown";

/// `ACK`: a job succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// The job's name.
    pub jid: String,
    /// The job's result. Not specified: for clients of other protocols that wait for it, and for later commands.
    pub result: String,
}

impl Ack {
    /// Parses an object of strings that contains a `jid`. Keys are case-sensitive here. `None` if it is not valid.
    pub fn parse(text: &str) -> Option<Self> {
        let (mut jid, mut result) = (None, String::new());
        let read = json::for_each(text, |key, value| {
            let text = if value.get() == "null" {
                String::new()
            } else {
                json::text(value)?.into_owned()
            };
            match key {
                "jid" => jid = Some(text),
                "result" => result = text,
                _ => {}
            }
            Ok(())
        });
        read.ok()?;
        Some(Self { jid: jid?, result })
    }
}

/// `FAIL`: a job failed. The fields are cut to their limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The job's name; empty if absent.
    pub jid: String,
    /// The class of the error.
    pub errtype: String,
    /// The error message.
    pub message: String,
    /// Lines of a stack trace.
    pub backtrace: Vec<String>,
}

impl Failed {
    /// Parses the JSON object. `None` if it is not valid.
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(text).ok()
    }

    fn read(text: &str) -> Result<Self, Unexpected> {
        let [jid, errtype, message, backtrace] =
            json::members(text, &["jid", "errtype", "message", "backtrace"])?;
        let lines = backtrace
            .map(|value| json::texts(value, BACKTRACE_LINES_MAX))
            .transpose()?;
        let backtrace: Vec<String> = lines.map(|(lines, _)| lines).unwrap_or_default();
        let backtrace = backtrace
            .into_iter()
            .map(|line| cut(line, BACKTRACE_LINE_BYTES_MAX))
            .collect();
        Ok(Self {
            jid: json::text_or_empty(jid)?,
            errtype: readable(&json::text_or_empty(errtype)?, ERRTYPE_BYTES_MAX),
            message: readable(&json::text_or_empty(message)?, MESSAGE_BYTES_MAX),
            backtrace,
        })
    }
}

/// Trims and cuts a text; "unknown" if it is empty.
fn readable(text: &str, bytes_max: usize) -> String {
    let text = text.trim();
    cut(
        if text.is_empty() {
            UNKNOWN.to_owned()
        } else {
            text.to_owned()
        },
        bytes_max,
    )
}

/// Cuts a text at the end of a character.
pub(super) fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let end = (0..=bytes_max)
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// `REQUEUE`: a worker returns a job. The `jid` in the JSON object; `None` if it is not valid.
pub fn requeued(text: &str) -> Option<String> {
    let [jid] = json::members(text, &["jid"]).ok()?;
    Some(json::text(jid?).ok()?.into_owned())
}

/// `BEAT`: a worker is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// The worker's name; empty if absent.
    pub wid: String,
    /// The state the worker requests; empty if absent.
    pub state: String,
    /// The memory that its process uses, in KiB. A figure of 0 or less is none.
    pub rss_kib: Option<u64>,
}

impl Beat {
    /// Parses the JSON object. `None` if it is not valid.
    pub fn parse(text: &str) -> Option<Self> {
        let [wid, state, rss_kb] = json::members(text, &["wid", "current_state", "rss_kb"]).ok()?;
        let rss_kib = u64::try_from(rss_kb.map_or(Ok(0), json::int).ok()?)
            .ok()
            .filter(|kib| *kib > 0);
        Some(Self {
            wid: json::text_or_empty(wid).ok()?,
            state: json::text_or_empty(state).ok()?,
            rss_kib,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_hold_strings_only() {
        let ack = |jid: &str, result: &str| {
            Some(Ack {
                jid: jid.to_owned(),
                result: result.to_owned(),
            })
        };
        let table = [
            ("{\"jid\":\"x\"}", ack("x", "")),
            ("{ \"jid\" : \"x\" , \"extra\" : \"s\" }", ack("x", "")),
            ("{\"jid\":\"x\",\"result\":\"4\\u0032\"}", ack("x", "42")),
            ("{\"jid\":\"\"}", ack("", "")),
            ("{\"jid\":null}", ack("", "")),
            ("{\"jid\":\"x\",\"extra\":1}", None),
            ("{\"JID\":\"x\"}", None),
            ("{\"jid\":1}", None),
            ("{}", None),
            ("[]", None),
            ("\"x\"", None),
            ("null", None),
            ("nojson", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(Ack::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn failures_are_cut_to_their_limits() {
        let failed = |text: &str| {
            Failed::parse(text).map(|f| (f.jid, f.errtype, f.message, f.backtrace.len()))
        };
        let report = |jid: &str, errtype: &str, message: &str, lines| {
            Some((
                jid.to_owned(),
                errtype.to_owned(),
                message.to_owned(),
                lines,
            ))
        };
        assert_eq!(failed("{}"), report("", "unknown", "unknown", 0));
        assert_eq!(failed("null"), report("", "unknown", "unknown", 0));
        assert_eq!(
            failed("{\"jid\":\"x\",\"errtype\":\"  E \",\"message\":\" m  m\",\"backtrace\":null}"),
            report("x", "E", "m m".replace(' ', "  ").as_str(), 0)
        );
        for bad in [
            "",
            "[]",
            "nojson",
            "{\"backtrace\":\"str\"}",
            "{\"message\":1}",
            "{\"jid\":1}",
            "{\"jid\":\"x\"} x",
        ] {
            assert_eq!(failed(bad), None, "{bad}");
        }
        let lines = vec!["\"b\""; 80].join(",");
        let (e, m) = ("é".repeat(60), "é".repeat(600));
        let long = format!(
            "{{\"jid\":\"x\",\"errtype\":\"{e}\",\"message\":\"a{m}\",\"backtrace\":[{lines}]}}"
        );
        let (_, errtype, message, lines) = failed(&long).unwrap();
        assert_eq!((errtype.len(), message.len(), lines), (100, 999, 50));
    }

    #[test]
    fn beats() {
        let beat = |wid: &str, state: &str| {
            Some(Beat {
                wid: wid.to_owned(),
                state: state.to_owned(),
                rss_kib: None,
            })
        };
        let measured = Beat {
            wid: "w".to_owned(),
            state: String::new(),
            rss_kib: Some(12),
        };
        assert_eq!(Beat::parse("{\"wid\":\"w\",\"rss_kb\":12}"), Some(measured));
        for none in ["0", "-1", "null"] {
            assert_eq!(
                Beat::parse(&format!("{{\"wid\":\"w\",\"rss_kb\":{none}}}")),
                beat("w", ""),
                "{none}"
            );
        }
        assert_eq!(
            Beat::parse("{\"wid\":\"w\",\"current_state\":\"quiet\"}"),
            beat("w", "quiet")
        );
        assert_eq!(Beat::parse("{}"), beat("", ""));
        for bad in [
            "",
            "x",
            "{\"wid\":1}",
            "{\"wid\":\"w\",\"rss_kb\":\"1\"}",
            "{\"wid\":\"w\",\"rss_kb\":1.5}",
        ] {
            assert_eq!(Beat::parse(bad), None, "{bad}");
        }
    }
}
