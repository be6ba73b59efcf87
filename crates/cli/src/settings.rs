//! The options that determine the configuration. Later ones override earlier ones: file, environment, `--set`,
//! dedicated options.

use std::ffi::OsString;

use windlass_config::{Error, Override};
pub(crate) use windlass_operate::Settings;

use crate::config::Config;

/// The resulting configuration, checked.
pub(crate) fn resolve(
    settings: &Settings,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Config, Error> {
    resolve_with(settings, environment, |_| {}, |_| {})
}

/// Like `resolve`; `between` overrides file and environment, and is overridden by the rest. `last` sets what is no key.
pub(crate) fn resolve_with(
    settings: &Settings,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    between: impl FnOnce(&mut Config),
    last: impl FnOnce(&mut Config),
) -> Result<Config, Error> {
    let file = settings
        .file
        .as_deref()
        .map_or_else(|| Ok(Config::default()), Config::read)?;
    let mut config = file.with(Override::from_environment::<Config>(environment)?)?;
    between(&mut config);
    let mut config = config.with(overrides(settings)?)?;
    if let Some(data_dir) = &settings.data_dir {
        // Not through the overrides, which are text: a path may not be.
        config.data_dir.clone_from(data_dir);
    }
    if !settings.only.is_empty() {
        config.keep_only(&settings.only);
    }
    if let Some(path) = &settings.file {
        let text = windlass_config::read(path)?;
        config.places = windlass_config::places(path, &text, "queues");
    }
    last(&mut config);
    config.check().map_err(|error| in_file(settings, error))?;
    Ok(config)
}

/// The error with its place in the file, unless what overrides the file has caused it.
fn in_file(settings: &Settings, error: Error) -> Error {
    let Some(path) = &settings.file else {
        return error;
    };
    let Ok(text) = windlass_config::read(path) else {
        return error;
    };
    let alone = Config::parse(path, &text).and_then(|config| config.check());
    let is_same = alone.is_err_and(|other| other.to_string() == error.to_string());
    if is_same {
        error.placed(path, &text)
    } else {
        error
    }
}

fn overrides(settings: &Settings) -> Result<Vec<Override>, Error> {
    let set = settings
        .set
        .iter()
        .map(|text| Override::from_assignment::<Config>(text));
    let mut overrides = set.collect::<Result<Vec<_>, _>>()?;
    let options = [
        ("--durability", "durability", &settings.durability),
        ("--log-level", "log.level", &settings.log_level),
        ("--log-format", "log.format", &settings.log_format),
    ];
    for (protocol, key, text) in options {
        if let Some(text) = text {
            overrides.push(Override::new::<Config>(protocol, key, text)?);
        }
    }
    Ok(overrides)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use windlass_daemon::config::{Durability, LogFormat};

    use super::*;

    fn settings(file: Option<PathBuf>, set: &[&str]) -> Settings {
        Settings {
            file,
            set: set.iter().map(|text| (*text).to_owned()).collect(),
            ..Settings::default()
        }
    }

    fn environment(variables: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        variables
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    #[test]
    fn options_over_set_over_environment_over_file_over_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("windlass.toml");
        let text = "data_dir = \"1\"\ndurability = \"interval\"\n[log]\nlevel = \"trace\"\nformat = \"json\"\n";
        fs::write(
            &file,
            format!("{text}[server]\nthreads = 1\nconnections_max = 1\nunacknowledged_max = 1\n"),
        )
        .unwrap();
        let from_environment = environment(&[
            ("WINDLASS_SERVER_THREADS", "2"),
            ("WINDLASS_SERVER_CONNECTIONS_MAX", "2"),
            ("WINDLASS_LOG_LEVEL", "debug"),
            ("WINDLASS_DATA_DIR", "2"),
        ]);
        let mut settings = settings(
            Some(file),
            &[
                "server.threads=3",
                "log.level=info",
                "log.format=json",
                "data_dir=3",
            ],
        );
        settings.log_level = Some("warn".to_owned());
        settings.log_format = Some("text".to_owned());
        settings.durability = Some("sync".to_owned());
        settings.data_dir = Some("4".into());
        let mut expected = Config {
            data_dir: "4".into(),
            durability: Durability::Sync,
            ..Config::default()
        };
        expected.log.level = "warn".to_owned();
        expected.log.format = LogFormat::Text;
        expected.server.threads = 3;
        expected.server.connections_max = 2;
        expected.server.unacknowledged_max = 1;
        assert_eq!(resolve(&settings, from_environment).unwrap(), expected);
    }

    #[test]
    fn without_options_the_defaults_count() {
        assert_eq!(
            resolve(&Settings::default(), []).unwrap(),
            Config::default()
        );
    }

    #[test]
    fn a_senseless_value_is_shown_in_the_file_that_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("windlass.toml");
        fs::write(&file, "[server]\nbacklog = 0\n[queues.mail]\nfair = true\n").unwrap();
        let said = |set: &[&str]| {
            resolve(&settings(Some(file.clone()), set), [])
                .unwrap_err()
                .to_string()
        };
        let place = |at: &str| format!("{}:{at}", file.display());
        assert!(
            said(&[]).starts_with(&place("2:1: server.backlog: must be more than 0\n")),
            "{}",
            said(&[])
        );
        // The file's value is not what is wrong.
        assert_eq!(
            said(&["server.threads=1", "limits.jobs_max=0", "server.backlog=1"]),
            "limits.jobs_max: must be more than 0"
        );
        fs::write(&file, "[queues.mail]\nfair = true\n").unwrap();
        let expected = place(
            "1:9: queues: mail: per_key, fair and ordered require key\n  |\n1 | [queues.mail]\n",
        );
        assert!(said(&[]).starts_with(&expected), "{}", said(&[]));
    }

    #[test]
    fn errors_name_their_source() {
        let environment = environment(&[("WINDLASS_SERVER_THREADS", "many")]);
        let said = resolve(&Settings::default(), environment)
            .unwrap_err()
            .to_string();
        assert!(said.starts_with("WINDLASS_SERVER_THREADS: "), "{said}");
        let said = resolve(&settings(None, &["server.threads=many"]), [])
            .unwrap_err()
            .to_string();
        assert!(said.starts_with("--set server.threads=many: "), "{said}");
        let loud = Settings {
            log_level: Some("loud".to_owned()),
            ..Settings::default()
        };
        assert!(
            resolve(&loud, [])
                .unwrap_err()
                .to_string()
                .starts_with("log.level: `loud` is not one of")
        );
        let nowhere = Settings {
            data_dir: Some(PathBuf::new()),
            ..Settings::default()
        };
        assert_eq!(
            resolve(&nowhere, []).unwrap_err().to_string(),
            "data_dir: must not be empty"
        );
    }
}
