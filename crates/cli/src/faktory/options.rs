//! Every setting of Faktory, and its effect here, as text: the tables in `docs/replace/faktory.md`. `-h` and warnings use
//! this text.

use std::sync::LazyLock;

use crate::foreign::{self, Item};

static TABLES: LazyLock<Vec<Vec<Item>>> =
    LazyLock::new(|| foreign::tables(include_str!("../../../../docs/replace/faktory.md")));

fn table(place: usize) -> &'static [Item] {
    TABLES.get(place).map(Vec::as_slice).unwrap_or_default()
}

/// Options on the command line: Faktory's, then those that it does not have.
pub(super) fn options() -> &'static [Item] {
    table(0)
}

/// Variables in the environment.
pub(super) fn variables() -> &'static [Item] {
    table(1)
}

/// Keys in `conf.d`: a whole section, or one key of a section.
fn keys() -> &'static [Item] {
    table(3)
}

/// Finds an option by its name without dashes.
pub(super) fn option(name: &str) -> Option<&'static Item> {
    options().iter().find(|option| option.name == name)
}

/// The treatment of a key in `conf.d`, or of its whole section.
pub(super) fn key(section: &str, key: &str) -> Option<&'static Item> {
    let whole = |item: &&Item| item.name.trim_matches(['[', ']']) == section;
    keys()
        .iter()
        .find(|item| item.name == format!("[{section}] {key}"))
        .or_else(|| keys().iter().find(whole))
}

/// The text of `-h`.
pub(super) fn help(argv0: &str) -> String {
    let (theirs, ours) = foreign::theirs_and_ours(options());
    let parts = foreign::help(&[
        ("Options:", theirs),
        ("Variables:", variables()),
        ("Files in the configuration directory:", table(2)),
        ("Keys in conf.d:", keys()),
        ("Options of Windlass:", ours),
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

    #[test]
    fn every_row_of_the_chapter_is_a_setting() {
        assert_eq!(
            TABLES.iter().map(Vec::len).collect::<Vec<_>>(),
            [11, 5, 3, 7]
        );
        let names = |table: &[Item]| table.iter().map(|item| item.name).next_back();
        assert_eq!(
            TABLES.iter().map(|table| names(table)).collect::<Vec<_>>(),
            [
                Some("set"),
                Some("DD_DOGSTATSD_URL"),
                Some("conf.d/*.toml"),
                Some("[throttles]"),
            ]
        );
        assert_eq!(
            option("set").map(|option| (option.dashes, option.argument)),
            Some(("-", "[key=value]"))
        );
    }

    #[test]
    fn help_fits_a_terminal_and_has_everything() {
        let help = help("faktory");
        for line in help.lines() {
            assert!(line.len() <= 80, "{line}");
        }
        for item in TABLES.iter().flatten() {
            assert!(help.contains(&format!("\n  {}\n", item.usage)), "{item:?}");
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
