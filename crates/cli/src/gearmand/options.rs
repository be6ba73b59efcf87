//! Every option of gearmand 1.1.20 and its effect here, as text. `--help`, warnings, refusals and the table in
//! `docs/replace/gearmand.md` use this text.

use crate::foreign::Fate::{self, Ignored, Mapped, Ours, Refused};
use crate::foreign::{self, Item};

/// The arguments of options.
const NOTHING: &str = "";
pub(super) const NUMBER: &str = "N";
const TEXT: &str = "ARG";

const fn opt(name: &'static str, short: Option<char>, argument: &'static str, fate: Fate, words: &'static str) -> Item {
    Item { dashes: "--", name, short, argument, fate, words }
}

const OTHER_QUEUE: &str = "only other queue types need it; jobs are kept in --data-dir";
const HTTP: &str = "gearmand's HTTP is not spoken; let its clients speak Gearman, or keep a gearmand for them";

/// In the order of gearmand's own help.
#[rustfmt::skip]
pub(super) const OPTIONS: &[Item] = &[
    opt("backlog", Some('b'), NUMBER, Mapped, "server.backlog"),
    opt("daemon", Some('d'), NOTHING, Mapped, "runs in the background; the command ends when the port is open, or with an error"),
    opt("exceptions", None, NOTHING, Mapped, "gearman.exceptions"),
    opt("file-descriptors", Some('f'), NUMBER, Mapped, "server.connections_max; the limit on open files is raised to hold them"),
    opt("help", Some('h'), NOTHING, Mapped, "this text"),
    opt("job-retries", Some('j'), NUMBER, Mapped, "gearman.job_retries; an explicit 0 or less is no limit and sets limits.losses_max = 0. Without it: limits.losses_max, 5 lost workers or timeouts"),
    opt("job-handle-prefix", None, TEXT, Mapped, "gearman.handle_prefix, at most 42 bytes"),
    opt("hashtable-buckets", None, NUMBER, Ignored, "tables grow by themselves"),
    opt("keepalive", None, NOTHING, Mapped, "always on, as in gearmand"),
    opt("keepalive-idle", None, NUMBER, Mapped, "server.keepalive_idle; -1 keeps the system's default"),
    opt("keepalive-interval", None, NUMBER, Mapped, "server.keepalive_interval; -1 keeps the system's default"),
    opt("keepalive-count", None, NUMBER, Mapped, "server.keepalive_count; -1 keeps the system's default"),
    opt("log-file", Some('l'), TEXT, Mapped, "log.file; `stderr` is standard error, `none` logs nothing. Without it: standard error, with --daemon /var/log/gearmand.log"),
    opt("listen", Some('L'), TEXT, Mapped, "gearman.listen, with --port; without it, all addresses of this machine"),
    opt("pid-file", Some('P'), TEXT, Mapped, "holds the process id while the port is open; without it, there is no pid file"),
    opt("protocol", Some('r'), TEXT, Refused, HTTP),
    opt("round-robin", Some('R'), NOTHING, Mapped, "gearman.round_robin"),
    opt("queue-type", Some('q'), TEXT, Mapped, "builtin and libsqlite3: jobs are kept in --data-dir either way, on the disk, and those in --libsqlite3-db are taken over; any other type is refused: drain its queue with gearmand first"),
    opt("config-file", None, TEXT, Mapped, "more options, separated by whitespace; without it, /etc/gearmand.conf if it exists. The command line overrides it"),
    opt("syslog", None, NOTHING, Ignored, "log lines go to standard error, where a service manager takes them, or to --log-file"),
    opt("coredump", None, NOTHING, Mapped, "raises the limit on core files as far as permitted"),
    opt("threads", Some('t'), NUMBER, Mapped, "server.threads; 0, and the default, is one per core"),
    opt("user", Some('u'), TEXT, Mapped, "switches to this user and its groups before opening anything; requires root"),
    opt("verbose", None, TEXT, Mapped, "log.level: FATAL, ALERT, CRITICAL, ERROR are error, WARNING is warn, NOTICE, INFO are info, DEBUG is debug. Without it: info"),
    opt("version", Some('V'), NOTHING, Mapped, "prints the version of gearmand that is emulated, and of Windlass"),
    opt("worker-wakeup", Some('w'), NUMBER, Ignored, "the daemon always wakes as many sleeping workers as there are jobs"),
    opt("http-port", None, NUMBER, Ignored, HTTP),
    opt("port", Some('p'), TEXT, Mapped, "gearman.listen, with --listen; without it GEARMAND_PORT or 4730. Of a number above 65535 the lowest 16 bits count"),
    opt("ssl", None, NOTHING, Mapped, "gearman.tls: the port speaks TLS and nothing else"),
    opt("ssl-ca-file", None, TEXT, Ignored, "as in gearmand, clients need no certificate; --set gearman.tls.client_ca=FILE requires one from all clients"),
    opt("ssl-certificate", None, TEXT, Mapped, "gearman.tls.certificate, with --ssl; GEARMAND_SERVER_PEM overrides it"),
    opt("ssl-key", None, TEXT, Mapped, "gearman.tls.key, with --ssl; GEARMAND_SERVER_KEY overrides it"),
    opt("libmemcached-servers", None, TEXT, Ignored, OTHER_QUEUE),
    opt("libmemcached-prefix", None, TEXT, Ignored, OTHER_QUEUE),
    opt("libsqlite3-db", None, TEXT, Mapped, "with -q libsqlite3 the jobs in it are taken over at the start, once, as by `windlass import gearmand-sqlite`; it is only read. It may be missing, but not its folder"),
    opt("store-queue-on-shutdown", None, NOTHING, Ignored, "every background job is written to disk immediately"),
    opt("libsqlite3-table", None, TEXT, Mapped, "the table in it; gearman_queue without it"),
    opt("libpq-conninfo", None, TEXT, Ignored, OTHER_QUEUE),
    opt("libpq-table", None, TEXT, Ignored, OTHER_QUEUE),
    opt("redis-server", None, TEXT, Ignored, OTHER_QUEUE),
    opt("redis-port", None, TEXT, Ignored, OTHER_QUEUE),
    opt("redis-password", None, TEXT, Ignored, OTHER_QUEUE),
    opt("redis-prefix", None, TEXT, Ignored, OTHER_QUEUE),
    opt("mysql-host", None, TEXT, Ignored, OTHER_QUEUE),
    opt("mysql-port", None, TEXT, Ignored, OTHER_QUEUE),
    opt("mysql-user", None, TEXT, Ignored, OTHER_QUEUE),
    opt("mysql-password", None, TEXT, Ignored, OTHER_QUEUE),
    opt("mysql-db", None, TEXT, Ignored, OTHER_QUEUE),
    opt("mysql-table", None, TEXT, Ignored, OTHER_QUEUE),
    opt("check-args", None, NOTHING, Mapped, "checks the options, starts nothing"),
];

