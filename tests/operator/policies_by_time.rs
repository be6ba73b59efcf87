//! `ttl`, `dead` and `dedup` of queues that match a pattern: clients of each protocol, none of which sets any of it.

use windlass_gearman::wire::{Report, Request, Response};
use windlass_testkit::daemon::Daemon;

use crate::common::eventmq::Peer as Emq;
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::{Peer, daemon, wait_until};

const RULES: &str = "[queues.\"mail-*\"]\ndedup.window = \"1h\"\n\
                     [queues.\"code-*\"]\nttl = \"300ms\"\n\
                     [queues.\"sms-*\"]\nretry.count = -1\ndead.max = 2\n\
                     [queues.\"sync-*\"]\nkey.args = \"/0\"\ncoalesce = { by = \"key\", quiet = \"200ms\" }\n\
                     [queues.\"page-*\"]\ncoalesce.quiet = \"200ms\"\n";

fn jobs(daemon: &Daemon, queue: &str, state: &str) -> u64 {
    let row = Http(daemon.address("http")).get(&format!("/api/v1/queues/{queue}"));
    if row.status == 404 {
        0
    } else {
        row.json()["states"][state].as_u64().unwrap()
    }
}

#[test]
fn a_push_that_is_repeated_after_its_job_ended_runs_no_second_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).set(RULES).eventmq("").start();
    let push = r#"PUSH {"jid":"order0000007","queue":"mail-fwp","jobtype":"Send","args":[]}"#;
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert_eq!(fwp.ask(push), "+OK");
    assert_eq!(
        fwp.ask(push),
        "+OK",
        "the answer was lost, and the job waits"
    );
    assert!(fwp.ask("FETCH mail-fwp").contains("order0000007"));
    assert_eq!(fwp.ask(r#"ACK {"jid":"order0000007"}"#), "+OK");
    let mut worker = Emq::worker(daemon.address("eventmq"), "worker", "[[10, \"mail-emq\"]]");
    worker.ready(1);
    let mut client = Emq::connect(daemon.address("eventmq"), "client");
    client.request(
        "m7",
        "mail-emq",
        "",
        r#"["run",{"path":"a.b","callable":"send"}]"#,
    );
    let id = worker.hear().unwrap()[1].clone();
    worker
        .say(&["REPLY", "reply", r#"{"value": "sent"}"#, &id])
        .unwrap();
    wait_until("the job of EventMQ is done", || {
        jobs(&daemon, "mail-emq", "done") == 1
    });
    // Nothing acknowledges that end. It is on the disk with whatever is acknowledged after it.
    let other = r#"PUSH {"jid":"order0000008","queue":"other","jobtype":"Send","args":[]}"#;
    assert_eq!(fwp.ask(other), "+OK");
    daemon.kill();
    daemon.restart();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert_eq!(fwp.ask(push), "+OK", "it has ended");
    let mut client = Emq::connect(daemon.address("eventmq"), "client");
    client.request(
        "m7",
        "mail-emq",
        "",
        r#"["run",{"path":"a.b","callable":"send"}]"#,
    );
    client.request(
        "m8",
        "mail-emq",
        "",
        r#"["run",{"path":"a.b","callable":"send"}]"#,
    );
    wait_until("another job of EventMQ is there", || {
        jobs(&daemon, "mail-emq", "ready") == 1
    });
    assert_eq!(jobs(&daemon, "mail-fwp", "ready"), 0);
}

#[test]
fn a_job_that_waited_for_too_long_expires_and_a_queue_keeps_its_newest_dead() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).set(RULES).start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert_eq!(
        fwp.ask(r#"PUSH {"jid":"code00000001","queue":"code-fwp","jobtype":"T","args":[]}"#),
        "+OK"
    );
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    gearman.submit("code-gearman", "", "x").unwrap();
    for queue in ["code-fwp", "code-gearman"] {
        wait_until("the job has expired", || jobs(&daemon, queue, "ready") == 0);
    }
    assert_eq!(fwp.ask("FETCH code-fwp"), "null");
    gearman.can_do("sms-gearman").unwrap();
    let mut numbers = Vec::new();
    for n in 0..4 {
        gearman.submit("sms-gearman", "", n.to_string()).unwrap();
        let handle = gearman.grab().unwrap().unwrap().handle;
        let number = String::from_utf8_lossy(&handle)
            .rsplit(':')
            .next()
            .and_then(|number| number.parse::<u64>().ok());
        numbers.push(number.unwrap());
        gearman
            .send(&Request::Work {
                handle,
                report: Report::Fail,
            })
            .unwrap();
    }
    wait_until("the newest two are left", || {
        let dead = Http(daemon.address("http"))
            .get("/api/v1/jobs?queue=sms-gearman&state=dead")
            .json();
        let mut left: Vec<_> = dead["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|job| job["id"].as_u64())
            .collect();
        left.sort_unstable();
        left == numbers[2..]
    });
}

/// The next job of a queue of FWP.
fn fetch(fwp: &mut Fwp, queue: &str) -> String {
    loop {
        let job = fwp.ask(&format!("FETCH {queue}"));
        if job != "null" {
            return job;
        }
    }
}

#[test]
fn a_burst_of_pushes_runs_once_with_the_last_body_and_once_more_if_one_comes_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).set(RULES).start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let push = |n: u32| {
        format!(
            r#"PUSH {{"jid":"sync000000{n:02}","queue":"sync-fwp","jobtype":"S","args":["acct",{n}]}}"#
        )
    };
    for n in 0..20 {
        assert_eq!(fwp.ask(&push(n)), "+OK");
    }
    assert_eq!(fwp.ask(&push(40).replace("acct", "other")), "+OK");
    daemon.kill();
    daemon.restart();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let first = fetch(&mut fwp, "sync-fwp");
    assert!(
        first.contains(r#""jid":"sync00000019""#) && first.contains(r#"["acct",19]"#),
        "{first}"
    );
    assert!(fetch(&mut fwp, "sync-fwp").contains(r#"["other",40]"#));
    for n in 20..30 {
        assert_eq!(fwp.ask(&push(n)), "+OK");
    }
    let http = || Http(daemon.address("http"));
    wait_until("the next run waits for the one that runs", || {
        jobs(&daemon, "sync-fwp", "parked") == 1
    });
    let row = http()
        .get("/api/v1/jobs?queue=sync-fwp&state=parked")
        .json()["jobs"][0]
        .clone();
    let why = http().get(&format!("/api/v1/jobs/{}", row["id"])).json()["why"].clone();
    assert_eq!(why["code"], "coalesced");
    let text = why["text"].as_str().unwrap();
    assert!(
        text.starts_with("it runs once more when job ")
            && text.contains("; 10 submits became this job"),
        "{text}"
    );
    assert_eq!(fwp.ask(r#"ACK {"jid":"sync00000019"}"#), "+OK");
    assert!(fetch(&mut fwp, "sync-fwp").contains(r#"["acct",29]"#));
    assert_eq!(fwp.ask(r#"ACK {"jid":"sync00000029"}"#), "+OK");
    assert_eq!(fwp.ask(r#"ACK {"jid":"sync00000040"}"#), "+OK");
    wait_until("nothing is left", || {
        ["ready", "scheduled", "parked", "leased"]
            .iter()
            .all(|it| jobs(&daemon, "sync-fwp", it) == 0)
    });
}

#[test]
fn clients_that_wait_for_submits_that_became_one_job_get_its_result() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).set(RULES).eventmq("").start();
    let mut clients: Vec<Peer> = (0..3)
        .map(|_| Peer::connect(daemon.address("gearman")).unwrap())
        .collect();
    let mut handles = Vec::new();
    for (n, client) in clients.iter_mut().enumerate() {
        client
            .send(&crate::common::submission(
                "page-gearman",
                "front",
                n.to_string(),
                false,
            ))
            .unwrap();
        let created = client.packet().unwrap();
        let Ok(Response::JobCreated { handle }) = Response::parse(&created) else {
            panic!("{created:?}")
        };
        handles.push(bytes::Bytes::copy_from_slice(handle));
    }
    assert!(
        handles.iter().all(|handle| *handle == handles[0]),
        "{handles:?}"
    );
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.can_do("page-gearman").unwrap();
    wait_until("the job is ready", || {
        jobs(&daemon, "page-gearman", "ready") == 1
    });
    let job = worker.grab().unwrap().unwrap();
    assert_eq!((&job.handle, &job.workload[..]), (&handles[0], &b"2"[..]));
    worker
        .send(&Request::Work {
            handle: job.handle,
            report: Report::Complete("made".into()),
        })
        .unwrap();
    for client in &mut clients {
        let end = client.packet().unwrap();
        assert_eq!(
            Response::parse(&end),
            Ok(Response::Work {
                handle: &handles[0],
                report: Report::Complete(b"made")
            })
        );
    }

    let mut worker = Emq::worker(daemon.address("eventmq"), "worker", "[[10, \"sync-emq\"]]");
    let mut client = Emq::connect(daemon.address("eventmq"), "client");
    for id in ["m1", "m2"] {
        let job = format!(r#"["run", {{"path": "{id}", "callable": "sync", "args": ["acct"]}}]"#);
        client.request(id, "sync-emq", "reply-requested", &job);
    }
    worker.ready(1);
    let told = worker.hear().unwrap();
    assert!(told.last().unwrap().contains(r#""path": "m2""#), "{told:?}");
    worker
        .say(&["REPLY", "reply", r#"{"value": "synced"}"#, &told[1]])
        .unwrap();
    let mut ends: Vec<_> = (0..2).map(|_| client.hear().unwrap()).collect();
    ends.sort_by_key(|end| end.last().cloned());
    for (end, id) in ends.iter().zip(["m1", "m2"]) {
        assert!(end[2].contains("synced") && end[3] == id, "{ends:?}");
    }
}

#[test]
fn dead_letters_move_to_another_queue_and_are_tried_there_by_its_rules() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).set(RULES).start();
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    gearman.submit("broken", "", "x").unwrap();
    gearman.submit("broken", "", "y").unwrap();
    let http = Http(daemon.address("http"));
    assert_eq!(
        http.post("/api/v1/jobs/kill?queue=broken", "").json()["changed"],
        2
    );
    assert_eq!(
        http.post("/api/v1/jobs/delete?queue=broken&to=sms-other", "")
            .status,
        400
    );
    let retry = "/api/v1/jobs/retry?queue=broken&to=sms-other";
    assert_eq!(
        http.post(&format!("{retry}&dry_run=true"), "").json()["changed"],
        2
    );
    assert_eq!(
        http.post(&format!("{retry}&rate=1000"), "").json()["changed"],
        2
    );
    assert_eq!(
        (
            jobs(&daemon, "broken", "dead"),
            jobs(&daemon, "sms-other", "dead")
        ),
        (0, 0)
    );
    daemon.kill();
    daemon.restart();
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    gearman.can_do("sms-other").unwrap();
    wait_until("both are ready", || {
        jobs(&daemon, "sms-other", "ready") == 2
    });
    for _ in 0..2 {
        let handle = gearman.grab().unwrap().unwrap().handle;
        gearman
            .send(&Request::Work {
                handle,
                report: Report::Fail,
            })
            .unwrap();
    }
    // The rule of the queue keeps dead letters; without it, Gearman's jobs are gone when they fail.
    wait_until("both are dead again", || {
        jobs(&daemon, "sms-other", "dead") == 2
    });
}
