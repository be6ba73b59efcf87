//! Policies under stock clients, unchanged: PyPI `gear`, Debian's `gearman` with libgearman, PyPI `faktory`, the released
//! client and JobManager of EventMQ, and pyzmq for spiderq. The scenes are in `policies_peer.py`.
//!
//! `WINDLASS_TEST_RATE_SECONDS=60` holds the rate for so long, and asserts it to 2 %. A missing client is a failure, never
//! a skip.

use crate::client::{python, run_for};
use crate::common::daemon;

const POLICIES: &str = "
[queues.rated]
rate = { jobs = 20, per = '1s', burst = 10 }

[queues.spiderq]
rate = { jobs = 20, per = '1s', burst = 10 }

[queues.single]
key = { args = '/0/tenant' }
ordered = true

[queues.couples]
key = { args = '/0/tenant' }
per_key = { running = 2 }

[queues.paced]
key = { args = '/0/tenant' }
per_key = { rate = { jobs = 10, per = '1s', burst = 1 } }

[queues.shared]
key = { args = '/0/tenant' }
fair = true

[queues.latest]
key = { args = '/0/tenant' }
coalesce = { by = 'key', quiet = '200ms', at_most = '1h' }

[queues.once]
dedup = { window = '1h' }

[queues.stale]
ttl = '200ms'

[queues.full]
key = { args = '/0/tenant' }
per_key = { waiting_max = 3 }
";

fn play(client: &str, scene: &str) {
    let dir = tempfile::tempdir().unwrap();
    let protocol = if matches!(client, "gear" | "tool") {
        "gearman"
    } else {
        client
    };
    let daemon = daemon(dir.path()).set(POLICIES).eventmq("").start();
    let address = daemon.address(protocol);
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let mut peer = python("interop/policies_peer.py");
    peer.args([
        client,
        &host,
        &port,
        &daemon.address("http").to_string(),
        scene,
    ]);
    let seconds = std::env::var("WINDLASS_TEST_RATE_SECONDS")
        .ok()
        .filter(|_| scene == "rate");
    let patience_s = 120
        + 3 * seconds
            .as_ref()
            .map_or(0, |seconds| seconds.parse::<u64>().unwrap());
    let (well, said) = run_for(peer.args(seconds), patience_s);
    assert!(well, "{said}\n{}", daemon.log_text());
    println!("{client} {scene}: {said}");
}

macro_rules! scenes {
    ($($client:ident: $($scene:ident)*;)*) => {
        $(mod $client {
            $(#[test]
            fn $scene() {
                super::play(stringify!($client), stringify!($scene));
            })*
        })*
    };
}

// Stock clients of EventMQ never repeat a request, and PyPI `gear` waits for a job that was refused.
scenes! {
    gear: rate running couples paced fair burst again stale;
    tool: rate running couples paced fair burst again stale full;
    faktory: rate running couples paced fair burst again stale full;
    eventmq: rate running couples paced fair burst stale;
    spiderq: rate;
}
