//! Turns gearmand's options into a configuration and into settings of the process.

use std::path::{Path, PathBuf};

use windlass_config::Period;
use windlass_gearman::config::OnTimeout;
use windlass_gearman::wire::HandlePrefix;
use windlass_session::Listen;

use super::parse::{invalid, number};
use crate::config::Config;
use crate::foreign::{Fate, Given};
use crate::plan::{self, Error, resolve, settings};
use crate::world::World;

const PORT: u16 = 4730;
/// gearmand's default table.
const TABLE: &str = "gearman_queue";
/// How long a start waits for the previous daemon to end: init scripts let restarts overlap. gearmand tries as long.
const IN_USE_TIMEOUT: Period = Period::from_secs(20);
const DATA_DIR: &str = "/var/lib/windlass";
/// gearmand's default log file. Here it is used only by a process without standard error.
const LOG_FILE: &str = "/var/log/gearmand.log";

/// The result of planning.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) config: Config,
    pub(super) pid_file: Option<PathBuf>,
    pub(super) user: Option<String>,
    pub(super) daemon: bool,
    pub(super) coredump: bool,
    /// The queue of a previous gearmand.
    pub(super) queue: Option<OldQueue>,
    /// What is ignored, with the reason.
    pub(super) warnings: Vec<String>,
}

/// A table in an SQLite file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OldQueue {
    pub(super) file: PathBuf,
    pub(super) table: String,
}

impl Plan {
    pub(super) fn new(given: &Given, world: &World) -> Result<Self, Error> {
        refuse(given).map_err(Error::Usage)?;
        let settings = settings(given, "data-dir");
        Ok(Self {
            config: resolve(
                &settings,
                world,
                |config| apply(given, world, config),
                |_| {},
            )?,
            pid_file: given
                .text("pid-file")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            user: given
                .text("user")
                .filter(|user| !user.is_empty())
                .map(str::to_owned),
            daemon: given.has("daemon"),
            coredump: given.has("coredump"),
            queue: queue(given),
            warnings: warnings(given),
        })
    }
}

/// Refuses options that cannot be applied, in a sentence.
fn refuse(given: &Given) -> Result<(), String> {
    if let Some((option, value)) = given
        .options()
        .find(|(option, _)| option.fate == Fate::Refused)
    {
        return Err(format!(
            "--{}={value} is refused: {}",
            option.name, option.words
        ));
    }
    match given.text("queue-type") {
        Some("libsqlite3") if !given.has("libsqlite3-db") => Err(
            "Error while initializing the queue: -q libsqlite3 needs --libsqlite3-db".to_owned(),
        ),
        None | Some("builtin" | "libsqlite3") => Ok(()),
        Some(other) => Err(format!(
            "--queue-type={other} is refused: jobs are kept in --data-dir, and those in that queue are not read; drain it with \
             gearmand first, then leave the option out"
        )),
    }
}

fn queue(given: &Given) -> Option<OldQueue> {
    let file = given
        .text("libsqlite3-db")
        .filter(|_| given.text("queue-type") == Some("libsqlite3"))?;
    let table = given.text("libsqlite3-table").unwrap_or(TABLE).to_owned();
    Some(OldQueue {
        file: file.into(),
        table,
    })
}

fn warnings(given: &Given) -> Vec<String> {
    let mut warnings: Vec<String> = given.ignored().collect();
    let inert = ["ssl-certificate", "ssl-key"]
        .into_iter()
        .filter(|long| given.has(long) && !given.has("ssl"));
    warnings.extend(inert.map(|long| format!("--{long} is ignored: there is no --ssl")));
    let inert = ["libsqlite3-db", "libsqlite3-table"]
        .into_iter()
        .filter(|long| given.has(long));
    let inert = inert.filter(|_| queue(given).is_none());
    warnings.extend(inert.map(|long| format!("--{long} is ignored: there is no -q libsqlite3")));
    let far = number(given, "port").filter(|port| u16::try_from(*port).is_err());
    warnings
        .extend(far.map(|port| format!("--port={port} is port {}, as in gearmand", port & 0xffff)));
    warnings
}

