//! Reads `conf.d/*.toml`: all files, in the order of their names, form one text.
//!
//! Not here: the effect of the keys (`options` documents it, `plan` applies it).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use toml::{Table, Value};
use windlass_config::{Failure, Throttle, Words};
use windlass_faktory::config::Cron;

use super::options;
use crate::foreign::Fate;

/// The known keys of a `[[cron]]` section and of its job.
const ENTRY_KEYS: [&str; 3] = ["schedule", "timezone", "job"];
const JOB_KEYS: [&str; 8] = [
    "type",
    "queue",
    "retry",
    "reserve_for",
    "priority",
    "backtrace",
    "args",
    "custom",
];

const THROTTLE_KEYS: [&str; 3] = ["concurrency", "worker", "timeout"];

/// The settings in the files that have an effect here.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Conf {
    pub(super) binding: Option<String>,
    pub(super) password: Option<String>,
    pub(super) web_binding: Option<String>,
    pub(super) web_password: Option<String>,
    /// Recurring jobs.
    pub(super) cron: Vec<Cron>,
    /// Queues with a limit on concurrent work.
    pub(super) throttles: BTreeMap<String, Throttle>,
    /// What is ignored, with the reason.
    pub(super) warnings: Vec<String>,
}

impl Conf {
    /// Reads the files in a configuration directory. A directory without files gives an empty result.
    ///
    /// # Errors
    /// [`Failure::Source`]: a file cannot be read, is not valid TOML together with the files before it, or has a setting that
    /// cannot be applied here.
    pub(super) fn read(directory: &Path) -> Result<Self, Failure> {
        let folder = directory.join("conf.d");
        let refuse = |file: &Path, reason: String| Failure::Source {
            file: file.to_owned(),
            reason,
        };
        let mut text = String::new();
        let mut parts: Vec<(usize, PathBuf)> = Vec::new();
        for file in
            files(&folder).map_err(|why| refuse(&folder, format!("cannot be read: {why}")))?
        {
            let more = fs::read_to_string(&file)
                .map_err(|why| refuse(&file, format!("cannot be read: {why}")))?;
            parts.push((text.len(), file));
            text.push_str(&more);
            // Without a final newline, a file's last line must not join the first line of the next file.
            text.push('\n');
        }
        let in_line = |at: usize, reason: &str| {
            let (begin, file) = parts
                .iter()
                .rfind(|(begin, _)| *begin <= at)
                .cloned()
                .unwrap_or_else(|| (0, folder.clone()));
            let line = text
                .get(begin..at)
                .unwrap_or_default()
                .matches('\n')
                .count()
                + 1;
            refuse(&file, format!("line {line}: {reason}"))
        };
        let table: Table = toml::from_str(&text).map_err(|error| {
            in_line(
                error.span().map_or(0, |span| span.start),
                &Words::TOML.of(error.message()).replace('\n', "; "),
            )
        })?;
        Self::of(&table).map_err(|wrong| match wrong.entry {
            Some(index) => in_line(cron_entry(&text, index).unwrap_or(0), &wrong.reason),
            None => refuse(&folder, wrong.reason),
        })
    }

    /// Reads the text of all files. Pure, so that a fuzzer can call it with any text.
    pub(super) fn of(table: &Table) -> Result<Self, Wrong> {
        let mut conf = Self::default();
        for (section, value) in table {
            match value
                .as_table()
                .filter(|_| options::key(section, "").is_none())
            {
                Some(keys) => keys
                    .iter()
                    .try_for_each(|(key, value)| conf.take(section, key, value))?,
                None => conf.take(section, "", value)?,
            }
        }
        Ok(conf)
    }

