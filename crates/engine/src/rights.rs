//! What a client may do. A command needs a single right or no right ([`Command::right`]); the session refuses
//! commands for which the client does not have the right.

use std::fmt;

use crate::command::Command;

/// The purpose of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// Submit jobs, schedules and batches, and replace what was submitted.
    Submit,
    /// Serve queues, take jobs and report on them.
    Work,
    /// Operate the daemon: list all objects, pause, remove, modify many jobs.
    Administer,
}

/// A set of rights; all by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights(u8);

impl Right {
    /// All rights, in order.
    pub const ALL: [Self; 3] = [Self::Submit, Self::Work, Self::Administer];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Rights {
    /// All rights.
    pub const ALL: Self = Self(Right::Submit.bit() | Right::Work.bit() | Right::Administer.bit());

    /// Returns true if these include a right.
    pub const fn include(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    /// Returns true if a client with these may send the command.
    pub fn allow(self, command: &Command) -> bool {
        self == Self::ALL || command.right().is_none_or(|right| self.include(right))
    }
}

impl Default for Rights {
    fn default() -> Self {
        Self::ALL
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Right::Submit, "submit"),
            (Right::Work, "work"),
            (Right::Administer, "administer"),
        ];
        let mut held = names
            .into_iter()
            .filter(|(right, _)| self.include(*right))
            .map(|(_, name)| name);
        held.next().map_or(Ok(()), |first| f.write_str(first))?;
        held.try_for_each(|name| write!(f, ", {name}"))
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Self(rights.into_iter().fold(0, |bits, right| bits | right.bit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientCommand, JobCommand, JobId, JobRef, Query, TakeCommand};

    #[test]
    fn rights_allow_their_commands() {
        let push = JobCommand::Replace {
            job: JobRef::Id(JobId(1)),
            body: "".into(),
        };
        let cancel = JobCommand::Cancel(JobRef::Id(JobId(1)));
        let table: [(Command, Option<Right>); 5] = [
            (push.into(), Some(Right::Submit)),
            (TakeCommand::WaitForWork.into(), Some(Right::Work)),
            (cancel.into(), Some(Right::Administer)),
            (ClientCommand::Close.into(), None),
            (Query::Stats.into(), None),
        ];
        for (command, needed) in table {
            assert_eq!(command.right(), needed, "{command:?}");
            assert!(Rights::ALL.allow(&command));
            for right in Right::ALL {
                let rights = Rights::from_iter([right]);
                assert_eq!(
                    rights.allow(&command),
                    needed.is_none_or(|needed| needed == right),
                    "{right:?} {command:?}"
                );
            }
        }
        assert_eq!(Rights::from_iter(Right::ALL), Rights::default());
        let names =
            [Rights::ALL, Rights::from_iter([Right::Work])].map(|rights| rights.to_string());
        assert_eq!(names, ["submit, work, administer", "work"]);
    }
}
