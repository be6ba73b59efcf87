//! The template of a recurring job: a job's text without name and time of creation, which differ for each run.
//!
//! ```text
//! retry, custom?, queue, jobtype, args, reserve_for?, backtrace?, priority?
//! ```

use super::text::{put_text, skip};
use super::time::time_text;

/// The text of one run, in the form of [`super::Text`]. `None` if `template` is not a template.
pub fn run_text(template: &[u8], jid: &str, created_at_ms: u64) -> Option<Vec<u8>> {
    let mut jid_at = skip(template, 0, b"{\"retry\":")?;
    jid_at = skip(template, jid_at, b",\"custom\":").unwrap_or(jid_at);
    let mut created_at = skip(template, jid_at, b",\"queue\":")?;
    created_at = skip(template, created_at, b",\"jobtype\":")?;
    let mut out = Vec::with_capacity(template.len() + 100);
    out.extend_from_slice(template.get(..jid_at)?);
    put_text("jid", jid, &mut out);
    out.extend_from_slice(template.get(jid_at..created_at)?);
    put_text("created_at", &time_text(created_at_ms), &mut out);
    out.extend_from_slice(template.get(created_at..)?);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::super::{Text, Unit};
    use super::*;

    #[test]
    fn a_run_is_a_job_like_any_other() {
        let table = [
            r#"{"jobtype":"T","args":[]}"#,
            r#"{"jobtype":"T \" x","queue":"q","retry":-1,"args":[{"jid":"no"}],"custom":{"queue":[1]},"reserve_for":9,"priority":2}"#,
        ];
        for text in table {
            let mut unit = Unit::parse(text).unwrap();
            let run = run_text(&Text::template(&unit), "jid00000001", 1_700_000_000_000).unwrap();
            unit.jid = "jid00000001".into();
            assert_eq!(
                String::from_utf8(run),
                String::from_utf8(Text::of(&unit, "2023-11-14T22:13:20Z")),
                "{text}"
            );
        }
    }

    #[test]
    fn run_text_rejects_other_texts() {
        let job = Text::of(
            &Unit::parse(r#"{"jid":"jid00000001","jobtype":"T","args":[]}"#).unwrap(),
            "",
        );
        for text in [job.as_slice(), b"", b"{}", b"{\"retry\":1}", b"nonsense"] {
            assert_eq!(
                run_text(text, "jid00000002", 0),
                None,
                "{}",
                text.escape_ascii()
            );
        }
    }
}
