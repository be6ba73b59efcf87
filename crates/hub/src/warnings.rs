//! Log lines for the operator: the engine's warnings.

use windlass_engine::{Capacity, Refusal, Thing, Warning, WarningKind};

use crate::limited::shown;
use crate::names::ProtocolNames;
use crate::warn_limited;

/// Logs each warning. Must not be called with the hub's lock held.
pub(crate) fn log(warnings: Vec<Warning>, names: &ProtocolNames) {
    for warning in warnings {
        log_one(warning, names);
    }
}

fn log_one(
    Warning {
        kind,
        times,
        queue,
        name,
        why,
    }: Warning,
    names: &ProtocolNames,
) {
    let [queue, name, why] = [queue, name, why].map(|text| shown(&text));
    macro_rules! line {
        ($reason:expr, $($line:tt)+) => {
            warn_limited!($reason, times = times, $($line)+)
        };
    }
    match kind {
        WarningKind::Buried => {
            line!(
                "buried",
                queue,
                job = name,
                why,
                "a job failed permanently: moved to the dead-letter queue"
            );
        }
        WarningKind::WorkerLost => {
            line!(
                "worker lost",
                queue,
                job = name,
                worker = why,
                "lost a worker that had a job: the job will be handed out again"
            );
        }
        WarningKind::LostForGood => {
            line!(
                "lost for good",
                queue,
                job = name,
                "dropped a job: too many of its workers were lost"
            );
        }
        WarningKind::Unfit { is_dead: false } => {
            line!(
                "unfit",
                queue,
                job = name,
                why,
                "cannot convert a job for a worker's protocol: it waits for a worker of another protocol"
            );
        }
        WarningKind::Unfit { is_dead: true } => {
            line!(
                "unfit and dead",
                queue,
                job = name,
                why,
                "cannot convert a job for any of its workers: moved to the dead-letter queue"
            );
        }
        WarningKind::Unserved { jobs, workers } => {
            let workers: Vec<&str> = workers.iter().map(|it| names.title(*it)).collect();
            let workers = workers.join(" and ");
            let jobs = names.title(jobs);
            line!(
                format!("unserved: {queue}"),
                "{jobs} jobs wait in `{queue}`, which only {workers} workers serve: see bridge.queues"
            );
        }
        WarningKind::Expired => {
            line!(
                "expired",
                queue,
                job = name,
                "dropped a job that expired before a worker took it"
            );
        }
        WarningKind::Forgotten => {
            line!(
                "forgotten",
                queue,
                job = name,
                "forgot an ended job early: results and the keys of `dedup` may use a quarter of the memory for jobs \
                        (limits.memory, limits.jobs_bytes_max), and nothing that new jobs need (limits.jobs_max)"
            );
        }
        WarningKind::QueuesNearlyFull => {
            line!(
                "queues",
                "90 % of the queue names are in use: see limits.queues_max"
            );
        }
        WarningKind::Refused(refusal) => {
            let reason = format!("refused: {}", name_of(refusal));
            line!(reason, queue, why = %refusal, "job rejected");
        }
        WarningKind::NoRoom(refusal) => {
            line!("no room", why = %refusal, "rejected a name, a subscription, a worker or a wait: see limits.memory");
        }
        WarningKind::RunRefused(refusal) => {
            let reason = format!("run refused: {}", name_of(refusal));
            line!(reason, queue, schedule = name, why = %refusal, "scheduled run rejected");
        }
        WarningKind::Keyless => {
            line!(
                format!("keyless: {queue}"),
                queue,
                job = name,
                "cannot read the policy key of a job: it shares the empty key"
            );
        }
        WarningKind::OnDeadRefused(refusal) => {
            let reason = format!("on_dead refused: {}", name_of(refusal));
            line!(reason, queue, dead = name, why = %refusal, "the job of on_dead was rejected: the dead job stays dead");
        }
    }
}

