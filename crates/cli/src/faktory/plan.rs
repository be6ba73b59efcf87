//! Turns Faktory's options, variables and files into a configuration.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use windlass_config::{ListenAddress, Secret};
use windlass_http::Http;
use windlass_session::Listen;

use super::conf::Conf;
use super::options::variables;
use crate::config::Config;
use crate::foreign::{Fate, Given, Item};
use crate::plan::{Error, address, resolve, settings};
use crate::world::{Ipv6, World};

/// The default password file, except in development.
const PASSWORD_FILE: &str = "/etc/faktory/password";

/// The default of `-w`.
const WEB_BINDING: &str = "localhost:7420";

/// Faktory's own jobs, in Redis's format, in a Faktory directory.
const FAKTORYS_JOBS: &str = "faktory.rdb";
/// Present in a data directory of Windlass that has been opened.
const OUR_LOCK: &str = "lock";

/// The result of planning.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) config: Config,
    /// What is ignored, with the reason.
    pub(super) warnings: Vec<String>,
}

/// The kind of environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Environment {
    Development,
    /// Staging or production; Faktory treats them alike.
    Serious,
}

impl Environment {
    fn of(given: &Given, world: &World) -> Result<Self, String> {
        match given.text("e").or_else(|| world.variable("FAKTORY_ENV")) {
            None | Some("development") => Ok(Self::Development),
            Some("staging" | "production") => Ok(Self::Serious),
            Some(other) => Err(format!(
                "Invalid environment \"{other}\": legal values are development, staging or production"
            )),
        }
    }

    /// Faktory's directory: its configuration, and the parent of its data.
    fn home(self, world: &World, otherwise: &str) -> Result<PathBuf, String> {
        match self {
            Self::Serious => Ok(otherwise.into()),
            Self::Development => match world.variable("HOME") {
                Some(home) => Ok(Path::new(home).join(".faktory")),
                None => Err(
                    "there is no HOME to find ~/.faktory in: name directories with -c and -d"
                        .to_owned(),
                ),
            },
        }
    }
}

impl Plan {
    pub(super) fn new(given: &Given, world: &World) -> Result<Self, Error> {
        let environment = Environment::of(given, world).map_err(Error::Usage)?;
        let directory = match given.text("c") {
            Some(directory) => directory.into(),
            None => environment
                .home(world, "/etc/faktory")
                .map_err(Error::Usage)?,
        };
        let conf = Conf::read(&directory).map_err(Error::Failure)?;
        let settings = settings(given, "d");
        let told = Told {
            given,
            world,
            environment,
            directory: &directory,
            conf: &conf,
        };
        let last = |config: &mut Config| config.http.password = told.web_password(config);
        let config = resolve(&settings, world, |config| told.apply(config), last)?;
        told.require_password(&config).map_err(Error::Usage)?;
        let mut warnings = told.warnings(&config);
        warnings.extend(unread_jobs(&config, environment, world));
        Ok(Self { config, warnings })
    }
}

/// All settings that Faktory would see.
struct Told<'a> {
    given: &'a Given,
    world: &'a World,
    environment: Environment,
    directory: &'a Path,
    conf: &'a Conf,
}