    /// One key, or a section that is treated as a whole.
    fn take(&mut self, section: &str, key: &str, value: &Value) -> Result<(), Wrong> {
        let item = options::key(section, key);
        let written = item.map_or_else(
            || format!("[{section}] {key}").trim_end().to_owned(),
            |it| it.name.to_owned(),
        );
        match item.map(|item| (item.fate, item.words)) {
            Some((Fate::Mapped | Fate::Ours, _)) if section == "cron" => self.take_cron(value)?,
            Some((Fate::Mapped | Fate::Ours, _)) if section == "throttles" => {
                self.take_throttles(value)?
            }
            Some((Fate::Mapped | Fate::Ours, _)) => {
                let text = value
                    .as_str()
                    .ok_or_else(|| format!("{written}: a text expected"))?;
                let place = match (section, key) {
                    ("web", "password") => &mut self.web_password,
                    ("web", _) => &mut self.web_binding,
                    (_, "binding") => &mut self.binding,
                    _ => &mut self.password,
                };
                *place = Some(text.to_owned()).filter(|text| !text.is_empty());
            }
            Some((Fate::Ignored | Fate::Refused, why)) => self
                .warnings
                .push(format!("conf.d: {written} is ignored: {why}")),
            None => self.warnings.push(format!(
                "conf.d: {written} is ignored: not a known key of Faktory"
            )),
        }
        Ok(())
    }

    fn take_cron(&mut self, value: &Value) -> Result<(), Wrong> {
        let entries = value
            .as_array()
            .ok_or("[[cron]]: sections in double brackets expected".to_owned())?;
        for (index, entry) in entries.iter().enumerate() {
            let mut entry = entry.clone();
            let place = format!("[[cron]], entry {}", index + 1);
            self.drop_unknown(&mut entry, &place, &ENTRY_KEYS);
            if let Some(job) = entry.get_mut("job") {
                self.drop_unknown(job, &format!("{place}, job"), &JOB_KEYS);
            }
            let wrong = |reason| Wrong {
                reason,
                entry: Some(index),
            };
            let entry: Cron = entry
                .try_into()
                .map_err(|error| wrong(described(&place, &error)))?;
            entry
                .check()
                .map_err(|reason| wrong(format!("{place}: {reason}")))?;
            self.cron.push(entry);
        }
        Ok(())
    }

    fn take_throttles(&mut self, value: &Value) -> Result<(), String> {
        let queues = value.as_table().ok_or("[throttles]: a section expected")?;
        for (queue, throttle) in queues {
            let (mut throttle, place) = (throttle.clone(), format!("[throttles] {queue}"));
            self.drop_unknown(&mut throttle, &place, &THROTTLE_KEYS);
            // Faktory uses seconds.
            if let Some(timeout) = throttle.get_mut("timeout") {
                let seconds = timeout.as_integer().filter(|seconds| *seconds >= 0);
                let seconds = seconds
                    .ok_or_else(|| format!("{place}: timeout: a number of seconds expected"))?;
                *timeout = Value::String(format!("{seconds}s"));
            }
            let throttle: Throttle = throttle
                .try_into()
                .map_err(|error| described(&place, &error))?;
            self.throttles.insert(queue.clone(), throttle);
        }
        Ok(())
    }

    /// Removes keys that Faktory does not have, with a warning, as everywhere in these files.
    fn drop_unknown(&mut self, value: &mut Value, place: &str, known: &[&str]) {
        let Some(table) = value.as_table_mut() else {
            return;
        };
        table.retain(|key, _| {
            let is_known = known.contains(&key);
            if !is_known {
                self.warnings.push(format!(
                    "conf.d: {place}: {key} is ignored: not a known key of Faktory"
                ));
            }
            is_known
        });
    }
}

/// A setting that cannot be applied.
pub(super) struct Wrong {
    pub(super) reason: String,
    /// The number of the `[[cron]]` entry at fault, if an entry is at fault.
    pub(super) entry: Option<usize>,
}

impl From<String> for Wrong {
    fn from(reason: String) -> Self {
        Self {
            reason,
            entry: None,
        }
    }
}

/// The line where an entry of `[[cron]]` begins.
fn cron_entry(text: &str, index: usize) -> Option<usize> {
    let file = toml::de::DeTable::parse(text).ok()?;
    Some(
        file.get_ref()
            .get("cron")?
            .get_ref()
            .get(index)?
            .span()
            .start,
    )
}

fn described(place: &str, error: &toml::de::Error) -> String {
    format!(
        "{place}: {}",
        Words::TOML.of(error.message()).replace('\n', "; ")
    )
}

