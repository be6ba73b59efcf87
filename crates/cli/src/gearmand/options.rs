//! Every option of gearmand 1.1.20 and its effect here, as text. `--help`, warnings, refusals and the table in
//! `crates/cli/README.md` use this text.

/// One option.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opt {
    /// Without its dashes.
    pub(super) long: &'static str,
    pub(super) short: Option<char>,
    pub(super) takes: Takes,
    pub(super) fate: Fate,
    /// Its effect, why it is ignored, or why it is refused.
    pub(super) words: &'static str,
}

/// The argument of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Number,
    Text,
}

/// The treatment of an option that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has the same effect as in gearmand.
    Mapped,
    /// It has no effect, and a warning gives the reason.
    Ignored,
    /// The daemon does not start, and a message gives the reason.
    Refused,
    /// It is an option of Windlass, not of gearmand.
    Ours,
}

const fn opt(long: &'static str, short: Option<char>, takes: Takes, fate: Fate, words: &'static str) -> Opt {
    Opt { long, short, takes, fate, words }
}

const OTHER_QUEUE: &str = "only other queue types need it; jobs are kept in --data-dir";
const HTTP: &str = "gearmand's HTTP is not spoken; let its clients speak Gearman, or keep a gearmand for them";

use Fate::{Ignored, Mapped, Ours, Refused};
use Takes::{Nothing, Number, Text};

/// In the order of gearmand's own help.
#[rustfmt::skip]
pub(super) const OPTIONS: &[Opt] = &[
    opt("backlog", Some('b'), Number, Mapped, "server.backlog"),
    opt("daemon", Some('d'), Nothing, Mapped, "runs in the background; the command ends when the port is open, or with an error"),
    opt("exceptions", None, Nothing, Mapped, "gearman.exceptions"),
    opt("file-descriptors", Some('f'), Number, Mapped, "server.connections_max; the limit on open files is raised to hold them"),
    opt("help", Some('h'), Nothing, Mapped, "this text"),
    opt("job-retries", Some('j'), Number, Mapped, "gearman.job_retries; an explicit 0 or less is no limit and sets limits.losses_max = 0. Without it: limits.losses_max, 5 lost workers or timeouts"),
    opt("job-handle-prefix", None, Text, Mapped, "gearman.handle_prefix, at most 42 bytes"),
    opt("hashtable-buckets", None, Number, Ignored, "tables grow by themselves"),
    opt("keepalive", None, Nothing, Mapped, "always on, as in gearmand"),
    opt("keepalive-idle", None, Number, Mapped, "server.keepalive_idle; -1 keeps the system's default"),
    opt("keepalive-interval", None, Number, Mapped, "server.keepalive_interval; -1 keeps the system's default"),
    opt("keepalive-count", None, Number, Mapped, "server.keepalive_count; -1 keeps the system's default"),
    opt("log-file", Some('l'), Text, Mapped, "log.file; `stderr` is standard error, `none` logs nothing. Without it: standard error, with --daemon /var/log/gearmand.log"),
    opt("listen", Some('L'), Text, Mapped, "gearman.listen, with --port; without it, all addresses of this machine"),
    opt("pid-file", Some('P'), Text, Mapped, "holds the process id while the port is open; without it, there is no pid file"),
    opt("protocol", Some('r'), Text, Refused, HTTP),
    opt("round-robin", Some('R'), Nothing, Mapped, "gearman.round_robin"),
    opt("queue-type", Some('q'), Text, Mapped, "builtin and libsqlite3: jobs are kept in --data-dir either way, on the disk, and those in --libsqlite3-db are taken over; any other type is refused: drain its queue with gearmand first"),
    opt("config-file", None, Text, Mapped, "more options, separated by whitespace; without it, /etc/gearmand.conf if it exists. The command line overrides it"),
    opt("syslog", None, Nothing, Ignored, "log lines go to standard error, where a service manager takes them, or to --log-file"),
    opt("coredump", None, Nothing, Mapped, "raises the limit on core files as far as permitted"),
    opt("threads", Some('t'), Number, Mapped, "server.threads; 0, and the default, is one per core"),
    opt("user", Some('u'), Text, Mapped, "switches to this user and its groups before opening anything; requires root"),
    opt("verbose", None, Text, Mapped, "log.level: FATAL, ALERT, CRITICAL, ERROR are error, WARNING is warn, NOTICE, INFO are info, DEBUG is debug. Without it: info"),
    opt("version", Some('V'), Nothing, Mapped, "prints the version of gearmand that is emulated, and of Windlass"),
    opt("worker-wakeup", Some('w'), Number, Ignored, "the daemon always wakes as many sleeping workers as there are jobs"),
    opt("http-port", None, Number, Ignored, HTTP),
    opt("port", Some('p'), Text, Mapped, "gearman.listen, with --listen; without it GEARMAND_PORT or 4730. Of a number above 65535 the lowest 16 bits count"),
    opt("ssl", None, Nothing, Mapped, "gearman.tls: the port speaks TLS and nothing else"),
    opt("ssl-ca-file", None, Text, Ignored, "as in gearmand, clients need no certificate; --set gearman.tls.client_ca=FILE requires one from all clients"),
    opt("ssl-certificate", None, Text, Mapped, "gearman.tls.certificate, with --ssl; GEARMAND_SERVER_PEM overrides it"),
    opt("ssl-key", None, Text, Mapped, "gearman.tls.key, with --ssl; GEARMAND_SERVER_KEY overrides it"),
    opt("libmemcached-servers", None, Text, Ignored, OTHER_QUEUE),
    opt("libmemcached-prefix", None, Text, Ignored, OTHER_QUEUE),
    opt("libsqlite3-db", None, Text, Mapped, "with -q libsqlite3 the jobs in it are taken over at the start, once, as by `windlass import gearmand-sqlite`; it is only read. It may be missing, but not its folder"),
    opt("store-queue-on-shutdown", None, Nothing, Ignored, "every background job is written to disk immediately"),
    opt("libsqlite3-table", None, Text, Mapped, "the table in it; gearman_queue without it"),
    opt("libpq-conninfo", None, Text, Ignored, OTHER_QUEUE),
    opt("libpq-table", None, Text, Ignored, OTHER_QUEUE),
    opt("redis-server", None, Text, Ignored, OTHER_QUEUE),
    opt("redis-port", None, Text, Ignored, OTHER_QUEUE),
    opt("redis-password", None, Text, Ignored, OTHER_QUEUE),
    opt("redis-prefix", None, Text, Ignored, OTHER_QUEUE),
    opt("mysql-host", None, Text, Ignored, OTHER_QUEUE),
    opt("mysql-port", None, Text, Ignored, OTHER_QUEUE),
    opt("mysql-user", None, Text, Ignored, OTHER_QUEUE),
    opt("mysql-password", None, Text, Ignored, OTHER_QUEUE),
    opt("mysql-db", None, Text, Ignored, OTHER_QUEUE),
    opt("mysql-table", None, Text, Ignored, OTHER_QUEUE),
    opt("check-args", None, Nothing, Mapped, "checks the options, starts nothing"),
    opt("data-dir", None, Text, Ours, "data_dir. Without it WINDLASS_DATA_DIR, then STATE_DIRECTORY (a unit's StateDirectory=), then /var/lib/windlass, or /var/lib/windlass-PORT if the port is not 4730"),
    opt("durability", None, Text, Ours, "durability: sync or interval"),
    opt("windlass-config", None, Text, Ours, "a configuration of Windlass (TOML); gearmand's options override it"),
    opt("set", None, Text, Ours, "one key of it, as in --set limits.jobs_max=1000; may be repeated, and overrides everything else"),
];

