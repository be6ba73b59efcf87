//! A client of the daemon's HTTP API, over its Unix socket or an address. Each command uses one
//! connection.

use std::fmt::Display;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderValue;
use hyper::{Method, Request, Response, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use windlass_config::{DATA_DIR, Failure, SOCKET, Words};

use crate::arguments::Ask;
use crate::settings::Settings;
use crate::tls::{self, Identity, Tls, plain};

/// The data directory of the installed package.
const PACKAGED: &str = "/var/lib/windlass";

/// The default address of HTTP.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7420);

/// Timeout of connecting to that address.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// Finds the configured data directory. The caller knows the sections of the configuration.
pub type DataDir = fn(&Settings) -> Result<PathBuf, Failure>;

/// The location of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Daemon {
    /// Its data directory.
    Directory(PathBuf),
    /// Its address, or that of a proxy in front of it, with the files for `https`.
    Url(Uri, Files),
    /// None was given, and none was found at the usual places.
    Nowhere {
        /// The data directory of a daemon started here.
        here: PathBuf,
        /// The places that were tried, with the reasons.
        tried: String,
        /// Whether the user may not use the socket of a running daemon.
        is_denied: bool,
    },
}

/// Files for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// CA certificates to trust instead of the system's.
    pub(crate) ca: Option<PathBuf>,
    /// A client certificate and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

/// A connection to a daemon.
#[derive(Debug)]
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    /// The prefix of every path; empty, or `/` and names.
    prefix: String,
    /// The value of `Authorization`.
    login: Option<HeaderValue>,
    /// The namespace that every request is about; `None`: all of the login.
    namespace: Option<String>,
    /// The status of the last request, if it was refused.
    refusal: Option<StatusCode>,
}

/// A response of the daemon.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Whether the request has created something.
    pub(crate) is_new: bool,
    pub(crate) body: Bytes,
}

impl Ask {
    pub(crate) fn daemon(&self, data_dir: DataDir) -> Result<Daemon, Failure> {
        match &self.url {
            Some(url) => {
                let identity = self.client_certificate.clone().zip(self.client_key.clone());
                Daemon::at(
                    url,
                    Files {
                        ca: self.ca.clone(),
                        identity,
                    },
                )
            }
            None => data_dir(&self.settings).map(|named| match named == Path::new(DATA_DIR) {
                true => Daemon::find(named),
                false => Daemon::Directory(named),
            }),
        }
    }

    pub(crate) async fn connect(&self, data_dir: DataDir) -> Result<Client, Failure> {
        self.connect_to(&self.daemon(data_dir)?).await
    }

    pub(crate) async fn connect_to(&self, daemon: &Daemon) -> Result<Client, Failure> {
        let mut client = daemon.connect().await?;
        client.namespace.clone_from(&self.namespace);
        if let Some(file) = &self.login {
            client.log_in(file)?;
        }
        Ok(client)
    }
}

impl Daemon {
    /// Looks for a daemon at the usual places: the data directory here, that of the package, or the
    /// address of HTTP.
    fn find(here: PathBuf) -> Self {
        let (mut tried, mut is_denied) = (Vec::new(), false);
        for directory in [&here, Path::new(PACKAGED)] {
            let socket = directory.join(SOCKET);
            match std::os::unix::net::UnixStream::connect(&socket) {
                Ok(_) => return Self::Directory(directory.to_owned()),
                Err(why) => {
                    is_denied |= why.kind() == ErrorKind::PermissionDenied;
                    tried.push(format!("{} ({})", socket.display(), plain(&why)));
                }
            }
        }
        let url = format!("http://{LOOPBACK}");
        match (
            std::net::TcpStream::connect_timeout(&LOOPBACK, CONNECT_MAX),
            Self::at(&url, Files::default()),
        ) {
            (Ok(_), Ok(daemon)) => return daemon,
            (Err(why), _) => tried.push(format!("{url} ({})", plain(&why))),
            (Ok(_), Err(_)) => {}
        }
        Self::Nowhere {
            here,
            tried: tried.join(", "),
            is_denied,
        }
    }

