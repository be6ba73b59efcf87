//! `windlass check --live`: one line and an exit code, as Nagios and its relatives expect them of a plugin.

use hyper::StatusCode;
use serde_json::{Value, json};
use windlass_config::Period;
use windlass_server::Failure;

use super::client::{Client, Daemon};
use super::{Check, DataDir, at, failure, pages, print};

/// The result of a check, in Nagios' words. Its number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Ok,
    Warning,
    Critical,
}

/// Why there are no figures.
#[derive(Debug)]
enum Unseen {
    /// No daemon answers, or it has trouble.
    Down(Failure),
    /// The check itself cannot be made; the daemon may be well.
    Unknown(Failure),
}

/// The exit code if the check itself cannot be made.
const UNKNOWN: u8 = 3;

/// Runs the check and returns the exit code.
#[must_use]
pub fn check(check: &Check, data_dir: DataDir) -> u8 {
    let daemon = match check.ask.daemon(data_dir) {
        Ok(daemon) => daemon,
        Err(why) => return conclude(check.ask.json, "UNKNOWN", &why.to_string(), UNKNOWN),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure);
    let looked = runtime.map_err(Unseen::Unknown).and_then(|runtime| runtime.block_on(check.look(&daemon)));
    match looked {
        Ok((status, oldest)) => {
            let (verdict, text) = check.judge(&status, oldest);
            let (word, code) = match verdict {
                Verdict::Ok => ("OK", 0),
                Verdict::Warning => ("WARNING", 1),
                Verdict::Critical => ("CRITICAL", 2),
            };
            conclude(check.ask.json, word, &text, code)
        }
        Err(Unseen::Down(why)) => conclude(check.ask.json, "CRITICAL", &why.to_string(), 2),
        Err(Unseen::Unknown(why)) => conclude(check.ask.json, "UNKNOWN", &why.to_string(), UNKNOWN),
    }
}

/// A check that cannot be made because the command line is wrong. Returns the exit code.
#[must_use]
pub fn not_checked(why: &str) -> u8 {
    conclude(false, "UNKNOWN", why, UNKNOWN)
}

fn conclude(is_json: bool, word: &str, text: &str, code: u8) -> u8 {
    let line = match is_json {
        true => json!({"verdict": word, "code": code, "text": text}).to_string(),
        false => format!("WINDLASS {word} - {text}"),
    };
    // A closed standard output does not change the verdict.
    let _ = print(&format!("{line}\n"));
    code
}

/// The status, and the age of the oldest ready job of the queues that are not paused.
async fn look(client: &mut Client) -> Result<(Value, f64), Failure> {
    let status = client.get("/status").await?;
    let queues = pages(client, "/queues", "queues", usize::MAX).await?;
    let ages = queues.iter().filter(|queue| *at(queue, "/paused") == false);
    let ages = ages.filter_map(|queue| at(queue, "/oldest_ready_seconds").as_f64());
    Ok((status, ages.fold(0.0, f64::max)))
}

impl Check {
    async fn look(&self, daemon: &Daemon) -> Result<(Value, f64), Unseen> {
        let is_ours = |why: &Failure| matches!(why, Failure::Source { .. });
        let unseen = |why| if is_ours(&why) { Unseen::Unknown(why) } else { Unseen::Down(why) };
        let mut client = self.ask.connect_to(daemon).await.map_err(unseen)?;
        look(&mut client).await.map_err(|why| match client.refusal() {
            Some(StatusCode::UNAUTHORIZED) => {
                Unseen::Unknown(failure(format!("the daemon requires a valid login ({why}): --login names its file")))
            }
            Some(StatusCode::FORBIDDEN) => Unseen::Unknown(failure(format!("the login may not ask: {why}"))),
            Some(status) if status.is_client_error() => {
                Unseen::Unknown(failure(format!("the daemon refuses the check: {why}")))
            }
            _ => Unseen::Down(why),
        })
    }

    fn judge(&self, status: &Value, oldest: f64) -> (Verdict, String) {
        let state = at(status, "/state").as_str().unwrap_or_default();
        let count = |path: &str| at(status, path).as_u64().unwrap_or_default();
        let (ready, leased, dead) = (count("/states/ready"), count("/states/leased"), count("/states/dead"));
        let is_over = |limit: Option<Period>| limit.is_some_and(|limit| oldest * 1_000.0 > limit.as_ms() as f64);
        let by_state = match state {
            "ready" => Verdict::Ok,
            "draining" | "stopping" => Verdict::Warning,
            _ => Verdict::Critical,
        };
        let too_old = match (is_over(self.age_warning), is_over(self.age_critical)) {
            (_, true) => Verdict::Critical,
            (true, false) => Verdict::Warning,
            (false, false) => Verdict::Ok,
        };
        let many_dead = self.dead_warning.is_some_and(|most| dead > most);
        let verdict = by_state.max(too_old).max(if many_dead { Verdict::Warning } else { Verdict::Ok });
        let limit = |limit: Option<Period>| limit.map(|it| (it.as_ms() / 1_000).to_string()).unwrap_or_default();
        let (warning, critical) = (limit(self.age_warning), limit(self.age_critical));
        let most_dead = self.dead_warning.map(|most| most.to_string()).unwrap_or_default();
        let words =
            format!("{state}, {ready} jobs ready, {leased} leased, {dead} dead, the oldest ready for {oldest:.0}s");
        let figures = format!(
            "oldest={oldest:.0}s;{warning};{critical};0 ready={ready} leased={leased} dead={dead};{most_dead};;0"
        );
        (verdict, format!("{words} | {figures}"))
    }
}
