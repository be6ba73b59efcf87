//! Every option of gearmand 1.1.20 and what becomes of it here, in words. The words are what `--help`, warnings, refusals
//! and the table in `crates/cli/README.md` say.

/// One option.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opt {
    /// Without its dashes.
    pub(super) long: &'static str,
    pub(super) short: Option<char>,
    pub(super) takes: Takes,
    pub(super) fate: Fate,
    /// What it becomes, why it is ignored, or why it is refused.
    pub(super) words: &'static str,
}

/// What follows an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Number,
    Text,
}

/// What becomes of an option that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It does what it does in gearmand.
    Mapped,
    /// It has no effect, and a line of warning says why.
    Ignored,
    /// The daemon does not start, and a line says why.
    Refused,
    /// It is none of gearmand's.
    Ours,
}

const fn opt(long: &'static str, short: Option<char>, takes: Takes, fate: Fate, words: &'static str) -> Opt {
    Opt { long, short, takes, fate, words }
}

const OTHER_QUEUE: &str = "only another kind of queue needs it; jobs are kept in --data-dir";
const HTTP: &str = "gearmand's HTTP is not spoken; let its clients speak Gearman, or keep a gearmand for them";

use Fate::{Ignored, Mapped, Ours, Refused};
use Takes::{Nothing, Number, Text};

/// In the order of gearmand's own help.
#[rustfmt::skip]
pub(super) const OPTIONS: &[Opt] = &[
    opt("backlog", Some('b'), Number, Mapped, "server.backlog"),
    opt("daemon", Some('d'), Nothing, Mapped, "goes on in the background; the command ends when the port is open, or with the reason why it is not"),
    opt("exceptions", None, Nothing, Mapped, "gearman.exceptions"),
    opt("file-descriptors", Some('f'), Number, Mapped, "server.connections_max; the limit on open files is raised to hold them"),
    opt("help", Some('h'), Nothing, Mapped, "this text"),
    opt("job-retries", Some('j'), Number, Mapped, "gearman.job_retries; 0 and -1 are no limit"),
    opt("job-handle-prefix", None, Text, Mapped, "gearman.handle_prefix, at most 42 bytes"),
    opt("hashtable-buckets", None, Number, Ignored, "tables grow by themselves"),
    opt("keepalive", None, Nothing, Mapped, "is always on, as it is in gearmand"),
    opt("keepalive-idle", None, Number, Mapped, "server.keepalive_idle; -1 is the system's own"),
    opt("keepalive-interval", None, Number, Mapped, "server.keepalive_interval; -1 is the system's own"),
    opt("keepalive-count", None, Number, Mapped, "server.keepalive_count; -1 is the system's own"),
    opt("log-file", Some('l'), Text, Mapped, "log.file; `stderr` is standard error, `none` logs nothing. Without it: standard error, with --daemon /var/log/gearmand.log"),
    opt("listen", Some('L'), Text, Mapped, "gearman.listen, with --port; without it every address of this machine"),
    opt("pid-file", Some('P'), Text, Mapped, "holds the number of the process while its port is open; without it there is none"),
    opt("protocol", Some('r'), Text, Refused, HTTP),
    opt("round-robin", Some('R'), Nothing, Mapped, "gearman.round_robin"),
    opt("queue-type", Some('q'), Text, Mapped, "builtin and libsqlite3: jobs are kept in --data-dir either way, on the disk, and those in --libsqlite3-db are taken over; any other is refused: drain it with gearmand first"),
    opt("config-file", None, Text, Mapped, "more options, between blanks; /etc/gearmand.conf if it is there. The command line goes before it"),
    opt("syslog", None, Nothing, Ignored, "log lines go to standard error, where a service manager takes them, or to --log-file"),
    opt("coredump", None, Nothing, Mapped, "the limit on core files is lifted as far as it may be"),
    opt("threads", Some('t'), Number, Mapped, "server.threads; 0, and no such option, is one per core"),
    opt("user", Some('u'), Text, Mapped, "becomes this user, with its groups, before anything is opened; only root can"),
    opt("verbose", None, Text, Mapped, "log.level: FATAL, ALERT, CRITICAL, ERROR are error, WARNING is warn, NOTICE, INFO are info, DEBUG is debug. Without it: info"),
    opt("version", Some('V'), Nothing, Mapped, "says which gearmand is spoken, and which Windlass speaks"),
    opt("worker-wakeup", Some('w'), Number, Ignored, "as many sleeping workers are woken as there are jobs"),
    opt("http-port", None, Number, Ignored, HTTP),
    opt("port", Some('p'), Text, Mapped, "gearman.listen, with --listen; without it GEARMAND_PORT or 4730"),
    opt("ssl", None, Nothing, Mapped, "gearman.tls: the port speaks TLS and nothing else"),
    opt("ssl-ca-file", None, Text, Ignored, "no client is asked for a certificate, as by gearmand; --set gearman.tls.client_ca=FILE asks them all"),
    opt("ssl-certificate", None, Text, Mapped, "gearman.tls.certificate, with --ssl; GEARMAND_SERVER_PEM goes before it"),
    opt("ssl-key", None, Text, Mapped, "gearman.tls.key, with --ssl; GEARMAND_SERVER_KEY goes before it"),
    opt("libmemcached-servers", None, Text, Ignored, OTHER_QUEUE),
    opt("libmemcached-prefix", None, Text, Ignored, OTHER_QUEUE),
    opt("libsqlite3-db", None, Text, Mapped, "with -q libsqlite3 the jobs in it are taken over at the start, once, as by `windlass import gearmand-sqlite`; it is only read"),
    opt("store-queue-on-shutdown", None, Nothing, Ignored, "every background job is on the disk at once"),
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
    opt("check-args", None, Nothing, Mapped, "looks at the options, starts nothing"),
    opt("data-dir", None, Text, Ours, "data_dir. Without it WINDLASS_DATA_DIR, then STATE_DIRECTORY (a unit's StateDirectory=), then /var/lib/windlass, or /var/lib/windlass-PORT if the port is not 4730"),
    opt("durability", None, Text, Ours, "durability: sync or interval"),
    opt("windlass-config", None, Text, Ours, "a configuration of Windlass (TOML); gearmand's options go before it"),
    opt("set", None, Text, Ours, "one key of it, as in --set limits.jobs_max=1000; may be repeated, and goes before everything else"),
];

/// Marks the process that `--daemon` leaves behind. Not for people.
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

/// What `--help` says.
pub(super) fn help(argv0: &str) -> String {
    const WIDTH: usize = 80;
    let mut text = format!(
        "Windlass in gearmand's place.\n\nUsage: {argv0} [OPTION]...\n\nOptions of gearmand, and what becomes of them \
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
WINDLASS_* variables count as for `windlass serve`; gearmand's options go before
them. Signals and exit codes are those of `windlass serve`, but for mistakes in
these options: 1, as from gearmand.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_for_people_is_this_table() {
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
        assert_eq!(rows, OPTIONS.len(), "crates/cli/README.md has rows for options that are not there");
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
