//! Every option of gearmand 1.1.20 and its effect here, as text: the table in `docs/replace/gearmand.md`, in the order of
//! gearmand's own help. `--help`, warnings and refusals use this text.

use std::sync::LazyLock;

use crate::foreign::{self, Fate, Item};

/// The argument of an option that takes a number.
pub(super) const NUMBER: &str = "N";

static TABLES: LazyLock<Vec<Vec<Item>>> =
    LazyLock::new(|| foreign::tables(include_str!("../../../../docs/replace/gearmand.md")));

/// Marks the process that `--daemon` leaves behind. Internal.
static DETACHED: Item = Item {
    usage: "",
    dashes: "--",
    name: "detached",
    short: None,
    argument: "",
    fate: Fate::Ours,
    words: "",
};

/// gearmand's options, then those that it does not have.
pub(super) fn options() -> &'static [Item] {
    TABLES.first().map(Vec::as_slice).unwrap_or_default()
}

/// Finds an option by its name.
pub(super) fn named(long: &str) -> Option<&'static Item> {
    options()
        .iter()
        .chain([&DETACHED])
        .find(|option| option.name == long)
}

/// Finds an option by its letter.
pub(super) fn lettered(short: char) -> Option<&'static Item> {
    options().iter().find(|option| option.short == Some(short))
}

/// The text of `--help`.
pub(super) fn help(argv0: &str) -> String {
    let (theirs, ours) = foreign::theirs_and_ours(options());
    let parts = foreign::help(&[(TITLE, theirs), ("Options of Windlass:", ours)]);
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
    fn every_row_of_the_chapter_is_an_option() {
        let chapter = include_str!("../../../../docs/replace/gearmand.md");
        let rows = chapter
            .lines()
            .filter(|line| line.starts_with("| `-") && line.split(" | ").count() == 3);
        assert_eq!((options().len(), rows.count(), TABLES.len()), (54, 54, 1));
        let backlog = named("backlog").unwrap();
        let expected = Item {
            usage: "-b, --backlog N",
            dashes: "--",
            name: "backlog",
            short: Some('b'),
            argument: NUMBER,
            ..DETACHED
        };
        assert_eq!(
            *backlog,
            Item {
                fate: Fate::Mapped,
                words: "server.backlog",
                ..expected
            }
        );
    }

    #[test]
    fn help_fits_a_terminal_and_has_every_option() {
        let help = help("gearmand");
        for line in help.lines() {
            assert!(line.len() <= 80, "{line}");
        }
        for option in options() {
            assert!(help.contains(&format!("--{}", option.name)), "{option:?}");
        }
        assert!(!help.contains("detached"));
    }

    #[test]
    fn names_and_letters_are_given_once() {
        for (at, option) in options().iter().enumerate() {
            assert_eq!(named(option.name), options().get(at), "{}", option.name);
            assert!(
                option
                    .short
                    .is_none_or(|short| lettered(short) == options().get(at)),
                "{}",
                option.name
            );
        }
    }
}
