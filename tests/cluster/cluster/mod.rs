//! Several daemons on one PostgreSQL server: one broker. The server is Debian's, started by the test.

mod backlog;
mod clocks;
mod cut;
mod daemons;
mod ended;
mod faults;
mod large;
mod lead;
mod namespaces;
mod policies;
mod refused;
mod stays;
mod tls;
mod upgrade;
mod work;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use daemons::{Daemons, role};
use windlass_gearman::wire::{AssignForm, Kind, Report, Request, Response};
use windlass_testkit::daemon::{Daemon, free_port};

use crate::common;
use crate::common::eventmq;
use crate::common::faktory;
use crate::common::history;
use crate::common::load::Load;
use crate::common::spiderq;
use crate::common::{Peer, kind, submission, wait_for_log, wait_until};

/// The log's line of a successor that was prepared.
const READ_EARLY: &str = "preloaded the store while waiting for the lease";

// ---- one broker -----------------------------------------------------------------------------------------------------

#[test]
fn every_daemon_shows_the_past_attempts_of_a_job() {
    let daemons = Daemons::start(2);
    history::fail_twice(&daemons[1]);
    (0..2).for_each(|at| history::check(&daemons[at]));
}

#[test]
fn clients_of_every_protocol_meet_whichever_daemon_they_are_at() {
    let (daemons, mut open) = (Daemons::start(3), Vec::new());
    for (from, to) in [(1, 0), (0, 2), (1, 2), (2, 1), (1, 1)] {
        let name = format!("{from}{to}");
        let mut worker = Peer::connect(daemons[to].address("gearman")).unwrap();
        worker.can_do("resize").unwrap();
        let mut client = Peer::connect(daemons[from].address("gearman")).unwrap();
        client.submit("resize", "", format!("g{name}")).unwrap();
        let job = worker.grab().unwrap().unwrap();
        assert_eq!(job.workload, format!("g{name}"));
        worker.complete(&job.handle).unwrap();

        let mut pusher = faktory::Fwp::connect(daemons[from].address("faktory"));
        let push =
            format!(r#"PUSH {{"jid":"jid{name}abcdef","jobtype":"T","queue":"mail","args":[1]}}"#);
        assert_eq!(pusher.ask(&push), "+OK");
        let mut fetcher = faktory::Fwp::connect(daemons[to].address("faktory"));
        assert!(
            fetcher
                .ask("FETCH mail")
                .contains(&format!("jid{name}abcdef"))
        );
        assert_eq!(
            fetcher.ask(&format!(r#"ACK {{"jid":"jid{name}abcdef"}}"#)),
            "+OK"
        );

        let mut adder = spiderq::Bare::connect(daemons[from].address("spiderq"));
        assert_eq!(adder.ask(&spiderq::add(&name, b"value")), spiderq::ADDED);
        let mut lender = spiderq::Bare::connect(daemons[to].address("spiderq"));
        let lease = lender.lease(false).unwrap();
        assert_eq!(lease.key, name);
        assert_eq!(
            lender.ask(&spiderq::repay(&lease, spiderq::Status::Drop)),
            spiderq::REPAID
        );

        let mut jobs = eventmq::Peer::worker(
            daemons[to].address("eventmq"),
            &format!("w{name}"),
            r#"[[10, "report"]]"#,
        );
        jobs.ready(1);
        let mut asker =
            eventmq::Peer::connect(daemons[from].address("eventmq"), &format!("c{name}"));
        asker.request(
            &format!("e{name}"),
            "report",
            "",
            r#"["run", {"callable": "report", "path": "tasks"}]"#,
        );
        let request = jobs.hear().unwrap();
        assert_eq!(request[1], format!("e{name}"));
        jobs.say(&["REPLY", "reply", r#"{"value": 1}"#, &request[1]])
            .unwrap();
        // It has no answer. A connection that ends with unread bytes may lose it.
        open.push(jobs);
    }
}

/// A foreground job crosses twice: its client waits at one edge, its worker at another.
#[test]
fn a_foreground_job_s_result_finds_its_client() {
    let daemons = Daemons::start(3);
    let mut worker = Peer::connect(daemons[1].address("gearman")).unwrap();
    worker.can_do("reverse").unwrap();
    let mut client = Peer::connect(daemons[2].address("gearman")).unwrap();
    client
        .send(&submission("reverse", "", "abc", false))
        .unwrap();
    let created = client.packet().unwrap();
    assert!(
        matches!(Response::parse(&created), Ok(Response::JobCreated { handle }) if handle.starts_with(b"H:windlass:"))
    );
    let job = worker.grab().unwrap().unwrap();
    assert!(
        matches!(Response::parse(&created), Ok(Response::JobCreated { handle }) if job.handle == handle)
    );
    worker
        .send(&Request::Work {
            handle: job.handle,
            report: Report::Complete("cba".into()),
        })
        .unwrap();
    let result = client.packet().unwrap();
    assert!(
        matches!(
            Response::parse(&result),
            Ok(Response::Work {
                report: Report::Complete(b"cba"),
                ..
            })
        ),
        "{result:?}"
    );
}

// ---- the leader changes ---------------------------------------------------------------------------------------------

#[test]
fn another_daemon_leads_when_the_leader_is_killed_and_nothing_acknowledged_is_lost() {
    let mut daemons = Daemons::start(3);
    let load = Load::new();
    let mut clients: Vec<_> = (0..3)
        .flat_map(|number| load.start(2, daemons[number].address("gearman"), true))
        .collect();
    load.wait_for_more(300);
    daemons[0].kill();
    wait_until("another daemon leads", || {
        daemons.leader().is_some_and(|leader| leader != 0)
    });
    load.wait_for_more(300);
    let leader = daemons.leader().unwrap();
    let other = 3 - leader;
    wait_until("the other one has found it", || {
        daemons[other]
            .log_text()
            .matches("connected to the leader")
            .count()
            == 2
    });
    load.wait_for_more(300);
    load.end(std::mem::take(&mut clients));
    load.check(daemons[other].address("gearman"));
}

/// Of the two daemons that go on, one leads and the other is linked to it. Connections to both outlive the old leader.
#[test]
fn connections_to_other_daemons_outlive_the_leader() {
    let mut daemons = Daemons::start(3);
    let connect = |protocol: &str| [1, 2].map(|number| daemons[number].address(protocol));
    let mut clients = connect("gearman").map(|address| Peer::connect(address).unwrap());
    let mut sleepers = connect("gearman").map(|address| Peer::connect(address).unwrap());
    let mut fwp = connect("faktory").map(faktory::Fwp::connect);
    for (number, (client, sleeper)) in clients.iter_mut().zip(&mut sleepers).enumerate() {
        client.submit("kept", "", "before").unwrap();
        sleeper.can_do(&format!("f{number}")).unwrap();
        sleeper.send(&Request::PreSleep).unwrap();
        assert_eq!(fwp[number].ask("FETCH nothing"), "null");
    }
    wait_until("both sleep", || {
        clients[0]
            .listing("workers")
            .unwrap()
            .iter()
            .filter(|it| it.contains(" : f"))
            .count()
            == 2
    });
    daemons[0].kill();
    wait_for_successor(&daemons);
    for number in [0, 1] {
        // From the one daemon to the other.
        clients[1 - number]
            .submit(&format!("f{number}"), "", "wake up")
            .unwrap();
        assert_eq!(kind(&sleepers[number].packet().unwrap()), Kind::NOOP);
        assert_eq!(
            sleepers[number].grab().unwrap().unwrap().workload,
            "wake up"
        );
        let push = format!(
            r#"PUSH {{"jid":"jid{number}abcdef","jobtype":"T","queue":"mail","args":[1]}}"#
        );
        assert_eq!(fwp[number].ask(&push), "+OK");
        assert!(
            fwp[1 - number]
                .ask("FETCH mail")
                .contains(&format!("jid{number}abcdef"))
        );
    }
}

/// One of the two daemons that go on leads, and the other is linked to it.
fn wait_for_successor(daemons: &Daemons) {
    wait_until(
        "another daemon leads, and the third is linked to it",
        || {
            let roles = [1, 2].map(|number| role(&daemons[number]));
            roles.contains(&"leading".to_owned()) && roles.contains(&"following".to_owned())
        },
    );
}

/// How many jobs of a function there are, as the leader counts them.
fn jobs_of(peer: &mut Peer, function: &str) -> String {
    let rows = peer.listing("status").unwrap();
    let row = rows
        .iter()
        .find_map(|row| row.strip_prefix(&format!("{function}\t")));
    row.and_then(|row| row.split('\t').next())
        .unwrap_or("none")
        .to_owned()
}

#[test]
fn a_worker_keeps_its_job_when_the_leader_is_killed() {
    let mut daemons = Daemons::start(3);
    let connect = |number: usize| Peer::connect(daemons[number].address("gearman")).unwrap();
    let (mut workers, mut others) = ([1, 2].map(connect), [1, 2].map(connect));
    let handles = [0, 1].map(|number| {
        let function = format!("held{number}");
        workers[number].submit(&function, "", "work").unwrap();
        workers[number].can_do(&function).unwrap();
        let job = workers[number].grab().unwrap().unwrap();
        others
            .iter_mut()
            .for_each(|other| other.can_do(&function).unwrap());
        job.handle
    });
    // The other workers' sessions have done that.
    others
        .iter_mut()
        .for_each(|other| assert!(other.grab().unwrap().is_none()));
    daemons[0].kill();
    others
        .iter_mut()
        .for_each(|other| other.send(&Request::Grab(AssignForm::Plain)).unwrap());
    for other in &mut others {
        assert_eq!(
            kind(&other.packet().unwrap()),
            Kind::NO_JOB,
            "it gets a job that another worker holds"
        );
    }
    for (number, handle) in handles.iter().enumerate() {
        assert_eq!(jobs_of(&mut others[0], &format!("held{number}")), "1");
        workers[number].complete(handle).unwrap();
    }
    let mut left = || [0, 1].map(|number| jobs_of(&mut others[1], &format!("held{number}")));
    wait_until("both jobs are done", || left() == ["0", "0"]);
}

/// The worker's daemon and the client's come to the new leader in any order, and the result may come before both.
#[test]
fn a_foreground_job_outlives_the_leader() {
    let mut daemons = Daemons::start(3);
    let connect = |number: usize| Peer::connect(daemons[number].address("gearman")).unwrap();
    let (mut workers, mut clients) = ([1, 2].map(connect), [2, 1].map(connect));
    let handles = [0, 1].map(|number| {
        let function = format!("f{number}");
        workers[number].can_do(&function).unwrap();
        clients[number]
            .send(&submission(&function, "", "abc", false))
            .unwrap();
        assert_eq!(kind(&clients[number].packet().unwrap()), Kind::JOB_CREATED);
        workers[number].grab().unwrap().unwrap().handle
    });
    // One that no worker has yet.
    let mut waiting = connect(2);
    waiting.send(&submission("f0", "", "waits", false)).unwrap();
    assert_eq!(kind(&waiting.packet().unwrap()), Kind::JOB_CREATED);
    daemons[0].kill();
    // An end on its way to a leader that is gone is lost: the job would run again.
    [1, 2]
        .iter()
        .for_each(|number| wait_for_log(&daemons[*number], "disconnected from the leader"));
    for (worker, handle) in workers.iter_mut().zip(&handles) {
        worker
            .send(&Request::Work {
                handle: handle.clone(),
                report: Report::Complete("cba".into()),
            })
            .unwrap();
    }
    let is_result = |packet| {
        matches!(
            Response::parse(&packet),
            Ok(Response::Work {
                report: Report::Complete(b"cba"),
                ..
            })
        )
    };
    for client in &mut clients {
        assert!(is_result(client.packet().unwrap()));
    }
    let job = workers[0].grab().unwrap().unwrap();
    assert_eq!(job.workload, "waits");
    workers[0]
        .send(&Request::Work {
            handle: job.handle,
            report: Report::Complete("cba".into()),
        })
        .unwrap();
    assert!(is_result(waiting.packet().unwrap()));
}

#[test]
fn an_eventmq_worker_keeps_its_request_when_the_leader_is_killed() {
    let mut daemons = Daemons::start(3);
    let worker = |number: usize, name: &str| {
        eventmq::Peer::worker(
            daemons[number].address("eventmq"),
            name,
            r#"[[10, "report"]]"#,
        )
    };
    let mut holders = [worker(1, "one"), worker(2, "two")];
    let mut asker = eventmq::Peer::connect(daemons[1].address("eventmq"), "asker");
    let ask = |asker: &mut eventmq::Peer, id: &str| {
        asker.request(
            id,
            "report",
            "",
            r#"["run", {"callable": "report", "path": "tasks"}]"#,
        );
    };
    for (holder, id) in holders.iter_mut().zip(["a", "b"]) {
        holder.ready(1);
        ask(&mut asker, id);
        assert_eq!(holder.hear().unwrap()[1], id);
    }
    let mut others = [worker(1, "three"), worker(2, "four")];
    others.iter_mut().for_each(|other| other.ready(1));
    daemons[0].kill();
    wait_for_successor(&daemons);
    ["c", "d"].iter().for_each(|id| ask(&mut asker, id));
    let mut heard = others
        .each_mut()
        .map(|other| other.hear().unwrap()[1].clone());
    for (worker, id) in holders
        .iter_mut()
        .zip(["a", "b"])
        .chain(others.iter_mut().zip(heard.each_ref().map(|id| &**id)))
    {
        worker
            .say(&["REPLY", "reply", r#"{"value": 1}"#, id])
            .unwrap();
    }
    heard.sort();
    assert_eq!(
        heard,
        ["c", "d"],
        "they get requests that other workers hold"
    );
    let http = || common::http::Http(daemons[1].address("http"));
    let left = || {
        ["ready", "leased"]
            .map(|state| http().get("/api/v1/status").json()["states"][state].clone())
    };
    wait_until("all requests are done", || {
        left().iter().all(|count| *count == 0)
    });
}

/// An EventMQ client gets its results at whichever daemon it comes back.
#[test]
fn an_eventmq_client_that_comes_back_gets_its_results_at_any_daemon() {
    const JOB: &str = r#"["run", {"callable": "report", "path": "tasks"}]"#;
    const RESULT: &str = r#"{"value": 1}"#;
    let mut daemons = Daemons::start(3);
    let working = |daemons: &Daemons| {
        let mut worker =
            eventmq::Peer::worker(daemons[2].address("eventmq"), "worker", r#"[[1, "mail"]]"#);
        worker.ready(2);
        worker
    };
    let mut worker = working(&daemons);
    let work_off = |worker: &mut eventmq::Peer, id: &str| {
        assert_eq!(worker.hear().unwrap()[1], id);
        worker.say(&["REPLY", "reply", RESULT, id]).unwrap();
    };
    let client = |daemons: &Daemons, number: usize| {
        eventmq::Peer::connect(daemons[number].address("eventmq"), "client")
    };
    let is_gone = |daemons: &Daemons| {
        let http = common::http::Http(daemons[0].address("http"));
        let all = http.get("/api/v1/connections").json();
        all["connections"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|it| it["protocol"] == "eventmq")
            .count()
            == 1
    };

    // While the job runs, at another edge.
    let mut peer = client(&daemons, 1);
    peer.request("runs", "mail", "reply-requested", JOB);
    drop(peer);
    let mut peer = client(&daemons, 2);
    // The acknowledgement shows that what was before it is done.
    peer.request("behind", "other", "", JOB);
    work_off(&mut worker, "runs");
    assert_eq!(peer.hear().unwrap()[2..], [RESULT, "runs"]);

    // The job ends while the client is away, and it comes back at the leader.
    peer.request("ended", "mail", "reply-requested", JOB);
    drop(peer);
    wait_until("the client is gone", || is_gone(&daemons));
    work_off(&mut worker, "ended");
    worker.request("behind 2", "other", "", JOB);
    let mut peer = client(&daemons, 0);
    assert_eq!(peer.hear().unwrap()[2..], [RESULT, "ended"]);

    // The leader is killed. The client was there, and comes back at another daemon.
    drop(worker);
    peer.request("moved", "mail", "reply-requested", JOB);
    daemons[0].kill();
    wait_for_successor(&daemons);
    let mut peer = client(&daemons, 1);
    peer.request("behind 3", "other", "", JOB);
    let mut worker = working(&daemons);
    work_off(&mut worker, "moved");
    assert_eq!(peer.hear().unwrap()[2..], [RESULT, "moved"]);
}

/// Every subscriber receives each message of every publisher once, at whichever daemon they are.
#[test]
fn publications_reach_subscribers_of_all_daemons() {
    const ALL: [&str; 3] = ["of 0", "of 1", "of 2"];
    let daemons = Daemons::start(3);
    let subscribe = |number: usize| {
        eventmq::Subscriber::connect(
            daemons[number].address("eventmq-subscribe"),
            &["of", "once", "last"],
        )
    };
    let publisher = |number: usize| {
        eventmq::Peer::connect(daemons[number].address("eventmq"), &format!("p{number}"))
    };
    let (mut subscribers, mut publishers) = ([0, 1, 2].map(subscribe), [0, 1, 2].map(publisher));
    // Subscriptions and links take effect at some time: until then messages are missed.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (publisher, topic) in publishers.iter_mut().zip(ALL) {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    publisher.say(&["PUBLISH", "p", topic, "text"]).unwrap();
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        for subscriber in &mut subscribers {
            let mut left = BTreeSet::from(ALL.map(str::to_owned));
            while !left.is_empty() {
                left.remove(&subscriber.hear().0);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    for (publisher, text) in publishers.iter_mut().zip(["1", "22", "333"]) {
        publisher.say(&["PUBLISH", "p", "once", text]).unwrap();
        publisher.say(&["PUBLISH", "p", "last", ""]).unwrap();
    }
    for subscriber in &mut subscribers {
        let (mut once, mut last) = (Vec::new(), 0);
        while last < ALL.len() {
            match subscriber.hear() {
                (topic, bytes) if topic == "once" => once.push(bytes),
                (topic, _) => last += usize::from(topic == "last"),
            }
        }
        once.sort_unstable();
        assert_eq!(once, [1, 2, 3]);
    }
}

/// The clients' own daemons have neither the worker nor the newest scheduler.
#[test]
fn schedules_reach_the_newest_scheduler_and_reports_name_workers_of_all_daemons() {
    const JOB: &str = r#"["run", {"callable": "report", "path": "tasks"}]"#;
    let mut daemons = Daemons::start(0);
    for _ in 0..3 {
        let (plan, dir) = daemons.plan(free_port(), "");
        daemons.start_one((plan.set("scheduler = \"external\""), dir));
    }
    let client = |number: usize| {
        eventmq::Peer::connect(daemons[number].address("eventmq"), &format!("c{number}"))
    };
    let mut clients = [0, 1, 2].map(client);
    let wait_for = |client: &mut eventmq::Peer, command: &str, name: &str| {
        wait_until("it is known at another daemon", || {
            client.say(&[command, "show"]).unwrap();
            client.hear().unwrap()[2].contains(name)
        });
    };
    let mut older = eventmq::Peer::scheduler(daemons[1].address("eventmq"), "older");
    wait_for(&mut clients[0], "ROUTER_SHOW_SCHEDULERS", "older");
    let mut newer = eventmq::Peer::scheduler(daemons[2].address("eventmq"), "newer");
    let _worker = eventmq::Peer::worker(daemons[2].address("eventmq"), "busy", r#"[[10, "mail"]]"#);
    for client in &mut clients {
        wait_for(client, "ROUTER_SHOW_WORKERS", "busy");
        wait_for(client, "ROUTER_SHOW_SCHEDULERS", "newer");
        let schedule = ["SCHEDULE", "s", "mail", "nohaste", "60", JOB, ""];
        let unschedule = ["UNSCHEDULE", "u", "mail", "", "60", JOB, ""];
        client.say(&schedule).unwrap();
        assert_eq!(newer.hear().unwrap(), schedule);
        client.say(&unschedule).unwrap();
        assert_eq!(newer.hear().unwrap(), unschedule);
        assert_eq!(
            older.hear().unwrap(),
            unschedule,
            "schedules go to the newest only"
        );
    }
}

#[test]
fn a_daemon_that_leads_has_what_was_reloaded_while_it_did_not() {
    let mut daemons = Daemons::start(2);
    let file = daemons.all[1].1.path().join("windlass.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        format!("{text}\n[limits]\njobs_max = 2\n[queues.q]\nbody_bytes_max = 3\n"),
    )
    .unwrap();
    daemons[1].signal("HUP");
    wait_for_log(
        &daemons[1],
        "\"message\":\"applied\",\"key\":\"limits.jobs_max\"",
    );
    daemons[0].kill();
    wait_for_log(&daemons[1], "became leader");
    let mut client = Peer::connect(daemons[1].address("gearman")).unwrap();
    assert!(
        client.submit("q", "", "long").is_err(),
        "a rule of the queue"
    );
    assert!(client.submit("q", "", "1").is_ok() && client.submit("f", "", "long").is_ok());
    assert!(client.submit("f", "", "x").is_err(), "limits.jobs_max");
}

#[test]
fn a_leader_that_stops_in_order_is_followed_at_once() {
    let mut daemons = Daemons::start(2);
    let mut peer = Peer::connect(daemons[1].address("gearman")).unwrap();
    peer.submit("work", "", "before").unwrap();
    daemons[0].signal("TERM");
    assert!(daemons[0].wait().success(), "{}", daemons[0].log_text());
    wait_for_log(&daemons[1], "became leader");
    assert!(
        daemons[1].log_text().contains(READ_EARLY),
        "{}",
        daemons[1].log_text()
    );
    let mut peer = Peer::connect(daemons[1].address("gearman")).unwrap();
    peer.can_do("work").unwrap();
    assert_eq!(peer.grab().unwrap().unwrap().workload, "before");
}

/// The edge's worker keeps its daemon alive; the leader's worker gets jobs meanwhile.
#[test]
fn a_daemon_that_drains_waits_for_its_own_workers_and_others_go_on() {
    let mut daemons = Daemons::start(2);
    let worker_at = |daemon: &Daemon| {
        let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
        worker.can_do("work").unwrap();
        worker
    };
    let (mut near, mut far) = (worker_at(&daemons[0]), worker_at(&daemons[1]));
    near.submit("work", "", "first").unwrap();
    let first = far.grab().unwrap().unwrap();
    daemons[1].signal("USR2");
    wait_for_log(&daemons[1], "draining: not accepting connections");
    near.submit("work", "", "second").unwrap();
    assert!(
        far.grab().unwrap().is_none(),
        "a daemon that drains hands out nothing"
    );
    let second = near.grab().unwrap().unwrap();
    assert_eq!(second.workload, "second");
    far.complete(&first.handle).unwrap();
    assert!(daemons[1].wait().success(), "{}", daemons[1].log_text());
    assert!(
        daemons[1]
            .log_text()
            .contains("no connected worker has a job"),
        "{}",
        daemons[1].log_text()
    );
    near.complete(&second.handle).unwrap();
    assert_eq!(near.listing("status").unwrap(), ["work\t0\t0\t1"]);
}

#[test]
fn a_leader_that_yields_serves_for_the_next_one() {
    let daemons = Daemons::start(2);
    assert_eq!(
        (role(&daemons[0]), role(&daemons[1])),
        ("leading".to_owned(), "following".to_owned())
    );
    let page = common::http::Http(daemons[0].address("http"))
        .get("/metrics")
        .text()
        .to_owned();
    assert!(
        page.contains("windlass_cluster_leading 1") && page.contains("windlass_cluster_edges 1"),
        "{page}"
    );
    let edges = common::http::Http(daemons[0].address("http"))
        .get("/api/v1/cluster")
        .json();
    assert_eq!(edges["edges"].as_array().unwrap().len(), 1, "{edges}");
    let at_the_edge = || {
        common::http::Http(daemons[1].address("http"))
            .get("/api/v1/cluster")
            .json()["edges"]
            .clone()
    };
    wait_until("the edge shows who is linked", || {
        at_the_edge() == edges["edges"]
    });
    let mut peer = Peer::connect(daemons[0].address("gearman")).unwrap();
    peer.submit("work", "", "before").unwrap();
    let yields = |daemon: &Daemon| {
        common::http::Http(daemon.address("http"))
            .post("/api/v1/cluster/yield", "")
            .status
    };
    assert_eq!((yields(&daemons[1]), yields(&daemons[0])), (409, 202));
    wait_until("the other one leads", || {
        role(&daemons[1]) == "leading" && role(&daemons[0]) == "following"
    });
    assert!(
        peer.packet().is_err(),
        "connections to the old leader are closed"
    );
    for (number, body) in [(0, "before"), (1, "behind")] {
        let mut peer = Peer::connect(daemons[number].address("gearman")).unwrap();
        peer.can_do("work").unwrap();
        let job = peer.grab().unwrap().unwrap();
        assert_eq!(job.workload, body);
        peer.complete(&job.handle).unwrap();
        peer.submit("work", "", "behind").unwrap();
    }
    // And back again, once the first one looks for the lease again.
    wait_until("the first one leads again", || {
        if role(&daemons[1]) == "leading" {
            yields(&daemons[1]);
        }
        role(&daemons[0]) == "leading" && role(&daemons[1]) == "following"
    });
    let mut peer = Peer::connect(daemons[1].address("gearman")).unwrap();
    peer.submit("work", "", "third").unwrap();
}

#[test]
fn a_leader_that_was_stopped_serves_for_its_successor_and_says_nothing_of_its_own() {
    let daemons = Daemons::start(2);
    let mut client = Peer::connect(daemons[0].address("gearman")).unwrap();
    client.submit("work", "", "before").unwrap();
    let mut worker = Peer::connect(daemons[0].address("gearman")).unwrap();
    worker.can_do("work").unwrap();
    worker
        .send(&Request::GetStatus {
            handle: "none".into(),
        })
        .unwrap();
    worker.packet().unwrap();
    daemons[0].signal("STOP");
    wait_until("the other one leads", || role(&daemons[1]) == "leading");
    wait_for_log(&daemons[1], READ_EARLY);
    let mut taker = Peer::connect(daemons[1].address("gearman")).unwrap();
    taker.can_do("work").unwrap();
    let job = taker.grab().unwrap().unwrap();
    taker.complete(&job.handle).unwrap();
    taker.submit("other", "", "behind").unwrap();
    // The first one finds these in its sockets when it goes on, and must answer none of them.
    client.send(&submission("work", "", "after", true)).unwrap();
    worker.send(&Request::Grab(AssignForm::Plain)).unwrap();
    daemons[0].signal("CONT");
    wait_until("it is linked to its successor", || {
        role(&daemons[0]) == "following"
    });
    assert!(
        client.packet().is_err() && worker.packet().is_err(),
        "the deposed leader has answered"
    );
    let mut peer = Peer::connect(daemons[0].address("gearman")).unwrap();
    peer.can_do("other").unwrap();
    assert_eq!(peer.grab().unwrap().unwrap().workload, "behind");
    peer.can_do("work").unwrap();
    assert!(
        peer.grab().unwrap().is_none(),
        "a job that is done, or was never acknowledged, is there"
    );
}