/// What gearmand does not have.
#[rustfmt::skip]
pub(super) const OURS: &[Item] = &[
    opt("data-dir", None, TEXT, Ours, "data_dir. Without it WINDLASS_DATA_DIR, then STATE_DIRECTORY (a unit's StateDirectory=), then /var/lib/windlass, or /var/lib/windlass-PORT if the port is not 4730"),
    opt("durability", None, TEXT, Ours, "durability: sync or interval"),
    opt("windlass-config", None, TEXT, Ours, "a configuration of Windlass (TOML); gearmand's options override it"),
    opt("set", None, TEXT, Ours, "one key of it, as in --set limits.jobs_max=1000; may be repeated, and overrides everything else"),
];

/// Marks the process that `--daemon` leaves behind. Internal.
pub(super) const DETACHED: Item = opt("detached", None, NOTHING, Ours, "");

/// Finds an option by its name.
pub(super) fn named(long: &str) -> Option<&'static Item> {
    OPTIONS.iter().chain(OURS).chain([&DETACHED]).find(|option| option.name == long)
}

/// Finds an option by its letter.
pub(super) fn lettered(short: char) -> Option<&'static Item> {
    OPTIONS.iter().find(|option| option.short == Some(short))
}

/// The text of `--help`.
pub(super) fn help(argv0: &str) -> String {
    let parts = foreign::help(&[(TITLE, OPTIONS), ("Options of Windlass:", OURS)]);
    format!("Windlass in gearmand's place.\n\nUsage: {argv0} [OPTION]...\n{parts}{EPILOGUE}")
}

const TITLE: &str = "\
Options of gearmand, and their effect here (names with a dot are keys of
Windlass's configuration, which `windlass config` explains):";

const EPILOGUE: &str = "
WINDLASS_* variables apply as for `windlass serve`; gearmand's options override
them. Signals and exit codes are those of `windlass serve`, except that mistakes
in these options give 1, as from gearmand.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chapter_has_this_table() {
        let chapter = include_str!("../../../../docs/replace/gearmand.md");
        let (_, section) = chapter.split_once("\n## Options\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        for option in OPTIONS.iter().chain(OURS) {
            let fate = match option.fate {
                Mapped => "mapped",
                Ignored => "ignored",
                Refused => "refused",
                Ours => "ours",
            };
            let row = format!("| `{}` | {fate} | {} |\n", option.usage(), option.words);
            assert!(section.contains(&row), "docs/replace/gearmand.md lacks\n{row}");
        }
        let rows = section.lines().filter(|line| line.starts_with("| `-")).count();
        assert_eq!(rows, OPTIONS.len() + OURS.len(), "docs/replace/gearmand.md has rows for options that do not exist");
    }

    #[test]
    fn help_fits_a_terminal_and_has_every_option() {
        let help = help("gearmand");
        for line in help.lines() {
            assert!(line.len() <= 80, "{line}");
        }
        for option in OPTIONS.iter().chain(OURS) {
            assert!(help.contains(&format!("--{}", option.name)), "{option:?}");
        }
        assert!(!help.contains("detached"));
    }

    #[test]
    fn names_and_letters_are_given_once() {
        for (at, option) in OPTIONS.iter().enumerate() {
            assert_eq!(named(option.name), OPTIONS.get(at), "{}", option.name);
            assert!(option.short.is_none_or(|short| lettered(short) == OPTIONS.get(at)), "{}", option.name);
        }
    }
}
