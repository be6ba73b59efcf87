//! Conversations as plain text; the same files are played in memory and against a daemon.
//!
//! A file is a list of scenes, each with a fresh server and connections of its own:
//!
//! ```text
//! == a job from submit to result            a scene
//! set job_retries 2                         configures the server, before the first message
//! set rights W work submit                  W may only do this (`submit`, `work`, `administer`); for memory only
//! W > CAN_DO "resize"                       W sends this; the first use of a name opens its connection
//! C > SUBMIT_JOB "resize" "" "cat.png"
//! C < JOB_CREATED $job                      C receives exactly this next; $job gets its value here and keeps it from now on
//! W > raw "\0REQ\0\0\0\x09"                 bytes as they are; so with `hex 00 52 45 51`
//! nothing W                                 W has received nothing else
//! advance 1500ms                            the clock jumps (`s`, `ms`); such a scene is for memory only
//! half-close C                              C closes its sending side
//! close C                                   C closes its connection
//! closed C                                  the server has closed the connection and sent nothing more
//! open W                                    opens a connection now, where the order of connections matters
//! stall                                     from now on the store accepts nothing; not every wire can do that
//! resume                                    a commit waits for the store, no peer has received anything else; the store resumes
//! ```
//!
//! Arguments are words or quoted, with `\0 \n \r \t \\ \" \$ \xHH`, `$name` inside them too; `"x"*70` repeats; `$_` is
//! anything. A variable without a value matches up to what follows it. At the end of a scene, no peer may have an
//! unexpected message. The [`Speech`] defines the bytes of a message, and the meaning of the words behind `>` and `<`.

mod parse;
mod pattern;
mod play;
mod wire;
mod zmtp;

use std::fmt;
use std::path::Path;

use windlass_engine::{Right, Rights};

pub use play::{Said, Speech, Spoken};
pub use wire::{Heard, MemoryWire, TcpWire, Wire};
pub use zmtp::{Framing, ZmtpWire};

use parse::Step;

/// A file of scenes.
#[derive(Debug)]
pub struct Transcript {
    /// The scenes, in order.
    pub scenes: Vec<Scene>,
}

/// One conversation.
#[derive(Debug)]
pub struct Scene {
    /// The behaviour it shows.
    pub name: String,
    /// Settings of the server, as key and value.
    pub settings: Vec<(String, String)>,
    file: String,
    steps: Vec<(usize, Step)>,
}

/// A conversation that went differently, or a file with an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// The transcript.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The error.
    pub text: String,
}

fn right(name: &str) -> Result<Right, String> {
    match name {
        "submit" => Ok(Right::Submit),
        "work" => Ok(Right::Work),
        "administer" => Ok(Right::Administer),
        _ => Err(format!("no right is called {name}")),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.text)
    }
}

impl Transcript {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or a line cannot be parsed.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| Failure {
            file: file.clone(),
            line: 0,
            text: error.to_string(),
        })?;
        Self::parse(&file, &text)
    }

    /// Parses the text of a file; `file` is only used in failures.
    ///
    /// # Errors
    /// A line cannot be parsed.
    pub fn parse(file: &str, text: &str) -> Result<Self, Failure> {
        parse::scenes(file, text).map(|scenes| Self { scenes })
    }
}

impl Scene {
    /// What a connection of this name may do.
    ///
    /// # Errors
    /// A setting names an unknown right.
    pub(crate) fn rights(&self, who: &str) -> Result<Rights, String> {
        let of = |(key, value): &(String, String)| {
            let (name, rights) = value.split_once(' ').filter(|_| key == "rights")?;
            (name == who).then(|| rights.split(' ').map(right).collect())
        };
        self.settings.iter().find_map(of).unwrap_or(Ok(Rights::ALL))
    }

    /// Whether the clock jumps, which only memory supports.
    #[must_use]
    pub fn moves_the_clock(&self) -> bool {
        self.steps
            .iter()
            .any(|(_, step)| matches!(step, Step::Advance(_)))
    }

    /// Plays the scene to its end.
    ///
    /// # Errors
    /// The first line at which the conversation differs.
    pub fn play(&self, wire: &mut dyn Wire, speech: &dyn Speech) -> Result<(), Failure> {
        let mut player = play::Player::new(wire, speech);
        let mut last = 0;
        let fail = |line, text| Failure {
            file: self.file.clone(),
            line,
            text,
        };
        for (line, step) in &self.steps {
            last = *line;
            player.step(step).map_err(|text| fail(last, text))?;
        }
        player.end().map_err(|text| fail(last, text))
    }
}

/// Defines a test for each transcript in the calling crate's `tests/transcripts`, which calls `play(name)` there, and a
/// test that none is missing. Also defines `folder()`, their directory.
///
/// ```text
/// windlass_testkit::transcripts! {
///     echo
///     timeouts
/// }
/// ```
#[macro_export]
macro_rules! transcripts {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                play(stringify!($name));
            }
        )*

        #[test]
        fn every_transcript_is_played() {
            let mut files: Vec<String> = std::fs::read_dir(folder())
                .unwrap()
                .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            files.sort();
            assert_eq!(files, [$(stringify!($name)),*]);
        }

        fn folder() -> std::path::PathBuf {
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
        }
    };
}
