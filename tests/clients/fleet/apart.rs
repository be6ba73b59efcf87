//! Cases outside the table: jobs that cannot be converted, queues with rules of their own, names that are invalid in
//! Gearman, kept results, Debian's `gearman`, spiderq.

use std::thread;

use super::payloads::{self, Payload, Seen};
use super::peers::Protocol::{self, Eventmq, Faktory, Gearman};
use super::stage::{Fleet, Job, Producer, Stage};
use super::table::{GONE, done};
use crate::common::Peer;
use crate::common::spiderq::{ADDED, Bare, add};
use crate::programs::{Running, printed, stock};

/// A job that cannot be expressed in a protocol. It waits for a worker of another protocol.
struct Unconvertible {
    /// A queue with rules.
    queue: Option<&'static str>,
    from: Protocol,
    to: Protocol,
    job: Job<'static>,
}

const ENQUEUED: &str = r#""state":"enqueued""#;

/// A background job, for which no client waits.
const BACKGROUND: Job<'static> = job(b"a cake", true);

const fn job(body: &'static [u8], background: bool) -> Job<'static> {
    Job {
        body,
        background,
        unique: false,
        retries: None,
        secs: None,
        custom: "",
        jobtype: None,
        verbatim: true,
    }
}

const MISFITS: [Unconvertible; 10] = [
    Unconvertible {
        queue: None,
        from: Gearman,
        to: Eventmq,
        job: BACKGROUND,
    },
    Unconvertible {
        queue: None,
        from: Gearman,
        to: Eventmq,
        job: job(b"a cake", false),
    },
    Unconvertible {
        queue: None,
        from: Faktory,
        to: Eventmq,
        job: Job {
            jobtype: Some("Bake"),
            ..job(b"[]", false)
        },
    },
    Unconvertible {
        queue: None,
        from: Faktory,
        to: Eventmq,
        job: Job {
            custom: r#", "kwargs": 7"#,
            ..job(b"[]", false)
        },
    },
    Unconvertible {
        queue: None,
        from: Faktory,
        to: Gearman,
        job: Job {
            custom: r#", "_encoding": "base64""#,
            ..job(br#"["a cake"]"#, false)
        },
    },
    Unconvertible {
        queue: None,
        from: Eventmq,
        to: Faktory,
        job: job(b"bake a cake", false),
    },
    // Python's writing, which is not valid JSON.
    Unconvertible {
        queue: None,
        from: Eventmq,
        to: Faktory,
        job: job(
            br#"["run", {"path": "cakes", "callable": "bake", "args": [NaN]}]"#,
            false,
        ),
    },
    Unconvertible {
        queue: None,
        from: Eventmq,
        to: Faktory,
        job: job(br#"["walk", {"path": "cakes", "callable": "bake"}]"#, false),
    },
    Unconvertible {
        queue: Some("in-json"),
        from: Gearman,
        to: Faktory,
        job: BACKGROUND,
    },
    Unconvertible {
        queue: Some("in-base64"),
        from: Faktory,
        to: Gearman,
        job: job(br#"["a cake"]"#, false),
    },
];

/// The worker gets the next job; the job it cannot have goes to a worker of another protocol.
pub fn misfits(fleet: &Fleet) {
    for (number, misfit) in MISFITS.iter().enumerate() {
        let stage = fleet.stage(
            &misfit
                .queue
                .map_or_else(|| format!("misfit-{number}"), str::to_owned),
        );
        let mut producer = stage.producer(misfit.from);
        producer.submit(&misfit.job);
        let worker = stage.worker(misfit.to);
        worker.voice.tell("take");
        let others: Vec<&str> = ["faktory", "gearman", "eventmq"]
            .into_iter()
            .filter(|n| *n != misfit.to.name())
            .collect();
        let waits_for = format!(r#""waits_for":["{}"]"#, others.join(r#"",""#));
        stage.ends(&producer, &[ENQUEUED, &waits_for]);
        let next = match misfit.queue {
            Some("in-json") => IN_JSON[0].2,
            Some(_) => IN_BASE64[1].2,
            None => payloads::ordinary(misfit.from, misfit.to),
        };
        let other = submitted(
            &stage,
            misfit.from,
            &Job {
                body: next.sent,
                ..Job::default()
            },
        );
        next.is_seen(&worker.voice.hears("job"), &stage.queue, &other.id);
        worker.is_done("three eggs");
        done(misfit.from)
            .iter()
            .for_each(|words| other.hears(words));
        stage.ends(&producer, &[ENQUEUED, &waits_for]);
        let own = stage.worker(misfit.from);
        own.takes();
        own.is_done("three eggs");
        match misfit.job.background {
            true => stage.ends(&producer, GONE),
            false => done(misfit.from)
                .iter()
                .for_each(|words| producer.hears(words)),
        }
    }
}

/// Two fleets that happen to use one name, with the shipped configuration: each completes its own forty jobs.
pub fn two_fleets_on_one_name(fleet: &Fleet) {
    const JOBS: usize = 40;
    let pairs = [(Gearman, Faktory), (Faktory, Eventmq), (Eventmq, Gearman)];
    for (one, other) in pairs {
        thread::scope(|scope| {
            for protocol in [one, other] {
                scope.spawn(move || {
                    let stage = fleet.shipped_stage("default");
                    let payload = payloads::ordinary(protocol, protocol);
                    let job = Job {
                        body: payload.sent,
                        ..Job::default()
                    };
                    let worker = stage.worker(protocol);
                    // All jobs are queued before the worker takes the first.
                    let producers: Vec<_> = (0..JOBS)
                        .map(|_| submitted(&stage, protocol, &job))
                        .collect();
                    for producer in &producers {
                        payload.is_seen(&worker.takes(), &stage.queue, &producer.id);
                        worker.is_done("three eggs");
                    }
                    for producer in &producers {
                        done(protocol)
                            .iter()
                            .for_each(|words| producer.hears(words));
                    }
                });
            }
        });
    }
    let log = fleet.shipped_log_text();
    assert!(
        !log.contains("waits for a worker") && !log.contains("is dead"),
        "{log}"
    );
}

/// If two protocols use one queue without a bridge, the log names the setting that bridges it.
pub fn a_bridge_that_is_missing_is_told_of(fleet: &Fleet) {
    let stage = fleet.shipped_stage("shared by mistake");
    let _worker = stage.worker(Eventmq);
    let _producer = submitted(
        &stage,
        Gearman,
        &Job {
            body: b"a cake",
            ..Job::default()
        },
    );
    let line = "Gearman jobs wait in `shared by mistake`, which only EventMQ workers serve: see bridge.queues";
    crate::common::wait_until(line, || fleet.shipped_log_text().contains(line));
}

type Crossing = (Protocol, Protocol, Payload);

/// `codec = "json"`.
const IN_JSON: [Crossing; 3] = [
    (
        Gearman,
        Faktory,
        Payload {
            sent: br#"{"a": [1, 2.50]}"#,
            seen: Seen::Unit(&[r#""args":[{"a":[1,2.50]}]"#]),
        },
    ),
    (
        Gearman,
        Faktory,
        Payload {
            sent: br#"["a cake", 2]"#,
            seen: Seen::Unit(&[r#""args":["a cake",2]"#]),
        },
    ),
    (
        Faktory,
        Gearman,
        Payload {
            sent: br#"["a cake"]"#,
            seen: Seen::Bytes(br#"["a cake"]"#),
        },
    ),
];

/// `codec = "base64"`.
const IN_BASE64: [Crossing; 2] = [
    (
        Gearman,
        Faktory,
        Payload {
            sent: b"a cake",
            seen: Seen::Unit(&[r#""args":["YSBjYWtl"]"#, r#""_encoding":"base64""#]),
        },
    ),
    (
        Faktory,
        Gearman,
        Payload {
            sent: br#"["YSBjYWtl"]"#,
            seen: Seen::Bytes(b"a cake"),
        },
    ),
];

pub fn codecs(fleet: &Fleet) {
    let crossings = IN_JSON
        .iter()
        .map(|it| ("in-json", it))
        .chain(IN_BASE64.iter().map(|it| ("in-base64", it)));
    for (queue, (from, to, payload)) in crossings {
        let stage = fleet.stage(queue);
        let producer = submitted(
            &stage,
            *from,
            &Job {
                body: payload.sent,
                ..Job::default()
            },
        );
        let worker = stage.worker(*to);
        payload.is_seen(&worker.takes(), queue, &producer.id);
        worker.is_done("three eggs");
        done(*from).iter().for_each(|words| producer.hears(words));
    }
}

/// With `bridge = false` each protocol has its own jobs, and an older job of another protocol does not block them.
pub fn a_queue_without_a_bridge(fleet: &Fleet) {
    let stage = fleet.stage("apart");
    let producers = Protocol::ALL.map(|protocol| {
        let payload = payloads::ordinary(protocol, protocol);
        (
            protocol,
            payload,
            submitted(
                &stage,
                protocol,
                &Job {
                    body: payload.sent,
                    ..Job::default()
                },
            ),
        )
    });
    for (protocol, payload, producer) in producers.iter().rev() {
        let worker = stage.worker(*protocol);
        payload.is_seen(&worker.takes(), &stage.queue, &producer.id);
        worker.is_done("three eggs");
        done(*protocol)
            .iter()
            .for_each(|words| producer.hears(words));
    }
}

/// A function with another name in FWP.
pub fn an_alias(fleet: &Fleet) {
    let producer = submitted(
        &fleet.stage("image resize"),
        Gearman,
        &Job {
            body: b"a cake",
            ..Job::default()
        },
    );
    let worker = fleet.stage("image-resize").worker(Faktory);
    let unit = worker.takes().text();
    assert!(
        unit.contains(r#""queue":"image-resize""#) && unit.contains(r#""args":["a cake"]"#),
        "{unit}"
    );
    worker.is_done("three eggs");
    producer.hears("WORK_COMPLETE three eggs");
}

/// Debian's `gearman` submits and waits, and an FWP worker completes the job; and the other way round.
pub fn debians_gearman(fleet: &Fleet) {
    let address = fleet.address("gearman");
    let stage = fleet.stage("toast");
    thread::scope(|scope| {
        // On an error it gives up after this many milliseconds.
        let mut gearman = stock("gearman", address);
        gearman.args(["-t", "60000", "-f", "toast"]);
        let waits = scope.spawn(move || printed(&mut gearman, b"two slices"));
        let worker = stage.worker(Faktory);
        let unit = worker.takes().text();
        assert!(unit.contains(r#""args":["two slices"]"#), "{unit}");
        worker.is_done("toast");
        assert_eq!(waits.join().unwrap(), "toast");
    });

    let stage = fleet.stage("count");
    let _worker =
        Running::start(stock("gearman", address).args(["-w", "-f", "count", "--", "wc", "-c"]));
    let producer = submitted(
        &stage,
        Faktory,
        &Job {
            body: br#"["a cake"]"#,
            ..Job::default()
        },
    );
    producer.hears("success 6\n");
}

fn submitted<'a>(stage: &Stage<'a>, from: Protocol, job: &Job<'_>) -> Producer<'a> {
    let mut producer = stage.producer(from);
    producer.submit(job);
    producer
}

/// An EventMQ queue may have any name. A name with a NUL is not valid in Gearman; Gearman does not see that queue.
pub fn a_name_that_gearman_cannot_have(fleet: &Fleet) {
    let stage = fleet.stage("no\0gearman");
    let payload = payloads::ordinary(Eventmq, Eventmq);
    let producer = submitted(
        &stage,
        Eventmq,
        &Job {
            body: payload.sent,
            ..Job::default()
        },
    );
    let refused = stage.worker(Gearman);
    refused.voice.hears("ERROR");
    let worker = stage.worker(Eventmq);
    payload.is_seen(&worker.takes(), &stage.queue, &producer.id);
    worker.is_done("three eggs");
    producer.hears(r#"REPLY {"value": "three eggs"}"#);
}

/// EventMQ keeps the result of a job as long as the job (`eventmq.dedup`), in its own format, whichever protocol's
/// worker sent it.
pub fn a_result_that_is_kept(fleet: &Fleet) {
    for to in Protocol::ALL {
        let stage = fleet.hasty_stage(&format!("kept-{}", to.name()));
        let payload = payloads::ordinary(Eventmq, to);
        let first = submitted(
            &stage,
            Eventmq,
            &Job {
                body: payload.sent,
                unique: true,
                ..Job::default()
            },
        );
        let worker = stage.worker(to);
        payload.is_seen(&worker.takes(), &stage.queue, &first.id);
        worker.is_done("three eggs");
        first.hears(r#"REPLY {"value": "three eggs"}"#);
        let again = submitted(
            &stage,
            Eventmq,
            &Job {
                body: payload.sent,
                unique: true,
                ..Job::default()
            },
        );
        again.hears(r#"REPLY {"value": "three eggs"}"#);
    }
}

/// spiderq's entries cycle in a queue of their own: no worker of another protocol gets one, and no other client can
/// submit to the queue.
pub fn entries_of_spiderq(fleet: &Fleet) {
    let mut spiderq = Bare::connect(fleet.address("spiderq"));
    assert_eq!(spiderq.ask(&add("key", b"a cake")), ADDED);
    let mut gearman = Peer::connect(fleet.address("gearman")).unwrap();
    gearman.can_do("spiderq").unwrap();
    let refused = gearman.grab().unwrap_err().to_string();
    assert!(refused.contains("Error"), "{refused}");
    assert!(gearman.submit("spiderq", "", "an egg").is_err());
    let stage = fleet.stage("spiderq");
    let mut producer = stage.producer(Faktory);
    producer.send(&Job {
        body: b"[]",
        ..Job::default()
    });
    producer.voice.hears("refused");
    stage.worker(Faktory).takes_none();
    assert_eq!(spiderq.lease(false).unwrap().value, b"a cake");
}
