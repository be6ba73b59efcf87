//! The names of this system's users.

use std::fs;

/// The system's list of users. A directory service may know more.
const USERS: &str = "/etc/passwd";

/// The name of a user, or `uid 1000` for one that the list does not have.
pub(crate) fn user_name(uid: u32) -> String {
    // Short, and read only for connections to a Unix socket.
    let users = fs::read(USERS).unwrap_or_default();
    named(&String::from_utf8_lossy(&users), uid)
}

fn named(users: &str, uid: u32) -> String {
    let name = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?.to_owned();
        fields
            .nth(1)?
            .parse()
            .is_ok_and(|own: u32| own == uid)
            .then_some(name)
    };
    users
        .lines()
        .find_map(name)
        .unwrap_or_else(|| format!("uid {uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names() {
        let users = "# users\nroot:x:0:0:root:/root:/bin/sh\n:x:7:7::/:\nada:x:1000:1000:Ada,,,:/home/ada:/bin/sh\nno:line\n";
        let table = [(0, "root"), (1000, "ada"), (7, "uid 7"), (100, "uid 100")];
        for (uid, expected) in table {
            assert_eq!(named(users, uid), expected);
        }
    }
}
