//! The settings of another program: the tables of all with their effects, their values on a command line, and the help.

/// One setting: an option, a variable, a file or a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// As the other program's help writes it.
    pub(crate) usage: &'static str,
    /// The dashes of an option.
    pub(crate) dashes: &'static str,
    pub(crate) name: &'static str,
    pub(crate) short: Option<char>,
    /// The argument of an option; empty for a switch.
    pub(crate) argument: &'static str,
    pub(crate) fate: Fate,
    /// Its effect, why it is ignored, or why it is refused.
    pub(crate) words: &'static str,
}

/// The treatment of a setting that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has the same effect as in the other program.
    Mapped,
    /// It has no effect, and a warning gives the reason.
    Ignored,
    /// The daemon does not start, and a message gives the reason.
    Refused,
    /// It is an option of Windlass.
    Ours,
}

/// The tables in a chapter's section about options. The chapter is the only place that has them.
pub(crate) fn tables(chapter: &'static str) -> Vec<Vec<Item>> {
    let (_, section) = chapter.split_once("\n## Options\n").unwrap_or_default();
    let (section, _) = section.split_once("\n## ").unwrap_or((section, ""));
    let tables = section
        .split("\n\n")
        .map(|table| table.lines().filter_map(Item::of_row).collect());
    tables.filter(|table: &Vec<_>| !table.is_empty()).collect()
}

/// The other program's settings of a table, and those of Windlass behind them.
pub(crate) fn theirs_and_ours(table: &[Item]) -> (&[Item], &[Item]) {
    table.split_at(table.partition_point(|item| item.fate != Fate::Ours))
}

impl Item {
    /// A row: its usage, its fate and its words.
    fn of_row(row: &'static str) -> Option<Self> {
        let (usage, rest) = row
            .strip_prefix("| `")?
            .strip_suffix(" |")?
            .split_once("` | ")?;
        let (fate, words) = rest.split_once(" | ")?;
        let fate = match fate {
            "mapped" => Fate::Mapped,
            "ignored" => Fate::Ignored,
            "refused" => Fate::Refused,
            "ours" => Fate::Ours,
            _ => return None,
        };
        let (short, long) = match usage.split_once(", ") {
            Some((short, long)) => (short.chars().nth(1), long),
            None => (None, usage),
        };
        let name = long.trim_start_matches('-');
        let dashes = long.strip_suffix(name)?;
        let (name, argument) = if dashes.is_empty() {
            (name, "")
        } else {
            name.split_once(' ').unwrap_or((name, ""))
        };
        Some(Self {
            usage,
            dashes,
            name,
            short,
            argument,
            fate,
            words,
        })
    }

    /// The warning about a setting that has no effect.
    pub(crate) fn warning(&self) -> String {
        format!("{}{} is ignored: {}", self.dashes, self.name, self.words)
    }

    /// Two columns for a terminal: the second one is below the first.
    fn describe(&self) -> String {
        const WIDTH: usize = 80;
        const INDENT: &str = "          ";
        let verdict = match self.fate {
            Fate::Mapped | Fate::Ours => "",
            Fate::Ignored => "ignored: ",
            Fate::Refused => "refused: ",
        };
        let (mut text, mut width) = (format!("  {}", self.usage), WIDTH);
        for word in format!("{verdict}{}", self.words).split(' ') {
            if width + 1 + word.len() > WIDTH {
                text += &format!("\n{INDENT}{word}");
                width = INDENT.len() + word.len();
            } else {
                text += &format!(" {word}");
                width += 1 + word.len();
            }
        }
        text + "\n"
    }
}

/// The text of the help about these settings, in parts with a title each.
pub(crate) fn help(parts: &[(&str, &[Item])]) -> String {
    let part = |(title, items): &(&str, &[Item])| {
        format!(
            "\n{title}\n{}",
            items.iter().map(Item::describe).collect::<String>()
        )
    };
    parts.iter().map(part).collect()
}

/// The given options.
#[derive(Debug, Default)]
pub(crate) struct Given {
    values: Vec<(&'static Item, String)>,
}

impl Given {
    pub(crate) fn push(&mut self, option: &'static Item, value: &str) {
        self.values.push((option, value.to_owned()));
    }

    /// All options, in the order given.
    pub(crate) fn options(&self) -> impl DoubleEndedIterator<Item = (&'static Item, &str)> {
        self.values
            .iter()
            .map(|(option, value)| (*option, value.as_str()))
    }

    /// All values of an option.
    pub(crate) fn all(&self, name: &str) -> impl DoubleEndedIterator<Item = &str> {
        self.options()
            .filter(move |(option, _)| option.name == name)
            .map(|(_, value)| value)
    }

    /// The last value of an option.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.all(name).next_back()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.text(name).is_some()
    }

    /// Warnings about options that have no effect.
    pub(crate) fn ignored(&self) -> impl Iterator<Item = String> {
        self.options()
            .filter(|(option, _)| option.fate == Fate::Ignored)
            .map(|(option, _)| option.warning())
    }
}
