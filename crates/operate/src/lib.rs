//! Commands for operators: they ask the running daemon through its HTTP API (`client`) and show the answers (`show`).
//! Their options: `arguments`. `export` and `live` (`windlass check --live`) have conclusions of their own.
//!
//! The daemon has a Unix socket in its data directory that only its owner may use: the owner of the directory is
//! the operator.

mod arguments;
mod client;
mod export;
mod jobs;
mod live;
mod settings;
mod show;
pub mod tls;
#[cfg(feature = "top")]
mod top;

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;
use serde_json::Value;
use windlass_server::Failure;

#[cfg(feature = "top")]
use self::arguments::Top;
pub use self::arguments::{Ask, Check, Export, Operate};
use self::arguments::{
    Cluster, ClusterAction, Done, Drain, Fail, Jobs, Limit, LosingJobs, LosingQueue, OneBatch, OneJob, Push,
    ScheduleAction, SomeConnections, SomeJobs, SomeQueues, SomeSchedules, Take, Throttle, Worker,
};
use self::client::{Answer, Client, Daemon, Files, encoded, failure};
pub use self::live::{check, not_checked};
pub use self::settings::Settings;
use self::show::{BATCHES, CONNECTIONS, Column, QUEUES, SCHEDULES, WORKERS, at, text};

/// Finds the data directory of the configuration: which sections that has, the caller knows.
pub type DataDir = fn(&Settings) -> Result<PathBuf, Failure>;

impl Ask {
    fn daemon(&self, data_dir: DataDir) -> Result<Daemon, Failure> {
        match &self.url {
            Some(url) => {
                let identity = self.client_certificate.clone().zip(self.client_key.clone());
                Daemon::at(url, Files { ca: self.ca.clone(), identity })
            }
            None => data_dir(&self.settings).map(Daemon::Directory),
        }
    }

    async fn connect(&self, data_dir: DataDir) -> Result<Client, Failure> {
        self.connect_to(&self.daemon(data_dir)?).await
    }

    async fn connect_to(&self, daemon: &Daemon) -> Result<Client, Failure> {
        let mut client = daemon.connect().await?;
        if let Some(file) = &self.login {
            client.log_in(file)?;
        }
        Ok(client)
    }

    /// One object, for people in the form that `form` gives it.
    fn show(&self, value: &Value, form: fn(&Value) -> String) -> Result<(), Failure> {
        print(&if self.json { format!("{value}\n") } else { form(value) })
    }

    fn rows(&self, columns: &[Column], rows: &[Value]) -> Result<(), Failure> {
        let lines = || rows.iter().map(|row| format!("{row}\n")).collect();
        print(&if self.json { lines() } else { show::table(columns, rows) })
    }
}

/// Runs a command.
///
/// # Errors
///
/// The daemon does not answer, or refuses. Its reason is the text.
pub fn run(command: &Operate, data_dir: DataDir) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
    runtime.block_on(command.run(data_dir))
}