    /// Reads an address: `http://localhost:7420`, `https://queue.example/windlass`.
    pub(crate) fn at(url: &str, files: Files) -> Result<Self, Failure> {
        let wrong = || {
            failure(format!(
                "--url {url}: expected http://HOST:PORT or https://HOST/PATH"
            ))
        };
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
        if !is_known || uri.host().is_none() || uri.query().is_some() {
            return Err(wrong());
        }
        if files != Files::default() && uri.scheme_str() == Some("http") {
            return Err(failure(format!(
                "--url {url} is without TLS: --ca and --client-certificate have no effect"
            )));
        }
        Ok(Self::Url(uri, files))
    }

    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        match self {
            Self::Nowhere {
                tried, is_denied, ..
            } => Err(nowhere(tried, *is_denied)),
            Self::Directory(directory) => {
                let path = directory.join(SOCKET);
                let stream = UnixStream::connect(&path)
                    .await
                    .map_err(|error| no_daemon(&path, &error))?;
                Client::over(stream, "localhost".to_owned(), String::new()).await
            }
            Self::Url(uri, files) => {
                let is_tls = uri.scheme_str() == Some("https");
                let usual = if is_tls { 443 } else { 80 };
                let (host, port) = (
                    uri.host().unwrap_or_default(),
                    uri.port_u16().unwrap_or(usual),
                );
                let (name, prefix) = (
                    host.trim_matches(['[', ']']),
                    uri.path().trim_end_matches('/').to_owned(),
                );
                // A proxy may know only the name.
                let header = if port == usual {
                    host.to_owned()
                } else {
                    format!("{host}:{port}")
                };
                let silent = |error| {
                    failure(format!(
                        "no daemon answers at {uri}: {}",
                        tls::plain(&error)
                    ))
                };
                let stream = TcpStream::connect((name, port)).await.map_err(silent)?;
                if is_tls {
                    let stream = files.tls()?.connect(name, stream).await.map_err(silent)?;
                    return Client::over(stream, header, prefix).await;
                }
                Client::over(stream, header, prefix).await
            }
        }
    }
}

impl Files {
    fn tls(&self) -> Result<Tls, Failure> {
        let identity = self
            .identity
            .as_ref()
            .map(|(certificate, key)| Identity { certificate, key });
        Tls::new(self.ca.as_deref(), identity)
    }
}

/// Who may use a daemon's socket.
const WHO_MAY: &str =
    "Only the daemon's user and its group may use this socket; --url and --login are for others";

fn nowhere(tried: &str, is_denied: bool) -> Failure {
    let advice = if is_denied {
        WHO_MAY
    } else {
        "Name its data directory with --data-dir or -c, or its address with --url"
    };
    let reason = format!("no daemon answers at {tried}. {advice}");
    if is_denied {
        Failure::Source {
            file: PACKAGED.into(),
            reason,
        }
    } else {
        failure(reason)
    }
}

fn no_daemon(path: &Path, error: &std::io::Error) -> Failure {
    if error.kind() == ErrorKind::PermissionDenied {
        let reason = format!("{}. {WHO_MAY}", plain(error));
        return Failure::Source {
            file: path.to_owned(),
            reason,
        };
    }
    failure(format!(
        "no daemon answers at {}: {}. Name its data directory with --data-dir or -c, or its address with --url",
        path.display(),
        plain(error)
    ))
}

