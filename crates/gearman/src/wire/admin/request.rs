//! Parses a text line into a command.
//!
//! Spec: `PROTOCOL`, "Administrative Protocol". Verbs and keywords are case-insensitive. Several blanks count as one,
//! except that a line must not start with one.

use bytes::Bytes;

use super::reply;
use crate::wire::ADMIN_WORDS_MAX;
use crate::wire::number::status_number;

/// A command. Names are views into the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminRequest {
    /// `version`: the server's version.
    Version,
    /// `getpid`: the process id.
    Pid,
    /// `verbose`: the log level.
    Verbosity,
    /// `status`: jobs and workers of every function.
    Status,
    /// `prioritystatus`: queued jobs of every function by priority.
    PriorityStatus,
    /// `workers`: every connection.
    Workers,
    /// `show jobs`: every job.
    ShowJobs,
    /// `show unique jobs`: the unique of every job.
    ShowUniqueJobs,
    /// `show dead jobs`, which gearmand does not have: the jobs of the dead-letter queue.
    ShowDeadJobs,
    /// `requeue job HANDLE`, which gearmand does not have: retries a job of the dead-letter queue.
    RequeueJob {
        /// As typed.
        handle: Bytes,
    },
    /// `cancel job HANDLE`.
    CancelJob {
        /// As typed.
        handle: Bytes,
    },
    /// `create function NAME`.
    CreateFunction {
        /// The whole name; gearmand loses its last byte before a bare LF.
        function: Bytes,
    },
    /// `drop function NAME`.
    DropFunction {
        /// Matched ignoring case, as in gearmand.
        function: Bytes,
    },
    /// `maxqueue NAME [N | HIGH NORMAL LOW]`.
    MaxQueue {
        /// Matched exactly.
        function: Bytes,
        /// The new limits.
        limits: QueueLimits,
    },
    /// `shutdown [graceful]`: a command of gearmand until 1.0, and unknown since.
    Shutdown {
        /// Wait for the connected clients to finish.
        graceful: bool,
    },
}

/// The total number of jobs that a function may have when a job of each priority is submitted; 0 for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueLimits {
    /// For high priority.
    pub high: u32,
    /// For normal priority.
    pub normal: u32,
    /// For low priority.
    pub low: u32,
}

/// An invalid line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminError {
    /// The line that answers it. The command is unknown, too, for `show`, `cancel` and `cancel job` without further
    /// words, `shutdown` with anything but `graceful`, and an empty line.
    Answer(Vec<u8>),
    /// Close the connection without an answer, for this reason: more words than [`ADMIN_WORDS_MAX`], or a line of an
    /// HTTP request. Any web page can send one to a port of its reader's machine, with text commands in its body.
    Close(String),
}

impl AdminRequest {
    /// Parses a line, without its ending, as [`Message::Line`](crate::wire::Message::Line) contains it. As in gearmand, a
    /// NUL ends the line, too.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn parse(line: &Bytes) -> Result<Self, AdminError> {
        let line = &line.slice(
            ..line
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(line.len()),
        );
        let (verb, arguments) = words(line)?;
        let name = |word: &[u8]| line.slice_ref(word);
        let function = |word: &[u8]| word.eq_ignore_ascii_case(b"function");
        match (&*verb.to_ascii_lowercase(), arguments.as_slice()) {
            (b"version", _) => Ok(Self::Version),
            (b"getpid", _) => Ok(Self::Pid),
            (b"verbose", _) => Ok(Self::Verbosity),
            (b"status", _) => Ok(Self::Status),
            (b"prioritystatus", _) => Ok(Self::PriorityStatus),
            (b"workers", _) => Ok(Self::Workers),
            (b"show", [_, ..]) => show(&arguments),
            (b"cancel", [what, handle]) if what.eq_ignore_ascii_case(b"job") => {
                Ok(Self::CancelJob {
                    handle: name(handle),
                })
            }
            (b"requeue", [what, handle]) if what.eq_ignore_ascii_case(b"job") => {
                Ok(Self::RequeueJob {
                    handle: name(handle),
                })
            }
            (b"cancel", [_, _, ..]) => Err(AdminError::Answer(reply::UNKNOWN_CANCEL.to_vec())),
            (b"create", [what, word]) if function(what) => Ok(Self::CreateFunction {
                function: name(word),
            }),
            (b"drop", [what, word]) if function(what) => Ok(Self::DropFunction {
                function: name(word),
            }),
            (b"shutdown", []) => Ok(Self::Shutdown { graceful: false }),
            (b"shutdown", [how]) if how.eq_ignore_ascii_case(b"graceful") => {
                Ok(Self::Shutdown { graceful: true })
            }
            (b"maxqueue", [word, sizes @ ..]) => Ok(Self::MaxQueue {
                function: name(word),
                limits: limits(sizes),
            }),
            (b"create" | b"drop" | b"maxqueue", _) => {
                Err(AdminError::Answer(reply::wrong_arguments(verb)))
            }
            _ if is_http(verb, &arguments) => Err(AdminError::Close(format!(
                "HTTP instead of a text command: {:?}",
                line.slice_ref(verb)
            ))),
            _ => Err(AdminError::Answer(reply::unknown_command(verb))),
        }
    }
}

/// The verb and the words after it. The verb is empty when the line starts with a blank.
fn words(line: &[u8]) -> Result<(&[u8], Vec<&[u8]>), AdminError> {
    let mut words = line.split(|byte| *byte == b' ');
    let verb = words.next().unwrap_or_default();
    let arguments: Vec<_> = words
        .filter(|word| !word.is_empty())
        .take(ADMIN_WORDS_MAX)
        .collect();
    if arguments.len() == ADMIN_WORDS_MAX {
        return Err(AdminError::Close(format!(
            "more than {ADMIN_WORDS_MAX} words on a text line"
        )));
    }
    Ok((verb, arguments))
}

/// Whether a line begins an HTTP request, or is one of its headers. No text command has a colon in its verb.
fn is_http(verb: &[u8], arguments: &[&[u8]]) -> bool {
    let has_version = arguments
        .last()
        .is_some_and(|word| word.starts_with(b"HTTP/"));
    has_version || matches!(verb, b"GET" | b"POST") || verb.contains(&b':')
}

fn show(arguments: &[&[u8]]) -> Result<AdminRequest, AdminError> {
    let lower: Vec<_> = arguments
        .iter()
        .map(|word| word.to_ascii_lowercase())
        .collect();
    match lower
        .iter()
        .map(Vec::as_slice)
        .collect::<Vec<_>>()
        .as_slice()
    {
        [b"jobs"] => Ok(AdminRequest::ShowJobs),
        [b"unique", b"jobs"] => Ok(AdminRequest::ShowUniqueJobs),
        [b"dead", b"jobs"] => Ok(AdminRequest::ShowDeadJobs),
        _ => Err(AdminError::Answer(reply::UNKNOWN_SHOW.to_vec())),
    }
}

/// A single size applies to all priorities. With more sizes each applies to its own priority, and a priority without
/// one has no limit.
fn limits(sizes: &[&[u8]]) -> QueueLimits {
    let size = |at: usize| sizes.get(at).map_or(0, |size| status_number(size));
    match sizes {
        [all] => {
            let all = status_number(all);
            QueueLimits {
                high: all,
                normal: all,
                low: all,
            }
        }
        _ => QueueLimits {
            high: size(0),
            normal: size(1),
            low: size(2),
        },
    }
}
