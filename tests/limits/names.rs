//! What clients make grow beside jobs: names, subscriptions and keys. All of it counts, and beyond `limits.memory` it is refused.

use bytes::BytesMut;
use windlass_gearman::wire::{Kind, Request};
use windlass_testkit::cgroup::MemoryGroup;
use windlass_testkit::daemon::{Daemon, Plan};

use crate::common::{Peer, daemon, from_env, submission};

/// The memory of the machine, page cache included: twice the daemon's limit.
const MACHINE_BYTES: u64 = 512 << 20;

/// Commands that a client sends at once.
const AT_ONCE: u64 = 50;

/// A name of the longest kind.
fn long(number: u64) -> String {
    format!("{number:07900}")
}

/// Sends requests, each with a number, until one is refused or there have been enough. Returns how many were not.
fn until_refused(peer: &mut Peer, many: u64, request: impl Fn(u64) -> Request) -> u64 {
    for first in (0..many).step_by(usize::try_from(AT_ONCE).unwrap()) {
        let mut batch = BytesMut::new();
        (first..first + AT_ONCE).for_each(|number| request(number).encode(&mut batch));
        Request::Echo {
            data: "done".into(),
        }
        .encode(&mut batch);
        peer.send_raw(&batch).unwrap();
        let mut refused = 0;
        loop {
            match peer.packet().unwrap().kind {
                Kind::JOB_CREATED => {}
                Kind::ERROR => refused += 1,
                Kind::ECHO_RES => break,
                other => panic!("{other:?}"),
            }
        }
        if refused > 0 {
            return first + AT_ONCE - refused;
        }
    }
    many
}

fn works(daemon: &Daemon, function: &str) {
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.can_do(function).unwrap();
    for _ in 0..100 {
        let handle = worker.grab().unwrap().expect("a job").handle;
        worker.complete(&handle).unwrap();
    }
}

#[test]
fn names_and_keys_without_end_are_refused_in_the_protocol_s_words() {
    let scale = from_env("WINDLASS_TEST_NAMES", 20_000);
    let dir = tempfile::tempdir().unwrap();
    let group = MemoryGroup::new("windlass-names", MACHINE_BYTES);
    let keys =
        "[limits]\nmemory = \"256MiB\"\n[queues.fair]\nkey = { prefix = \"|\" }\nfair = true\n";
    let daemon = group
        .iter()
        .fold(daemon(dir.path()).set(keys), Plan::within)
        .start();
    let address = daemon.address("gearman");

    // Its name comes before the others: how many bytes are left when they are refused is chance.
    let mut client = Peer::connect(address).unwrap();
    client.submit("fair", "", "first|a job").unwrap();

    // Functions that no job has, and jobs of as many functions.
    let mut workers: Vec<Peer> = (0..100).map(|_| Peer::connect(address).unwrap()).collect();
    let can_do = |worker: u64| {
        move |number| Request::CanDo {
            function: long(worker << 32 | number).into(),
        }
    };
    let known: u64 = workers
        .iter_mut()
        .zip(0..)
        .map(|(peer, n)| until_refused(peer, scale / 100, can_do(n)))
        .sum();
    let named = until_refused(&mut client, scale, |number| {
        submission(&long(1 << 48 | number), "", "x", true)
    });
    assert!(
        named < scale && known < scale,
        "{known} functions of workers, {named} of jobs"
    );

    // A key for each job.
    let keyed = until_refused(&mut client, scale * 10, |number| {
        submission("fair", "", format!("{number}|a job"), true)
    });
    assert!(
        keyed > 1_000,
        "{keyed} jobs with keys: names leave them the other half"
    );
    assert!(keyed < scale * 10, "{keyed} jobs with keys");
    works(&daemon, "fair");
    let log = daemon.log_text();
    assert!(
        log.contains("rejected a name, a subscription, a worker or a wait"),
        "{log}"
    );
    let (own, all) = (
        daemon.peak_bytes(),
        group.as_ref().map_or(0, MemoryGroup::peak),
    );
    println!(
        "{known} + {named} names, {keyed} keys: {} MiB, with the page cache {} MiB",
        own >> 20,
        all >> 20
    );
    assert!(own < MACHINE_BYTES * 3 / 4, "{own} bytes");
    assert_eq!(group.as_ref().map_or(0, MemoryGroup::kills), 0);
}
