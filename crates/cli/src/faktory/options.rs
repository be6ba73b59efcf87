//! Every setting of Faktory, and its effect here, as text. `-h`, warnings and the table in `crates/cli/README.md` use
//! this text.

/// An option, a variable, a file or a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// As it is written; an option has its dash.
    pub(super) name: &'static str,
    /// The argument of an option; empty for a switch.
    pub(super) argument: &'static str,
    pub(super) fate: Fate,
    /// Its effect, or why it is ignored.
    pub(super) words: &'static str,
}

/// The treatment of an item that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has the same effect as in Faktory.
    Mapped,
    /// It has no effect, and a warning gives the reason.
    Ignored,
    /// It is an option of Windlass, not of Faktory.
    Ours,
}

use Fate::{Ignored, Mapped, Ours};

const fn item(name: &'static str, argument: &'static str, fate: Fate, words: &'static str) -> Item {
    Item { name, argument, fate, words }
}

const NO_STATSD: &str = "no figures are sent to statsd yet";

/// On the command line.
#[rustfmt::skip]
pub(super) const OPTIONS: &[Item] = &[
    item("-b", "[binding]", Mapped, "faktory.listen; `:7419` is every address of this machine. Without it binding in conf.d, then 127.0.0.1:7419"),
    item("-w", "[binding]", Mapped, "http.listen: pages, the API, /stats and /health. Without a password only this machine is served: `:7420` and `0.0.0.0:7420` are 127.0.0.1:7420 then, and an address that others reach is none. `:0` is none. Without it binding in conf.d, then 127.0.0.1:7420"),
    item("-e", "[env]", Mapped, "development, staging or production: selects the default directories, and whether a password is required. Without it FAKTORY_ENV, then development"),
    item("-l", "[level]", Mapped, "log.level: error, warn, info or debug. Without it info. Log lines go to standard error"),
    item("-d", "[dir]", Mapped, "data_dir. Without it WINDLASS_DATA_DIR, then STATE_DIRECTORY (a unit's StateDirectory=), then ~/.faktory/windlass in development, else /var/lib/faktory/windlass"),
    item("-c", "[dir]", Mapped, "where conf.d is. Without it ~/.faktory in development, else /etc/faktory"),
    item("-v", "", Mapped, "prints the version of Faktory that is emulated, and of Windlass"),
    item("-h", "", Mapped, "this text"),
    item("-durability", "[when]", Ours, "durability: sync or interval"),
    item("-windlass-config", "[file]", Ours, "a configuration of Windlass (TOML); Faktory's own settings override it"),
    item("-set", "[key=value]", Ours, "one key of it, as in -set limits.jobs_max=1000; may be repeated, and overrides everything else"),
];

/// In the environment.
#[rustfmt::skip]
pub(super) const VARIABLES: &[Item] = &[
    item("FAKTORY_PASSWORD", "", Mapped, "faktory.password, or, if it begins with a slash, faktory.password_file. Without it password in conf.d, then, except in development, /etc/faktory/password if it exists. HTTP asks for it too (any user name; not for /health, /livez and /readyz)"),
    item("FAKTORY_ENV", "", Mapped, "the value of -e if -e is not given"),
    item("FAKTORY_SKIP_PASSWORD", "", Mapped, "1, true or yes: staging and production do not require a password"),
    item("FAKTORY2_PREVIEW", "", Ignored, "nothing here depends on it"),
    item("DD_DOGSTATSD_URL", "", Ignored, NO_STATSD),
];

/// In the configuration directory.
#[rustfmt::skip]
pub(super) const FILES: &[Item] = &[
    item("public.cert.pem", "", Mapped, "faktory.tls.certificate, if private.key.pem is there too: the port speaks TLS and nothing else"),
    item("private.key.pem", "", Mapped, "faktory.tls.key, if public.cert.pem is there too"),
    item("conf.d/*.toml", "", Mapped, "read as one text, in the order of their names"),
];