impl Operate {
    async fn run(&self, data_dir: DataDir) -> Result<(), Failure> {
        let ask = self.ask();
        let client = &mut ask.connect(data_dir).await?;
        match self {
            #[cfg(feature = "top")]
            Self::Top(top) => top.run(client, data_dir).await,
            Self::Status(_) => ask.show(&client.get("/status").await?, show::status),
            Self::Queues(_) => ask.rows(QUEUES, &pages(client, "/queues", "queues", usize::MAX).await?),
            Self::Workers(_) => ask.rows(WORKERS, &pages(client, "/workers", "workers", usize::MAX).await?),
            Self::Jobs(jobs) => jobs.run(client).await,
            Self::Job(job) => job.run(client).await,
            Self::Retry(jobs) => jobs.change(client, "retry").await,
            Self::Kill(jobs) => jobs.change(client, "kill").await,
            Self::Requeue(jobs) => jobs.change(client, "requeue").await,
            Self::Delete(jobs) => jobs.change(client, "delete").await,
            Self::Cancel(jobs) => jobs.change(client, "cancel").await,
            Self::Clear(queue) => queue.clear(client).await,
            Self::Remove(queue) => queue.remove(client).await,
            Self::Pause(queues) => queues.change(client, "pause").await,
            Self::Resume(queues) => queues.change(client, "resume").await,
            Self::Throttle(throttle) => throttle.run(client).await,
            Self::Limit(limit) => limit.run(client).await,
            Self::Schedules(_) => ask.rows(SCHEDULES, &pages(client, "/schedules", "schedules", usize::MAX).await?),
            Self::Schedule(schedules) => schedules.run(client).await,
            Self::Batches(_) => ask.rows(BATCHES, &pages(client, "/batches", "batches", usize::MAX).await?),
            Self::Batch(OneBatch { batch, .. }) => {
                ask.rows(BATCHES, &[client.get(&format!("/batches/{}", encoded(batch))).await?])
            }
            Self::Connections(_) => {
                ask.rows(CONNECTIONS, &pages(client, "/connections", "connections", usize::MAX).await?)
            }
            Self::Disconnect(connections) => connections.run(client).await,
            Self::Quiet(worker) => worker.signal(client, "quiet").await,
            Self::Stop(worker) => worker.signal(client, "stop").await,
            Self::Drain(drain) => drain.run(client).await,
            Self::Reload(_) => ask.show(&client.post("/reload").await?.json()?, show::reloaded),
            Self::Cluster(cluster) => cluster.run(client).await,
            Self::Push(push) => push.run(client).await,
            Self::Take(take) => take.run(client).await,
            Self::Done(Done { lease, result, .. }) => {
                report(client, lease, "done", result.as_ref()).await?;
                Ok(())
            }
            Self::Fail(Fail { lease, message, .. }) => {
                let outcome: Value = report(client, lease, "fail", message.as_ref()).await?.json()?;
                ask.show(&outcome, |it| format!("{}\n", at(it, "/state").as_str().unwrap_or_default()))
            }
        }
    }

    const fn ask(&self) -> &Ask {
        match self {
            Self::Status(ask)
            | Self::Queues(ask)
            | Self::Workers(ask)
            | Self::Schedules(ask)
            | Self::Batches(ask)
            | Self::Connections(ask)
            | Self::Reload(ask) => ask,
            #[cfg(feature = "top")]
            Self::Top(Top { ask, .. }) => ask,
            Self::Jobs(Jobs { ask, .. })
            | Self::Job(OneJob { ask, .. })
            | Self::Retry(SomeJobs { ask, .. })
            | Self::Kill(SomeJobs { ask, .. })
            | Self::Requeue(SomeJobs { ask, .. })
            | Self::Delete(LosingJobs { jobs: SomeJobs { ask, .. }, .. })
            | Self::Cancel(LosingJobs { jobs: SomeJobs { ask, .. }, .. })
            | Self::Clear(LosingQueue { ask, .. })
            | Self::Remove(LosingQueue { ask, .. })
            | Self::Pause(SomeQueues { ask, .. })
            | Self::Resume(SomeQueues { ask, .. })
            | Self::Throttle(Throttle { ask, .. })
            | Self::Limit(Limit { ask, .. })
            | Self::Schedule(SomeSchedules { ask, .. })
            | Self::Batch(OneBatch { ask, .. })
            | Self::Disconnect(SomeConnections { ask, .. })
            | Self::Quiet(Worker { ask, .. })
            | Self::Stop(Worker { ask, .. })
            | Self::Drain(Drain { ask, .. })
            | Self::Cluster(Cluster { ask, .. })
            | Self::Push(Push { ask, .. })
            | Self::Take(Take { ask, .. })
            | Self::Done(Done { ask, .. })
            | Self::Fail(Fail { ask, .. }) => ask,
        }
    }
}

impl OneJob {
    async fn run(&self, client: &mut Client) -> Result<(), Failure> {
        let path = format!("/jobs/{}", self.id);
        if self.body {
            let body = client.send(Method::GET, &format!("{path}/body"), Bytes::new()).await?.body;
            return print_bytes(&body);
        }
        self.ask.show(&client.get(&path).await?, show::job)
    }
}

impl LosingQueue {
    async fn clear(&self, client: &mut Client) -> Result<(), Failure> {
        let path = format!("/queues/{}", encoded(&self.queue));
        let row = client.get(&path).await?;
        confirm(self.yes, &format!("Remove the {} ready jobs of {}?", at(&row, "/states/ready"), self.queue))?;
        let changed: Value = client.post(&format!("{path}/clear")).await?.json()?;
        self.ask.show(&changed, |it| format!("{} jobs removed\n", at(it, "/changed")))
    }

