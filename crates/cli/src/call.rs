//! How this was called, where that was by the name and with the command line of another program.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;

/// A command line that is another program's.
#[derive(Debug)]
pub(crate) struct Call {
    /// What messages start with.
    pub(crate) argv0: String,
    /// By a name of its own, not as a sub-command.
    pub(crate) through_link: bool,
    pub(crate) words: Vec<OsString>,
}

impl Call {
    /// A call through a link: one whose name ends like this.
    pub(crate) fn through_link(mut words: impl Iterator<Item = OsString>, name: &str) -> Option<Self> {
        let argv0 = words.next()?;
        let own = Path::new(&argv0).file_name().and_then(OsStr::to_str)?;
        let argv0 = argv0.to_string_lossy().into_owned();
        own.ends_with(name).then(|| Self { argv0, through_link: true, words: words.collect() })
    }

    pub(crate) fn as_command(name: &str, words: Vec<OsString>) -> Self {
        Self { argv0: format!("windlass {name}"), through_link: false, words }
    }

    /// The words, if they are text.
    pub(crate) fn texts(&self) -> Result<Vec<String>, String> {
        let text = |word: &OsString| {
            word.to_str().map(str::to_owned).ok_or_else(|| format!("'{}' is no UTF-8", word.to_string_lossy()))
        };
        self.words.iter().map(text).collect()
    }
}

/// Gives back what to exit with.
pub(crate) fn print(text: &str) -> u8 {
    // A reader that has gone away has read enough.
    let _ = io::stdout().write_all(text.as_bytes());
    0
}

pub(crate) fn say(argv0: &str, sentence: &str) {
    let _ = writeln!(io::stderr(), "{argv0}: {sentence}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_known_by_its_name() {
        let through = |name: &str, line: &str| {
            Call::through_link(line.split(' ').map(OsString::from), name).map(|call| call.words.len())
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
