//! A backlog of many small jobs: pushed, killed, started again and drained in order, with each body compared. Memory
//! stays below its limit, and another queue is served throughout.
//!
//! With larger numbers it is a measurement: it prints rates, and how long a blocked take of another queue waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use windlass_gearman::wire::{AssignForm, Request, Response};
use windlass_testkit::daemon::Daemon;

use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::{Peer, daemon, from_env, submission};

/// Requests that are sent before their answers are read.
const AT_ONCE: usize = 100;

struct Shape {
    jobs: usize,
    body_bytes: usize,
    /// `limits.memory`. A daemon of 8 MiB has two megabytes for jobs.
    memory_mib: u64,
}

fn shape() -> Shape {
    let number = |name: &str, default| usize::try_from(from_env(name, default)).unwrap();
    Shape {
        jobs: number("WINDLASS_TEST_BACKLOG_JOBS", 20_000) / AT_ONCE * AT_ONCE,
        body_bytes: number("WINDLASS_TEST_BACKLOG_BYTES", 100),
        memory_mib: from_env("WINDLASS_TEST_BACKLOG_MIB", 8),
    }
}

impl Shape {
    fn body(&self, number: usize) -> String {
        let head = format!("{number} ");
        let mut body = head.repeat(self.body_bytes / head.len() + 1);
        body.truncate(self.body_bytes.max(head.len()));
        body
    }

    fn start(&self, dir: &std::path::Path) -> Daemon {
        daemon(dir)
            .set(&format!("[limits]\nmemory = \"{}MiB\"", self.memory_mib))
            .start()
    }
}

/// Runs something for each part of the numbers, and returns the rates of the tenths.
fn by_tenths(jobs: usize, mut part: impl FnMut(std::ops::Range<usize>)) -> Vec<u128> {
    let (mut rates, mut begun, mut from) = (Vec::new(), Instant::now(), 0);
    for first in (0..jobs).step_by(AT_ONCE) {
        part(first..first + AT_ONCE);
        let done = first + AT_ONCE;
        if done * 10 / jobs > rates.len() {
            rates.push((done - from) as u128 * 1_000_000 / begun.elapsed().as_micros().max(1));
            (begun, from) = (Instant::now(), done);
        }
    }
    rates
}

/// The time below which this percentage of the samples is, in milliseconds.
fn within(samples: &mut [Duration], percent: usize) -> f64 {
    samples.sort_unstable();
    samples
        .get(samples.len() * percent / 100)
        .map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
}

/// A worker waits at another queue, and gets each job that is pushed there, until it shall stop. Prints how long that
/// takes.
fn use_another_queue(daemon: &Daemon, when: &str, stop: &AtomicBool) {
    let address = daemon.address("faktory");
    let (mut client, mut worker) = (Fwp::connect(address), Fwp::connect(address));
    let mut times = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::Acquire) && number > 3 {
            break;
        }
        worker.say("FETCH other");
        std::thread::sleep(Duration::from_millis(5)); // the rate of the measurement
        let begun = Instant::now();
        let job = format!(
            "{{\"jid\":\"other-{when}-{number}\",\"jobtype\":\"T\",\"queue\":\"other\",\"args\":[]}}"
        );
        client.say(&format!("PUSH {job}"));
        assert!(
            worker
                .hear()
                .unwrap()
                .contains(&format!("other-{when}-{number}"))
        );
        times.push(begun.elapsed());
        assert_eq!(client.hear().unwrap(), "+OK");
        assert_eq!(
            worker.ask(&format!("ACK {{\"jid\":\"other-{when}-{number}\"}}")),
            "+OK"
        );
        beat(&mut worker);
    }
    println!(
        "another queue, {when}: p50 {:.2} ms, p99 {:.2} ms",
        within(&mut times, 50),
        within(&mut times, 99)
    );
}

/// All clients of FWP are one worker, which must say from time to time that it is there.
fn beat(fwp: &mut Fwp) {
    assert_eq!(fwp.ask("BEAT {\"wid\":\"wid-1\"}"), "+OK");
}

/// Runs something while another queue is in use.
fn beside_another_queue<T>(daemon: &Daemon, when: &str, run: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| use_another_queue(daemon, when, &stop));
        let result =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|why| {
                eprintln!("{}", daemon.log_text());
                std::panic::resume_unwind(why)
            });
        stop.store(true, Ordering::Release);
        other.join().unwrap();
        result
    })
}

