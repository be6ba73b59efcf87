//! `windlass gearmand`, also reached through a link named `gearmand`: accepts gearmand's command line, so that unit
//! files and scripts work unchanged.
//!
//! Reading order: `options` (every option and its effect) · `parse` (gearmand's grammar) · `plan` (options to a
//! configuration) · `process` (user, background, pid file) · here, the order of the steps.

mod options;
mod parse;
mod plan;
mod process;

use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use windlass_config::Failure;
use windlass_daemon::logging;

use self::options::help;
use self::parse::{Loose, fill, parse};
use self::plan::{OldQueue, Plan};
use self::process::PidFile;
use crate::call::{Call, print, print_error};
use crate::config::Config;
use crate::foreign::Given;
use crate::plan::{Error, exit_code};
use crate::world::World;

/// The name of the sub-command. A link to this program whose name ends in it starts the sub-command.
pub(crate) const NAME: &str = "gearmand";
const CONFIG_FILE: &str = "/etc/gearmand.conf";

/// Runs the command and returns the exit code.
///
/// # Errors
/// As `windlass serve`.
pub(crate) fn run(call: &Call) -> Result<u8, Failure> {
    exit_code(attempt(call), call, 1)
}

fn attempt(call: &Call) -> Result<u8, Error> {
    let Call {
        argv0,
        through_link,
        ..
    } = call;
    let words = call.texts().map_err(Error::Usage)?;
    let given = given(&words).map_err(Error::Usage)?;
    if given.has("help") {
        return Ok(print(&help(argv0)));
    }
    if given.has("version") {
        return Ok(print(&version()));
    }
    let detached = given.has("detached");
    let plan = Plan::new(&given, &World::around())?;
    if !detached {
        plan.warnings
            .iter()
            .for_each(|warning| print_error(argv0, warning));
    }
    let user = plan
        .user
        .as_deref()
        .map_or(Ok(None), process::user)
        .map_err(Error::Usage)?;
    if given.has("check-args") {
        return Ok(0);
    }
    if plan.daemon && !detached {
        let failed = |why: io::Error| Error::Usage(format!("--daemon: {why}"));
        return process::detach(argv0, &words, *through_link).map_err(failed);
    }
    if detached {
        process::leave_terminal().map_err(Error::Usage)?;
    }
    if plan.coredump {
        process::allow_core().map_err(Error::Usage)?;
    }
    windlass_daemon::allow_open_files(plan.config.server.connections_max);
    if let Some(user) = user {
        process::become_user(&user, &plan.config.data_dir).map_err(Error::Usage)?;
    }
    let reread = || Ok(Plan::new(&given, &World::around())?.config);
    serve(argv0, plan, reread, detached)
        .map(|()| 0)
        .map_err(Error::Failure)
}

fn serve(
    argv0: &str,
    Plan {
        mut config,
        pid_file,
        queue,
        warnings,
        ..
    }: Plan,
    reread: impl Fn() -> Result<Config, Failure>,
    detached: bool,
) -> Result<(), Failure> {
    find_a_log(argv0, &mut config);
    logging::init(&config.log)?;
    // Repeated in the log for readers that see only the log.
    warnings
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    if let Some(OldQueue { file, table }) = queue {
        take_over(&file, &table, &config)?;
    }
    // Removed when the daemon has ended.
    let written = RefCell::new(None);
    let reread = || Ok(reread()?.for_server());
    windlass_daemon::run(&config.for_server(), reread, || {
        if let Some(path) = pid_file {
            *written.borrow_mut() = Some(PidFile::write(&path).map_err(Failure::Runtime)?);
        }
        if detached {
            process::report_ready()
                .map_err(|why| Failure::Runtime(format!("cannot go into the background: {why}")))?;
        }
        Ok(())
    })
}

#[cfg(feature = "sqlite")]
fn take_over(file: &Path, table: &str, config: &Config) -> Result<(), Failure> {
    windlass_migrate::take_over(file, table, &config.for_import())
}

/// This program has no part that could read gearmand's queue.
///
/// # Errors
/// [`Failure::Source`], if there is one.
#[cfg(not(feature = "sqlite"))]
fn take_over(file: &Path, _table: &str, _config: &Config) -> Result<(), Failure> {
    if !file.exists() {
        return Ok(());
    }
    let reason = "this program is built without SQLite (feature `sqlite`), and cannot take over the jobs in it";
    Err(Failure::Source {
        file: file.to_owned(),
        reason: reason.to_owned(),
    })
}

/// Like gearmand, starts without its log file if the file cannot be opened.
fn find_a_log(argv0: &str, config: &mut Config) {
    let path = std::mem::take(&mut config.log.file);
    if path.as_os_str().is_empty() || config.log.level == "off" {
        return;
    }
    match File::options().create(true).append(true).open(&path) {
        Ok(_) => config.log.file = path,
        Err(why) => {
            let path = path.display();
            print_error(
                argv0,
                &format!("Could not open log file \"{path}\", switching to stderr. ({why})"),
            );
        }
    }
}

/// The command line, then the configuration file.
fn given(words: &[String]) -> Result<Given, String> {
    let mut given = parse(words, Loose::Refused)?;
    let named = given.text("config-file").map(PathBuf::from);
    let text = match (
        &named,
        fs::read_to_string(named.as_deref().unwrap_or(Path::new(CONFIG_FILE))),
    ) {
        (_, Ok(text)) => text,
        (Some(_), Err(_)) => return Err("Could not open configuration file.".to_owned()),
        (None, Err(_)) => return Ok(given),
    };
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    fill(&mut given, &parse(&words, Loose::Skipped)?);
    Ok(given)
}

fn version() -> String {
    let spoken = Config::default().gearman.version;
    format!(
        "\ngearmand {spoken} - Windlass {}\n",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_options() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gearmand.conf");
        fs::write(
            &path,
            "# what we listen on\n--port=4731\n  --verbose INFO\t-R\n",
        )
        .unwrap();
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let line = format!("--verbose DEBUG --config-file {}", path.display());
        let given_both = given(&words(&line)).unwrap();
        assert_eq!(
            (given_both.text("port"), given_both.text("verbose")),
            (Some("4731"), Some("DEBUG"))
        );
        assert!(given_both.has("round-robin"));
        let missing = given(&words("--config-file=/no/such/file")).unwrap_err();
        assert_eq!(missing, "Could not open configuration file.");
    }
}