/// Applies gearmand's options to a configuration.
fn apply(given: &Given, world: &World, config: &mut Config) -> Result<(), String> {
    numbers(given, config)?;
    let port = port(given, world)?;
    addresses(given, world, port, config)?;
    logging(given, config)?;
    tls(given, world, config)?;
    if config.server.in_use_timeout == Config::default().server.in_use_timeout {
        config.server.in_use_timeout = IN_USE_TIMEOUT;
    }
    let gearman = &mut config.gearman;
    gearman.exceptions |= given.has("exceptions");
    gearman.round_robin |= given.has("round-robin");
    // gearmand requeues slow jobs; a fleet that relies on it must not see these jobs fail.
    if gearman.on_timeout == OnTimeout::Auto {
        gearman.on_timeout = OnTimeout::Requeue;
    }
    if let Some(prefix) = given.text("job-handle-prefix") {
        HandlePrefix::new(prefix.as_bytes()).map_err(|_| invalid("job-handle-prefix", prefix))?;
        prefix.clone_into(&mut gearman.handle_prefix);
    }
    if config.data_dir == Config::default().data_dir {
        config.data_dir = data_dir(world, port);
    }
    Ok(())
}

fn numbers(given: &Given, config: &mut Config) -> Result<(), String> {
    let (server, gearman) = (&mut config.server, &mut config.gearman);
    set(given, "backlog", 0, &mut server.backlog)?;
    // The system's queue has one place then.
    server.backlog = server.backlog.max(1);
    // 0 open files, and fewer threads than none, are the defaults.
    if number(given, "file-descriptors") != Some(0) {
        set(given, "file-descriptors", 1, &mut server.connections_max)?;
    }
    if number(given, "threads").is_none_or(|threads| threads >= 0) {
        set(given, "threads", 0, &mut server.threads)?;
    }
    // -1 means "not given".
    if number(given, "keepalive-count") != Some(-1) {
        set(given, "keepalive-count", 0, &mut server.keepalive_count)?;
    }
    // It has no effect, but gearmand refuses these numbers.
    set(given, "hashtable-buckets", 1, &mut 0_u32)?;
    // The numbers that mean "no limit" take the limit for jobs of all protocols away, too. gearmand makes no pauses.
    if let Some(..=0) = number(given, "job-retries") {
        let limits = &mut config.limits;
        (gearman.job_retries, limits.losses_max, limits.loss_pause) = (0, 0, Period::from_ms(0));
    } else {
        set(given, "job-retries", 0, &mut gearman.job_retries)?;
    }
    let times = [
        ("keepalive-idle", &mut server.keepalive_idle),
        ("keepalive-interval", &mut server.keepalive_interval),
    ];
    for (long, period) in times {
        let mut seconds = 0_u16;
        if number(given, long).is_some_and(|number| number != -1) {
            set(given, long, 0, &mut seconds)?;
            *period = Period::from_secs(seconds.into());
        }
    }
    Ok(())
}

/// Sets a number if it is given, fits its type and is at least `least`.
fn set<T: TryFrom<i64>>(given: &Given, long: &str, least: i64, to: &mut T) -> Result<(), String> {
    let Some(number) = number(given, long) else {
        return Ok(());
    };
    let fits = T::try_from(number).ok().filter(|_| number >= least);
    *to = fits.ok_or_else(|| invalid(long, &number.to_string()))?;
    Ok(())
}

fn port(given: &Given, world: &World) -> Result<u16, String> {
    let text = given
        .text("port")
        .or_else(|| world.variable("GEARMAND_PORT"));
    let number = text.map_or(Ok(PORT.into()), |text| {
        text.trim()
            .parse::<u32>()
            .map_err(|_| invalid("port", text))
    });
    // The system's look-up of a port cuts larger numbers off.
    number.map(|number| (number & 0xffff).try_into().unwrap_or(PORT))
}

/// By default, serves Gearman on all addresses, as gearmand does. Addresses in Windlass's own configuration take
/// precedence, and other protocols are served only if that configuration changes their settings.
fn addresses(given: &Given, world: &World, port: u16, config: &mut Config) -> Result<(), String> {
    config.serve_only("gearman");
    let said = given.text("listen").filter(|host| !host.is_empty());
    let configured = config.gearman.listen != Config::default().gearman.listen;
    let asked =
        given.has("listen") || given.has("port") || world.variable("GEARMAND_PORT").is_some();
    if configured && !asked {
        return Ok(());
    }
    let hosts = said
        .as_ref()
        .map_or_else(|| world.ipv6.everywhere(), std::slice::from_ref);
    let address = |host: &&str| {
        plan::address(host, port)
            .parse::<Listen>()
            .map_err(|_| invalid("listen", host))
    };
    config.gearman.listen = hosts.iter().map(address).collect::<Result<_, _>>()?;
    Ok(())
}

