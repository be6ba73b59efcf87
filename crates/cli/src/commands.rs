//! The commands. A new command needs a variant in `arguments` and a function here.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use windlass_bench::Alone;
use windlass_config::{Error, Failure, ListenAddress};
use windlass_daemon::config::{self, Durability};
use windlass_daemon::logging;
use windlass_engine::Rights;
use windlass_operate::print;
use windlass_session::protocol::Listener;

use crate::arguments::{Command, Move, Serve, Stored, grammar};
use crate::call::Call;
use crate::completion::{Line, candidates};
use crate::config::{Config, DEFAULTS};
use crate::explain::explain;
use crate::settings::{Settings, resolve};
use crate::{faktory, gearmand, logins};

/// Returns the exit code.
pub(crate) fn run(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Gearmand { words } => {
            return gearmand::run(&Call::as_command(gearmand::NAME, words));
        }
        Command::Faktory { words } => return faktory::run(&Call::as_command(faktory::NAME, words)),
        Command::Serve(how) => serve(&how),
        Command::Check(check) if check.live => {
            return Ok(windlass_operate::check(&check, data_dir));
        }
        Command::Check(check) => print(&summary(
            &resolve(&check.ask.settings, env::vars_os())?.for_server(),
        )?),
        Command::Config => print(DEFAULTS),
        Command::Verify(stored) => print(&(windlass_daemon::verify(&on(&stored)?)? + "\n")),
        Command::Compact(stored) => print(&(windlass_daemon::compact(&on(&stored)?)? + "\n")),
        Command::Salvage(stored) => salvage(&on(&stored)?),
        Command::Move(how) => move_store(&how),
        Command::Explain { code } => print(&explain(code.as_deref())?),
        Command::Completions { shell } => print(shell.script()),
        Command::Complete { words } => complete(&words),
        Command::Man { directory } => write_manual(&directory),
        #[cfg(feature = "migrate")]
        Command::Import(import) => windlass_migrate::run(&import, &|settings| {
            Ok(resolve(settings, env::vars_os())?.for_import())
        }),
        #[cfg(feature = "migrate")]
        Command::Bridge(bridge) => bridge.run(),
        Command::Bench(load) => bench(&load),
        Command::Password(login) => logins::password(&login),
        Command::Token(login) => logins::token(&login),
        Command::CurveKeypair => logins::curve_keypair(),
        Command::Export(export) => export.run(data_dir, export_at_rest),
        Command::Operate(command) => windlass_operate::run(&command, data_dir),
    }
    .map(|()| 0)
}

fn serve(
    Serve {
        settings,
        accept_loss,
        ephemeral,
    }: &Serve,
) -> Result<(), Failure> {
    let mut config = resolve(settings, env::vars_os())?;
    if *ephemeral {
        config.use_free_ports();
        logging::init(&config.log)?;
        let config = config::Config {
            ephemeral: true,
            ..config.for_server()
        };
        let reread = || {
            Err(Failure::Runtime(
                "an ephemeral daemon cannot reload its configuration".to_owned(),
            ))
        };
        return windlass_daemon::run(&config, reread, || Ok(()));
    }
    logging::init(&config.log)?;
    if *accept_loss {
        windlass_daemon::accept_loss(&config.for_server())?;
    }
    let reread = || Ok(resolve(settings, env::vars_os())?.for_server());
    windlass_daemon::run(&config.for_server(), reread, || Ok(()))
}

/// Prints what may stand in the place of the last word, each with a tab and its meaning.
fn complete(words: &[String]) -> Result<(), Failure> {
    let mut grammar = grammar();
    grammar.build();
    let names = |line: &Line<'_>, command: &str, argument: &str| match line.asker(&grammar) {
        Some(asker) => windlass_operate::names(&asker, command, argument, data_dir),
        None => Vec::new(),
    };
    let found = candidates(&grammar, words, names);
    print(
        &found
            .iter()
            .map(|(word, meaning)| format!("{word}\t{meaning}\n"))
            .collect::<String>(),
    )
}

/// Where a daemon with these settings keeps its data.
fn data_dir(settings: &Settings) -> Result<PathBuf, Failure> {
    Ok(resolve(settings, env::vars_os())?.data_dir)
}

/// The export of a data directory that no daemon uses, or of one namespace in it.
fn export_at_rest(
    directory: &Path,
    namespace: Option<&str>,
    lines: &mut dyn io::Write,
) -> Result<(), Failure> {
    let config = config::Config {
        data_dir: directory.into(),
        ..config::Config::default()
    };
    windlass_daemon::export::export(&config, namespace, lines)
}

