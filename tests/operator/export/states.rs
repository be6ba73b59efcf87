//! Jobs in every state, and everything else that a store keeps, as clients of all protocols make it. And what of this a
//! fingerprint lacks.

use std::fs;

use bytes::Bytes;
use windlass_engine::{
    Expiry, JobState, JobStateKind, KeyUntil, Protocol, QueueKind, Recurrence, Role, Stage,
    Timestamp,
};
use windlass_gearman::wire::{Request, Response, Schedule, Submission};
use windlass_testkit::daemon::Daemon;
use windlass_testkit::store::Fingerprint;

use super::Home;
use crate::common::faktory::Fwp;
use crate::common::http::{Answer, Http};
use crate::common::{Peer, daemon, wait_until};
use crate::common::{eventmq, spiderq};

/// A moment that no test sees.
const FAR_S: u64 = 4_000_000_000;

/// A daemon that has this many jobs to try again, in a hundred years.
pub(super) fn started(home: &Home, retrying: u64) -> Daemon {
    let line = |n| {
        format!(
            "{{\"queue\":\"failed\",\"body\":\"{n}\",\"place\":\"retrying\",\"due_at_ms\":4949000000000,\
             \"failures\":2}}\n"
        )
    };
    fs::write(
        home.path("failed"),
        (0..retrying).map(line).collect::<String>(),
    )
    .unwrap();
    home.says("data", &["import", "jsonl", &home.text("failed")]);
    let cron = "[[faktory.cron]]\nschedule = \"17 3 29 2 *\"\ntimezone = \"Europe/Berlin\"\njob = { type = \"Nightly\" }\n";
    let rules = "[queues.ruled]\ncodec = \"json\"\nretry = { count = 3, backoff = \"2s\" }\nbody_bytes_max = \"1MiB\"\n";
    let plan = daemon(home.0.path())
        .set("[limits]\njobs_bytes_max = \"2GiB\"\n")
        .set("[bridge]\nqueues = [\"shared\"]\n");
    plan.set(cron)
        .set(rules)
        .eventmq("dedup = \"1h\"\n")
        .start()
}

/// All of it.
pub(super) fn fill(daemon: &Daemon, home: &Home) {
    fill_http(daemon, home);
    fill_faktory(daemon);
    fill_gearman(daemon);
    fill_spiderq(daemon);
    fill_eventmq(daemon);
    pause_a_schedule(daemon, home);
}

pub(super) fn ok(answer: Answer) -> Answer {
    assert!((200..300).contains(&answer.status), "{answer:?}");
    answer
}

pub(super) fn push(http: Http, queue: &str, terms: &str, body: &[u8]) -> u64 {
    ok(http.post(&format!("/api/v1/queues/{queue}/jobs?{terms}"), body)).json()["id"]
        .as_u64()
        .unwrap()
}

fn fill_http(daemon: &Daemon, home: &Home) {
    let http = Http(daemon.address("http"));
    for n in 0..40 {
        push(http, "ready", "priority=7", format!("body {n}").as_bytes());
    }
    push(http, "ready", "key=k&name=n", b"\xff\0");
    push(http, "large", "", &vec![b'x'; 300_000]);
    push(http, "later", "delay=2h", b"");
    push(http, "ruled", "", b"[1]");
    let dead = push(http, "dead", "", b"");
    ok(http.post(&format!("/api/v1/jobs/{dead}/kill"), ""));
    let take = |queue: &str| {
        let taken = ok(http.post(
            &format!("/api/v1/queues/{queue}/take?lease=1h&worker=w"),
            "",
        ))
        .json();
        taken["lease"].as_str().unwrap().to_owned()
    };
    push(http, "held", "", b"");
    take("held");
    push(http, "done", "keep_result=3h", b"");
    ok(http.post(
        &format!("/api/v1/leases/{}/done", take("done")),
        "its result",
    ));
    let settings = [
        "pause dead",
        "throttle held --concurrency 7 --per-worker 3 --timeout 1h",
        "limit ready --jobs 1000",
    ];
    for line in settings {
        home.says("data", &line.split(' ').collect::<Vec<_>>());
    }
}

