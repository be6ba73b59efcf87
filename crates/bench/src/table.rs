//! Every case, by sub-command.

use std::time::Duration;

use crate::cases::{Case, EXTRA, Needs, Work};
use crate::driver::Plan;
use crate::eventmq::{EVENTMQ, jobmanager};
use crate::faktory::FAKTORY;
use crate::gearman::GEARMAN;
use crate::protocol::Protocol;
use crate::shape::{BATCH, PIPELINE, Request, Shape, WORKERS, delivered, fetch_ack, foreground};
use crate::spiderq::SPIDERQ;

const SUMMARY_GEARMAN: [&str; 12] = [
    "bg-1",
    "bg-8",
    "bg-64",
    "pipe-1x64",
    "pipe-8x64",
    "pipe-64x64",
    "e2e-8x8",
    "fg-1x1",
    "fg-64x8",
    "cycle-8",
    "cycle-64",
    "cycle-64x16",
];
const SUMMARY_FAKTORY: [&str; 6] = [
    "push-50",
    "fetch-ack-1",
    "fetch-ack-10",
    "fetch-ack-50",
    "cycle-8",
    "cycle-64",
];

/// Producers pause when this number of jobs waits for workers, and resume at half of it. The bound gives a steady
/// state; without it, the faster submitter would build the longer queue and so lose.
const BACKLOG_MAX: u64 = 4096;
/// The same where each job costs two disk writes, so that the rest is done in about a second.
const DURABLE_BACKLOG_MAX: u64 = 512;
/// Waiting costs so little that a window of a second would span only a few clock ticks.
const IDLE_PLAN: Plan = Plan::Timed {
    warm: Duration::from_secs(4),
    window: Duration::from_secs(12),
};
/// The rows that show where the daemon stands.
pub(crate) fn summary() -> Vec<Case> {
    let rows = |all: Vec<Case>, names: &[&str], group| {
        let mut rows: Vec<_> = all
            .into_iter()
            .filter(|case| names.contains(&&*case.name))
            .collect();
        for row in &mut rows {
            (row.name, row.group) = (format!("{group}-{}", row.name), group);
        }
        rows
    };
    [
        rows(gearman(), &SUMMARY_GEARMAN, "gearman"),
        rows(faktory(), &SUMMARY_FAKTORY, "faktory"),
    ]
    .concat()
}

/// One row of the tables below.
fn row(protocol: &'static Protocol, group: &'static str) -> impl Fn((&str, &str, Shape)) -> Case {
    move |(name, about, shape)| case(protocol, group, name, about, Work::Load(shape))
}

const fn flow(clients: usize, window: usize, workers: usize) -> Shape {
    Shape::flow(clients, window, workers, BACKLOG_MAX)
}

