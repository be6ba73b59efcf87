//! Log lines for the operator: the engine's warnings, closed connections, open addresses.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use windlass_config::Address;
use windlass_engine::{Capacity, Refusal, Thing, Warning, WarningKind};
use windlass_session::Reason;

use crate::config::Config;
use crate::logging::limited::{shown, warn_limited};
use crate::protocols::ProtocolNames;

/// Logs a warning for each notice. Do not call it with the hub's lock held.
pub(crate) fn tell(warnings: Vec<Warning>, names: &ProtocolNames) {
    warnings.into_iter().for_each(|notice| tell_one(&notice, names));
}

fn tell_one(Warning { kind, times, queue, name, why }: &Warning, names: &ProtocolNames) {
    let [queue, name, why] = [queue, name, why].map(|text| shown(text));
    match kind {
        WarningKind::Buried => {
            warn_limited!(
                "buried",
                times = *times,
                queue,
                job = name,
                why,
                "a job failed for good: it is in the dead-letter queue"
            );
        }
        WarningKind::LostForGood => {
            warn_limited!(
                "lost for good",
                times = *times,
                queue,
                job = name,
                "a job was dropped: its workers were lost too often"
            );
        }
        WarningKind::Unfit { is_dead: false } => {
            let what = "a job cannot be converted for a worker's protocol: it waits for a worker of another protocol";
            warn_limited!("unfit", times = *times, queue, job = name, why, "{what}");
        }
        WarningKind::Unfit { is_dead: true } => {
            let what = "a job cannot be converted for its worker or any other: it is in the dead-letter queue";
            warn_limited!("unfit and dead", times = *times, queue, job = name, why, "{what}");
        }
        WarningKind::Unserved { jobs, workers } => {
            let workers: Vec<&str> = workers.iter().map(|workers| names.title(*workers)).collect();
            let (jobs, workers) = (names.title(*jobs), workers.join(" and "));
            warn_limited!(
                format!("unserved: {queue}"),
                times = *times,
                "{jobs} jobs wait in `{queue}`, which only {workers} workers serve: see bridge.queues"
            );
        }
        WarningKind::Expired => {
            warn_limited!(
                "expired",
                times = *times,
                queue,
                job = name,
                "a job expired before a worker took it: dropped it"
            );
        }
        WarningKind::QueuesNearlyFull => {
            let what = "nine of ten names for queues are in use: see limits.queues_max";
            warn_limited!("queues", times = *times, "{what}");
        }
        WarningKind::Refused(refusal) => {
            let reason = format!("refused: {}", name_of(*refusal));
            warn_limited!(reason, times = *times, queue, why = %refusal, "a job was refused");
        }
        WarningKind::RunRefused(refusal) => {
            let reason = format!("run refused: {}", name_of(*refusal));
            warn_limited!(reason, times = *times, queue, schedule = name, why = %refusal, "a scheduled run was refused");
        }
        WarningKind::OnDeadRefused(refusal) => {
            let reason = format!("on_dead refused: {}", name_of(*refusal));
            let what = "the job that on_dead names was refused: the dead job stays dead";
            warn_limited!(reason, times = *times, queue, dead = name, why = %refusal, "{what}");
        }
    }
}

/// A refusal's name without its figures, as log lines group by it.
const fn name_of(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Limit { what, .. } => match what {
            Capacity::QueueJobs => "QueueFull",
            Capacity::Jobs => "JobsFull",
            Capacity::JobBytes => "BytesFull",
            Capacity::Queues => "QueuesFull",
            Capacity::Schedules => "SchedulesFull",
            Capacity::Batches => "BatchesFull",
            Capacity::BatchDepth => "BatchTooDeep",
            Capacity::Subscriptions => "AbilitiesFull",
            Capacity::NameBytes => "NameTooLong",
            Capacity::BodyBytes => "BodyTooLong",
        },
        Refusal::NotFound(thing) => match thing {
            Thing::Job => "UnknownJob",
            Thing::Schedule => "UnknownSchedule",
            Thing::Batch => "UnknownBatch",
            Thing::Queue => "UnknownQueue",
            Thing::Worker => "UnknownWorker",
            Thing::Client => "UnknownConnection",
        },
        Refusal::NotUnique => "NotUnique",
        Refusal::NotHeld => "NotHeld",
        Refusal::InUse => "QueueInUse",
        Refusal::WrongKind => "WrongKind",
        Refusal::NotPermitted => "NotPermitted",
        Refusal::NeverDue => "NeverDue",
        Refusal::OutOfPlace => "OutOfPlace",
        Refusal::Unavailable => "Unavailable",
        Refusal::Unknown => "Unknown",
    }
}

