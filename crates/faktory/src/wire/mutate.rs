//! MUTATE: what to do to which jobs.
//!
//! Rules: deployed servers', but for one: they split the line at blanks and refuse JSON that has any.

use super::go::{self, Type};
use super::json::{self, Unexpected};

/// Longest pattern that is looked for, in bytes. Nobody writes a longer one by hand.
const REGEXP_BYTES_MAX: usize = 1_024;

/// Jobs that can be named in one command.
const JIDS_MAX: usize = 100_000;

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutate {
    /// What to do.
    pub cmd: MutateCmd,
    /// To which set of jobs.
    pub target: MutateTarget,
    /// To these only, if any is named.
    pub jids: Vec<String>,
    /// To those only whose text matches this glob.
    pub regexp: Option<String>,
    /// To those only whose jobtype is this.
    pub jobtype: Option<String>,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MutateCmd {
    /// Forget them all; nothing else counts.
    Clear,
    /// To the dead set.
    Kill,
    /// Forget them.
    Discard,
    /// To their queues.
    Requeue,
}

/// A set of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MutateTarget {
    /// Those whose time is to come.
    Scheduled,
    /// Those that failed and will be tried again.
    Retries,
    /// Those that will not.
    Dead,
}

/// Why nothing is done. The text is the answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMutation {
    /// It is no JSON, or something in it is of a wrong kind.
    #[error("{0}")]
    Json(String),
    /// There is no such thing to do.
    #[error("unknown mutate operation")]
    Cmd,
    /// There is no such set of jobs.
    #[error("invalid target for mutation command")]
    Target,
    /// Too many jobs are named.
    #[error("more than {JIDS_MAX} jids")]
    Jids,
    /// The pattern is too long.
    #[error("regexp of more than {REGEXP_BYTES_MAX} bytes")]
    Regexp,
}

impl Mutate {
    /// Reads what stands behind the verb.
    ///
    /// # Errors
    /// It is not understood.
    pub fn parse(text: &str) -> Result<Self, BadMutation> {
        let expected = Type::Struct(&go::MUTATION);
        let fields = Fields::read(text).map_err(|Unexpected| {
            BadMutation::Json(go::explain(text, expected).unwrap_or_else(|| "a string that is not Unicode".to_owned()))
        })?;
        let cmd = match fields.cmd.as_str() {
            "clear" => MutateCmd::Clear,
            "kill" => MutateCmd::Kill,
            "discard" => MutateCmd::Discard,
            "requeue" => MutateCmd::Requeue,
            _ => return Err(BadMutation::Cmd),
        };
        let target = match fields.target.as_str() {
            "scheduled" => MutateTarget::Scheduled,
            "retries" => MutateTarget::Retries,
            "dead" => MutateTarget::Dead,
            _ => return Err(BadMutation::Target),
        };
        let Fields { jids, named, regexp, jobtype, .. } = fields;
        if named > JIDS_MAX {
            return Err(BadMutation::Jids);
        }
        if regexp.len() > REGEXP_BYTES_MAX {
            return Err(BadMutation::Regexp);
        }
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        // Whoever names jobs wants these, whatever else is said; to clear is to clear all.
        Ok(match (cmd, jids.is_empty()) {
            (MutateCmd::Clear, _) => Self { cmd, target, jids: Vec::new(), regexp: None, jobtype: None },
            (_, false) => Self { cmd, target, jids, regexp: None, jobtype: None },
            (_, true) => Self { cmd, target, jids, regexp: given(regexp), jobtype: given(jobtype) },
        })
    }
}

#[derive(Default)]
struct Fields {
    cmd: String,
    target: String,
    jids: Vec<String>,
    /// How many were named.
    named: usize,
    regexp: String,
    jobtype: String,
}

impl Fields {
    fn read(text: &str) -> Result<Self, Unexpected> {
        let string = |value: Option<&_>| value.map_or(Ok(String::new()), |value| json::text(value).map(String::from));
        let [cmd, target, filter] = json::members(text, &["cmd", "target", "filter"])?;
        let (cmd, target) = (string(cmd)?, string(target)?);
        let Some(filter) = filter else { return Ok(Self { cmd, target, ..Self::default() }) };
        let [jids, regexp, jobtype] = json::members(filter.get(), &["jids", "regexp", "jobtype"])?;
        let (jids, named) = jids.map_or(Ok((Vec::new(), 0)), |value| json::texts(value, JIDS_MAX))?;
        Ok(Self { cmd, target, named, jids, regexp: string(regexp)?, jobtype: string(jobtype)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told() {
        let table = [
            ("", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{}", "unknown mutate operation"),
            ("null", "unknown mutate operation"),
            (r#"{"cmd":"CLEAR","target":"dead"}"#, "unknown mutate operation"),
            (r#"{"cmd":"bogus","target":"dead"}"#, "unknown mutate operation"),
            (r#"{"cmd":"clear","target":"nosuch"}"#, "invalid target for mutation command"),
            (r#"{"cmd":"clear","target":""}"#, "invalid target for mutation command"),
            (r#"{"cmd":"clear","target":"working"}"#, "invalid target for mutation command"),
            (
                r#"{"cmd":"kill","target":"scheduled","filter":{"jids":"notlist"}}"#,
                "json: cannot unmarshal string into Go struct field JobFilter.filter.jids of type []string",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(Mutate::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
        let long = format!(r#"{{"cmd":"kill","target":"dead","filter":{{"regexp":"{}"}}}}"#, "*".repeat(1025));
        assert_eq!(Mutate::parse(&long), Err(BadMutation::Regexp));
    }

    #[test]
    fn whoever_names_jobs_wants_these() {
        let parsed = |text| {
            let Mutate { cmd, target, jids, regexp, jobtype } = Mutate::parse(text).unwrap();
            (cmd, target, jids.len(), regexp.unwrap_or_default(), jobtype.unwrap_or_default())
        };
        use MutateCmd::{Clear, Discard, Kill, Requeue};
        use MutateTarget::{Dead, Retries, Scheduled};
        let none = String::new;
        assert_eq!(
            parsed(r#"{ "cmd": "kill", "target": "scheduled", "filter": {"jobtype":"A","regexp":"*x y*"}}"#),
            (Kill, Scheduled, 0, "*x y*".to_owned(), "A".to_owned())
        );
        assert_eq!(
            parsed(r#"{"cmd":"requeue","target":"dead","filter":{"jids":["a","b"],"jobtype":"A"}}"#),
            (Requeue, Dead, 2, none(), none())
        );
        assert_eq!(
            parsed(r#"{"cmd":"discard","target":"dead","filter":{"jids":[]}}"#),
            (Discard, Dead, 0, none(), none())
        );
        assert_eq!(parsed(r#"{"cmd":"kill","target":"dead","filter":null}"#), (Kill, Dead, 0, none(), none()));
        assert_eq!(
            parsed(r#"{"cmd":"clear","target":"retries","filter":{"jobtype":"X","jids":["a"]}}"#),
            (Clear, Retries, 0, none(), none())
        );
    }
}