pub(crate) fn gearman() -> Vec<Case> {
    let memory = [
        (
            "echo-1",
            "echo, one connection, one at a time",
            Shape::clients(Request::Echo, 1, 1),
        ),
        (
            "bg-1",
            "background submit, 1 connection, one at a time",
            Shape::submit(1, 1),
        ),
        (
            "bg-8",
            "background submit, 8 connections, one at a time each",
            Shape::submit(8, 1),
        ),
        (
            "bg-64",
            "background submit, 64 connections, one at a time each",
            Shape::submit(64, 1),
        ),
        (
            "bg-1000",
            "background submit, 1,000 connections, one at a time each",
            Shape::submit(1000, 1),
        ),
        (
            "pipe-1",
            "background submit, 1 connection, 128 in flight",
            Shape::submit(1, PIPELINE),
        ),
        (
            "pipe-8",
            "background submit, 8 connections, 128 in flight each",
            Shape::submit(8, PIPELINE),
        ),
        (
            "pipe-64",
            "background submit, 64 connections, 128 in flight each",
            Shape::submit(64, PIPELINE),
        ),
        (
            "pipe-1x64",
            "background submit, 1 connection, 64 in flight",
            Shape::submit(1, 64),
        ),
        (
            "pipe-8x64",
            "background submit, 8 connections, 64 in flight each",
            Shape::submit(8, 64),
        ),
        (
            "pipe-64x64",
            "background submit, 64 connections, 64 in flight each",
            Shape::submit(64, 64),
        ),
        (
            "e2e-1x1",
            "submit, grab, complete: 1 producer, 1 worker",
            flow(1, 1, 1),
        ),
        (
            "e2e-8x8",
            "submit, grab, complete: 8 producers, 8 workers",
            flow(8, 1, 8),
        ),
        (
            "e2e-8x8-pipe",
            "the same, 128 submits in flight per producer",
            flow(8, PIPELINE, 8),
        ),
        (
            "herd-64",
            "submit, grab, complete: 1 producer, 64 workers that sleep when idle",
            flow(1, 1, 64),
        ),
        (
            "herd-64-one",
            "the same, one job at a time: submitted when the last has been worked",
            Shape::flow(1, 1, 64, 1),
        ),
        (
            "fg-1x1",
            "foreground round trip: 1 client, 1 worker",
            foreground(1, 1),
        ),
        (
            "fg-64x8",
            "foreground round trip: 64 clients, 8 workers",
            foreground(64, 8),
        ),
    ];
    let memory: Vec<Case> = memory.into_iter().map(row(&GEARMAN, "memory")).collect();
    let on_disk = [
        "bg-1",
        "bg-8",
        "bg-64",
        "pipe-1",
        "pipe-8",
        "e2e-8x8",
        "e2e-8x8-pipe",
    ];
    let durable = |case: &Case| {
        let Work::Load(shape) = case.work else {
            return None;
        };
        let backlog_max = if shape.workers > 0 {
            DURABLE_BACKLOG_MAX
        } else {
            shape.backlog_max
        };
        let work = Work::Load(Shape {
            backlog_max,
            unique: true,
            ..shape
        });
        let (name, needs) = (format!("durable-{}", case.name), Needs::Durability);
        on_disk.contains(&&*case.name).then(|| Case {
            name,
            group: "durable",
            needs,
            work,
            ..case.clone()
        })
    };
    let durable: Vec<Case> = memory.iter().filter_map(durable).collect();
    let fill = |name, about, unique| {
        case(
            &GEARMAN,
            EXTRA,
            name,
            about,
            Work::Fill { jobs: JOBS, unique },
        )
    };
    let queue = vec![
        fill(
            "fill-100k",
            "fill a queue, random unique ids; 8 workers empty it",
            true,
        ),
        fill(
            "fill-plain-100k",
            "fill a queue, empty unique ids; 8 workers empty it",
            false,
        ),
        restart(&GEARMAN),
    ];
    [memory, durable, cycles(&GEARMAN, "cycle", 3), queue].concat()
}

/// The same in all protocols that have it.
fn cycles(protocol: &'static Protocol, group: &'static str, count: usize) -> Vec<Case> {
    let shape = |clients, window| Shape::clients(Request::Job, clients, window);
    let rows = [
        (
            "cycle-8",
            "push, take, finish: 8 connections, one job at a time each",
            shape(8, 1),
        ),
        (
            "cycle-64",
            "push, take, finish: 64 connections, one job at a time each",
            shape(64, 1),
        ),
        (
            "cycle-64x16",
            "push, take, finish: 64 connections, 16 jobs in flight each",
            shape(64, 16),
        ),
    ];
    rows.into_iter()
        .take(count)
        .map(row(protocol, group))
        .collect()
}

pub(crate) fn faktory() -> Vec<Case> {
    let loads = [
        (
            "push-1",
            "PUSH, 1 connection, one at a time",
            Shape::submit(1, 1),
        ),
        (
            "push-50",
            "PUSH, 50 connections, one at a time each",
            Shape::submit(50, 1),
        ),
        (
            "pushb-1000",
            "PUSHB of 1,000 jobs, 1 connection, one at a time",
            Shape::submit(1, BATCH),
        ),
        (
            "pushb-1000x8",
            "the same, 8 connections",
            Shape::submit(8, BATCH),
        ),
        (
            "fetch-ack-1",
            "FETCH, then ACK, 1 connection, one command at a time",
            fetch_ack(1, false, 20_000),
        ),
        (
            "fetch-ack-10",
            "the same, 10 connections",
            fetch_ack(10, false, 100_000),
        ),
        (
            "fetch-ack-50",
            "the same, 50 connections",
            fetch_ack(50, false, 200_000),
        ),
        (
            "fetch-ack-50-eager",
            "the same, ACK and the next FETCH in one write",
            fetch_ack(50, true, 200_000),
        ),
        (
            "blocked-fetch",
            "1 producer, 10 workers that wait in FETCH, one job at a time: up to the worker",
            Shape::flow(1, 1, 10, 1),
        ),
        (
            "blocked-2000",
            "2,000 workers that wait in FETCH for nothing, and again; a job is a FETCH that came back empty",
            Shape::clients(Request::Echo, 2000, 1),
        ),
    ];
    let mut cases: Vec<Case> = loads.into_iter().map(row(&FAKTORY, "steady")).collect();
    if let Some(Case { work, .. }) = cases.last_mut()
        && let Work::Load(shape) = *work
    {
        *work = Work::Idle(shape, IDLE_PLAN);
    }
    let fill = Work::Fill {
        jobs: JOBS,
        unique: false,
    };
    let about = "fill a queue (PUSHB of 1,000, 8 connections); 50 workers empty it";
    let queue = vec![
        case(&FAKTORY, EXTRA, "fill-100k", about, fill),
        restart(&FAKTORY),
    ];
    [cases, cycles(&FAKTORY, "steady", 2), queue].concat()
}