fn logging(given: &Given, config: &mut Config) -> Result<(), String> {
    if let Some(level) = given.text("verbose") {
        let level = match level {
            "FATAL" | "ALERT" | "CRITICAL" | "ERROR" => "error",
            "WARNING" => "warn",
            "NOTICE" | "INFO" => "info",
            "DEBUG" => "debug",
            _ => return Err("Invalid value for --verbose supplied".to_owned()),
        };
        level.clone_into(&mut config.log.level);
    }
    match given.text("log-file") {
        Some("stderr") => config.log.file = PathBuf::new(),
        Some("none") => "off".clone_into(&mut config.log.level),
        Some(path) if !path.is_empty() => config.log.file = path.into(),
        _ if given.has("daemon") && config.log.file.as_os_str().is_empty() => {
            config.log.file = LOG_FILE.into()
        }
        _ => {}
    }
    Ok(())
}

fn tls(given: &Given, world: &World, config: &mut Config) -> Result<(), String> {
    if !given.has("ssl") {
        return Ok(());
    }
    let file = |variable: &str, long: &str| {
        let path = world
            .variable(variable)
            .or_else(|| given.text(long))
            .map(PathBuf::from);
        path.ok_or_else(|| format!("--ssl needs --{long}"))
    };
    let tls = &mut config.gearman.tls;
    // Windlass's own configuration suffices.
    if tls.certificate.as_os_str().is_empty() || given.has("ssl-certificate") {
        tls.certificate = file("GEARMAND_SERVER_PEM", "ssl-certificate")?;
    }
    if tls.key.as_os_str().is_empty() || given.has("ssl-key") {
        tls.key = file("GEARMAND_SERVER_KEY", "ssl-key")?;
    }
    Ok(())
}

