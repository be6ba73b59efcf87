//! Commands for operators, which send requests to the running daemon through its HTTP API
//! (`client`) and show the responses (`show`). Their options are in `arguments`. `export` and
//! `live` (`windlass check --live`) interpret the responses themselves. `complete` provides the
//! daemon's names to a shell.
//!
//! The daemon has a Unix socket in its data directory, which its owner may use, and its group if
//! the directory admits the group.

mod arguments;
mod bounds;
mod client;
mod complete;
mod counter;
mod export;
mod history;
mod jobs;
mod live;
mod namespaces;
mod operator;
mod settings;
mod show;
mod terminal;
pub mod tls;
#[cfg(feature = "top")]
mod top;

use std::io::{self, Read as _, Write as _};
use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;
use serde_json::Value;
use windlass_config::{Failure, counted};

pub use self::arguments::{Ask, Check, Operate};
use self::arguments::{
    ClusterAction, Command, LosingQueue, Push, ScheduleAction, SomeQueues, Take, Worker,
};
pub use self::client::DataDir;
use self::client::{Answer, encoded, failure, runtime, with_query};
pub use self::complete::names;
pub use self::counter::Counter;
pub use self::export::{AtRest, Export};
pub use self::live::{check, not_checked};
use self::operator::Operator;
pub use self::settings::Settings;
pub use self::show::printable;
use self::show::{BATCHES, CONNECTIONS, NAMESPACES, QUEUES, SCHEDULES, WORKERS, at, many, number};
pub use self::terminal::print;
use self::terminal::{confirm, print_bytes};

/// Runs a command.
///
/// # Errors
///
/// The daemon does not respond, or refuses the request, with its reason.
pub fn run(command: &Operate, data_dir: DataDir) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let client = command.ask.connect(data_dir).await?;
        Operator {
            ask: &command.ask,
            client,
        }
        .run(&command.command, data_dir)
        .await
    })
}

