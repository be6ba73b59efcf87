//! Whether a file is a complete export, or cut short, changed, or of an unknown version.

use sha2::{Digest as _, Sha256};
use windlass_store::EXPORT_VERSION;

use super::jsonl::{Ending, Heading, Line};

/// What a file of lines is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// An export of a store that was in order, with every line as it was written.
    Whole(Heading),
    /// Lines without a first and a last line of an export; or all lines of a salvage that lost something.
    Lines,
    /// An export that is not as it was written, or that this version cannot read, and why.
    Broken(String),
}

/// Reads the lines of a file once.
#[derive(Debug, Default)]
pub struct Survey {
    lines: u64,
    sum: Sha256,
    heading: Option<Heading>,
    ending: Option<Ending>,
    broken: Option<String>,
}

impl Survey {
    /// The next line that is not blank, without its line feed. `line`: its content, unless it cannot be read.
    pub fn see(&mut self, bytes: &[u8], line: Option<&Line>) {
        match line {
            Some(Line::Heading(heading)) if self.lines == 0 => {
                let version = heading.version;
                if version == 0 || version > EXPORT_VERSION {
                    self.breaks(format!(
                        "it is an export of version {version}; this daemon reads version {EXPORT_VERSION}"
                    ));
                }
                self.heading = Some(heading.clone());
            }
            Some(Line::Heading(_)) => self.breaks("an export begins within it".to_owned()),
            Some(Line::Ending(ending)) => {
                self.end(ending);
                return;
            }
            _ if self.ending.is_some() => {
                self.breaks("there are lines behind the end of the export".to_owned())
            }
            _ => {}
        }
        self.lines += 1;
        self.sum.update(bytes);
        self.sum.update(b"\n");
    }

    fn end(&mut self, ending: &Ending) {
        if self.heading.is_none() {
            self.breaks("the first line of the export is missing".to_owned());
        } else if ending.lines != self.lines {
            self.breaks(format!(
                "it has {} of {} lines of the export",
                self.lines, ending.lines
            ));
        } else if ending.digest != hex::encode(self.sum.clone().finalize()) {
            self.breaks("its lines are not as they were written".to_owned());
        }
        self.ending = Some(ending.clone());
    }

    /// The first reason counts.
    fn breaks(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }

    /// The result, after the last line.
    pub fn completeness(self) -> Completeness {
        let Self {
            heading,
            ending,
            broken,
            lines,
            ..
        } = self;
        match (broken, heading) {
            (Some(why), _) => Completeness::Broken(why),
            (None, Some(_)) if ending.is_none() => Completeness::Broken(format!(
                "the export is cut short after line {lines}: its last line is missing"
            )),
            (None, Some(heading)) if heading.whole => Completeness::Whole(heading),
            (None, _) => Completeness::Lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_is() {
        let heading = |version, whole| {
            Line::Heading(Heading {
                version,
                commit: 9,
                whole,
            })
        };
        let digest = |lines: &[&str]| {
            let mut sum = Sha256::new();
            lines
                .iter()
                .for_each(|line| sum.update(format!("{line}\n")));
            hex::encode(sum.finalize())
        };
        let ending = |lines, digest| Line::Ending(Ending { lines, digest });
        let (begin, one) = (("H", Some(heading(1, true))), ("one", None));
        let end = ("E", Some(ending(2, digest(&["H", "one"]))));
        let whole = "Whole";
        let table: Vec<(&str, Vec<_>, &str)> = vec![
            (
                "whole",
                vec![begin.clone(), one.clone(), end.clone()],
                whole,
            ),
            ("nothing", vec![], "Lines"),
            ("lines", vec![one.clone(), one.clone()], "Lines"),
            (
                "cut",
                vec![begin.clone(), one.clone()],
                "cut short after line 2",
            ),
            (
                "a line less",
                vec![begin.clone(), end.clone()],
                "it has 1 of 2 lines",
            ),
            (
                "a line changed",
                vec![begin.clone(), ("two", None), end.clone()],
                "not as they were written",
            ),
            (
                "no first line",
                vec![one.clone(), end.clone()],
                "first line of the export is missing",
            ),
            (
                "lines behind it",
                vec![begin.clone(), one.clone(), end.clone(), one.clone()],
                "behind the end",
            ),
            (
                "two exports",
                vec![begin.clone(), one.clone(), begin.clone(), end.clone()],
                "begins within it",
            ),
            (
                "a later version",
                vec![("H", Some(heading(3, true))), one.clone(), end.clone()],
                "of version 3",
            ),
            (
                "a salvage with losses",
                vec![("H", Some(heading(1, false))), one, end],
                "Lines",
            ),
        ];
        for (name, lines, expected) in table {
            let mut survey = Survey::default();
            lines
                .iter()
                .for_each(|(bytes, line)| survey.see(bytes.as_bytes(), line.as_ref()));
            let found = format!("{:?}", survey.completeness());
            assert!(found.contains(expected), "{name}: {found}");
        }
    }
}
