//! `windlass explain`: exit codes, and the codes in the daemon's answers, with what to do about them.

use windlass_daemon::Failure;

/// A code, its meaning, and what to do.
struct Explanation(&'static str, &'static str, &'static str);

/// Exit codes, error codes of the API, and the reasons why a job does not run.
const ALL: &[Explanation] = &[
    Explanation("0", "done, or stopped by a signal", ""),
    Explanation("1", "the store failed, the daemon refused, or a bug", "Read the line on standard error."),
    Explanation("2", "bad usage or configuration", "Correct the option or key that the message names."),
    Explanation(
        "3",
        "an address cannot be listened on, or its name cannot be resolved",
        "The message names each address with its key. Another daemon may have it: see server.in_use_timeout. An address at its \
         default that is in use is left out instead, and tried again, unless no other is served.",
    ),
    Explanation(
        "4",
        "the data directory, or the database with the store, cannot be opened",
        "Another daemon has it, its permissions forbid it, or it is damaged: `windlass verify DIR` and `windlass salvage DIR` look \
         at it without changes.",
    ),
    Explanation(
        "5",
        "an import, an export, a salvage or a bridge is incomplete",
        "The part that is there is kept; the message names the rest.",
    ),
    Explanation(
        "6",
        "another daemon has taken the store in the database over",
        "This daemon could not renew its lease in time. Nothing that it acknowledged is lost; start it again to wait for the store: \
         see server.in_use_timeout.",
    ),
    Explanation("bad_request", "a parameter of the request is invalid", "The text names it."),
    Explanation("not_found", "there is no such job, queue, worker or page", "A job that succeeded is gone."),
    Explanation("conflict", "the thing is in a state that does not allow it", "Look at it first: `windlass job ID`."),
    Explanation("method_not_allowed", "the page does not have this HTTP method", "openapi.json lists the methods."),
    Explanation("internal", "the engine gave an unexpected reply: a bug", "Please report it with the log."),
    Explanation("name_too_long", "the name exceeds limits.name_bytes_max", "Use a shorter name, or raise the limit."),
    Explanation(
        "body_too_large",
        "the body exceeds http.body_bytes_max, or the queue's body_bytes_max",
        "Keep large data elsewhere and push its address, or raise the limit.",
    ),
    Explanation("body_incomplete", "the body of the request did not arrive in time", "Send it again."),
    Explanation("limit", "a limit of the daemon is reached", "The text names it; `windlass status` shows the figures."),
    Explanation("not_unique", "another job holds the key", "Wait until that job ends, or push without a key."),
    Explanation(
        "lease_not_held",
        "the lease has ended, and another worker may have the job",
        "Take leases that are long enough, or extend them in time.",
    ),
    Explanation("in_use", "the queue has jobs or workers", "Clear it, or stop its workers, first."),
    Explanation("wrong_kind", "the queue is of the other kind: work or cycle", "spiderq's queues are cycles."),
    Explanation("never_due", "the schedule would never run", "Check its times."),
    Explanation("not_permitted", "the address does not permit it", "Use another address, or see its `rights`."),
    Explanation(
        "held",
        "a policy of the queue holds the job back: a rate, or other jobs of its key",
        "`windlass keys QUEUE` shows the policy and its keys.",
    ),
    Explanation(
        "coalesced",
        "several submits became this job, or it runs once more when another one has ended (`coalesce` of its queue)",
        "It runs by itself.",
    ),
    Explanation("out_of_place", "the command is not allowed now on this connection", "A take may wait already."),
    Explanation("unavailable", "the store does not respond, or the daemon stops", "Try again; see the log."),
    Explanation(
        "outcome_unknown",
        "the store failed before it confirmed the change",
        "Look whether the change is there before you repeat it.",
    ),
    Explanation("too_many_waiting", "half of http.connections_max wait for jobs", "Raise it, or wait less long."),
    Explanation("foreign_host", "the Host header names another machine", "Add the name to http.hosts."),
    Explanation("cross_site", "a web page of another site has sent the request", "Send it from a program."),
    Explanation("login_required", "this address needs a login", "`--login FILE`, with a token or NAME:PASSWORD."),
    Explanation(
        "login_wrong",
        "the token or the password is wrong",
        "`windlass token` and `windlass password` make new ones.",
    ),
    Explanation(
        "forbidden",
        "the login's role does not allow this",
        "Ask for another role: `windlass token NAME --role`.",
    ),
    Explanation("too_many_failures", "this address has sent too many wrong logins with this name", "Wait a minute."),
    Explanation("too_many_logins", "too many logins are verified at once", "Try again."),
    Explanation("too_many_watching", "too many streams of events are open", "Close one, or try again."),
    Explanation("invalid_configuration", "a reload found an error, and changed nothing", "Correct the named key."),
    Explanation("paused", "the job's queue is paused", "`windlass resume QUEUE`"),
    Explanation(
        "throttled",
        "other jobs hold all slots of the queue's throttle",
        "Wait, or change the throttle and reload.",
    ),
    Explanation(
        "unserved",
        "no connected worker that sees the job serves its queue",
        "Start a worker of the job's protocol, or bridge the queue (bridge.queues).",
    ),
    Explanation("waiting", "other jobs are before it", "Start more workers, or push with a higher priority."),
    Explanation("leased", "a worker has it", "`windlass requeue ID` takes it back from a worker that is stuck."),
    Explanation("scheduled", "it is due later", "`windlass retry ID` runs it now."),
    Explanation("retrying", "it failed, and is tried again later", "`windlass retry ID` runs it now."),
    Explanation(
        "parked",
        "it is out of its cycle queue",
        "The client that had it last has dropped it. Its value can be read.",
    ),
    Explanation("done", "it has ended, and its result is kept", "It goes by itself: see `until` of `windlass job ID`."),
    Explanation("dead", "it failed for good", "`windlass job ID` shows the error; `windlass retry ID` runs it again."),
];

/// The explanation of a code, or of all.
///
/// # Errors
///
/// The code is unknown.
pub(crate) fn explain(code: Option<&str>) -> Result<String, Failure> {
    let Some(code) = code else {
        return Ok(ALL.iter().map(Explanation::line).collect());
    };
    let unknown = || format!("the code {} is unknown; `windlass explain` lists all", code.escape_debug());
    let found = ALL.iter().find(|Explanation(name, ..)| *name == code);
    found.map(Explanation::text).ok_or_else(|| Failure::Runtime(unknown()))
}

impl Explanation {
    fn line(&self) -> String {
        let Self(code, meaning, _) = self;
        format!("{code:22}{meaning}\n")
    }

    fn text(&self) -> String {
        let Self(code, meaning, advice) = self;
        let advice = if advice.is_empty() { String::new() } else { format!("{advice}\n") };
        format!("{code}: {meaning}\n{advice}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_explained_once() {
        let codes: BTreeSet<&str> = ALL.iter().map(|Explanation(code, ..)| *code).collect();
        assert_eq!(codes.len(), ALL.len());
        assert!(explain(Some("4")).unwrap().contains("`windlass verify DIR`"));
        assert!(explain(Some("nothing")).unwrap_err().to_string().contains("`windlass explain` lists all"));
        assert_eq!(explain(None).unwrap().lines().count(), ALL.len());
    }

    /// So has each state of a job that is a reason not to run, and each reason of its own.
    #[test]
    fn every_reason_has_an_explanation() {
        let source = include_str!("../../http/src/api/detail.rs");
        let listed = source.lines().find(|line| line.contains("`leased`, ")).unwrap();
        let reasons: Vec<&str> = listed.split('`').skip(1).step_by(2).collect();
        assert!(reasons.len() > 8, "{listed}");
        for reason in reasons {
            assert!(explain(Some(reason)).is_ok(), "{reason}");
        }
    }

    /// Each refusal of the engine has a code of the API, and each code an explanation.
    #[test]
    fn every_refusal_has_an_explanation() {
        let source = [include_str!("../../engine/src/refusal.rs"), include_str!("../../http/src/problem.rs")].concat();
        let is_code =
            |word: &&str| word.contains('_') && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let codes: Vec<&str> = source.split('"').skip(1).step_by(2).filter(is_code).collect();
        assert!(codes.len() > 10, "{codes:?}");
        for code in codes {
            assert!(explain(Some(code)).is_ok(), "{code}");
        }
    }
}