impl Operator<'_> {
    #[cfg_attr(
        not(feature = "top"),
        expect(unused_variables, reason = "only top connects again")
    )]
    async fn run(&mut self, command: &Command, data_dir: DataDir) -> Result<(), Failure> {
        match command {
            #[cfg(feature = "top")]
            Command::Top { every } => top::run(self, *every, data_dir).await,
            Command::Status => self.object("/status", show::status).await,
            Command::Queues(by) => self.list(QUEUES, "/queues", by).await,
            Command::Workers(by) => self.list(WORKERS, "/workers", by).await,
            Command::Jobs(jobs) => jobs.run(self).await,
            Command::Dead(conditions) => conditions.failures(self).await,
            Command::Kinds(kinds) => kinds.run(self).await,
            Command::History(history) => history.run(self).await,
            Command::Job { id, body: false } => self.job(id).await,
            Command::Job { id, body: true } => {
                let id = self.client.job(id).await?;
                print_bytes(
                    &self
                        .client
                        .send(Method::GET, &format!("/jobs/{id}/body"), Bytes::new())
                        .await?
                        .body,
                )
            }
            Command::Retry(jobs) => jobs.change(self).await,
            Command::Kill(jobs) => jobs.change(self, "kill", None).await,
            Command::Requeue(jobs) => jobs.change(self, "requeue", None).await,
            Command::Delete(jobs) => jobs.change(self, "delete").await,
            Command::Cancel(jobs) => jobs.change(self, "cancel").await,
            Command::Clear { queue, key } => queue.clear(key.as_ref(), self).await,
            Command::Remove(queue) => queue.remove(self).await,
            Command::Pause(queues) => queues.change(self, "pause").await,
            Command::Resume(queues) => queues.change(self, "resume").await,
            Command::Throttle(it) if it.is_question() => {
                self.rule(&it.queue, "throttle", bounds::throttle_of).await
            }
            Command::Limit(it) if it.is_question() => {
                self.rule(&it.queue, "limit", bounds::limit_of).await
            }
            Command::Policy {
                queue,
                policy: None,
                off: false,
            } => {
                let policy = self
                    .client
                    .get(&format!("/queues/{}/policy", encoded(queue)))
                    .await?;
                self.show(&policy, |policy| show::policy(queue, policy))
            }
            Command::Throttle(it) => {
                self.set(&it.queue, "throttle", it.off, &it.parameters()?, Vec::new())
                    .await
            }
            Command::Keys { queue } => {
                self.object(&format!("/queues/{}/keys", encoded(queue)), show::keys)
                    .await
            }
            Command::Policy { queue, policy, off } => {
                let body = policy.clone().unwrap_or_default().into_bytes();
                self.set(queue, "policy", *off, &[], body).await
            }
            Command::Limit(it) => {
                self.set(&it.queue, "limit", it.off, &it.parameters()?, Vec::new())
                    .await
            }
            Command::Schedules(by) => self.list(SCHEDULES, "/schedules", by).await,
            Command::Schedule { action, ids, yes } => {
                self.change_schedules(*action, ids, *yes).await
            }
            Command::Batches(by) => self.list(BATCHES, "/batches", by).await,
            Command::Batch { batch } => {
                let batch = self
                    .client
                    .get(&format!("/batches/{}", encoded(batch)))
                    .await?;
                self.rows(BATCHES, &[batch])
            }
            Command::Connections(by) => self.list(CONNECTIONS, "/connections", by).await,
            Command::Disconnect { ids, yes } => self.disconnect(ids, *yes).await,
            Command::Quiet(worker) => worker.signal(self, "quiet").await,
            Command::Stop(worker) => worker.signal(self, "stop").await,
            Command::Drain { no_wait } => self.drain(*no_wait).await,
            Command::Reload => {
                let changes = self.client.post("/reload").await?.json()?;
                self.show(&changes, show::reloaded)
            }
            Command::Cluster {
                what: ClusterAction::Status,
            } => self.object("/cluster", show::cluster).await,
            Command::Cluster {
                what: ClusterAction::Yield,
            } => self.client.post("/cluster/yield").await.map(drop),
            Command::Namespaces(by) => self.list(NAMESPACES, "/namespaces", by).await,
            Command::Namespace(namespace) => namespace.run(self).await,
            Command::Push(push) => push.run(self).await,
            Command::Take(take) => take.run(self).await,
            Command::Done { lease, result } => {
                self.report(lease, "done", result.as_ref()).await.map(drop)
            }
            Command::Fail { lease, message } => {
                let outcome = self.report(lease, "fail", message.as_ref()).await?.json()?;
                self.show(&outcome, |it| {
                    format!("{}\n", at(it, "/state").as_str().unwrap_or_default())
                })
            }
        }
    }

    /// Prints a setting of a queue in the form in which it can be set.
    async fn rule(
        &mut self,
        name: &str,
        what: &str,
        of: fn(&Value) -> Option<Value>,
    ) -> Result<(), Failure> {
        let queue = self
            .client
            .get(&format!("/queues/{}", encoded(name)))
            .await?;
        self.show(&queue, |queue| show::rule(name, what, of(queue)))
    }

    /// Changes or removes a setting of a queue.
    async fn set(
        &mut self,
        queue: &str,
        setting: &str,
        off: bool,
        terms: &[(String, Option<String>)],
        body: Vec<u8>,
    ) -> Result<(), Failure> {
        let path = with_query(&format!("/queues/{}/{setting}", encoded(queue)), terms);
        let method = if off { Method::DELETE } else { Method::PUT };
        let row = changed(queue, &self.client.send(method, &path, body).await?)?;
        self.rows(QUEUES, &[row])
    }

    async fn change_schedules(
        &mut self,
        action: ScheduleAction,
        ids: &[u64],
        yes: bool,
    ) -> Result<(), Failure> {
        let (method, action) = match action {
            ScheduleAction::Run => (Method::POST, "/run"),
            ScheduleAction::Pause => (Method::POST, "/pause"),
            ScheduleAction::Resume => (Method::POST, "/resume"),
            ScheduleAction::Remove => {
                confirm(
                    yes,
                    &format!("Remove {}?", counted(ids.len() as u64, "schedule")),
                )?;
                (Method::DELETE, "")
            }
        };
        for id in ids {
            let path = format!("/schedules/{id}{action}");
            let answer = self
                .client
                .change(&format!("schedule {id}"), method.clone(), &path)
                .await?;
            match action {
                "/run" => self.show(&answer.json()?, |it| format!("{}\n", at(it, "/id")))?,
                "" => {}
                _ => self.rows(SCHEDULES, &[answer.json()?])?,
            }
        }
        Ok(())
    }

    async fn disconnect(&mut self, ids: &[u64], yes: bool) -> Result<(), Failure> {
        confirm(
            yes,
            &format!("Close {}?", counted(ids.len() as u64, "connection")),
        )?;
        for id in ids {
            let path = format!("/connections/{id}/close");
            self.client
                .change(&format!("connection {id}"), Method::POST, &path)
                .await?;
        }
        Ok(())
    }

    /// Shows what the daemon waits for whenever that changes, until the daemon has stopped.
    async fn drain(&mut self, no_wait: bool) -> Result<(), Failure> {
        const LOOK_EVERY: Duration = Duration::from_millis(200);
        let mut draining: Value = self.client.post("/drain").await?.json()?;
        self.show(&draining, show::drain)?;
        if no_wait {
            return Ok(());
        }
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let Ok(status) = self.client.get("/status").await else {
                return Ok(());
            };
            let now = at(&status, "/drain");
            if *now != draining {
                self.show(now, show::drain)?;
                draining = now.clone();
            }
        }
    }

    async fn report(
        &mut self,
        lease: &str,
        what: &str,
        text: Option<&String>,
    ) -> Result<Answer, Failure> {
        let path = format!("/leases/{}/{what}", encoded(lease).replace("%2E", "."));
        self.client
            .send(Method::POST, &path, text.cloned().unwrap_or_default())
            .await
    }
}