/// Jobs take no more memory than they may.
fn check_memory(daemon: &Daemon, shape: &Shape) {
    let [used, most] = [
        "windlass_jobs_memory_bytes",
        "windlass_jobs_memory_limit_bytes",
    ]
    .map(|series| Http(daemon.address("http")).metric(series));
    assert!(
        used <= most + 100_000.0,
        "{used} of {most} bytes: what a job has beside its body comes on top"
    );
    let peak = daemon.peak_bytes() >> 20;
    println!("jobs in memory: {used} of {most} bytes, peak of the daemon {peak} MiB");
    assert!(
        shape.memory_mib < 256 || peak <= shape.memory_mib,
        "{peak} MiB"
    );
}

/// Pushes by one protocol, kills the daemon, and drains.
fn survives(
    push: impl FnOnce(&Daemon, &Shape) -> Vec<u128>,
    drain: impl FnOnce(&Daemon, &Shape) -> Vec<u128>,
) {
    let (dir, shape) = (tempfile::tempdir().unwrap(), shape());
    let mut daemon = shape.start(dir.path());
    beside_another_queue(&daemon, "alone", || {
        std::thread::sleep(Duration::from_millis(shape.jobs as u64 / 1_000))
    });
    let pushed = beside_another_queue(&daemon, "pushing", || push(&daemon, &shape));
    println!("pushed, jobs/s by tenths: {pushed:?}");
    check_memory(&daemon, &shape);
    daemon.kill();
    let begun = Instant::now();
    daemon.restart();
    println!("ready after {:.1} s", begun.elapsed().as_secs_f64());
    check_memory(&daemon, &shape);
    let drained = beside_another_queue(&daemon, "draining", || drain(&daemon, &shape));
    println!("drained, jobs/s by tenths: {drained:?}");
    check_memory(&daemon, &shape);
}

#[test]
fn many_gearman_jobs_survive_in_little_memory() {
    let push = |daemon: &Daemon, shape: &Shape| {
        let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
        by_tenths(shape.jobs, |numbers| {
            for number in numbers.clone() {
                peer.send(&submission("backlog", "", shape.body(number), true))
                    .unwrap();
            }
            for number in numbers {
                let packet = peer.packet().unwrap();
                assert!(
                    matches!(Response::parse(&packet), Ok(Response::JobCreated { .. })),
                    "j{number}: {packet:?}"
                );
            }
        })
    };
    survives(push, |daemon, shape| {
        let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
        peer.can_do("backlog").unwrap();
        let mut waits = Vec::new();
        let rates = by_tenths(shape.jobs, |numbers| {
            let begun = Instant::now();
            numbers
                .clone()
                .for_each(|_| peer.send(&Request::Grab(AssignForm::Plain)).unwrap());
            let handles = numbers.map(|number| {
                let packet = peer.packet().unwrap();
                waits.push(begun.elapsed());
                let Ok(Response::JobAssign {
                    handle, workload, ..
                }) = Response::parse(&packet)
                else {
                    panic!("job {number}: {packet:?}")
                };
                assert!(
                    workload[..] == *shape.body(number).as_bytes(),
                    "job {number}: {workload:.40?}"
                );
                bytes::Bytes::copy_from_slice(handle)
            });
            handles
                .collect::<Vec<_>>()
                .iter()
                .for_each(|handle| peer.complete(handle).unwrap());
        });
        println!(
            "a hundred takes at once: p50 {:.2} ms, p99 {:.2} ms",
            within(&mut waits, 50),
            within(&mut waits, 99)
        );
        rates
    });
}

#[test]
fn many_jobs_of_fwp_survive_in_little_memory() {
    let push = |daemon: &Daemon, shape: &Shape| {
        let mut fwp = Fwp::connect(daemon.address("faktory"));
        by_tenths(shape.jobs, |numbers| {
            let job = |number| {
                let body = shape.body(number);
                format!(
                    "{{\"jid\":\"backlog-{number:016}\",\"jobtype\":\"T\",\"args\":[\"{body}\"]}}"
                )
            };
            let jobs: Vec<String> = numbers.map(job).collect();
            assert_eq!(fwp.ask(&format!("PUSHB [{}]", jobs.join(","))), "{}");
        })
    };
    survives(push, |daemon, shape| {
        let mut fwp = Fwp::connect(daemon.address("faktory"));
        by_tenths(shape.jobs, |numbers| {
            numbers.clone().for_each(|_| fwp.say("FETCH default"));
            for number in numbers.clone() {
                let (job, jid) = (fwp.hear().unwrap(), format!("backlog-{number:016}"));
                assert!(
                    job.contains(&shape.body(number)) && job.contains(&jid),
                    "{job:.80}"
                );
            }
            for number in numbers.clone() {
                fwp.say(&format!("ACK {{\"jid\":\"backlog-{number:016}\"}}"));
            }
            numbers.for_each(|_| assert_eq!(fwp.hear().unwrap(), "+OK"));
            beat(&mut fwp);
        })
    });
}