/// The files in the folder, by name; empty if the folder does not exist.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.map(|it| it.path()))
        .collect::<io::Result<_>>()?;
    // Like a shell's `*`, skip names that begin with a dot.
    files.retain(|file| {
        let hidden = file
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !hidden
            && file
                .extension()
                .is_some_and(|extension| extension == "toml")
    });
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<Conf, String> {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("conf.d");
        fs::create_dir(&folder).unwrap();
        files
            .iter()
            .for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
        let failed = |failure: Failure| {
            failure
                .to_string()
                .replace(dir.path().to_str().unwrap(), "")
        };
        Conf::read(dir.path()).map_err(failed)
    }

    #[test]
    fn files_are_one_text_in_the_order_of_their_names() {
        let files = [
            ("b.toml", "password = \"secret\""),
            ("c.toml", "[web]\nbinding = \":1\"\npassword = \"p\""),
            ("a.toml", "[faktory]\nbinding = \":7419\""),
            ("d.txt", "this is no TOML"),
            (".e.toml", "nor is this"),
        ];
        let conf = read(&files).unwrap();
        assert_eq!(
            (conf.binding.as_deref(), conf.password.as_deref()),
            (Some(":7419"), Some("secret"))
        );
        assert_eq!(conf.web_binding.as_deref(), Some(":1"));
        assert_eq!(conf.web_password.as_deref(), Some("p"));
        assert_eq!(conf.warnings, [""; 0]);
        assert_eq!(read(&[]), Ok(Conf::default()));
        assert_eq!(
            Conf::read(Path::new("/no/such/directory")).unwrap(),
            Conf::default()
        );
    }

    #[test]
    fn ignored_keys_are_reported() {
        let text = "loose = 1\n[faktory]\nfoo = 1\n[goodlife]\na = 1\nb = 2\n[statsd]\nlocation = \"x\"\ntags = [\"a\"]\n";
        let expected = [
            "conf.d: [faktory] foo is ignored: not a known key of Faktory",
            "conf.d: [goodlife] a is ignored: not a known key of Faktory",
            "conf.d: [goodlife] b is ignored: not a known key of Faktory",
            "conf.d: [loose] is ignored: not a known key of Faktory",
            "conf.d: [statsd] is ignored: no figures are sent to statsd yet",
        ];
        assert_eq!(read(&[("a.toml", text)]).unwrap().warnings, expected);
    }

    #[test]
    fn cron_entries_are_read() {
        let five = "[[cron]]\nschedule = \"*/5 * * * *\"\n[cron.job]\ntype = \"FiveJob\"\nqueue = \"critical\"\nargs = [1]\n\
                    [cron.job.custom]\nfoo = \"bar\"\n";
        let other = "[[cron]]\nschedule = \"@daily\"\nname = \"x\"\n[cron.job]\ntype = \"D\"\nretry = 3\nat = \"now\"\n";
        let conf = read(&[("a.toml", five), ("b.toml", other)]).unwrap();
        let said: Vec<_> = conf
            .cron
            .iter()
            .map(|it| (it.schedule.as_str(), it.job.work_unit().unwrap()))
            .collect();
        let expected = [
            (
                "*/5 * * * *",
                r#"{"args":[1],"custom":{"foo":"bar"},"jobtype":"FiveJob","queue":"critical"}"#
                    .to_owned(),
            ),
            (
                "@daily",
                r#"{"args":[],"custom":{},"jobtype":"D","retry":3}"#.to_owned(),
            ),
        ];
        assert_eq!(said, expected);
        let warnings = ["entry 2: name", "entry 2, job: at"];
        let warnings = warnings
            .map(|key| format!("conf.d: [[cron]], {key} is ignored: not a known key of Faktory"));
        assert_eq!(conf.warnings, warnings);
    }

    #[test]
    fn throttles_are_read() {
        let text =
            "[throttles]\na = { concurrency = 4, timeout = 60 }\nb = { worker = 5, color = 1 }\n";
        let conf = read(&[("a.toml", text)]).unwrap();
        let of = |concurrency, worker, timeout: Option<&str>| Throttle {
            concurrency,
            worker,
            timeout: timeout.map(|text| text.parse().unwrap()),
        };
        let expected = [
            ("a", of(Some(4), None, Some("1m"))),
            ("b", of(None, Some(5), None)),
        ];
        assert_eq!(
            conf.throttles,
            expected
                .map(|(queue, throttle)| (queue.to_owned(), throttle))
                .into()
        );
        assert_eq!(
            conf.warnings,
            ["conf.d: [throttles] b: color is ignored: not a known key of Faktory"]
        );
    }

    #[test]
    fn every_key_of_a_job_is_known() {
        let all = "schedule = \"x\"\ntimezone = \"z\"\njob = { type = \"T\", queue = \"q\", retry = 1, reserve_for = 1, priority = 1, backtrace = 1 }\n";
        let entry: Cron = toml::from_str(all).unwrap();
        let written = Table::try_from(&entry).unwrap();
        assert!(written.keys().all(|key| ENTRY_KEYS.contains(&key.as_str())));
        let job = written["job"].as_table().unwrap();
        assert_eq!(
            (
                job.len(),
                job.keys().all(|key| JOB_KEYS.contains(&key.as_str()))
            ),
            (JOB_KEYS.len(), true)
        );
    }

    #[test]
    fn errors_name_file_line_and_entry() {
        let table = [
            (
                "[faktory]\nbinding = 1",
                "/conf.d: [faktory] binding: a text expected",
            ),
            (
                "\n[[cron]]\nschedule = \"* * * * *\"",
                "/conf.d/a.toml: line 2: [[cron]], entry 1: the key `job` is missing",
            ),
            (
                "[[cron]]\nschedule = \"@daily\"\njob.type = \"A\"\n\n[[cron]]\nschedule = \"0 25 * * *\"\njob.type = \"B\"",
                "/conf.d/a.toml: line 5: [[cron]], entry 2: schedule: hour: 25 is not between 0 and 23",
            ),
            (
                "[[cron]]\nschedule = \"@daily\"\ntimezone = \"Mars/Here\"\n[cron.job]\ntype = \"A\"",
                "/conf.d/a.toml: line 1: [[cron]], entry 1: schedule: unknown time zone `Mars/Here`",
            ),
            (
                "[[cron]]\nschedule = \"0 0 31 2 *\"\njob.type = \"A\"",
                "/conf.d/a.toml: line 1: [[cron]], entry 1: schedule: there is no such day",
            ),
            (
                "[[cron]]\nschedule = \"@every 1m\"\njob = { type = \"A\", reserve_for = 100000 }",
                "/conf.d/a.toml: line 1: [[cron]], entry 1: jobs cannot be reserved for more than one day",
            ),
            (
                "[cron]\nschedule = \"* * * * *\"",
                "/conf.d: [[cron]]: sections in double brackets expected",
            ),
            (
                "[[cron]]\nschedule = 1\njob.type = \"T\"",
                "/conf.d/a.toml: line 1: [[cron]], entry 1: expected a string, not the number 1",
            ),
            ("throttles = 1", "/conf.d: [throttles]: a section expected"),
            (
                "[throttles]\nq = { worker = -5 }",
                "/conf.d: [throttles] q: expected a whole number below 2^32, not the number -5",
            ),
            (
                "[throttles]\nq = { timeout = \"1m\" }",
                "/conf.d: [throttles] q: timeout: a number of seconds expected",
            ),
            ("\n[faktory", "/conf.d/a.toml: line 2: "),
        ];
        for (text, expected) in table {
            let said = read(&[("a.toml", text)]).unwrap_err();
            assert!(said.starts_with(expected), "{text}: {said}");
        }
        let twice = read(&[("a.toml", "[web]\n"), ("b.toml", "\n[web]\n")]).unwrap_err();
        assert!(twice.starts_with("/conf.d/b.toml: line 2: "), "{twice}");
        let cron = |schedule| format!("\n[[cron]]\nschedule = \"{schedule}\"\njob.type = \"T\"\n");
        let files = [("a.toml", &*cron("@daily")), ("b.toml", &*cron("@dayly"))];
        let second = read(&files).unwrap_err();
        assert!(
            second.starts_with(
                "/conf.d/b.toml: line 2: [[cron]], entry 2: schedule: `@dayly` is not"
            ),
            "{second}"
        );
    }
}