impl Told<'_> {
    /// Applies the settings to a configuration.
    fn apply(&self, config: &mut Config) -> Result<(), String> {
        self.password(config);
        self.addresses(config)?;
        self.tls(config);
        if !self.conf.cron.is_empty() {
            config.faktory.cron.clone_from(&self.conf.cron);
        }
        if !self.conf.throttles.is_empty() {
            config.faktory.throttles.clone_from(&self.conf.throttles);
        }
        if let Some(level) = self.given.text("l") {
            if !["error", "warn", "info", "debug"].contains(&level) {
                return Err(format!(
                    "invalid value \"{level}\" for -l: error, warn, info or debug expected"
                ));
            }
            level.clone_into(&mut config.log.level);
        }
        if config.data_dir == Config::default().data_dir && !self.given.has("d") {
            config.data_dir = self.data_dir()?;
        }
        Ok(())
    }

    /// Serves only Faktory, unless Windlass's own configuration has other addresses.
    fn addresses(&self, config: &mut Config) -> Result<(), String> {
        let web_is_ours = config.http != Config::default().http;
        config.serve_only("faktory");
        if !web_is_ours {
            config.http.listen =
                self.web(config.http.has_login() || !self.web_password(config).is_empty());
        }
        let Some(binding) = self.given.text("b").or(self.conf.binding.as_deref()) else {
            return Ok(());
        };
        let parse = |text: &str| {
            text.parse::<Listen>()
                .map_err(|_| format!("invalid binding \"{binding}\": host:port expected"))
        };
        config.faktory.listen = match binding.strip_prefix(':') {
            None => vec![parse(binding)?],
            Some(port) => {
                let hosts = self.world.ipv6.everywhere().iter();
                hosts
                    .map(|host| parse(&address(host, port)))
                    .collect::<Result<_, _>>()?
            }
        };
        Ok(())
    }

    fn web_binding(&self) -> &str {
        self.given
            .text("w")
            .or(self.conf.web_binding.as_deref())
            .unwrap_or(WEB_BINDING)
    }

    /// Where HTTP is served: only on this machine, if there is no login.
    fn web(&self, has_login: bool) -> Vec<ListenAddress> {
        let Some((host, port)) = self
            .web_binding()
            .rsplit_once(':')
            .filter(|(_, port)| *port != "0")
        else {
            return Vec::new();
        };
        let host = host.trim_matches(['[', ']']);
        let is_everywhere =
            host.is_empty() || host.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified());
        let hosts: &[&str] = match host {
            "" if has_login => self.world.ipv6.everywhere(),
            _ if has_login || !is_everywhere => &[host],
            "::" if self.world.ipv6 != Ipv6::Off => &["127.0.0.1", "::1"],
            _ => &["127.0.0.1"],
        };
        let listen = hosts
            .iter()
            .filter_map(|host| address(host, port).parse().ok());
        listen
            .filter(|listen| has_login || Http::is_local(listen))
            .collect()
    }

    /// The pages need the password that Faktory has for them: their own, or that of the protocol. Windlass's own logins
    /// have precedence.
    fn web_password(&self, config: &Config) -> Secret {
        if config.http.has_login() {
            return Secret::default();
        }
        let own = self.conf.web_password.clone().map(Secret::from);
        // The reason why a file has no password is reported elsewhere.
        own.unwrap_or_else(|| config.faktory.secret().unwrap_or_default())
    }

    fn password(&self, config: &mut Config) {
        let said = self
            .world
            .variable("FAKTORY_PASSWORD")
            .or(self.conf.password.as_deref());
        let faktory = &mut config.faktory;
        let own = !faktory.password.is_empty() || !faktory.password_file.as_os_str().is_empty();
        let usual = Some(PASSWORD_FILE).filter(|path| {
            !own && self.environment == Environment::Serious && Path::new(path).exists()
        });
        let Some(password) = said.or(usual) else {
            return;
        };
        (faktory.password, faktory.password_file) = match password.starts_with('/') {
            true => (Secret::default(), password.into()),
            false => (password.into(), PathBuf::new()),
        };
    }

    /// Staging and production need a password. A password file without a password is an error of its own.
    fn require_password(&self, config: &Config) -> Result<(), String> {
        let secret = config
            .faktory
            .secret()
            .map_err(|why| format!("faktory.password_file: {why}"))?;
        let skip = ["1", "true", "yes"]
            .map(Some)
            .contains(&self.world.variable("FAKTORY_SKIP_PASSWORD"));
        match self.environment {
            _ if !secret.is_empty() => Ok(()),
            Environment::Serious if !skip => Err(format!(
                "staging and production need a password: FAKTORY_PASSWORD, password under [faktory] in {}, or \
                 {PASSWORD_FILE}; FAKTORY_SKIP_PASSWORD=1 goes without",
                self.directory.join("conf.d").display()
            )),
            Environment::Development | Environment::Serious => Ok(()),
        }
    }

    fn tls(&self, config: &mut Config) {
        let (certificate, key) = (
            self.directory.join("public.cert.pem"),
            self.directory.join("private.key.pem"),
        );
        let tls = &mut config.faktory.tls;
        if !tls.is_on() && certificate.exists() && key.exists() {
            (tls.certificate, tls.key) = (certificate, key);
        }
    }

    fn data_dir(&self) -> Result<PathBuf, String> {
        match self.world.state_directory() {
            Some(path) => Ok(path.into()),
            None => Ok(self
                .environment
                .home(self.world, "/var/lib/faktory")?
                .join("windlass")),
        }
    }

    fn warnings(&self, config: &Config) -> Vec<String> {
        let variables = variables().iter().filter(|it| it.fate == Fate::Ignored);
        let variables = variables.filter(|it| self.world.variable(it.name).is_some());
        let variables = variables.map(Item::warning);
        let has_login = config.http.has_login();
        let web = (self.web(has_login) != self.web(true)).then(|| {
            let binding = self.web_binding();
            let served: Vec<String> = config.http.listen.iter().map(ToString::to_string).collect();
            let but = if served.is_empty() { "" } else { ", but at " };
            format!(
                "HTTP is not served at {binding}{but}{}: without a password only this machine may connect",
                served.join(" and ")
            )
        });
        self.given
            .ignored()
            .chain(variables)
            .chain(web)
            .chain(self.conf.warnings.iter().cloned())
            .collect()
    }
}