impl Client {
    async fn over<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        stream: S,
        host: String,
        prefix: String,
    ) -> Result<Self, Failure> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(failure)?;
        // If it fails, the requests fail too.
        tokio::spawn(connection);
        Ok(Self {
            sender,
            host,
            prefix,
            login: None,
            namespace: None,
            refusal: None,
        })
    }

    /// Logs in with the contents of a file: a token, or `NAME:PASSWORD`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or contains neither.
    pub(crate) fn log_in(&mut self, file: &Path) -> Result<(), Failure> {
        let named = |error: &dyn Display| Failure::Source {
            file: file.to_owned(),
            reason: format!("--login: {error}"),
        };
        let text = std::fs::read_to_string(file).map_err(|error| named(&error))?;
        let value = match text.trim() {
            pair if pair.contains(':') => format!("Basic {}", STANDARD.encode(pair)),
            token => format!("Bearer {token}"),
        };
        let mut value = HeaderValue::try_from(value).map_err(|error| named(&error))?;
        value.set_sensitive(true);
        self.login = Some(value);
        Ok(())
    }

    /// Sends a request. `path` is below `/api/v1`.
    ///
    /// # Errors
    ///
    /// There is no response, or the daemon refuses the request, with its reason.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer, Failure> {
        let response = self.ask(method, path, body.into()).await?;
        let is_new = response.status() == StatusCode::CREATED;
        Ok(Answer {
            is_new,
            body: response
                .into_body()
                .collect()
                .await
                .map_err(failure)?
                .to_bytes(),
        })
    }

    /// Sends a request whose response is too long to be buffered.
    ///
    /// # Errors
    ///
    /// As for [`Client::send`].
    pub(crate) async fn stream(&mut self, method: Method, path: &str) -> Result<Incoming, Failure> {
        Ok(self.ask(method, path, Bytes::new()).await?.into_body())
    }

    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        self.refusal = None;
        let uri = format!("{}/api/v1{}", self.prefix, self.within(path));
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::HOST, &self.host);
        if let Some(login) = &self.login {
            request = request.header(header::AUTHORIZATION, login);
        }
        let request = request.body(Full::new(body)).map_err(failure)?;
        self.sender.ready().await.map_err(failure)?;
        let response = self.sender.send_request(request).await.map_err(unheard)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        self.refusal = Some(status);
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(failure)?
            .to_bytes();
        Err(refused(status, path, &body))
    }

    /// A path with the namespace of the command. A path that names a namespace itself is about that one.
    fn within(&self, path: &str) -> String {
        let has_own = path.starts_with("/namespaces/")
            || path
                .split(['?', '&'])
                .any(|part| part.starts_with("namespace="));
        match &self.namespace {
            Some(name) if !has_own => {
                let joint = if path.contains('?') { '&' } else { '?' };
                format!("{path}{joint}namespace={}", encoded(name))
            }
            Some(_) | None => path.to_owned(),
        }
    }

    /// The status of the last refused request.
    pub(crate) const fn refusal(&self) -> Option<StatusCode> {
        self.refusal
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Value, Failure> {
        self.send(Method::GET, path, Bytes::new()).await?.json()
    }

    pub(crate) async fn post(&mut self, path: &str) -> Result<Answer, Failure> {
        self.send(Method::POST, path, Bytes::new()).await
    }

    /// Sends one of several changes. An error names the thing that it concerns.
    pub(crate) async fn change(
        &mut self,
        thing: &str,
        method: Method,
        path: &str,
    ) -> Result<Answer, Failure> {
        self.send(method, path, Bytes::new())
            .await
            .map_err(|why| match why.to_string() {
                why if why.contains(thing) => failure(why),
                why => failure(format!("{thing}: {why}")),
            })
    }

    /// The number of the job with this number or name. Ambiguous names are refused.
    pub(crate) async fn job(&mut self, name: &str) -> Result<u64, Failure> {
        if let Ok(number) = name.parse() {
            return Ok(number);
        }
        let found = self.get(&format!("/search?q={}", encoded(name))).await?;
        let jobs: Vec<u64> = found
            .get("jobs")
            .and_then(|it| serde_json::from_value(it.clone()).ok())
            .unwrap_or_default();
        match jobs.as_slice() {
            [] => Err(failure(format!(
                "there is no job {name}: a job that has ended is forgotten"
            ))),
            [one] => Ok(*one),
            many => {
                let many: Vec<String> = many.iter().map(u64::to_string).collect();
                Err(failure(format!(
                    "several jobs are called {name}: {}",
                    many.join(", ")
                )))
            }
        }
    }

    /// All rows of a listing, up to `rows_max`.
    pub(crate) async fn rows(
        &mut self,
        path: &str,
        rows_max: usize,
    ) -> Result<Vec<Value>, Failure> {
        let mut all = Vec::new();
        self.pages(path, rows_max, |rows, _| {
            all.extend(rows);
            Ok(())
        })
        .await?;
        Ok(all)
    }

    /// Passes on the rows of a listing, up to `rows_max`, page by page, with the rest of the page. In the responses they are
    /// under the listing's name. A page may be empty although others follow it.
    pub(crate) async fn pages(
        &mut self,
        path: &str,
        rows_max: usize,
        mut each: impl FnMut(Vec<Value>, &Value) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        const PAGE_MAX: usize = 1_000;
        let listing = path.split('?').next().unwrap_or_default();
        let name = listing.rsplit('/').next().unwrap_or_default();
        let (mut seen, mut cursor) = (0, String::new());
        while seen < rows_max {
            let limit = PAGE_MAX.min(rows_max - seen);
            let joint = if path.contains('?') { '&' } else { '?' };
            let mut page = self
                .get(&format!("{path}{joint}limit={limit}{cursor}"))
                .await?;
            let rows = match page.get_mut(name).map(Value::take) {
                Some(Value::Array(rows)) => rows,
                Some(_) | None => Vec::new(),
            };
            seen += rows.len();
            each(rows, &page)?;
            let Some(next) = page.get("next").and_then(Value::as_str) else {
                break;
            };
            cursor = format!("&cursor={next}");
        }
        Ok(())
    }
}

