//! The parts of the environment that matter to another program's command line.

use std::ffi::OsString;

/// Environment variables and system properties.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Whether one socket can serve IPv4 and IPv6.
    pub(crate) ipv6: Ipv6,
}

/// The system's support for IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ipv6 {
    /// There is no IPv6.
    #[default]
    Off,
    /// A socket for all of IPv6 serves IPv4 too.
    Dual,
    /// A socket for all of IPv6 does not serve IPv4.
    Only,
}

impl Ipv6 {
    /// Parses Linux's files.
    pub(crate) fn of(interfaces: Option<&str>, bindv6only: Option<&str>) -> Self {
        match (interfaces, bindv6only) {
            (None | Some(""), _) => Self::Off,
            (Some(_), Some(only)) if only.trim() == "1" => Self::Only,
            (Some(_), _) => Self::Dual,
        }
    }

    /// The hosts that stand for all addresses of this machine.
    pub(crate) const fn everywhere(self) -> &'static [&'static str] {
        match self {
            Self::Off => &["0.0.0.0"],
            Self::Dual => &["::"],
            Self::Only => &["0.0.0.0", "::"],
        }
    }
}

impl World {
    pub(crate) fn around() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let ipv6 = Ipv6::of(
            read("/proc/net/if_inet6").as_deref(),
            read("/proc/sys/net/ipv6/bindv6only").as_deref(),
        );
        Self {
            environment: std::env::vars_os().collect(),
            ipv6,
        }
    }

    /// The first directory that systemd has made for the service's data.
    pub(crate) fn state_directory(&self) -> Option<&str> {
        self.variable("STATE_DIRECTORY")
            .and_then(|paths| paths.split(':').next())
    }

    /// A variable that is set and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        let (_, value) = self.environment.iter().find(|(known, _)| known == name)?;
        value.to_str().filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_from_linuxs_files() {
        assert_eq!(
            Ipv6::of(
                Some("00000000000000000000000000000001 01 80 10 80 lo\n"),
                Some("0\n")
            ),
            Ipv6::Dual
        );
        assert_eq!(Ipv6::of(Some("x"), Some("1\n")), Ipv6::Only);
        assert_eq!(
            (Ipv6::of(Some(""), Some("0\n")), Ipv6::of(None, None)),
            (Ipv6::Off, Ipv6::Off)
        );
    }
}