/// The defaults, with this data directory; or the configuration, with this database.
fn on(Stored { place, set }: &Stored) -> Result<config::Config, Failure> {
    match url(place) {
        None => Ok(Config {
            data_dir: place.into(),
            ..Config::default()
        }
        .for_server()),
        Some(url) => {
            let set = [&set[..], &[format!("postgres.url={url}")]].concat();
            let settings = Settings {
                set,
                ..Settings::default()
            };
            Ok(resolve(&settings, env::vars_os())?.for_server())
        }
    }
}

/// The address of a database, which no directory's name looks like.
fn url(place: &OsStr) -> Option<&str> {
    place
        .to_str()
        .filter(|text| text.starts_with("postgres://") || text.starts_with("postgresql://"))
}

/// The target's other settings are the source's.
fn move_store(Move { to, settings }: &Move) -> Result<(), Failure> {
    let source = resolve(settings, env::vars_os())?;
    let (mut from, mut target) = (source.clone(), source.clone());
    if let Some(url) = url(to) {
        from.postgres.url.clear();
        target.postgres.url = url.to_owned();
    } else if source.postgres.url.is_empty() {
        let reason = "is empty: a move to a directory begins at the database that it names";
        return Err(Error::senseless("postgres.url", reason).into());
    } else {
        target.postgres.url.clear();
        target.data_dir = to.into();
    }
    target.check()?;
    print(&(windlass_daemon::move_store(&from.for_server(), &target.for_server())? + "\n"))
}

/// Puts load on a daemon: on this program, or on one that runs already.
fn bench(load: &Alone) -> Result<(), Failure> {
    let program = env::current_exe()
        .map_err(|why| Failure::Runtime(format!("cannot find this program: {why}")))?;
    match load.run(&program) {
        Ok(figures) => print(&format!("{figures}\n")),
        Err(windlass_bench::Error::Usage(reason)) => Err(Failure::Source {
            file: "windlass bench".into(),
            reason,
        }),
        Err(why) => Err(Failure::Runtime(why.to_string())),
    }
}

fn salvage(config: &config::Config) -> Result<(), Failure> {
    let report = windlass_daemon::salvage(config, &mut io::stdout().lock())?;
    // Standard error may be closed; the jobs are already written.
    let _ = writeln!(io::stderr(), "{report}");
    Ok(())
}

/// `ok`, then one line per listening address, for people and for `grep`.
///
/// # Errors
///
/// A name of an address cannot be resolved, or the data directory cannot be used.
fn summary(config: &config::Config) -> Result<String, Failure> {
    let durability = match config.durability {
        Durability::Sync => "sync".to_owned(),
        Durability::Interval => format!("interval, {}", config.commit_interval),
    };
    let unresolved = |it: &Listener<'_>| {
        Some(format!(
            "{}: {}: {}",
            it.key,
            it.address,
            it.address.resolve().err()?
        ))
    };
    let links = config.cluster.listen.iter();
    let unresolved_link =
        |it: &ListenAddress| Some(format!("cluster.listen: {it}: {}", it.resolve().err()?));
    let unresolved = config
        .listeners()
        .filter_map(|it| unresolved(&it))
        .chain(links.filter_map(unresolved_link));
    let unresolved: Vec<String> = unresolved.collect();
    if !unresolved.is_empty() {
        return Err(Failure::Unresolved(unresolved));
    }
    let listeners = config.listeners().map(
        |Listener {
             protocol,
             address,
             rights,
             namespace,
             tls,
             queue,
             ..
         }| {
            let tls = if tls { " (TLS)" } else { "" };
            let namespace = namespace
                .map(|name| format!(" (namespace {name})"))
                .unwrap_or_default();
            let queue = queue
                .map(|queue| format!(" (queue {})", queue.escape_debug()))
                .unwrap_or_default();
            let only = if rights == Rights::ALL {
                String::new()
            } else {
                format!(" (only {rights})")
            };
            format!("listen   {protocol} {address}{tls}{namespace}{queue}{only}\n")
        },
    );
    let tls = if config.cluster.tls.is_on() {
        " (TLS)"
    } else {
        ""
    };
    let links = config
        .cluster
        .listen
        .iter()
        .map(|it| format!("listen   cluster {it}{tls}\n"));
    windlass_daemon::check_certificates_today(config)?;
    let state = windlass_daemon::look(config)?;
    let place = config.remote.as_ref().map_or_else(
        || config.data_dir.display().to_string(),
        |remote| remote.name(),
    );
    let data = format!("data     {place} ({durability}; {state})\n");
    Ok(format!(
        "ok\n{}{data}",
        listeners.chain(links).collect::<String>()
    ))
}

/// Writes a manual page for the program and one for each command to a directory.
fn write_manual(directory: &Path) -> Result<(), Failure> {
    let written =
        fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(grammar(), directory));
    written.map_err(|error| {
        Failure::Runtime(format!("cannot write to {}: {error}", directory.display()))
    })
}
