//! The parts of an FWP job that other protocols use, found in its JSON text.

use std::borrow::Cow;

use serde_json::value::RawValue;
use windlass_bridge::json;

/// An FWP job.
#[derive(Clone, Debug)]
pub(crate) struct Fwp<'a> {
    pub(crate) jobtype: Cow<'a, str>,
    /// A list.
    pub(crate) args: &'a RawValue,
    /// An object.
    pub(crate) custom: Option<&'a RawValue>,
}

impl<'a> Fwp<'a> {
    /// `None` if the body is not an FWP job.
    pub(crate) fn read(body: &'a [u8]) -> Option<Self> {
        let (mut jobtype, mut args, mut custom) = (None, None, None);
        let each = |key: &str, value| {
            match key {
                "jobtype" => jobtype = Some(value),
                "args" => args = Some(value),
                "custom" => custom = Some(value),
                _ => {}
            }
            Ok(())
        };
        json::members(json::value(body)?, each).ok()?;
        Some(Self {
            jobtype: jobtype.and_then(json::text)?,
            args: args.filter(|args| json::is_list(args))?,
            custom: custom.filter(|custom| json::is_object(custom)),
        })
    }

    /// The last member of `custom` with this name, unless it is `null`.
    pub(crate) fn custom(&self, name: &str) -> Option<&'a RawValue> {
        let mut found = None;
        let each = |key: &str, value: &'a RawValue| {
            if key == name {
                found = Some(value);
            }
            Ok(())
        };
        json::members(self.custom?, each).ok()?;
        found.filter(|value: &&RawValue| value.get() != "null")
    }

    /// Whether `custom` marks the only argument as bytes in base64.
    pub(crate) fn is_base64(&self) -> bool {
        self.custom("_encoding")
            .and_then(json::text)
            .is_some_and(|encoding| encoding == "base64")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let body =
            br#"{"retry":25,"custom":{"a":1,"a":{"b":2.0},"c":null},"jid":"x","jobtype":"a\u0062","args":[1, 1e400]}"#;
        let fwp = Fwp::read(body).unwrap();
        assert_eq!((&*fwp.jobtype, fwp.args.get()), ("ab", "[1, 1e400]"));
        let custom = |name| fwp.custom(name).map(RawValue::get);
        assert_eq!(
            [custom("a"), custom("c"), custom("d")],
            [Some("{\"b\":2.0}"), None, None]
        );
    }

    #[test]
    fn encodings() {
        let table = [
            (r#""custom":{"_encoding":"base64"},"#, true),
            (r#""custom":{"_encoding":"x","_encoding":"base64"},"#, true),
            (r#""custom":{"_encoding":"BASE64"},"#, false),
            (r#""custom":{"_encoding":1},"#, false),
            (r#""custom":"base64","#, false),
            ("", false),
        ];
        for (custom, expected) in table {
            let body = format!("{{{custom}\"jobtype\":\"a\",\"args\":[]}}");
            assert_eq!(
                Fwp::read(body.as_bytes()).unwrap().is_base64(),
                expected,
                "{body}"
            );
        }
    }

    #[test]
    fn invalid_jobs_are_refused() {
        let bad = [
            "",
            "[]",
            "{}",
            r#"{"jobtype":"a"}"#,
            r#"{"args":[]}"#,
            r#"{"jobtype":1,"args":[]}"#,
        ];
        for body in bad.into_iter().chain([
            r#"{"jobtype":"a","args":{}}"#,
            r#"{"jobtype":"a","args":[]"#,
        ]) {
            assert!(Fwp::read(body.as_bytes()).is_none(), "{body}");
        }
    }
}