    async fn remove(&self, client: &mut Client) -> Result<(), Failure> {
        let path = format!("/queues/{}", encoded(&self.queue));
        let row = client.get(&path).await?;
        let dead = text(at(&row, "/states/dead"));
        confirm(self.yes, &format!("Remove the queue {}? Its {dead} dead jobs stay.", self.queue))?;
        client.send(Method::DELETE, &path, Bytes::new()).await.map(drop)
    }
}

impl SomeQueues {
    async fn change(&self, client: &mut Client, action: &str) -> Result<(), Failure> {
        let mut rows = Vec::new();
        for queue in &self.queues {
            let answer = client.post(&format!("/queues/{}/{action}", encoded(queue))).await;
            rows.push(set(queue, &answer.map_err(|why| failure(format!("queue {queue}: {why}")))?)?);
        }
        self.ask.rows(QUEUES, &rows)
    }
}

impl Throttle {
    async fn run(&self, client: &mut Client) -> Result<(), Failure> {
        let Self { queue, concurrency, per_worker, timeout, off, ask } = self;
        let path = format!("/queues/{}/throttle", encoded(queue));
        let terms = [
            ("concurrency", concurrency.map(|it| it.to_string())),
            ("per_worker", per_worker.map(|it| it.to_string())),
            ("timeout", timeout.clone()),
        ];
        let method = if *off { Method::DELETE } else { Method::PUT };
        let answer = client.send(method, &with_query(&path, &terms), Bytes::new()).await?;
        ask.rows(QUEUES, &[set(queue, &answer)?])
    }
}

impl Limit {
    async fn run(&self, client: &mut Client) -> Result<(), Failure> {
        let Self { queue, jobs, off, ask } = self;
        let path = with_query(&format!("/queues/{}/limit", encoded(queue)), &[("jobs", jobs.map(|it| it.to_string()))]);
        let method = if *off { Method::DELETE } else { Method::PUT };
        let answer = client.send(method, &path, Bytes::new()).await?;
        ask.rows(QUEUES, &[set(queue, &answer)?])
    }
}

/// The row of a queue with a changed setting. A note names a new queue, because its name may be a mistake.
fn set(queue: &str, answer: &Answer) -> Result<Value, Failure> {
    if answer.is_new {
        eprintln!("{} is new: no client has used this queue yet", show::printable(queue));
    }
    answer.json()
}

impl SomeSchedules {
    async fn run(&self, client: &mut Client) -> Result<(), Failure> {
        let Self { action, ids, yes, ask } = self;
        let (method, action) = match action {
            ScheduleAction::Run => (Method::POST, "/run"),
            ScheduleAction::Pause => (Method::POST, "/pause"),
            ScheduleAction::Resume => (Method::POST, "/resume"),
            ScheduleAction::Remove => {
                confirm(*yes, &format!("Remove {} schedules?", ids.len()))?;
                (Method::DELETE, "")
            }
        };
        for id in ids {
            let answer = client.send(method.clone(), &format!("/schedules/{id}{action}"), Bytes::new()).await;
            let answer = answer.map_err(|why| failure(format!("schedule {id}: {why}")))?;
            match action {
                "/run" => ask.show(&answer.json()?, |it| format!("{}\n", at(it, "/id")))?,
                "" => {}
                _ => ask.rows(SCHEDULES, &[answer.json()?])?,
            }
        }
        Ok(())
    }
}

impl SomeConnections {
    async fn run(&self, client: &mut Client) -> Result<(), Failure> {
        confirm(self.yes, &format!("Close {} connections?", self.ids.len()))?;
        for id in &self.ids {
            let answer = client.post(&format!("/connections/{id}/close")).await;
            answer.map_err(|why| failure(format!("connection {id}: {why}")))?;
        }
        Ok(())
    }
}

impl Worker {
    async fn signal(&self, client: &mut Client, signal: &str) -> Result<(), Failure> {
        let path = match &self.worker {
            Some(worker) => format!("/workers/{}/{signal}", encoded(worker)),
            None => format!("/workers/{signal}"),
        };
        client.post(&path).await.map(drop)
    }
}

