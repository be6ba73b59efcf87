//! Faktory's command line, with the grammar of every Go program: `-name value`, `-name=value`, one dash or two. If an
//! option is given twice, the last one counts.

use super::options::Item;

/// The given options.
#[derive(Debug, Default)]
pub(super) struct Given {
    values: Vec<(&'static Item, String)>,
}

impl Given {
    /// Parses the arguments.
    ///
    /// # Errors
    /// Go's sentence for the first mistake. Arguments behind the last option, which Go ignores, are an error here.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let mut given = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).unwrap_or_default();
            if name.is_empty() {
                return Err(format!("unexpected argument: {word}"));
            }
            let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
            let option = match (Item::option(name), name) {
                (Some(option), _) => option,
                (None, "help") => Item::option("h").ok_or_else(|| undefined(name))?,
                (None, _) => return Err(undefined(name)),
            };
            let value = match (option.argument, value) {
                ("", None | Some("true")) => "",
                ("", Some("false")) => continue,
                ("", Some(value)) => {
                    return Err(format!("invalid boolean value \"{value}\" for -{name}: parse error"));
                }
                (_, Some(value)) => value,
                (_, None) => words.next().ok_or_else(|| format!("flag needs an argument: -{name}"))?,
            };
            given.values.push((option, value.to_owned()));
        }
        Ok(given)
    }

    pub(super) fn options(&self) -> impl DoubleEndedIterator<Item = (&'static Item, &str)> {
        self.values.iter().map(|(option, value)| (*option, value.as_str()))
    }

    /// The last value of an option; `name` has its dash.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.options().rev().find(|(option, _)| option.name == name).map(|(_, value)| value)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.text(name).is_some()
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.options().filter(move |(option, _)| option.name == name).map(|(_, value)| value)
    }
}

fn undefined(name: &str) -> String {
    format!("flag provided but not defined: -{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<String, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let given = Given::parse(&words)?;
        Ok(given.options().map(|(option, value)| format!("{}={value} ", option.name)).collect())
    }

    #[test]
    fn every_way_to_write_an_option() {
        let table = [
            ("", ""),
            ("-b :7419 -e production", "-b=:7419 -e=production "),
            ("--b=:7419 --e production", "-b=:7419 -e=production "),
            ("-d -e", "-d=-e "),
            ("-v", "-v= "),
            ("-v=true --h", "-v= -h= "),
            ("-v=false", ""),
            ("-help", "-h= "),
            ("-set a=b --set=c=d", "-set=a=b -set=c=d "),
        ];
        for (line, expected) in table {
            assert_eq!(parse(line).as_deref(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn mistakes_in_gos_words() {
        let table = [
            ("-x", "flag provided but not defined: -x"),
            ("--no-tls", "flag provided but not defined: -no-tls"),
            ("-b", "flag needs an argument: -b"),
            ("-v=maybe", "invalid boolean value \"maybe\" for -v: parse error"),
            ("-v more", "unexpected argument: more"),
            ("--", "unexpected argument: --"),
            ("-", "unexpected argument: -"),
        ];
        for (line, expected) in table {
            assert_eq!(parse(line), Err(expected.to_owned()), "{line}");
        }
    }

    #[test]
    fn the_last_counts() {
        let words = ["-b", "1", "-b", "2"].map(str::to_owned);
        let given = Given::parse(&words).unwrap();
        assert_eq!((given.text("-b"), given.has("-w")), (Some("2"), false));
    }
}
