//! MUTATE: an operation on all jobs of a set that match a filter.
//!
//! Rules: deployed servers', with one difference: they split the line at blanks and so reject JSON with blanks.

use windlass_engine::{JobStateKind, Mutation};

use super::go::{self, Type};
use super::json::{self, Unexpected};

/// Bytes of the longest pattern; people write shorter ones.
const REGEXP_BYTES_MAX: usize = 1_024;

/// Jobs that one command can name.
const JIDS_MAX: usize = 100_000;

/// The argument of MUTATE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutate {
    /// The operation.
    pub action: Mutation,
    /// The set of jobs.
    pub state: JobStateKind,
    /// Only the jobs with these names; empty for all.
    pub jids: Vec<String>,
    /// Only jobs whose text matches this glob.
    pub regexp: Option<String>,
    /// Only jobs of this jobtype.
    pub jobtype: Option<String>,
}

impl Mutate {
    /// Parses the argument.
    ///
    /// # Errors
    /// Invalid JSON, an unknown value, or a limit exceeded: the text is for the client.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = Type::Struct(&go::MUTATION);
        let fields = Fields::read(text).map_err(|Unexpected| {
            go::explain(text, expected).unwrap_or_else(|| "a string that is not Unicode".to_owned())
        })?;
        let (action, is_filtered) = match fields.cmd.as_str() {
            "clear" => (Mutation::Discard, false),
            "kill" => (Mutation::Kill, true),
            "discard" => (Mutation::Discard, true),
            "requeue" => (Mutation::Requeue, true),
            _ => return Err("unknown mutate operation".to_owned()),
        };
        let state = match fields.target.as_str() {
            "scheduled" => JobStateKind::Scheduled,
            "retries" => JobStateKind::Retrying,
            "dead" => JobStateKind::Dead,
            _ => return Err("invalid target for mutation command".to_owned()),
        };
        let Fields {
            jids,
            named,
            regexp,
            jobtype,
            ..
        } = fields;
        if named > JIDS_MAX {
            return Err(format!("more than {JIDS_MAX} jids"));
        }
        if regexp.len() > REGEXP_BYTES_MAX {
            return Err(format!("regexp of more than {REGEXP_BYTES_MAX} bytes"));
        }
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let all = Self {
            action,
            state,
            jids: Vec::new(),
            regexp: None,
            jobtype: None,
        };
        // Names replace the rest of the filter; CLEAR ignores the whole filter.
        Ok(match (is_filtered, jids.is_empty()) {
            (false, _) => all,
            (true, false) => Self { jids, ..all },
            (true, true) => Self {
                regexp: given(regexp),
                jobtype: given(jobtype),
                ..all
            },
        })
    }
}

#[derive(Default)]
struct Fields {
    cmd: String,
    target: String,
    jids: Vec<String>,
    /// How many names there were.
    named: usize,
    regexp: String,
    jobtype: String,
}

impl Fields {
    fn read(text: &str) -> Result<Self, Unexpected> {
        let [cmd, target, filter] = json::members(text, &["cmd", "target", "filter"])?;
        let (cmd, target) = (json::text_or_empty(cmd)?, json::text_or_empty(target)?);
        let Some(filter) = filter else {
            return Ok(Self {
                cmd,
                target,
                ..Self::default()
            });
        };
        let [jids, regexp, jobtype] = json::members(filter.get(), &["jids", "regexp", "jobtype"])?;
        let (jids, named) =
            jids.map_or(Ok((Vec::new(), 0)), |value| json::texts(value, JIDS_MAX))?;
        Ok(Self {
            cmd,
            target,
            named,
            jids,
            regexp: json::text_or_empty(regexp)?,
            jobtype: json::text_or_empty(jobtype)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_texts_of_deployed_servers() {
        let table = [
            ("", "unexpected end of the text"),
            ("x", "unexpected character at line 1, column 1"),
            ("{}", "unknown mutate operation"),
            ("null", "unknown mutate operation"),
            (
                r#"{"cmd":"CLEAR","target":"dead"}"#,
                "unknown mutate operation",
            ),
            (
                r#"{"cmd":"bogus","target":"dead"}"#,
                "unknown mutate operation",
            ),
            (
                r#"{"cmd":"clear","target":"nosuch"}"#,
                "invalid target for mutation command",
            ),
            (
                r#"{"cmd":"clear","target":""}"#,
                "invalid target for mutation command",
            ),
            (
                r#"{"cmd":"clear","target":"working"}"#,
                "invalid target for mutation command",
            ),
            (
                r#"{"cmd":"kill","target":"scheduled","filter":{"jids":"notlist"}}"#,
                "json: cannot unmarshal string into Go struct field JobFilter.filter.jids of type []string",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(
                Mutate::parse(text).unwrap_err().to_string(),
                expected,
                "{text}"
            );
        }
        let long = format!(
            r#"{{"cmd":"kill","target":"dead","filter":{{"regexp":"{}"}}}}"#,
            "*".repeat(1025)
        );
        assert_eq!(
            Mutate::parse(&long),
            Err("regexp of more than 1024 bytes".to_owned())
        );
    }

    #[test]
    fn names_replace_the_rest_of_the_filter() {
        let parsed = |text| {
            let Mutate {
                action,
                state,
                jids,
                regexp,
                jobtype,
            } = Mutate::parse(text).unwrap();
            (
                action,
                state,
                jids.len(),
                regexp.unwrap_or_default(),
                jobtype.unwrap_or_default(),
            )
        };
        use JobStateKind::{Dead, Retrying, Scheduled};
        use Mutation::{Discard, Kill, Requeue};
        let none = String::new;
        assert_eq!(
            parsed(
                r#"{ "cmd": "kill", "target": "scheduled", "filter": {"jobtype":"A","regexp":"*x y*"}}"#
            ),
            (Kill, Scheduled, 0, "*x y*".to_owned(), "A".to_owned())
        );
        assert_eq!(
            parsed(
                r#"{"cmd":"requeue","target":"dead","filter":{"jids":["a","b"],"jobtype":"A"}}"#
            ),
            (Requeue, Dead, 2, none(), none())
        );
        assert_eq!(
            parsed(r#"{"cmd":"discard","target":"dead","filter":{"jids":[]}}"#),
            (Discard, Dead, 0, none(), none())
        );
        assert_eq!(
            parsed(r#"{"cmd":"kill","target":"dead","filter":null}"#),
            (Kill, Dead, 0, none(), none())
        );
        assert_eq!(
            parsed(r#"{"cmd":"clear","target":"retries","filter":{"jobtype":"X","jids":["a"]}}"#),
            (Discard, Retrying, 0, none(), none())
        );
    }
}