impl Drain {
    /// Shows what the daemon waits for whenever that changes, until the daemon is gone.
    async fn run(&self, client: &mut Client) -> Result<(), Failure> {
        const LOOK_EVERY: Duration = Duration::from_millis(200);
        let mut draining: Value = client.post("/drain").await?.json()?;
        self.ask.show(&draining, show::drain)?;
        if self.no_wait {
            return Ok(());
        }
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let Ok(status) = client.get("/status").await else { return Ok(()) };
            let now = at(&status, "/drain");
            if *now != draining {
                self.ask.show(now, show::drain)?;
                draining = now.clone();
            }
        }
    }
}

impl Cluster {
    async fn run(&self, client: &mut Client) -> Result<(), Failure> {
        match self.what {
            ClusterAction::Status => self.ask.show(&client.get("/cluster").await?, show::cluster),
            ClusterAction::Yield => client.post("/cluster/yield").await.map(drop),
        }
    }
}

impl Push {
    async fn run(&self, client: &mut Client) -> Result<(), Failure> {
        let body = match &self.body {
            Some(body) => body.clone().into_bytes(),
            None => standard_input()?,
        };
        let terms = [
            ("priority", self.priority.map(|it| it.to_string())),
            ("delay", self.delay.clone()),
            ("key", self.key.clone()),
            ("retries", self.retries.map(|it| it.to_string())),
        ];
        let path = with_query(&format!("/queues/{}/jobs", encoded(&self.queue)), &terms);
        let pushed: Value = client.send(Method::POST, &path, body).await?.json()?;
        self.ask.show(&pushed, |it| format!("{}\n", at(it, "/id")))
    }
}

impl Take {
    /// Without a job, prints nothing.
    async fn run(&self, client: &mut Client) -> Result<(), Failure> {
        let Self { queue, wait, lease, worker, protocol, ask } = self;
        let terms = [
            ("wait", wait.clone()),
            ("lease", lease.clone()),
            ("worker", worker.clone()),
            ("protocol", protocol.clone()),
        ];
        let answer = client.post(&with_query(&format!("/queues/{}/take", encoded(queue)), &terms)).await?;
        if answer.body.is_empty() {
            return Err(failure(format!("the queue {queue} has no job for this worker")));
        }
        ask.show(&answer.json()?, show::taken)
    }
}

/// All rows of a listing, as far as `rows_max`.
async fn pages(client: &mut Client, path: &str, rows: &str, rows_max: usize) -> Result<Vec<Value>, Failure> {
    const PAGE_MAX: usize = 1_000;
    let (mut all, mut cursor) = (Vec::new(), String::new());
    while all.len() < rows_max {
        let limit = PAGE_MAX.min(rows_max - all.len());
        let joint = if path.contains('?') { '&' } else { '?' };
        let mut page = client.get(&format!("{path}{joint}limit={limit}{cursor}")).await?;
        if let Some(Value::Array(found)) = page.get_mut(rows).map(Value::take) {
            all.extend(found);
        }
        let Some(next) = page.get("next").and_then(Value::as_str) else { break };
        cursor = format!("&cursor={next}");
    }
    Ok(all)
}

async fn report(client: &mut Client, lease: &str, what: &str, text: Option<&String>) -> Result<Answer, Failure> {
    let path = format!("/leases/{}/{what}", encoded(lease).replace("%2E", "."));
    client.send(Method::POST, &path, text.cloned().unwrap_or_default()).await
}

/// A path with the parameters that are given.
fn with_query(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded(value.as_ref()?))));
    let given: Vec<String> = given.collect();
    if given.is_empty() { path.to_owned() } else { format!("{path}?{}", given.join("&")) }
}

/// Asks before something is lost.
fn confirm(yes: bool, question: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(failure("something would be lost: --yes is required where there is no terminal"));
    }
    let mut answer = String::new();
    let _ = write!(io::stderr(), "{question} [y/N] ");
    io::stdin().read_line(&mut answer).map_err(failure)?;
    if answer.trim().eq_ignore_ascii_case("y") { Ok(()) } else { Err(failure("nothing is changed")) }
}

fn standard_input() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).map_err(failure)?;
    Ok(bytes)
}

fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    match io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()) {
        // A reader such as `head` closed the pipe; that is not an error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| failure(format!("cannot write: {error}"))),
    }
}
