//! Faktory's command line, with the grammar of every Go program: `-name value`, `-name=value`, one dash or two. If an
//! option is given twice, the last one counts.

use super::options::option;
use crate::foreign::Given;

/// Parses the arguments.
///
/// # Errors
/// Go's sentence for the first mistake. Arguments behind the last option, which Go ignores, are an error here.
pub(super) fn parse(words: &[String]) -> Result<Given, String> {
    let mut given = Given::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let name = word
            .strip_prefix("--")
            .or_else(|| word.strip_prefix('-'))
            .unwrap_or_default();
        if name.is_empty() {
            return Err(format!("unexpected argument: {word}"));
        }
        let (name, value) = name
            .split_once('=')
            .map_or((name, None), |(name, value)| (name, Some(value)));
        let option = match (option(name), name) {
            (Some(option), _) => option,
            (None, "help") => option("h").ok_or_else(|| undefined(name))?,
            (None, _) => return Err(undefined(name)),
        };
        let value = match (option.argument, value) {
            ("", None | Some("true")) => "",
            ("", Some("false")) => continue,
            ("", Some(value)) => {
                return Err(format!(
                    "invalid boolean value \"{value}\" for -{name}: parse error"
                ));
            }
            (_, Some(value)) => value,
            (_, None) => words
                .next()
                .ok_or_else(|| format!("flag needs an argument: -{name}"))?,
        };
        given.push(option, value);
    }
    Ok(given)
}

fn undefined(name: &str) -> String {
    format!("flag provided but not defined: -{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<String, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let given = parse(&words)?;
        Ok(given
            .options()
            .map(|(option, value)| format!("-{}={value} ", option.name))
            .collect())
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
            assert_eq!(parsed(line).as_deref(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn mistakes_in_gos_words() {
        let table = [
            ("-x", "flag provided but not defined: -x"),
            ("--no-tls", "flag provided but not defined: -no-tls"),
            ("-b", "flag needs an argument: -b"),
            (
                "-v=maybe",
                "invalid boolean value \"maybe\" for -v: parse error",
            ),
            ("-v more", "unexpected argument: more"),
            ("--", "unexpected argument: --"),
            ("-", "unexpected argument: -"),
        ];
        for (line, expected) in table {
            assert_eq!(parsed(line), Err(expected.to_owned()), "{line}");
        }
    }

    #[test]
    fn the_last_counts() {
        let words = ["-b", "1", "-b", "2"].map(str::to_owned);
        let given = parse(&words).unwrap();
        assert_eq!((given.text("b"), given.has("w")), (Some("2"), false));
    }
}