/// Marks the process that `--daemon` leaves behind. Internal.
pub(super) const DETACHED: Opt = opt("detached", None, Nothing, Ours, "");

impl Opt {
    pub(super) fn named(long: &str) -> Option<&'static Self> {
        OPTIONS.iter().chain([&DETACHED]).find(|option| option.long == long)
    }

    pub(super) fn lettered(short: char) -> Option<&'static Self> {
        OPTIONS.iter().find(|option| option.short == Some(short))
    }

    /// As gearmand's help writes it.
    fn usage(&self) -> String {
        let short = self.short.map(|short| format!("-{short}, ")).unwrap_or_default();
        let argument = match self.takes {
            Nothing => "",
            Number => " N",
            Text => " ARG",
        };
        format!("{short}--{}{argument}", self.long)
    }

    const fn verdict(&self) -> &'static str {
        match self.fate {
            Mapped | Ours => "",
            Ignored => "ignored: ",
            Refused => "refused: ",
        }
    }
}

/// The text of `--help`.
pub(super) fn help(argv0: &str) -> String {
    const WIDTH: usize = 80;
    let mut text = format!(
        "Windlass in gearmand's place.\n\nUsage: {argv0} [OPTION]...\n\nOptions of gearmand, and their effect here \
         (names with a dot are keys of\nWindlass's configuration, which `windlass config` explains):\n"
    );
    let mut ours = false;
    for option in OPTIONS {
        if option.fate == Ours && !ours {
            ours = true;
            text.push_str("\nOptions of Windlass:\n");
        }
        text.push_str(&format!("  {}\n", option.usage()));
        let mut line = String::new();
        for word in format!("{}{}", option.verdict(), option.words).split(' ') {
            if !line.is_empty() && 10 + line.len() + 1 + word.len() > WIDTH {
                text.push_str(&format!("          {line}\n"));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        text.push_str(&format!("          {line}\n"));
    }
    text.push_str(EPILOGUE);
    text
}

const EPILOGUE: &str = "
WINDLASS_* variables apply as for `windlass serve`; gearmand's options override
them. Signals and exit codes are those of `windlass serve`, except that mistakes
in these options give 1, as from gearmand.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_this_table() {
        let document = include_str!("../../README.md");
        let (document, _) = document.split_once("\n## `windlass faktory`\n").unwrap();
        for option in OPTIONS {
            let fate = match option.fate {
                Mapped => "mapped",
                Ignored => "ignored",
                Refused => "refused",
                Ours => "ours",
            };
            let row = format!("| `{}` | {fate} | {} |\n", option.usage(), option.words);
            assert!(document.contains(&row), "crates/cli/README.md lacks\n{row}");
        }
        let rows = document.lines().filter(|line| line.starts_with("| `-")).count();
        assert_eq!(rows, OPTIONS.len(), "crates/cli/README.md has rows for options that do not exist");
    }

    #[test]
    fn help_fits_a_terminal_and_has_every_option() {
        let help = help("gearmand");
        for line in help.lines() {
            assert!(line.len() <= 80, "{line}");
        }
        for option in OPTIONS {
            assert!(help.contains(&format!("--{}", option.long)), "{option:?}");
        }
        assert!(!help.contains("detached"));
    }

    #[test]
    fn names_and_letters_are_given_once() {
        for (at, option) in OPTIONS.iter().enumerate() {
            assert_eq!(Opt::named(option.long), OPTIONS.get(at), "{}", option.long);
            assert!(option.short.is_none_or(|short| Opt::lettered(short) == OPTIONS.get(at)), "{}", option.long);
        }
    }
}
