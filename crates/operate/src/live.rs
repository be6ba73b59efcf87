//! `windlass check --live`: one line and an exit code, as a Nagios plugin.

use hyper::StatusCode;
use serde_json::{Value, json};
use windlass_config::{Failure, Period, counted};

use crate::arguments::Check;
use crate::client::{DataDir, failure, runtime};
use crate::show::{at, list};
use crate::terminal::print;

/// The names of the results in Nagios, by exit code.
const VERDICTS: [&str; 4] = ["OK", "WARNING", "CRITICAL", "UNKNOWN"];
const OK: u8 = 0;
const WARNING: u8 = 1;
const CRITICAL: u8 = 2;
/// The check failed, but the daemon may be fine.
const UNKNOWN: u8 = 3;

/// Runs the check and returns the exit code.
#[must_use]
pub fn check(check: &Check, data_dir: DataDir) -> u8 {
    let unknown = |why| (UNKNOWN, why);
    let seen = runtime()
        .map_err(unknown)
        .and_then(|runtime| runtime.block_on(check.look(data_dir)));
    let (code, text) = match seen {
        Ok((status, oldest)) => check.judge(&status, oldest),
        Err((code, why)) => (code, why.to_string()),
    };
    conclude(check.ask.json, code, &text)
}

/// Reports a check with an invalid command line. Returns the exit code.
#[must_use]
pub fn not_checked(why: &str) -> u8 {
    conclude(false, UNKNOWN, why)
}

fn conclude(is_json: bool, code: u8, text: &str) -> u8 {
    let word = VERDICTS.get(usize::from(code)).copied().unwrap_or_default();
    let line = match is_json {
        true => json!({"verdict": word, "code": code, "text": text}).to_string(),
        false => format!("WINDLASS {word} - {text}"),
    };
    // A closed standard output does not change the result.
    let _ = print(&format!("{line}\n"));
    code
}

impl Check {
    /// Returns the status, and the age of the oldest ready job in queues that are not paused; or
    /// else the exit code and the reason.
    async fn look(&self, data_dir: DataDir) -> Result<(Value, f64), (u8, Failure)> {
        let unseen = |why| {
            (
                if matches!(why, Failure::Source { .. }) {
                    UNKNOWN
                } else {
                    CRITICAL
                },
                why,
            )
        };
        let daemon = self.ask.daemon(data_dir).map_err(|why| (UNKNOWN, why))?;
        let mut client = self.ask.connect_to(&daemon).await.map_err(unseen)?;
        let asked = async {
            let status = client.get("/status").await?;
            Ok((status, client.rows("/queues", usize::MAX).await?))
        };
        let (status, queues) = asked.await.map_err(|why: Failure| match client.refusal() {
            Some(StatusCode::UNAUTHORIZED) => {
                let reason = format!("login required ({why}): use --login FILE");
                (UNKNOWN, failure(reason))
            }
            Some(StatusCode::FORBIDDEN) => (UNKNOWN, failure(format!("permission denied: {why}"))),
            Some(status) if status.is_client_error() => (
                UNKNOWN,
                failure(format!("the daemon rejected the check: {why}")),
            ),
            _ => (CRITICAL, why),
        })?;
        let ages = queues.iter().filter(|queue| *at(queue, "/paused") == false);
        let ages = ages.filter_map(|queue| at(queue, "/oldest_ready_seconds").as_f64());
        Ok((status, ages.fold(0.0, f64::max)))
    }

    fn judge(&self, status: &Value, oldest: f64) -> (u8, String) {
        let state = at(status, "/state").as_str().unwrap_or_default();
        let count = |path: &str| at(status, path).as_u64().unwrap_or_default();
        let (ready, leased, dead) = (
            count("/states/ready"),
            count("/states/leased"),
            count("/states/dead"),
        );
        let is_over = |limit: Option<Period>| {
            limit.is_some_and(|limit| oldest * 1_000.0 > limit.as_ms() as f64)
        };
        let warnings = list(status, "/warnings", |it| {
            it.as_str().unwrap_or_default().to_owned()
        });
        let by_state = match state {
            "ready" if warnings.is_empty() => OK,
            "ready" | "draining" | "stopping" => WARNING,
            _ => CRITICAL,
        };
        let too_old = match (is_over(self.age_warning), is_over(self.age_critical)) {
            (_, true) => CRITICAL,
            (true, false) => WARNING,
            (false, false) => OK,
        };
        let many_dead = self.dead_warning.is_some_and(|most| dead > most);
        let verdict = by_state
            .max(too_old)
            .max(if many_dead { WARNING } else { OK });
        let limit = |limit: Option<Period>| {
            limit
                .map(|it| (it.as_ms() / 1_000).to_string())
                .unwrap_or_default()
        };
        let (warning, critical) = (limit(self.age_warning), limit(self.age_critical));
        let most_dead = self
            .dead_warning
            .map(|most| most.to_string())
            .unwrap_or_default();
        let jobs = counted(ready, "job");
        // Current and imminent refusals, as described by the daemon.
        let refusing = list(status, "/refusing", |it| {
            at(it, "/text").as_str().unwrap_or_default().to_owned()
        });
        let is_wanted = matches!(state, "ready" | "draining" | "stopping");
        let state = if is_wanted {
            state.to_owned()
        } else {
            refusing.join("; ")
        };
        let state = std::iter::once(state)
            .chain(warnings)
            .collect::<Vec<_>>()
            .join("; ");
        let words = format!(
            "{state}, {jobs} ready, {leased} leased, {dead} dead, the oldest ready for {oldest:.0}s"
        );
        let figures = format!(
            "oldest={oldest:.0}s;{warning};{critical};0 ready={ready} leased={leased} dead={dead};{most_dead};;0"
        );
        (verdict, format!("{words} | {figures}"))
    }
}
