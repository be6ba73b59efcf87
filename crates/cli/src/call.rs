//! A call under the name and with the command line of another program.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;

/// A command line in the syntax of another program.
#[derive(Debug)]
pub(crate) struct Call {
    /// The prefix of messages.
    pub(crate) argv0: String,
    /// Called through a link, not as a sub-command.
    pub(crate) through_link: bool,
    pub(crate) words: Vec<OsString>,
}

impl Call {
    /// Detects a call through a link: `argv[0]` ends in `name`.
    pub(crate) fn through_link(
        mut words: impl Iterator<Item = OsString>,
        name: &str,
    ) -> Option<Self> {
        let argv0 = words.next()?;
        let own = Path::new(&argv0).file_name().and_then(OsStr::to_str)?;
        let argv0 = argv0.to_string_lossy().into_owned();
        own.ends_with(name).then(|| Self {
            argv0,
            through_link: true,
            words: words.collect(),
        })
    }

    pub(crate) fn as_command(name: &str, words: Vec<OsString>) -> Self {
        Self {
            argv0: format!("windlass {name}"),
            through_link: false,
            words,
        }
    }

    /// The arguments as text.
    pub(crate) fn texts(&self) -> Result<Vec<String>, String> {
        let text = |word: &OsString| {
            word.to_str()
                .map(str::to_owned)
                .ok_or_else(|| format!("'{}' is not valid UTF-8", word.to_string_lossy()))
        };
        self.words.iter().map(text).collect()
    }
}

/// Prints and returns the exit code.
pub(crate) fn print(text: &str) -> u8 {
    // A closed standard output is not an error.
    let _ = io::stdout().write_all(text.as_bytes());
    0
}

pub(crate) fn print_error(argv0: &str, sentence: &str) {
    windlass_daemon::logging::say(&format!("{argv0}: {sentence}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_known_by_its_name() {
        let through = |name: &str, line: &str| {
            Call::through_link(line.split(' ').map(OsString::from), name)
                .map(|call| call.words.len())
        };
        assert_eq!(through("gearmand", "/usr/sbin/gearmand -d"), Some(1));
        assert_eq!(through("gearmand", "gearmand"), Some(0));
        assert_eq!(through("gearmand", "./windlass-gearmand -p 1"), Some(2));
        assert_eq!(through("gearmand", "windlass gearmand"), None);
        assert_eq!(through("gearmand", "/opt/gearmand/windlass"), None);
        assert_eq!(through("faktory", "/usr/bin/faktory -b :7419"), Some(2));
        assert_eq!(through("faktory", "gearmand"), None);
    }
}