/// In `conf.d`: a whole section, or one key of a section.
#[rustfmt::skip]
pub(super) const KEYS: &[Item] = &[
    item("[faktory] binding", "", Mapped, "faktory.listen, without -b"),
    item("[faktory] password", "", Mapped, "faktory.password, without FAKTORY_PASSWORD, and interpreted like it"),
    item("[web] binding", "", Mapped, "http.listen, without -w, and interpreted like it"),
    item("[web] password", "", Mapped, "the password that HTTP asks for, instead of that of [faktory]"),
    item("[statsd]", "", Ignored, NO_STATSD),
    item("[[cron]]", "", Mapped, "faktory.cron; times are UTC unless a time zone is named; read again on SIGHUP"),
    item("[throttles]", "", Mapped, "faktory.throttles, a timeout in seconds; read again on SIGHUP"),
];

impl Item {
    /// Finds an option by its name without dashes.
    pub(super) fn option(name: &str) -> Option<&'static Self> {
        OPTIONS.iter().find(|option| option.name.strip_prefix('-') == Some(name))
    }

    /// The treatment of a key in `conf.d`, or of its whole section.
    pub(super) fn key(section: &str, key: &str) -> Option<&'static Self> {
        let whole = |item: &&Self| item.name.trim_matches(['[', ']']) == section;
        KEYS.iter().find(|item| item.name == format!("[{section}] {key}")).or_else(|| KEYS.iter().find(whole))
    }

    fn usage(&self) -> String {
        format!("{} {}", self.name, self.argument).trim_end().to_owned()
    }

    const fn verdict(&self) -> &'static str {
        match self.fate {
            Mapped | Ours => "",
            Ignored => "ignored: ",
        }
    }
}

/// The text of `-h`.
pub(super) fn help(argv0: &str) -> String {
    let mut text = format!(
        "Windlass in Faktory's place.\n\nUsage: {argv0} [OPTION]...\n\nThe settings of Faktory and their effect here (names \
         with a dot are keys of\nWindlass's configuration, which `windlass config` explains):\n"
    );
    let (ours, theirs): (Vec<_>, Vec<_>) = OPTIONS.iter().partition(|item| item.fate == Ours);
    let parts: [(&str, Vec<&Item>); 5] = [
        ("Options:", theirs),
        ("Variables:", VARIABLES.iter().collect()),
        ("Files in the configuration directory:", FILES.iter().collect()),
        ("Keys in conf.d:", KEYS.iter().collect()),
        ("Options of Windlass:", ours),
    ];
    for (title, items) in parts {
        text.push_str(&format!("\n{title}\n"));
        items.into_iter().for_each(|item| describe(item, &mut text));
    }
    text.push_str(EPILOGUE);
    text
}

fn describe(item: &Item, text: &mut String) {
    const WIDTH: usize = 80;
    const INDENT: &str = "          ";
    text.push_str(&format!("  {}\n", item.usage()));
    let mut line = String::from(INDENT);
    for word in format!("{}{}", item.verdict(), item.words).split(' ') {
        if line.len() > INDENT.len() && line.len() + 1 + word.len() > WIDTH {
            text.push_str(&format!("{line}\n"));
            line = String::from(INDENT);
        }
        if line.len() > INDENT.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(&format!("{line}\n"));
}

const EPILOGUE: &str = "
WINDLASS_* variables apply as for `windlass serve`; Faktory's settings override
them. Signals and exit codes are those of `windlass serve`.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = &'static Item> {
        [OPTIONS, VARIABLES, FILES, KEYS].into_iter().flatten()
    }

    #[test]
    fn the_readme_has_this_table() {
        let document = include_str!("../../README.md");
        let (_, section) = document.split_once("\n## `windlass faktory`\n").unwrap();
        for item in all() {
            let fate = match item.fate {
                Mapped => "mapped",
                Ignored => "ignored",
                Ours => "ours",
            };
            let row = format!("| `{}` | {fate} | {} |\n", item.usage(), item.words);
            assert!(section.contains(&row), "crates/cli/README.md lacks\n{row}");
        }
        let rows = section.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, all().count(), "crates/cli/README.md has rows for settings that do not exist");
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
        let name = |section, key| Item::key(section, key).map(|item| item.name);
        assert_eq!(name("faktory", "binding"), Some("[faktory] binding"));
        assert_eq!(name("faktory", "other"), None);
        assert_eq!(name("web", "binding"), Some("[web] binding"));
        assert_eq!(name("cron", ""), Some("[[cron]]"));
        assert_eq!(name("goodlife", ""), None);
    }
}