/// A refusal's name without its numbers, by which log lines are grouped.
const fn name_of(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Limit { what, .. } => match what {
            Capacity::QueueJobs => "QueueFull",
            Capacity::KeyJobs => "KeyFull",
            Capacity::Jobs => "JobsFull",
            Capacity::JobBytes => "BytesFull",
            Capacity::Queues => "QueuesFull",
            Capacity::Schedules => "SchedulesFull",
            Capacity::Batches => "BatchesFull",
            Capacity::BatchDepth => "BatchTooDeep",
            Capacity::Subscriptions => "AbilitiesFull",
            Capacity::NameBytes => "NameTooLong",
            Capacity::BodyBytes => "BodyTooLong",
            Capacity::Namespaces => "NamespacesFull",
            Capacity::NamespaceJobs => "NamespaceJobsFull",
            Capacity::NamespaceBytes => "NamespaceBytesFull",
            Capacity::NamespaceQueues => "NamespaceQueuesFull",
            Capacity::NamespaceClients => "NamespaceConnectionsFull",
            Capacity::NamespacePushes => "NamespacePushesFull",
        },
        Refusal::NotFound(thing) => match thing {
            Thing::Job => "UnknownJob",
            Thing::Schedule => "UnknownSchedule",
            Thing::Batch => "UnknownBatch",
            Thing::Queue => "UnknownQueue",
            Thing::Worker => "UnknownWorker",
            Thing::Client => "UnknownConnection",
            Thing::Namespace => "UnknownNamespace",
        },
        Refusal::NotUnique => "NotUnique",
        Refusal::NotHeld => "NotHeld",
        Refusal::InUse => "QueueInUse",
        Refusal::WrongKind => "WrongKind",
        Refusal::NotPermitted => "NotPermitted",
        Refusal::NeverDue => "NeverDue",
        Refusal::OutOfPlace => "OutOfPlace",
        Refusal::Unavailable => "Unavailable",
        Refusal::DiskFull => "DiskFull",
        Refusal::Unknown => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use windlass_engine::{Capacity, Protocol};

    use super::*;
    use crate::testing::captured;

    fn warn(kind: WarningKind, times: u64) -> Warning {
        let [queue, name, why] =
            ["mail", "first", "IOError: gone"].map(|text| Bytes::from_static(text.as_bytes()));
        Warning {
            kind,
            times,
            queue,
            name,
            why,
        }
    }

    #[test]
    fn each_kind_of_refusal_has_its_line() {
        let names = ProtocolNames::default();
        let refused = |refusal| warn(WarningKind::Refused(refusal), 1);
        let said = captured(|| {
            let full = [7, 8].map(|limit: u32| refused(Capacity::QueueJobs.exceeded(limit, limit)));
            log(
                full.into_iter()
                    .chain([refused(Refusal::NotUnique)])
                    .collect(),
                &names,
            );
        });
        assert_eq!(said.lines().count(), 2, "the figures do not matter: {said}");
    }

    #[test]
    fn every_notice_has_its_line() {
        let unserved = WarningKind::Unserved {
            jobs: Protocol::FAKTORY,
            workers: vec![Protocol::GEARMAN],
        };
        let full = Capacity::QueueJobs.exceeded(7_u32, 7_u32);
        let table = [
            (WarningKind::Buried, 1, "why=\"IOError: gone\""),
            (WarningKind::WorkerLost, 1, "lost a worker that had a job"),
            (
                WarningKind::LostForGood,
                1,
                "too many of its workers were lost",
            ),
            (
                WarningKind::Unfit { is_dead: false },
                1,
                "it waits for a worker of another",
            ),
            (
                WarningKind::Unfit { is_dead: true },
                1,
                "moved to the dead-letter queue",
            ),
            (
                unserved,
                1,
                "FWP jobs wait in `mail`, which only Gearman workers serve: see bridge.queues",
            ),
            (WarningKind::Expired, 38, "more_like_it=37"),
            (
                WarningKind::Refused(full),
                1,
                "job rejected queue=\"mail\" why=queue is full: jobs 7, limit 7",
            ),
            (
                WarningKind::RunRefused(Refusal::NotUnique),
                1,
                "schedule=\"first\" why=job not unique",
            ),
            (WarningKind::Forgotten, 2, "forgot an ended job early"),
            (
                WarningKind::Keyless,
                1,
                "cannot read the policy key of a job",
            ),
            (
                WarningKind::OnDeadRefused(full),
                1,
                "dead=\"first\" why=queue is full: jobs 7, limit 7",
            ),
        ];
        let names = ProtocolNames::new(vec![
            (Protocol::FAKTORY, "faktory", "FWP"),
            (Protocol::GEARMAN, "gearman", "Gearman"),
        ]);
        for (kind, times, expected) in table {
            let said = captured(|| log(vec![warn(kind.clone(), times)], &names));
            assert!(
                said.contains("WARN") && said.contains(expected) && said.contains("mail"),
                "{kind:?}: {said}"
            );
        }
    }
}