impl LosingQueue {
    async fn clear(
        &self,
        key: Option<&String>,
        operator: &mut Operator<'_>,
    ) -> Result<(), Failure> {
        let path = format!("/queues/{}", encoded(&self.queue));
        let row = operator.client.get(&path).await?;
        let jobs = match key {
            Some(key) => format!("the ready jobs of the key {key:?}"),
            None => many(at(&row, "/states/ready"), "ready job"),
        };
        confirm(self.yes, &format!("Remove {jobs} of {}?", self.queue))?;
        let path = with_query(&format!("{path}/clear"), &[("key", key.cloned())]);
        let changed: Value = operator.client.post(&path).await?.json()?;
        operator.show(&changed, |it| {
            format!("{} removed\n", many(at(it, "/changed"), "job"))
        })
    }

    async fn remove(&self, operator: &mut Operator<'_>) -> Result<(), Failure> {
        let path = format!("/queues/{}", encoded(&self.queue));
        let row = operator.client.get(&path).await?;
        let dead = number(at(&row, "/states/dead"));
        confirm(
            self.yes,
            &format!(
                "Remove the queue {}? Its dead jobs stay: {dead}.",
                self.queue
            ),
        )?;
        operator
            .client
            .send(Method::DELETE, &path, Bytes::new())
            .await
            .map(drop)
    }
}

impl SomeQueues {
    async fn change(&self, operator: &mut Operator<'_>, action: &str) -> Result<(), Failure> {
        let mut rows = Vec::new();
        for queue in &self.queues {
            let path = with_query(
                &format!("/queues/{}/{action}", encoded(queue)),
                &[("key", self.key.clone())],
            );
            rows.push(changed(
                queue,
                &operator
                    .client
                    .change(&format!("queue {queue}"), Method::POST, &path)
                    .await?,
            )?);
        }
        operator.rows(QUEUES, &rows)
    }
}

/// The row of a queue with a changed setting. A note marks a new queue, because its name may be
/// mistyped.
fn changed(queue: &str, answer: &Answer) -> Result<Value, Failure> {
    if answer.is_new {
        let _ = writeln!(
            io::stderr(),
            "{} is new: no client has used this queue yet",
            show::printable(queue)
        );
    }
    answer.json()
}

impl Worker {
    async fn signal(&self, operator: &mut Operator<'_>, signal: &str) -> Result<(), Failure> {
        let path = match &self.worker {
            Some(worker) => format!("/workers/{}/{signal}", encoded(worker)),
            None => format!("/workers/{signal}"),
        };
        operator.client.post(&path).await.map(drop)
    }
}

impl Push {
    async fn run(&self, operator: &mut Operator<'_>) -> Result<(), Failure> {
        let mut body = self.body.clone().unwrap_or_default().into_bytes();
        if self.body.is_none() {
            io::stdin().lock().read_to_end(&mut body).map_err(failure)?;
        }
        let path = with_query(
            &format!("/queues/{}/jobs", encoded(&self.queue)),
            &self.terms.parameters(),
        );
        let pushed: Value = operator
            .client
            .send(Method::POST, &path, body)
            .await?
            .json()?;
        operator.show(&pushed, |it| format!("{}\n", at(it, "/id")))
    }
}

impl Take {
    /// Prints nothing if there is no job.
    async fn run(&self, operator: &mut Operator<'_>) -> Result<(), Failure> {
        let path = with_query(
            &format!("/queues/{}/take", encoded(&self.queue)),
            &self.terms.parameters(),
        );
        let answer = operator.client.post(&path).await?;
        if answer.body.is_empty() {
            return Err(failure(format!(
                "the queue {} has no job for this worker",
                self.queue
            )));
        }
        operator.show(&answer.json()?, show::taken)
    }
}