impl Answer {
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            failure(format!(
                "cannot parse the daemon's response: {}",
                Words::JSON.of(&error.to_string())
            ))
        })
    }
}

/// A request without a response.
fn unheard(why: hyper::Error) -> Failure {
    match why.is_parse() {
        true => failure("not an HTTP server: check the port, or use https:// if it requires TLS"),
        false => failure(format!("the connection closed without a response: {why}")),
    }
}

/// The daemon's reason. If something was not found, this adds the command that lists what there is.
fn refused(status: StatusCode, path: &str, body: &[u8]) -> Failure {
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    let detail = problem.get("detail").and_then(Value::as_str);
    let detail = detail.map_or_else(|| status.to_string(), str::to_owned);
    let kind = path.split('/').nth(1).unwrap_or_default();
    let is_listed = [
        "queues",
        "schedules",
        "workers",
        "batches",
        "connections",
        "namespaces",
    ]
    .contains(&kind);
    failure(match status == StatusCode::NOT_FOUND && is_listed {
        true => format!("{detail}: `windlass {kind}` lists them"),
        false => detail,
    })
}

pub(crate) fn failure(reason: impl ToString) -> Failure {
    Failure::Runtime(reason.to_string())
}

/// The runtime of a command's requests.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failure)
}

/// A path with the given parameters.
pub(crate) fn with_query(path: &str, parameters: &[(impl Display, Option<String>)]) -> String {
    let given = parameters
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", encoded(value.as_ref()?))));
    let given: Vec<String> = given.collect();
    if given.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{}", given.join("&"))
    }
}

/// Encodes a name for a path or a query.
pub(crate) fn encoded(name: &str) -> String {
    const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');
    utf8_percent_encode(name, &PLAIN).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths() {
        let table = [
            ("mails", "mails"),
            ("a/b?c", "a%2Fb%3Fc"),
            ("..", "%2E%2E"),
            ("ü", "%C3%BC"),
            ("a b", "a%20b"),
        ];
        for (name, text) in table {
            assert_eq!(encoded(name), text);
        }
    }

    #[test]
    fn addresses() {
        let urls = [
            "http://localhost:7420",
            "http://[::1]:7420/",
            "http://localhost",
            "https://queue.example/windlass",
        ];
        for url in urls {
            assert!(Daemon::at(url, Files::default()).is_ok(), "{url}");
        }
        for url in [
            "localhost:7420",
            "ftp://localhost:7420",
            "http://",
            "unix:/x",
            "http://h/?a",
        ] {
            assert!(Daemon::at(url, Files::default()).is_err(), "{url}");
        }
        let (ca, file) = (Some("ca.pem".into()), || "own.pem".into());
        for files in [
            Files { ca, identity: None },
            Files {
                ca: None,
                identity: Some((file(), file())),
            },
        ] {
            assert!(Daemon::at("https://h", files.clone()).is_ok());
            assert!(Daemon::at("http://h", files).is_err());
        }
    }
}