/// A warning about jobs of an earlier Faktory that have not been imported yet.
fn unread_jobs(config: &Config, environment: Environment, world: &World) -> Option<String> {
    if config.data_dir.join(OUR_LOCK).exists() {
        return None;
    }
    let theirs = environment
        .home(world, "/var/lib/faktory")
        .ok()
        .map(|home| home.join("db"));
    let places = theirs.into_iter().chain([config.data_dir.clone()]);
    let jobs = places
        .map(|place| place.join(FAKTORYS_JOBS))
        .find(|file| file.exists())?;
    Some(format!(
        "the jobs in {} are not read: `windlass import faktory-redis` takes them over",
        jobs.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;
    use crate::faktory::parse::parse;
    use crate::plan::keys;
    use crate::world::Ipv6;

    fn world(variables: &[(&str, &str)]) -> World {
        let home = [("HOME", "/home/none")];
        let environment = home
            .iter()
            .chain(variables)
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        World {
            environment,
            ipv6: Ipv6::Dual,
        }
    }

    fn plan_in(line: &str, world: &World) -> Result<Plan, Error> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Plan::new(&parse(&words).unwrap(), world)
    }

    fn config(line: &str, variables: &[(&str, &str)]) -> Config {
        plan_in(line, &world(variables)).unwrap().config
    }

    fn refused(line: &str, variables: &[(&str, &str)]) -> String {
        match plan_in(line, &world(variables)) {
            Err(Error::Usage(sentence)) => sentence,
            Err(Error::Failure(failure)) => failure.to_string(),
            Ok(plan) => panic!("{line}: {plan:?}"),
        }
    }

    /// The differences between a plan and the plan of an empty command line, one line each.
    fn differences(line: &str, variables: &[(&str, &str)]) -> Vec<String> {
        let nothing = lines(&plan_in("", &world(&[])).unwrap());
        lines(&plan_in(line, &world(variables)).unwrap())
            .difference(&nothing)
            .cloned()
            .collect()
    }

    fn lines(plan: &Plan) -> BTreeSet<String> {
        let mut lines: BTreeSet<String> = plan.warnings.iter().cloned().collect();
        lines.extend(keys(&plan.config));
        lines
    }

    #[test]
    fn every_option_and_variable() {
        let options: [(&str, &[&str]); 10] = [
            ("-b :7420", &["faktory.listen = [\"[::]:7420\"]"]),
            ("-w localhost:7421", &["http.listen = [\"localhost:7421\"]"]),
            ("-w :0", &["http.listen = []"]),
            ("-e development", &[]),
            ("-l debug", &["log.level = \"debug\""]),
            ("-d /d", &["data_dir = \"/d\""]),
            ("-v -h", &[]),
            ("-durability interval", &["durability = \"interval\""]),
            ("-set limits.page_max=7", &["limits.page_max = 7"]),
            ("-c /no/such", &[]),
        ];
        for (line, expected) in options {
            assert_eq!(differences(line, &[]), expected, "{line}");
        }
        for option in crate::faktory::options::options()
            .iter()
            .filter(|option| option.name != "windlass-config")
        {
            let given = |(line, _): &(&str, &[&str])| {
                line.split(' ')
                    .any(|word| word.strip_prefix('-') == Some(option.name))
            };
            assert!(options.iter().any(given), "{}", option.name);
        }
        let production = [
            "data_dir = \"/var/lib/faktory/windlass\"",
            "faktory.password = \"x\"",
        ];
        let variables: [(&str, &str, &[&str]); 4] = [
            ("FAKTORY_PASSWORD", "x", &["faktory.password = \"x\""]),
            ("FAKTORY_SKIP_PASSWORD", "1", &[]),
            (
                "FAKTORY2_PREVIEW",
                "1",
                &["FAKTORY2_PREVIEW is ignored: nothing here depends on it"],
            ),
            (
                "DD_DOGSTATSD_URL",
                "x",
                &["DD_DOGSTATSD_URL is ignored: no figures are sent to statsd yet"],
            ),
        ];
        for (name, value, expected) in variables {
            assert_eq!(differences("", &[(name, value)]), expected, "{name}");
        }
        for line in ["-e production", "-e staging"] {
            assert_eq!(
                differences(line, &[("FAKTORY_PASSWORD", "x")]),
                production,
                "{line}"
            );
        }
        let both = [("FAKTORY_PASSWORD", "x"), ("FAKTORY_ENV", "staging")];
        assert_eq!(differences("", &both), production);
        assert_eq!(
            differences("-e development", &both),
            ["faktory.password = \"x\""]
        );
        assert_eq!(super::variables().len(), 5);
    }

    #[test]
    fn it_serves_only_faktory_at_faktorys_address() {
        let listen = |line: &str, variables: &[(&str, &str)]| {
            let config = config(line, variables);
            config
                .for_server()
                .listeners()
                .map(|it| format!("{} {}", it.protocol, it.address))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            listen("", &[]),
            ["faktory localhost:7419", "http localhost:7420"]
        );
        let web = |line: &str| {
            listen(line, &[])
                .into_iter()
                .filter(|it| it.starts_with("http"))
                .collect::<String>()
        };
        assert_eq!(
            (&*web("-w :7421"), &*web("-w :0"), &*web("-w localhost:0")),
            ("http 127.0.0.1:7421", "", "")
        );
        assert_eq!(
            (&*web("-w [::1]:1"), &*web("-w 192.0.2.1:1")),
            ("http [::1]:1", "")
        );
        let both = "http 127.0.0.1:1http [::1]:1";
        assert_eq!(
            (&*web("-w 0.0.0.0:1"), &*web("-w [::]:1")),
            ("http 127.0.0.1:1", both)
        );
        let warned = |line: &str, expected: &str| {
            let warnings = plan_in(line, &world(&[])).unwrap().warnings;
            assert!(warnings[0].starts_with(expected), "{line}: {warnings:?}");
        };
        warned(
            "-w 192.0.2.1:1",
            "HTTP is not served at 192.0.2.1:1: without a password",
        );
        warned(
            "-w :1",
            "HTTP is not served at :1, but at 127.0.0.1:1: without a password",
        );
        for (given, expected) in [
            ("0.0.0.0:1", "0.0.0.0:1"),
            (":1", "[::]:1"),
            ("[::]:1", "[::]:1"),
            ("192.0.2.1:1", "192.0.2.1:1"),
            ("localhost:1", "localhost:1"),
        ] {
            let (line, variables) = (format!("-w {given}"), [("FAKTORY_PASSWORD", "x")]);
            assert!(
                listen(&line, &variables).contains(&format!("http {expected}")),
                "{given}"
            );
            assert_eq!(
                plan_in(&line, &world(&variables)).unwrap().warnings,
                [""; 0],
                "{given}"
            );
        }
        assert_eq!(
            listen("", &[("FAKTORY_PASSWORD", "x")]),
            ["faktory localhost:7419", "http localhost:7420"]
        );
        assert_eq!(
            listen("-b localhost:1", &[]),
            ["faktory localhost:1", "http localhost:7420"]
        );
        assert_eq!(
            listen("-b [::1]:1", &[]),
            ["faktory [::1]:1", "http localhost:7420"]
        );
        let ours = [
            ("WINDLASS_GEARMAN_LISTEN", "unix:/g"),
            ("WINDLASS_FAKTORY_LISTEN", "unix:/f"),
        ];
        assert_eq!(
            listen("", &ours),
            ["faktory unix:/f", "gearman unix:/g", "http localhost:7420"]
        );
        assert_eq!(
            listen("-b localhost:1", &ours),
            [
                "faktory localhost:1",
                "gearman unix:/g",
                "http localhost:7420"
            ]
        );
    }

    #[test]
    fn data_directory() {
        let data = |line: &str, variables: &[(&str, &str)]| {
            config(line, variables).data_dir.display().to_string()
        };
        let (state, ours) = (
            ("STATE_DIRECTORY", "/var/lib/a:/var/lib/b"),
            ("WINDLASS_DATA_DIR", "/c"),
        );
        assert_eq!(data("", &[]), "/home/none/.faktory/windlass");
        assert_eq!(
            data("-e production", &[("FAKTORY_SKIP_PASSWORD", "yes")]),
            "/var/lib/faktory/windlass"
        );
        assert_eq!(data("", &[state]), "/var/lib/a");
        assert_eq!(data("", &[state, ours]), "/c");
        assert_eq!(data("-d /d", &[state, ours]), "/d");
        let nobody = World {
            environment: Vec::new(),
            ipv6: Ipv6::Off,
        };
        assert!(plan_in("-c /no/such -d /d", &nobody).is_ok());
        for line in ["", "-d /d", "-c /no/such"] {
            assert!(
                matches!(plan_in(line, &nobody), Err(Error::Usage(_))),
                "{line}"
            );
        }
    }

    /// A configuration directory, given with `-c`.
    fn directory(files: &[(&str, &str)]) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("conf.d")).unwrap();
        files
            .iter()
            .for_each(|(name, text)| fs::write(dir.path().join(name), text).unwrap());
        let line = format!("-c {}", dir.path().display());
        (dir, line)
    }

    #[test]
    fn options_and_variables_override_conf_d() {
        let text = "[faktory]\nbinding = \":1\"\npassword = \"conf\"\n";
        let (_dir, line) = directory(&[("conf.d/a.toml", text)]);
        let said = |line: &str, variables: &[(&str, &str)]| {
            let config = config(line, variables);
            (
                config.faktory.listen[0].address.to_string(),
                config.faktory.password.expose().to_owned(),
            )
        };
        assert_eq!(said(&line, &[]), ("[::]:1".to_owned(), "conf".to_owned()));
        let over = said(
            &format!("{line} -b localhost:2"),
            &[("FAKTORY_PASSWORD", "variable")],
        );
        assert_eq!(over, ("localhost:2".to_owned(), "variable".to_owned()));
    }

    #[test]
    fn passwords() {
        let (dir, line) = directory(&[("secret", " in a file\n"), ("empty", "\n")]);
        let path = |name: &str| dir.path().join(name).display().to_string();
        let faktory = config(&line, &[("FAKTORY_PASSWORD", &path("secret"))]).faktory;
        assert_eq!(
            (
                faktory.secret().unwrap().expose(),
                faktory.password.expose()
            ),
            ("in a file", "")
        );
        let ours = [("WINDLASS_FAKTORY_PASSWORD", "ours")];
        assert_eq!(
            config(&format!("{line} -e production"), &ours)
                .faktory
                .password,
            "ours".into()
        );
        let over = [
            ("WINDLASS_FAKTORY_PASSWORD", "ours"),
            ("FAKTORY_PASSWORD", "theirs"),
        ];
        assert_eq!(config(&line, &over).faktory.password, "theirs".into());
        let table = [
            (
                "-e production",
                "",
                "staging and production need a password: FAKTORY_PASSWORD, ",
            ),
            ("-e staging", "", "staging and production need a password"),
            (
                "",
                &path("empty"),
                &format!("faktory.password_file: {} is empty", path("empty")),
            ),
            ("", &path("nothing"), "faktory.password_file: cannot read"),
        ];
        for (more, password, reason) in table {
            let said = refused(&format!("{line} {more}"), &[("FAKTORY_PASSWORD", password)]);
            assert!(said.starts_with(reason), "{said}");
        }
    }

    #[test]
    fn http_has_the_password_of_the_pages_or_of_the_protocol() {
        let password =
            |line: &str, variables: &[(&str, &str)]| config(line, variables).http.password;
        assert_eq!(
            (
                password("", &[]),
                password("", &[("FAKTORY_PASSWORD", "x")])
            ),
            ("".into(), "x".into())
        );
        assert_eq!(password("-set faktory.password=y", &[]), "y".into());
        let (dir, line) = directory(&[
            ("conf.d/a.toml", "[web]\npassword = \"pages\"\n"),
            ("secret", "in a file"),
        ]);
        assert_eq!(
            password(&line, &[("FAKTORY_PASSWORD", "x")]),
            "pages".into()
        );
        let file = dir.path().join("secret").display().to_string();
        assert_eq!(
            password("", &[("FAKTORY_PASSWORD", &file)]),
            "in a file".into()
        );
    }

    #[test]
    fn tls_with_faktorys_files() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let (dir, line) = directory(&[("public.cert.pem", &certificate)]);
        assert!(!config(&line, &[]).faktory.tls.is_on());
        fs::write(dir.path().join("private.key.pem"), key).unwrap();
        let tls = config(&line, &[]).faktory.tls;
        assert_eq!(tls.certificate, dir.path().join("public.cert.pem"));
        assert_eq!(tls.key, dir.path().join("private.key.pem"));
    }

    #[test]
    fn jobs_that_are_not_imported_are_reported() {
        let (dir, line) = directory(&[("faktory.rdb", "REDIS")]);
        let line = format!("{line} -d {}", dir.path().display());
        let expected = format!(
            "the jobs in {}/faktory.rdb are not read: `windlass import faktory-redis` takes them over",
            dir.path().display()
        );
        assert_eq!(plan_in(&line, &world(&[])).unwrap().warnings, [expected]);
        fs::write(dir.path().join(OUR_LOCK), "").unwrap();
        assert_eq!(plan_in(&line, &world(&[])).unwrap().warnings, [""; 0]);
    }

    #[test]
    fn errors_are_one_sentence() {
        let table = [
            (
                "-e bogus",
                "Invalid environment \"bogus\": legal values are development, staging or production",
            ),
            (
                "-l loud",
                "invalid value \"loud\" for -l: error, warn, info or debug expected",
            ),
            ("-b 7419", "invalid binding \"7419\": host:port expected"),
            ("-b :port", "invalid binding \":port\": host:port expected"),
            (
                "-set limits.jobs=1",
                "--set limits.jobs=1: unknown key `limits.jobs`",
            ),
        ];
        for (line, reason) in table {
            let said = refused(line, &[]);
            assert!(said.starts_with(reason), "{line}: {said}");
        }
    }
}