pub(crate) fn spiderq() -> Vec<Case> {
    // Tasks in the queue: many times the number in flight.
    let requests = [
        ("ping", "Ping", Request::Echo, 0),
        ("add", "Add, values of 100 bytes", Request::Submit, 0),
        (
            "cycle",
            "Lend, then Repay to the end of a queue of 10,000, values of 100 bytes",
            Request::Cycle,
            10_000,
        ),
    ];
    let shapes = [
        (1, 1, "1 connection, one at a time"),
        (8, 1, "8 connections, one at a time each"),
        (4, 64, "4 connections, 64 in flight each"),
    ];
    let mut cases = Vec::new();
    for (group, request_about, request, queued) in requests {
        for (connections, window, about) in shapes {
            let shape = Shape {
                queued,
                ..Shape::clients(request, connections, window)
            };
            let (name, about) = (
                format!("{group}-{connections}x{window}"),
                format!("{request_about}; {about}"),
            );
            cases.push(row(&SPIDERQ, group)((&name, &about, shape)));
        }
    }
    let about = "1 connection adds, 10 wait in Lend, one task at a time: up to the Lend";
    cases.push(row(&SPIDERQ, "blocked-lend")((
        "blocked-lend",
        about,
        Shape::flow(1, 1, 10, 1),
    )));
    cases
}

pub(crate) fn eventmq() -> Vec<Case> {
    let shapes = [
        (1, 1, "1 client, one at a time"),
        (8, 1, "8 clients, one at a time each"),
        (4, 64, "4 clients, 64 in flight each"),
        (1, 256, "1 client, 256 in flight"),
        (8, 256, "8 clients, 256 in flight each"),
    ];
    let e2e = shapes.iter().map(|(clients, window, shape)| {
        let about = format!(
            "request up to the worker, which answers; {shape}; {WORKERS} workers of 64 credits"
        );
        let name = format!("e2e-{clients}x{window}");
        row(&EVENTMQ, "e2e")((&name, &about, delivered(*clients, *window)))
    });
    let request = shapes.iter().take(3).map(|(clients, window, shape)| {
        let about = format!("request up to its acceptance, without workers; {shape}");
        let (name, load) = (
            format!("request-{clients}x{window}"),
            Shape::submit(*clients, *window),
        );
        Case {
            needs: Needs::Count,
            ..row(&EVENTMQ, "request")((&name, &about, load))
        }
    });
    let work = Work::Own {
        jobs: 500,
        run: jobmanager::run,
    };
    let about = "requests at once to the released JobManager with 2 processes, until all are done";
    e2e.chain(request)
        .chain([case(&EVENTMQ, "jobmanager", "jobmanager-500", about, work)])
        .collect()
}

/// One case. Work with a number of jobs has it at the end of its name.
fn case(
    protocol: &'static Protocol,
    group: &'static str,
    name: &str,
    about: &str,
    work: Work,
) -> Case {
    let needs = if let Work::Restart { .. } = work {
        Needs::Durability
    } else {
        Needs::Memory
    };
    Case {
        protocol,
        name: name.to_owned(),
        group,
        about: about.to_owned(),
        needs,
        work,
    }
}

const JOBS: u64 = 100_000;

fn restart(protocol: &'static Protocol) -> Case {
    let about = "kill -9 with a full queue; how long until every job is counted again";
    case(
        protocol,
        EXTRA,
        "restart-100k",
        about,
        Work::Restart { jobs: JOBS },
    )
}
