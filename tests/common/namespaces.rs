//! Three namespaces of one daemon, in which fleets use equal names at once.

use std::fmt::Write as _;
use std::thread;

/// The namespaces; the first is the one without a name.
pub const NAMES: [&str; 3] = ["", "shop", "staging"];

/// Their sections.
pub const SECTIONS: &str = "[namespaces.shop]\n[namespaces.staging]\n";

/// The key `listen` with their addresses, in the order of [`NAMES`].
pub fn listen(address: impl Fn(&str) -> String) -> String {
    let mut toml = format!("listen = [{:?}", address(""));
    for name in NAMES.into_iter().skip(1) {
        let at = address(name);
        write!(toml, ", {{ address = {at:?}, namespace = {name:?} }}").unwrap();
    }
    toml + "]\n"
}

/// With free ports.
pub fn listen_tcp() -> String {
    listen(|_| "127.0.0.1:0".to_owned())
}

/// Plays in all places at once. A panic there is a panic here.
pub fn at_once<T: Sync>(places: &[T], play: impl Fn(&T) + Sync) {
    thread::scope(|scope| {
        for place in places {
            scope.spawn(|| play(place));
        }
    });
}