/// A job of Faktory's.
fn job(jid: &str, queue: &str, more: &str) -> String {
    format!(
        "{{\"jid\":\"{jid}\",\"queue\":\"{queue}\",\"jobtype\":\"T\",\"args\":[1,\"ü\"]{more}}}"
    )
}

/// Takes the next job of a queue, and returns its jid.
pub(super) fn fetch(fwp: &mut Fwp, queue: &str) -> String {
    let job = fwp.ask(&format!("FETCH {queue}"));
    let jid = job
        .split("\"jid\":\"")
        .nth(1)
        .unwrap_or_else(|| panic!("{queue}: {job}"));
    jid.split('"').next().unwrap().to_owned()
}

fn fill_faktory(daemon: &Daemon) {
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let mut done = |line: &str| assert_eq!(fwp.ask(line), "+OK", "{line}");
    let custom = |text: &str| format!(",\"custom\":{{{text}}}");
    let jobs = [
        job("scheduled-1", "default", ",\"at\":\"2099-01-01T00:00:00Z\""),
        job("expiring-01", "default", &custom("\"expires_in\":86400")),
        job(
            "expiring-02",
            "default",
            &custom("\"expires_at\":\"2096-10-02T07:06:40Z\""),
        ),
        job("unique-0001", "unique", &custom("\"unique_for\":86400")),
        job(
            "unique-0002",
            "unique-start",
            &custom("\"unique_for\":86400,\"unique_until\":\"start\""),
        ),
        job("tracked-001", "tracked", &custom("\"track\":1")),
        job("reserved-01", "reserved", ",\"reserve_for\":86400"),
        job("hopeless-01", "hopeless", ",\"retry\":-1,\"backtrace\":5"),
    ];
    jobs.iter().for_each(|job| done(&format!("PUSH {job}")));
    done("QUEUE PAUSE unique");
    for queue in ["tracked", "reserved", "hopeless"] {
        fetch(&mut fwp, queue);
    }
    let mut done = |line: &str| assert_eq!(fwp.ask(line), "+OK", "{line}");
    done(r#"ACK {"jid":"tracked-001"}"#);
    done(
        r#"FAIL {"jid":"hopeless-01","errtype":"E","message":"on fire","backtrace":["here","there"]}"#,
    );
    fill_batches(&mut fwp);
}

/// Batches: one whose job waits, one that is open, one within it, one whose jobs have run, and one whose jobs have succeeded.
fn fill_batches(fwp: &mut Fwp) {
    let callbacks = |n: u32| {
        let callback = |of: &str| job(&format!("{of}-callback-{n}"), "callbacks", "");
        format!(
            "\"success\":{},\"complete\":{}",
            callback("success"),
            callback("complete")
        )
    };
    let mut new = |n: u32, more: &str| {
        fwp.ask(&format!(
            "BATCH NEW {{\"description\":\"d\",{}{more}}}",
            callbacks(n)
        ))
    };
    let [waiting, open, ran, succeeded] = [1, 2, 3, 4].map(|n| new(n, ""));
    let within = new(5, &format!(",\"parent_bid\":{open:?}"));
    let members = [
        (&waiting, "waiting"),
        (&open, "open"),
        (&within, "within"),
        (&ran, "ran"),
        (&succeeded, "succeeded"),
    ];
    for (batch, name) in members {
        let member = job(
            &format!("member-{name}"),
            name,
            &format!(",\"retry\":-1,\"custom\":{{\"bid\":{batch:?}}}"),
        );
        assert_eq!(fwp.ask(&format!("PUSH {member}")), "+OK");
    }
    for batch in [&waiting, &within, &ran, &succeeded] {
        assert_eq!(fwp.ask(&format!("BATCH COMMIT {batch}")), "+OK");
    }
    for (queue, verb) in [("ran", "FAIL"), ("succeeded", "ACK")] {
        let jid = fetch(fwp, queue);
        assert_eq!(fwp.ask(&format!("{verb} {{\"jid\":{jid:?}}}")), "+OK");
    }
    // Both have a first callback; the second one comes after it, if all have succeeded.
    for _ in 0..2 {
        let jid = fetch(fwp, "callbacks");
        assert_eq!(fwp.ask(&format!("ACK {{\"jid\":{jid:?}}}")), "+OK");
    }
}

fn fill_gearman(daemon: &Daemon) {
    let mut client = Peer::connect(daemon.address("gearman")).unwrap();
    let submission = |function: &'static str, unique: &'static str| Submission {
        function: function.into(),
        unique: unique.into(),
        workload: Bytes::from_static(b"\xff\0"),
    };
    client.submit("coalesced", "unique", "x").unwrap();
    let [minute, hour, day_of_month, month, day_of_week] =
        ["3", "17", "29", "2", ""].map(Bytes::from);
    let schedule = Schedule {
        minute,
        hour,
        day_of_month,
        month,
        day_of_week,
    };
    let sent = [
        Request::SubmitEpoch {
            job: submission("epoch", ""),
            when_s: FAR_S,
        },
        Request::SubmitSched {
            job: submission("recurring", "r"),
            schedule: Box::new(schedule),
        },
    ];
    for request in sent {
        client.send(&request).unwrap();
        let packet = client.packet().unwrap();
        assert!(
            matches!(Response::parse(&packet), Ok(Response::JobCreated { .. })),
            "{packet:?}"
        );
    }
    assert_eq!(client.line("maxqueue coalesced 10 20 30").unwrap(), "OK");
    // A worker is lost with its job, which is done again.
    client.submit("lost", "", "x").unwrap();
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.can_do("lost").unwrap();
    assert!(worker.grab().unwrap().is_some());
    drop(worker);
    let http = Http(daemon.address("http"));
    wait_until("the job is back", || {
        http.get("/api/v1/queues/lost").json()["states"]["ready"] == 1
    });
    // The result of a job that came from elsewhere.
    push(http, "shared", "keep_result=3h", b"question");
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.can_do("shared").unwrap();
    let job = worker.grab().unwrap().unwrap();
    worker.complete(&job.handle).unwrap();
    wait_until("its result is there", || {
        http.get("/api/v1/queues/shared").json()["states"]["done"] == 1
    });
}

fn fill_spiderq(daemon: &Daemon) {
    let mut bare = spiderq::Bare::connect(daemon.address("spiderq"));
    for key in ["one", "two", "three"] {
        assert_eq!(bare.ask(&spiderq::add(key, b"value")), spiderq::ADDED);
    }
    for status in [spiderq::Status::Drop, spiderq::Status::Reward] {
        let lease = bare.lease(false).unwrap();
        assert_eq!(bare.ask(&spiderq::repay(&lease, status)), spiderq::REPAID);
    }
    bare.lease(false).unwrap();
}

fn fill_eventmq(daemon: &Daemon) {
    const JOB: &str = r#"["run", {"callable": "report", "path": "tasks"}]"#;
    let mut client = eventmq::Peer::connect(daemon.address("eventmq"), "client");
    client.request(
        "req-1",
        "mail",
        "reply-requested,guarantee,timeout:30,retry-count:3",
        JOB,
    );
    client
        .say(&[
            "SCHEDULE",
            "s",
            "mail",
            "nohaste,run_count:3",
            "31536000",
            JOB,
            "",
        ])
        .unwrap();
    let http = Http(daemon.address("http"));
    wait_until("it is there", || {
        let page = http.get("/api/v1/schedules").json();
        page["schedules"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["protocol"] == "eventmq")
    });
}

fn pause_a_schedule(daemon: &Daemon, home: &Home) {
    let page = Http(daemon.address("http")).get("/api/v1/schedules").json();
    let schedules = page["schedules"].as_array().unwrap();
    let one = schedules
        .iter()
        .find(|it| it["protocol"] == "gearman")
        .unwrap();
    home.says("data", &["schedule", "pause", &one["id"].to_string()]);
}

/// This many more jobs: half of them ready, the others in every other state.
pub(super) fn fill_much(daemon: &Daemon, home: &Home, jobs: u64) {
    const AT_ONCE: u64 = 1_000;
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let mut next = 0;
    let mut push = |fwp: &mut Fwp, queue: &str, count: u64, more: &str| {
        let upto = next + count;
        while next < upto {
            let last = (next + AT_ONCE).min(upto);
            let job = |n| {
                format!(
                    "{{\"jid\":\"job-{n:08}\",\"queue\":\"{queue}\",\"jobtype\":\"Send\",\
                     \"args\":[{n},\"{:x<100}\"]{more}}}",
                    n
                )
            };
            let list: Vec<String> = (next..last).map(job).collect();
            assert_eq!(fwp.ask(&format!("PUSHB [{}]", list.join(","))), "{}");
            next = last;
        }
    };
    let of_hundred = |part: u64| jobs * part / 100;
    let batch = fwp.ask("BATCH NEW {\"description\":\"much\"}");
    push(&mut fwp, "much", of_hundred(50), "");
    push(
        &mut fwp,
        "much",
        of_hundred(10),
        ",\"at\":\"2099-01-01T00:00:00Z\"",
    );
    push(
        &mut fwp,
        "much-batch",
        of_hundred(5),
        &format!(",\"custom\":{{\"bid\":{batch:?}}}"),
    );
    push(
        &mut fwp,
        "much-unique",
        of_hundred(5),
        ",\"custom\":{\"unique_for\":86400}",
    );
    push(&mut fwp, "much-dead", of_hundred(10), "");
    push(
        &mut fwp,
        "much-held",
        of_hundred(5),
        ",\"reserve_for\":86400",
    );
    push(
        &mut fwp,
        "much-done",
        of_hundred(5),
        ",\"custom\":{\"track\":1}",
    );
    assert_eq!(fwp.ask(&format!("BATCH COMMIT {batch}")), "+OK");
    home.says("data", &["kill", "--queue", "much-dead"]);
    for _ in 0..of_hundred(5).min(20_000) {
        fetch(&mut fwp, "much-held");
        let jid = fetch(&mut fwp, "much-done");
        assert_eq!(fwp.ask(&format!("ACK {{\"jid\":{jid:?}}}")), "+OK");
    }
    let mut bare = spiderq::Bare::connect(daemon.address("spiderq"));
    for n in 0..of_hundred(5) {
        assert_eq!(
            bare.ask(&spiderq::add(&format!("key-{n}"), b"value")),
            spiderq::ADDED
        );
        if n % 2 == 0 {
            let lease = bare.lease(false).unwrap();
            assert_eq!(
                bare.ask(&spiderq::repay(&lease, spiderq::Status::Drop)),
                spiderq::REPAID
            );
        }
    }
}

/// What [`fill`] and [`started`] make that is not in this fingerprint.
pub(super) fn lacking(print: &Fingerprint) -> Vec<String> {
    let has = |kind| print.jobs.values().any(|job| job.state.kind() == kind);
    let states = JobStateKind::ALL
        .into_iter()
        .filter(|kind| !has(*kind))
        .map(|kind| format!("{kind:?}"));
    let parts = of_jobs(print).into_iter().chain(of_others(print));
    states
        .chain(
            parts
                .filter(|(_, is_there)| !is_there)
                .map(|(name, _)| name.to_owned()),
        )
        .collect()
}

fn of_jobs(print: &Fingerprint) -> Vec<(&'static str, bool)> {
    let extra = |is_so: fn(&windlass_engine::Extra) -> bool| {
        print
            .jobs
            .values()
            .filter_map(|job| job.extra.as_deref())
            .any(is_so)
    };
    let any = |is_so: fn(&windlass_engine::Job) -> bool| print.jobs.values().any(is_so);
    vec![
        ("faktory", any(|job| job.protocol == Protocol::FAKTORY)),
        ("gearman", any(|job| job.protocol == Protocol::GEARMAN)),
        ("spiderq", any(|job| job.protocol == Protocol::SPIDERQ)),
        ("eventmq", any(|job| job.protocol == Protocol::EVENTMQ)),
        ("http", any(|job| job.protocol == Protocol::HTTP)),
        (
            "a key",
            any(|job| job.key().is_some() && job.state == JobState::Ready),
        ),
        ("failures", any(|job| job.failures > 0)),
        ("meta", extra(|extra| !extra.meta.is_empty())),
        (
            "expires_at",
            extra(|extra| matches!(extra.expires, Expiry::At(_))),
        ),
        (
            "expires_in",
            extra(|extra| matches!(extra.expires, Expiry::By(_))),
        ),
        (
            "a key until the end or a time",
            extra(|extra| matches!(extra.key_until, KeyUntil::EndOr(_))),
        ),
        (
            "a key until the start or a time",
            extra(|extra| matches!(extra.key_until, KeyUntil::StartOr(_))),
        ),
        (
            "a key until it is gone",
            extra(|extra| extra.key_until == KeyUntil::Gone),
        ),
        (
            "an entry that goes round",
            extra(|extra| extra.cycle.is_some()),
        ),
        ("losses", extra(|extra| extra.losses > 0)),
        (
            "a backtrace",
            extra(|extra| {
                extra
                    .failure
                    .as_ref()
                    .is_some_and(|failure| failure.backtrace.len() == 2)
            }),
        ),
        ("result_keep_ms", extra(|extra| extra.result_keep_ms > 0)),
        ("lease_ms", extra(|extra| extra.lease_ms.is_some())),
        ("a result", extra(|extra| extra.result.is_some())),
        (
            "result_by",
            extra(|extra| extra.result_by == Some(Protocol::GEARMAN)),
        ),
        (
            "a client that collects",
            extra(|extra| extra.collector == "client"),
        ),
        ("track", extra(|extra| extra.track.is_some())),
        (
            "a job of a batch",
            extra(|extra| extra.member.is_some_and(|member| member.role == Role::Job)),
        ),
        (
            "a callback",
            extra(|extra| {
                extra
                    .member
                    .is_some_and(|member| member.role == Role::Success)
            }),
        ),
        (
            "a job that has run",
            extra(|extra| extra.member.is_some_and(|member| member.ran)),
        ),
    ]
}

fn of_others(print: &Fingerprint) -> Vec<(&'static str, bool)> {
    let queue = |is_so: fn(&windlass_engine::QueueImage) -> bool| print.queues.values().any(is_so);
    let batch = |is_so: fn(&windlass_engine::Batch) -> bool| print.batches.values().any(is_so);
    let schedule =
        |is_so: fn(&windlass_engine::Schedule) -> bool| print.schedules.values().any(is_so);
    vec![
        (
            "a queue that goes round",
            queue(|queue| queue.kind == QueueKind::Cycle),
        ),
        ("a pause", queue(|queue| queue.paused_at.is_some())),
        (
            "limits by priority",
            queue(|queue| queue.jobs_max.iter().flatten().count() > 2),
        ),
        (
            "a throttle",
            queue(|queue| {
                queue
                    .throttle
                    .is_some_and(|it| it.per_worker_max == Some(3))
            }),
        ),
        ("rules", queue(|queue| queue.rules.is_some())),
        ("an open batch", batch(|batch| !batch.progress.committed)),
        (
            "a batch within another",
            batch(|batch| batch.parent.is_some()),
        ),
        (
            "a batch that waits",
            batch(|batch| batch.progress.committed && batch.progress.complete == Stage::Waiting),
        ),
        (
            "a batch with failures",
            batch(|batch| batch.progress.ran > batch.progress.succeeded),
        ),
        (
            "a batch whose callback is enqueued",
            batch(|batch| batch.progress.success == Stage::Enqueued),
        ),
        (
            "a batch whose callback has run",
            batch(|batch| batch.progress.complete == Stage::Succeeded),
        ),
        (
            "a crontab of Gearman's",
            schedule(|it| matches!(it.recurrence, Recurrence::Cron(_))),
        ),
        (
            "a time zone",
            schedule(|it| matches!(it.recurrence, Recurrence::Zoned(..))),
        ),
        (
            "a span",
            schedule(|it| matches!(it.recurrence, Recurrence::Every { .. })),
        ),
        ("runs that are left", schedule(|it| it.runs_left == Some(3))),
        (
            "a paused schedule",
            schedule(|it| it.next_at == Timestamp::NEVER),
        ),
        ("days", !print.days.is_empty()),
        ("counters of a protocol", print.meta.protocols.len() >= 4),
    ]
}
