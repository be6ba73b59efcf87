//! Policies under stock clients: PyPI `gear` and PyPI `faktory`, unchanged. The scenes are in `policies_peer.py`.
//!
//! A missing client is a failure, never a skip.

use crate::client::{python, run};
use crate::common::daemon;

const POLICIES: &str = "
[queues.rated]
rate = { jobs = 20, per = '1s', burst = 2 }

[queues.single]
key = { args = '/0/tenant' }
ordered = true

[queues.shared]
key = { args = '/0/tenant' }
fair = true

[queues.latest]
key = { args = '/0/tenant' }
coalesce = { by = 'key', quiet = '200ms', at_most = '1h' }
";

fn play(protocol: &str, scene: &str) {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).set(POLICIES).start();
    let address = daemon.address(protocol);
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let (well, said) = run(python("interop/policies_peer.py").args([protocol, &host, &port, scene]));
    assert!(well, "{said}\n{}", daemon.log_text());
}

macro_rules! scenes {
    ($($protocol:ident: $($scene:ident)*;)*) => {
        $(mod $protocol {
            $(#[test]
            fn $scene() {
                super::play(stringify!($protocol), stringify!($scene));
            })*
        })*
    };
}

scenes! {
    gearman: rate running fair burst;
    faktory: rate running fair burst;
}
