//! Every setting of Faktory, and its effect here, as text. `-h`, warnings and the table in
//! `docs/replace/faktory.md` use this text.

use crate::foreign::Fate::{self, Ignored, Mapped, Ours};
use crate::foreign::{self, Item};

const fn opt(name: &'static str, argument: &'static str, fate: Fate, words: &'static str) -> Item {
    Item { dashes: "-", name, short: None, argument, fate, words }
}

/// A variable, a file or a key.
const fn item(name: &'static str, fate: Fate, words: &'static str) -> Item {
    Item { dashes: "", name, short: None, argument: "", fate, words }
}

const NO_STATSD: &str = "no figures are sent to statsd yet";

/// On the command line.
#[rustfmt::skip]
pub(super) const OPTIONS: &[Item] = &[
    opt("b", "[binding]", Mapped, "faktory.listen; `:7419` is every address of this machine. Without it binding in conf.d, then 127.0.0.1:7419"),
    opt("w", "[binding]", Mapped, "http.listen: pages, the API, /stats and /health. Without a password only this machine is served: `:7420` and `0.0.0.0:7420` are 127.0.0.1:7420 then, and an address that others reach is none. `:0` is none. Without it binding in conf.d, then 127.0.0.1:7420"),
    opt("e", "[env]", Mapped, "development, staging or production: selects the default directories, and whether a password is required. Without it FAKTORY_ENV, then development"),
    opt("l", "[level]", Mapped, "log.level: error, warn, info or debug. Without it info. Log lines go to standard error"),
    opt("d", "[dir]", Mapped, "data_dir. Without it WINDLASS_DATA_DIR, then STATE_DIRECTORY (a unit's StateDirectory=), then ~/.faktory/windlass in development, else /var/lib/faktory/windlass"),
    opt("c", "[dir]", Mapped, "where conf.d is. Without it ~/.faktory in development, else /etc/faktory"),
    opt("v", "", Mapped, "prints the version of Faktory that is emulated, and of Windlass"),
    opt("h", "", Mapped, "this text"),
];

/// What Faktory does not have.
#[rustfmt::skip]
pub(super) const OURS: &[Item] = &[
    opt("durability", "[when]", Ours, "durability: sync or interval"),
    opt("windlass-config", "[file]", Ours, "a configuration of Windlass (TOML); Faktory's own settings override it"),
    opt("set", "[key=value]", Ours, "one key of it, as in -set limits.jobs_max=1000; may be repeated, and overrides everything else"),
];

/// In the environment.
#[rustfmt::skip]
pub(super) const VARIABLES: &[Item] = &[
    item("FAKTORY_PASSWORD", Mapped, "faktory.password, or, if it begins with a slash, faktory.password_file. Without it password in conf.d, then, except in development, /etc/faktory/password if it exists. HTTP asks for it too (any user name; not for /health, /livez and /readyz)"),
    item("FAKTORY_ENV", Mapped, "the value of -e if -e is not given"),
    item("FAKTORY_SKIP_PASSWORD", Mapped, "1, true or yes: staging and production do not require a password"),
    item("FAKTORY2_PREVIEW", Ignored, "nothing here depends on it"),
    item("DD_DOGSTATSD_URL", Ignored, NO_STATSD),
];

/// In the configuration directory.
#[rustfmt::skip]
pub(super) const FILES: &[Item] = &[
    item("public.cert.pem", Mapped, "faktory.tls.certificate, if private.key.pem is there too: the port speaks TLS and nothing else"),
    item("private.key.pem", Mapped, "faktory.tls.key, if public.cert.pem is there too"),
    item("conf.d/*.toml", Mapped, "read as one text, in the order of their names"),
];

/// In `conf.d`: a whole section, or one key of a section.
#[rustfmt::skip]
pub(super) const KEYS: &[Item] = &[
    item("[faktory] binding", Mapped, "faktory.listen, without -b"),
    item("[faktory] password", Mapped, "faktory.password, without FAKTORY_PASSWORD, and interpreted like it"),
    item("[web] binding", Mapped, "http.listen, without -w, and interpreted like it"),
    item("[web] password", Mapped, "the password that HTTP asks for, instead of that of [faktory]"),
    item("[statsd]", Ignored, NO_STATSD),
    item("[[cron]]", Mapped, "faktory.cron; times are UTC unless a time zone is named; read again on SIGHUP"),
    item("[throttles]", Mapped, "faktory.throttles, a timeout in seconds; read again on SIGHUP"),
];

/// Finds an option by its name without dashes.
pub(super) fn option(name: &str) -> Option<&'static Item> {
    OPTIONS.iter().chain(OURS).find(|option| option.name == name)
}

/// The treatment of a key in `conf.d`, or of its whole section.
pub(super) fn key(section: &str, key: &str) -> Option<&'static Item> {
    let whole = |item: &&Item| item.name.trim_matches(['[', ']']) == section;
    KEYS.iter().find(|item| item.name == format!("[{section}] {key}")).or_else(|| KEYS.iter().find(whole))
}

/// The text of `-h`.
pub(super) fn help(argv0: &str) -> String {
    let parts = foreign::help(&[
        ("Options:", OPTIONS),
        ("Variables:", VARIABLES),
        ("Files in the configuration directory:", FILES),
        ("Keys in conf.d:", KEYS),
        ("Options of Windlass:", OURS),
    ]);
    format!(
        "Windlass in Faktory's place.\n\nUsage: {argv0} [OPTION]...\n\nThe settings of Faktory and their effect here (names \
         with a dot are keys of\nWindlass's configuration, which `windlass config` explains):\n{parts}{EPILOGUE}"
    )
}

const EPILOGUE: &str = "
WINDLASS_* variables apply as for `windlass serve`; Faktory's settings override
them. Signals and exit codes are those of `windlass serve`.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = &'static Item> {
        [OPTIONS, VARIABLES, FILES, KEYS, OURS].into_iter().flatten()
    }

    #[test]
    fn the_chapter_has_this_table() {
        let chapter = include_str!("../../../../docs/replace/faktory.md");
        let (_, section) = chapter.split_once("\n## Options\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        for item in all() {
            let fate = match item.fate {
                Mapped => "mapped",
                Ignored => "ignored",
                Fate::Refused => "refused",
                Ours => "ours",
            };
            let row = format!("| `{}` | {fate} | {} |\n", item.usage(), item.words);
            assert!(section.contains(&row), "docs/replace/faktory.md lacks\n{row}");
        }
        let rows = section.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, all().count(), "docs/replace/faktory.md has rows for settings that do not exist");
    }

    #[test]
    fn help_fits_a_terminal_and_has_everything() {
        let help = help("faktory");
        for line in help.lines() {
            assert!(line.len() <= 80, "{line}");
        }
        for item in all() {
            assert!(help.contains(&format!("\n  {}\n", item.usage())), "{item:?}");
        }
    }

    #[test]
    fn keys_by_their_sections() {
        let name = |section, key| super::key(section, key).map(|item| item.name);
        assert_eq!(name("faktory", "binding"), Some("[faktory] binding"));
        assert_eq!(name("faktory", "other"), None);
        assert_eq!(name("web", "binding"), Some("[web] binding"));
        assert_eq!(name("cron", ""), Some("[[cron]]"));
        assert_eq!(name("goodlife", ""), None);
    }
}
