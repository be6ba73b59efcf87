//! Conversations as plain text, played in memory or against a daemon by the same files.
//!
//! A file is a list of scenes, each with a fresh server and connections of its own:
//!
//! ```text
//! == a job from submit to result            a scene
//! set job_retries 2                         how the server is configured, before anything is said
//! W > CAN_DO "resize"                       W says something; a connection is made when it is first named
//! C > SUBMIT_JOB "resize" "" "cat.png"
//! C < JOB_CREATED $job                      C hears exactly this next; $job is filled in here and stands for it from now on
//! W > raw "\0REQ\0\0\0\x09"                 bytes as they are; so with `hex 00 52 45 51`
//! nothing W                                 W has heard nothing else
//! advance 1500ms                            the clock jumps (`s`, `ms`); such a scene is for memory only
//! half-close C                              C will say no more
//! close C                                   C is gone
//! closed C                                  the server has hung up, and said nothing more
//! open W                                    makes a connection now, where the order of connections matters
//! stall                                     from now on the store takes nothing; not every wire can do that
//! resume                                    a commit waits for the store, nobody has heard anything else, and the store goes on
//! ```
//!
//! Arguments are words or quoted, with `\0 \n \r \t \\ \" \$ \xHH`, `$name` inside them too; `"x"*70` repeats; `$_` is
//! anything. A variable that is not filled in yet matches up to what follows it. A scene ends with nobody having
//! anything left to hear. What a message looks like on the wire is the [`Speech`]'s to know, and so is the
//! meaning of the words behind `>` and `<`.

mod parse;
mod pattern;
mod play;
mod wire;
mod zmtp;

use std::fmt;
use std::path::Path;

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
    /// What it shows.
    pub name: String,
    /// What is to be configured first, as key and value.
    pub settings: Vec<(String, String)>,
    file: String,
    steps: Vec<(usize, Step)>,
}

/// A conversation that did not go as written, or was not written as it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// The transcript.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub text: String,
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
    ///
    /// The file cannot be read, or a line of it cannot be understood.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| Failure {
            file: file.clone(),
            line: 0,
            text: error.to_string(),
        })?;
        Self::parse(&file, &text)
    }

    /// Reads the text of a file; `file` is only for failures to name.
    ///
    /// # Errors
    ///
    /// A line cannot be understood.
    pub fn parse(file: &str, text: &str) -> Result<Self, Failure> {
        parse::scenes(file, text).map(|scenes| Self { scenes })
    }
}

impl Scene {
    /// Whether the clock must jump, which only memory can do.
    #[must_use]
    pub fn moves_the_clock(&self) -> bool {
        self.steps.iter().any(|(_, step)| matches!(step, Step::Advance(_)))
    }

    /// Plays the scene to its end.
    ///
    /// # Errors
    ///
    /// The first line at which the conversation went otherwise.
    pub fn play(&self, wire: &mut dyn Wire, speech: &dyn Speech) -> Result<(), Failure> {
        let mut player = play::Player::new(wire, speech);
        let mut last = 0;
        let fail = |line, text| Failure { file: self.file.clone(), line, text };
        for (line, step) in &self.steps {
            last = *line;
            player.step(step).map_err(|text| fail(last, text))?;
        }
        player.end().map_err(|text| fail(last, text))
    }
}

/// A test for each transcript of the calling crate's `tests/transcripts`, which calls `play(name)` there, and one that none of
/// them was forgotten. Also says where they are: `folder()`.
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