/// Several gearmands on one machine differ in their ports; each needs a directory of its own.
fn data_dir(world: &World, port: u16) -> PathBuf {
    match (world.state_directory(), port) {
        (Some(path), _) => Path::new(path).to_owned(),
        (None, PORT) => DATA_DIR.into(),
        (None, port) => format!("{DATA_DIR}-{port}").into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::gearmand::options::options;
    use crate::gearmand::parse::{Loose, parse};
    use crate::world::Ipv6;

    fn plan_in(line: &str, world: &World) -> Result<Plan, Error> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Plan::new(&parse(&words, Loose::Refused).unwrap(), world)
    }

    fn plan(line: &str) -> Result<Plan, Error> {
        plan_in(line, &World::default())
    }

    /// The differences between a plan and the plan without options, one line each.
    fn differences(line: &str) -> Vec<String> {
        let nothing = lines(&plan("").unwrap());
        lines(&plan(line).unwrap())
            .difference(&nothing)
            .cloned()
            .collect()
    }

    fn lines(plan: &Plan) -> BTreeSet<String> {
        let Plan {
            config,
            pid_file,
            user,
            daemon,
            coredump,
            queue,
            warnings,
        } = plan;
        let rest = format!(
            "pid file {pid_file:?}\nuser {user:?}\ndaemon {daemon}\ncoredump {coredump}\nqueue {:?}",
            queue.as_ref().map(|OldQueue { file, table }| (file, table))
        );
        let mut lines: BTreeSet<String> = rest
            .lines()
            .chain(warnings.iter().map(String::as_str))
            .map(str::to_owned)
            .collect();
        lines.extend(plan::keys(config));
        lines
    }

    #[test]
    fn a_job_that_takes_too_long_is_requeued_unless_the_operator_says_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("windlass.toml");
        std::fs::write(&file, "gearman.on_timeout = \"fail\"\n").unwrap();
        let table = [
            (String::new(), OnTimeout::Requeue),
            ("--set gearman.on_timeout=fail".to_owned(), OnTimeout::Fail),
            (
                format!("--windlass-config {}", file.display()),
                OnTimeout::Fail,
            ),
        ];
        for (line, expected) in table {
            assert_eq!(
                plan(&line).unwrap().config.gearman.on_timeout,
                expected,
                "{line}"
            );
        }
    }

    /// The effect of every option of gearmand.
    #[test]
    fn every_option() {
        let other = "only other queue types need it; jobs are kept in --data-dir";
        let ignored = |long: &str, why: &str| vec![format!("--{long} is ignored: {why}")];
        let is = |lines: &[&str]| {
            lines
                .iter()
                .map(|line| (*line).to_owned())
                .collect::<Vec<_>>()
        };
        let sqlite = "there is no -q libsqlite3";
        let http = "gearmand's HTTP is not spoken; let its clients speak Gearman, or keep a gearmand for them";
        let ca = "as in gearmand, clients need no certificate; --set gearman.tls.client_ca=FILE requires one from all clients";
        let cases: Vec<(&str, Vec<String>)> = vec![
            ("--backlog=64", is(&["server.backlog = 64"])),
            ("--backlog=0", is(&["server.backlog = 1"])),
            (
                "--daemon",
                is(&["daemon true", "log.file = \"/var/log/gearmand.log\""]),
            ),
            ("--exceptions", is(&["gearman.exceptions = true"])),
            (
                "--file-descriptors=500",
                is(&["server.connections_max = 500"]),
            ),
            ("--help", vec![]),
            ("--job-retries=3", is(&["gearman.job_retries = 3"])),
            (
                "--job-retries=0",
                is(&["limits.loss_pause = \"0s\"", "limits.losses_max = 0"]),
            ),
            (
                "--job-retries=-1",
                is(&["limits.loss_pause = \"0s\"", "limits.losses_max = 0"]),
            ),
            (
                "--job-retries=-5",
                is(&["limits.loss_pause = \"0s\"", "limits.losses_max = 0"]),
            ),
            (
                "--job-handle-prefix=H:lap",
                is(&["gearman.handle_prefix = \"H:lap\""]),
            ),
            (
                "--hashtable-buckets=991",
                ignored("hashtable-buckets", "tables grow by themselves"),
            ),
            ("--keepalive", vec![]),
            (
                "--keepalive-idle=30",
                is(&["server.keepalive_idle = \"30s\""]),
            ),
            (
                "--keepalive-interval=7",
                is(&["server.keepalive_interval = \"7s\""]),
            ),
            ("--keepalive-count=3", is(&["server.keepalive_count = 3"])),
            ("--log-file=/var/log/x", is(&["log.file = \"/var/log/x\""])),
            ("--listen=::1", is(&["gearman.listen = [\"[::1]:4730\"]"])),
            ("--pid-file=/run/x", is(&["pid file Some(\"/run/x\")"])),
            ("--round-robin", is(&["gearman.round_robin = true"])),
            ("--queue-type=builtin", vec![]),
            ("--config-file=x", vec![]),
            (
                "--syslog",
                ignored(
                    "syslog",
                    "log lines go to standard error, where a service manager takes them, or to --log-file",
                ),
            ),
            ("--coredump", is(&["coredump true"])),
            ("--threads=2", is(&["server.threads = 2"])),
            ("--user=gearman", is(&["user Some(\"gearman\")"])),
            ("--verbose=DEBUG", is(&["log.level = \"debug\""])),
            ("--version", vec![]),
            (
                "--worker-wakeup=1",
                ignored(
                    "worker-wakeup",
                    "the daemon always wakes as many sleeping workers as there are jobs",
                ),
            ),
            ("--http-port=8080", ignored("http-port", http)),
            (
                "--port=4731",
                is(&[
                    "data_dir = \"/var/lib/windlass-4731\"",
                    "gearman.listen = [\"0.0.0.0:4731\"]",
                ]),
            ),
            (
                "--port=70000",
                is(&[
                    "--port=70000 is port 4464, as in gearmand",
                    "data_dir = \"/var/lib/windlass-4464\"",
                    "gearman.listen = [\"0.0.0.0:4464\"]",
                ]),
            ),
            ("--ssl-ca-file=c", ignored("ssl-ca-file", ca)),
            (
                "--ssl-certificate=c",
                ignored("ssl-certificate", "there is no --ssl"),
            ),
            ("--ssl-key=k", ignored("ssl-key", "there is no --ssl")),
            (
                "--libmemcached-servers=x",
                ignored("libmemcached-servers", other),
            ),
            (
                "--libmemcached-prefix=x",
                ignored("libmemcached-prefix", other),
            ),
            ("--libsqlite3-db=x", ignored("libsqlite3-db", sqlite)),
            (
                "--store-queue-on-shutdown",
                ignored(
                    "store-queue-on-shutdown",
                    "every background job is written to disk immediately",
                ),
            ),
            ("--libsqlite3-table=x", ignored("libsqlite3-table", sqlite)),
            (
                "-q libsqlite3 --libsqlite3-db=x",
                is(&["queue Some((\"x\", \"gearman_queue\"))"]),
            ),
            (
                "-q libsqlite3 --libsqlite3-db=x --libsqlite3-table=y",
                is(&["queue Some((\"x\", \"y\"))"]),
            ),
            ("--libpq-conninfo=x", ignored("libpq-conninfo", other)),
            ("--libpq-table=x", ignored("libpq-table", other)),
            ("--redis-server=x", ignored("redis-server", other)),
            ("--redis-port=x", ignored("redis-port", other)),
            ("--redis-password=x", ignored("redis-password", other)),
            ("--redis-prefix=x", ignored("redis-prefix", other)),
            ("--mysql-host=x", ignored("mysql-host", other)),
            ("--mysql-port=x", ignored("mysql-port", other)),
            ("--mysql-user=x", ignored("mysql-user", other)),
            ("--mysql-password=x", ignored("mysql-password", other)),
            ("--mysql-db=x", ignored("mysql-db", other)),
            ("--mysql-table=x", ignored("mysql-table", other)),
            ("--check-args", vec![]),
            ("--data-dir=/d", is(&["data_dir = \"/d\""])),
            ("--durability=interval", is(&["durability = \"interval\""])),
            ("--set limits.page_max=7", is(&["limits.page_max = 7"])),
        ];
        for (line, expected) in &cases {
            assert_eq!(&differences(line), expected, "{line}");
        }
        // Options that cannot be given alone, are refused, or name a file have tests of their own.
        let elsewhere = ["--protocol", "--ssl", "--windlass-config"];
        for option in options() {
            let word = format!("--{}", option.name);
            let here = cases
                .iter()
                .any(|(line, _)| line.split(['=', ' ']).next() == Some(word.as_str()));
            assert!(here != elsewhere.contains(&word.as_str()), "{word}");
        }
    }

    fn refused(line: &str) -> String {
        match plan(line) {
            Err(Error::Usage(sentence)) => sentence,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn errors_are_one_sentence() {
        let table = [
            (
                "--protocol=http",
                "--protocol=http is refused: gearmand's HTTP is not spoken",
            ),
            ("-r gear", "--protocol=gear is refused: "),
            (
                "-q MySQL",
                "--queue-type=MySQL is refused: jobs are kept in --data-dir, and those in that queue are not read",
            ),
            ("--verbose=LOUD", "Invalid value for --verbose supplied"),
            (
                "--port=abc",
                "the argument ('abc') for option '--port' is invalid",
            ),
            (
                "--port=-1",
                "the argument ('-1') for option '--port' is invalid",
            ),
            (
                "-q libsqlite3",
                "Error while initializing the queue: -q libsqlite3 needs --libsqlite3-db",
            ),
            (
                "--listen=a/b",
                "the argument ('a/b') for option '--listen' is invalid",
            ),
            (
                "--backlog=-1",
                "the argument ('-1') for option '--backlog' is invalid",
            ),
            (
                "--hashtable-buckets=0",
                "the argument ('0') for option '--hashtable-buckets' is invalid",
            ),
            (
                "-f -1",
                "the argument ('-1') for option '--file-descriptors' is invalid",
            ),
            (
                "--keepalive-idle=-2",
                "the argument ('-2') for option '--keepalive-idle' is invalid",
            ),
            ("--ssl", "--ssl needs --ssl-certificate"),
            ("--ssl --ssl-certificate=c", "--ssl needs --ssl-key"),
        ];
        for (line, expected) in table {
            let said = refused(line);
            assert!(said.starts_with(expected), "{line}: {said}");
        }
        let prefix = ["--job-handle-prefix=a b".to_owned()];
        let spaced = Plan::new(&parse(&prefix, Loose::Refused).unwrap(), &World::default());
        assert!(
            matches!(spaced, Err(Error::Usage(said)) if said.contains("('a b') for option '--job-handle-prefix'"))
        );
        let said = |line: &str| match plan(line) {
            Err(Error::Failure(failure)) => failure.to_string(),
            other => panic!("{line}: {other:?}"),
        };
        assert!(
            said("--keepalive-idle=40000")
                .starts_with("server.keepalive_idle: must be whole seconds")
        );
        assert!(said("--set limits.jobs=1").contains("unknown key `limits.jobs`"));
        assert!(
            said("--ssl --ssl-certificate=/no --ssl-key=/no")
                .starts_with("gearman.tls.certificate: ")
        );
    }

    #[test]
    fn values_that_equal_the_default() {
        let line = "--keepalive-idle=-1 --keepalive-interval=-1 --keepalive-count=-1 --threads=-1 -f 0 --port 4730";
        assert_eq!(differences(line), Vec::<String>::new());
        assert_eq!(differences("--log-file=stderr --daemon"), ["daemon true"]);
        assert_eq!(
            differences("--log-file=none --daemon"),
            ["daemon true", "log.level = \"off\""]
        );
    }

    fn listen(line: &str, ipv6: Ipv6, variables: &[(&str, &str)]) -> Vec<String> {
        let environment = variables
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let plan = plan_in(line, &World { environment, ipv6 }).unwrap();
        plan.config
            .gearman
            .listen
            .iter()
            .map(|it| it.address.to_string())
            .collect()
    }

    #[test]
    fn it_listens_where_gearmand_would() {
        assert_eq!(listen("", Ipv6::Off, &[]), ["0.0.0.0:4730"]);
        assert_eq!(listen("", Ipv6::Dual, &[]), ["[::]:4730"]);
        assert_eq!(listen("-p 1", Ipv6::Only, &[]), ["0.0.0.0:1", "[::]:1"]);
        assert_eq!(listen("-L localhost", Ipv6::Dual, &[]), ["localhost:4730"]);
        assert_eq!(listen("-L ::1 -p 7", Ipv6::Dual, &[]), ["[::1]:7"]);
        assert_eq!(
            listen("-L ::1", Ipv6::Dual, &[("GEARMAND_PORT", "5")]),
            ["[::1]:5"]
        );
        assert_eq!(
            listen("-L ::1 -p 7", Ipv6::Dual, &[("GEARMAND_PORT", "5")]),
            ["[::1]:7"]
        );
        let ours = [("WINDLASS_GEARMAN_LISTEN", "unix:/run/g")];
        assert_eq!(listen("", Ipv6::Dual, &ours), ["unix:/run/g"]);
        assert_eq!(listen("-p 4730", Ipv6::Off, &ours), ["0.0.0.0:4730"]);
    }

    #[test]
    fn data_directory() {
        let data = |line: &str, variables: &[(&str, &str)]| {
            let environment = variables
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect();
            plan_in(
                line,
                &World {
                    environment,
                    ipv6: Ipv6::Off,
                },
            )
            .unwrap()
            .config
            .data_dir
            .display()
            .to_string()
        };
        let (state, ours) = (
            ("STATE_DIRECTORY", "/var/lib/a:/var/lib/b"),
            ("WINDLASS_DATA_DIR", "/c"),
        );
        assert_eq!(data("", &[]), "/var/lib/windlass");
        assert_eq!(data("-p 4731", &[]), "/var/lib/windlass-4731");
        assert_eq!(data("-p 4731", &[state]), "/var/lib/a");
        assert_eq!(data("", &[state, ours]), "/c");
        assert_eq!(data("--data-dir /d", &[state, ours]), "/d");
    }

    #[test]
    fn tls_with_the_files_of_gearmand() {
        let dir = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (dir.path().join("c.pem"), dir.path().join("k.pem"));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let line = format!(
            "--ssl --ssl-certificate={} --ssl-key=/no/such/key",
            certificate.display()
        );
        let environment = vec![("GEARMAND_SERVER_KEY".into(), key.clone().into())];
        let tls = plan_in(
            &line,
            &World {
                environment,
                ipv6: Ipv6::Off,
            },
        )
        .unwrap()
        .config
        .gearman
        .tls;
        assert_eq!(
            (tls.certificate, tls.key, tls.client_ca),
            (certificate, key, PathBuf::new())
        );
    }

    #[test]
    fn windlass_options_override_gearmands() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("windlass.toml");
        std::fs::write(
            &file,
            "[server]\nthreads = 5\nbacklog = 5\n[limits]\npage_max = 5\n",
        )
        .unwrap();
        let line = format!(
            "--windlass-config {} --threads 6 --backlog 6 --set server.backlog=7",
            file.display()
        );
        let config = plan(&line).unwrap().config;
        assert_eq!(
            (
                config.limits.page_max,
                config.server.threads,
                config.server.backlog
            ),
            (5, 6, 7)
        );
    }
}