/// Warns when the daemon closed a connection because of its peer.
pub(crate) fn hung_up(protocol: &'static str, peer: &str, reason: &Reason) {
    let key = match reason {
        Reason::PeerClosed | Reason::Ended | Reason::Shutdown => return,
        Reason::WrongPassword => {
            return warn_limited!("wrong password", protocol, peer, "closed a connection: wrong password");
        }
        Reason::Protocol(_) => format!("closed: {protocol}: protocol error"),
        Reason::TimedOut(_) | Reason::Limit(_) | Reason::ClosedByServer => format!("closed: {protocol}: {reason}"),
    };
    let why = shown(reason.to_string().as_bytes());
    warn_limited!(key, protocol, peer, why, "closed a connection");
}

/// Warns of an address that other machines can reach and that requires no authentication.
pub(crate) fn open_to_all(protocol: &'static str, address: &Address) {
    tracing::warn!(
        protocol,
        %address,
        "anyone who can reach this address can submit, take and remove jobs: it asks for neither a password nor a certificate"
    );
}

/// Warns of a data directory that other users of the machine can enter, and of files with secrets that they can read.
pub(crate) fn exposed(config: &Config) {
    const OTHERS: u32 = 0o007;
    const OTHERS_READ: u32 = 0o004;
    let mode_of = |path: &Path| fs::metadata(path).map_or(0, |about| about.permissions().mode() & 0o7777);
    let mode = mode_of(&config.data_dir);
    if mode & OTHERS != 0 && !config.ephemeral {
        let (data_dir, mode) = (config.data_dir.display(), format!("{mode:04o}"));
        tracing::warn!(%data_dir, mode, "the data directory is open to other users of this machine: chmod o= closes it");
    }
    for (key, value) in &config.values {
        let path = Path::new(value.trim_matches('"'));
        let mode = mode_of(path);
        if is_secret_file(key) && mode & OTHERS_READ != 0 {
            let (path, mode) = (path.display(), format!("{mode:04o}"));
            tracing::warn!(key, %path, mode, "a secret is open to other users of this machine: chmod o= closes its file");
        }
    }
}

/// Whether a key names a file with a private key, passwords or logins.
fn is_secret_file(key: &str) -> bool {
    ["tls.key", "password_file", "secret_key_file", "http.logins"].iter().any(|end| key.ends_with(end))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use windlass_engine::{Capacity, Protocol};

    use super::*;
    use crate::config::fixture::config;
    use crate::logging::captured;

    fn warn(kind: WarningKind, times: u64) -> Warning {
        let [queue, name, why] = ["mail", "first", "IOError: gone"].map(|text| Bytes::from_static(text.as_bytes()));
        Warning { kind, times, queue, name, why }
    }

    #[test]
    fn each_kind_of_refusal_has_its_line() {
        let names = ProtocolNames::default();
        let refused = |refusal| warn(WarningKind::Refused(refusal), 1);
        let said = captured(|| {
            let full = [7, 8].map(|limit: u32| refused(Capacity::QueueJobs.exceeded(limit, limit)));
            tell(full.into_iter().chain([refused(Refusal::NotUnique)]).collect(), &names);
        });
        assert_eq!(said.lines().count(), 2, "the figures do not matter: {said}");
    }

    #[test]
    fn every_notice_has_its_line() {
        let unserved = WarningKind::Unserved { jobs: Protocol::FAKTORY, workers: vec![Protocol::GEARMAN] };
        let full = Capacity::QueueJobs.exceeded(7_u32, 7_u32);
        let table = [
            (WarningKind::Buried, 1, "why=\"IOError: gone\""),
            (WarningKind::LostForGood, 1, "its workers were lost too often"),
            (WarningKind::Unfit { is_dead: false }, 1, "it waits for a worker of another"),
            (WarningKind::Unfit { is_dead: true }, 1, "it is in the dead-letter queue"),
            (unserved, 1, "FWP jobs wait in `mail`, which only Gearman workers serve: see bridge.queues"),
            (WarningKind::Expired, 38, "more_like_it=37"),
            (WarningKind::Refused(full), 1, "a job was refused queue=\"mail\" why=queue holds 7 jobs, limit 7"),
            (WarningKind::RunRefused(Refusal::NotUnique), 1, "schedule=\"first\" why=job not unique"),
            (WarningKind::OnDeadRefused(full), 1, "dead=\"first\" why=queue holds 7 jobs, limit 7"),
        ];
        let names = ProtocolNames::of(&config(""));
        for (kind, times, expected) in table {
            let said = captured(|| tell(vec![warn(kind.clone(), times)], &names));
            assert!(said.contains("WARN") && said.contains(expected) && said.contains("mail"), "{kind:?}: {said}");
        }
    }
}
