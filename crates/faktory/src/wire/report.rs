//! What workers say of jobs and of themselves: `ACK`, `FAIL`, `REQUEUE`, `BEAT`.
//!
//! Spec: "Consumer Commands", and the limits of deployed servers on what a failure may say.

use super::json::{self, Unexpected};

/// How much is kept of a failure's class and message, in bytes, and of its backtrace, in lines.
const ERRTYPE_BYTES_MAX: usize = 100;
const MESSAGE_BYTES_MAX: usize = 1_000;
const BACKTRACE_LINES_MAX: usize = 50;
/// And of each line. Deployed servers know no limit.
const BACKTRACE_LINE_BYTES_MAX: usize = 2_000;

const UNKNOWN: &str = "unknown";

/// `ACK`: a job was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// Which.
    pub jid: String,
    /// What came of it. Not specified; for those who wait for one in another protocol, or ask for it later.
    pub result: String,
}

impl Ack {
    /// An object of strings with a `jid` among them; here keys match exactly. `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (mut jid, mut result) = (None, String::new());
        let read = json::for_each(text, |key, value| {
            let text = if value.get() == "null" { String::new() } else { json::text(value)?.into_owned() };
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

/// `FAIL`: a job has failed. What it says is cut to what is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Which; empty if that was not said.
    pub jid: String,
    /// A class of errors.
    pub errtype: String,
    /// A sentence.
    pub message: String,
    /// Lines of a stack trace.
    pub backtrace: Vec<String>,
}

impl Failed {
    /// `None` for anything that is no such object.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(text).ok()
    }

    fn read(text: &str) -> Result<Self, Unexpected> {
        let [jid, errtype, message, backtrace] = json::members(text, &["jid", "errtype", "message", "backtrace"])?;
        let text = |value: Option<&_>| value.map_or(Ok(String::new()), |value| json::text(value).map(String::from));
        let lines = backtrace.map(|value| json::texts(value, BACKTRACE_LINES_MAX)).transpose()?;
        let backtrace: Vec<String> = lines.map(|(lines, _)| lines).unwrap_or_default();
        let backtrace = backtrace.into_iter().map(|line| cut(line, BACKTRACE_LINE_BYTES_MAX)).collect();
        Ok(Self {
            jid: text(jid)?,
            errtype: told(&text(errtype)?, ERRTYPE_BYTES_MAX),
            message: told(&text(message)?, MESSAGE_BYTES_MAX),
            backtrace,
        })
    }
}

/// What was said, trimmed and cut; "unknown" if nothing was.
fn told(text: &str, bytes_max: usize) -> String {
    let text = text.trim();
    cut(if text.is_empty() { UNKNOWN.to_owned() } else { text.to_owned() }, bytes_max)
}

/// Cuts a text, where a character ends.
pub(super) fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// `REQUEUE`: a job is given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobName {
    /// Which.
    pub jid: String,
}

impl JobName {
    /// An object with a `jid`. `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let [jid] = json::members(text, &["jid"]).ok()?;
        Some(Self { jid: json::text(jid?).ok()?.into_owned() })
    }
}

/// `BEAT`: a worker is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// Which; empty if that was not said.
    pub wid: String,
    /// What it wants to be; empty if it does not say.
    pub state: String,
}

impl Beat {
    /// `None` for anything that is no such object.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let [wid, state, rss_kb] = json::members(text, &["wid", "current_state", "rss_kb"]).ok()?;
        rss_kb.map_or(Ok(0), json::int).ok()?;
        let text = |value: Option<&_>| value.map_or(Ok(String::new()), |value| json::text(value).map(String::from));
        Some(Self { wid: text(wid).ok()?, state: text(state).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_hold_strings_only() {
        let ack = |jid: &str, result: &str| Some(Ack { jid: jid.to_owned(), result: result.to_owned() });
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
    fn failures_are_cut_to_what_is_kept() {
        let failed = |text: &str| Failed::parse(text).map(|f| (f.jid, f.errtype, f.message, f.backtrace.len()));
        let told = |jid: &str, errtype: &str, message: &str, lines| {
            Some((jid.to_owned(), errtype.to_owned(), message.to_owned(), lines))
        };
        assert_eq!(failed("{}"), told("", "unknown", "unknown", 0));
        assert_eq!(failed("null"), told("", "unknown", "unknown", 0));
        assert_eq!(
            failed("{\"jid\":\"x\",\"errtype\":\"  E \",\"message\":\" m  m\",\"backtrace\":null}"),
            told("x", "E", "m m".replace(' ', "  ").as_str(), 0)
        );
        for bad in
            ["", "[]", "nojson", "{\"backtrace\":\"str\"}", "{\"message\":1}", "{\"jid\":1}", "{\"jid\":\"x\"} x"]
        {
            assert_eq!(failed(bad), None, "{bad}");
        }
        let lines = vec!["\"b\""; 80].join(",");
        let (e, m) = ("é".repeat(60), "é".repeat(600));
        let long = format!("{{\"jid\":\"x\",\"errtype\":\"{e}\",\"message\":\"a{m}\",\"backtrace\":[{lines}]}}");
        let (_, errtype, message, lines) = failed(&long).unwrap();
        assert_eq!((errtype.len(), message.len(), lines), (100, 999, 50));
    }

    #[test]
    fn beats() {
        let beat = |wid: &str, state: &str| Some(Beat { wid: wid.to_owned(), state: state.to_owned() });
        assert_eq!(Beat::parse("{\"wid\":\"w\",\"rss_kb\":12}"), beat("w", ""));
        assert_eq!(Beat::parse("{\"wid\":\"w\",\"current_state\":\"quiet\"}"), beat("w", "quiet"));
        assert_eq!(Beat::parse("{}"), beat("", ""));
        for bad in ["", "x", "{\"wid\":1}", "{\"wid\":\"w\",\"rss_kb\":\"1\"}", "{\"wid\":\"w\",\"rss_kb\":1.5}"] {
            assert_eq!(Beat::parse(bad), None, "{bad}");
        }
    }
}
