//! The report that the daemon logs on SIGTTIN: connections, queues, threads.

use std::fs;

use windlass_engine::{ClientRow, Cursor, JobStateKind, Query, QueueRow, Reply, Stats, WorkerRow};

use windlass_hub::limited::shown;
use windlass_net::Acceptor;

/// Maximum number of connections and queues that are logged, and of rows that one visit to the
/// engine reads.
const ROWS_MAX: u32 = 100;

/// Logs the report. This may take a while, but each visit to the engine is short.
pub(crate) fn log(acceptor: &Acceptor) {
    tracing::info!("SIGTTIN: the report begins");
    stats(acceptor);
    workers(acceptor);
    clients(acceptor);
    queues(acceptor);
    threads(acceptor);
    tracing::info!("SIGTTIN: the report ends");
}

fn stats(acceptor: &Acceptor) {
    let Ok(Reply::Stats(stats)) = acceptor.broker().ask(Query::Stats.into()) else {
        return;
    };
    let Stats {
        jobs,
        bytes,
        places,
        queues,
        schedules,
        batches,
        workers,
        clients,
        ..
    } = *stats;
    let of = |state: JobStateKind| places.get(state as usize).copied().unwrap_or_default();
    let (ready, running, scheduled) = (
        of(JobStateKind::Ready),
        of(JobStateKind::Leased),
        of(JobStateKind::Scheduled),
    );
    let (retrying, dead) = (of(JobStateKind::Retrying), of(JobStateKind::Dead));
    // One client is the daemon itself.
    let connections = clients.saturating_sub(1);
    tracing::info!(
        connections,
        workers,
        queues,
        schedules,
        batches,
        bytes,
        "totals"
    );
    tracing::info!(jobs, ready, running, scheduled, retrying, dead, "jobs");
}

fn workers(acceptor: &Acceptor) {
    let page = acceptor.broker().ask(
        Query::Workers {
            after: Cursor::default(),
            limit: ROWS_MAX,
        }
        .into(),
    );
    let Ok(Reply::Workers { rows, next }) = page else {
        return;
    };
    for WorkerRow {
        name,
        protocol,
        state,
        connections,
        held,
        ..
    } in rows
    {
        let (protocol, name) = (
            protocol.map_or("?", |it| acceptor.names.name(it)),
            shown(&name),
        );
        tracing::info!(protocol, name, ?state, connections, jobs = held, "worker");
    }
    if next.is_some() {
        tracing::info!("more workers are not shown");
    }
}

fn clients(acceptor: &Acceptor) {
    let page = acceptor.broker().ask(
        Query::Clients {
            after: Cursor::default(),
            limit: ROWS_MAX,
        }
        .into(),
    );
    let Ok(Reply::Clients { rows, next }) = page else {
        return;
    };
    for ClientRow {
        number,
        address,
        label,
        protocol,
        subscriptions,
        held,
        waits,
        is_continued,
        ..
    } in rows
    {
        // The daemon's own client has no protocol.
        let Some(protocol) = protocol
            .filter(|_| !is_continued)
            .map(|it| acceptor.names.name(it))
        else {
            continue;
        };
        let (address, name, queues) = (&*address, shown(&label), subscriptions.len());
        tracing::info!(
            protocol,
            address,
            number,
            name,
            queues,
            jobs = held,
            waits,
            "connection"
        );
    }
    if next.is_some() {
        tracing::info!("more connections are not shown");
    }
}

/// The queues with the most jobs.
fn queues(acceptor: &Acceptor) {
    let (mut all, mut most, mut after) = (0, Vec::new(), Some(Cursor::default()));
    while let Some(page) = after.take() {
        let query = Query::Queues {
            after: page,
            limit: ROWS_MAX,
        };
        let Ok(Reply::Queues { rows, next }) = acceptor.broker().ask(query.into()) else {
            break;
        };
        all += rows.len();
        most.extend(rows);
        after = next;
        most.sort_by_key(|row| std::cmp::Reverse(jobs(row)));
        most.truncate(ROWS_MAX as usize);
    }
    for row in &most {
        let [ready, running, scheduled] = [
            JobStateKind::Ready,
            JobStateKind::Leased,
            JobStateKind::Scheduled,
        ]
        .map(|state| row.jobs(state));
        let [retrying, dead] =
            [JobStateKind::Retrying, JobStateKind::Dead].map(|state| row.jobs(state));
        let (queue, workers, paused) = (shown(&row.name), row.workers, row.is_paused());
        tracing::info!(
            queue, ready, running, scheduled, retrying, dead, workers, paused, "queue"
        );
    }
    if all > most.len() {
        tracing::info!(
            more = all - most.len(),
            "more queues, with fewer jobs, are not shown"
        );
    }
}

fn jobs(row: &QueueRow) -> u64 {
    row.places.iter().map(|jobs| u64::from(*jobs)).sum()
}

/// Logs all threads of the process, and the number of connections of each serving thread.
fn threads(acceptor: &Acceptor) {
    for (number, connections) in acceptor
        .thread_slots()
        .connections()
        .into_iter()
        .enumerate()
    {
        tracing::info!(number, connections, "serving thread");
    }
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    for task in tasks {
        let Ok(text) = fs::read_to_string(task.path().join("stat")) else {
            continue;
        };
        if let Some((name, state, cpu_ms)) = thread(&text, rustix::param::clock_ticks_per_second())
        {
            let tid = task.file_name().to_string_lossy().into_owned();
            tracing::info!(name, tid, state, cpu_ms, "thread");
        }
    }
}

/// Parses the line of a thread in `/proc` (proc(5)): its name, its state, and its CPU time in
/// milliseconds.
fn thread(stat: &str, ticks_per_second: u64) -> Option<(&str, &str, u64)> {
    // The name is in brackets and may contain brackets.
    let (head, rest) = stat.rsplit_once(") ")?;
    let (_, name) = head.split_once('(')?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let ticks: Vec<u64> = fields
        .skip(10)
        .take(2)
        .map_while(|field| field.parse().ok())
        .collect();
    let ticks: u64 = ticks.iter().sum();
    Some((name, state, ticks.saturating_mul(1_000) / ticks_per_second))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use windlass_engine::{Engine, JobCommand, Limits, NewJob, Protocol, QueueCommand, QueueKind};
    use windlass_store::Journal;

    use super::*;
    use windlass_hub::testing::captured;
    use windlass_hub::{Broker as _, Durability, Hub};
    use windlass_net::testing::acceptor;

    #[test]
    fn the_queues_with_the_most_jobs_are_listed_and_the_others_counted() {
        for (number, listed, more) in [
            (1, 1, ""),
            (ROWS_MAX, 100, ""),
            (ROWS_MAX + 2, 100, "more=2"),
        ] {
            let hub = Arc::new(Hub::new(
                Engine::new(Limits::default(), 7),
                Journal::new(),
                Durability::Soon,
                7,
            ));
            for n in 1..=number {
                let queue = Bytes::from(format!("q{n}"));
                hub.ask(
                    QueueCommand::Create {
                        queue,
                        kind: QueueKind::Work,
                    }
                    .into(),
                )
                .unwrap();
            }
            let (fullest, second) = (format!("q{number}"), format!("q{}", number / 2));
            for queue in [&fullest, &fullest, &fullest, &second, &second]
                .into_iter()
                .filter(|it| *it != "q0")
            {
                let job = NewJob::new(Protocol::GEARMAN, Bytes::from(queue.clone()), Bytes::new());
                hub.ask(JobCommand::Push(Box::new(job)).into()).unwrap();
            }
            let said = captured(|| queues(&acceptor(&hub)));
            assert_eq!(said.matches("queue queue=").count(), listed, "{said}");
            let order = said
                .lines()
                .zip([(&fullest, 3), (&second, 2)])
                .take(listed.min(2));
            for (line, (queue, jobs)) in order {
                assert!(
                    line.contains(&format!("queue=\"{queue}\" ready={jobs} ")),
                    "{line}"
                );
            }
            assert_eq!(said.contains("are not shown"), !more.is_empty(), "{said}");
            assert!(said.contains(more), "{said}");
        }
    }

    #[test]
    fn the_systems_line_about_a_thread() {
        let line = "4711 (a (b) c) S 1 4711 4711 0 -1 4194624 900 0 3 0 17 25 0 0 20 0 4 0 100 1 1 18446744073709551615\n";
        assert_eq!(thread(line, 100), Some(("a (b) c", "S", 420)));
        assert_eq!(thread("no line", 100), None);
        let own = fs::read_to_string("/proc/thread-self/stat").unwrap();
        assert!(
            thread(&own, 100).is_some_and(|(_, state, _)| state == "R"),
            "{own}"
        );
    }
}
